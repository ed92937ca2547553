"""Sections made from the library's own option dataclasses, so that a field and its sentence stand once."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from typing import Any


def mirror(
    options: type,
    leave_out: Iterable[str] = (),
    base: type = object,
    only: Iterable[str] | None = None,
    **extra: Any,
) -> type:
    """A section with the fields and defaults of a frozen options dataclass; tuples become lists.

    All of its fields but those to `leave_out`, or `only` some. `base` is a section whose fields come first; `extra`
    adds fields by their default, such as the `name` of a choice.

    >>> from twinax.envs import Uniform
    >>> mirror(Uniform, name="uniform")()
    UniformSection(name='uniform', value=1.0)
    """
    hints = typing.get_type_hints(options)
    fields: list[Any] = [(name, type(value), dataclasses.field(default=value)) for name, value in extra.items()]
    for field in dataclasses.fields(options):
        if field.name in {*leave_out, *extra} or not field.init or (only is not None and field.name not in only):
            continue
        kind, default = hints[field.name], field.default
        if typing.get_origin(kind) is tuple:
            kind = list[typing.get_args(kind)[0]]
        if isinstance(default, tuple):
            fields.append((field.name, kind, dataclasses.field(default_factory=lambda values=default: list(values))))
        else:
            fields.append((field.name, kind, field))
    section = dataclasses.make_dataclass(f"{options.__name__}Section", fields, bases=(base,))
    section.options = options
    section.__doc__ = options.__doc__
    return section


def section_of(section: type, options: Any) -> Any:
    """A mirrored section with the values of some options, so that defaults of a family stand once.

    >>> from twinax.envs import Uniform
    >>> section_of(mirror(Uniform), Uniform(2.0))
    UniformSection(value=2.0)
    """
    return section(**{field.name: getattr(options, field.name) for field in dataclasses.fields(section)})


def restore(section: Any, **changes: Any) -> Any:
    """The options that a mirrored section stands for, checked by their own class."""
    options = type(section).options
    names = {field.name for field in dataclasses.fields(options) if field.init}
    values = {name: getattr(section, name) for name in names if hasattr(section, name)}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return options(**(values | changes))
