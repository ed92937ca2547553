"""How the arrays of each kind of layer are called and lie in each library: one table.

PyTorch's names and layouts are the common form, which the networks of this project have too. A library's layer is
written from it part by part: rows of one of our arrays, turned round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from twinax.bridge.conversion._turns import (
    BY_HEADS,
    COLUMN,
    FROM_HEADS,
    HEAD_BIAS,
    SAME,
    SWAPPED,
    UPWARD,
    UPWARD_FIRST,
    Settings,
    Turn,
    channels_last,
)

Arrays = dict[str, np.ndarray]


class Part(NamedTuple):
    """An array of a library's layer."""

    theirs: str
    ours: str
    turn: Turn
    block: int = 0
    blocks: int = 1
    """Which of so many equal blocks of rows of our array this is: a gate, or one of query, key and value."""


@dataclass(frozen=True)
class Layout:
    """A kind of layer in a library."""

    classes: tuple[str, ...]
    parts: tuple[Part, ...]
    joins: Mapping[str, tuple[str, int, int]] | None = None
    """Our second bias, whose rows up to a block of so many the library keeps as a sum with the first one."""


GATES = {"gru_cell": ("r", "z", "n"), "lstm_cell": ("i", "f", "g", "o")}
"""In PyTorch's order."""


def _gates(kind: str, side: str, array: str, ours: str, turn: Turn, only: str = "") -> tuple[Part, ...]:
    """The arrays of gates that are kept apart, as Flax's `ir`, `iz`, `in`."""
    gates = GATES[kind]
    return tuple(
        Part(f"{side}{gate}/{array}", ours, turn, i, len(gates))
        for i, gate in enumerate(gates)
        if gate in (only or gates)
    )


def _projections(names: Sequence[str], array: str, ours: str, turn: Turn) -> tuple[Part, ...]:
    return tuple(Part(f"{name}/{array}", ours, turn, i, 3) for i, name in enumerate(names))


def _scaled(weight: str, bias: str = "bias", *more: Part) -> tuple[Part, ...]:
    return (Part(weight, "weight", SAME), Part(bias, "bias", SAME), *more)


