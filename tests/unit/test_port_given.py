"""What people really give: batches in containers of their own, modules with state, methods, half precision, NaN."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

import twinax as tx
from twinax.errors import TwinaxError
from twinax.port import Step

torch = pytest.importorskip("torch")
nn = torch.nn

X = torch.linspace(-1, 1, 20).reshape(5, 4)
Y = torch.linspace(0, 1, 10).reshape(5, 2)


def small() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


@dataclasses.dataclass
class Rows:
    x: Any
    y: Any
    note: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenRows:
    x: Any
    y: Any


class Named(dict):
    __getattr__ = dict.__getitem__


class Entries(dict):
    def __init__(self, **entries):
        super().__init__(entries)
        self.__dict__ = self


class Plain:
    def __init__(self, x, y):
        self.x, self.y, self.more = x, y, {"rows": [x]}


Pair = collections.namedtuple("Pair", "x y")


def error(module, batch):
    return ((module(batch.x) - batch.y) ** 2).mean()


@pytest.mark.parametrize("kind", [Rows, FrozenRows, Named, Entries, Plain, Pair])
def test_a_batch_may_come_in_a_container_of_its_own(kind):
    function = tx.port.function(small(), kind(x=X, y=Y), loss=error)
    expected = error(small(), Pair(X, Y)).detach()
    np.testing.assert_allclose(function(function.params, kind(x=X.numpy(), y=Y.numpy())), expected, rtol=1e-6)


def test_a_step_takes_such_a_batch_and_keeps_one_program():
    module = small()
    step = Step(module, error, torch.optim.SGD(module.parameters(), 0.1), check=False)
    losses = [step(Rows(X + k, Y))["loss"] for k in range(3)]
    assert len(set(map(id, step._programs.values()))) == 1 and len(set(losses)) == 3


class Simulator:
    def __init__(self):
        self.rules = small()


def test_what_is_no_container_of_arrays_is_one_sentence():
    with pytest.raises(TwinaxError, match=r"Simulator among what is given or returned .* give and return dicts"):
        tx.port.function(small(), {"x": X, "env": Simulator()}, loss=lambda module, batch: module(batch["x"]).sum())
    with pytest.raises(TwinaxError, match=r"Simulator among what is given or returned"):
        tx.port.function(small(), X, loss=lambda module, x: (module(x).sum(), {"env": Simulator()}))


class Policy(nn.Module):
    """With methods besides `forward`, a count, and a memory of its last answer."""

    def __init__(self):
        super().__init__()
        self.net, self.calls, self.kept = small(), 0, []

    def forward(self, x):
        return self.evaluate(x)[0]

    def evaluate(self, x, scale=1.0):
        self.calls += 1
        logits = self.net(x)
        self.kept.append(logits)
        return logits * scale, logits.logsumexp(-1)

    def loss(self, batch):
        return error(self.net, batch)


def test_another_method_of_a_module_is_ported_as_it_is_called():
    policy = Policy()
    function = tx.port.function(policy.evaluate, X, 2.0)
    logits, value = function(function.params, X.numpy(), 2.0)
    expected = [x.detach() for x in policy.evaluate(X, 2.0)]
    np.testing.assert_allclose(logits, expected[0], atol=1e-6)
    np.testing.assert_allclose(value, expected[1], atol=1e-6)
    assert list(function.params) == [name for name, _ in policy.named_parameters()]


def test_a_proof_leaves_a_modules_own_state_alone():
    policy = Policy()
    tx.port.function(policy, X)
    assert policy.calls == 0 and policy.kept == []


def test_a_loss_may_be_a_method_of_the_module_or_reach_it_another_way():
    batch = Pair(X, Y)

    class Agent:
        def __init__(self):
            self.policy = Policy()

        def loss(self, batch):
            return error(self.policy.net, batch)

    agent, policies = Agent(), (Policy(), Policy())
    made = [
        Step(policies[0], policies[0].loss, torch.optim.SGD(policies[0].parameters(), 0.1)),
        Step(policies[1], Policy.loss, torch.optim.SGD(policies[1].parameters(), 0.1)),
        Step(agent.policy, lambda policy, batch: agent.loss(batch), torch.optim.SGD(agent.policy.parameters(), 0.1)),
    ]
    losses = [[step(batch)["loss"] for _ in range(3)] for step in made]
    assert losses[0] == losses[1] == losses[2] and losses[0][2] < losses[0][0]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method")  # in what torch.compile imports
def test_what_is_compiled_or_normalised_or_sparse_is_ported():
    compiled = nn.Sequential(small())
    compiled[0].compile()
    tx.port.function(compiled, X)
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 2))
    tx.port.function(normed, X)
    looked_up = nn.Embedding(6, 2, sparse=True)
    step = Step(looked_up, lambda m, b: m(b).square().sum(), torch.optim.SGD(looked_up.parameters(), 0.1))
    before = looked_up.weight.detach().clone()
    step(torch.tensor([1, 1, 3]))
    assert [k for k in range(6) if not torch.equal(before[k], looked_up.weight[k])] == [1, 3]


def test_tensors_that_are_no_parameters_are_doubles_in_the_proof():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.scale = small(), torch.linspace(0.1, 1, 4)  # a plain attribute

        def forward(self, x):
            return self.net(x * self.scale.cumsum(0)) @ torch.eye(2)

    report = tx.port.function(Scaled(), X, check=False).check()
    assert report.ok


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_proven_within_its_own_tolerance(dtype):
    function = tx.port.function(small().to(dtype), X.to(dtype))
    assert function(function.params, X.to(dtype)).dtype == str(dtype)[6:]

    def mixed(module, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return ((module(batch.x) - batch.y) ** 2).mean()

    tx.port.function(small(), Pair(X, Y), loss=mixed)


def test_a_proof_inside_of_no_grad_and_of_inference_mode_tensors():
    with torch.no_grad():
        tx.port.function(small(), X)
    with torch.inference_mode():
        seen = X * 2
    module = small()
    assert Step(module, error, torch.optim.SGD(module.parameters(), 0.1))(Pair(seen, Y))["loss"] > 0


def test_statistics_that_sampling_changes_are_those_of_the_next_step():
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    step = Step(module, error, torch.optim.SGD(module.parameters(), 0.1))
    step(Pair(X, Y))
    module(X + 3)  # PyTorch samples in training
    mean = module[0].running_mean.clone()
    step(Pair(X, Y))
    np.testing.assert_allclose(module[0].running_mean, 0.9 * mean + 0.1 * X.mean(0), atol=1e-6)
    assert int(module[0].num_batches_tracked) == 3


def test_rounding_in_its_own_precision_is_no_difference():
    module = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))  # whose first bias has a gradient of rounding noise
    function = tx.port.function(module, Pair(X, 1e4 * Y), loss=error)
    assert function.check().ok


def test_draws_that_are_indices_are_proven():
    def loss(module, x):
        chosen = torch.distributions.Categorical(logits=module(x))
        return -chosen.log_prob(chosen.sample()).mean()

    function = tx.port.function(small(), X, loss=loss)
    assert function(function.params, X.numpy(), draws=function.draw(0)) > 0


def logarithm(module, batch):
    return torch.log(module(batch.x) - 10).mean()


def differentiated(module, batch):
    x = batch.x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    return slope.square().mean()


def backward(module, batch):
    value = error(module, batch)
    value.backward()
    return value


def packed(module, batch):
    return nn.utils.rnn.pack_padded_sequence(module(batch.x)[None], torch.tensor([3]), batch_first=True)[0].sum()


@pytest.mark.parametrize(
    ("loss", "batch", "said"),
    [
        (error, Pair(X * torch.nan, Y), r"is not a number in PyTorch itself, as batch\.x has such entries"),
        (logarithm, Pair(X, Y), r"is not a number in PyTorch itself, from aten.log.default \(.*: return torch.log"),
        (differentiated, Pair(X, Y), r"it differentiates by itself .*: \(slope,\) = torch.autograd.grad"),
        (backward, Pair(X, Y), r"it differentiates by itself .*: value.backward\(\)"),
        (packed, Pair(X, Y), r"a packed sequence has its lengths .*pack_padded_sequence"),
        (
            lambda m, b: (error(m, b), m(b.x)),
            Pair(X, Y),
            r"gives a tuple; it must be a scalar, .* or a scalar and a dict",
        ),
        (lambda m, b: {"loss": error(m, b)}, Pair(X, Y), r"gives a dict; it must be a scalar"),
        (lambda m, b: (error(m, b), {"task": "walk"}), Pair(X, Y), r"gives the text 'walk'"),
        (lambda m, b: (error(m, b), {"loss": error(m, b).item()}), Pair(X, Y), r"return it in the loss's dict"),
    ],
)
def test_losses_that_cannot_be_are_one_sentence_and_leave_the_module(loss, batch, said):
    module = small()
    before = {name: p.clone() for name, p in module.state_dict().items()}
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    with pytest.raises(TwinaxError, match=said) as found:
        Step(module, loss, optimizer)(batch)
    assert "\n" not in str(found.value)
    assert all(torch.equal(p, before[name]) for name, p in module.state_dict().items())


def test_modules_without_shapes_or_from_elsewhere_are_one_sentence():
    with pytest.raises(TwinaxError, match="'0.weight' has no shape yet, .* call the module once"):
        tx.port.function(nn.Sequential(nn.LazyLinear(2)), X)
    with torch.inference_mode():
        made = small()
    with pytest.raises(TwinaxError, match="'0.weight' was made inside torch.inference_mode"):
        tx.port.function(made, X)
    module = small()
    step = Step(module, error, torch.optim.SGD(module[0].parameters(), 0.1), check=False)
    step.managed[0].optimizer.add_param_group({"params": module[2].parameters()})
    with pytest.raises(TwinaxError, match="the optimizer has other parameters than when the step was made"):
        step(Pair(X, Y))


def test_batches_that_change_shape_every_step_are_said_once():
    module = small()
    step = Step(module, error, torch.optim.SGD(module.parameters(), 0.1), check=False)
    with pytest.warns(UserWarning, match="in 5 different shapes, .* pad them to a few sizes") as said:
        for rows in range(1, 7):
            step(Pair(torch.ones(rows, 4), torch.ones(rows, 2)))
    assert len(said) == 1


def test_hooks_that_run_forward_are_part_of_the_module():
    module = small()
    module[0].register_forward_hook(lambda one, given, made: made * 2)
    tx.port.function(module, X)
    module[0].weight.register_hook(lambda gradient: gradient * 2)
    with pytest.raises(TwinaxError, match="the parameter '0.weight' has a hook on its gradient"):
        tx.port.function(module, X)


def test_the_order_of_a_dictionary_is_that_of_the_first_one():
    def loss(module, batch):
        return ((module(batch["x"]) - batch["goal"]["y"]) ** 2).mean()

    module, batch = small(), {"x": X, "goal": {"y": Y, "extra": X}}
    function = tx.port.function(module, batch, loss=loss)
    turned = {"goal": {"extra": X.numpy(), "y": Y.numpy()}, "x": X.numpy()}
    np.testing.assert_allclose(function(function.params, turned), loss(module, batch).detach(), rtol=1e-6)
    step = Step(module, loss, torch.optim.SGD(module.parameters(), 0.0), check=False)
    assert step(batch) == step(dict(reversed(list(batch.items())))) and len(set(map(id, step._programs.values()))) == 1
    with pytest.raises(TwinaxError, match="inputs are arranged as .*, but those of the example as") as found:
        function(function.params, {"x": X.numpy()})
    assert "\n" not in str(found.value)


def stored(module, batch):
    if batch.y.requires_grad:
        raise RuntimeError("what was stored requires grad")
    return error(module, batch)


def single(module, batch):
    if batch.x.dtype != torch.float32:
        raise TypeError("this wants float32")
    return error(module, batch)


def test_code_that_looks_at_what_it_is_given():
    function = tx.port.function(small(), Pair(X, Y), loss=stored, check=False)
    report = function.check()
    assert report.ok and any("0.weight" in row.item for row in report.rows if row.rung == "gradients")
    with pytest.raises(TwinaxError, match=r"does not run in float64, .*: this wants float32 \(.*check=False"):
        tx.port.function(small(), Pair(X, Y), loss=single)
