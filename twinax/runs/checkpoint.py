"""Checkpoints: a directory with every array of a state and a description of it. No pickle.

    <step:010d>/
      state.safetensors   every array, by its dotted name
      meta.json           format, step, plan, config, versions, the hash of state.safetensors, names and shapes,
                          what the log held by then, and a sum over all of this

A checkpoint counts only if nothing in it was changed: both sums fit, and the step is the same in meta.json, in the
state and in the directory's name. It is written beside its place under a name that starts with `.tmp-`, synced to the
disk and renamed, so a killed save leaves the earlier checkpoints as they were. There is one writer per parent
directory: a run's lock sees to it.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from twinax import tree
from twinax.errors import TwinaxError
from twinax.runs import files, sealed
from twinax.runs.meta import FORMAT, META, BadCheckpoint, read_meta, run_of
from twinax.runs.versions import versions

ARRAYS = "state.safetensors"
_KEPT = "the earlier checkpoints are intact"

S = TypeVar("S")


def place(run_dir: Path | str, step: int) -> Path:
    """Where a run's checkpoint of this step belongs."""
    return Path(run_dir) / "checkpoints" / f"{step:010d}"


def save(directory: Path | str, state: Any, meta: Mapping[str, Any]) -> Path:
    """Write a state as a checkpoint directory, completely or not at all; an older one of that name is replaced.

    `meta` is kept in meta.json beside the format, versions, hash and array list.

    >>> import tempfile
    >>> path = save(tempfile.mkdtemp() + "/0000000001", {"weight": np.ones(2)}, {"step": 1})
    >>> load(path, {"weight": np.zeros(2)})[0]
    {'weight': array([1., 1.])}
    """
    directory = Path(directory)
    arrays = _arrays(state)
    described = {"step": int(np.max(getattr(state, "step", 0))), **meta}
    with files.writing("the checkpoint", directory, run_of(directory), kept=_KEPT):
        files.replace_directory(directory, lambda temporary: _write(temporary, arrays, described))
    return directory


def load(directory: Path | str, like: S, part: bool = False) -> tuple[S, dict[str, Any]]:
    """The saved state in the shape of `like`, and meta.json; any difference is refused in one sentence.

    With `part`, arrays of the file that `like` does not have are left where they are.
    """
    from safetensors import SafetensorError, safe_open

    directory = Path(directory)
    meta = verify(directory)
    path = directory / ARRAYS
    wanted = _arrays(like)
    try:
        with safe_open(path, framework="np") as file:
            stored = set(file.keys())
            _compare_names(path, stored & wanted.keys() if part else stored, wanted)
            loaded = {name: np.asarray(file.get_tensor(name)) for name in wanted}
    except (SafetensorError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"{path} cannot be read ({error}); use an earlier checkpoint") from error
    for name, array in loaded.items():
        if array.shape != wanted[name].shape:
            raise BadCheckpoint(
                f"{path}: '{name}' has shape {array.shape} but the problem needs {wanted[name].shape}; "
                "use the sizes and number of seeds that the run was started with"
            )
        if array.dtype != wanted[name].dtype:
            raise BadCheckpoint(
                f"{path}: '{name}' is {array.dtype} but the problem needs {wanted[name].dtype}; "
                "use the dtype that the run was started with"
            )
    return tree.with_leaves(like, loaded), meta


def verify(directory: Path | str) -> dict[str, Any]:
    """meta.json of a checkpoint whose files are whole and unedited; otherwise `BadCheckpoint` by name."""
    directory = Path(directory)
    meta = read_meta(directory)
    path = directory / ARRAYS
    try:
        size = files.readable(path, run_of(directory)).stat().st_size
        if size != meta["bytes"]:
            raise BadCheckpoint(f"{path} has {size} bytes instead of {meta['bytes']}: it is truncated or was edited")
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error.strerror or error}") from error
    if digest != meta["sha256"]:
        raise BadCheckpoint(
            f"{path} was changed after it was saved: its sha256 is {digest[:12]}..., "
            f"{META} says {meta['sha256'][:12]}..."
        )
    stored = _stored_step(path)
    if stored not in (None, meta["step"]):
        raise BadCheckpoint(
            f"{directory / META} says step {meta['step']}, but the state in {ARRAYS} is of step {stored}"
        )
    return meta


def newest_meta(run_dir: Path | str) -> dict[str, Any] | None:
    """The description of the newest checkpoint that has a whole one; its arrays are not looked at."""
    for step in steps(run_dir)[::-1]:
        try:
            return read_meta(place(run_dir, step))
        except (BadCheckpoint, files.LeavesRun):
            continue
    return None


