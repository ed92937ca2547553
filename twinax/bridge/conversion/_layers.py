"""Layers as they are found in a module of any library, with their arrays and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

from twinax.bridge.conversion import _layouts
from twinax.bridge.conversion._layouts import ARRAY, LAYOUTS, Arrays, Layout, Settings
from twinax.errors import TwinaxError

IMAGES = {"conv1d": 1, "conv2d": 2, "conv_transpose1d": 1, "conv_transpose2d": 2}
"""Kinds whose inputs have channels and places: how many axes of places."""
NORMS = ("layer_norm", "group_norm", "batch_norm", "rms_norm")
CELLS = ("gru_cell", "lstm_cell")


@dataclass(frozen=True)
class Found:
    """A layer with arrays."""

    kind: str
    path: str
    title: str
    """The name of its class."""
    arrays: Arrays
    """As the library keeps them."""
    places: Mapping[str, str]
    """The whole name of each array in the module."""
    settings: Settings = dataclasses.field(default_factory=dict)
    layout: Layout = ARRAY
    remarks: tuple[str, ...] = ()
    """What is worth saying about it."""
    losses: tuple[str, ...] = ()
    """What the common form cannot say about it."""

    @property
    def ours(self) -> Arrays:
        """The arrays in PyTorch's form."""
        return _layouts.back(self.arrays, self.layout, self.settings)

    def __str__(self) -> str:
        return f"'{self.path}' ({self.title})" if self.path else f"the {self.title}"


@dataclass(frozen=True)
class Plain:
    """A layer without arrays, such as an activation."""

    name: str
    value: float = 0.0
    """The rate of a dropout."""


Chain = tuple["Found | Plain", ...]


@dataclass(frozen=True)
class Opened:
    """What a module holds."""

    layers: tuple[Found, ...]
    chain: Chain | None = None
    """The layers one after the other, for a single layer or a sequence of known ones."""
    single: bool = False
    """Whether it is one layer, in no sequence."""
    why: str = ""
    """Why there is no chain."""
    unbatched: bool = False
    """Whether it takes one input at a time."""


class Library(Protocol):
    """What is needed of a library; `module` stands for what a person gives, such as (module, variables) in linen."""

    name: str
    title: str

    def owns(self, module: Any) -> bool:
        """Whether this is a module of the library."""
        ...

    def opened(self, module: Any, inputs: tuple | None, run: Any) -> Opened:
        """Its layers."""
        ...

    def filled(self, module: Any, values: Mapping[str, np.ndarray]) -> Any:
        """A copy with these arrays, by their whole names."""
        ...

    def built(self, chain: Chain, single: bool) -> Any:
        """A module of such layers, its arrays zero."""
        ...

    def outputs(self, module: Any, opened: Opened, inputs: tuple, run: Any, dtype: str) -> list[np.ndarray]:
        """What it computes in this precision, in inference."""
        ...


def found(
    library: str,
    kind: str,
    path: str,
    title: str,
    arrays: Arrays,
    places: Mapping[str, str],
    settings: Settings | None = None,
    **more: Any,
) -> Found:
    """A layer of a known kind; an array that the kind has no rule for is an error."""
    layout = LAYOUTS[library][kind]
    known = {part.theirs for part in layout.parts}
    if strange := sorted(set(arrays) - known):
        raise TwinaxError(
            f"'{path or title}' ({title}) has an array '{strange[0]}', for which there is no rule; known are "
            f"{', '.join(sorted(known))}"
        )
    return Found(kind.split()[0], path, title, arrays, places, settings or {}, layout, **more)


def alone(path: str, array: np.ndarray) -> Found:
    """A parameter in no known layer."""
    return Found("array", path, "array", {"": array}, {"": path})


def is_weight(array: np.ndarray) -> bool:
    """Whether an array holds real numbers; counters and masks are no weights."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def kind_of(library: str, title: str, axes: int) -> str | None:
    """The kind of a class by its name; where several share one, by the axes of its window."""
    kinds = [kind for kind, layout in LAYOUTS[library].items() if title in layout.classes]
    return next((kind for kind in kinds if IMAGES.get(kind, axes) == axes), None)


def dotted(*names: str) -> str:
    """The name of a part of a module."""
    return ".".join(name for name in names if name)


def pairs(value: Any, axes: int) -> tuple[tuple[int, int], ...]:
    """Sizes before and after each axis, from a number, a number for each axis, or pairs."""
    each = (value,) * axes if isinstance(value, int) else tuple(value)
    each = each * axes if len(each) == 1 else each
    return tuple((one, one) if isinstance(one, int) else tuple(one) for one in each)  # type: ignore[misc]


def each_axis(value: Any, axes: int) -> tuple[int, ...]:
    """One number for each axis, from one for all or a sequence; None is 1."""
    value = 1 if value is None else value
    each = (value,) * axes if isinstance(value, int) else tuple(int(n) for n in value)
    return each * axes if len(each) == 1 else each


def border(padding: Any, window: Iterable[int], stride: Iterable[int], dilation: Iterable[int]) -> Any:
    """Zeros before and after each axis; "SAME" stays a word where they depend on the size of the input."""
    window, stride, dilation = tuple(window), tuple(stride), tuple(dilation)
    if not isinstance(padding, str):
        return pairs(padding, len(window))
    if padding.upper() == "VALID":
        return ((0, 0),) * len(window)
    if padding.upper() != "SAME" or set(stride) != {1}:
        return padding.upper()
    spans = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
    return tuple((span // 2, span - span // 2) for span in spans)


def symmetric(layer: Found, key: str) -> tuple[int, ...]:
    """The zeros on either side of each axis, where they are equal."""
    padding = layer.settings[key]
    if isinstance(padding, str) or any(low != high for low, high in padding):
        raise TwinaxError(
            f"{layer} has the padding {padding}, and PyTorch puts equally many zeros on both sides; write the module, "
            "with the padding as a layer of its own, and give it as `into`"
        )
    return tuple(low for low, _ in padding)


def normalised(layer: Found, title: str) -> tuple[int, ...]:
    """The axes that a norm is taken over; without weights it need not know them."""
    shape = layer.settings["shape"]
    if None in shape:
        raise no_twin(layer, title, "it has no weights, which would show its width")
    return shape


def has(layer: Found, name: str) -> bool:
    """Whether a layer has this array, in PyTorch's names."""
    return name in layer.ours


def no_twin(layer: Any, title: str, why: str) -> TwinaxError:
    """A layer that cannot be built in a library."""
    return TwinaxError(f"{layer} cannot be built in {title}: {why}; write the module there and give it as `into`")
