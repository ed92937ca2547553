"""A module or a loss of somebody's as a JAX function: what it is given, what it gives, and what is refused."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinax as tx
from twinax.errors import TwinaxError
from twinax.parity import Different
from twinax.port._table import OPERATORS

torch = pytest.importorskip("torch")
nn = torch.nn


def small() -> torch.nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


X = torch.linspace(-1, 1, 20).reshape(5, 4)


def test_a_module_is_a_pure_function_of_its_parameters():
    module = small()
    function = tx.port.function(module, X)
    assert list(function.params) == [name for name, _ in module.named_parameters()]
    np.testing.assert_allclose(jax.jit(function)(function.params, X.numpy()), module(X).detach(), atol=1e-6)
    double = jax.tree.map(lambda p: 2 * p, function.params)
    assert not np.allclose(function(double, X.numpy()), module(X).detach())


def test_it_is_mapped_over_parameters_and_differentiated_inside_other_code():
    function = tx.port.function(small(), X, check=False)
    several = jax.tree.map(lambda p: jnp.stack([p, 0 * p]), function.params)
    outputs = jax.vmap(lambda p: function(p, X.numpy()))(several)
    assert outputs.shape == (2, 5, 2) and not outputs[1].any()
    slopes = jax.vmap(jax.grad(lambda x: function(function.params, x[None]).sum()))(jnp.asarray(X.numpy()))
    given = X.clone().requires_grad_()
    (expected,) = torch.autograd.grad(function.module(given).sum(), given)
    np.testing.assert_allclose(slopes, expected, atol=1e-6)


def test_a_loss_with_terms_in_a_dict_of_arrays():
    def loss(module, batch):
        error = (module(batch["x"]) - batch["y"]).abs()
        return error.sum(), {"worst": error.sum(), "rows": [error * 2.0]}

    module, batch = small(), {"x": X, "y": np.zeros((5, 2), np.float32)}
    function = tx.port.function(module, batch, loss=loss, check=False)
    value, terms = function(function.params, {"x": X.numpy(), "y": batch["y"]})
    theirs, shown = loss(module, {"x": X, "y": torch.zeros(5, 2)})
    np.testing.assert_allclose(value, theirs.detach(), rtol=1e-6)
    np.testing.assert_allclose(terms["rows"][0], shown["rows"][0].detach(), atol=1e-6)


def test_gradients_stop_where_the_person_stops_them():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.online, self.target = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            with torch.no_grad():
                aim = self.target(x) + self.online(x)
                with torch.enable_grad():
                    kept = self.online(x) * 3
            return (self.online(x) - aim).abs() + kept + self.online(x).detach() * self.target(x)

    function = tx.port.function(Two(), X)  # the proof compares every gradient
    program = function.capture(function.example).program
    assert program.reached() == {"online.weight", "online.bias", "target.weight", "target.bias"}

    def stopped(module, x):
        with torch.no_grad():
            aim = module.target(x)
        return (module.online(x) - aim).abs().sum()

    loss = tx.port.function(Two(), X, loss=stopped)
    assert loss.capture(loss.example).program.reached() == {"online.weight", "online.bias"}


def test_other_shapes_are_captured_when_they_are_met_and_many_are_said():
    function = tx.port.function(small(), X, check=False)
    with pytest.warns(UserWarning, match="in 5 different shapes"):
        for rows in range(1, 6):
            assert function(function.params, np.ones((rows, 4), np.float32)).shape == (rows, 2)


def test_one_capture_serves_every_number_of_rows():
    function = tx.port.function(small(), X[:1], dynamic=True)
    for rows in range(1, 9):
        x = np.full((rows, 4), 0.1, np.float32)
        np.testing.assert_allclose(
            function(function.params, x), function.module(torch.from_numpy(x)).detach(), atol=1e-6
        )
    assert len(function._captures) == 2  # one for a single row, which code often takes apart


def test_random_calls_are_draws_by_name():
    def loss(module, x):
        return (nn.functional.dropout(module(x), 0.5) + torch.randn_like(x[:, :2])).abs().sum()

    function = tx.port.function(small(), X, loss=loss)  # both sides are given the same draws
    assert {draw.kind for draw in function.draws.values()} == {"uniform", "normal"}
    values = [function(function.params, X.numpy(), draws=function.draw(0, step)) for step in (1, 1, 2)]
    assert values[0] == values[1] != values[2]
    with pytest.raises(TwinaxError, match=r"this function is random .* give draws=function.draw"):
        function(function.params, X.numpy())


def test_changed_buffers_are_results():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x):
            self.total.add_(x.sum())
            return x * self.total

    module = Counted()
    function = tx.port.function(module, X)
    assert module.total == 0  # the capture and the proof leave it alone
    output, buffers = function.with_buffers({}, np.ones((2, 4), np.float32), buffers={"total": jnp.ones(())})
    assert buffers["total"] == 9 and (np.asarray(output) == 9).all()


def test_the_proof_names_the_operator_the_line_and_both_numbers(monkeypatch):
    def loss(module, x):
        return torch.tanh(module(x)).sum()  # this line

    wrong = dataclasses.replace(OPERATORS["aten.tanh.default"], function=lambda x: jnp.tanh(x) * 1.001)
    monkeypatch.setitem(OPERATORS, "aten.tanh.default", wrong)
    with pytest.raises(Different, match=r"aten.tanh.default \(.*Tanh.*|aten.tanh.default \(.*\.py:\d+") as found:
        tx.port.function(nn.Linear(4, 2), X, loss=loss)
    said = str(found.value)
    assert "# this line" in said and "in PyTorch and" in said and "in JAX" in said


def test_the_proof_sees_a_gradient_that_is_wrong_though_the_value_is_right(monkeypatch):
    @jax.custom_jvp
    def tanh(x):
        return jnp.tanh(x)

    tanh.defjvp(lambda primals, tangents: (jnp.tanh(primals[0]), tangents[0]))
    wrong = dataclasses.replace(OPERATORS["aten.tanh.default"], function=tanh)
    monkeypatch.setitem(OPERATORS, "aten.tanh.default", wrong)
    with pytest.raises(Different, match="gradients: .* first operator that differs is aten.tanh.* gives a gradient of"):
        tx.port.function(small(), X)


def test_the_proof_sees_what_a_capture_loses():
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, gradient):
            return gradient * 3

    with pytest.raises(Different, match="every operator of the captured graph agrees.*autograd.Function"):
        tx.port.function(small(), X, loss=lambda module, x: Tripled.apply(module(x)).sum())


def read_outside(module, x):
    return module(x).sum() * float(np.abs(x.numpy()).sum())


def decided(module, x):
    return module(x).sum() if module(x).sum() > 0 else module(x).mean()


def taken(module, x):
    return module(x).sum() * module(x).mean().item()


def written(module, x):
    x.mul_(2)
    return module(x).sum()


def failing(module, x):
    raise KeyError("nothing here")


OTHER = nn.Linear(4, 2)
LONE = torch.zeros(1, requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (read_outside, r"read outside of PyTorch .* keep that part in PyTorch"),
        (decided, r"Python decides by a number inside a tensor.*test_port_function.py:\d+: return module"),
        (taken, r"a number is taken out of a tensor.*test_port_function.py:\d+: return module"),
        (written, r"the input x is written to in place.*x.clone\(\)"),
        (failing, r"KeyError.*nothing here.*test_port_function.py:\d+: raise KeyError"),
        (lambda module, x: (module(x) * OTHER(x)).sum(), r"a trained tensor of shape \(2,( 4)?\) that is not one of"),
        (lambda module, x: (module(x) * LONE).sum(), r"a trained tensor of shape \(1,\) that is not one of.*Parameter"),
    ],
)
def test_what_cannot_be_captured_is_one_sentence(loss, said):
    module = small()
    before = {name: p.clone() for name, p in module.state_dict().items()}
    with pytest.raises(TwinaxError, match=said) as found:
        tx.port.function(module, X.clone(), loss=loss)
    assert "\n" not in str(found.value)
    assert all(torch.equal(p, before[name]) for name, p in module.state_dict().items())


def test_modules_that_cannot_be_ported_are_one_sentence():
    hooked = small()
    hooked[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(TwinaxError, match="the module '0' has a backward hook"):
        tx.port.function(hooked, X)
    with pytest.raises(TwinaxError, match="a DataParallel, .* give the module inside it"):
        tx.port.function(nn.DataParallel(small()), X)
    with pytest.raises(TwinaxError, match=r"'0.weight' is on device meta; move the module"):
        tx.port.function(small().to("meta"), X)
    with pytest.raises(TwinaxError, match=r"a torch.nn.Module is ported, but this is a function"):
        tx.port.function(read_outside, X)
    function = tx.port.function(small(), X, check=False)
    with pytest.raises(TwinaxError, match=r"the parameters lack '2.bias'"):
        function({name: p for name, p in function.params.items() if name != "2.bias"}, X.numpy())


def test_numbers_beside_arrays_are_part_of_what_is_compiled():
    function = tx.port.function(small(), X, 2.0, loss=lambda module, x, scale: module(x).sum() * scale)
    one, two = (function(function.params, X.numpy(), scale) for scale in (2.0, 4.0))
    np.testing.assert_allclose(2 * one, two, rtol=1e-6)


def test_a_distribution_of_integers_is_captured():
    """Its `.long()` of what is long already leaves an assertion in the graph."""
    batch = {"x": torch.randn(5, 3), "action": torch.randint(0, 4, (5,))}

    def loss(module, batch):
        return torch.distributions.Categorical(logits=module(batch["x"])).log_prob(batch["action"]).mean()

    torch.manual_seed(0)
    module = torch.nn.Linear(3, 4)
    made = tx.port.function(module, batch, loss=loss)
    assert np.isclose(made(made.params, batch), loss(module, batch).item(), rtol=1e-5)
