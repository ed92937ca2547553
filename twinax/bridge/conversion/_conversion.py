"""What a conversion did: which array went where, what was lost, and how well both sides agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Moved:
    """An array and what it became."""

    source: str
    target: str
    shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    turned: str
    """How it was turned round."""


@dataclass(frozen=True)
class ForwardCheck:
    """Both modules on the same inputs, in inference: the largest difference of outputs, by their size or by 1."""

    float64: float
    float32: float
    shapes: tuple[tuple[int, ...], ...]
    """Of the outputs, in PyTorch's layout."""

    def __str__(self) -> str:
        shapes = ", ".join(str(shape) for shape in self.shapes)
        return f"outputs {shapes}: differ by {self.float64:.1e} in float64, by {self.float32:.1e} in float32"


@dataclass(frozen=True)
class Conversion:
    """A converted module and the report on it; `str` gives the report."""

    result: Any
    """As `into`: a module, (module, variables) of linen, or (module, state) of Equinox where there are statistics."""
    source: str
    target: str
    """The libraries."""
    moved: tuple[Moved, ...]
    differs: tuple[str, ...]
    """Settings that the layers of the two modules have differently."""
    notes: tuple[str, ...]
    """What to know about the result."""
    lost: tuple[str, ...]
    """What was lost, where that was asked for."""
    check: ForwardCheck | None
    """None if it was not wanted."""

    def __str__(self) -> str:
        rows = [(m.source, str(m.shape), m.target, str(m.target_shape), m.turned) for m in self.moved]
        rows = [(self.source, "shape", self.target, "shape", "layout"), *rows]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        for label in ("differs", "notes", "lost"):
            lines += [f"{label}: {text}" for text in getattr(self, label)]
        return "\n".join([*lines, f"check: {self.check or 'not wanted'}"])
