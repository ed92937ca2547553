"""PyTorch, eager: each function is what one would write by hand."""

from __future__ import annotations

import math
import warnings
import weakref
from functools import partial

import jax.tree_util as jtu
import numpy as np
import torch
import torch.nn.functional as F

from twinax.memory import is_mapped
from twinax.ops import MASKED, _eager, _layers
from twinax.ops._order import index_bits
from twinax.ops.windows import same_padding

_DTYPES = {
    name: getattr(torch, name)
    for name in ("float16", "float32", "float64", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool")
}


def _dtype(dtype):
    return _DTYPES[dtype] if isinstance(dtype, str) else dtype.dtype


_constants: dict[tuple[int, torch.device], torch.Tensor] = {}


def _constant(array, device):
    key = (id(array), device)
    if key not in _constants:
        _constants[key] = torch.from_numpy(array.copy()).to(device)
        # The entry goes with the array, before another can have its id.
        weakref.finalize(array, _constants.pop, key, None).atexit = False
    return _constants[key]


def _shared(array):
    # The pages of its file, not a copy. PyTorch warns that such a tensor must not be written, which nothing here does.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(array)


def convert(tree, reference):
    def one(x):
        if isinstance(x, torch.Tensor):
            return x
        if is_mapped(x):
            return _shared(x).to(reference.device)
        if isinstance(x, np.ndarray) and not x.flags.writeable:
            return _constant(x, reference.device)
        return torch.from_numpy(np.array(x)).to(reference.device)

    return one(tree) if isinstance(tree, np.ndarray) else jtu.tree_map(one, tree)


def full(shape, value, reference, dtype):
    return torch.full(tuple(shape), value, dtype=_dtype(dtype or reference), device=reference.device)


def arange(n, reference):
    return torch.arange(n, dtype=torch.int32, device=reference.device)


def cast(x, dtype):
    return x.to(_dtype(dtype))


def stop_gradient(x):
    return x.detach()


where = torch.where
exp, log, sqrt, cos, sin, tanh, abs = torch.exp, torch.log, torch.sqrt, torch.cos, torch.sin, torch.tanh, torch.abs
minimum, maximum, sigmoid, relu = torch.minimum, torch.maximum, torch.sigmoid, torch.relu
leaky_relu, elu, einsum = F.leaky_relu, F.elu, torch.einsum


def cos_pi(x):
    return torch.cos(math.pi * x)


def take(x, index, axis):
    if index.dtype is not torch.int32 and index.dtype is not torch.int64:
        index = index.long()
    if index.dim() == 1:
        return torch.index_select(x, axis, index)
    if axis == 0 and x.dim() == 2:
        return torch.embedding(x, index)
    flat = torch.index_select(x, axis, index.reshape(-1))
    axis = axis % x.dim()
    return flat.reshape(x.shape[:axis] + index.shape + x.shape[axis + 1 :])


def take_along(x, index):
    if index.dtype is not torch.int64:
        index = index.long()
    return torch.gather(x, -1, index.unsqueeze(-1)).squeeze(-1)


def gather(x, index):
    return torch.gather(x, -1, index.long())


def channels(codes, table):
    return take(table, codes, 0).transpose(-1, -2)


def smallest(x, number):
    return torch.sort(x, dim=-1, stable=True).indices[..., :number].to(torch.int32)


def shuffled(uniform):
    bits = index_bits(uniform.shape[-1])
    first = torch.floor(uniform * 2.0 ** (32 - bits)).to(torch.int64)
    packed = (first << bits) | torch.arange(uniform.shape[-1], device=uniform.device)
    return (torch.sort(packed, dim=-1).values & (2**bits - 1)).to(torch.int32)


def swap_last(x):
    return x.transpose(-1, -2)


def pad(x, widths, value):
    return F.pad(x, [n for pair in reversed(widths) for n in pair], value=value)


def set_at(buffer, index, value):
    buffer[index] = value
    return buffer


def put_largest(buffer, index, value):
    index = index.long()
    return buffer.scatter_(-1, index, 0).scatter_reduce_(-1, index, value, "amax")


def write_rows(buffer, start, rows):
    start = int(start)
    buffer[start : start + len(rows)] = rows
    return buffer


def one_hot(index, size, dtype):
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).to(_dtype(dtype))


concat, stack, move_axis, roll = torch.cat, torch.stack, torch.movedim, torch.roll


def flip(x, axis):
    return torch.flip(x, (axis,))


def broadcast(x, shape):
    return x.expand(tuple(shape))


def searchsorted(sorted_values, values, right):
    return torch.searchsorted(sorted_values, values, right=right, out_int32=True)


def softplus(x):
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype, device=x.device))


def gelu(x, approximate):
    return F.gelu(x, approximate="tanh" if approximate else "none")


sum, prod = torch.sum, torch.prod  # an axis of None is the whole array


def mean(x, axis):
    return torch.mean(x, axis) if x.is_floating_point() else torch.mean(x, axis, dtype=torch.get_default_dtype())


def var(x, axis, ddof):
    return torch.var(x, axis, correction=ddof)


def max(x, axis):
    return torch.amax(x, () if axis is None else axis)


def min(x, axis):
    return torch.amin(x, () if axis is None else axis)


def argmax(x):
    return torch.argmax(x, -1).to(torch.int32)


def any(x, axis):
    return torch.any(x) if axis is None else torch.any(x, axis)


def all(x, axis):
    return torch.all(x) if axis is None else torch.all(x, axis)


