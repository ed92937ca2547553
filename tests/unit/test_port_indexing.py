"""Operators that read and write by index, against PyTorch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from port_operators import check_operator

from twinax import port
from twinax.errors import TwinaxError
from twinax.port._evaluate import run_node
from twinax.port._program import Line, Node
from twinax.port._table import LEFT_OUT, OPERATORS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
MATRIX, LONG = RNG.normal(size=(4, 6)), RNG.normal(size=(3, 100))
SCALAR, EMPTY = np.array(1.5), np.zeros((0, 3))
MASK = np.array([True, False, True, True])
NONE = np.zeros(0, np.int64)


def index(shape, size):
    return RNG.integers(0, size, shape)


def distinct(rows, size, number):
    """Rows of different places, so that nothing is written twice."""
    return np.stack([RNG.permutation(size)[:number] for _ in range(rows)])


READS = [
    ("gather.default", MATRIX, 1, index((4, 3), 6)),
    ("gather.default", MATRIX, -1, index((4, 1), 6)),
    ("gather.default", MATRIX, 0, index((1, 6), 4)),
    ("gather.default", MATRIX, 0, index((2, 3), 4)),
    ("gather.default", LONG, 1, index((3, 1), 100)),
    ("gather.default", X, 1, index((2, 7, 3), 4)),
    ("gather.default", X, 2, index((3, 4, 1), 5)),
    ("gather.default", MATRIX > 0, 1, index((4, 1), 6)),
    ("gather.default", np.arange(24).reshape(4, 6), 1, index((4, 1), 6)),
    ("gather.default", np.full((2, 3), -np.inf), 1, index((2, 1), 3)),
    ("gather.default", MATRIX, 1, np.zeros((4, 0), np.int64)),
    ("gather.default", SCALAR, 0, np.array(0)),
    ("gather.default", SCALAR, 0, np.array([0, 0])),
    ("gather.default", MATRIX[0], 0, np.array(2)),
    ("gather.default", EMPTY, 1, np.zeros((0, 2), np.int64)),
    ("index_select.default", X, 1, np.array([3, 0, 3])),
    ("index_select.default", X, -1, np.array([1], np.int32)),
    ("index_select.default", X, 0, NONE),
    ("index_select.default", MATRIX, 0, np.array(2)),
    ("index_select.default", SCALAR, 0, np.array([0])),
    ("index_select.default", SCALAR, 0, np.array(0)),
    ("index.Tensor", X, [np.array([2, -1, 0])]),
    ("index.Tensor", X, [np.array([[2, -3], [0, 1]]), None, np.array([-5, 4])]),
    ("index.Tensor", X, [None, np.array([1, -1]), np.array([0, 2])]),
    ("index.Tensor", X, [np.array(1), None, np.array([0, -1])]),
    ("index.Tensor", X, [None, np.array(-1)]),
    ("index.Tensor", X, [index((2, 1), 3), index((1, 3), 4), np.array(0)]),
    ("index.Tensor", X, [None, MASK]),
    ("index.Tensor", X, [None, MASK, np.array([0, 1, -1])]),
    ("index.Tensor", X, [np.array([[2], [0]]), MASK]),
    ("index.Tensor", X, [X[..., 0] > 0]),
    ("index.Tensor", X, [X > 0]),
    ("index.Tensor", X, [None, np.zeros(4, bool)]),
    ("index.Tensor", X, [NONE]),
    ("index.Tensor", X.astype(int), [np.array([0, -1], np.int32)]),
    ("take.default", X, index((2, 3), 60)),
    ("embedding.default", MATRIX, index((2, 3), 4)),
    ("embedding.default", MATRIX, np.array(2)),
    ("embedding.default", MATRIX, np.zeros((2, 0), np.int64)),
    ("embedding.default", MATRIX, np.array([0, 1, 1, 3, 2, 2]), 1),
    ("embedding.default", MATRIX, np.array([0, 1, 1, 3, 1]), -1, True),
    ("embedding.default", MATRIX, np.array([[0, 1], [1, 3]], np.int32), 3, True),
    ("bucketize.Tensor", X, np.array([-1.0, 0.0, 0.5, 2.0])),
    ("searchsorted.Tensor", np.array([0.0, 1.0, 1.0, 2.0]), np.array([[1.0, 2.5], [np.nan, -1.0]])),
    ("searchsorted.Tensor", np.sort(LONG, 1), LONG[:, :7]),
    ("searchsorted.Tensor", np.array([1, 3, 3]), np.array(3)),
]


@pytest.mark.parametrize(("name", "arguments"), [(name, rest) for name, *rest in READS])
def test_reads(name, arguments):
    masks = name == "index.Tensor" and any(one is not None and one.dtype == bool for one in arguments[1])
    check_operator(f"aten.{name}", *arguments, compiled=not masks)


WRITES = [
    ("index_put.default", X, [np.array([2, -3])], X[:2] * 2),
    ("index_put.default", X, [np.array([2, -3])], SCALAR),
    ("index_put.default", X, [None, np.array([[1], [-1]]), np.array([0, 2, 3])], RNG.normal(size=(2, 1))),
    ("index_put.default", X, [np.array([0, 2]), None, np.array([1, -1])], RNG.normal(size=(2, 4))),
    ("index_put.default", X, [np.array([1, 1, -2])], X * 2, True),
    ("index_put.default", X, [np.array([1, 1])], X[0, 0], True),
    ("index_put.default", X, [None, MASK], SCALAR),
    ("index_put.default", X, [None, MASK], RNG.normal(size=(3, 5))),
    ("index_put.default", X, [X > 0], SCALAR, True),
    ("index_put.default", X, [NONE], SCALAR),
    ("index_put.default", np.arange(4), [np.array([3, 0])], np.array([7, 8])),
    ("put.default", X, np.array([[3, 59], [0, -1]]), RNG.normal(size=(2, 2)), True),
    ("masked_scatter.default", X, X > 0, RNG.normal(size=(60,))),
    ("masked_scatter.default", X, MASK[:, None], RNG.normal(size=(7, 9))),
    ("masked_scatter.default", X, np.zeros((3, 4, 5), bool), RNG.normal(size=(0,))),
    ("masked_scatter.default", SCALAR, np.array(True), np.array([3.0])),
    ("scatter.src", MATRIX, 1, distinct(4, 6, 3), RNG.normal(size=(4, 3))),
    ("scatter.src", MATRIX, 1, index((4, 1), 6), RNG.normal(size=(4, 1))),
    ("scatter.src", MATRIX, 0, distinct(3, 4, 2).T, RNG.normal(size=(2, 3))),
    ("scatter.src", SCALAR, 0, np.array(0), np.array(2.0)),
    ("scatter.src", MATRIX[0], 0, np.array(3), np.array(2.0)),
    ("scatter.src", MATRIX, 1, np.zeros((4, 0), np.int64), np.zeros((4, 0))),
    ("scatter.src", np.zeros((2, 3), np.int64), 1, np.array([[2], [0]]), np.array([[5], [6]])),
    ("scatter.value", MATRIX, -1, index((4, 1), 6), 1),
    ("scatter.value", MATRIX, -1, distinct(4, 6, 2), 2.5),
    ("scatter.value", np.zeros((2, 3), np.int64), 1, np.array([[2], [0]]), 1),
    ("scatter.value", LONG, 1, index((3, 1), 100), -np.inf),
    ("scatter_add.default", MATRIX, 1, index((4, 9), 6), RNG.normal(size=(4, 9))),
    ("scatter_add.default", MATRIX, 1, index((4, 1), 6), RNG.normal(size=(4, 1))),
    ("scatter_add.default", MATRIX, 0, index((7, 2), 4), RNG.normal(size=(7, 2))),
    ("scatter_add.default", SCALAR, 0, np.array([0]), np.array([2.0])),
    ("scatter_add.default", np.zeros(3, np.int64), 0, np.array([1, 1]), np.array([2, 3])),
]


@pytest.mark.parametrize(("name", "arguments"), [(name, rest) for name, *rest in WRITES])
def test_writes(name, arguments):
    check_operator(f"aten.{name}", *arguments)


def test_a_source_longer_than_its_index():
    """Only what the index names is read; PyTorch has no gradient for it."""
    check_operator("aten.scatter.src", MATRIX, 1, distinct(3, 6, 2), RNG.normal(size=(4, 5)), gradients=False)
    check_operator("aten.scatter_add.default", MATRIX, 1, index((3, 2), 6), RNG.normal(size=(4, 5)), gradients=False)


@pytest.mark.parametrize("name", ["index_put", "scatter"])
def test_who_was_written_over_has_a_gradient_too(name):
    """PyTorch does not see that the first two values share an entry."""
    values, places = jnp.array([1.0, 2.0, 3.0]), jnp.array([1, 1, 0])

    def total(v):
        x = jnp.zeros(4)
        if name == "index_put":
            return (OPERATORS["aten.index_put.default"].function(x, (places,), v) * jnp.arange(1.0, 5.0)).sum()
        return (OPERATORS["aten.scatter.src"].function(x, 0, places, v) * jnp.arange(1.0, 5.0)).sum()

    np.testing.assert_array_equal(jax.grad(total)(values), [2.0, 2.0, 1.0])


REDUCED = [
    (reduce, include_self) for reduce in ("sum", "prod", "mean", "amax", "amin") for include_self in (True, False)
]
KINDS = [(*one, kind) for one in REDUCED for kind in ("normal", "integers")]
KINDS += [(*one, kind) for one in REDUCED if one[0] in ("prod", "amax", "amin") for kind in ("ties", "zeros")]
KINDS += [(*one, kind) for one in REDUCED[1::3] for kind in ("axis", "one", "0-D", "empty")]


@pytest.mark.parametrize(("reduce", "include_self", "kind"), KINDS)
def test_scatter_reduce(reduce, include_self, kind):
    name, options = "aten.scatter_reduce.two", {"include_self": include_self}
    x, source, places, axis = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 9)), index((4, 9), 6), 1
    if kind == "ties":
        x, source = np.round(x), np.round(source)
    elif kind == "zeros":
        x[:, :2], source[RNG.random(source.shape) < 0.4] = 0, 0
        if reduce in ("amax", "amin"):
            x, source = np.zeros_like(x), np.zeros_like(source)
    elif kind == "integers":
        x, source = RNG.integers(-4, 5, x.shape), RNG.integers(-4, 5, source.shape)
    elif kind == "axis":
        axis, source, places = -2, RNG.normal(size=(7, 2)), index((7, 2), 4)
    elif kind == "one":
        source, places = RNG.normal(size=(4, 1)), index((4, 1), 6)
    elif kind == "0-D":
        x, source, places, axis = SCALAR, np.array(2.0), np.array(0), 0
    elif kind == "empty":
        source, places = np.zeros((4, 0)), np.zeros((4, 0), np.int64)
    check_operator(name, x, axis, places, source, reduce, **options)


@pytest.mark.parametrize(("reduce", "source"), [("add", "src"), ("multiply", "src"), ("add", 2.0), ("multiply", 3.0)])
def test_scatter_with_a_reduction(reduce, source):
    places = index((4, 3), 6)
    if source == "src":
        check_operator(
            "aten.scatter.reduce", MATRIX, 1, places, RNG.normal(size=(4, 3)), reduce=reduce, gradients=False
        )
    else:
        check_operator("aten.scatter.value_reduce", MATRIX, 1, places, source, reduce=reduce, gradients=False)


@settings(max_examples=5)
@given(st.data())
def test_gather_and_scatter_of_any_shape(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    extent = [data.draw(st.integers(0, size)) for size in shape]
    extent[axis] = data.draw(st.integers(0, 5))
    x, places = RNG.normal(size=shape), RNG.integers(0, shape[axis], extent)
    check_operator("aten.gather.default", x, axis, places)
    check_operator("aten.scatter_add.default", x, axis, places, RNG.normal(size=extent))
    check_operator("aten.scatter_reduce.two", x, axis, places, RNG.normal(size=extent), "mean")


@settings(max_examples=5)
@given(st.data())
def test_integers_and_whole_axes_in_any_mixture(data):
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shared = data.draw(st.sampled_from([(), (2,), (2, 3)]))
    indices = [RNG.integers(-size, size, shared) if data.draw(st.booleans()) else None for size in shape]
    if all(one is None for one in indices):
        indices[-1] = np.array([-1])
    x = RNG.normal(size=shape)
    check_operator("aten.index.Tensor", x, indices)
    part = torch.ops.aten.index.Tensor(
        torch.from_numpy(x), [None if i is None else torch.from_numpy(np.asarray(i)) for i in indices]
    )
    check_operator("aten.index_put.default", x, indices, RNG.normal(size=tuple(part.shape)), True)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("case", ["plain", "empty bags", "padding", "last offset", "weights", "ties", "nothing"])
def test_embedding_bag(mode, case):
    weight, indices = RNG.normal(size=(7, 3)), np.array([1, 2, 4, 5, 4, 3, 2, 9 % 7])
    offsets, options = np.array([0, 3, 4]), {}
    if case == "empty bags":
        offsets = np.array([0, 0, 3, 3, 8])
    elif case == "padding":
        options = {"padding_idx": 4}
    elif case == "last offset":
        offsets, options = np.array([0, 3, 8]), {"include_last_offset": True}
    elif case == "weights":
        if mode:
            return
        options = {"per_sample_weights": RNG.normal(size=8)}
    elif case == "ties":
        weight = np.round(weight)
    elif case == "nothing":
        indices, offsets = NONE, np.array([0, 0])
    given = [torch.tensor(weight, requires_grad=True), torch.from_numpy(indices), torch.from_numpy(offsets)]
    extra = {k: torch.tensor(v, requires_grad=True) if k == "per_sample_weights" else v for k, v in options.items()}
    whole = torch.ops.aten._embedding_bag
    theirs = whole(given[0], given[1], given[2], False, mode, False, *_rest(extra))[0]
    factor = RNG.normal(size=tuple(theirs.shape))
    leaves = [given[0], *(x for x in extra.values() if isinstance(x, torch.Tensor))]
    expected = torch.autograd.grad((theirs * torch.from_numpy(factor)).sum(), leaves)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(leaf.detach().numpy()) for leaf in leaves]
        function = OPERATORS["aten._embedding_bag.default"].function

        def ours(*leaves):
            rest = dict(options)
            if len(leaves) > 1:
                rest["per_sample_weights"] = leaves[1]
            return function(leaves[0], jnp.asarray(indices), jnp.asarray(offsets), False, mode, False, *_rest(rest))[0]

        np.testing.assert_allclose(ours(*arrays), theirs.detach().numpy(), rtol=1e-12, atol=1e-12)
        found = jax.grad(lambda *leaves: (ours(*leaves) * factor).sum(), tuple(range(len(arrays))))(*arrays)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-12, atol=1e-12)


def _rest(options):
    return [
        options.get("per_sample_weights"),
        options.get("include_last_offset", False),
        options.get("padding_idx", -1),
    ]


def run(name, *arguments, **options):
    return run_node(Node("node", f"aten.{name}", (), {}, ("float32",), Line("a.py", 7, "x[i]")), arguments, options)


class TestOutside:
    x = jnp.arange(12.0).reshape(3, 4)

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("gather.default", (1, jnp.array([[5]]))),
            ("index_select.default", (1, jnp.array([0, 5]))),
            ("embedding.default", (jnp.array([[0, 5]]),)),
            ("scatter.value", (1, jnp.array([[5]]), 1.0)),
            ("scatter_add.default", (0, jnp.array([[5]]), jnp.ones((1, 1)))),
            ("index.Tensor", ((None, jnp.array([5])),)),
            ("index_put.default", ((None, jnp.array([5])), jnp.array(1.0))),
            ("take.default", (jnp.array([50]),)),
        ],
    )
    def test_is_said_with_operator_index_size_and_line(self, name, arguments):
        run(name, self.x, *arguments)
        with port.checked_indices(), pytest.raises(TwinaxError, match=rf"aten\.{name}, index 50? .*size .*a\.py:7"):
            run(name, self.x, *arguments)
        run(name, self.x, *arguments)

    def test_from_the_end_only_where_pytorch_counts_so(self):
        with port.checked_indices():
            assert run("index.Tensor", self.x, (None, jnp.array([-4]))).shape == (3, 1)
            with pytest.raises(TwinaxError, match="index -5 .* -4 to 3 are allowed"):
                run("index.Tensor", self.x, (None, jnp.array([-5])))
            with pytest.raises(TwinaxError, match="index -1 .* 0 to 3 are allowed"):
                run("gather.default", self.x, 1, jnp.array([[-1]]))

    def test_within_and_under_a_transformation_nothing_is_said(self):
        with port.checked_indices():
            run("gather.default", self.x, 1, jnp.array([[3]]))
            run("gather.default", self.x, 1, jnp.zeros((3, 0), int))
            jax.jit(lambda i: run("gather.default", self.x, 1, i))(jnp.array([[5]]))

    def test_gradients_are_checked_too(self):
        with port.checked_indices(), pytest.raises(TwinaxError, match="index 9"):
            jax.grad(lambda x: run("gather.default", x, 1, jnp.array([[9]])).sum())(self.x)


class TestMasks:
    """A mask that is computed may choose what is written, and not how much is read."""

    def put(self, x, mask, value, before=0, accumulate=False):
        function = OPERATORS["aten.index_put.default"].function
        indices = (*[None] * before, mask)
        traced = jax.jit(lambda x, mask, value: function(x, (*[None] * before, mask), value, accumulate))
        theirs = torch.ops.aten.index_put(
            torch.from_numpy(x), [None if i is None else torch.from_numpy(i) for i in indices], value, accumulate
        )
        np.testing.assert_array_equal(traced(x, mask, value.numpy()), theirs.numpy())

    def test_writing_one_value(self):
        x = X.astype(np.float32)
        for accumulate in (False, True):
            self.put(x, x > 0, torch.tensor(2.0), accumulate=accumulate)
            self.put(x, MASK, torch.tensor(2.0), 1, accumulate)
            self.put(x, MASK, torch.ones(1, 5), 1, accumulate)
            self.put(x, x[..., 0] > 0, torch.arange(5.0), 0, accumulate)

    def test_writing_values_in_turn(self):
        x = X.astype(np.float32)
        self.put(x, x > 0, torch.arange(1.0, 1 + (x > 0).sum()))
        self.put(x, MASK, torch.arange(15.0).reshape(3, 5), 1)
        self.put(x, MASK, torch.arange(3.0)[:, None], 1)

    def test_reading_is_refused(self):
        function = OPERATORS["aten.index.Tensor"].function
        with pytest.raises(TwinaxError, match="torch.where"):
            jax.jit(lambda x, mask: function(x, (mask,)))(X, X > 0)

    def test_gradient_of_a_write_by_mask(self):
        function = OPERATORS["aten.index_put.default"].function
        mask = jnp.asarray(MASK)
        found = jax.jit(jax.grad(lambda x, v, m: function(x, (m,), v).sum(), (0, 1)))(jnp.ones(4), jnp.array(2.0), mask)
        np.testing.assert_array_equal(found[0], ~MASK)
        assert found[1] == 3


@pytest.mark.parametrize("over", ["inputs", "parameters"])
@pytest.mark.parametrize("name", ["gather", "index", "index_put", "scatter", "amax", "prod", "embedding"])
def test_under_vmap_and_jit(name, over):
    """In float32: each row of a batch on its own, and the gradient of it."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 4, 6)).astype(np.float32)
    values = rng.normal(size=(5, 4, 2)).astype(np.float32)
    places = np.stack([distinct(4, 6, 2) for _ in range(5)])
    table = {key: OPERATORS[f"aten.{key}"].function for key in CALLS}

    def call(f, x, i, v):
        return {
            "gather": lambda: f["gather.default"](x, 1, i),
            "index": lambda: f["index.Tensor"](x, (None, i)),
            "index_put": lambda: f["index_put.default"](x, (None, i[0]), v),
            "scatter": lambda: f["scatter.src"](x, 1, i, v),
            "amax": lambda: f["scatter_reduce.two"](x, 1, i, v, "amax"),
            "prod": lambda: f["scatter_reduce.two"](x, 1, i, v, "prod"),
            "embedding": lambda: f["embedding.default"](x, i % 4, 1),
        }[name]()

    axes = (0, 0, 0) if over == "inputs" else (0, None, None)
    i, v = (places, values) if over == "inputs" else (places[0], values[0])
    whole = jax.jit(jax.vmap(jax.grad(lambda x, i, v: (call(table, x, i, v) ** 2).sum()), axes))(x, i, v)
    for k in range(5):
        one = torch.tensor(x[k], requires_grad=True)
        i_k, v_k = (torch.from_numpy(a[k] if over == "inputs" else a) for a in (i, v))
        (expected,) = torch.autograd.grad((call(THEIRS, one, i_k, v_k) ** 2).sum(), one)
        np.testing.assert_allclose(whole[k], expected.numpy(), rtol=1e-5, atol=1e-6)