def steps(run_dir: Path | str) -> list[int]:
    """The steps of a run's checkpoints in ascending order, usable or not."""
    parent = Path(run_dir) / "checkpoints"
    if not parent.is_dir():
        return []
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()]
    return sorted(int(name) for name in names if name.isdecimal() and place(run_dir, int(name)).name == name)


def latest(run_dir: Path | str, refused: Callable[[str], None] | None = None) -> Path:
    """The newest usable checkpoint of a run.

    Each newer one that is truncated or edited is refused by name: `refused` gets the sentence
    (default: a Python warning). With none usable a `TwinaxError` says so.
    """
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise TwinaxError(f"there is no run directory {run_dir}; give the directory that a training wrote (run.dir)")
    with files.writing("the directory", run_dir / "checkpoints", run_dir):
        files.restore_directories(run_dir / "checkpoints")
    refuse = refused or (lambda sentence: warnings.warn(sentence, stacklevel=3))
    newest_first = steps(run_dir)[::-1]
    for step in newest_first:
        path = place(run_dir, step)
        try:
            verify(path)
        except (BadCheckpoint, files.LeavesRun) as error:
            refuse(f"a checkpoint is refused: {error}")
        else:
            return path
    count = f"none of its {len(newest_first)} checkpoints is usable" if newest_first else "it has no checkpoint"
    raise TwinaxError(f"the run {run_dir} cannot be continued: {count}; start a new training in another run.dir")


def set_aside(directory: Path | str) -> None:
    """Rename a refused checkpoint to `<step>.refused`, so that it is kept but no longer counts."""
    directory = Path(directory)
    aside = directory.with_name(directory.name + ".refused")
    with files.writing("the directory", directory.parent, run_of(directory)):
        files.remove(aside)
        os.replace(directory, aside)


def prune(run_dir: Path | str, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints that look complete."""
    if keep < 1:
        raise TwinaxError(f"keep is {keep}; at least 1 checkpoint must stay")
    kept = 0
    for step in steps(run_dir)[::-1]:
        path = place(run_dir, step)
        if kept < keep:
            kept += _looks_complete(path)
            continue
        with files.writing("the directory", path.parent, Path(run_dir), kept=_KEPT):
            files.remove_directory(path)


def _stored_step(path: Path) -> int | None:
    """The step in a state's arrays; None in those of another kind."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            array = np.asarray(file.get_tensor("step")) if "step" in file.keys() else np.zeros(0)
    except (SafetensorError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"{path} cannot be read ({error}); use an earlier checkpoint") from error
    return int(array.max()) if array.size and array.dtype.kind in "iu" else None


def _arrays(state: Any) -> dict[str, np.ndarray]:
    arrays = {}
    for name, leaf in tree.named_leaves(state).items():
        array = np.asarray(leaf)
        if array.dtype.hasobject or array.dtype.kind in "USV" and array.dtype.name != "bfloat16":
            raise TwinaxError(f"'{name}' is a {type(leaf).__name__}, which a checkpoint cannot hold; make it an array")
        # safetensors writes the memory as it lies: a transposed view would be saved as garbage. The
        # reshape keeps 0-d arrays 0-d, which ascontiguousarray alone turns into shape (1,).
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    return arrays


def _write(directory: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path = directory / ARRAYS
    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise _disk_error(error, path) from error
    files.sync_file(path)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    described = {
        **meta,
        "format": FORMAT,
        "versions": versions(),
        "sha256": digest,
        "bytes": path.stat().st_size,
        "arrays": {name: {"shape": array.shape, "dtype": array.dtype.name} for name, array in arrays.items()},
    }
    files.write_synced(directory / META, sealed.dumps(described, indent=1))
    # safetensors makes its file private to the user; a colleague may read what the umask allows.
    os.chmod(path, os.stat(directory / META).st_mode & 0o777)


def _disk_error(error: Exception, path: Path) -> OSError:
    """safetensors reports disk errors as text: '... (os error 28) ...'."""
    match = re.search(r"os error (\d+)", str(error))
    if match is None:
        return OSError(str(error))
    number = int(match.group(1))
    return OSError(number, os.strerror(number), str(path))


def _looks_complete(directory: Path) -> bool:
    try:
        return (directory / ARRAYS).stat().st_size == read_meta(directory)["bytes"]
    except (BadCheckpoint, files.LeavesRun, OSError):
        return False


def _compare_names(path: Path, stored: set[str], wanted: Mapping[str, Any]) -> None:
    missing = [name for name in wanted if name not in stored]
    extra = sorted(stored - wanted.keys())
    hint = "it was saved from another problem (environment, network or objective)"
    if missing:
        raise BadCheckpoint(f"{path} lacks '{missing[0]}' ({len(missing)} missing, {len(extra)} unexpected): {hint}")
    if extra:
        raise BadCheckpoint(f"{path} has the unexpected '{extra[0]}' ({len(extra)} in all): {hint}")
