"""A record of training on disk: what `port.Recorder` writes and `port.replay` reads.

A directory: `record.json` says which parameters and optimizers there are, `record.jsonl` has a line for each recorded
update, and `steps/` a safetensors file for each, with the batch and, where a replay may begin, with parameters, buffers
and what the optimizers remember.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from twinax.bridge.weight_files import read_arrays
from twinax.errors import TwinaxError

FORMAT = "twinax.port.record 1"
HEADER, LINES, STEPS = "record.json", "record.jsonl", "steps"


@dataclass(frozen=True)
class Recorded:
    """One update of one step."""

    step: int
    """Counted from 1, also where steps between were not recorded."""
    update: str
    """The update's name; loss where there is only one."""
    loss: float
    terms: Mapping[str, float]
    grad_norm: float | None
    """Of all gradients of the optimizer's parameters together, before clipping; None where there were none to see."""
    grad_norms: Mapping[str, float] = field(default_factory=dict)
    """The same of each parameter."""
    used_norm: float | None = None
    """Norm of all gradients when the optimizer used them, after clipping."""
    rates: tuple[float, ...] = ()
    """Learning rates of the optimizer's groups."""
    start: bool = False
    """Whether a replay may begin here: parameters, buffers and the optimizers' memory are in the file."""
    follows: bool = False
    """Whether training went on to it from the recorded step before, so that these parameters are those after that."""
    end: bool = False
    """Whether this line only has the parameters after a step."""
    seed: int | None = None
    """Of the draws, where `port.Step` has made them."""
    draws: int | None = None
    """The step of the draws."""
    constants: Mapping[str, Any] = field(default_factory=dict)
    """What of the batch is no array, by its name."""
    file: str = ""
    """The file of its arrays, below the directory."""
    digest: str = ""
    """SHA-256 of that file."""


@dataclass(frozen=True)
class Header:
    """What does not change from step to step."""

    parameters: Mapping[str, list[int]]
    """Shapes by name."""
    dtype: str
    """Precision of the parameters."""
    training: bool
    """Whether the module was in training."""
    optimizers: Mapping[str, Any]
    """By update: the optimizer's kind, and the settings and parameters of its groups."""
    every: int = 1
    library: str = ""
    """The version of twinax."""


class Record:
    """A record as it stands on disk.

    >>> record = Record("record")  # doctest: +SKIP
    >>> [line.loss for line in record.lines]  # doctest: +SKIP
    """

    def __init__(self, directory: str | Path):
        self.directory = Path(directory)
        self.header = _read_header(self.directory)
        self.lines, self.whole = _read_lines(self.directory / LINES)
        self._last: tuple[str, Any] = "", None

    @property
    def steps(self) -> list[list[Recorded]]:
        """The updates of each recorded step, in order, without ends."""
        found: dict[int, list[Recorded]] = {}
        for line in self.lines:
            if not line.end:
                found.setdefault(line.step, []).append(line)
        return list(found.values())

    def ends(self) -> dict[int, Recorded]:
        """The lines with parameters after a step, by the step."""
        return {line.step: line for line in self.lines if line.end}

    def arrays(self, line: Recorded) -> dict[str, dict[str, np.ndarray]]:
        """The arrays of an update by kind: batch, parameters, buffers and memory."""
        if line.file == self._last[0]:
            return self._last[1]
        path = self.directory / line.file
        if path.is_file() and digest_of(path) != line.digest:
            raise TwinaxError(
                f"{path} is not the file that step {line.step} of the record was written with; it was edited or "
                "belongs to another record"
            )
        arrays, _ = read_arrays(path, f"step {line.step} of the record")
        found: dict[str, dict[str, np.ndarray]] = {"batch": {}, "parameters": {}, "buffers": {}, "memory": {}}
        for name, array in arrays.items():
            kind, _, rest = name.partition("/")
            found[kind][rest] = array
        self._last = line.file, found
        return found


def digest_of(path: Path) -> str:
    """What tells a file from an edited one."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_header(directory: Path, header: Header) -> None:
    """Write what does not change, in one step."""
    content = {"format": FORMAT, **asdict(header)}
    partial = directory / f".{HEADER}.{os.getpid()}.partial"
    partial.write_text(json.dumps({**content, "check": _check(content)}, indent=1), encoding="utf-8")
    os.replace(partial, directory / HEADER)


def append_line(directory: Path, line: Recorded) -> None:
    """Add an update; its file is there already."""
    content = {name: value for name, value in asdict(line).items() if not _is_empty(value)}
    with (directory / LINES).open("a", encoding="utf-8") as file:
        file.write(json.dumps({**content, "check": _check(content)}) + "\n")
        file.flush()


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (hasattr(value, "__len__") and not len(value))


def _check(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _read_header(directory: Path) -> Header:
    path = directory / HEADER
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        said = content.pop("format", None) if isinstance(content, dict) else None
    except FileNotFoundError:
        raise TwinaxError(
            f"there is no record in {directory}; twinax.port.Recorder('{directory}', ...) writes one"
        ) from None
    except (OSError, ValueError) as error:
        raise TwinaxError(f"cannot read the record {path}: {error}") from error
    if said != FORMAT:
        raise TwinaxError(f"{path} is no record of this version: its format is '{said}', not '{FORMAT}'")
    return _checked(Header, {"format": FORMAT, **content}, f"{path}")


def _read_lines(path: Path) -> tuple[list[Recorded], int]:
    """All whole lines, and how many bytes they take; half a line at the end is what a kill leaves."""
    if not path.is_file():
        return [], 0
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    lines = []
    for number, text in enumerate(content[:whole].splitlines(), 1):
        where = f"line {number} of {path}"
        try:
            values = json.loads(text)
        except ValueError as error:
            raise TwinaxError(f"{where} is no JSON ({error}); the record was edited") from error
        lines.append(_checked(Recorded, values, where))
    return lines, whole


def _checked(kind: Any, values: Any, where: str) -> Any:
    content = dict(values) if isinstance(values, dict) else {}
    if content.pop("check", None) != _check(content):
        raise TwinaxError(f"{where} is not as it was written; the record was edited")
    content.pop("format", None)
    known = {one.name for one in fields(kind)}
    if "rates" in content:
        content["rates"] = tuple(content["rates"])
    if kind is Recorded:
        content = {"terms": {}, "grad_norm": None, **content}
    return kind(**{name: value for name, value in content.items() if name in known})