CALLS = (
    "gather.default",
    "index.Tensor",
    "index_put.default",
    "scatter.src",
    "scatter_reduce.two",
    "embedding.default",
)
THEIRS = {key: getattr(getattr(torch.ops.aten, key.split(".")[0]), key.split(".")[1]) for key in CALLS}


def test_picking_one_of_a_few_gathers_nothing():
    """Log-probabilities of actions: neither a gather nor, backwards, a scatter."""
    function = OPERATORS["aten.gather.default"].function
    loss = jax.grad(lambda x, i: function(x, -1, i).sum())
    text = str(jax.make_jaxpr(loss)(jnp.ones((8, 6)), jnp.zeros((8, 1), int)))
    assert "gather" not in text and "scatter" not in text


def test_what_depends_on_numbers_is_left_out():
    for name in ("nonzero.default", "masked_select.default", "_local_scalar_dense.default"):
        assert f"aten.{name}" in LEFT_OUT


def test_nonzero_of_a_stated_size():
    x = np.array([[0, 1], [2, 0]])
    ours = OPERATORS["aten.nonzero_static.default"].function(jnp.asarray(x), size=3)
    theirs = torch.ops.aten.nonzero_static(torch.from_numpy(x), size=3)
    np.testing.assert_array_equal(ours, theirs.numpy())
