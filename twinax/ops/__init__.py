"""The operations that PyTorch, JAX and NumPy spell differently: one name each.

Every function looks at the type of its first array and calls that framework. Arithmetic, indexing
by slices, comparison and `@` are the arrays' own operators and are not repeated here. Rules that the
three implementations share, and that the conformance tests pin:

- a mask is True where an entry counts; masked logits are the finite number `MASKED`, so a row with
  nothing allowed has finite values and zero gradient;
- gradients at ties and kinks are PyTorch's: `clip` passes 1 at its bounds, `abs` 0 at zero,
  `maximum` and reductions by `max` share the gradient evenly;
- variances take an explicit `ddof`; indices of any integer type are accepted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from twinax.ops._axis import current_shards, seed_axis, shards

MASKED = -1e9
"""The finite logit of an entry that is not allowed."""


class _Backends(dict[type, ModuleType]):
    """The implementation by the type of an array, learned when a type is first met."""

    def __missing__(self, kind: type) -> ModuleType:
        roots = {c.__module__.split(".")[0] for c in kind.__mro__}
        name = "_torch" if "torch" in roots else "_jax" if roots & {"jax", "jaxlib"} else "_numpy"
        self[kind] = module = importlib.import_module(f"twinax.ops.{name}")
        return module


# Looked up in place, not through `backend`: in eager PyTorch one more Python call per operation can be felt.
_of = _Backends()


def backend(x: Any) -> ModuleType:
    """The implementation for an array's framework."""
    return _of[type(x)]


def framework(x: Any) -> str:
    """'torch', 'jax' or 'numpy'.

    >>> framework(3.0)
    'numpy'
    """
    return backend(x).__name__.rsplit("_", 1)[-1]


# Making arrays


def like(tree: Any, reference: Any) -> Any:
    """The arrays of a tree (usually NumPy) in the reference's framework, dtypes kept.

    In PyTorch an array that is not writeable is converted once and kept as long as it lives; do not write into it.
    """
    return _of[type(reference)].convert(tree, reference)


def zeros(shape: Sequence[int], reference: Any, dtype: str | None = None) -> Any:
    """Zeros in the reference's framework and, unless named, its dtype."""
    return _of[type(reference)].full(shape, 0, reference, dtype)


def full(shape: Sequence[int], value: float, reference: Any, dtype: str | None = None) -> Any:
    """A constant array in the reference's framework and, unless named, its dtype."""
    return _of[type(reference)].full(shape, value, reference, dtype)


def arange(n: int, reference: Any) -> Any:
    """int32 0..n-1 in the reference's framework."""
    return _of[type(reference)].arange(n, reference)


def cast(x: Any, dtype: Any) -> Any:
    """To a dtype named as a string ('float32', 'int32', 'bool') or to that of another array."""
    return _of[type(x)].cast(x, dtype)


def stop_gradient(x: Any) -> Any:
    """The value, through which no gradient flows."""
    return _of[type(x)].stop_gradient(x)


# Choosing and moving


def where(condition: Any, a: Any, b: Any) -> Any:
    """Elementwise choice."""
    return _of[type(condition)].where(condition, a, b)


def take(x: Any, index: Any, axis: int = 0) -> Any:
    """Whole slices of `x` by integer index along one axis; the index may have any shape."""
    return _of[type(x)].take(x, index, axis)


def take_along(x: Any, index: Any) -> Any:
    """One entry of the last axis per row: `x[..., index]` without that axis."""
    return _of[type(x)].take_along(x, index)


def gather(x: Any, index: Any) -> Any:
    """Several entries of the last axis per row: `x[..., index]`, where both have the same leading axes."""
    return _of[type(x)].gather(x, index)


def channels(codes: Any, table: Any) -> Any:
    """Rows of a small table by code, channel by channel: `table[codes]` with the last two axes exchanged."""
    return _of[type(codes)].channels(codes, table)


def smallest(x: Any, number: int) -> Any:
    """Indices (int32) of the smallest entries of the last axis, in order; of equal ones the first comes first."""
    return _of[type(x)].smallest(x, number)


def shuffled(uniform: Any) -> Any:
    """Indices (int32) of the last axis in a random order, which uniform numbers in (0, 1) decide: the same in every
    framework.

    Numbers are compared by their first bits and then by their place, which is one sort of whole numbers.
    """
    return _of[type(uniform)].shuffled(uniform)