STATISTICS = (Part("mean", "running_mean", SAME), Part("var", "running_var", SAME))
OWN_STATISTICS = tuple(Part(name, name, SAME) for name in ("running_mean", "running_var"))
BIAS = Part("bias", "bias", SAME)
CELL = tuple(Part(name, name, SAME) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
PACKED_ATTENTION = tuple(
    Part(name.replace(".", "/"), name, SAME)
    for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
)
QKV = ("query", "key", "value")
ONE_BIAS = {"bias_hh": ("bias_ih", 4, 4)}
"""Only the sum of an LSTM's biases counts."""
TWO_SUMS = {"bias_hh": ("bias_ih", 2, 3)}
"""The reset gate of a GRU stands between its third biases, so these stay apart."""

ATTENTION = (
    *_projections(QKV, "kernel", "in_proj_weight", BY_HEADS),
    *_projections(QKV, "bias", "in_proj_bias", HEAD_BIAS),
    Part("out/kernel", "out_proj.weight", FROM_HEADS),
    Part("out/bias", "out_proj.bias", SAME),
)


def _kernel(turn: Turn) -> tuple[Part, ...]:
    return (Part("kernel", "weight", turn), BIAS)


def _fused(bias: str) -> tuple[Part, ...]:
    """The cells of nnx with the gates side by side."""
    weights = (Part("dense_i/kernel", "weight_ih", SWAPPED), Part("dense_h/kernel", "weight_hh", SWAPPED))
    return (*weights, Part(bias, "bias_ih", SAME))


def _flax() -> dict[str, Layout]:
    """What linen and nnx have in common."""
    return {
        "linear": Layout(("Dense", "Linear"), _kernel(SWAPPED)),
        "conv1d": Layout(("Conv",), _kernel(channels_last(1))),
        "conv2d": Layout(("Conv",), _kernel(channels_last(2))),
        "conv_transpose1d": Layout(("ConvTranspose",), _kernel(UPWARD)),
        "conv_transpose2d": Layout(("ConvTranspose",), _kernel(UPWARD)),
        "layer_norm": Layout(("LayerNorm",), _scaled("scale")),
        "group_norm": Layout(("GroupNorm",), _scaled("scale")),
        "batch_norm": Layout(("BatchNorm",), _scaled("scale", "bias", *STATISTICS)),
        "rms_norm": Layout(("RMSNorm",), (Part("scale", "weight", SAME),)),
        "embedding": Layout(("Embed",), (Part("embedding", "weight", SAME),)),
        "attention": Layout(("MultiHeadDotProductAttention", "MultiHeadAttention"), ATTENTION),
    }


def _linen() -> dict[str, Layout]:
    gru = (
        *_gates("gru_cell", "i", "kernel", "weight_ih", SWAPPED),
        *_gates("gru_cell", "h", "kernel", "weight_hh", SWAPPED),
        *_gates("gru_cell", "i", "bias", "bias_ih", SAME),
        *_gates("gru_cell", "h", "bias", "bias_hh", SAME, only="n"),
    )
    lstm = (
        *_gates("lstm_cell", "i", "kernel", "weight_ih", SWAPPED),
        *_gates("lstm_cell", "h", "kernel", "weight_hh", SWAPPED),
        *_gates("lstm_cell", "h", "bias", "bias_ih", SAME),
    )
    return {
        **_flax(),
        "gru_cell": Layout(("GRUCell",), gru, TWO_SUMS),
        "lstm_cell": Layout(("LSTMCell", "OptimizedLSTMCell"), lstm, ONE_BIAS),
    }


def _nnx() -> dict[str, Layout]:
    apart = tuple(part._replace(theirs=part.theirs.replace("if/", "if_/")) for part in _linen()["lstm_cell"].parts)
    return {
        **_flax(),
        "gru_cell": Layout(("GRUCell",), _fused("dense_i/bias"), TWO_SUMS),
        "lstm_cell": Layout(("OptimizedLSTMCell",), _fused("dense_h/bias"), ONE_BIAS),
        "lstm_cell apart": Layout(("LSTMCell",), apart, ONE_BIAS),
    }


def _equinox() -> dict[str, Layout]:
    weights = CELL[:2]
    projections = tuple(f"{name}_proj" for name in QKV)
    attention = (
        *_projections(projections, "weight", "in_proj_weight", SAME),
        *_projections(projections, "bias", "in_proj_bias", SAME),
        Part("output_proj/weight", "out_proj.weight", SAME),
        Part("output_proj/bias", "out_proj.bias", SAME),
    )
    conv = (Part("weight", "weight", SAME), Part("bias", "bias", COLUMN))
    upward = (Part("weight", "weight", UPWARD_FIRST), Part("bias", "bias", COLUMN))
    return {
        "linear": Layout(("Linear",), _scaled("weight")),
        "conv1d": Layout(("Conv1d",), conv),
        "conv2d": Layout(("Conv2d",), conv),
        "conv_transpose1d": Layout(("ConvTranspose1d",), upward),
        "conv_transpose2d": Layout(("ConvTranspose2d",), upward),
        "layer_norm": Layout(("LayerNorm",), _scaled("weight")),
        "group_norm": Layout(("GroupNorm",), _scaled("weight")),
        "batch_norm": Layout(("BatchNorm",), _scaled("weight", "bias", *OWN_STATISTICS)),
        "rms_norm": Layout(("RMSNorm",), _scaled("weight")),
        "embedding": Layout(("Embedding",), (Part("weight", "weight", SAME),)),
        "gru_cell": Layout(
            ("GRUCell",), (*weights, Part("bias", "bias_ih", SAME), Part("bias_n", "bias_hh", SAME, 2, 3)), TWO_SUMS
        ),
        "lstm_cell": Layout(("LSTMCell",), (*weights, Part("bias", "bias_ih", SAME)), ONE_BIAS),
        "attention": Layout(("MultiheadAttention",), attention),
    }


def _torch() -> dict[str, Layout]:
    plain = _scaled("weight")
    windows = {f"conv{up}{n}d": Layout((f"Conv{name}{n}d",), plain) for n in (1, 2) for up, name in WINDOWS}
    return {
        "linear": Layout(("Linear",), plain),
        **windows,
        "layer_norm": Layout(("LayerNorm",), plain),
        "group_norm": Layout(("GroupNorm",), plain),
        "batch_norm": Layout(("BatchNorm1d", "BatchNorm2d"), (*plain, *OWN_STATISTICS)),
        "rms_norm": Layout(("RMSNorm",), (Part("weight", "weight", SAME),)),
        "embedding": Layout(("Embedding",), (Part("weight", "weight", SAME),)),
        "gru_cell": Layout(("GRUCell",), CELL),
        "lstm_cell": Layout(("LSTMCell",), CELL),
        "attention": Layout(("MultiheadAttention",), PACKED_ATTENTION),
    }


WINDOWS = (("", ""), ("_transpose", "Transpose"))
LAYOUTS: dict[str, dict[str, Layout]] = {
    "torch": _torch(),
    "flax": _linen(),
    "nnx": _nnx(),
    "equinox": _equinox(),
}
"""By library and kind of layer. The networks of this project have PyTorch's."""
ARRAY = Layout((), (Part("", "", SAME),))
"""A parameter that stands alone, such as log_std."""
NEUTRAL = {"bias": 0.0, "weight": 1.0, "in_proj_bias": 0.0, "out_proj.bias": 0.0, "bias_ih": 0.0, "bias_hh": 0.0}
"""Where one side has no such array: the number that changes nothing. A weight is that only in a norm."""


def out(arrays: Arrays, layout: Layout, settings: Settings) -> Arrays:
    """The arrays of a library's layer from ours."""
    joined = summed(arrays, layout)
    made = {}
    for part in layout.parts:
        if (array := joined.get(part.ours)) is not None:
            rows = len(array) // part.blocks if array.ndim else 0
            piece = array[part.block * rows : (part.block + 1) * rows] if part.blocks > 1 else array
            made[part.theirs] = np.array(part.turn.out(piece, settings), order="C")
    return made


def back(theirs: Arrays, layout: Layout, settings: Settings) -> Arrays:
    """Our arrays from those of a library's layer; a block that it has no place for is zero."""
    made: Arrays = {}
    for ours in dict.fromkeys(part.ours for part in layout.parts):
        parts = [part for part in layout.parts if part.ours == ours]
        pieces = {part.block: part.turn.back(theirs[part.theirs], settings) for part in parts if part.theirs in theirs}
        if not pieces:
            continue
        first = next(iter(pieces.values()))
        whole = [pieces.get(i, np.zeros_like(first)) for i in range(parts[0].blocks)]
        made[ours] = np.concatenate(whole) if len(whole) > 1 else first
    for name, (other, _, _) in (layout.joins or {}).items():
        if other in made:
            made.setdefault(name, np.zeros_like(made[other]))
    return made


def summed(arrays: Arrays, layout: Layout) -> Arrays:
    """Our arrays with the sums that the library keeps in the first bias, and zeros in the second."""
    made = dict(arrays)
    for name, (other, blocks, of) in (layout.joins or {}).items():
        if name in made and other in made:
            rows = len(made[name]) // of * blocks
            first, second = made[other].copy(), made[name].copy()
            first[:rows] += second[:rows]
            second[:rows] = 0
            made[other], made[name] = first, second
    return made
