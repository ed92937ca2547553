"""What an audit says of the JAX libraries is what they do, and an agent has its own rows."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from twinax.errors import TwinaxError
from twinax.port import Agent, Update, audit
from twinax.port._defaults import DEFAULTS

torch = pytest.importorskip("torch")
nn, functional, optim = torch.nn, torch.nn.functional, torch.optim


def default_of(path: str) -> Any:
    """The default of a layer's or a function's argument, in the library itself."""
    place, _, argument = path.rpartition(".")
    module, _, name = place.rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing) and issubclass(thing, linen.Module):
        return next(one.default for one in dataclasses.fields(thing) if one.name == argument)
    call = thing.__init__ if inspect.isclass(thing) else thing
    return inspect.signature(call).parameters[argument].default


@pytest.mark.parametrize("path", DEFAULTS)
def test_a_default_in_the_table_is_the_librarys(path):
    assert default_of(path) == DEFAULTS[path]


KEY = jax.random.key(0)


def spread(x) -> float:
    return float(np.std(np.asarray(x)))


def test_first_weights_of_the_libraries_are_as_said():
    wide, x = 256, jnp.zeros((2, 256))
    dense = linen.Dense(512).init(KEY, x)["params"]
    assert math.isclose(spread(dense["kernel"]), 1 / math.sqrt(wide), rel_tol=0.02) and not dense["bias"].any()
    other = nnx.Linear(wide, 512, rngs=nnx.Rngs(0))
    assert math.isclose(spread(other.kernel[...]), 1 / math.sqrt(wide), rel_tol=0.02) and not other.bias[...].any()
    twin = eqx.nn.Linear(wide, 512, key=KEY)
    assert math.isclose(spread(twin.weight), 1 / math.sqrt(3 * wide), rel_tol=0.02) and twin.bias.any()
    table = linen.Embed(1000, 64).init(KEY, jnp.zeros(2, int))["params"]["embedding"]
    assert math.isclose(spread(table), 1 / math.sqrt(64), rel_tol=0.02)
    conv = linen.ConvTranspose(32, (4, 4)).init(KEY, jnp.zeros((1, 8, 8, 64)))["params"]["kernel"]
    assert math.isclose(spread(conv), 1 / math.sqrt(64 * 16), rel_tol=0.02)
    gru = linen.GRUCell(64).init(KEY, jnp.zeros((2, 64)), jnp.zeros((2, 64)))["params"]
    assert {"bias"} == set(gru["ir"]) - {"kernel"} and set(gru["hr"]) == {"kernel"} and "bias" in gru["hn"]
    assert math.isclose(spread(gru["hn"]["kernel"]), 1 / 8, rel_tol=0.02)  # orthogonal
    cell = nnx.GRUCell(64, 64, rngs=nnx.Rngs(0))
    assert cell.dense_h.bias is None or cell.dense_h.bias[...] is None


def test_a_carry_is_cell_and_output():
    state = (jnp.zeros((1, 4)), jnp.zeros((1, 4)))
    cell = linen.OptimizedLSTMCell(4)
    (first, second), out = cell.apply(cell.init(KEY, state, jnp.ones((1, 4))), state, jnp.ones((1, 4)))
    assert np.array_equal(second, out) and not np.array_equal(first, out)
    theirs, (h, _) = nn.LSTM(4, 4)(torch.ones(1, 1, 4))
    assert torch.equal(theirs, h)


def test_running_variances_are_biased():
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    norm = linen.BatchNorm(use_running_average=False, momentum=0.0)
    _, state = norm.apply(norm.init(KEY, x), x, mutable=["batch_stats"])
    assert np.allclose(state["batch_stats"]["var"], x.var(0), rtol=1e-4)
    other = nnx.BatchNorm(3, momentum=0.0, rngs=nnx.Rngs(0))
    other(x)
    assert np.allclose(other.var[...], x.var(0), rtol=1e-4)
    third, kept = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="ema", momentum=0.0)
    _, kept = jax.vmap(third, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, kept)
    assert np.allclose(kept.get(third.ema_state_index)[1], x.var(0), rtol=1e-4)
    mine = nn.BatchNorm1d(3, momentum=1.0)
    mine(torch.from_numpy(x))
    assert np.allclose(mine.running_var.numpy(), x.var(0, ddof=1), rtol=1e-4)


def updates_of(rule: optax.GradientTransformation, gradients) -> np.ndarray:
    p = jnp.zeros(())
    state, found = rule.init(p), []
    for g in gradients:
        change, state = rule.update(jnp.asarray(g), state, p)
        found.append(float(change))
    return np.array(found)


def torch_updates_of(make, gradients) -> np.ndarray:
    p = nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer, found = make([p]), []
    for g in gradients:
        before = p.item()
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        found.append(p.item() - before)
    return np.array(found)


GRADIENTS = [1.0, -0.5, 0.1, 2.0, 1e-3]


def test_optimizers_differ_as_said_and_agree_as_advised():
    theirs = torch_updates_of(lambda p: optim.RMSprop(p, 0.1), GRADIENTS)
    assert not np.allclose(updates_of(optax.rmsprop(0.1), GRADIENTS), theirs, rtol=1e-3)
    told = optax.rmsprop(0.1, decay=0.99, eps_in_sqrt=False)
    assert np.allclose(updates_of(told, GRADIENTS), theirs, rtol=1e-4)
    # Inside the root, small gradients make far smaller steps.
    inside, beside = (updates_of(optax.rmsprop(0.1, decay=0.99, eps_in_sqrt=s), [1e-5])[0] for s in (True, False))
    assert abs(inside) < 0.1 * abs(beside)

    theirs = torch_updates_of(lambda p: optim.Adagrad(p, 0.1), GRADIENTS)
    assert not np.allclose(updates_of(optax.adagrad(0.1), GRADIENTS), theirs, rtol=1e-3)
    theirs = torch_updates_of(lambda p: optim.Adagrad(p, 0.1, eps=1.0), [1.0])
    assert np.allclose(theirs, -0.05)  # beside the root: 1 / (1 + 1)
    assert np.allclose(updates_of(optax.adagrad(0.1, 0.0, 1.0), [1.0]), -0.1 / math.sqrt(2))  # inside

    theirs = torch_updates_of(lambda p: optim.Adam(p, 0.1, amsgrad=True), [1.0, *[1e-3] * 5])
    assert not np.allclose(updates_of(optax.amsgrad(0.1), [1.0, *[1e-3] * 5]), theirs, rtol=1e-3)
    theirs = torch_updates_of(lambda p: optim.NAdam(p, 0.1), GRADIENTS)
    assert not np.allclose(updates_of(optax.nadam(0.1), GRADIENTS), theirs, rtol=1e-3)


def test_functions_differ_as_said():
    x = np.linspace(-4, 4, 1001)
    exact = functional.gelu(torch.from_numpy(x)).numpy()
    gap = np.abs(np.asarray(jax.nn.gelu(x.astype(np.float32))) - exact).max()
    assert 4.5e-4 < gap < 4.9e-4
    a, b = jnp.array([0.3, 3.0]), jnp.zeros(2)
    pair = [torch.tensor(np.asarray(one)) for one in (a, b)]
    assert np.allclose(optax.l2_loss(a, b), 0.5 * functional.mse_loss(*pair, reduction="none"))
    smooth = functional.smooth_l1_loss(*pair, beta=0.5, reduction="none")
    assert np.allclose(optax.huber_loss(a, b, delta=0.5) / 0.5, smooth)
    assert np.allclose(jnp.quantile(jnp.arange(4.0), 0.5, method="lower"), torch.arange(4.0).median())
    scaled, _ = optax.clip_by_global_norm(0.5).update(jnp.ones(()), optax.EmptyState())
    assert float(scaled) == 0.5


def test_a_fast_variance_loses_digits():
    x = 1000 + np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
    exact = nn.LayerNorm(16)(torch.from_numpy(x)).detach().numpy()
    fast, slow = (linen.LayerNorm(epsilon=1e-5, use_fast_variance=how) for how in (True, False))
    assert np.abs(fast.apply(fast.init(KEY, x), x) - exact).max() > 1e-2
    assert np.abs(slow.apply(slow.init(KEY, x), x) - exact).max() < 1e-3


# What is said of an agent


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 64), nn.Linear(16, 64)
        self.norm, self.batch, self.act = nn.LayerNorm(64), nn.BatchNorm1d(64), nn.GELU()

    def forward(self, x):
        hidden = self.act(self.batch(self.norm(self.first(x))))
        if hidden.sum() > 1e9:  # what cannot be captured can be audited
            hidden = hidden * 0
        return hidden + functional.gelu(self.second(x))


def by_setting(rows):
    return {(row.setting, row.where): row for row in rows}


def test_only_what_concerns_the_agent_is_said_with_its_numbers():
    torch.manual_seed(0)
    module = Mixed()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    rows = audit(module, optim.AdamW(module.parameters()), torch.randn(7, 16), clip_norm=0.5)
    found = by_setting(rows)
    weights = found["first weights of a Linear with 16 inputs", "first, second"]
    assert weights.library == "flax.linen, flax.nnx" and weights.here.startswith("U(±0.25), std 0.144; bias")
    assert "std 0.25" in weights.default
    assert found["epsilon of LayerNorm", "norm"].here == 1e-5 and found["epsilon of LayerNorm", "norm"].default == 1e-6
    assert found["momentum of BatchNorm", "batch"].instead == "momentum=0.9"
    assert found["weight decay of AdamW", "optimizer"].here == 0.01
    assert found["clipping by norm", "optimizer"].here == "0.5 / (norm + 1e-6)"
    gelus = [where for setting, where in found if setting == "gelu"]
    assert gelus[0] == "act" and "test_port_audit.py" in gelus[1] and "functional.gelu" in gelus[1] and len(gelus) == 2
    assert ("epsilon of BatchNorm", "batch") not in found  # equal everywhere
    assert not any("LSTM" in row.setting or "padding" in row.setting for row in rows)
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())


def test_what_is_set_to_a_librarys_default_is_not_said():
    module = nn.Sequential(nn.LayerNorm(8, eps=1e-6), nn.GELU("tanh"), nn.Conv2d(4, 4, 3, padding=1))
    rows = audit(module, optim.AdamW(module.parameters(), weight_decay=1e-4))
    assert {row.library for row in rows if row.setting == "epsilon of LayerNorm"} == {"equinox.nn"}
    assert not {"gelu", "padding", "weight decay of AdamW"} & {row.setting for row in rows}
    assert audit(nn.Sequential(nn.ReLU(), nn.Tanh())) == []
    assert any(row.setting == "padding" for row in audit(nn.Conv2d(4, 4, 3, 2, padding=1)))


def test_weights_that_were_set_otherwise_are_measured():
    layer = nn.Linear(64, 64)
    nn.init.orthogonal_(layer.weight, 2.0)
    nn.init.zeros_(layer.bias)
    rows = audit(layer)
    assert {row.library for row in rows} == {"flax.linen, flax.nnx", "equinox.nn"}
    assert all("std 0.25 now, not PyTorch's default" == row.here for row in rows)


@pytest.mark.parametrize(
    ("layer", "settings"),
    [
        (nn.GRU(4, 8), {"bias of the GRU's candidate", "biases of the GRU", "first weights of GRU with 8 units"}),
        (nn.LSTM(4, 8), {"carry of the LSTM", "biases of the LSTM", "first weights of LSTM with 8 units"}),
        (nn.GRUCell(4, 8, bias=False), {"first weights of GRU with 8 units"}),
        (nn.Embedding(10, 4, padding_idx=0), {"padding_idx", "first weights of 4 features"}),
        (
            nn.MultiheadAttention(8, 2, dropout=0.1),
            {"dropout of attention", "biases of attention", "first weights of attention with 8 features"},
        ),
        (nn.RMSNorm(8, eps=1e-5), {"epsilon of RMSNorm"}),
        (
            nn.ConvTranspose2d(4, 8, 3, padding=1),
            {
                "padding",
                "order of axes",
                "kernel of a transposed convolution",
                "first weights of a ConvTranspose with 72 inputs",
            },
        ),
    ],
)
def test_layers_have_their_rows(layer, settings):
    assert {row.setting for row in audit(layer)} == settings


def loss(module, batch):
    out = module(batch["x"])
    value = functional.mse_loss(out.mean(-1), batch["y"]) + functional.smooth_l1_loss(out[:, 0], batch["y"], beta=0.5)
    advantage = (batch["y"] - batch["y"].mean()) / batch["y"].std()
    return value + advantage.median() + functional.huber_loss(out[:, 0], batch["y"], reduction="sum")


def test_an_agents_losses_and_optimizers_are_audited():
    module, batch = Mixed(), {"x": torch.randn(7, 16), "y": torch.randn(7)}
    groups = [{"params": module.first.parameters()}, {"params": module.second.parameters(), "weight_decay": 0.1}]
    updates = [
        Update(loss, optim.Adam(groups, eps=1e-5), clip_norm=0.5),
        Update(loss, optim.RMSprop(module.norm.parameters(), centered=True), name="other"),
    ]
    rows = audit(Agent(module, batch, updates))
    found = {row.setting: row for row in rows}
    assert found["std of 7 numbers"].effect.startswith("1.08012 times")  # sqrt(7 / 6)
    assert found["factor of the squared error"].instead == "optax.squared_error(x, y)"
    assert found["width of smooth_l1_loss"].instead == "optax.huber_loss(x, y, delta=0.5) / 0.5"
    assert found["reduction of huber_loss"].here == "sum" and "width of huber_loss" not in found
    assert found["median of an even number"]
    assert found["epsilon of Adam"].here == 1e-5 and found["weight decay of Adam"].where == "optimizer of loss, group 1"
    assert found["place of RMSprop's epsilon"].where == "optimizer of other"
    assert len(rows) == len(set(rows))


def test_an_audit_of_no_module_is_one_sentence():
    with pytest.raises(TwinaxError, match=r"an audit is of a torch.nn.Module, but this is a str"):
        audit("module")
