"""Recurrent networks over a time axis, and their cells for one time at a time; PyTorch's names and order of gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import equinox as eqx
import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks._layers import _in_precision_of
from twinax.types import Array, Float


class _Cell(eqx.Module):
    weight_ih: Array
    weight_hh: Array
    bias_ih: Array | None
    bias_hh: Array | None

    GATES: ClassVar[int]

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, hidden: int, bias: bool = True):
        """PyTorch's default: every number uniform on +-1/sqrt(hidden)."""
        if inputs < 1 or hidden < 1:
            raise TwinaxError(f"a {cls.__name__} has {inputs} inputs and a state of {hidden}; both must be at least 1")
        bound, rows = 1 / np.sqrt(hidden), cls.GATES * hidden
        shapes = [(rows, inputs), (rows, hidden), *([(rows,), (rows,)] if bias else [])]
        numbers = [rng.uniform(-bound, bound, shape).astype(np.float32) for shape in shapes]
        return cls(*numbers, *([] if bias else [None, None]))

    @property
    def hidden(self) -> int:
        """The width of the state."""
        return self.weight_hh.shape[-1]


class GRUCell(_Cell):
    """One time of a GRU: the next state from an input and a state.

    >>> cell = GRUCell.init(np.random.default_rng(0), inputs=3, hidden=4)
    >>> cell(np.zeros((5, 3), np.float32), cell.zero_state(5)).shape
    (5, 4)
    """

    GATES: ClassVar[int] = 3

    def __call__(self, x: Any, state: Any) -> Float[Array, "*rows hidden"]:
        return _run(ops.gru, self, x[None], state)[1]

    def zero_state(self, *rows: int) -> Array:
        """The state to begin with."""
        return ops.zeros((*rows, self.hidden), self.weight_hh)


class LSTMCell(_Cell):
    """One time of an LSTM: the next (hidden, cell) from an input and such a pair.

    >>> cell = LSTMCell.init(np.random.default_rng(0), inputs=3, hidden=4)
    >>> hidden, memory = cell(np.zeros((5, 3), np.float32), cell.zero_state(5))
    >>> hidden.shape, memory.shape
    ((5, 4), (5, 4))
    """

    GATES: ClassVar[int] = 4

    def __call__(self, x: Any, state: Any) -> tuple[Array, Array]:
        return _run(ops.lstm, self, x[None], state)[1]

    def zero_state(self, *rows: int) -> tuple[Array, Array]:
        """The pair to begin with."""
        return _twice(ops.zeros((*rows, self.hidden), self.weight_hh))


def _run(layer: Callable, cell: _Cell, x: Any, state: Any) -> tuple[Array, Any]:
    weight = cell.weight_ih
    return layer(_in_precision_of(weight, x), state, weight, cell.weight_hh, cell.bias_ih, cell.bias_hh)


C = TypeVar("C", GRUCell, LSTMCell)


