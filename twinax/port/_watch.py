"""Whether a module is still what a step made of it, without a walk through it in every step."""

from __future__ import annotations

from typing import Any


class Watch:
    """What a module's parts and parameters were when they were last looked at."""

    def __init__(self, module: Any):
        self._module = module
        self.remember()

    def remember(self) -> None:
        """Take the module as it is now."""
        self._parts = list(self._module.modules())
        self._tables = [table for one in self._parts for table in (one._parameters, one._modules)]
        places = [(table, name) for table in self._tables for name in table]
        self._places, self._held = places, [table[name] for table, name in places]  # held, so that ids stay theirs
        self._ids = [id(one) for one in self._held]
        self._named = dict(self._module.named_parameters())
        self._parameters = list(self._named.values())
        self.remember_numbers()

    def remember_numbers(self) -> None:
        """Take the parameters' numbers as they are now."""
        self._versions = [p._version for p in self._parameters]

    def changed(self) -> str | None:
        """The first parameter that is another one, or has other numbers; None if all are as they were."""
        if (
            self._versions == [p._version for p in self._parameters]
            and len(self._places) == sum(map(len, self._tables))
            and self._ids == [id(table.get(name)) for table, name in self._places]
        ):
            return None
        named = dict(self._module.named_parameters())
        versions = dict(zip(self._named, self._versions, strict=True))
        for name, p in named.items():
            if self._named.get(name) is not p or p._version != versions[name]:
                return name
        if gone := [name for name in self._named if name not in named]:
            return gone[0]
        self.remember()
        return None

    def flags(self) -> tuple[Any, ...]:
        """What decides on a graph: parts in training, and parameters that are trained."""
        return (
            tuple([one.training for one in self._parts]),
            tuple([p.requires_grad for p in self._parameters]),
        )
