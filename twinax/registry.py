"""Names of what can be chosen: our own, those that installed packages add, and `package.module:Name` of anybody.

>>> from twinax.registry import Registry
>>> shapes = Registry("shape", {"fraction": "fractions:Fraction"}, aliases={"ratio": "fraction"})
>>> shapes.find("ratio"), shapes.find("decimal:Decimal")
(<class 'fractions.Fraction'>, <class 'decimal.Decimal'>)

A package adds a name with an entry point, in its pyproject.toml:

    [project.entry-points."twinax.shapes"]
    square = "mypackage.shapes:Square"
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from twinax.errors import TwinaxError, UnknownName

_NAMED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_code(name: str) -> bool:
    """Whether a name is `package.module:Name`, so that finding it imports somebody's module."""
    return isinstance(name, str) and _NAMED.fullmatch(name) is not None


def import_code(name: str, kind: str) -> Any:
    """What `package.module:Name` stands for; one sentence when there is no such thing."""
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module == missing or module.startswith(f"{missing}."):
            raise TwinaxError(
                f"{kind} '{name}': there is no module '{missing}' to import; install its package, or run the command "
                "in the directory that it lies in"
            ) from error
        raise TwinaxError(f"{kind} '{name}': its module needs '{missing}', which is not installed") from error
    except Exception as error:  # somebody's module may raise anything
        raise TwinaxError(f"{kind} '{name}': its module fails with {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise UnknownName(f"{kind} in {module}", attribute, [x for x in vars(found) if not x.startswith("_")])
        found = getattr(found, part)
    return found


class Registry:
    """Things of one kind by name, imported when they are first asked for."""

    def __init__(self, kind: str, entries: Mapping[str, str], aliases: Mapping[str, str] | None = None):
        self.kind, self._entries, self.aliases = kind, dict(entries), dict(aliases or {})

    @property
    def group(self) -> str:
        """The group of entry points by which packages add names."""
        return f"twinax.{self.kind.replace(' ', '_')}s"

    @functools.cached_property
    def _installed(self) -> dict[str, str]:
        from importlib.metadata import entry_points

        return {entry.name: entry.value for entry in entry_points(group=self.group)}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._entries, **self._installed})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._installed

    def add(self, name: str, target: str) -> None:
        """Make `package.module:Name` known by a shorter name in this process."""
        if name in self or name in self.aliases:
            raise TwinaxError(f"there is a {self.kind} called '{name}' already; choose another name")
        if not is_code(target):
            raise TwinaxError(f"the {self.kind} '{name}' is {target!r}; write it as package.module:Name")
        self._entries[name] = target

    def resolve(self, name: str) -> str:
        """The name itself behind an alias; unknown names list the known ones."""
        own = self.aliases.get(name, name)
        if own not in self and not is_code(own):
            raise UnknownName(self.kind, name, list(self))
        return own

    def find(self, name: str) -> Any:
        """What a name stands for."""
        own = self.resolve(name)
        # Ours come first: no package may change what a name of the library means.
        return import_code(self._entries.get(own) or self._installed.get(own) or own, self.kind)
