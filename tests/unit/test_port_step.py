"""A compiled step against PyTorch's own training: the same numbers after every step, whatever the optimizer."""

from __future__ import annotations

import copy
import math

import jax
import numpy as np
import pytest

import twinax as tx
from twinax.errors import TwinaxError
from twinax.port import Step, Target, Update

torch = pytest.importorskip("torch")
nn = torch.nn
optim = torch.optim
STEPS = 6


@pytest.fixture
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()


def batches(number: int = STEPS) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {k: torch.randn(5, n, generator=generator).double() for k, n in (("x", 3), ("y", 2))} for _ in range(number)
    ]


def error(module, batch):
    return ((module(batch["x"]) - batch["y"]) ** 2).mean()


def distance(a: nn.Module, b: nn.Module) -> float:
    return max(
        float((p - q).detach().abs().max())
        for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "nesterov": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda p: optim.Adam(p, 0.01, betas=(0.8, 0.95), eps=1e-5, weight_decay=0.1),
    "amsgrad": lambda p: optim.Adam(p, 0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: optim.AdamW(p, 0.01, weight_decay=0.2),
    "adam decoupled": lambda p: optim.Adam(p, 0.01, weight_decay=0.2, decoupled_weight_decay=True),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, alpha=0.9, eps=1e-5, weight_decay=0.1),
    "rmsprop centered": lambda p: optim.RMSprop(p, 0.01, centered=True, momentum=0.5, maximize=True),
    "rate as a tensor": lambda p: optim.Adam(p, torch.tensor(0.01, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_pytorchs_there_and_back(name, doubles):
    mine, theirs = small(), small()
    optimizer, reference = (OPTIMIZERS[name](module.parameters()) for module in (mine, theirs))
    step = Step(mine, error, optimizer, check=False)
    for batch in batches():
        reference.zero_grad()
        loss = error(theirs, batch)
        loss.backward()
        reference.step()
        assert math.isclose(step(batch)["loss"], loss.item(), rel_tol=1e-12)
        assert distance(mine, theirs) < 1e-13
    # The person leaves, and PyTorch goes on; then they come back.
    for module, one in ((mine, optimizer), (theirs, reference)):
        one.zero_grad()
        error(module, batch).backward()
        one.step()
    assert distance(mine, theirs) < 1e-13
    with pytest.raises(TwinaxError, match=r"parameter '0.weight' was changed outside of the step; call step.pull\(\)"):
        step(batch)
    step.pull()
    step(batch)
    reference.zero_grad()
    error(theirs, batch).backward()
    reference.step()
    assert distance(mine, theirs) < 1e-13


def test_groups_schedulers_frozen_parameters_and_clipping_compile_once(doubles):
    modules = small(), small()
    made = []
    for module in modules:
        module[0].bias.requires_grad_(False)
        groups = [
            {"params": module[0].parameters(), "lr": 0.1},
            {"params": module[2].parameters(), "weight_decay": 0.5},
        ]
        optimizer = optim.AdamW(groups, 0.01)
        made.append((module, optimizer, optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)))
    (mine, optimizer, scheduler), (theirs, reference, following) = made
    step = Step(mine, error, optimizer, clip_norm=0.3, clip_value=0.05, check=False)
    for batch in batches():
        reference.zero_grad()
        error(theirs, batch).backward()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.3)
        nn.utils.clip_grad_value_(theirs.parameters(), 0.05)
        reference.step()
        following.step()
        assert math.isclose(step(batch)["grad_norm"], norm.item(), rel_tol=1e-12)
        scheduler.step()
        assert distance(mine, theirs) < 1e-13
    assert len(set(map(id, step._programs.values()))) == 1
    assert optimizer.param_groups[0]["lr"] == reference.param_groups[0]["lr"] < 0.1


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.critic, self.actor, self.aim = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)
        self.aim.load_state_dict(self.critic.state_dict())
        self.log_alpha = nn.Parameter(torch.zeros(1))
        self.double()


def critic_loss(agent, batch):
    with torch.no_grad():
        aim = batch["y"][:, :1] + 0.9 * agent.aim(batch["x"])
    return ((agent.critic(batch["x"]) - aim) ** 2).mean()


def actor_loss(agent, batch):
    out = agent.actor(batch["x"])
    return (agent.log_alpha.exp().detach() * out**2 - out * agent.critic(batch["x"])).mean(), {"out": out.mean()}


