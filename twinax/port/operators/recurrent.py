"""Recurrent layers, by a scan over time: the program does not grow with the length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from twinax import ops
from twinax.errors import TwinaxError
from twinax.port._table import leave_out, operator

leave_out(
    "a packed sequence has its lengths as numbers inside a tensor",
    *(f"aten.{name}.data" for name in ("gru", "lstm", "rnn_tanh", "rnn_relu")),
    "aten._pack_padded_sequence.default",
    "aten._pad_packed_sequence.default",
)


@operator("aten.gru.input")
def gru(x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return stacked(ops.gru, x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first)


@operator("aten.rnn_tanh.input")
def rnn_tanh(x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return stacked(plain(jnp.tanh), x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first)


@operator("aten.rnn_relu.input")
def rnn_relu(x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    return stacked(
        plain(jax.nn.relu), x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first
    )


@operator("aten.lstm.input")
def lstm(x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    both = list(zip(*states, strict=True))  # (hidden, memory) of each layer and direction
    y, ends = stacked(lstm_layer, x, both, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
    return y, *ends


def stacked(layer, x, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first):
    """Layers one on the other, each perhaps in both directions; states are given by layer, then by direction."""
    if dropout and train and layers > 1:
        raise TwinaxError(
            f"a recurrent layer with dropout {dropout} between {layers} layers cannot be ported in training, because "
            "PyTorch draws it inside; call module.eval(), or put torch.nn.Dropout between layers of their own"
        )
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    x = x.swapaxes(0, 1) if batch_first else x
    ends = []
    for level in range(layers):
        outputs = []
        for direction in range(directions):
            k = level * directions + direction
            own = list(weights[k * each : (k + 1) * each])
            if not has_biases:
                own[2:2] = [None, None]
            y, end = layer(jnp.flip(x, 0) if direction else x, states[k], *own)
            outputs.append(jnp.flip(y, 0) if direction else y)
            ends.append(end)
        x = jnp.concatenate(outputs, -1) if bidirectional else outputs[0]
    last = jax.tree.map(lambda *one: jnp.stack(one), *ends)
    return (x.swapaxes(0, 1) if batch_first else x), last


def plain(activation):
    """A layer without gates."""

    def layer(x, state, weight_ih, weight_hh, bias_ih, bias_hh):
        def step(state, own):
            state = activation(own + ops.linear(state, weight_hh, bias_hh))
            return state, state

        state, outputs = lax.scan(step, state, ops.linear(x, weight_ih, bias_ih))
        return outputs, state

    return layer


def lstm_layer(x, state, weight_ih, weight_hh, bias_ih, bias_hh, projection=None):
    if projection is None:
        return ops.lstm(x, state, weight_ih, weight_hh, bias_ih, bias_hh)

    # The hidden state is a product of the unprojected one of the same step, so each step is a layer of length one.
    def step(state, own):
        (unprojected,), (_, memory) = ops.lstm(own[None], state, weight_ih, weight_hh, bias_ih, bias_hh)
        hidden = unprojected @ projection.T
        return (hidden, memory), hidden

    state, outputs = lax.scan(step, state, x)
    return outputs, state