def swap_last(x: Any) -> Any:
    """The last two axes exchanged."""
    return _of[type(x)].swap_last(x)


def move_axis(x: Any, source: int, target: int) -> Any:
    """One axis moved to another place."""
    return _of[type(x)].move_axis(x, source, target)


def roll(x: Any, shift: int, axis: int) -> Any:
    """Entries moved along an axis; those that leave at one end come in at the other."""
    return _of[type(x)].roll(x, shift, axis)


def pad(x: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
    """A constant border: (before, after) for each of the last axes that `widths` names."""
    return _of[type(x)].pad(x, widths, value)


def set_at(buffer: Any, index: Any, value: Any) -> Any:
    """The buffer with `buffer[index] = value`; PyTorch and NumPy may write in place."""
    return _of[type(buffer)].set_at(buffer, index, value)


def put_largest(buffer: Any, index: Any, value: Any) -> Any:
    """The buffer with entries of the last axis replaced, row by row; an entry named twice gets the larger value.

    Values are positive. PyTorch and NumPy may write in place.
    """
    return _of[type(buffer)].put_largest(buffer, index, value)


def write_rows(buffer: Any, start: Any, rows: Any) -> Any:
    """The buffer with consecutive rows replaced from `start` on; PyTorch and NumPy may write in place."""
    return backend(buffer).write_rows(buffer, start, rows)


def one_hot(index: Any, size: int, dtype: Any) -> Any:
    """A new last axis with 1 at the index; `dtype` is a name or an array."""
    return _of[type(index)].one_hot(index, size, dtype)


def concat(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Join along an axis."""
    return _of[type(arrays[0])].concat(arrays, axis)


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Join along a new axis."""
    return _of[type(arrays[0])].stack(arrays, axis)


def flip(x: Any, axis: int) -> Any:
    """Reverse an axis."""
    return _of[type(x)].flip(x, axis)


def broadcast(x: Any, shape: Sequence[int]) -> Any:
    """Expand to a shape."""
    return _of[type(x)].broadcast(x, shape)


def searchsorted(sorted_values: Any, values: Any, right: bool = False) -> Any:
    """Where values would be inserted (int32)."""
    return _of[type(sorted_values)].searchsorted(sorted_values, values, right)


# Elementwise


def exp(x: Any) -> Any:
    """e to the x."""
    return _of[type(x)].exp(x)


def log(x: Any) -> Any:
    """Natural logarithm."""
    return _of[type(x)].log(x)


def sqrt(x: Any) -> Any:
    """Square root."""
    return _of[type(x)].sqrt(x)


def square(x: Any) -> Any:
    """x * x, for residuals that are long expressions."""
    return x * x


def abs(x: Any) -> Any:
    """Absolute value with gradient 0 at zero."""
    return _of[type(x)].abs(x)


def cos(x: Any) -> Any:
    """Cosine."""
    return _of[type(x)].cos(x)


def cos_pi(x: Any) -> Any:
    """cos(pi x)."""
    return _of[type(x)].cos_pi(x)


def sin(x: Any) -> Any:
    """Sine."""
    return _of[type(x)].sin(x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
    return _of[type(x)].tanh(x)


def sigmoid(x: Any) -> Any:
    """Logistic function."""
    return _of[type(x)].sigmoid(x)


def softplus(x: Any) -> Any:
    """log(1 + e^x), without overflow."""
    return _of[type(x)].softplus(x)


def log_sigmoid(x: Any) -> Any:
    """log of the logistic function, without overflow."""
    return -softplus(-x)


def relu(x: Any) -> Any:
    """max(x, 0) with gradient 0 at zero."""
    return _of[type(x)].relu(x)


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """x above zero, slope * x at and below it."""
    return _of[type(x)].leaky_relu(x, slope)


def gelu(x: Any, approximate: bool = False) -> Any:
    """Gaussian error linear unit: exact, or by the tanh approximation."""
    return _of[type(x)].gelu(x, approximate)


def elu(x: Any) -> Any:
    """x above zero, e^x - 1 at and below it."""
    return _of[type(x)].elu(x)


def minimum(a: Any, b: Any) -> Any:
    """Elementwise smaller of two arrays; ties share the gradient."""
    return _of[type(a)].minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    """Elementwise larger of two arrays; ties share the gradient."""
    return _of[type(a)].maximum(a, b)


def clip(x: Any, low: float, high: float) -> Any:
    """Limit to [low, high]; the gradient at a bound is 1."""
    return where(x < low, low, where(x > high, high, x))


def huber(x: Any, delta: float = 1.0) -> Any:
    """x^2 / 2 up to delta, delta (|x| - delta / 2) beyond."""
    size = abs(x)
    return where(size <= delta, 0.5 * x * x, delta * (size - 0.5 * delta))


# Reductions


def sum(x: Any, axis: int | tuple[int, ...] | None = None, mask: Any = None) -> Any:
    """Sum, of the entries where the mask is True."""
    b = _of[type(x)]
    return b.sum(x if mask is None else b.where(mask, x, 0), axis)


def mean(x: Any, axis: int | tuple[int, ...] | None = None, mask: Any = None) -> Any:
    """Mean, of the entries where the mask is True; 0 where there are none."""
    b = _of[type(x)]
    if mask is None:
        return b.mean(x, axis)
    counted = mask if mask.shape == x.shape else b.broadcast(mask, x.shape)
    number = b.sum(b.cast(counted, x), axis)
    return b.sum(b.where(mask, x, 0), axis) / b.where(number == 0, 1, number)


def var(x: Any, axis: int | tuple[int, ...] | None = None, *, ddof: int) -> Any:
    """Variance with the divisor n - ddof."""
    return _of[type(x)].var(x, axis, ddof)


def std(x: Any, axis: int | tuple[int, ...] | None = None, *, ddof: int) -> Any:
    """Standard deviation with the divisor n - ddof."""
    return sqrt(var(x, axis, ddof=ddof))


def max(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Largest entry; ties share the gradient."""
    return _of[type(x)].max(x, axis)


def min(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Smallest entry; ties share the gradient."""
    return _of[type(x)].min(x, axis)


def argmax(x: Any) -> Any:
    """Index (int32) of the first largest entry of the last axis."""
    return _of[type(x)].argmax(x)


def prod(x: Any, axis: int) -> Any:
    """Product along an axis."""
    return _of[type(x)].prod(x, axis)


def any(x: Any, axis: int | None = None) -> Any:
    """Whether any entry is True."""
    return _of[type(x)].any(x, axis)


def all(x: Any, axis: int | None = None) -> Any:
    """Whether every entry is True."""
    return _of[type(x)].all(x, axis)


def across_shards(x: Any) -> Any:
    """The mean over the shards of a batch, which have equal sizes; the value itself where there is one."""
    found = current_shards()
    if found is None:
        return x
    from jax import lax

    return lax.pmean(x, found[0])


def num_shards() -> int:
    """Into how many equal parts a batch is divided while this is traced."""
    found = current_shards()
    return 1 if found is None else found[1]


def shard_index(like: Any) -> Any:
    """Which of these parts this is, as an int32; 0 where there is one."""
    found = current_shards()
    if found is None:
        return zeros((), like, "int32")
    from jax import lax

    return lax.axis_index(found[0])


def cumsum(x: Any, axis: int = 0) -> Any:
    """Running sum, in the dtype of `x`."""
    return _of[type(x)].cumsum(x, axis)


def logsumexp(x: Any, axis: int = -1, mask: Any = None) -> Any:
    """log of the sum of e^x over an axis, of the entries where the mask is True."""
    return _of[type(x)].logsumexp(x, axis, mask)


def log_softmax(x: Any, mask: Any = None, axis: int = -1) -> Any:
    """Log-probabilities over an axis, of the entries where the mask is True."""
    return _of[type(x)].log_softmax(x, mask, axis)


def softmax(x: Any, mask: Any = None, axis: int = -1) -> Any:
    """Probabilities over an axis, of the entries where the mask is True."""
    b = _of[type(x)]
    return b.exp(b.log_softmax(x, mask, axis))


# Layers


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x W^T + b, with PyTorch's layout of W: out x in."""
    return _of[type(weight)].linear(x, weight, bias)


def known(function: Callable, arguments: tuple, value: Any) -> Any:
    """`function(*arguments)` where its value has been worked out before: JAX then works out its gradients alone."""
    return _of[type(value)].known(function, arguments, value)


def khot_linear(indices: Any, weight: Any, bias: Any = None) -> Any:
    """`linear` of a row that is 1 at a few distinct indices and 0 elsewhere, by adding columns of W."""
    return _of[type(weight)].khot_linear(indices, weight, bias)


def khot_rows(indices: Any, table: Any) -> Any:
    """The sum of a few rows of a table for each row of indices. Meant for acting: no gradient is promised."""
    return _of[type(table)].khot_rows(indices, table)


def pair_sums(x: Any, weight: Any) -> Any:
    """relu(x_i + x_j) . weight for each two of the rows of (..., rows, width): (..., rows, rows)."""
    return _of[type(x)].pair_sums(x, weight)


def least_squares(rows: Any, wanted: Any) -> Any:
    """The shortest x that minimises |rows x - wanted|, by singular values; those below rounding count as zero."""
    return _of[type(rows)].least_squares(rows, wanted)


def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The last axis with mean 0 and variance 1, then times weight plus bias, where there are any; eps is added to the
    variance."""
    return _of[type(x)].layer_norm(x, weight, bias, eps)


def group_norm(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """Each group of neighbouring channels of (batch, channels, *places) with mean 0 and variance 1 over all places,
    then each channel times its weight plus its bias, where there are any; eps is added to the variance."""
    return _of[type(x)].group_norm(x, groups, weight, bias, eps)


def attention(query: Any, key: Any, value: Any, mask: Any = None, causal: bool = False) -> Any:
    """Means of the values (..., keys, width) for each query (..., queries, width), with softmax(query . key /
    sqrt(width)) as weights.

    A query looks at the keys where the mask (..., queries, keys) is True, if causal only at those that do not come
    after it. A query that may look at nothing gets zeros and gives no gradient.
    """
    return _of[type(query)].attention(query, key, value, mask, causal)


def gru(x: Any, state: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any = None, bias_hh: Any = None) -> Any:
    """A layer of gated recurrent units over time: outputs (time, *rows, hidden) and the last state (*rows, hidden).

    `x` is (time, *rows, inputs). The weights are PyTorch's, with the rows of reset, update and new below each other.
    """
    return _of[type(weight_ih)].gru(x, state, weight_ih, weight_hh, bias_ih, bias_hh)


def lstm(x: Any, state: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any = None, bias_hh: Any = None) -> Any:
    """A layer of long short-term memory over time: outputs (time, *rows, hidden) and the last state.

    The state is a pair (hidden, cell). The weights are PyTorch's, with the rows of input, forget, new and output below
    each other.
    """
    return _of[type(weight_ih)].lstm(x, state, weight_ih, weight_hh, bias_ih, bias_hh)


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int = 1,
    padding: Any = None,
    dilation: int = 1,
    groups: int = 1,
    channels_last: bool = True,
) -> Any:
    """Images (batch, height, width, in) convolved with PyTorch's layout of a weight: (out, in / groups, height, width).

    The border of zeros is XLA's SAME, which leaves ceil(size / stride) places: where it is uneven, the larger part
    comes after. `padding` asks for another: (before, after) of the height and of the width. Entries of a window are
    `dilation` places apart, and channels of a group are convolved apart from the others. If channels are not last,
    images are (batch, in, height, width), as PyTorch has them.
    """
    return _of[type(weight)].conv2d(x, weight, bias, stride, padding, dilation, groups, channels_last)


def max_pool(x: Any, window: int, stride: int) -> Any:
    """The largest entry of each square window of images (batch, height, width, channels), with the places of `conv2d`.

    What lies outside of an image never wins. Of equal entries the first, row by row, receives the gradient.
    """
    return _of[type(x)].max_pool(x, window, stride)


def transpose(matrix: Any) -> Any:
    """The transposed matrix as a copy in its own memory order."""
    return _of[type(matrix)].transpose(matrix)


def einsum(formula: str, *arrays: Any) -> Any:
    """Einstein summation."""
    return _of[type(arrays[0])].einsum(formula, *arrays)


# Control


def scan(step: Callable, carry: Any, xs: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`carry, y = step(carry, x)` along the leading axis; ys keep the order of xs."""
    import jax.tree_util as jtu

    return _of[type(jtu.tree_leaves(xs)[0])].scan(step, carry, xs, reverse)


def while_loop(condition: Callable, body: Callable, carry: Any) -> Any:
    """Apply `body` while `condition` holds. Not differentiable in reverse; no gradient is recorded."""
    import jax.tree_util as jtu

    return _of[type(jtu.tree_leaves(carry)[0])].while_loop(condition, body, carry)


def cond(predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any], each: bool = False) -> Any:
    """`then()` or `otherwise()`; only the chosen one runs.

    With several seeds in one program, `then` runs for all of them if one of them asks for it. With `each` those that
    did not ask are given what `otherwise` gives, which is then computed as well.
    """
    return _of[type(predicate)].cond(predicate, then, otherwise, each)


def members(function: Callable, *trees: Any, parallel: bool = True) -> Any:
    """`function` applied along the leading axis of trees, results stacked: in JAX at once, or one after the other."""
    import jax.tree_util as jtu

    return _of[type(jtu.tree_leaves(trees)[0])].members(function, trees, parallel)


def member_losses(function: Callable, networks: Any, *rest: Any, parallel: bool = True, work: int = 0) -> Any:
    """`members` for losses: `function(network, *others)` gives `(scalar, terms)`, and gradients flow from the scalars
    into the networks alone.

    `work` is about the size of a member's largest array. In JAX on a CPU, members that are too large for its cache
    run one after the other, even if `parallel`: the same program, but quicker.
    """
    import jax.tree_util as jtu

    return _of[type(jtu.tree_leaves(networks)[0])].member_losses(function, networks, rest, parallel, work)


def map_rows(function: Callable, rows: Any, tile: int) -> Any:
    """Apply a function of a batch to many rows, `tile` rows at a time, to bound memory."""
    import jax.tree_util as jtu

    return _of[type(jtu.tree_leaves(rows)[0])].map_rows(function, rows, tile)


def host_call(function: Callable, results: Any, *arrays: Any, ordered: bool = False) -> Any:
    """`function` of NumPy arrays, from within the rules: for what is written in C and cannot be traced.

    It must be pure, and gives arrays of the shapes and dtypes of the tree `results`. In JAX it may be called with more
    leading axes, the same for all arrays: those over which a program is mapped. No gradient is recorded.

    A function with effects is `ordered`: it is called exactly as often as the program comes by, and in that order. JAX
    can then not map the program. Spread over devices, each shard calls for itself, and its calls are in order where
    each is given something that the one before it gave.
    """
    return _of[type(arrays[0])].host_call(function, results, arrays, ordered)


def used(x: Any, count: Any) -> Any:
    """The first `count` entries where shapes may depend on data (PyTorch, NumPy); all of them in JAX."""
    return _of[type(x)].used(x, count)


def switch_size(count: Any, sizes: tuple[int, ...], function: Callable[[int], Any]) -> Any:
    """`function(size)` with a static size at least `count`.

    PyTorch and NumPy call it with the count itself; JAX compiles one branch for each of `sizes`
    (ascending) and takes the smallest that suffices.
    """
    return _of[type(count)].switch_size(count, sizes, function)


__all__ = [
    "MASKED",
    "abs",
    "across_shards",
    "all",
    "any",
    "arange",
    "argmax",
    "attention",
    "backend",
    "broadcast",
    "cast",
    "channels",
    "clip",
    "concat",
    "cond",
    "conv2d",
    "cos",
    "cos_pi",
    "cumsum",
    "einsum",
    "elu",
    "exp",
    "flip",
    "framework",
    "full",
    "gather",
    "gelu",
    "group_norm",
    "gru",
    "host_call",
    "huber",
    "khot_linear",
    "khot_rows",
    "layer_norm",
    "leaky_relu",
    "least_squares",
    "like",
    "linear",
    "log",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "lstm",
    "map_rows",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "member_losses",
    "members",
    "min",
    "minimum",
    "move_axis",
    "num_shards",
    "one_hot",
    "pad",
    "pair_sums",
    "prod",
    "put_largest",
    "relu",
    "roll",
    "scan",
    "searchsorted",
    "seed_axis",
    "set_at",
    "shard_index",
    "shards",
    "shuffled",
    "sigmoid",
    "sin",
    "smallest",
    "softmax",
    "softplus",
    "sqrt",
    "square",
    "stack",
    "std",
    "stop_gradient",
    "sum",
    "swap_last",
    "switch_size",
    "take",
    "take_along",
    "tanh",
    "transpose",
    "used",
    "var",
    "where",
    "while_loop",
    "write_rows",
    "zeros",
]