class _Recurrent(Generic[C]):
    """Cells one above the other. A tree whose leaves have PyTorch's names, `weight_ih_l0`, which fields cannot give:
    there are as many as there are layers."""

    CELL: ClassVar[type]
    LAYER: ClassVar[Callable]
    """The operation that runs a layer over time."""
    BEGIN: ClassVar[Callable]
    """From zeros to a state."""
    cells: tuple[C, ...]

    def __init__(self, cells: tuple[C, ...]):
        self.cells = cells

    def __init_subclass__(cls) -> None:
        def flatten_with_keys(net):
            leaves, structure = jtu.tree_flatten_with_path(net.cells)
            return [(jtu.GetAttrKey(f"{name.name}_l{layer.idx}"), leaf) for (layer, name), leaf in leaves], structure

        def unflatten(structure, leaves):
            return cls(jtu.tree_unflatten(structure, leaves))

        jtu.register_pytree_with_keys(cls, flatten_with_keys, unflatten, lambda net: jtu.tree_flatten(net.cells))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cells={self.cells})"

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, hidden: int, layers: int = 1, bias: bool = True):
        """PyTorch's default: every number uniform on +-1/sqrt(hidden); each layer reads the states of the one below."""
        if layers < 1:
            raise TwinaxError(f"a {cls.__name__} has {layers} layers; it needs at least 1")
        return cls(tuple(cls.CELL.init(rng, hidden if i else inputs, hidden, bias) for i in range(layers)))

    @property
    def hidden(self) -> int:
        """The width of a layer's state."""
        return self.cells[0].hidden

    def zero_state(self, *rows: int) -> Any:
        """The state to begin with, of all layers: (layers, *rows, hidden)."""
        return self.BEGIN(ops.zeros((len(self.cells), *rows, self.hidden), self.cells[0].weight_hh))

    def step(self, x: Any, state: Any = None) -> tuple[Array, Any]:
        """One time, for acting: the last layer's output and the next state; without a state it begins with zeros."""
        y, state = self(x[None], state)
        return y[0], state

    def __call__(self, x: Any, state: Any = None) -> tuple[Float[Array, "time *rows hidden"], Any]:
        """The last layer's outputs for (time, *rows, inputs), and the state after the last time."""
        states = self._states(state, x.shape[1:-1])
        for i, cell in enumerate(self.cells):
            x, states[i] = _run(self.LAYER, cell, x, states[i])
        return x, _stacked(states)

    def _states(self, state: Any, rows: tuple[int, ...]) -> list[Any]:
        """The state of each layer."""
        if state is None:
            return [self.BEGIN(ops.zeros((*rows, self.hidden), self.cells[0].weight_hh))] * len(self.cells)
        wanted = (len(self.cells), *rows, self.hidden)
        state = jtu.tree_map(lambda s: _in_precision_of(self.cells[0].weight_hh, s), state)
        for leaf in jtu.tree_leaves(state):
            if tuple(leaf.shape) != wanted:
                raise TwinaxError(
                    f"a state of the {type(self).__name__} has shape {tuple(leaf.shape)}, but {wanted} is (layers, "
                    "rows, hidden); begin with zero_state(rows)"
                )
        return [jtu.tree_map(lambda s, i=i: s[i], state) for i in range(len(self.cells))]


def _stacked(states: list[Any]) -> Any:
    if isinstance(states[0], tuple):
        return tuple(map(_stacked, map(list, zip(*states, strict=True))))
    return states[0][None] if len(states) == 1 else ops.stack(states)


def _alone(zeros: Any) -> Any:
    return zeros


def _twice(zeros: Any) -> tuple[Any, Any]:
    return zeros, zeros


class GRU(_Recurrent[GRUCell]):
    """Gated recurrent units over time, the first axis, as `torch.nn.GRU`; the state is (layers, rows, hidden).

    >>> net = GRU.init(np.random.default_rng(0), inputs=3, hidden=4, layers=2)
    >>> outputs, state = net(np.zeros((7, 5, 3), np.float32))
    >>> outputs.shape, state.shape
    ((7, 5, 4), (2, 5, 4))
    >>> output, state = net.step(np.zeros((5, 3), np.float32), state)
    >>> output.shape
    (5, 4)
    """

    CELL = GRUCell
    LAYER = staticmethod(ops.gru)
    BEGIN = staticmethod(_alone)


class LSTM(_Recurrent[LSTMCell]):
    """Long short-term memory over time, the first axis, as `torch.nn.LSTM`; the state is a pair (hidden, cell).

    >>> net = LSTM.init(np.random.default_rng(0), inputs=3, hidden=4)
    >>> outputs, (hidden, memory) = net(np.zeros((7, 5, 3), np.float32))
    >>> outputs.shape, hidden.shape, memory.shape
    ((7, 5, 4), (1, 5, 4), (1, 5, 4))
    """

    CELL = LSTMCell
    LAYER = staticmethod(ops.lstm)
    BEGIN = staticmethod(_twice)
