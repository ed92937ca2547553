"""How a thing was made, as plain data: the function that was called, by `package.module:Name`, and its arguments.

A run that was started in Python keeps the recipe of its problem, and is built again from it. Only what has a name that
anybody can import can be written down: plain values, dataclasses of them, functions, and what functions that are
`remembered` gave. Nothing is pickled; reading a recipe imports what it names, and calls nothing but those functions and
dataclasses.

>>> from twinax.recipe import rebuild, recipe_of
>>> from twinax.envs import Uniform
>>> recipe_of(Uniform(2.0))
{'new': 'twinax.envs:Uniform', 'with': {'value': 2.0}}
>>> rebuild(recipe_of(Uniform(2.0)))
Uniform(value=2.0)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, ParamSpec, TypeVar

import numpy as np

from twinax.errors import TwinaxError
from twinax.registry import import_code, is_code

P = ParamSpec("P")
T = TypeVar("T")

_MADE, _REMEMBERS = "_made", "_remembers"
_OURS = "twinax"


class NoRecipe(TwinaxError):
    """Something that cannot be written down; its text says what, as a part of a sentence."""


def remembered(function: Callable[P, T]) -> Callable[P, T]:
    """A function whose results know how they were made, so that runs can build them again.

    >>> @remembered
    ... def problem(side: int): ...                                         # doctest: +SKIP
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        made = function(*args, **given)
        try:
            arguments = signature.bind(*args, **given).arguments
            for name, parameter in signature.parameters.items():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                    arguments |= arguments.pop(name, {})
            kept: Any = {"call": _name(call), "with": _each(arguments)}
        except NoRecipe as error:
            kept = error
        object.__setattr__(made, _MADE, kept)  # most of what is made is frozen
        return made

    setattr(call, _REMEMBERS, True)
    return call


def recipe_of(value: Any) -> Any:
    """A value as plain data; `NoRecipe` if it cannot be written down."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list):
        return [recipe_of(one) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [recipe_of(one) for one in value]}
    if isinstance(value, PurePath):
        return {"path": str(value)}
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise NoRecipe(f"has the key {odd[0]!r}, which is no text")
        return {"dict": _each(value)}
    kept = getattr(value, "__dict__", {}).get(_MADE)
    if isinstance(kept, NoRecipe):
        raise kept
    if kept is not None:
        return kept
    if isinstance(value, type) or inspect.isroutine(value):
        return {"code": _name(value)}
    if dataclasses.is_dataclass(value):
        fields = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value) if entry.init}
        return {"new": _name(type(value)), "with": _each(fields)}
    raise NoRecipe(f"is a {type(value).__name__}, which is no plain value and no dataclass of such")


def made_by(value: Any) -> dict[str, Any]:
    """The recipe of what a `remembered` function gave; `NoRecipe` if there is none."""
    kept = getattr(value, "__dict__", {}).get(_MADE)
    if isinstance(kept, NoRecipe):
        raise kept
    if kept is None:
        raise NoRecipe("it was not made by a function that remembers its arguments (twinax.recipe.remembered)")
    return kept


def is_known(value: Any) -> bool:
    """Whether there is a recipe of what a `remembered` function gave."""
    return isinstance(getattr(value, "__dict__", {}).get(_MADE), Mapping)


def named_modules(recipe: Any, key: str = "problem") -> dict[str, str]:
    """Modules of other packages that building a recipe would import, by the place that names them.

    Any text with a colon counts, as in a configuration: a world may import what its id names.

    >>> named_modules({"call": "mine.worlds:make", "with": {"id": "theirs:Maze-v0", "side": 3}})
    {'problem.call': 'mine.worlds', 'problem.with.id': 'theirs'}
    """
    modules: dict[str, str] = {}
    if isinstance(recipe, Mapping):
        for name, value in recipe.items():
            modules |= named_modules(value, f"{key}.{name}")
    elif isinstance(recipe, list):
        for value in recipe:
            modules |= named_modules(value, key)
    elif isinstance(recipe, str):
        module, colon, _ = recipe.partition(":")
        if colon and module and "/" not in module and not (is_code(recipe) and _is_ours(module)):
            modules[key] = module
    return modules


def rebuild(recipe: Any) -> Any:
    """What a recipe says; one sentence if it says nothing that can be made."""
    if isinstance(recipe, list):
        return [rebuild(one) for one in recipe]
    if not isinstance(recipe, Mapping):
        return recipe
    kind = next(iter(recipe), None)
    inner = recipe.get(kind)
    if kind == "tuple" and isinstance(inner, list):
        return tuple(rebuild(one) for one in inner)
    if kind == "path" and isinstance(inner, str):
        return Path(inner)
    if kind == "dict" and isinstance(inner, Mapping):
        return {name: rebuild(one) for name, one in inner.items()}
    arguments = recipe.get("with") or {}
    if kind not in ("call", "new", "code") or not is_code(str(inner)) or not isinstance(arguments, Mapping):
        raise TwinaxError(f"a recipe has {str(recipe)[:80]}, which does not say what is to be made")
    target: Any = _found(str(inner))
    if kind == "code":
        return target
    # A file must not choose any function there is: only what was meant to be written down is called.
    made = isinstance(target, type) and hasattr(target, "__dataclass_fields__")
    if not (getattr(target, _REMEMBERS, False) if kind == "call" else made):
        raise TwinaxError(f"a recipe calls {inner}, which is neither a dataclass nor remembered by twinax")
    given = {name: rebuild(one) for name, one in arguments.items()}
    try:
        return target(**given)
    except TypeError as error:
        raise TwinaxError(f"a recipe calls {inner} in a way that it does not take: {error}") from error


def _each(values: Mapping[str, Any]) -> dict[str, Any]:
    recipes = {}
    for name, value in values.items():
        try:
            recipes[name] = recipe_of(value)
        except NoRecipe as error:
            said = str(error)
            # Of nested things only the innermost place is named.
            raise error if said.startswith("its ") else NoRecipe(f"its {name} {said}") from None
    return recipes


def _name(target: Any) -> str:
    """package.module:Name of a class or function, by the shortest package that shows it; `NoRecipe` if nobody can
    import it."""
    module, name = getattr(target, "__module__", None) or "", getattr(target, "__qualname__", "")
    parts = module.split(".")
    for k in range(1, len(parts) + 1):
        place = ".".join(parts[:k])
        if place != "__main__" and _attribute(sys.modules.get(place), name) is target and is_code(f"{place}:{name}"):
            return f"{place}:{name}"
    where = "this program" if module == "__main__" else module or "nowhere"
    raise NoRecipe(f"is {name or type(target).__name__} of {where}, which another program cannot import")


def _attribute(module: Any, name: str) -> Any:
    attribute = module
    for part in name.split("."):
        attribute = getattr(attribute, part, None)
    return attribute


def _found(name: str) -> Any:
    target = import_code(name, "the recipe's")
    if _is_ours(name.partition(":")[0]) and not _is_ours(str(getattr(target, "__module__", ""))):
        raise TwinaxError(f"a recipe names {name}, which twinax only borrowed")
    return target


def _is_ours(module: str) -> bool:
    return module == _OURS or module.startswith(f"{_OURS}.")
