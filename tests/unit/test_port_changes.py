"""What changes behind a step's or a function's back: never a wrong number without a word."""

from __future__ import annotations

import numpy as np
import pytest

import twinax as tx
from twinax.errors import TwinaxError
from twinax.parity import Different
from twinax.port import Step, Update

torch = pytest.importorskip("torch")
nn = torch.nn
optim = torch.optim


class Agent(nn.Module):
    """A scaled line, a frozen twin of it, and a buffer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.t = nn.Linear(3, 1), nn.Linear(3, 1)
        self.register_buffer("scale", torch.ones(1))
        self.k, self.calls = 1.0, 0

    def forward(self, x):
        self.calls += 1
        return self.q(x) * self.scale * self.k


def td(agent, batch):
    with torch.no_grad():
        aim = agent.t(batch["x"]) + 1
    return ((agent(batch["x"]) - aim) ** 2).mean()


def batch(rows: int = 4) -> dict[str, torch.Tensor]:
    return {"x": torch.linspace(-1, 1, 3 * rows).reshape(rows, 3)}


def both(change, steps: int = 3, loss=td):
    """The losses of a step and of PyTorch, when `change(agent, number)` is called after every step."""
    found = []
    for port in (True, False):
        agent = Agent()
        optimizer = optim.SGD(agent.q.parameters(), 0.1)
        step = Step(agent, loss, optimizer, check=False) if port else None
        losses = []
        for number in range(steps):
            if step is not None:
                losses.append(step(batch())["loss"])
            else:
                optimizer.zero_grad()
                value = loss(agent, batch())
                value.backward()
                optimizer.step()
                losses.append(value.item())
            change(agent, number)
        found.append(losses)
    return found


def by_data(agent, number):
    for p, q in zip(agent.t.parameters(), agent.q.parameters(), strict=True):
        p.data.copy_(0.5 * p.data + 0.5 * q.data)


def in_place(agent, number):
    with torch.no_grad():
        for p, q in zip(agent.t.parameters(), agent.q.parameters(), strict=True):
            p.lerp_(q, 0.5)


def annealed(agent, number):
    agent.k = 1.0 / (number + 2)


def scaled(agent, number):
    agent.scale.mul_(0.5)


@pytest.mark.parametrize("change", [by_data, in_place, annealed, scaled])
def test_what_the_step_only_reads_is_read_anew(change):
    mine, theirs = both(change)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_tensor_beside_the_module_is_read_anew():
    coefficient = torch.ones(1)
    losses = []
    for port in (True, False):
        coefficient.fill_(1.0)
        agent = Agent()

        def loss(agent, batch):
            return td(agent, batch) * coefficient.sum()

        step = Step(agent, loss, optim.SGD(agent.q.parameters(), 0.0), check=False)
        for value in (1.0, 7.0):
            coefficient.fill_(value)
            losses.append(step(batch())["loss"] if port else loss(agent, batch()).item())
    np.testing.assert_allclose(losses[:2], losses[2:], rtol=1e-5)


def test_numbers_of_a_trained_parameter_written_by_data_are_seen():
    agent = Agent()
    step = Step(agent, td, optim.SGD(agent.q.parameters(), 0.1), check=False)
    step(batch())
    agent.q.weight.data.clamp_(-0.1, 0.1)
    with pytest.raises(TwinaxError, match=r"'q.weight' was changed outside of the step; call step.pull\(\)"):
        step(batch())
    step.pull()
    step(batch())
    agent.double().float()
    with pytest.raises(TwinaxError, match=r"was changed outside of the step"):
        step(batch())
    step.pull()
    assert step(batch())["loss"] > 0


def test_an_attribute_that_makes_no_difference_compiles_nothing_anew():
    agent = Agent()
    step = Step(agent, td, optim.SGD(agent.q.parameters(), 0.1), check=False)
    for _ in range(4):
        step(batch())
        agent(batch()["x"])  # counts its calls
    assert len({id(one) for one in step._programs.values()}) == 1


def test_an_optimizer_that_is_set_otherwise_goes_on():
    agent = Agent()
    optimizer = optim.SGD(agent.q.parameters(), 0.1)
    step = Step(agent, td, optimizer, check=False)
    step(batch())
    optimizer.param_groups[0]["momentum"] = 0.9
    step(batch())
    optimizer.add_param_group({"params": [agent.t.weight]})
    with pytest.raises(TwinaxError, match="add_param_group"):
        step(batch())


def test_copies_are_copies():
    agent = Agent()
    step = Step(agent, td, optim.Adam(agent.q.parameters(), 0.1), check=False)
    step(batch())
    copied, numbers = step.copied(), step.numbers()
    before = numbers["parameters"]["q.weight"].copy()
    for _ in range(2):
        losses = [step(batch())["loss"] for _ in range(2)]
        step.restore(copied)
        assert losses == [step(batch())["loss"] for _ in range(2)]
        step.restore(copied)
    np.testing.assert_array_equal(numbers["parameters"]["q.weight"], before)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda a, o: Step(a, [Update(td, o, "a"), Update(td, o, "b")]), "two updates share one optimizer"),
        (lambda a, o: Step(a, td, o, seed=-1), "the seed is -1; it must be at least 0"),
        (
            lambda a, o: Step(a, lambda a, b: (td(a, b), {"grad_norm": td(a, b)}), o, check=False)(batch()),
            "also shows something called 'grad_norm'",
        ),
        (
            lambda a, o: Step(a, td, o, check=False)({"x": batch()["x"], "i": np.array([2**31])}),
            "the integer 2147483648, which JAX's int32 cannot hold",
        ),
    ],
)
def test_more_that_a_step_cannot_be(make, said):
    agent = Agent()
    with pytest.raises(TwinaxError, match=said):
        make(agent, optim.SGD(agent.q.parameters(), 0.1))


def test_numbers_and_truths_beside_arrays_are_not_taken_for_each_other():
    module = nn.Linear(3, 1)
    function = tx.port.function(
        module, batch()["x"], True, loss=lambda m, x, k: m(x).sum() * (2 if k is True else 1), check=False
    )
    values = [float(function(function.params, batch()["x"].numpy(), k)) for k in (True, 1)]
    assert values[0] == pytest.approx(2 * values[1])


class Short(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.n = nn.Linear(3, 1)

    def forward(self, x):
        y = self.n(x)
        return y if len(x) < 10 else y * 2


class Centred(Short):
    def forward(self, x):
        y = self.n(x)
        return (y - y.mean(0)) / y.std(0) if len(x) > 2 else y


@pytest.mark.parametrize("kind", [Short, Centred])
def test_code_that_looks_at_the_number_of_rows_is_captured_for_each(kind):
    module = kind()
    function = tx.port.function(module, torch.randn(8, 3), dynamic=True)
    for rows in (8, 2, 16):
        x = torch.randn(rows, 3)
        np.testing.assert_allclose(function(function.params, x.numpy()), module(x).detach(), atol=1e-5)


def test_arrays_with_rows_of_their_own_are_captured_for_each():
    class Two(Short):
        def forward(self, x, y):
            return self.n(x).sum() + y.sum() / y.shape[1]

    module = Two()
    function = tx.port.function(module, torch.ones(8, 3), torch.ones(5, 3), dynamic=True)
    for x, y in ((torch.ones(6, 3), torch.ones(9, 7)), (torch.ones(4, 3), torch.ones(4, 2))):
        np.testing.assert_allclose(function(function.params, x.numpy(), y.numpy()), module(x, y).detach(), rtol=1e-5)


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1.0

    @staticmethod
    def backward(context, gradient):
        return gradient * 3


def test_the_proof_sees_behind_a_head_of_zeros():
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    nn.init.zeros_(module[1].weight)
    with pytest.raises(Different, match=r"autograd.Function"):
        tx.port.function(module, batch()["x"], loss=lambda m, x: m[1](Tripled.apply(m[0](x))).sum())


def test_masks_and_probabilities_stay_what_they_are_in_the_proof():
    mask = torch.tensor([[True, False, True], [False, True, True], [True, False, False]])
    chosen = torch.tensor([0, 1, 0])
    shares = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]])

    def loss(module, b):
        logits = module(b["x"]).masked_fill(~b["mask"], torch.finfo(b["x"].dtype).min)
        policy = torch.distributions.Categorical(logits=logits)
        law = torch.distributions.Dirichlet(module(b["x"]).exp())
        return -policy.log_prob(b["a"]).mean() - 0.1 * law.log_prob(b["p"]).mean()

    tx.port.function(
        nn.Linear(3, 3), {"x": batch(3)["x"], "mask": mask, "a": chosen, "p": shares}, loss=loss
    )  # the proof is not stopped by what it makes itself


class Body(nn.Module):
    def __init__(self, outputs: int, k: int = 1):
        super().__init__()
        self.body, self.head, self.k = nn.Linear(8, 8), nn.Linear(8, outputs), k
        self.body.requires_grad_(False)
        self.register_buffer("turn", torch.randn(8, 8))

    def forward(self, x):
        return self.head(self.body(x) @ self.turn) * self.k


def test_what_is_frozen_in_a_network_of_ones_own_stays_and_buffers_are_its_own():
    spec = tx.networks.NetworkSpec("policy", np.ones((1, 8), np.float32), {"forward": 2})
    factory = tx.port.network(lambda spec: Body(spec.outputs), check=False)
    one, two = (factory(np.random.default_rng(seed), spec) for seed in (0, 1))
    assert set(one.parameters) == {"head.weight", "head.bias"}
    for made in (one, two):
        own = made.module()
        np.testing.assert_allclose(made(spec.observation), own(torch.ones(1, 8)).detach(), atol=1e-6)
    assert not np.allclose(one.held.buffers["turn"], two.held.buffers["turn"])
    single, tenfold = (tx.port.network(Body(2, k), check=False)(np.random.default_rng(0), spec) for k in (1, 10))
    assert single.module().k == 1 and tenfold.module().k == 10
