"""Random operators of the table: their laws, what a given draw makes of them, and both frameworks on one draw."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from port_operators import doubles

from twinax.port._capture import capture
from twinax.port._table import LEFT_OUT, OPERATORS

NUMBER = 4000
UNIFORM = (np.random.default_rng(3).permutation(NUMBER) + 0.5) / NUMBER
"""Evenly spread, so that means and variances are those of the law to about 1 / NUMBER."""
NORMAL = torch.special.ndtri(torch.from_numpy(UNIFORM)).numpy()
X = np.zeros(NUMBER)

LAWS = [
    ("rand.default", ((NUMBER,),), UNIFORM, 1 / 2, 1 / 12),
    ("rand_like.default", (X,), UNIFORM, 1 / 2, 1 / 12),
    ("randn.default", ((NUMBER,),), NORMAL, 0, 1),
    ("randn_like.default", (X,), NORMAL, 0, 1),
    ("normal_functional.default", (X, 2.0, 3.0), NORMAL, 2, 9),
    ("normal.Tensor_Tensor", (X + 2, X + 3), NORMAL, 2, 9),
    ("normal.Tensor_float", (X + 2, 3.0), NORMAL, 2, 9),
    ("normal.float_Tensor", (2.0, X + 3), NORMAL, 2, 9),
    ("normal.float_float", (2.0, 3.0, (NUMBER,)), NORMAL, 2, 9),
    ("log_normal.default", (X, 0.2, 0.5), NORMAL, math.exp(0.325), (math.exp(0.25) - 1) * math.exp(0.65)),
    ("uniform.default", (X, -1.0, 3.0), UNIFORM, 1, 16 / 12),
    ("exponential.default", (X, 2.0), UNIFORM, 1 / 2, 1 / 4),
    ("geometric.default", (X, 0.3), UNIFORM, 1 / 0.3, 0.7 / 0.09),
    ("bernoulli.p", (X, 0.3), UNIFORM, 0.3, 0.21),
    ("bernoulli.Tensor", (X, X + 0.3), UNIFORM, 0.3, 0.21),
    ("randint.default", (10, (NUMBER,)), UNIFORM, 4.5, 99 / 12),
    ("randint.low", (-5, 5, (NUMBER,)), UNIFORM, -0.5, 99 / 12),
    ("randint_like.default", (X, 10), UNIFORM, 4.5, 99 / 12),
    ("randint_like.low_dtype", (X, -5, 5), UNIFORM, -0.5, 99 / 12),
]


def both(name: str, arguments, draw, **options):
    """What an operator gives on arrays of each framework, which must be the same."""
    function = OPERATORS[f"aten.{name}"].function
    found = []
    with doubles():
        for array in (jnp.asarray, torch.from_numpy):
            given = [array(x) if isinstance(x, np.ndarray) else x for x in arguments]
            result = function(*given, draw=array(draw), **options)
            results = result if isinstance(result, tuple) else (result,)
            found.append([np.asarray(x) for x in results])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    return found[0]


@pytest.mark.parametrize(("name", "arguments", "draw", "mean", "variance"), LAWS, ids=[law[0] for law in LAWS])
def test_laws(name, arguments, draw, mean, variance):
    (found,) = both(name, arguments, draw)
    found = np.asarray(found, float)
    assert found.shape == (NUMBER,)
    assert found.mean() == pytest.approx(mean, rel=3e-3, abs=3e-3)
    assert found.var() == pytest.approx(variance, rel=2e-2)


def test_quartiles_of_cauchy():
    (found,) = both("cauchy.default", (X, 1.0, 2.0), UNIFORM)
    assert np.quantile(found, [0.25, 0.5, 0.75]) == pytest.approx([-1, 1, 3], abs=1e-2)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_is_exact_for_a_given_draw(p):
    x = np.random.default_rng(0).normal(size=NUMBER)
    found, kept = both("native_dropout.default", (x, p, True), UNIFORM)
    expected = UNIFORM < 1 - p
    assert np.array_equal(kept, expected)
    np.testing.assert_allclose(found, np.where(expected, x / (1 - p if p < 1 else 1), 0), rtol=1e-15)
    assert kept.mean() == pytest.approx(1 - p, abs=1 / NUMBER)


def test_no_dropout_outside_of_training():
    x = np.array([1.0, np.nan, -2.0])
    with doubles():
        for array in (jnp.asarray, torch.from_numpy):
            found, kept = OPERATORS["aten.native_dropout.default"].function(array(x), 0.5, False)
            assert np.array_equal(np.asarray(found), x, equal_nan=True) and np.asarray(kept).all()


def test_a_slope_in_training_is_drawn():
    x = np.array([-1.0, 2.0, -3.0, 0.0])
    draw = np.array([0.0, 0.5, 1.0, 0.5])
    with doubles():
        function = OPERATORS["aten.rrelu_with_noise_functional.default"].function
        found, _ = function(jnp.asarray(x), jnp.zeros(4), 0.2, 0.4, True, draw=jnp.asarray(draw))
    np.testing.assert_allclose(found, [-0.2, 2.0, -1.2, 0.0], rtol=1e-12)


def test_a_permutation_has_every_number_once():
    (found,) = both("randperm.default", (50,), UNIFORM[:50])
    assert sorted(found.tolist()) == list(range(50))
    assert found.tolist() == np.argsort(UNIFORM[:50]).tolist()


def test_multinomial():
    weights = np.array([[1.0, 2.0, 0.0, 7.0], [4.0, 0.0, 4.0, 0.0]])
    rng = np.random.default_rng(0)
    (found,) = both("multinomial.default", (weights, NUMBER, True), rng.uniform(size=(2, NUMBER, 4)))
    assert found.shape == (2, NUMBER)
    for row, counted in zip(weights, found, strict=True):
        share = row / row.sum()
        error = np.sqrt(share * (1 - share) / NUMBER)
        assert (np.abs(np.bincount(counted, minlength=4) / NUMBER - share) <= 4 * error).all()


def test_multinomial_without_replacement():
    weights = np.array([1.0, 2.0, 3.0])
    draws = np.random.default_rng(0).uniform(size=(NUMBER, 3))
    (pairs,) = both("multinomial.default", (np.tile(weights, (NUMBER, 1)), 2, False), draws)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    # The first has the weights as they are, the second those of what is left.
    share = np.mean((pairs == [2, 1]).all(1))
    assert share == pytest.approx(3 / 6 * 2 / 3, abs=4 * math.sqrt(2 / 9 / NUMBER))


def test_every_random_operator_is_tried_or_left_out_with_a_reason():
    names = {f"aten.{law[0]}" for law in LAWS}
    names |= {f"aten.{name}.default" for name in ("cauchy", "native_dropout", "randperm", "multinomial")}
    assert names == {name for name, one in OPERATORS.items() if one.kind == "randomness"}
    assert "rejection" in LEFT_OUT["aten._standard_gamma.default"]


def test_random_calls_become_draws():
    class Random(torch.nn.Module):
        def forward(self, x):
            noise = torch.randn_like(x) + (x * 1).uniform_(-1, 1)
            chosen = torch.multinomial(x.exp(), 2) + torch.randint(0, 3, (4, 2)) + torch.randperm(4).view(4, 1)
            coin = torch.bernoulli(x.sigmoid()) + (x * 2).exponential_(2.0)
            return torch.nn.functional.dropout(x) + noise + coin, chosen

    program = capture(Random(), (torch.zeros(4, 3),)).program
    shapes = {name: (draw.shape, draw.kind) for name, draw in program.draws.items()}
    names = {name for name, one in OPERATORS.items() if one.kind == "randomness"}
    random = [node for node in program.nodes if node.operator in names]
    assert {node.name for node in random} == set(shapes)
    assert sorted(shapes.values()) == sorted(
        [((4, 3), "normal")] + [((4, 3), "uniform")] * 5 + [((4, 2), "uniform"), ((4,), "uniform")]
    )
