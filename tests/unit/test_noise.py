"""Draws: reproducible, independent, the same from every source that claims to be the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from twinax.engines._draw_blocks import DrawBlocks
from twinax.errors import TwinaxError, UnknownName
from twinax.noise import Draw, generator_draws, key_draws, numpy_draws

SPEC = {
    "action": Draw((5, 4, 3)),
    "explore": Draw((5, 4)),
    "gauss": Draw((40,), "normal"),
    "row": Draw((50,), "integers", 7),
    "one": Draw(()),
}
BIG = {"a": Draw((40_000,)), "b": Draw((40_000,)), "n": Draw((40_000,), "normal"), "i": Draw((42_000,), "integers", 6)}


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]), err_msg=name)


def test_shapes_and_kinds():
    draws = key_draws(SPEC, 3, 10)
    for name, draw in SPEC.items():
        assert draws[name].shape == draw.shape
        assert draws[name].dtype == (jnp.int32 if draw.kind == "integers" else jnp.float32)
    assert all(isinstance(x, np.ndarray) for x in numpy_draws(SPEC, 3, 10).values())


def test_draws_are_a_function_of_seed_and_step():
    first = key_draws(SPEC, 3, 10)
    same(first, key_draws(SPEC, 3, 10))
    same(first, key_draws(dict(reversed(SPEC.items())), 3, 10) | {})
    same(first, numpy_draws(SPEC, 3, 10))
    same(first, jax.jit(lambda seed, step: key_draws(SPEC, seed, step))(jnp.uint32(3), jnp.int32(10)))
    same(first, key_draws(SPEC, np.uint32(3), np.int32(10)))
    many = jax.vmap(lambda seed: key_draws(SPEC, seed, 10))(jnp.arange(2, 5, dtype=jnp.uint32))
    same(first, {name: x[1] for name, x in many.items()})


def test_draws_do_not_depend_on_the_width_of_numbers():
    single = numpy_draws(SPEC, 3, 10)
    with jax.enable_x64(True):
        double = numpy_draws(SPEC, 3, 10)
        compiled = jax.jit(lambda seed, step: key_draws(SPEC, seed, step))(jnp.uint32(3), jnp.int32(10))
        compiled = {name: np.asarray(x) for name, x in compiled.items()}
    same(single, double)
    same(single, compiled)
    assert double["action"].dtype == np.float32


def test_large_seeds_and_steps():
    for seed, step in ((2**32 - 1, 0), (0, 2**30), (2**31, 2**30)):
        draws = numpy_draws(SPEC, np.uint32(seed), step)
        assert (draws["action"] > 0).all() and (draws["action"] < 1).all()
        assert not np.array_equal(draws["action"], numpy_draws(SPEC, 0, 0)["action"])


@pytest.mark.parametrize(
    "other", [(4, 10, 0), (3, 11, 0), (3, 10, 1), (10, 3, 0)], ids=["seed", "step", "stream", "swap"]
)
def test_other_seeds_steps_and_streams_are_independent(other):
    a, b = numpy_draws(BIG, 3, 10, 0), numpy_draws(BIG, *other)
    for name in BIG:
        assert abs(np.corrcoef(a[name], b[name])[0, 1]) < 0.025
        assert (a[name] == b[name]).mean() < 0.2  # integers below 6 agree by chance


def test_names_are_independent():
    draws = numpy_draws(BIG, 0, 0)
    assert abs(np.corrcoef(draws["a"], draws["b"])[0, 1]) < 0.025
    assert abs(np.corrcoef(draws["a"], draws["n"])[0, 1]) < 0.025
    assert len(np.intersect1d(draws["a"][:1000], draws["b"][:1000])) < 10


def test_consecutive_steps_repeat_nothing():
    spec = {"x": Draw((64,))}
    values = np.concatenate([numpy_draws(spec, 0, step, stream)["x"] for step in range(40) for stream in (0, 1)])
    # 23 random bits: about 1.6 repeats are expected among 5120 numbers
    assert len(values) - len(np.unique(values)) < 12


def test_distributions():
    draws = numpy_draws(BIG, 1, 2)
    for name in "ab":
        counts = np.histogram(draws[name], bins=20, range=(0, 1))[0]
        assert ((counts - 2000.0) ** 2 / 2000).sum() < 50  # chi-squared with 19 degrees of freedom
    n = draws["n"]
    assert abs(n.mean()) < 0.02 and abs(n.std() - 1) < 0.015 and abs((n**3).mean()) < 0.06
    assert abs((n**4).mean() - 3) < 0.15
    counts = np.bincount(draws["i"], minlength=6)
    assert len(counts) == 6 and ((counts - 7000.0) ** 2 / 7000).sum() < 25


def test_uniforms_lie_in_the_open_interval():
    values = numpy_draws({"x": Draw((2_000_000,))}, 5, 0)["x"]
    assert values.min() > 0 and values.max() < 1
    gumbel = -np.log(-np.log(values))
    assert np.isfinite(gumbel).all()
    # Widened to float64 the choices are the same.
    assert np.isfinite(-np.log(-np.log(values.astype(np.float64)))).all()


def test_extreme_bits_stay_inside():
    from twinax.noise._sources import _from_bits

    bits = jnp.array([0, 2**32 - 1], jnp.uint32)
    uniform = np.asarray(_from_bits(bits, Draw((2,))))
    assert 0 < uniform[0] < uniform[1] < 1
    assert np.isfinite(_from_bits(bits, Draw((2,), "normal"))).all()
    assert np.asarray(_from_bits(bits, Draw((2,), "integers", 3))).tolist() == [0, (2**32 - 1) % 3]


# Blocks of steps


@pytest.mark.parametrize("spec", [SPEC, {"large": Draw((60_000,)), "n": Draw((3,), "normal")}], ids=["many", "few"])
def test_blocks_are_the_same_numbers(spec):
    blocks = DrawBlocks(spec)
    length = blocks.length
    assert 1 <= length <= 64
    steps = [0, 1, length - 1, length, length + 1, 5 * length, 2, 12345]
    for step in steps:
        for seed in (0, 7):  # the block of one seed is not that of another
            same(blocks.at(seed, step), numpy_draws(spec, seed, step))


def test_a_block_of_a_huge_draw_is_one_step():
    assert DrawBlocks({"x": Draw((3_000_000,))}).length == 1


# PyTorch's own stream


def test_generator_draws():
    def draw(seed, spec=SPEC):
        return generator_draws(spec, torch.Generator().manual_seed(seed))

    first = draw(3)
    same(first, draw(3))
    for name, spec in SPEC.items():
        assert tuple(first[name].shape) == spec.shape
        assert first[name].dtype == (torch.int32 if spec.kind == "integers" else torch.float32)
    assert not torch.equal(first["action"], draw(4)["action"])
    big = draw(0, BIG)
    assert 0 < big["a"].min() and big["a"].max() < 1
    assert set(big["i"].tolist()) == set(range(6))
    assert abs(float(big["n"].std()) - 1) < 0.02


def test_generator_draws_are_float32_whatever_the_default():
    torch.set_default_dtype(torch.float64)
    try:
        draws = generator_draws(SPEC, torch.Generator().manual_seed(0))
    finally:
        torch.set_default_dtype(torch.float32)
    assert draws["action"].dtype == draws["gauss"].dtype == torch.float32


# Specifications


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Draw((3,), "uniforms"), "unknown kind of draw 'uniforms'; known: integers, normal, uniform. Did you"),
        (lambda: Draw((3,), "integers"), "kind 'integers' has high=None"),
        (lambda: Draw((3,), "uniform", 4), "kind 'uniform' has high=4"),
        (lambda: Draw((3,), "normal", 4), "kind 'normal' has high=4"),
        (lambda: Draw((3,), "integers", 0), "high=0"),
        (lambda: Draw((3, -1)), r"\(3, -1\)"),
    ],
)
def test_bad_draws(make, words):
    with pytest.raises(TwinaxError, match=words):
        make()


def test_unknown_kinds_are_unknown_names():
    with pytest.raises(UnknownName):
        Draw((1,), "poisson")


def test_draws_can_be_compared_and_hashed():
    assert Draw((2, 3)) == Draw((2, 3)) and hash(Draw((2, 3))) == hash(Draw((2, 3)))
    assert Draw((2, 3)) != Draw((2, 3), "normal")
