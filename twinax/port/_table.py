"""The table of operators: what each of PyTorch's core operators is in JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Operator:
    """One operator in JAX."""

    name: str
    """PyTorch's name, such as aten.add.Tensor."""
    function: Callable[..., Any]
    """On JAX arrays and Python's numbers, with the operator's own arguments in order; a dtype comes as JAX's."""
    promote: bool
    """Whether its arrays come in the dtype that PyTorch would compute in."""
    kind: str
    """The file that it stands in."""


OPERATORS: dict[str, Operator] = {}
"""By name; filled by the files in `operators`."""
LEFT_OUT: dict[str, str] = {}
"""Core operators that a compiled function cannot have, each with the reason, a clause after "because"."""


def operator(*names: str, promote: bool = False) -> Callable[[F], F]:
    """Enter a function into the table, under one name or several.

    >>> @operator("mine.double.default", promote=True)
    ... def double(x):
    ...     return x + x
    >>> OPERATORS.pop("mine.double.default").function(2)
    4
    """

    def enter(function: F) -> F:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"{name} stands in the table twice")
            OPERATORS[name] = Operator(name, function, promote, function.__module__.rpartition(".")[2])
        return function

    return enter


def operator_table() -> list[tuple[str, str, str]]:
    """Every core operator of this PyTorch: its name, its kind, and "yes" or the reason why it is left out."""
    import torch

    import twinax.port.operators  # noqa: F401  (fills the table)

    rows = []
    for packet, overload in sorted({tuple(name.split(".")) for name in _all_names()}):
        if torch.Tag.core not in getattr(getattr(torch.ops.aten, packet), overload).tags:
            continue
        name = f"aten.{packet}.{overload}"
        found = OPERATORS.get(name)
        because = f"no, because {LEFT_OUT[name]}" if name in LEFT_OUT else "not yet"
        rows.append((name, found.kind if found else "", "yes" if found else because))
    return rows


def _all_names() -> Iterator[str]:
    """Every operator of ATen that Python can call, as packet.overload; `dir` knows only those that were used."""
    import torch

    for schema in torch._C._jit_get_all_schemas():
        packet = schema.name.removeprefix("aten::")
        overload = schema.overload_name or "default"
        if schema.name.startswith("aten::") and hasattr(getattr(torch.ops.aten, packet, None), overload):
            yield f"{packet}.{overload}"


def leave_out(because: str, *names: str) -> None:
    """Say why operators are not in the table."""
    LEFT_OUT.update(dict.fromkeys(names, because))
