"""Files and directories that are there completely or not at all, and disk errors as one sentence.

A run may come from somebody else, and with it symbolic links. The run's directory may itself be one, and links inside
of it may lead to other places inside of it; none that leads out of it is followed, neither to write, lock and delete
nor to read. `writing`, `read_bytes` and `readable` are given the run and see to it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

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
    errno.ELOOP: "delete that symbolic link",
}


class LeavesRun(TwinaxError):
    """A link in a run that leads out of it."""


def inside(root: Path, path: Path) -> Path:
    """`path`, if it lies in the directory `root` after all links on the way are followed; otherwise `LeavesRun`.

    >>> inside(Path("runs"), Path("runs/a/summary.json"))
    PosixPath('runs/a/summary.json')
    """
    top, place = os.path.realpath(root), os.path.realpath(path)
    if os.path.commonpath([top, place]) != top:
        raise LeavesRun(
            f"{path} leads to {place}, which is outside of {root}: nothing is read or written there; "
            "put a copy in its place, or delete the link"
        )
    return path


def refuse_links(root: Path, names: Callable[[str], bool]) -> None:
    """Raise `LeavesRun` if a link that leads out of `root` stands at one of the chosen entries or anywhere below."""
    if not root.is_dir():
        return
    for entry in sorted(filter(names, os.listdir(root))):
        inside(root, root / entry)
        for folder, folders, files in os.walk(root / entry):
            for name in (*folders, *files):
                if os.path.islink(os.path.join(folder, name)):
                    inside(root, Path(folder, name))


@contextmanager
def writing(what: str, path: Path, root: Path | None = None, kept: str = "") -> Iterator[None]:
    """Turn an `OSError` inside the block into a `TwinaxError`: what failed, where, why and the fix.

    `root` is the run to which `path` belongs: a link that leads out of it is refused before the block begins. It is
    None where a person named the file. `kept` says what was not harmed, such as "the earlier checkpoints are intact".
    """
    if root is not None:
        inside(root, path)
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        parts = [f"cannot write {what} {path}: {reason}", kept, _ADVICE.get(error.errno or 0, "")]
        raise TwinaxError("; ".join(part for part in parts if part)) from error


def readable(path: Path, root: Path) -> Path:
    """`path`, if it is a file of the run `root`; a link out of it is refused, pipes and devices are an `OSError`."""
    inside(root, path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path


def read_bytes(path: Path, root: Path) -> bytes:
    """The content of a file of the run `root`."""
    return readable(path, root).read_bytes()


def read_text(path: Path, root: Path) -> str:
    """The text of a file of the run `root`; a `ValueError` where it is not UTF-8."""
    return read_bytes(path, root).decode("utf-8")


def open_to_append(path: Path) -> TextIO:
    """A text file to write at its end; what is not a regular file is an `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "a", encoding="utf-8")


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


def write_synced(path: Path, content: str | bytes) -> None:
    """Write a new file and wait until it is on the disk; what had its name before, a link included, is deleted."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old content or the new one, never a part.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "summary.json"
    >>> replace_file(target, "{}")
    >>> target.read_text()
    '{}'
    """
    with replacing(path) as temporary:
        write_synced(temporary, content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` for a file that takes its place when the block has filled it, and goes when it fails."""
    temporary = path.with_name(_TEMPORARY + path.name)
    temporary.unlink(missing_ok=True)  # a killed writer's, or a link that a program would write through
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
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
        remove(leftover)
    temporary = path.with_name(_TEMPORARY + path.name)
    old = path.with_name(_OLD + path.name)
    try:
        temporary.mkdir()
        fill(temporary)
        sync_directory(temporary)
        if os.path.lexists(path):
            os.replace(path, old)
        os.replace(temporary, path)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        restore_directories(path.parent)
        raise
    sync_directory(path.parent)
    if os.path.islink(old):
        os.unlink(old)
    shutil.rmtree(old, ignore_errors=True)


def restore_directories(parent: Path) -> None:
    """Undo replacements that were killed between their two renames."""
    for old in parent.glob(_OLD + "*"):
        path = old.with_name(old.name.removeprefix(_OLD))
        if not os.path.lexists(path):
            os.replace(old, path)


def remove(path: Path) -> None:
    """Delete whatever has this name; of a link the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_directory(path: Path) -> None:
    """Delete a directory; killed half-way, it no longer has its real name."""
    doomed = path.with_name(_TEMPORARY + path.name)
    remove(doomed)
    os.replace(path, doomed)
    remove(doomed)
