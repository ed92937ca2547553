"""From a training to its sinks: each gets every row once, also over a resume, and none can end the training.

sinks.json          of each sink the id under which it knows the run, and the last step that it got before it failed,
                    if it did; a sink that did not has all that was ever in the log
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.runs import files, plain
from twinax.runs.metrics import Row
from twinax.runs.sinks import Sink, Start

FILE = "sinks.json"
_ID = re.compile(r"[\w.:-]{1,128}")
Tell = Callable[[str, str], None]
"""What gets the kind of a mishap and a sentence on it."""


@dataclass
class _Place:
    """A sink, and how far it has got."""

    name: str
    sink: Sink
    id: str | None = None
    until: int = 0
    """The last step that it has."""
    refuses: set[str] = field(default_factory=set)
    """What it could not take, and is not given again."""


class Deliveries:
    """All sinks of one training."""

    def __init__(self, sinks: Iterable[Any], tell: Tell, root: Path | None = None):
        self._tell, self._root, self._places = tell, root, list[_Place]()
        for given in sinks:
            own = type(given).__name__ if isinstance(given, Sink) else getattr(given, "__name__", "function")
            alike = sum(place.name.partition("#")[0] == own for place in self._places)
            self._places.append(_Place(f"{own}#{alike + 1}" if alike else own, _as_sink(given)))

    def start(self, start: Start, rows: Sequence[Row] = (), logged: int = 0) -> None:
        """Tell all of them; `rows` are the run's until now, `logged` is the last step that was ever logged.

        A sink that is new to the run, or failed before, first gets the rows that it does not have. What was logged
        after the last checkpoint and is trained again is not sent again.
        """
        known = self._read()
        for place in self._places:
            if (kept := known.get(place.name)) is not None:
                place.id, failed = kept
                place.until = logged if failed is None else min(failed, logged)
            self._try(place, "start", lambda place=place: self._begin(place, start))
        self._write()
        self.deliver(rows)

    def deliver(
        self,
        rows: Sequence[Row],
        pictures: Mapping[str, np.ndarray] | None = None,
        films: Mapping[str, Path] | None = None,
    ) -> None:
        """Hand on rows that are in the log by now, with the pictures and films of the last one's evaluation."""
        for place in self._places:
            new = [row for row in rows if row["step"] > place.until]
            if not new:
                continue
            last = new[-1]["step"]
            if self._try(place, "rows", lambda place=place, new=new: place.sink.rows(new), new[0]["step"]):
                place.until = last
            if pictures:
                self._try(place, "pictures", lambda place=place, s=last: place.sink.pictures(s, pictures), last)
            if films:
                self._try(place, "films", lambda place=place, s=last: place.sink.films(s, films), last)

    def show(self, step: int, films: Mapping[str, Path]) -> None:
        """Hand on films that belong to no row."""
        for place in self._places if films else ():
            self._try(place, "films", lambda place=place: place.sink.films(step, films), step)

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        """Tell all of them that it is over."""
        for place in self._places:
            self._try(place, "end", lambda place=place: place.sink.end(status, summary))

    def _begin(self, place: _Place, start: Start) -> None:
        returned = place.sink.start(dataclasses.replace(start, id=place.id))
        place.id = returned if isinstance(returned, str) and _ID.fullmatch(returned) else place.id

    def _try(self, place: _Place, kind: str, call: Callable[[], None], step: int = 0) -> bool:
        if place.refuses & {kind, "start"}:
            return False
        try:
            call()
        except Exception as error:  # another package, a network, or a person's own class: the training is worth more
            place.refuses.add(kind)
            what = f"could not {kind}" if kind in ("start", "end") else f"gets no {kind} from step {step} on"
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self._tell(
                f"sink {place.name}", f"the sink {place.name} {what} ({reason}); the training goes on without it"
            )
            self._write()
            return False
        return True

    def _read(self) -> dict[str, tuple[str | None, int | None]]:
        """Id and step of failure of the sinks that the run has had; what cannot be read was not there."""
        if self._root is None or not (path := self._root / FILE).exists():
            return {}
        try:
            stored = plain.loads(files.read_text(path, self._root))
        except (OSError, ValueError, TwinaxError):
            return {}
        if not isinstance(stored, dict):
            return {}
        kept = {name: one for name, one in stored.items() if isinstance(one, dict)}
        return {name: (_text(one.get("id")), _count(one.get("failed_after"))) for name, one in kept.items()}

    def _write(self) -> None:
        if self._root is None or not self._places:
            return
        # Others that the run has had, and that were not given this time, keep what is known of them.
        kept = {name: {"id": id, "failed_after": failed} for name, (id, failed) in self._read().items()}
        for place in self._places:
            failed = place.until if place.refuses & {"start", "rows"} else None
            kept[place.name] = {"id": place.id, "failed_after": failed}
        try:
            with files.writing("the record of sinks", self._root / FILE, self._root):
                files.replace_file(self._root / FILE, plain.dumps(kept, indent=2) + "\n")
        except TwinaxError as error:
            self._tell("sinks", str(error))


def _as_sink(given: Any) -> Sink:
    if isinstance(given, Sink):
        return given
    if isinstance(given, type) or not callable(given):
        raise TwinaxError(
            f"sinks has {given!r}; a sink is an object of a class that follows twinax.runs.Sink, or a function of rows"
        )
    sink = Sink()
    sink.rows = given  # type: ignore[method-assign]
    return sink


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and _ID.fullmatch(value) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
