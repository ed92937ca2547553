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
from types import ModuleType
from typing import Any, TypeVar

from twinax.errors import TwinaxError, UnknownName

T = TypeVar("T")
imported_packages: set[str] = set()
"""Packages of others that were imported by `package.module:Name`."""
_NAMED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_code(name: str) -> bool:
    """Whether a name is `package.module:Name`, so that finding it imports somebody's module."""
    return isinstance(name, str) and _NAMED.fullmatch(name) is not None


def import_code(name: str, kind: str) -> Any:
    """What `package.module:Name` stands for, or a module by its own name; one sentence when there is no such thing."""
    module, _, attribute = name.partition(":")
    if (package := module.partition(".")[0]) != __package__:
        imported_packages.add(package)
    try:
        code = importlib.import_module(module)
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
    for part in attribute.split(".") if attribute else ():
        if not hasattr(code, part):
            raise UnknownName(f"{kind} in {module}", attribute, _own_names(code))
        code = getattr(code, part)
    return code


def _own_names(place: Any) -> list[str]:
    """What a module or a class defines itself, without what it imports; of a package also what it shows of its
    modules."""
    names = [name for name in getattr(place, "__all__", vars(place)) if not name.startswith("_")]
    if not isinstance(place, ModuleType) or hasattr(place, "__all__"):
        return names

    def is_own(value: Any) -> bool:
        home = getattr(value, "__module__", None) or place.__name__
        return not isinstance(value, ModuleType) and f"{home}.".startswith(f"{place.__name__}.")

    return [name for name in names if is_own(vars(place)[name])]


class Registry(Mapping[str, T]):
    """Things of one kind by name: those of the library as a mapping, and those of others by `find`.

    An entry is the thing itself, or `package.module:Name` of it, which is imported when it is asked for.
    """

    def __init__(self, kind: str, entries: Mapping[str, T | str], aliases: Mapping[str, str] | None = None):
        self.kind, self._entries, self.aliases = kind, dict(entries), dict(aliases or {})

    @property
    def group(self) -> str:
        """The group of entry points by which packages add names."""
        return f"twinax.{self.kind}s"

    @functools.cached_property
    def installed(self) -> dict[str, str]:
        """Names that installed packages add, to `package.module:Name`; none of them changes what one of ours means."""
        from importlib.metadata import entry_points

        added = {entry.name: entry.value for entry in entry_points(group=self.group)}
        return {name: value for name, value in added.items() if name not in self._entries and name not in self.aliases}

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> T:
        entry: Any = self._entries[name]
        return import_code(entry, self.kind) if isinstance(entry, str) else entry

    def resolve(self, name: str) -> str:
        """One of our names, or `package.module:Name`, behind a name or an alias; unknown names list the known ones."""
        own = self.aliases.get(name, name)
        if own in self._entries:
            return own
        code = self.installed.get(own, own)
        if not is_code(code) and own not in self.installed:
            raise UnknownName(self.kind, name, [*self, *self.installed])
        return code

    def find(self, name: str) -> T:
        """What a name, an alias or `package.module:Name` stands for."""
        own = self.resolve(name)
        return self[own] if own in self._entries else import_code(own, self.kind)
