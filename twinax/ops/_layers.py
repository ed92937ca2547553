"""Layers where a framework has none of its own; recurrent ones are a loop over time, whose program does not grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from twinax import ops


def group_norm(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    flat = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    y = ops.layer_norm(flat, None, None, eps).reshape(x.shape)
    weight, bias = (p if p is None else p.reshape(-1, *[1] * (x.ndim - 2)) for p in (weight, bias))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def pair_sums(x: Any, weight: Any) -> Any:
    return ops.relu(x[..., :, None, :] + x[..., None, :, :]) @ weight


def attention(query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
    if causal:
        before = ops.arange(query.shape[-2], query)[:, None] >= ops.arange(key.shape[-2], query)
        mask = before if mask is None else mask & before
    fits = (query / math.sqrt(query.shape[-1])) @ ops.swap_last(key)
    fits = fits if mask is None else ops.where(mask, fits, ops.MASKED)
    weights = ops.exp(fits - ops.stop_gradient(ops.max(fits, -1))[..., None])
    # Divided by their sum afterwards: that is far fewer numbers than there are weights.
    y = (weights @ value) / ops.sum(weights, -1)[..., None]
    return y if mask is None else ops.where(ops.any(mask, -1)[..., None], y, 0)


def gru(x: Any, state: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any) -> tuple[Any, Any]:
    size = weight_hh.shape[-1]

    def step(state, gates):
        # The rows are those of reset, update and new.
        own = ops.linear(state, weight_hh, bias_hh)
        both = ops.sigmoid(gates[..., : 2 * size] + own[..., : 2 * size])
        new = ops.tanh(gates[..., 2 * size :] + both[..., :size] * own[..., 2 * size :])
        state = new + both[..., size:] * (state - new)
        return state, state

    return _over_time(step, state, ops.linear(x, weight_ih, bias_ih))


def lstm(x: Any, state: Any, weight_ih: Any, weight_hh: Any, bias_ih: Any, bias_hh: Any) -> tuple[Any, Any]:
    size = weight_hh.shape[0] // 4  # it has fewer columns where the hidden state is a projection

    def step(state, gates):
        # The rows are those of input, forget, new and output.
        gates = gates + ops.linear(state[0], weight_hh, bias_hh)
        both = ops.sigmoid(gates[..., : 2 * size])
        memory = both[..., size:] * state[1] + both[..., :size] * ops.tanh(gates[..., 2 * size : 3 * size])
        hidden = ops.sigmoid(gates[..., 3 * size :]) * ops.tanh(memory)
        return (hidden, memory), hidden

    return _over_time(step, state, ops.linear(x, weight_ih, bias_ih))


def _over_time(step: Callable, state: Any, gates: Any) -> tuple[Any, Any]:
    if gates.shape[0] == 1:  # acting: no loop
        state, output = step(state, gates[0])
        return output[None], state
    state, outputs = ops.scan(step, state, gates)
    return outputs, state
