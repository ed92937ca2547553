"""Whether a recorder is called where it should be."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from twinax.errors import TwinaxError

ORDER = "call recorder.step(batch, loss=loss) once after loss.backward() and before optimizer.step()"
"""What a person is told who has called it elsewhere."""


class Order:
    """Whether `recorder.step` and the optimizers' own steps come in turn."""

    def __init__(self):
        self._calls: dict[str, int] = {}
        self._uses: dict[str, int] = {}
        self._used: dict[str, list[tuple[Any, int]]] = {}

    def enter(self, name: str, pending: Mapping[str, Any]) -> bool:
        """Note a call for an update; whether steps were taken that the recorder has not seen, or were left out."""
        if name in pending and not self._uses.get(name):
            raise TwinaxError(
                f"recorder.step was called twice for '{name}', but its optimizer has made no step between; {ORDER}"
            )
        unseen = self._uses.get(name, 0) > self._calls.get(name, 0)
        self._calls[name] = max(self._calls.get(name, 0), self._uses.get(name, 0)) + 1
        return unseen or name in pending

    def use(self, name: str, gradients: list[Any]) -> None:
        """Note that an optimizer has used its gradients."""
        self._uses[name] = self._uses.get(name, 0) + 1
        self._used[name] = [(weakref.ref(g), g._version) for g in gradients]

    def used_already(self, name: str, gradients: Mapping[str, Any]) -> bool:
        """Whether these are the very gradients that were used last."""
        used = self._used.get(name, [])
        return len(used) == len(gradients) and all(
            one() is g and version == g._version for (one, version), g in zip(used, gradients.values(), strict=True)
        )
