"""Conformance of `ops`: same inputs give the same outputs in NumPy, PyTorch and JAX, and the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from twinax import ops
from twinax.errors import TwinaxError

INF = float("inf")


@pytest.fixture(autouse=True)
def _double_precision():
    jax.config.update("jax_enable_x64", True)


def to_jax(tree):
    return jtu.tree_map(jnp.asarray, tree)


def to_torch(tree):
    return jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), tree)


def to_numpy(tree):
    return jtu.tree_map(lambda x: x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x), tree)


def assert_same(a, b, rtol=1e-12, atol=1e-12):
    """Equal trees of arrays: values and shapes."""
    a, b = to_numpy(a), to_numpy(b)
    assert jtu.tree_structure(a) == jtu.tree_structure(b)
    for x, y in zip(jtu.tree_leaves(a), jtu.tree_leaves(b), strict=True):
        assert x.shape == y.shape
        if np.float32 in (x.dtype, y.dtype):  # a mean of integers is in the framework's default precision
            rtol = max(rtol, 1e-6)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def everywhere(function: Callable, *inputs) -> Any:
    """The result in NumPy, after PyTorch and JAX were found to agree with it."""
    result = function(*jtu.tree_map(np.array, inputs))
    assert_same(function(*to_torch(inputs)), result)
    assert_same(jax.jit(function)(*to_jax(inputs)), result)
    return to_numpy(result)


class Weighted:
    """A function of its float inputs only, whose float outputs are added up with fixed random weights."""

    def __init__(self, function: Callable, inputs: tuple):
        self.function = function
        self.leaves, self.structure = jtu.tree_flatten(inputs)
        self.moving = [k for k, x in enumerate(self.leaves) if x.dtype.kind == "f"]

    def __call__(self, values: list, convert: Callable) -> Any:
        leaves = [convert(x) for x in self.leaves]
        for k, value in zip(self.moving, values, strict=True):
            leaves[k] = value
        outputs = jtu.tree_leaves(self.function(*jtu.tree_unflatten(self.structure, leaves)))
        outputs = [y for y in outputs if "float" in str(y.dtype)]
        rng = np.random.default_rng(0)
        return sum((y * convert(rng.normal(size=tuple(y.shape)))).sum() for y in outputs)

    def in_torch(self) -> list:
        values = [to_torch(self.leaves[k]).requires_grad_() for k in self.moving]
        return list(torch.autograd.grad(self(values, to_torch), values, materialize_grads=True))

    def in_jax(self) -> list:
        return jax.grad(lambda values: self(values, jnp.asarray))([jnp.asarray(self.leaves[k]) for k in self.moving])


def gradients(function: Callable, *inputs) -> list[np.ndarray]:
    """Gradients by the float inputs in PyTorch, after JAX was found to agree."""
    weighted = Weighted(function, inputs)
    result = weighted.in_torch()
    assert_same(jax.jit(weighted.in_jax)(), result)
    return to_numpy(result)


# One line for each way to call a function: its inputs, and whether it is differentiable.


class Case(NamedTuple):
    name: str
    function: Callable
    inputs: tuple
    differentiable: bool = True


def named(*names: str) -> list[tuple[str, Callable]]:
    return [(name, getattr(ops, name)) for name in names]


RNG = np.random.default_rng(7)
X = RNG.normal(size=(4, 6))
Y = RNG.normal(size=(4, 6))
POSITIVE = np.exp(X)
# Zeros, repeated values and numbers at which exp overflows
KINKS = np.array([[-1.0, 0.0, 1.0, 2.0], [0.0, 0.0, -2.0, 2.0], [1.0, 1.0, 1.0, -1.0]])
LARGE = np.array([-800.0, -50.0, -1e-9, 0.0, 1e-9, 50.0, 800.0])
MASK = RNG.random((4, 6)) < 0.6
MASK[1] = False  # a row with nothing allowed
MASK[2] = True
WHOLE = RNG.integers(-5, 6, (4, 6)).astype(np.int32)
INDEX = RNG.integers(0, 4, (2, 3)).astype(np.int32)
PICK = RNG.integers(0, 6, 4).astype(np.int32)
WIDE = RNG.normal(size=(5, 80))
WIDE_PICK = RNG.integers(0, 80, 5).astype(np.int32)
EMPTY = np.zeros((3, 0))
WEIGHT = RNG.normal(size=(7, 12))
BIAS = RNG.normal(size=7)
KHOT = np.stack([np.sort(RNG.permutation(12)[:3]) for _ in range(10)]).reshape(2, 5, 3).astype(np.int32)
SORTED = np.array([0.0, 0.5, 0.5, 2.0])
LONG = np.sort(RNG.normal(size=100))
PROBES = np.array([[-1.0, 0.0, 0.25], [0.5, 2.0, 9.0]])
SEVERAL = RNG.integers(0, 6, (4, 3)).astype(np.int32)
CUBE = RNG.normal(size=(2, 3, 4))
IMAGES = RNG.normal(size=(2, 6, 5, 3))
QUERIES = np.random.default_rng(9).normal(size=(2, 3, 4, 5))
SERIES = np.random.default_rng(10).normal(size=(5, 4, 2))
GATES, MORE_GATES = (
    tuple(np.random.default_rng(n).normal(size=shape) for shape in ((n * 3, 2), (n * 3, 3), n * 3, n * 3))
    for n in (3, 4)
)
GROUPED = np.random.default_rng(8).normal(size=(6, 1, 3, 2))
KERNEL = RNG.normal(size=(2, 3, 3, 3))
TIES = np.array([[2.0, 1.0, 1.0, 0.0, 1.0], [0.0, 0.0, INF, -INF, 0.0], [INF, INF, INF, INF, INF]])


def member_loss(network):
    """A loss of one member, and something to look at."""
    return ops.sum(network["a"] ** 2) * ops.sum(network["b"]), {"sum": ops.stop_gradient(ops.sum(network["a"]))}


def each_member(tree, pick, row):
    """A function of one member: a tree, indices, a row."""
    picked = ops.take(tree["a"], pick)
    return {"product": picked * tree["b"][0], "sum": (ops.sum(row * row) * tree["b"][1],)}


CASES = [
    Case("zeros", lambda x: ops.zeros((2, 3), x), (X,), False),
    Case("zeros", lambda x: ops.zeros((2, 3), x, "int32"), (X,), False),
    Case("full", lambda x: ops.full((2, 0), 3.5, x), (X,), False),
    Case("full", lambda x: ops.full((3,), True, x, "bool"), (X,), False),
    Case("arange", lambda x: ops.arange(5, x), (X,), False),
    Case("arange", lambda x: ops.arange(0, x), (X,), False),
    Case("cast", lambda x: ops.cast(x, "int32"), (2.7 * X,), False),
    Case("cast", lambda x: ops.cast(x, "bool"), (KINKS,), False),
    Case("cast", lambda x, y: ops.cast(x, y), (WHOLE, X), False),
    Case("cast", lambda m: ops.cast(m, "float64"), (MASK,), False),
    Case("stop_gradient", lambda x: ops.stop_gradient(x) * x, (X,)),
    Case("like", lambda x: x + ops.like(np.arange(6.0), x), (X,)),
    Case("like", lambda x: ops.like({"a": np.arange(3), "b": (np.ones(2, bool),)}, x), (X,), False),
    Case("where", ops.where, (MASK, X, Y)),
    Case("where", lambda m, x: ops.where(m, x, 0.0), (MASK, X)),
    Case("where", lambda m, x: ops.where(m, -1, x), (MASK, WHOLE), False),
    Case("where", lambda m, x: ops.where(m[:, :1], x, x[:1]), (MASK, X)),
    Case("take", lambda x, i: ops.take(x, i), (X, INDEX)),
    Case("take", lambda x, i: ops.take(x, i, axis=1), (X, INDEX)),
    Case("take", lambda x, i: ops.take(x, i, axis=-1), (X, INDEX[0])),
    Case("take", lambda x, i: ops.take(x, i), (X, np.array(2))),
    Case("take", lambda x, i: ops.take(x, i), (X, np.zeros((0,), np.int32))),
    Case("take", lambda x, i: ops.take(x, i), (WHOLE, INDEX), False),
    Case("take", lambda x, i: ops.take(x, i), (X, INDEX.astype(np.int64))),
    Case("take", lambda x, i: ops.take(x, i), (X, INDEX.astype(np.uint8))),
    Case("take", lambda x, i: ops.take(x, i, axis=1), (X, INDEX.astype(np.int16))),
    Case("take_along", ops.take_along, (X, PICK)),
    Case("take_along", ops.take_along, (X, PICK.astype(np.uint8))),
    Case("take_along", ops.take_along, (WHOLE, PICK), False),
    Case("take_along", ops.take_along, (WIDE, WIDE_PICK)),
    Case("take_along", ops.take_along, (WIDE.reshape(5, 4, 20), RNG.integers(0, 20, (5, 4)))),
    Case("gather", ops.gather, (X, SEVERAL)),
    Case("gather", ops.gather, (X, SEVERAL.astype(np.uint8))),
    Case("gather", ops.gather, (X, SEVERAL.astype(np.int64))),
    Case("gather", ops.gather, (X, SEVERAL[:, :0])),
    Case("gather", ops.gather, (WHOLE, SEVERAL), False),
    Case("gather", ops.gather, (MASK, SEVERAL), False),
    Case("gather", ops.gather, (CUBE, RNG.integers(0, 4, (2, 3, 7)).astype(np.int32))),
    Case("gather", ops.gather, (X[0], SEVERAL[0])),
    Case("smallest", lambda x: ops.smallest(x, 3), (X,), False),
    Case("smallest", lambda x: ops.smallest(x, 6), (X,), False),
    Case("smallest", lambda x: ops.smallest(x, 0), (X,), False),
    Case("smallest", lambda x: ops.smallest(x, 4), (TIES,), False),
    Case("smallest", lambda x: ops.smallest(x, 2), (WHOLE,), False),
    Case("smallest", lambda x: ops.smallest(x, 2), (CUBE,), False),
    Case("shuffled", ops.shuffled, ((np.arange(30).reshape(2, 15) * 7 % 31 + 0.5) / 31,), False),
    Case("swap_last", ops.swap_last, (X,)),
    Case("swap_last", ops.swap_last, (CUBE,)),
    Case("swap_last", ops.swap_last, (MASK,), False),
    Case("move_axis", lambda x: ops.move_axis(x, 0, 2), (CUBE,)),
    Case("move_axis", lambda x: ops.move_axis(x, 2, 0), (CUBE,)),
    Case("move_axis", lambda x: ops.move_axis(x, -1, 1), (CUBE,)),
    Case("move_axis", lambda x: ops.move_axis(x, 1, 1), (WHOLE,), False),
    Case("roll", lambda x: ops.roll(x, 2, 1), (X,)),
    Case("roll", lambda x: ops.roll(x, -1, -1), (CUBE,)),
    Case("roll", lambda x: ops.roll(x, 5, 0), (X,)),
    Case("roll", lambda x: ops.roll(x, 0, 0), (X,)),
    Case("roll", lambda x: ops.roll(x, -2, 1), (MASK,), False),
    Case("pad", lambda x: ops.pad(x, [(1, 2)], 0.5), (X,)),
    Case("pad", lambda x: ops.pad(x, ((1, 0), (0, 3)), -1.0), (CUBE,)),
    Case("pad", lambda x: ops.pad(x, ((2, 1), (0, 0), (1, 1)), 1.0), (CUBE,)),
    Case("pad", lambda x: ops.pad(x, ((1, 1), (1, 1)), 3), (WHOLE,), False),
    Case("put_largest", lambda x, i, y: ops.put_largest(x * 1.0, i, y), (POSITIVE, SEVERAL, np.exp(Y[:, :3])), False),
    Case(
        "put_largest", lambda x, i, y: ops.put_largest(x * 1.0, i, y), (POSITIVE, SEVERAL % 2, np.exp(Y[:, :3])), False
    ),
    Case("write_rows", lambda x, y: ops.write_rows(x * 1.0, 1, y[:2]), (X, Y)),
    Case("write_rows", lambda x, i, y: ops.write_rows(x * 1.0, i, y[:1]), (X, np.array(2), Y)),
    Case("set_at", lambda x, y: ops.set_at(x * 1.0, 2, y), (X, Y[0])),
    Case("set_at", lambda x, y: ops.set_at(x * 1.0, -1, y), (X, Y[0])),
    Case("set_at", lambda x, i, y: ops.set_at(x * 1.0, i, y), (X, np.array(2), Y[0])),
    Case("set_at", lambda x: ops.set_at(x * 1.0, 1, 0.5), (X,)),
    Case("set_at", lambda x, y: ops.set_at(x * 1, 0, y), (WHOLE, WHOLE[1]), False),
    Case("set_at", lambda x, i, y: ops.set_at(x * 1.0, i, y), (X, np.array([3, 0]), Y[:2])),
    Case("set_at", lambda x, y: ops.set_at(x * 1.0, (slice(None), 1), y), (X, Y[:, 0])),
    Case("one_hot", lambda i: ops.one_hot(i, 4, "float32"), (INDEX,), False),
    Case("one_hot", lambda i: ops.one_hot(i, 3, "int32"), (np.array([-1, 0, 2, 3]),), False),
    Case("one_hot", lambda i, x: ops.one_hot(i, 4, x), (INDEX.astype(np.uint8), X), False),
    Case("concat", lambda x, y: ops.concat([x, y[:2]]), (X, Y)),
    Case("concat", lambda x, y: ops.concat((x, y), -1), (X, Y)),
    Case("stack", lambda x, y: ops.stack([x, y]), (X, Y)),
    Case("stack", lambda x, y: ops.stack((x, y), -1), (X, Y)),
    Case("flip", lambda x: ops.flip(x, 0), (X,)),
    Case("flip", lambda x: ops.flip(x, -1), (X,)),
    Case("broadcast", lambda x: ops.broadcast(x, (5, 4, 6)), (X,)),
    Case("broadcast", lambda x: ops.broadcast(x[:, :1], (4, 6)), (X,)),
    *(
        Case("searchsorted", lambda s, v, right=right: ops.searchsorted(s, v, right), (s, v), False)
        for right in (False, True)
        for s, v in (
            (SORTED, PROBES),
            (LONG, PROBES),
            (np.array([1, 3, 3], np.int32), np.arange(5, dtype=np.int32)),
            (np.zeros(0), PROBES),
        )
    ),
    Case("exp", ops.exp, (X,)),
    Case("log", ops.log, (POSITIVE,)),
    Case("sqrt", ops.sqrt, (POSITIVE,)),
    Case("square", ops.square, (X,)),
    Case("square", ops.square, (WHOLE,), False),
    Case("abs", ops.abs, (KINKS,)),
    Case("abs", ops.abs, (WHOLE,), False),
    Case("cos", ops.cos, (X,)),
    Case("cos_pi", ops.cos_pi, (X,)),
    Case("cos_pi", ops.cos_pi, (np.linspace(-64.0, 64.0, 513),)),
    Case("sin", ops.sin, (X,)),
    Case("tanh", ops.tanh, (LARGE,)),
    Case("sigmoid", ops.sigmoid, (LARGE,)),
    Case("softplus", ops.softplus, (LARGE,)),
    Case("log_sigmoid", ops.log_sigmoid, (LARGE,)),
    Case("relu", ops.relu, (KINKS,)),
    Case("leaky_relu", ops.leaky_relu, (KINKS,)),
    Case("leaky_relu", lambda x: ops.leaky_relu(x, 0.2), (KINKS,)),
    Case("gelu", ops.gelu, (KINKS,)),
    Case("gelu", lambda x: ops.gelu(x, approximate=True), (KINKS,)),
    Case("elu", ops.elu, (KINKS,)),
    Case("elu", ops.elu, (LARGE,)),
    Case("minimum", ops.minimum, (KINKS, KINKS[::-1].copy())),
    Case("maximum", ops.maximum, (KINKS, KINKS[::-1].copy())),
    Case("maximum", ops.maximum, (WHOLE, WHOLE[::-1].copy()), False),
    Case("clip", lambda x: ops.clip(x, -1.0, 1.0), (KINKS,)),
    Case("clip", lambda x: ops.clip(x, -2, 3), (WHOLE,), False),
    Case("huber", ops.huber, (KINKS,)),
    Case("huber", lambda x: ops.huber(x, 2.0), (3.0 * KINKS,)),
    *(
        Case(name, lambda x, f=f, axis=axis: f(x, axis), (values,))
        for name, f in named("sum", "mean", "max", "min")
        for axis in (None, 0, -1, (0, 1))
        for values in (KINKS,)
    ),
    Case("sum", lambda x: ops.sum(x, 1), (EMPTY,)),
    Case("sum", ops.sum, (EMPTY,)),
    Case("sum", lambda x: ops.sum(x, 0), (WHOLE,), False),
    Case("sum", ops.sum, (MASK,), False),
    Case("sum", lambda x, m: ops.sum(x, 1, m), (X, MASK)),
    Case("sum", lambda x, m: ops.sum(x, None, m), (X, MASK[:, :1])),
    Case("mean", lambda x: ops.mean(x, 0), (WHOLE,), False),
    Case("mean", ops.mean, (WHOLE,), False),
    Case("mean", lambda x, m: ops.mean(x, 1, m), (X, MASK)),
    Case("mean", lambda x, m: ops.mean(x, mask=m), (X, MASK)),
    Case("mean", lambda x, m: ops.mean(x, mask=m), (X, MASK[:, :1])),
    Case("mean", lambda x, m: ops.mean(x, 0, m), (X, MASK[0])),
    Case("mean", lambda x, m: ops.mean(x, mask=m & False), (X, MASK)),
    Case("mean", lambda x, m: ops.mean(x, mask=m), (EMPTY, EMPTY > 0)),
    *(
        Case(name, lambda x, f=f, axis=axis, ddof=ddof: f(x, axis, ddof=ddof), (X,))
        for name, f in named("var", "std")
        for axis in (None, 0, -1, (0, 1))
        for ddof in (0, 1)
    ),
    Case("max", lambda x: ops.max(x, 1), (WHOLE,), False),
    Case("min", ops.min, (WHOLE,), False),
    Case("argmax", ops.argmax, (KINKS,), False),
    Case("argmax", ops.argmax, (WHOLE,), False),
    Case("prod", lambda x: ops.prod(x, 1), (KINKS,)),
    Case("prod", lambda x: ops.prod(x, 0), (X,)),
    Case("prod", lambda x: ops.prod(x, 1), (EMPTY,)),
    *(
        Case(name, lambda x, f=f, axis=axis: f(x, axis), (values,), False)
        for name, f in named("any", "all")
        for axis in (None, 0, -1)
        for values in (MASK, WHOLE, EMPTY > 0)
    ),
    Case("cumsum", ops.cumsum, (X,)),
    Case("cumsum", lambda x: ops.cumsum(x, -1), (X,)),
    Case("cumsum", ops.cumsum, (WHOLE,), False),
    Case("cumsum", lambda x: ops.cumsum(x, 1), (EMPTY,)),
    *(
        case
        for axis in (-1, 0)
        for case in (
            Case("logsumexp", lambda x, axis=axis: ops.logsumexp(x, axis), (X,)),
            Case("logsumexp", lambda x, m, axis=axis: ops.logsumexp(x, axis, m), (X, MASK)),
            Case("log_softmax", lambda x, axis=axis: ops.log_softmax(x, axis=axis), (X,)),
            Case("log_softmax", lambda x, m, axis=axis: ops.log_softmax(x, m, axis), (X, MASK)),
            Case("softmax", lambda x, axis=axis: ops.softmax(x, axis=axis), (X,)),
            Case("softmax", lambda x, m, axis=axis: ops.softmax(x, m, axis), (X, MASK)),
        )
    ),
    Case("logsumexp", ops.logsumexp, (1000.0 * KINKS,)),
    Case("logsumexp", ops.logsumexp, (EMPTY,), False),
    Case("logsumexp", lambda x: ops.logsumexp(x, 0), (EMPTY,), False),
    Case("logsumexp", ops.logsumexp, (np.array([[-INF, -INF], [-INF, 1.0], [0.0, 1.0]]),), False),
    Case("log_softmax", ops.log_softmax, (1000.0 * KINKS,)),
    Case("log_softmax", ops.log_softmax, (EMPTY,), False),
    Case("log_softmax", ops.log_softmax, (EMPTY, EMPTY > 0), False),
    Case("softmax", ops.softmax, (EMPTY,), False),
    Case("linear", ops.linear, (RNG.normal(size=(5, 12)), WEIGHT, BIAS)),
    Case("layer_norm", lambda x, w, b: ops.layer_norm(x, w, b, 1e-6), (X, Y[0], Y[1])),
    Case("layer_norm", lambda x, w, b: ops.layer_norm(x, w, b, 0.1), (np.zeros((2, 3, 6)), Y[0], Y[1])),
    Case("layer_norm", lambda x: ops.layer_norm(x, None, None, 1e-6), (X,)),
    Case("layer_norm", lambda x, w: ops.layer_norm(x, w, None, 1e-6), (X, Y[0])),
    Case("group_norm", lambda x, w, b: ops.group_norm(x, 2, w, b, 1e-5), (IMAGES, Y[0], Y[1])),
    Case("group_norm", lambda x, w: ops.group_norm(x, 3, w, None, 0.1), (X, Y[0])),
    Case("group_norm", lambda x: ops.group_norm(x, 1, None, None, 1e-5), (CUBE,)),
    Case("attention", ops.attention, (CUBE, CUBE[:, ::-1].copy(), CUBE * CUBE)),
    Case("attention", ops.attention, (QUERIES, QUERIES[:, :, :3], QUERIES[:, :, 1:4], QUERIES[..., :3] > 0)),
    Case("attention", ops.attention, (QUERIES, X[:, :5], X[:, :2], MASK[2:, None, None, :4])),
    Case("attention", lambda q: ops.attention(q, q[..., 1:, :], q[..., :-1, :], causal=True), (QUERIES,)),
    Case("attention", lambda q, m: ops.attention(q, q, q, m, causal=True), (QUERIES, MASK[:, :4])),
    Case("attention", ops.attention, (X, Y, X, MASK[:, :4])),
    *(
        Case("gru", ops.gru, (SERIES[:times, :rows], X[:rows, :3], *GATES[:number]))
        for times, rows, number in ((5, 4, 4), (1, 4, 4), (5, 2, 2))
    ),
    *(
        Case("lstm", ops.lstm, (SERIES[:times, :rows], (X[:rows, :3], Y[:rows, :3]), *MORE_GATES[:number]))
        for times, rows, number in ((5, 4, 4), (1, 4, 4), (5, 2, 2))
    ),
    Case("gru", ops.gru, (SERIES[:, 0], X[0, :3], *GATES)),
    Case("lstm", ops.lstm, (SERIES.reshape(5, 2, 2, 2), (CUBE[:, :2, :3], CUBE[:, 1:, 1:]), *MORE_GATES)),
    Case("pair_sums", ops.pair_sums, (CUBE, WEIGHT[0, : CUBE.shape[-1]])),
    Case("pair_sums", ops.pair_sums, (KINKS, WEIGHT[0, :4])),
    Case("pair_sums", ops.pair_sums, (RNG.normal(size=(2, 70, 3)), WEIGHT[0, :3])),
    Case("least_squares", ops.least_squares, (RNG.normal(size=(9, 4)), RNG.normal(size=9)), False),
    Case("least_squares", ops.least_squares, (np.ones((9, 4)), RNG.normal(size=9)), False),
    Case("least_squares", ops.least_squares, (X, RNG.normal(size=4)), False),
    Case("linear", ops.linear, (RNG.normal(size=(2, 5, 12)), WEIGHT)),
    Case("linear", ops.linear, (RNG.normal(size=12), WEIGHT, BIAS)),
    Case("khot_linear", ops.khot_linear, (KHOT, WEIGHT, BIAS)),
    Case("khot_linear", ops.khot_linear, (KHOT[0], WEIGHT)),
    Case("khot_linear", ops.khot_linear, (KHOT[0].astype(np.int64), WEIGHT, BIAS)),
    Case("khot_linear", ops.khot_linear, (KHOT[0, 0], WEIGHT, BIAS)),
    Case("khot_linear", ops.khot_linear, (KHOT[:0], WEIGHT, BIAS)),
    Case("khot_rows", ops.khot_rows, (KHOT, WEIGHT.T.copy()), False),
    Case("channels", ops.channels, (np.array([[[0, 2, 1], [2, 2, 0]]], np.uint8), X[:3])),
    *(
        Case(
            "member_losses",
            lambda a, b, work=work: ops.member_losses(member_loss, {"a": a, "b": b}, work=work)[0],
            (X, Y),
        )
        for work in (0, 10**9)
    ),
    Case("channels", ops.channels, (np.zeros((2, 0), np.int32), X[:3])),
    Case("khot_rows", ops.khot_rows, (KHOT[0].astype(np.int64), WEIGHT.T.copy()), False),
    # Continuous random numbers, so no window of a pool has equal entries.
    Case("conv2d", ops.conv2d, (IMAGES, KERNEL, BIAS[:2])),
    Case("conv2d", lambda x, w: ops.conv2d(x, w, stride=2), (IMAGES, KERNEL)),
    Case("conv2d", lambda x, w, b: ops.conv2d(x, w, b, 2), (IMAGES[:, :, :4], KERNEL, BIAS[:2])),
    Case("conv2d", lambda x, w: ops.conv2d(x, w, None, 2, ((0, 2), (1, 0))), (IMAGES, KERNEL)),
    Case("conv2d", lambda x, w: ops.conv2d(x, w, None, 3), (IMAGES, KERNEL[:, :, :1, :2])),
    Case("conv2d", lambda x, w: ops.conv2d(x, w, dilation=2), (IMAGES, KERNEL)),
    Case("conv2d", lambda x, w: ops.conv2d(x, w, None, 2, ((2, 2), (2, 1)), 2), (IMAGES, KERNEL)),
    Case("conv2d", lambda x, w, b: ops.conv2d(x, w, b, 2, groups=3), (IMAGES, GROUPED, BIAS[:6])),
    Case(
        "conv2d",
        lambda x, w, b: ops.conv2d(x, w, b, 2, channels_last=False),
        (IMAGES[:, :3], KERNEL[..., :2], BIAS[:2]),
    ),
    Case("conv2d", ops.conv2d, (IMAGES[:0], KERNEL, BIAS[:2])),
    Case("max_pool", lambda x: ops.max_pool(x, 3, 2), (IMAGES,)),
    Case("max_pool", lambda x: ops.max_pool(x, 3, 2), (IMAGES[:, :, :4],)),
    Case("max_pool", lambda x: ops.max_pool(x, 2, 1), (IMAGES,)),
    Case("max_pool", lambda x: ops.max_pool(x, 2, 3), (IMAGES,)),
    Case("transpose", ops.transpose, (WEIGHT,)),
    Case("einsum", lambda x, y: ops.einsum("ij,kj->ik", x, y), (X, Y)),
    *(
        Case("cond", lambda x, n=n: ops.cond(ops.sum(x) > n, lambda: (2 * x, x[0]), lambda: (x * x, x[1])), (X,))
        for n in (-1e3, 1e3)
    ),
    *(
        Case("members", lambda *trees, parallel=parallel: ops.members(each_member, *trees, parallel=parallel), inputs)
        for parallel in (True, False)
        for inputs in (({"a": X, "b": (Y[:, 0], X[:, :2])}, SEVERAL, Y),)
    ),
]


LABELS = [f"{k}-{case.name}" for k, case in enumerate(CASES)]


@pytest.fixture(scope="module")
def in_jax():
    """Outputs and gradients of all cases from one compiled program: many small ones would take a minute."""
    jax.config.update("jax_enable_x64", True)

    def everything(inputs):
        outputs = [case.function(*given) for case, given in zip(CASES, inputs, strict=True)]
        return outputs, [Weighted(c.function, c.inputs).in_jax() if c.differentiable else None for c in CASES]

    return to_numpy(jax.jit(everything)(to_jax([case.inputs for case in CASES])))


@pytest.mark.parametrize("number", range(len(CASES)), ids=LABELS)
def test_same_outputs_and_gradients(number, in_jax):
    case = CASES[number]
    result = case.function(*jtu.tree_map(np.array, case.inputs))
    assert_same(case.function(*to_torch(case.inputs)), result)
    assert_same(in_jax[0][number], result)
    if case.differentiable:
        assert_same(in_jax[1][number], Weighted(case.function, case.inputs).in_torch())


@pytest.mark.parametrize("case", [c for c in CASES if c.differentiable and c.name != "like"], ids=lambda c: c.name)
def test_single_precision_stays_single(case):
    inputs = jtu.tree_map(lambda x: np.array(x, np.float32 if x.dtype == np.float64 else None), case.inputs)
    results = [case.function(*inputs), case.function(*to_torch(inputs)), jax.eval_shape(case.function, *inputs)]
    for y in jtu.tree_leaves(results):
        assert "float32" in str(y.dtype)


DIRECT = {
    "MASKED",
    "backend",
    "across_shards",
    "framework",
    "host_call",
    "map_rows",
    "num_shards",
    "scan",
    "seed_axis",
    "shard_index",
    "shards",
    "switch_size",
    "used",
    "while_loop",
}


def test_every_function_has_a_case():
    assert {case.name for case in CASES} | DIRECT == set(ops.__all__)


def test_the_three_implementations_offer_the_same_names():
    modules = [ops.backend(x) for x in (np.zeros(1), torch.zeros(1), jnp.zeros(1))]
    for name in ops.__all__:
        kinds = {hasattr(module, name) for module in modules}
        assert len(kinds) == 1, name


# Values and gradients that are fixed by definition


def test_frameworks_are_told_apart():
    assert [ops.framework(x) for x in (1, 2.0, np.float32(1), np.zeros(2))] == ["numpy"] * 4
    assert ops.framework(torch.zeros(2)) == ops.framework(torch.nn.Parameter(torch.zeros(2))) == "torch"
    assert ops.framework(jnp.zeros(2)) == "jax"
    seen = []
    jax.make_jaxpr(jax.vmap(lambda x: seen.append(ops.framework(x)) or x))(jnp.zeros(2))
    jax.grad(lambda x: seen.append(ops.framework(x)) or x)(1.0)
    assert seen == ["jax", "jax"]


@pytest.mark.parametrize(
    ("function", "at", "gradient"),
    [
        (ops.abs, [-1.0, 0.0, 1.0], [-1, 0, 1]),
        (ops.relu, [-1.0, 0.0, 1.0], [0, 0, 1]),
        (ops.leaky_relu, [-1.0, 0.0, 1.0], [0.01, 0.01, 1]),
        (ops.elu, [-1.0, 0.0, 1.0], [np.exp(-1), 1, 1]),
        (lambda x: ops.clip(x, -1.0, 1.0), [-2.0, -1.0, 0.0, 1.0, 2.0], [0, 1, 1, 1, 0]),
        (lambda x: ops.maximum(x, 0 * x + 1.0), [0.0, 1.0, 2.0], [0, 0.5, 1]),
        (lambda x: ops.minimum(x, 0 * x + 1.0), [0.0, 1.0, 2.0], [1, 0.5, 0]),
        (lambda x: ops.max(x, 0), [3.0, 1.0, 3.0], [0.5, 0, 0.5]),
        (ops.max, [3.0, 1.0, 3.0], [0.5, 0, 0.5]),
        (ops.min, [1.0, 1.0, 3.0, 1.0], [1 / 3, 1 / 3, 0, 1 / 3]),
        (ops.huber, [-2.0, -1.0, 0.0, 0.5, 1.0, 3.0], [-1, -1, 0, 0.5, 1, 1]),
        (lambda x: ops.prod(x, 0), [0.0, 2.0, 3.0], [6, 0, 0]),
        (lambda x: ops.stop_gradient(x) * x, [2.0, 5.0], [2, 5]),
        (ops.softplus, [-800.0, 0.0, 800.0], [0, 0.5, 1]),
        (ops.log_sigmoid, [-800.0, 0.0, 800.0], [1, 0.5, 0]),
    ],
)
def test_gradients_at_ties_and_kinks(function, at, gradient):
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    np.testing.assert_allclose(x.grad, gradient, atol=1e-12)
    in_jax = jax.grad(lambda x: function(x).sum())(jnp.array(at))
    np.testing.assert_allclose(in_jax, gradient, atol=1e-12)


def test_values_by_hand():
    # erf and tanh forms, and Huber's two pieces
    x = np.array([-2.0, 0.0, 1.0])
    np.testing.assert_allclose(ops.gelu(x), [-0.04550026389635842, 0.0, 0.8413447460685429], rtol=1e-12)
    np.testing.assert_allclose(ops.gelu(x, True), [-0.04540230591222, 0.0, 0.84119199060827], rtol=1e-10)
    np.testing.assert_allclose(ops.elu(x), [np.exp(-2) - 1, 0.0, 1.0])
    np.testing.assert_allclose(ops.huber(np.array([0.5, 3.0]), 2.0), [0.125, 4.0])
    np.testing.assert_allclose(ops.var(np.array([1.0, 2.0, 4.0]), ddof=1), 7 / 3)
    np.testing.assert_allclose(ops.argmax(np.array([[1.0, 3.0, 3.0]])), [1])


def test_masked_log_softmax_by_hand():
    x = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    mask = np.array([[True, False, True], [False, False, False]])
    got = everywhere(ops.log_softmax, x, mask)
    np.testing.assert_allclose(np.exp(got[0, [0, 2]]), np.exp([1, 3]) / np.exp([1, 3]).sum(), rtol=1e-12)
    assert np.exp(got[0, 1]) == 0 and np.isfinite(got).all()
    np.testing.assert_allclose(got[1], -np.log(3), rtol=1e-12)
    (gradient,) = gradients(ops.log_softmax, x, mask)
    np.testing.assert_array_equal(gradient[1], 0.0)
    assert gradient[0, 1] == 0 and gradient[0, 0] != 0
    (gradient,) = gradients(lambda x, m: ops.logsumexp(x, -1, m), x, mask)
    np.testing.assert_array_equal(gradient[1], 0.0)


def test_a_row_with_nothing_allowed_is_the_same_in_single_precision():
    x, mask = np.ones((1, 4), np.float32), np.zeros((1, 4), bool)
    for convert in (lambda x: x, to_torch, to_jax):
        got = to_numpy(ops.log_softmax(convert(x), convert(mask)))
        np.testing.assert_allclose(got, -np.log(4), rtol=1e-6)


def test_a_masked_mean_counts_a_mask_that_is_broadcast():
    x, mask = np.arange(6.0).reshape(2, 3), np.array([[True], [False]])
    assert everywhere(lambda x, m: ops.mean(x, mask=m), x, mask) == 1.0


def test_choosing_and_moving_by_hand():
    x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    index = np.array([[2, 0], [1, 1]], np.int32)
    np.testing.assert_array_equal(everywhere(ops.gather, x, index), [[3, 1], [5, 5]])
    np.testing.assert_array_equal(everywhere(ops.swap_last, x), [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(everywhere(lambda x: ops.roll(x, 1, 1), x), [[3, 1, 2], [6, 4, 5]])
    np.testing.assert_array_equal(everywhere(lambda x: ops.roll(x, -1, 1), x), [[2, 3, 1], [5, 6, 4]])
    padded = everywhere(lambda x: ops.pad(x, ((0, 1), (2, 0)), 9.0), x)
    np.testing.assert_array_equal(padded, [[9, 9, 1, 2, 3], [9, 9, 4, 5, 6], [9, 9, 9, 9, 9]])
    shapes = [ops.move_axis(np.zeros((2, 3, 4, 5)), *axes).shape for axes in ((0, 2), (3, 0), (1, -1))]
    assert shapes == [(3, 4, 2, 5), (5, 2, 3, 4), (2, 4, 5, 3)]


def test_gradients_of_choosing_and_moving_by_hand():
    x, weight = np.arange(3.0)[None], np.array([[1.0, 10.0, 100.0]])

    def weighted(function):
        (gradient,) = gradients(lambda x: ops.sum(function(x) * ops.like(weight, x)), x)
        return (gradient / gradient.max() * 100).ravel()  # `gradients` weighs its only output by a random number

    np.testing.assert_allclose(weighted(lambda x: ops.gather(x, ops.like(np.array([[2, 0, 1]]), x))), [10, 100, 1])
    np.testing.assert_allclose(weighted(lambda x: ops.gather(x, ops.like(np.array([[1, 1, 0]]), x))), [100, 11, 0])
    np.testing.assert_allclose(weighted(lambda x: ops.roll(x, 1, 1)), [10, 100, 1])
    np.testing.assert_allclose(weighted(lambda x: ops.pad(x, [(1, 0)], 5.0)[:, :3]), [10, 100, 0])
    np.testing.assert_allclose(weighted(lambda x: ops.swap_last(ops.broadcast(x, (3, 3)))[:, 0]), [1, 10, 100])


def test_the_smallest_come_in_order_and_the_first_of_equals_first():
    got = everywhere(lambda x: ops.smallest(x, 4), TIES)
    np.testing.assert_array_equal(got, [[3, 1, 2, 4], [3, 0, 1, 4], [0, 1, 2, 3]])


def test_an_entry_that_is_named_twice_gets_the_larger_value():
    buffer, index = np.array([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0]]), np.array([[0, 0, 2], [1, 1, 1]], np.int32)
    value = np.array([[5.0, 4.0, 0.5], [0.1, 0.3, 0.2]])
    got = everywhere(lambda b, i, v: ops.put_largest(b * 1.0, i, v), buffer, index, value)
    np.testing.assert_array_equal(got, [[5.0, 2.0, 0.5], [7.0, 0.3, 9.0]])


def test_fractions_are_not_cut_by_an_integer_array():
    for convert in (lambda x: x, to_torch, to_jax):
        mask, whole = convert(np.array([True, False])), convert(np.array([3, 4]))
        np.testing.assert_allclose(to_numpy(ops.where(mask, 0.5, whole)), [0.5, 4.0])


def test_new_arrays_go_where_the_reference_is():
    reference = torch.zeros(2, device="meta")
    made = (ops.zeros((2,), reference), ops.full((2,), 1, reference), ops.arange(3, reference))
    for x in (*made, ops.like(np.zeros(2), reference), ops.one_hot(ops.arange(3, reference), 3, "int32")):
        assert x.device.type == "meta"


def test_dtypes_of_indices():
    for convert in (lambda x: x, to_torch, to_jax):
        x = convert(X)
        found = ops.searchsorted(convert(SORTED), convert(PROBES))
        indices = (ops.arange(3, x), ops.argmax(x), found, ops.smallest(x, 2))
        assert ["int32" in str(i.dtype) for i in indices] == [True] * 4


# Layers


@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no bias"])
def test_khot_linear_is_linear_of_the_written_out_rows(bias):
    rows = np.zeros((2, 5, 12))
    np.put_along_axis(rows, KHOT.astype(int), 1.0, -1)
    parameters = (WEIGHT,) if bias is None else (WEIGHT, bias)
    dense = everywhere(lambda *p: ops.linear(rows_like(rows, p[0]), *p), *parameters)
    np.testing.assert_allclose(everywhere(lambda i, *p: ops.khot_linear(i, *p), KHOT, *parameters), dense, rtol=1e-12)
    by_rows = gradients(lambda *p: ops.linear(rows_like(rows, p[0]), *p), *parameters)
    by_columns = gradients(lambda i, *p: ops.khot_linear(i, *p), KHOT, *parameters)
    for a, b in zip(by_rows, by_columns, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def rows_like(rows, reference):
    return ops.cast(ops.like(rows, reference), reference)


def test_known_values_have_the_gradients_of_their_function():
    x, weight = KHOT.astype(np.float64), np.linspace(-1.0, 1.0, 2 * KHOT.shape[-1]).reshape(2, -1)

    def product(x, weight):
        return ops.sin(x @ weight.T)

    def known(x, weight):
        return ops.known(product, (x, weight), ops.stop_gradient(product(x, weight)))

    np.testing.assert_allclose(everywhere(known, x, weight), product(x, weight), rtol=1e-12)
    assert_same(gradients(known, x, weight), gradients(product, x, weight))
    wrong = ops.known(product, to_jax((x, weight)), jnp.zeros(product(x, weight).shape))
    np.testing.assert_array_equal(wrong, 0.0)  # in JAX the function itself is not worked out


def test_khot_linear_without_gradients_and_under_vmap():
    with torch.no_grad():
        assert_same(ops.khot_linear(*to_torch((KHOT, WEIGHT, BIAS))), ops.khot_linear(KHOT, WEIGHT, BIAS))
    many = np.stack([WEIGHT, 2 * WEIGHT])
    got = jax.vmap(lambda w: ops.khot_linear(jnp.asarray(KHOT), w))(jnp.asarray(many))
    assert_same(got, np.stack([ops.khot_linear(KHOT, w) for w in many]))
    # A frozen weight: the bias still learns.
    bias = torch.tensor(BIAS, requires_grad=True)
    ops.khot_linear(*to_torch((KHOT, WEIGHT)), bias).sum().backward()
    np.testing.assert_allclose(bias.grad, 10.0)


# Control


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_scan_of_trees(reverse):
    def step(carry, x):
        total = 0.9 * carry["total"] + x.a * x.b
        return {"total": total, "count": carry["count"] + 1}, {"sum": total, "seen": (carry["count"],)}

    def run(start, a, b):
        carry = {"total": start, "count": ops.zeros((), start, "int32")}
        return ops.scan(step, carry, Pair(a, b), reverse)

    a, b, start = RNG.normal(size=(7, 3)), RNG.normal(size=(7, 1)), RNG.normal(size=3)
    carry, ys = everywhere(run, start, a, b)
    gradients(run, start, a, b)

    total, sums = start, {}
    for n, t in enumerate(reversed(range(7)) if reverse else range(7)):
        total = 0.9 * total + a[t] * b[t]
        sums[t] = (n, total)
    np.testing.assert_allclose(carry["total"], total, rtol=1e-12)
    assert carry["count"] == 7
    np.testing.assert_array_equal(ys["seen"][0], [sums[t][0] for t in range(7)])
    np.testing.assert_allclose(ys["sum"], [sums[t][1] for t in range(7)], rtol=1e-12)


def test_scan_that_gives_nothing_back():
    carry, ys = everywhere(lambda c, x: ops.scan(lambda c, x: (c + x, None), c, x), np.zeros(()), np.arange(4.0))
    assert carry == 6.0 and ys is None


def test_while_loop():
    # Halve the entries above 1 until none is left; the number of rounds is data.
    def run(x):
        def body(carry):
            x, n = carry
            return ops.where(x > 1, x / 2, x), n + 1

        return ops.while_loop(lambda carry: ops.any(carry[0] > 1), body, (x, ops.zeros((), x, "int32")))

    x, n = everywhere(run, np.array([9.0, 0.3, 2.0]))
    np.testing.assert_allclose(x, [0.5625, 0.3, 1.0])
    assert n == 4
    _, n = everywhere(run, np.array([0.5]))
    assert n == 0


def test_while_loop_records_no_gradient():
    x = torch.ones(2, requires_grad=True)
    y = ops.while_loop(lambda c: c.sum() < 5, lambda c: 2 * c, x)
    assert not y.requires_grad


def test_while_loop_over_seeds_goes_on_until_every_seed_is_finished():
    def run(x):
        return ops.while_loop(lambda c: c[0] > 1, lambda c: (c[0] / 2, c[1] + 1), (x, jnp.int32(0)))

    with ops.seed_axis("seeds"):
        mapped = jax.vmap(run, axis_name="seeds")
        x, n = jax.jit(mapped)(jnp.array([9.0, 0.5]))
        np.testing.assert_array_equal(n, [4, 4])
        np.testing.assert_allclose(x, [9 / 16, 0.5 / 16])
        # The loop's own predicate is one number: nothing is selected row by row.
        loop = next(e for e in jax.make_jaxpr(mapped)(jnp.ones(2)).eqns if e.primitive.name == "while")
        assert loop.params["cond_jaxpr"].out_avals[0].shape == ()


@pytest.mark.parametrize("rows", [1, 6, 7, 8, 3, 0])
def test_map_rows(rows):
    tree = {"x": RNG.normal(size=(rows, 2)), "n": np.arange(rows, dtype=np.int32)}

    def function(batch):
        return ops.sum(batch["x"], -1), batch["n"][:, None] * 2

    sums, doubled = everywhere(lambda tree: ops.map_rows(function, tree, 3), tree)
    np.testing.assert_allclose(sums, tree["x"].sum(1))
    np.testing.assert_array_equal(doubled[:, 0], 2 * tree["n"])


def test_map_rows_looks_at_no_more_than_a_tile():
    seen = []
    ops.map_rows(lambda x: seen.append(len(x)) or x, np.zeros((7, 2)), 3)
    assert seen == [3, 3, 1]


def on_the_host(rows, scale):
    """What only NumPy can do, with as many leading axes as it is given."""
    assert isinstance(rows, np.ndarray) and isinstance(scale, np.ndarray)
    return {"sorted": np.sort(rows, -1) * scale, "largest": np.argmax(rows, -1)}


def call_host(rows, scale):
    results = {"sorted": rows, "largest": ops.zeros(rows.shape[:-1], rows, "int32")}
    return ops.host_call(on_the_host, results, rows, scale)


def test_host_call():
    found = everywhere(call_host, X, POSITIVE[:, :1])
    np.testing.assert_array_equal(found["sorted"], np.sort(X, -1) * POSITIVE[:, :1])
    assert found["largest"].dtype == np.int32
    narrow = call_host(X.astype(np.float32), np.float64(2.0) * np.ones((4, 1)))
    assert narrow["sorted"].dtype == np.float32


def test_host_call_is_one_call_for_all_members_of_a_map():
    shapes = []

    def noted(rows, scale):
        shapes.append((rows.shape, scale.shape))
        return on_the_host(rows, scale)["sorted"]

    mapped = jax.jit(jax.vmap(lambda x, s: ops.host_call(noted, x, x, s), in_axes=(0, None)))
    found = mapped(jnp.asarray(CUBE), jnp.asarray(np.ones((3, 1))))
    assert shapes == [((2, 3, 4), (2, 3, 1))]
    np.testing.assert_array_equal(np.asarray(found), np.sort(CUBE, -1))


def test_an_ordered_host_call_comes_once_for_each_time_and_in_order():
    def run(start):
        seen = []

        def noted(x):
            seen.append(float(x))
            return x + 1

        def body(x, _):
            ops.host_call(noted, x, x, ordered=True)  # nobody reads what it gives, and still it is called
            return ops.host_call(noted, x, x, ordered=True), x

        last, _ = ops.scan(body, start, ops.zeros((3,), start))
        return float(last), seen

    for start in (np.zeros(()), to_torch(np.zeros(())), jnp.zeros(())):
        assert run(start) == (3.0, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])


def test_host_call_stops_gradients():
    x = to_torch(X).requires_grad_()
    assert not call_host(x, to_torch(POSITIVE[:, :1]))["sorted"].requires_grad
    gradient = jax.grad(lambda x: call_host(x, jnp.asarray(POSITIVE[:, :1]))["sorted"].sum() + x.sum())(jnp.asarray(X))
    np.testing.assert_array_equal(np.asarray(gradient), 1)


def test_switch_size():
    # The sum of the first `count` numbers does not depend on the size it is computed in.
    values = np.arange(20.0)
    for count in (1, 4, 5, 9, 20):
        chosen = []

        def run(x, n, chosen=chosen):
            def function(size):
                chosen.append(size)
                return ops.sum(x[:size], mask=ops.arange(size, x) < n)

            return ops.switch_size(n, (4, 9, 20), function)

        assert everywhere(run, values, np.array(count, np.int32)) == values[:count].sum()
        assert chosen[:2] == [count, count]  # PyTorch and NumPy need no bucket
        assert set(chosen[2:]) == {4, 9, 20}


def test_shuffled_orders_are_permutations_that_favour_no_place():
    uniform = np.random.default_rng(0).uniform(size=(4000, 6))
    orders = ops.shuffled(uniform)
    assert (np.sort(orders, -1) == np.arange(6)).all()
    seen = np.stack([(orders == k).mean(0) for k in range(6)])
    assert np.abs(seen - 1 / 6).max() < 0.03
    with pytest.raises(TwinaxError, match="2000000 rows are to be shuffled"):
        ops.shuffled(np.zeros(2_000_000, np.float32))


def test_switch_size_takes_the_smallest_that_suffices():
    def run(n):
        return ops.switch_size(n, (4, 9, 20), lambda size: jnp.int32(size))

    assert [int(jax.jit(run)(n)) for n in (0, 4, 5, 9, 10, 20)] == [4, 4, 9, 9, 20, 20]
    assert int(ops.switch_size(jnp.int32(3), (7,), lambda size: jnp.int32(size))) == 7
    with ops.seed_axis("seeds"):
        got = jax.vmap(run, axis_name="seeds")(jnp.array([1, 8]))
    np.testing.assert_array_equal(got, [9, 9])


@pytest.mark.parametrize("convert", [lambda x: x, to_torch], ids=["numpy", "torch"])
def test_an_eager_choice_runs_one_branch(convert):
    ran = []
    for predicate in (True, False):
        ops.cond(convert(np.array(predicate)), lambda: ran.append("then"), lambda: ran.append("otherwise"))
    assert ran == ["then", "otherwise"]


def test_a_compiled_choice_runs_one_branch():
    ran = []

    def branch(name, value):
        jax.debug.callback(lambda: ran.append(name))
        return value

    def run(predicate, x):
        return ops.cond(predicate, lambda: branch("then", 2 * x), lambda: branch("otherwise", -x))

    results = []
    for predicate in (True, False):
        results.append(float(jax.jit(run)(jnp.array(predicate), jnp.array(3.0))))
        jax.effects_barrier()
    assert results == [6.0, -3.0] and ran == ["then", "otherwise"]


def test_a_choice_over_seeds_stays_real():
    def run(predicate, x):
        return ops.cond(predicate, lambda: 2 * x, lambda: -x)

    with ops.seed_axis("seeds"):
        mapped = jax.vmap(run, axis_name="seeds")
        values = jnp.array([1.0, 5.0])
        # One seed that asks for it is enough.
        np.testing.assert_array_equal(mapped(jnp.array([False, True]), values), [2.0, 10.0])
        np.testing.assert_array_equal(mapped(jnp.array([False, False]), values), [-1.0, -5.0])
        choices = [e for e in jax.make_jaxpr(mapped)(values > 0, values).eqns if e.primitive.name == "cond"]
        own = jax.vmap(lambda p, x: ops.cond(p, lambda: 2 * x, lambda: -x, each=True), axis_name="seeds")
        np.testing.assert_array_equal(own(jnp.array([False, True]), values), [-1.0, 10.0])
    assert [e.invars[0].aval.shape for e in choices] == [()]


@pytest.mark.parametrize("parallel", [True, False])
def test_members_are_what_a_loop_gives(parallel):
    tree, pick, rows = {"a": X, "b": (Y[:, 0], X[:, :2])}, SEVERAL, Y
    wanted = [
        (X[k][SEVERAL[k]] * Y[k, 0], (Y[k] ** 2).sum() * X[k, :2])  # written out, without `ops`
        for k in range(4)
    ]
    got = everywhere(lambda *trees: ops.members(each_member, *trees, parallel=parallel), tree, pick, rows)
    np.testing.assert_allclose(got["product"], np.stack([a for a, _ in wanted]), rtol=1e-12)
    np.testing.assert_allclose(got["sum"][0], np.stack([b for _, b in wanted]), rtol=1e-12)


@pytest.mark.parametrize(("parallel", "work"), [(True, 0), (True, 10**9), (False, 0)])
def test_member_losses_have_the_gradients_of_a_loop(parallel, work, double_precision):
    networks, rows = {"a": X[:, 0], "b": Y}, X

    def one(network, row):
        return ops.sum(network["a"] * row * row) + ops.sum(network["b"] ** 2), {"row": row * network["a"]}

    def total(networks, rows):
        each, terms = ops.member_losses(one, networks, rows, parallel=parallel, work=work)
        return ops.sum(each * ops.like(np.array([1.0, 2.0, 3.0, 4.0]), each)), terms["row"]

    value, terms = total(networks, rows)
    (got, others), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(
        *jtu.tree_map(jnp.asarray, (networks, rows))
    )
    factor = np.arange(1.0, 5.0)
    np.testing.assert_allclose(got, value, rtol=1e-12)
    np.testing.assert_allclose(
        value, factor @ [(a * x * x).sum() + (b**2).sum() for a, b, x in zip(X[:, 0], Y, X, strict=True)]
    )
    np.testing.assert_allclose(others, X * X[:, :1], rtol=1e-12)
    np.testing.assert_allclose(terms, others, rtol=1e-12)
    np.testing.assert_allclose(gradient["a"], factor * (X * X).sum(1), rtol=1e-12)
    np.testing.assert_allclose(gradient["b"], factor[:, None] * 2 * Y, rtol=1e-12)
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in networks.items()}
    total(leaves, torch.tensor(rows))[0].backward()
    for name, leaf in leaves.items():
        np.testing.assert_allclose(leaf.grad, gradient[name], rtol=1e-12)
    # Several seeds at once
    many = jax.vmap(jax.grad(lambda n, r: total(n, r)[0]), (0, None))
    stacked = jtu.tree_map(lambda x: jnp.stack([jnp.asarray(x), 2 * jnp.asarray(x)]), networks)
    np.testing.assert_allclose(many(stacked, jnp.asarray(rows))["b"][1], 2 * gradient["b"], rtol=1e-12)


def test_large_members_run_one_after_the_other():
    def primitives(work):
        run = lambda x: ops.member_losses(lambda n: (ops.sum(n * n), {}), x, work=work)  # noqa: E731
        return str(jax.make_jaxpr(run)(jnp.asarray(X)))

    assert "scan" not in primitives(1000) and "scan" in primitives(10**6)


def test_members_in_jax_are_one_computation_or_a_loop():
    def primitives(parallel):
        run = lambda x: ops.members(lambda row: ops.sum(row * row), x, parallel=parallel)  # noqa: E731
        return [e.primitive.name for e in jax.make_jaxpr(run)(jnp.asarray(X)).eqns]

    assert "scan" not in primitives(True) and "scan" in primitives(False)


def test_arrays_that_cannot_be_written_are_converted_once():
    array = np.arange(3.0)
    reference = torch.zeros(())
    assert ops.like(array, reference) is not ops.like(array, reference)
    array.setflags(write=False)
    once = ops.like(array, reference)
    assert ops.like(array, reference) is once and once.tolist() == [0, 1, 2]
    from twinax.ops import _torch

    kept = len(_torch._constants)
    del array
    assert len(_torch._constants) == kept - 1  # and so no other array can be taken for it


def test_used():
    x = np.arange(5)
    assert len(ops.used(x, 3)) == len(ops.used(torch.from_numpy(x), torch.tensor(3))) == 3
    assert ops.used(jnp.arange(5), 3).shape == (5,)


# Shapes and values at random

# A few shapes only: each is compiled once.
numbers = st.floats(-1e3, 1e3, width=32).map(float)
matrices = st.sampled_from([(1, 1), (3, 4), (2, 3, 5)]).flatmap(lambda s: hnp.arrays(np.float64, s, elements=numbers))


def masked_functions(x, mask):
    return (
        ops.log_softmax(x, mask),
        ops.softmax(x, mask),
        ops.logsumexp(x, -1, mask),
        ops.mean(x, -1, mask),
        ops.sum(x, 0, mask),
        ops.max(x, -1),
        ops.cumsum(x, -1),
        ops.clip(x, -1.0, 2.0),
    )


masked_functions_in_jax = jax.jit(masked_functions)


@settings(max_examples=60)
@given(matrices, st.integers(0, 2**32 - 1))
def test_masked_functions_of_any_values(x, seed):
    mask = np.random.default_rng(seed).random(x.shape) < 0.5
    got = masked_functions(x, mask)
    assert_same(masked_functions(*to_torch((x, mask))), got, atol=1e-9)
    assert_same(masked_functions_in_jax(x, mask), got, atol=1e-9)
    probabilities = np.where(mask, got[1], 0.0).sum(-1)
    np.testing.assert_allclose(probabilities[mask.any(-1)], 1.0, rtol=1e-9)
    # The definition, with the forbidden entries left out
    for index in np.ndindex(x.shape[:-1]):
        kept = x[index][mask[index]]
        if len(kept):
            assert got[2][index] == pytest.approx(np.logaddexp.reduce(kept), rel=1e-9, abs=1e-9)


search_in_jax = jax.jit(ops.searchsorted, static_argnums=2)


@settings(max_examples=40)
@given(
    st.sampled_from([1, 58, 59, 90]).flatmap(lambda n: hnp.arrays(np.float64, n, elements=numbers)),
    hnp.arrays(np.float64, (2, 3), elements=numbers),
    st.booleans(),
)
def test_searchsorted_of_any_values(values, probes, right):
    values = np.sort(np.concatenate([values, probes.ravel()]))  # with ties
    wanted = np.array([(values <= p).sum() if right else (values < p).sum() for p in probes.ravel()]).reshape(2, 3)
    np.testing.assert_array_equal(ops.searchsorted(values, probes, right), wanted)
    np.testing.assert_array_equal(ops.searchsorted(*to_torch((values, probes)), right), wanted)
    np.testing.assert_array_equal(search_in_jax(values, probes, right), wanted)
