"""JAX: what XLA compiles well, with PyTorch's gradients at ties and kinks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax import lax
from jax.experimental import io_callback

from twinax.ops import MASKED, _layers
from twinax.ops._axis import current_seed_axis, current_shards
from twinax.ops._order import index_bits
from twinax.ops.windows import same_padding

CACHE_NUMBERS = 2**17
"""Members with larger arrays than this run one after the other on a CPU: together they would leave its cache."""


def _dtype(dtype):
    return dtype if isinstance(dtype, str) else dtype.dtype


def convert(tree, reference):
    return jtu.tree_map(jnp.asarray, tree)


def full(shape, value, reference, dtype):
    return jnp.full(tuple(shape), value, _dtype(dtype or reference))


def arange(n, reference):
    return jnp.arange(n, dtype=jnp.int32)


def cast(x, dtype):
    return x.astype(_dtype(dtype))


stop_gradient = lax.stop_gradient
where: Callable[..., jax.Array] = jnp.where  # type: ignore[assignment]
exp, log, sqrt, cos, sin, tanh = jnp.exp, jnp.log, jnp.sqrt, jnp.cos, jnp.sin, jnp.tanh
minimum, maximum, sigmoid, relu = jnp.minimum, jnp.maximum, jax.nn.sigmoid, jax.nn.relu
softplus, gelu, einsum = jax.nn.softplus, jax.nn.gelu, jnp.einsum
sum, mean, max, min, prod, any, all = jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.prod, jnp.any, jnp.all


def abs(x):
    return x * lax.stop_gradient(jnp.sign(x))


def cos_pi(x):
    # XLA's cosine on the CPU takes one element at a time; this series is vectorised, many times faster, and the
    # whole turns are taken off without rounding. cos(pi x) = sin(pi (1/2 - |x|)) on [-1, 1].
    angle = math.pi * (0.5 - jnp.abs(x - 2 * jnp.round(x / 2)))
    square = angle * angle
    series = jnp.zeros_like(x)
    for power in range(21 if x.dtype == jnp.float64 else 13, 0, -2):
        series = series * square + (-1) ** (power // 2) / math.factorial(power)
    return angle * series


def take(x, index, axis):
    return jnp.take(x, index, axis=axis, mode="clip")


def take_along(x, index):
    size = x.shape[-1]
    if size <= 64:
        # A select fuses with what surrounds it; a gather and its scattering gradient do not.
        hit = jnp.expand_dims(index, -1) == jnp.arange(size, dtype=index.dtype)
        return jnp.sum(where(hit, x, 0), -1)
    return jnp.take_along_axis(x, jnp.expand_dims(index, -1), -1, mode="clip")[..., 0]


def gather(x, index):
    return jnp.take_along_axis(x, index, -1, mode="clip")


def channels(codes, table):
    # Comparisons with every code are vector instructions; looking up one number after the other is not.
    codes = codes[..., None, :]
    found = jnp.zeros((), table.dtype)
    for code in range(table.shape[0]):
        found = jnp.where(codes == code, table[code][:, None], found)
    return found


def smallest(x, number):
    return lax.top_k(-x, number)[1].astype(jnp.int32)


def shuffled(uniform):
    size = uniform.shape[-1]
    bits = index_bits(size)
    first = jnp.floor(uniform * 2.0 ** (32 - bits)).astype(jnp.uint32)
    packed = (first << bits) | lax.iota(jnp.uint32, size)
    return (jnp.sort(packed, axis=-1) & np.uint32(2**bits - 1)).astype(jnp.int32)


def swap_last(x):
    return jnp.swapaxes(x, -1, -2)


def pad(x, widths, value):
    return jnp.pad(x, [(0, 0)] * (x.ndim - len(widths)) + list(widths), constant_values=value)


def set_at(buffer, index, value):
    if not isinstance(index, tuple) and jnp.ndim(index) == 0:
        # A slice written in place; a scatter with one row is many times slower.
        index = index % buffer.shape[0] if isinstance(index, int) else index
        value = jnp.broadcast_to(jnp.asarray(value, buffer.dtype), buffer.shape[1:])
        return lax.dynamic_update_index_in_dim(buffer, value, index, 0)
    return buffer.at[index].set(value, mode="promise_in_bounds")


def put_largest(buffer, index, value):
    rows = jnp.broadcast_to(jnp.arange(buffer.shape[0])[:, None], index.shape)
    return buffer.at[rows, index].set(0).at[rows, index].max(value)


def write_rows(buffer, start, rows):
    return lax.dynamic_update_slice_in_dim(buffer, rows.astype(buffer.dtype), start, 0)


def one_hot(index, size, dtype):
    return jax.nn.one_hot(index, size, dtype=_dtype(dtype))


concat, stack, broadcast = jnp.concatenate, jnp.stack, jnp.broadcast_to
flip, move_axis, roll = jnp.flip, jnp.moveaxis, jnp.roll


def searchsorted(sorted_values, values, right):
    # Comparing with a few values fuses; a binary search is a loop.
    method = "compare_all" if sorted_values.shape[0] <= 64 else "scan"
    side = "right" if right else "left"
    return jnp.searchsorted(sorted_values, values, side=side, method=method).astype(jnp.int32)


def leaky_relu(x, slope):
    return where(x > 0, x, slope * x)


def elu(x):
    return where(x > 0, x, jnp.expm1(where(x > 0, 0.0, x)))


def var(x, axis, ddof):
    return jnp.var(x, axis, ddof=ddof)


def argmax(x):
    return jnp.argmax(x, -1).astype(jnp.int32)


def cumsum(x, axis):
    return jnp.cumsum(x, axis, dtype=x.dtype)


def logsumexp(x, axis, mask):
    if mask is not None:
        x = where(mask, x, MASKED)
    if x.shape[axis] == 0:
        return jnp.full(np.delete(x.shape, axis), -jnp.inf, x.dtype)
    return jax.nn.logsumexp(x, axis)


def log_softmax(x, mask, axis):
    return jax.nn.log_softmax(x if mask is None else where(mask, x, MASKED), axis)


def linear(x, weight, bias):
    y = _multiply(x, weight) if x.ndim == 2 else x @ weight.T
    return y if bias is None else y + bias


@jax.custom_vjp
def _multiply(x, weight):
    return x @ weight.T


def _multiply_backward(residual, gradient):
    x, weight = residual
    # Turned round in memory first: XLA's product with a transposed left side is a third slower on the CPU.
    return gradient @ weight, lax.optimization_barrier(gradient.T) @ x


_multiply.defvjp(lambda x, weight: (x @ weight.T, (x, weight)), _multiply_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def known(function, arguments, value):
    return value


def _known_backward(function, arguments, gradient):
    # What the function gives is not used here, so XLA computes no more of it than its gradients read.
    return jax.vjp(function, *arguments)[1](gradient), jnp.zeros_like(gradient)


known.defvjp(lambda function, arguments, value: (value, arguments), _known_backward)


def transpose(weight):
    # The barrier makes it a copy, made once, instead of a view that every product has to walk across.
    return lax.optimization_barrier(weight.T)


MOST_WRITTEN_OUT = 64
"""Terms of a sum that are written out in a program, one by one."""


@jax.custom_vjp
def pair_sums(x, weight):
    return _layers.pair_sums(x, weight)


def _pair_sums_backward(residual, gradient):
    # XLA's own gradient stores all pairs, several times. Terms written out are added up in one pass over the rows.
    x, weight = residual
    both = gradient + swap_last(gradient)
    rows = x.shape[-2]
    if rows <= MOST_WRITTEN_OUT:
        slope = jnp.zeros_like(x)
        for j in range(rows):
            slope += where(x + x[..., j : j + 1, :] > 0, both[..., j : j + 1], 0)
    else:
        slope = jnp.sum(where(x[..., :, None, :] + x[..., None, :, :] > 0, both[..., None], 0), -2)
    # Where the sum of a pair is above zero it counts itself, and with it each of its two rows.
    return slope * weight, jnp.sum(x * slope, tuple(range(x.ndim - 1)))


pair_sums.defvjp(lambda x, weight: (pair_sums(x, weight), (x, weight)), _pair_sums_backward)


def least_squares(rows, wanted):
    return jnp.linalg.lstsq(rows, wanted)[0]


def layer_norm(x, weight, bias, eps):
    centred = x - jnp.mean(x, -1, keepdims=True)
    y = centred * lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


gru, lstm, attention, group_norm = _layers.gru, _layers.lstm, _layers.attention, _layers.group_norm


def conv2d(x, weight, bias, stride, padding, dilation, groups, channels_last):
    border = "SAME" if padding is None else tuple(padding)
    axes = ("NHWC", "OIHW", "NHWC") if channels_last else ("NCHW", "OIHW", "NCHW")
    apart = (dilation, dilation)
    y = lax.conv_general_dilated(
        x, weight, (stride, stride), border, rhs_dilation=apart, dimension_numbers=axes, feature_group_count=groups
    )
    if bias is None:
        return y
    return y + (bias if channels_last else bias[:, None, None])


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def max_pool(x, window, stride):
    lowest = np.array(-np.inf, x.dtype)
    return lax.reduce_window(x, lowest, lax.max, (1, window, window, 1), (1, stride, stride, 1), "SAME")


def _max_pool_forward(x, window, stride):
    y = max_pool(x, window, stride)
    return y, (x, y)


def _max_pool_backward(window, stride, residual, gradient):
    # XLA's own gradient on the CPU takes one element at a time. This compares whole slices, one for each place in the
    # window, and adds up what falls on each of the stride x stride grids of the image.
    x, y = residual
    (top, bottom), (left, right) = same_padding(x.shape[1:3], (window, window), stride)
    padded = jnp.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-jnp.inf)
    batch, height, width, channels = padded.shape
    down, across = y.shape[1:3]
    rows, columns = -(-height // stride), -(-width // stride)
    free = jnp.ones(y.shape, bool)
    nothing = jnp.zeros((batch, rows, columns, channels), gradient.dtype)
    grids = [[nothing] * stride for _ in range(stride)]
    for i, j in np.ndindex(window, window):
        ends = (batch, i + (down - 1) * stride + 1, j + (across - 1) * stride + 1, channels)
        hit = free & (lax.slice(padded, (0, i, j, 0), ends, (1, stride, stride, 1)) == y)
        free = free & ~hit
        a, b = i // stride, j // stride
        borders = ((0, 0), (a, rows - down - a), (b, columns - across - b), (0, 0))
        grids[i % stride][j % stride] += jnp.pad(where(hit, gradient, 0), borders)
    image = jnp.stack([jnp.stack(grid, 3) for grid in grids], 2).reshape(
        batch, rows * stride, columns * stride, channels
    )
    return (image[:, top : top + x.shape[1], left : left + x.shape[2]],)


max_pool.defvjp(_max_pool_forward, _max_pool_backward)


def khot_rows(indices, table):
    return jnp.sum(jnp.take(table, indices, axis=0, mode="clip"), -2)


def khot_linear(indices, weight, bias):
    y = _gather_columns(weight, indices)
    return y if bias is None else y + bias


@jax.custom_vjp
def _gather_columns(weight, indices):
    return khot_rows(indices, transpose(weight))


def _gather_columns_forward(weight, indices):
    # The weight itself is not needed again, only its width.
    return _gather_columns(weight, indices), (indices, jnp.zeros((0, weight.shape[1]), weight.dtype))


def _gather_columns_backward(residual, gradient):
    indices, width = residual
    # A product with the one-hot rows: XLA's scatter-add on the CPU is one element at a time.
    columns = jnp.arange(width.shape[1], dtype=indices.dtype)
    rows = jnp.any(jnp.expand_dims(indices, -1) == columns, -2).astype(gradient.dtype)
    rows, gradient = rows.reshape(-1, width.shape[1]), gradient.reshape(-1, gradient.shape[-1])
    return gradient.T @ rows, None


_gather_columns.defvjp(_gather_columns_forward, _gather_columns_backward)


def scan(step, carry, xs, reverse):
    return lax.scan(step, carry, xs, reverse=reverse)


def _over_seeds(value, reduce):
    axis = current_seed_axis()
    return value if axis is None else reduce(value, axis)


def while_loop(condition, body, carry):
    def predicate(value):
        held = jnp.asarray(condition(value))
        return _over_seeds(held.astype(jnp.int32), lax.pmax) > 0

    return lax.while_loop(predicate, body, jtu.tree_map(jnp.asarray, carry))


def cond(predicate, then, otherwise, each):
    own = jnp.asarray(predicate)
    chosen = _over_seeds(own.astype(jnp.int32), lax.pmax) > 0
    found = lax.cond(chosen, then, otherwise)
    if not each or current_seed_axis() is None:
        return found
    return jtu.tree_map(lambda a, b: jnp.where(own, a, b), found, otherwise())


def members(function, trees, parallel):
    return jax.vmap(function)(*trees) if parallel else lax.map(lambda each: function(*each), trees)


def member_losses(function, networks, rest, parallel, work):
    if parallel and (work <= CACHE_NUMBERS or jax.default_backend() != "cpu"):
        return jax.vmap(function)(networks, *rest)

    # The gradient of a loop would first store what every member's gradient needs, and then run a second loop. A loop of
    # gradients stores nothing, and what a member works on stays in the cache.
    @jax.custom_vjp
    def losses(networks, rest):
        return lax.map(lambda each: function(each[0], *each[1]), (networks, rest))

    def forward(networks, rest):
        def one(each):
            return jax.value_and_grad(lambda network: function(network, *each[1]), has_aux=True)(each[0])

        return lax.map(one, (networks, rest))

    def backward(gradients, cotangents):
        factor = cotangents[0]
        return jtu.tree_map(lambda g: g * factor.reshape(-1, *[1] * (g.ndim - 1)), gradients), None

    losses.defvjp(forward, backward)
    return losses(networks, lax.stop_gradient(rest))


def map_rows(function, rows, tile):
    number = jtu.tree_leaves(rows)[0].shape[0]
    tiles = -(-number // tile)

    def split(x):
        padded = jnp.pad(x, [(0, tiles * tile - number)] + [(0, 0)] * (x.ndim - 1), mode="edge")
        return padded.reshape(tiles, tile, *x.shape[1:])

    results = lax.map(function, jtu.tree_map(split, rows))
    return jtu.tree_map(lambda y: y.reshape(tiles * tile, *y.shape[2:])[:number], results)


def host_call(function, results, arrays, ordered):
    shapes = jtu.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), results)
    dtypes = jtu.tree_map(lambda x: np.dtype(x.dtype), results)

    def call(*arrays):
        found = function(*(np.asarray(x) for x in arrays))
        return jtu.tree_map(lambda x, dtype: np.asarray(x, dtype), found, dtypes)

    arrays = map(lax.stop_gradient, arrays)
    if ordered:
        # JAX orders calls on one device alone.
        return io_callback(call, shapes, *arrays, ordered=current_shards() is None)
    # Mapped over seeds it stays one call.
    return jax.pure_callback(call, shapes, *arrays, vmap_method="broadcast_all")


def used(x, count):
    return x


def switch_size(count, sizes, function):
    if not sizes:
        raise ValueError("no sizes to choose from")
    index = jnp.sum(jnp.asarray(sizes[:-1], jnp.int32) < count) if len(sizes) > 1 else jnp.zeros((), jnp.int32)
    branches = [lambda size=size: function(size) for size in sizes]
    return lax.switch(_over_seeds(index, lax.pmax), branches)