def alpha_loss(agent, batch):
    return -(agent.log_alpha * (agent.actor(batch["x"]).detach().abs() - 1)).mean()


def test_several_losses_in_turn_with_delays_and_a_target_network(doubles):
    mine, theirs = Agent(), Agent()

    def optimizers(agent):
        parts = agent.critic.parameters(), agent.actor.parameters(), [agent.log_alpha]
        return [optim.Adam(part, 0.05) for part in parts]

    critic, actor, alpha = optimizers(mine)
    step = Step(
        mine,
        [
            Update(critic_loss, critic),
            Update(actor_loss, actor, every=2),
            Update(alpha_loss, alpha, name="temperature"),
        ],
        targets=[Target("aim", "critic", tau=0.1, every=2)],
        check=False,
    )
    references = optimizers(theirs)
    for number, batch in enumerate(batches(), 1):
        shown = step(batch)
        for loss, optimizer, every in zip((critic_loss, actor_loss, alpha_loss), references, (1, 2, 1), strict=True):
            if number % every:
                continue
            optimizer.zero_grad()
            value = loss(theirs, batch)
            value = value[0] if isinstance(value, tuple) else value
            value.backward()
            optimizer.step()
        if number % 2 == 0:
            with torch.no_grad():
                for p, q in zip(theirs.aim.parameters(), theirs.critic.parameters(), strict=True):
                    p.lerp_(q, 0.1)
        assert distance(mine, theirs) < 1e-13
        assert {"critic_loss", "critic_loss/grad_norm", "temperature"} <= set(shown)
        assert ("actor_loss/out" in shown) == (number % 2 == 0)


def test_statistics_of_batch_norm_are_the_modules(doubles):
    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()

    mine, theirs = made(), made()
    step = Step(mine, error, optim.SGD(mine.parameters(), 0.1), check=False)
    reference = optim.SGD(theirs.parameters(), 0.1)
    for batch in batches(3):
        step(batch)
        reference.zero_grad()
        error(theirs, batch).backward()
        reference.step()
    assert distance(mine, theirs) < 1e-12
    assert int(mine[1].num_batches_tracked) == 3
    mine.eval()  # evaluation is another graph, and the module acts as always
    assert torch.equal(mine(batch["x"]), mine(batch["x"]))
    step(batch)
    assert int(mine[1].num_batches_tracked) == 3


def test_a_saved_step_goes_on_to_the_bit(tmp_path):
    def made():
        module = small().float()
        return module, Step(module, noisy, optim.Adam(module.parameters(), 0.01), seed=3, check=False)

    def noisy(module, batch):
        return (nn.functional.dropout(module(batch["x"]), 0.3) - batch["y"]).abs().mean()

    data = [{k: x.float() for k, x in batch.items()} for batch in batches()]
    one, step = made()
    for batch in data[:3]:
        step(batch)
    step.save(tmp_path / "step.safetensors")
    expected = [step(batch)["loss"] for batch in data[3:]]
    two, other = made()
    other.load(tmp_path / "step.safetensors")
    assert [other(batch)["loss"] for batch in data[3:]] == expected and other.steps == 6
    assert distance(one, two) == 0
    assert other.managed[0].optimizer.state_dict()["state"][0]["step"] == 6

    narrow = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    unlike = Step(narrow, noisy, optim.Adam(narrow.parameters(), 0.01), check=False)
    with pytest.raises(TwinaxError, match=r"does not fit this step: '.*' has shape"):
        unlike.load(tmp_path / "step.safetensors")
    tx.bridge.save_weights(tmp_path / "weights.safetensors", narrow)
    with pytest.raises(TwinaxError, match="holds no step"):
        unlike.load(tmp_path / "weights.safetensors")
    with pytest.raises(TwinaxError, match="cannot read the step"):
        unlike.load(tmp_path / "nothing.safetensors")


def test_the_first_batch_proves_the_loss():
    module = small().float()
    step = Step(module, lambda m, b: Halved.apply(m(b["x"])).sum(), optim.SGD(module.parameters(), 0.1))
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(tx.parity.Different, match="autograd.Function"):
        step({"x": torch.ones(2, 3)})
    assert all(torch.equal(p, before[name]) for name, p in module.state_dict().items())


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient / 2


