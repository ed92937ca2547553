"""Sections made from the library's own option dataclasses, so that a field and its sentence stand once."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

from twinax.errors import TwinaxError
from twinax.registry import Registry, import_code

CHOSEN = "???"
"""Default of what must come from elsewhere, a group or a person: OmegaConf's mark for it."""


SETTINGS = "numbers, text, true or false, paths, and lists, tuples and dictionaries of these, each of them also None"
"""What a field may be that a person sets."""


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
            inner = {one for one in typing.get_args(kind) if one is not Ellipsis}
            kind = list[inner.pop() if len(inner) == 1 else Any]
        if default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            fields.append((field.name, kind, dataclasses.field(default=CHOSEN)))
        elif isinstance(default, tuple):
            fields.append((field.name, kind, dataclasses.field(default_factory=lambda values=default: list(values))))
        else:
            fields.append((field.name, kind, field))
    section = dataclasses.make_dataclass(f"{options.__name__}Section", fields, bases=(base,))
    section.options, section.added = options, frozenset({"name"} & set(extra))
    section.__doc__ = options.__doc__
    return section


def open_section(kind: str, leave_out: Iterable[str] = (), base: type = object) -> Callable[[str], Any]:
    """From `package.module:Name` to a section with the options of what it names: the `open` of a group.

    Options are the fields of a dataclass, or the arguments of any other callable; those without a default have to be
    given.

    >>> open_section("shape")("fractions:Fraction")
    FractionSection(name='fractions:Fraction', numerator=0, denominator=None)
    """

    def make(name: str) -> Any:
        target = import_code(name, kind)
        if not callable(target):
            raise TwinaxError(
                f"{kind} '{name}' is a {type(target).__name__}; name a class, or a function that makes one"
            )
        _refuse_fields(target, f"{kind} '{name}'", {*leave_out})
        if dataclasses.is_dataclass(target) and isinstance(target, type):
            return mirror(target, leave_out, base, name=name)()
        return _of_arguments(target, leave_out, base, name)()

    return make


def sections_of(registry: Registry[Any], leave_out: Iterable[str] = (), base: type = object) -> dict[str, Any]:
    """A section for each of a registry's own things, by name: the `choices` of a group."""
    return {name: mirror(kind, leave_out, base, name=name)() for name, kind in registry.items()}


def _refuse_fields(target: Any, who: str, leave_out: set[str]) -> None:
    """Raise a sentence if an option of somebody's own can be no setting."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        needed = inspect.signature(target).parameters.get("name")
    except (TypeError, ValueError):
        needed = None
    if needed is not None and needed.default is needed.empty and needed.kind is not needed.VAR_KEYWORD:
        raise TwinaxError(
            f"{who} needs a value called 'name', but the setting of that name says which one is chosen; give it a "
            "default, or another name"
        )
    if not (dataclasses.is_dataclass(target) and isinstance(target, type)):
        return
    try:
        hints = typing.get_type_hints(target)
    except NameError as error:
        raise TwinaxError(f"{who} has fields whose types cannot be read: {error}; import what they name") from error
    for field in dataclasses.fields(target):
        if not field.init or field.name in {*leave_out, "name"}:
            continue
        try:
            # Alone, so that it is known which field it is.
            OmegaConf.structured(mirror(target, only=[field.name]))
        except (OmegaConfBaseException, TypeError, ValueError) as error:
            raise TwinaxError(
                f"{who} has the field {field.name} of type {_type_name(hints[field.name])}, which can be no setting: "
                f"settings are {SETTINGS}; give it such a type, or make it no field (an attribute, or "
                "field(init=False))"
            ) from error


def _type_name(kind: Any) -> str:
    name = kind.__qualname__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
    module = "" if name != getattr(kind, "__qualname__", None) else kind.__module__
    return name if module in ("", "builtins") else f"{module}.{name}"


def _of_arguments(target: Any, leave_out: Iterable[str], base: type, name: str) -> type:
    """A section with the arguments of a callable."""
    try:
        arguments = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        arguments = ()
    fields: list[Any] = [("name", str, dataclasses.field(default=name))]
    for argument in arguments:
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if argument.name in (*leave_out, "name") or argument.name.startswith("_"):
            continue
        default = CHOSEN if argument.default is argument.empty else argument.default
        if isinstance(default, list | dict | tuple):
            value = list(default) if isinstance(default, tuple) else default
            fields.append((argument.name, Any, dataclasses.field(default_factory=lambda value=value: value)))
        else:
            fields.append((argument.name, Any, dataclasses.field(default=default)))
    section = dataclasses.make_dataclass(f"{target.__name__}Section", fields, bases=(base,))
    section.options, section.added = staticmethod(target), frozenset(("name",))
    section.__doc__ = target.__doc__
    return section


def section_of(section: type, options: Any) -> Any:
    """A mirrored section with the values of some options, so that defaults of a family stand once.

    >>> from twinax.envs import Uniform
    >>> section_of(mirror(Uniform), Uniform(2.0))
    UniformSection(value=2.0)
    """
    return section(**{field.name: getattr(options, field.name) for field in dataclasses.fields(section)})


def make_options(section: Any, key: str = "", **changes: Any) -> Any:
    """The options that a mirrored section stands for, checked by their own class.

    With the section's `key`, a sentence that begins with the name of a field begins with the name of its setting.
    """
    options: Any = type(section).options
    if dataclasses.is_dataclass(options):
        names = {field.name for field in dataclasses.fields(options) if field.init}
    else:
        names = set(inspect.signature(options).parameters)
    # What was added to the section says which choice it is; an option of the same name keeps its default.
    names -= getattr(type(section), "added", frozenset())
    values = {name: getattr(section, name) for name in names if hasattr(section, name)}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return options(**(values | changes))  # type: ignore[operator]
    except TypeError as error:  # an abstract class, or somebody's own checks
        made = getattr(section, "name", getattr(options, "__name__", "this"))
        raise TwinaxError(f"{key or 'what is chosen'}={made} cannot be made: {error}") from error
    except TwinaxError as error:
        if key and str(error).partition(" ")[0] in values:
            raise TwinaxError(f"{key}.{error}") from error
        raise
