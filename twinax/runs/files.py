"""Files and directories that are there completely or not at all, and disk errors as one sentence."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from twinax.errors import TwinaxError

_TEMPORARY = ".tmp-"
_OLD = ".old-"
_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some of your quota on that disk",
    errno.EROFS: "choose a run.dir on a disk that can be written",
    errno.EACCES: "choose a run.dir that you may write to",
    errno.EPERM: "choose a run.dir that you may write to",
    errno.ENOTDIR: "choose a run.dir whose parents are all directories",
    errno.EEXIST: "choose a run.dir that is not an existing file",
    errno.ENAMETOOLONG: "choose a shorter run.dir",
}


@contextmanager
def writing(what: str, path: Path, kept: str = "") -> Iterator[None]:
    """Turn an `OSError` inside the block into a `TwinaxError`: what failed, where, why and the fix.

    `kept` says what was not harmed, such as "the earlier checkpoints are intact".
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        parts = [f"cannot write {what} {path}: {reason}", kept, _ADVICE.get(error.errno or 0, "")]
        raise TwinaxError("; ".join(part for part in parts if part)) from error


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names inside the directory are on the disk, so that a rename survives a power cut."""
    sync_file(path)


def write_synced(path: Path, text: str) -> None:
    """Write a new file and wait until it is on the disk."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new one, never a part.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "summary.json"
    >>> replace_file(target, "{}")
    >>> target.read_text()
    '{}'
    """
    temporary = path.with_name(_TEMPORARY + path.name)
    try:
        write_synced(temporary, text)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def replace_directory(path: Path, fill: Callable[[Path], None]) -> None:
    """Make a directory that appears under its name only when `fill` has written all of it.

    There may be one writer per parent directory: what killed writers left there is removed first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    restore_directories(path.parent)
    for leftover in [*path.parent.glob(_TEMPORARY + "*"), *path.parent.glob(_OLD + "*")]:
        shutil.rmtree(leftover)
    temporary = path.with_name(_TEMPORARY + path.name)
    old = path.with_name(_OLD + path.name)
    try:
        temporary.mkdir()
        fill(temporary)
        sync_directory(temporary)
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        restore_directories(path.parent)
        raise
    sync_directory(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def restore_directories(parent: Path) -> None:
    """Undo replacements that were killed between their two renames."""
    for old in parent.glob(_OLD + "*"):
        path = old.with_name(old.name.removeprefix(_OLD))
        if not path.exists():
            os.replace(old, path)


def remove_directory(path: Path) -> None:
    """Delete a directory; killed half-way, it no longer has its real name."""
    doomed = path.with_name(_TEMPORARY + path.name)
    shutil.rmtree(doomed, ignore_errors=True)
    os.replace(path, doomed)
    shutil.rmtree(doomed)