def cumsum(x, axis):
    return torch.cumsum(x, axis, dtype=x.dtype)


def logsumexp(x, axis, mask):
    return torch.logsumexp(x if mask is None else torch.where(mask, x, MASKED), axis)


def log_softmax(x, mask, axis):
    return torch.log_softmax(x if mask is None else torch.where(mask, x, MASKED), axis)


linear, group_norm = F.linear, F.group_norm


def transpose(weight):
    return weight.t().contiguous()


def least_squares(rows, wanted):
    return torch.linalg.lstsq(rows, wanted[:, None], driver="gelsd").solution[:, 0]


def layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def attention(query, key, value, mask, causal):
    if mask is not None and causal:
        mask = mask & torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal and mask is None)


pair_sums = _layers.pair_sums


def gru(x, state, weight_ih, weight_hh, bias_ih, bias_hh):
    if x.dim() != 3:
        return _in_rows(gru, x, state, weight_ih, weight_hh, bias_ih, bias_hh)
    if x.shape[0] == 1:
        state = torch.gru_cell(x[0], state, weight_ih, weight_hh, bias_ih, bias_hh)
        return state[None], state
    weights, biased = _listed(weight_ih, weight_hh, bias_ih, bias_hh)
    y, state = torch.gru(x, state[None], weights, biased, 1, 0.0, torch.is_grad_enabled(), False, False)
    return y, state[0]


def lstm(x, state, weight_ih, weight_hh, bias_ih, bias_hh):
    if x.dim() != 3:
        return _in_rows(lstm, x, state, weight_ih, weight_hh, bias_ih, bias_hh)
    hidden, memory = state
    if x.shape[0] == 1:
        hidden, memory = torch.lstm_cell(x[0], (hidden, memory), weight_ih, weight_hh, bias_ih, bias_hh)
        return hidden[None], (hidden, memory)
    weights, biased = _listed(weight_ih, weight_hh, bias_ih, bias_hh)
    both = (hidden[None], memory[None])
    y, hidden, memory = torch.lstm(x, both, weights, biased, 1, 0.0, torch.is_grad_enabled(), False, False)
    return y, (hidden[0], memory[0])


def _listed(weight_ih, weight_hh, bias_ih, bias_hh):
    """The weights of a layer that has all of its biases or none, and whether it has them."""
    return ([weight_ih, weight_hh], False) if bias_ih is None else ([weight_ih, weight_hh, bias_ih, bias_hh], True)


def _in_rows(function, x, state, *weights):
    """PyTorch's layers know one axis of rows; here it may be several, or none."""
    rows = x.shape[1:-1]
    flat = jtu.tree_map(lambda s: s.reshape(math.prod(rows), s.shape[-1]), state)
    y, state = function(x.reshape(len(x), math.prod(rows), x.shape[-1]), flat, *weights)
    return y.reshape(len(x), *rows, y.shape[-1]), jtu.tree_map(lambda s: s.reshape(*rows, s.shape[-1]), state)


def conv2d(x, weight, bias, stride, padding, dilation, groups, channels_last):
    # A view, not a copy: to PyTorch these are images whose channels lie last in memory.
    x = x.permute(0, 3, 1, 2) if channels_last else x
    border = same_padding(x.shape[2:], weight.shape[2:], stride, dilation) if padding is None else padding
    x, even = _bordered(x, border, 0.0)
    y = F.conv2d(x, weight, bias, stride, even, dilation, groups)
    return y.permute(0, 2, 3, 1) if channels_last else y


def max_pool(x, window, stride):
    border = same_padding(x.shape[1:3], (window, window), stride)
    x, even = _bordered(x.permute(0, 3, 1, 2), border, -math.inf)
    return F.max_pool2d(x, window, stride, even).permute(0, 2, 3, 1)


def _bordered(x, border, value):
    """The images, and the border that PyTorch can add itself; one that is uneven is added here."""
    (top, bottom), (left, right) = border
    if top == bottom and left == right:
        return x, (top, left)
    return F.pad(x, (left, right, top, bottom), value=value), 0


def khot_rows(indices, table):
    y = F.embedding_bag(indices.reshape(-1, indices.shape[-1]), table, mode="sum")
    return y.reshape(*indices.shape[:-1], table.shape[1])


def known(function, arguments, value):
    return function(*arguments)


def khot_linear(indices, weight, bias):
    if torch.is_grad_enabled() and weight.requires_grad:
        # A product with the one-hot rows: its gradient is a product too, where a gather's is a scatter.
        rows = torch.zeros(*indices.shape[:-1], weight.shape[1], dtype=weight.dtype, device=weight.device)
        return F.linear(rows.scatter_(-1, indices.long(), 1.0), weight, bias)
    y = khot_rows(indices, weight.t())
    return y if bias is None else y + bias


scan = partial(_eager.scan, torch.stack)
map_rows = partial(_eager.map_rows, torch.cat)


def host_call(function, results, arrays, ordered):
    found = function(*(x.detach().cpu().numpy() for x in arrays))
    return jtu.tree_map(lambda x, like: torch.from_numpy(np.asarray(x)).to(like), found, results)


used, switch_size, cond = _eager.used, _eager.switch_size, _eager.cond
members = partial(_eager.members, torch.stack, torch.unbind)
member_losses = partial(_eager.member_losses, torch.stack, torch.unbind)


@torch.no_grad()
def while_loop(condition, body, carry):
    return _eager.while_loop(condition, body, carry)
