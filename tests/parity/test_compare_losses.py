"""Two losses of one's own: each known mistake is found and named."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from twinax import parity
from twinax.errors import TwinaxError, UnknownName
from twinax.parity._hints import Evidence, likely_cause
from twinax.parity._report import Row

ROWS, WIDTH = 6, 5


@pytest.fixture(scope="module")
def networks():
    rng = np.random.default_rng(0)
    return {"square": rng.normal(size=(WIDTH, WIDTH)), "head": rng.normal(size=(1, WIDTH)), "scale": np.array(0.3)}


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    mask = np.array([True, True, False, True, False, True])
    return {"x": rng.normal(size=(ROWS, WIDTH)), "y": rng.normal(size=ROWS), "mask": mask}


def loss_torch(networks, batch, gelu="none", eps=1e-5):
    hidden = F.gelu(batch["x"] @ networks["square"].T, approximate=gelu)
    hidden = hidden / torch.sqrt(hidden.var(-1, keepdim=True, correction=0) + eps)
    error = (hidden @ networks["head"].T)[:, 0] - batch["y"]
    fit = torch.where(batch["mask"], error**2, 0.0).sum() / batch["mask"].sum()
    size = networks["scale"] ** 2 * torch.sin(networks["head"]).mean()
    return fit - 0.01 * size, {"fit": fit, "size": size}


@dataclasses.dataclass(frozen=True)
class Jax:
    """The same loss in JAX, with one switch for each mistake."""

    factor: float = 1.0
    reduce: str = "mean"
    masked: bool = True
    divisor: str = "used"
    weight: float = 0.01
    detach: str = ""
    transpose: str = ""
    approximate: bool = False
    eps: float = 1e-5
    ddof: int = 0
    drop: bool = False

    def __call__(self, networks, batch):
        square = networks["square"]
        hidden = jax.nn.gelu(
            batch["x"] @ (square if self.transpose == "square" else square.T), approximate=self.approximate
        )
        hidden = hidden / jnp.sqrt(hidden.var(-1, keepdims=True, ddof=self.ddof) + self.eps)
        error = (hidden @ networks["head"].T)[:, 0] - batch["y"]
        fit = jnp.sum(jnp.where(batch["mask"] | (not self.masked), error**2, 0.0))
        if self.reduce == "mean":
            fit = fit / (jnp.sum(batch["mask"]) if self.divisor == "used" else ROWS)
        fit = self.factor * fit
        size = networks["scale"] ** 2 * jnp.sin(networks["head"]).mean()
        counted = jax.lax.stop_gradient(size) if self.detach == "loss" else size
        logged = jax.lax.stop_gradient(size) if self.detach == "term" else size
        return fit - self.weight * counted, {"fit": fit} if self.drop else {"fit": fit, "size": logged}


def compared(networks, batch, **mistake):
    return parity.compare_losses(loss_torch, Jax(**mistake), networks, batch)


def test_equal_losses_agree(networks, batch):
    report = compared(networks, batch).raise_if_different()
    assert report.hint is None and report.parameters == WIDTH * WIDTH + WIDTH + 1
    assert {row.item for row in report.rows if row.rung == "values"} == {"fit", "size", "loss"}
    assert {row.item for row in report.rows if row.rung == "gradients"} == {
        f"{term} d {name}" for term in ("fit", "size", "loss") for name in networks
    }


@pytest.mark.parametrize(
    ("mistake", "rung", "item", "hint"),
    [
        ({"factor": 0.5}, "values", "fit", "factor of two"),
        ({"factor": 2.0}, "values", "fit", "factor of two"),
        ({"factor": -1.0}, "values", "fit", "sign"),
        ({"factor": 0.7}, "values", "fit", "constant factor"),
        ({"reduce": "sum"}, "values", "fit", "n = 4 is the true entries of 'mask': a sum on one side and a mean"),
        ({"divisor": "all"}, "values", "fit", "6 / 4"),
        ({"masked": False}, "values", "fit", "'fit' of jax depends on entries where 'mask' is False"),
        ({"weight": 0.0}, "values", "loss", "'loss' of jax is that of torch plus 0.01 times 'size'"),
        ({"detach": "term"}, "gradients", "size d head", "gradient of 'size' is exactly 0 in jax"),
        ({"detach": "loss"}, "gradients", "loss d head", "'size' is counted but not differentiated"),
        ({"transpose": "square"}, "values", "fit", "with 'square' transposed, jax agrees with torch"),
        ({"approximate": True}, "values", "fit", "gelu"),
        ({"eps": 1e-3}, "values", "fit", "epsilon"),
        ({"drop": True}, "values", "size", "'size' is missing from the loss of jax"),
    ],
)
def test_each_mistake_is_named(networks, batch, mistake, rung, item, hint):
    report = compared(networks, batch, **mistake)
    assert not report.ok
    assert (report.first_difference.rung, report.first_difference.item) == (rung, item)
    assert hint in report.hint


@pytest.mark.parametrize("root", [True, False], ids=["std", "variance"])
def test_another_ddof_is_named(root):
    networks, batch = {"w": np.array([2.0, -1.0])}, {"x": np.random.default_rng(2).normal(size=(7, 2))}

    def in_torch(n, b):
        spread = (b["x"] @ n["w"]).var(correction=1)
        return spread.sqrt() if root else spread

    def in_jax(n, b):
        spread = (b["x"] @ n["w"]).var()
        return jnp.sqrt(spread) if root else spread

    report = parity.compare_losses(in_torch, in_jax, networks, batch)
    assert "n = 7" in report.hint and "ddof" in report.hint


def test_a_transposed_gradient_is_named():
    gradient = np.arange(9.0).reshape(3, 3)
    evidence = Evidence(
        {"torch": {"loss": np.array(1.0)}, "jax": {"loss": np.array(1.0)}},
        {"torch": {"loss": {"w": gradient}}, "jax": {"loss": {"w": gradient.T}}},
    )
    row = Row("gradients", "loss d w", "jax", "torch", 4.0, 0.5, (0, 2), False)
    assert "by 'w' of jax is the transpose of that of torch" in likely_cause(row, evidence)


def test_float32_is_called_rounding(networks, batch):
    report = parity.compare_losses(loss_torch, Jax(), networks, batch, dtype="float32")
    assert not report.ok and "rounding" in report.hint
    wrong = parity.compare_losses(loss_torch, Jax(factor=2.0), networks, batch, dtype="float32", tolerance=1e-4)
    assert not wrong.ok and "factor of two" in wrong.hint
    assert parity.compare_losses(loss_torch, Jax(), networks, batch, dtype="float32", tolerance=1e-4).ok


def test_a_module_stands_for_its_parameters():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))

    def in_torch(parameters, x):
        return (torch.func.functional_call(module, parameters, x) ** 2).mean()

    def in_jax(p, x):
        return jnp.mean((jnp.tanh(x @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"]) ** 2)

    x = np.random.default_rng(3).normal(size=(5, 3))
    report = parity.compare_losses(in_torch, in_jax, module, x).raise_if_different()
    assert {row.item for row in report.rows} >= {"loss", "loss d 0.weight", "loss d 2.bias"}


def test_not_a_number_is_a_difference(networks, batch):
    report = parity.compare_losses(
        lambda n, b: n["scale"] * torch.nan, lambda n, b: n["scale"] * jnp.nan, networks, batch
    )
    assert not report.ok and "not a number on both sides" in report.first_difference.note


def test_what_cannot_be_compared_is_refused(networks, batch):
    with pytest.raises(TwinaxError, match=r"'loss' of a loss has shape \(6,\)"):
        parity.compare_losses(lambda n, b: b["y"] * n["scale"], lambda n, b: b["y"] * n["scale"], networks, batch)
    with pytest.raises(TwinaxError, match="the terms are a list"):
        parity.compare_losses(lambda n, b: (n["scale"], []), lambda n, b: (n["scale"], []), networks, batch)
    with pytest.raises(TwinaxError, match="no floating-point array"):
        parity.compare_losses(loss_torch, Jax(), {"n": np.arange(3)}, batch)
    with pytest.raises(UnknownName, match="float16"):
        parity.compare_losses(loss_torch, Jax(), networks, batch, dtype="float16")


def test_terms_of_one_side_alone_may_help_without_being_a_difference():
    def loss(weight):
        def made(p, x):
            first, second = (p["a"] * x).sum(), (p["b"] * x**2).sum()
            return first + weight * second, {"first": first, "second": second}

        return made

    networks, x = {"a": np.ones(3), "b": np.full(3, 2.0)}, np.arange(1.0, 4.0)
    alone = loss(1.0)
    report = parity.compare_losses(loss(1.0), lambda p, x: alone(p, x)[0], networks, x, common_terms=True)
    assert report.ok and not any("first" in row.item for row in report.rows)
    assert not parity.compare_losses(loss(1.0), lambda p, x: alone(p, x)[0], networks, x).ok
    lacking = loss(0.0)
    report = parity.compare_losses(loss(1.0), lambda p, x: lacking(p, x)[0], networks, x, common_terms=True)
    assert report.first_difference.item == "loss" and "plus -1 times 'second'" in report.hint
