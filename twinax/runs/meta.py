"""meta.json of a checkpoint: read as if it came from a stranger, and refused by name when anything in it is odd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.ranges import is_number
from twinax.runs import files, plain, sealed
from twinax.train_options import TrainOptions

FORMAT = 2
META = "meta.json"


class BadCheckpoint(TwinaxError):
    """A checkpoint that is truncated, edited, incomplete or not for this problem."""


def read_meta(directory: Path | str) -> dict[str, Any]:
    """meta.json of a checkpoint, checked for its sum, its format and its values, but not against the arrays."""
    directory = Path(directory)
    path = directory / META
    try:
        stored = plain.loads(files.read_text(path, run_of(directory)))
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BadCheckpoint(f"{path} is not valid JSON: it is truncated or was edited ({error})") from error
    if not isinstance(stored, dict) or not {"format", "step", "bytes", "sha256"} <= stored.keys():
        raise BadCheckpoint(f"{path} is not a checkpoint's description: format, step, bytes or sha256 is missing")
    if stored["format"] != FORMAT:
        raise BadCheckpoint(
            f"{path} has checkpoint format {stored['format']}, this twinax reads format {FORMAT}; "
            "use the version of twinax that wrote it (see 'versions' in that file)"
        )
    try:
        meta = sealed.opened(stored, required=True)
    except ValueError as error:
        raise BadCheckpoint(f"{path} cannot be used: {error}") from error
    for name, (fits, wanted) in _VALUES.items():
        if name in meta and not fits(meta[name]):
            raise BadCheckpoint(f"{path} has the {name} {str(meta[name])[:80]!r}, which is not {wanted}")
    try:
        TrainOptions.stored(meta.get("plan") or {})
    except TwinaxError as error:
        raise BadCheckpoint(f"{path} holds a plan that cannot be followed: {error}") from error
    if directory.name.isdecimal() and int(directory.name) != meta["step"]:
        raise BadCheckpoint(f"{path} says step {meta['step']}, but its directory is that of step {int(directory.name)}")
    return meta


def run_of(directory: Path) -> Path:
    """The run that a checkpoint belongs to; of one that stands alone the directory around it."""
    return directory.parent.parent if directory.parent.name == "checkpoints" else directory.parent


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_window(value: Any) -> bool:
    return value is None or isinstance(value, dict) and is_number(value.get("sum")) and _is_count(value.get("count"))


def _is_changes(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(one, dict) and {"was", "is"} <= one.keys() for one in value.values()
    )


def _is_log(value: Any) -> bool:
    counts = isinstance(value, dict) and _is_count(value.get("rows")) and _is_count(value.get("bytes"))
    return value is None or counts and isinstance(value.get("sha256"), str)


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "step": (lambda value: _is_count(value) and value < 2**31, "a number of steps"),
    "bytes": (_is_count, "a number of bytes"),
    "sha256": (lambda value: isinstance(value, str), "a sum"),
    "seconds": (lambda value: is_number(value) and value >= 0, "a number of seconds"),
    "speed": (lambda value: is_number(value) and value >= 0, "a number of steps per second"),
    "compile_seconds": (lambda value: is_number(value) and value >= 0, "a number of seconds"),
    "owed": (lambda value: value is None or isinstance(value, dict), "a row of the log"),
    "changes": (_is_changes, "settings that were changed"),
    "called": (lambda value: isinstance(value, bool), "yes or no"),
    "window": (_is_window, "a sum of losses and their count"),
    "log": (_is_log, "the rows, bytes and sum of a log"),
    "plan": (lambda value: value is None or isinstance(value, dict), "a plan"),
    "config": (lambda value: value is None or isinstance(value, dict), "a configuration"),
    "command": (lambda value: value is None or isinstance(value, str), "a command"),
}
"""What a training keeps in meta.json: whether a value is one, and what it is called."""
