"""NumPy: the reference, usually in float64."""

from __future__ import annotations

import math
from functools import partial

import jax.tree_util as jtu
import numpy as np

from twinax.ops import MASKED, _eager, _layers
from twinax.ops._order import index_bits
from twinax.ops.windows import same_padding


def convert(tree, reference):
    return jtu.tree_map(np.asarray, tree)


def full(shape, value, reference, dtype):
    return np.full(shape, value, dtype or np.asarray(reference).dtype)


def arange(n, reference):
    return np.arange(n, dtype=np.int32)


def cast(x, dtype):
    return np.asarray(x).astype(dtype if isinstance(dtype, str) else dtype.dtype)


def stop_gradient(x):
    return x


def where(condition, a, b):
    # Python numbers are weak here: they do not widen a float32 array, and 0.5 is not cut by an integer one.
    dtype = np.result_type(a, b)
    return np.where(condition, np.asarray(a, dtype), np.asarray(b, dtype))


def take_along(x, index):
    return np.take_along_axis(x, np.asarray(index)[..., None].astype(np.int64), -1)[..., 0]


def gather(x, index):
    return np.take_along_axis(x, np.asarray(index).astype(np.int64), -1)


def channels(codes, table):
    return np.swapaxes(table[codes], -1, -2)


def smallest(x, number):
    return np.argsort(x, -1, kind="stable")[..., :number].astype(np.int32)


def shuffled(uniform):
    bits = index_bits(uniform.shape[-1])
    first = np.floor(uniform * 2.0 ** (32 - bits)).astype(np.int64)
    packed = (first << bits) | np.arange(uniform.shape[-1])
    return (np.sort(packed, axis=-1) & (2**bits - 1)).astype(np.int32)


def swap_last(x):
    return np.swapaxes(x, -1, -2)


def pad(x, widths, value):
    return np.pad(x, [(0, 0)] * (x.ndim - len(widths)) + list(widths), constant_values=value)


def set_at(buffer, index, value):
    buffer[index] = value
    return buffer


def put_largest(buffer, index, value):
    rows = np.arange(len(buffer))[:, None]
    buffer[rows, index] = 0
    np.maximum.at(buffer, (rows, index), value)
    return buffer


def write_rows(buffer, start, rows):
    start = int(start)
    buffer[start : start + len(rows)] = rows
    return buffer


def one_hot(index, size, dtype):
    return (np.asarray(index)[..., None] == np.arange(size)).astype(dtype if isinstance(dtype, str) else dtype.dtype)


take, concat, stack, broadcast = np.take, np.concatenate, np.stack, np.broadcast_to
flip, move_axis, roll = np.flip, np.moveaxis, np.roll


def searchsorted(sorted_values, values, right):
    return np.searchsorted(sorted_values, values, side="right" if right else "left").astype(np.int32)


exp, log, sqrt, abs, cos, sin, tanh = np.exp, np.log, np.sqrt, np.abs, np.cos, np.sin, np.tanh
minimum, maximum, einsum = np.minimum, np.maximum, np.einsum
sum, mean, max, min, prod, any, all = np.sum, np.mean, np.max, np.min, np.prod, np.any, np.all


def cos_pi(x):
    return np.cos(math.pi * x)


def sigmoid(x):
    return np.exp(-softplus(-x))


def softplus(x):
    return np.logaddexp(x, np.zeros((), np.asarray(x).dtype))


def relu(x):
    return np.maximum(x, np.zeros((), x.dtype))


def leaky_relu(x, slope):
    return where(x > 0, x, slope * x)


def gelu(x, approximate):
    if approximate:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    erf = np.vectorize(math.erf, otypes=[x.dtype])
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def elu(x):
    return where(x > 0, x, np.expm1(np.minimum(x, 0)))


def var(x, axis, ddof):
    return np.var(x, axis, ddof=ddof)


def argmax(x):
    return np.argmax(x, -1).astype(np.int32)


def cumsum(x, axis):
    return np.cumsum(x, axis, dtype=x.dtype)


def logsumexp(x, axis, mask):
    if mask is not None:
        x = where(mask, x, MASKED)
    if x.shape[axis] == 0:
        return np.full(np.delete(x.shape, axis), -np.inf, x.dtype)
    top = _finite_max(x, axis)
    with np.errstate(divide="ignore"):
        return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis))


def _finite_max(x, axis):
    # A row of -inf has no finite maximum, and inf - inf is not a number.
    top = np.max(x, axis, keepdims=True)
    return np.where(np.isfinite(top), top, np.zeros((), x.dtype))


def log_softmax(x, mask, axis):
    if mask is not None:
        x = where(mask, x, MASKED)
    if x.shape[axis] == 0:
        return x
    # The shift comes first: next to MASKED the log of the sum would be rounded away.
    shifted = x - _finite_max(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True))


def linear(x, weight, bias):
    y = x @ weight.T
    return y if bias is None else y + bias


def transpose(weight):
    return np.ascontiguousarray(weight.T)


def least_squares(rows, wanted):
    return np.linalg.lstsq(rows, wanted, rcond=None)[0]


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


gru, lstm, attention, group_norm = _layers.gru, _layers.lstm, _layers.attention, _layers.group_norm
pair_sums = _layers.pair_sums


def conv2d(x, weight, bias, stride, padding, dilation, groups, channels_last):
    if not channels_last:
        y = conv2d(np.moveaxis(x, 1, -1), weight, bias, stride, padding, dilation, groups, True)
        return np.moveaxis(y, -1, 1)
    window = weight.shape[2:]
    border = same_padding(x.shape[1:3], window, stride, dilation) if padding is None else padding
    covered = [(n - 1) * dilation + 1 for n in window]
    places = _windows(x, border, 0, covered, stride)[..., ::dilation, ::dilation]
    parts = zip(np.split(places, groups, 3), np.split(weight, groups), strict=True)
    y = np.concatenate([np.tensordot(part, w, ((3, 4, 5), (1, 2, 3))) for part, w in parts], -1)
    return y if bias is None else y + bias


def max_pool(x, window, stride):
    border = same_padding(x.shape[1:3], (window, window), stride)
    return _windows(x, border, -np.inf, (window, window), stride).max((-2, -1))


def _windows(x, border, value, window, stride):
    """(batch, places down, places across, channels, window height, window width)"""
    x = np.pad(x, [(0, 0), *border, (0, 0)], constant_values=value)
    return np.lib.stride_tricks.sliding_window_view(x, window, (1, 2))[:, ::stride, ::stride]


def khot_rows(indices, table):
    return table[indices].sum(-2)


def known(function, arguments, value):
    return function(*arguments)


def khot_linear(indices, weight, bias):
    y = khot_rows(indices, weight.T)
    return y if bias is None else y + bias


scan = partial(_eager.scan, np.stack)
map_rows = partial(_eager.map_rows, np.concatenate)


def host_call(function, results, arrays, ordered):
    return jtu.tree_map(lambda x, like: np.asarray(x, like.dtype), function(*arrays), results)


used, switch_size, cond = _eager.used, _eager.switch_size, _eager.cond
members = partial(_eager.members, np.stack, list)
member_losses = partial(_eager.member_losses, np.stack, list)
while_loop = _eager.while_loop