def test_a_loss_that_is_not_finite_leaves_everything_as_it_was():
    module = small().float()
    step = Step(module, error, optim.Adam(module.parameters(), 0.1), check=False)
    good, bad = ({"x": torch.full((2, 3), x), "y": torch.zeros(2, 2)} for x in (1.0, float("nan")))
    with pytest.raises(TwinaxError, match="'loss' is nan in step 1; the module and its optimizers are as they were"):
        step(bad)
    first = step(good)["loss"]
    with pytest.raises(TwinaxError, match="'loss' is nan in step 2"):
        step(bad)
    assert step(good)["loss"] < first and step.steps == 2
    assert np.isfinite(distance(module, small().float()))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.double()

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))[:, :2]


def test_tied_parameters_stay_one(doubles):
    mine, theirs = Tied(), Tied()
    step = Step(mine, error, optim.Adam(mine.parameters(), 0.1), check=False)
    reference = optim.Adam(theirs.parameters(), 0.1)
    for batch in batches(3):
        step(batch)
        reference.zero_grad()
        error(theirs, batch).backward()
        reference.step()
    assert distance(mine, theirs) < 1e-13 and mine.b.weight is mine.a.weight


def test_what_the_loss_does_not_reach_is_left_alone_as_in_pytorch(doubles):
    mine, theirs = Agent(), Agent()
    step = Step(mine, critic_loss, optim.AdamW(mine.parameters(), 0.1), check=False)
    reference = optim.AdamW(theirs.parameters(), 0.1)
    for batch in batches(3):
        step(batch)
        reference.zero_grad()
        critic_loss(theirs, batch).backward()
        reference.step()
    assert distance(mine, theirs) < 1e-13
    assert torch.equal(mine.actor.weight, Agent().actor.weight)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda m: Step(m, error), r"a step needs an optimizer"),
        (lambda m: Step(m, error, optim.Adagrad(m.parameters())), r"is a Adagrad; a compiled step has"),
        (lambda m: Step(m, error, optim.Adam(small().parameters())), r"shape \(8, 3\) that is not one of the module's"),
        (lambda m: Step(m, [error], None), r"a list of twinax.port.Update"),
        (
            lambda m: Step(m, error, optim.Adam(m.parameters()), targets=[Target("9", "0")]),
            r"the module has no part '9'",
        ),
        (
            lambda m: Step(m, error, optim.Adam(m.parameters()), targets=[Target("2", "0", tau=0.1)])(batches(1)[0]),
            r"'2' cannot follow '0': '2.weight' has shape .2, 8. and '0.weight' .8, 3.",
        ),
        (
            lambda m: Step(m.half(), error, optim.Adam(m.parameters())),
            r"'0.weight' is float16; a step trains float32 or float64, so call module.float",
        ),
        (
            lambda m: Step(m, lambda m, b: m(b["x"]), optim.Adam(m.parameters()))(batches(1)[0]),
            r"a tensor of shape \(5, 2\); it must be a scalar",
        ),
        (
            lambda m: Step(m, lambda m, b: b["x"].sum(), optim.Adam(m.parameters()))(batches(1)[0]),
            r"reaches no parameter of its optimizer",
        ),
        (
            lambda m: Step(m, [Update(error, optim.SGD(m[k].parameters(), 0.1)) for k in (0, 2)]),
            r"two updates are called 'error'",
        ),
    ],
)
def test_what_a_step_cannot_be_is_one_sentence(make, said, doubles):
    module = small()
    with pytest.raises(TwinaxError, match=said) as found:
        make(module)
    assert "\n" not in str(found.value)


def test_a_profile_says_what_the_whole_loop_gains():
    module = small().float()
    batch = {k: x.float() for k, x in batches(1)[0].items()}
    before = copy.deepcopy(module.state_dict())
    step = Step(module, error, optim.Adam(module.parameters(), 0.01), check=False)
    found = step.profile(batch, sample=lambda: module(batch["x"]), turns=3)
    assert found.ceiling > found.expected * 0.999 and found.step_total > 0
    assert all(torch.equal(p, before[name]) for name, p in module.state_dict().items()) and step.steps == 0
    assert {"update in PyTorch", "update by the step", "sampling", "whole loop"} <= set(found.facts())
