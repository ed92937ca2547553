"""Who made a run: a sum of its settings under a key that only this user of this machine has.

Settings may name code by `package.module:Name`, and whoever builds them imports that module. So a run that does is
built without asking only where origin.json shows that its settings are as this user wrote them here. A stranger cannot
make that file, and it no longer fits settings that were edited.

origin.json         HMAC-SHA256 of config.yaml (of a sweep: sweep.json), only where those name code
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.runs import files

FILE = "origin.json"
_PLACES = ("run.dir", "run.name")
"""Keys whose text is only ever the name of a directory."""
_BYTES = 32


class Untrusted(TwinaxError):
    """Settings of somebody else that name code outside of the library."""


def named_code(settings: Any) -> dict[str, str]:
    """Keys of a configuration whose text names code, to the module that would be imported.

    Whatever stands before a colon counts, unless no module can have that name: what is asked once too often does no
    harm.

    >>> named_code({"env": {"id": "my.worlds:Maze-v0", "file": "/data/a:b"}, "seed": 3})
    {'env.id': 'my.worlds'}
    """
    modules = {}
    for key, value in leaves(settings):
        module, colon, _ = value.partition(":") if isinstance(value, str) else ("", "", "")
        if colon and module and "/" not in module and key not in _PLACES:
            modules[key] = module
    return modules


def leaves(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a configuration with its dotted key.

    >>> list(leaves({"a": {"b": [1, 2]}}))
    [('a.b', 1), ('a.b', 2)]
    """
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from leaves(value, key)
    else:
        yield key, settings


def vouch(file: Path, names_code: bool) -> None:
    """Write, beside a file of settings that this user has just written, that it is theirs, if that matters."""
    place = file.parent / FILE
    key = _key(make=True) if names_code else None
    with files.writing("the origin", place, file.parent):
        if key is None:
            place.unlink(missing_ok=True)
        else:
            files.replace_file(place, json.dumps({"file": file.name, "hmac": _sum(file, key)}, indent=2) + "\n")


def require_trust(file: Path, named: Mapping[str, str]) -> None:
    """Raise `Untrusted` if settings that were read from a file name code and nothing shows that they are ours."""
    if named and not _is_ours(file):
        raise untrusted(str(file), named, "this user has not written that file on this machine")


def untrusted(source: str, named: Mapping[str, str], why: str) -> Untrusted:
    """The error for settings that name code."""
    told = ", ".join(f"{key} imports the module '{module}'" for key, module in named.items())
    return Untrusted(
        f"{source} names code outside of twinax ({told}), and {why}; look at that code, and if you trust it use "
        "--trust (in Python trust=True)"
    )


def _is_ours(file: Path) -> bool:
    key = _key(make=False)
    if key is None:
        return False
    try:
        stored = json.loads((file.parent / FILE).read_text(encoding="utf-8"))
        wanted = _sum(file, key)
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(stored, dict) or stored.get("file") != file.name or not isinstance(stored.get("hmac"), str):
        return False
    return hmac.compare_digest(stored["hmac"].encode(), wanted.encode())


def _sum(file: Path, key: bytes) -> str:
    # With the name: what was said of one file does not hold for another.
    return hmac.new(key, file.name.encode() + b"\0" + file.read_bytes(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """This user's own random key, made when it is first needed; None where none can be kept in private."""
    try:
        root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        place = Path(root) / "twinax" / "key"
        if make and not place.exists():
            _make_key(place)
        with open(place, "rb") as file:
            facts, content = os.fstat(file.fileno()), file.read(_BYTES + 1)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    # A key that others may read or write shows nothing.
    mine = facts.st_uid == os.geteuid() and not stat.S_IMODE(facts.st_mode) & 0o077 if os.name == "posix" else True
    return content if mine and len(content) == _BYTES else None


def _make_key(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".key-{secrets.token_hex(8)}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        os.link(beside, place)  # unlike a rename this does not replace the key of a process that was faster
    except FileExistsError:
        pass
    finally:
        beside.unlink(missing_ok=True)
