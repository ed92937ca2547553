"""The files that a robot is made of."""

from __future__ import annotations

import re
from pathlib import Path

from twinax.envs.biped._description import description_file
from twinax.envs.biped._robot import ROBOTS, Robot


def robot_file(robot: str | Path | Robot) -> Path | None:
    """Where a robot's MJCF lies; None for one that was made in memory."""
    if isinstance(robot, Robot):
        return None
    return Path(__file__).with_name(f"{robot}.xml") if str(robot) in ROBOTS else Path(robot)


def referenced(file: Path) -> list[str]:
    """Files that an MJCF speaks of, such as meshes: they are not part of it."""
    return sorted(set(_values(file, "file")))


def robot_sources(robot: str | Path | Robot) -> tuple[Path, ...]:
    """A person's own files: the MJCF first, its description, and what the MJCF speaks of and is found."""
    file = robot_file(robot)
    if file is None or str(robot) in ROBOTS or not file.is_file():
        return ()
    beside = description_file(file)
    return (file, *([] if beside is None else [beside]), *_spoken_of(file))


def _spoken_of(file: Path) -> list[Path]:
    """Also by files that it includes. All names are seen from the folder of the first file, or from its asset folders,
    which any of the files may name."""
    read, names, folders = [file], set[str](), {""}
    for one in read:
        names |= set(referenced(one))
        folders |= set(_values(one, "meshdir")) | set(_values(one, "texturedir")) | set(_values(one, "assetdir"))
        included = [file.parent / name for name in referenced(one) if name.endswith(".xml")]
        read += [path for path in included if path.is_file() and path not in read]
    places = {file.parent / folder / name for folder in folders for name in names}
    return sorted(place for place in places if place.is_file())


def _values(file: Path, attribute: str) -> list[str]:
    text = re.sub(r"<!--.*?-->", "", file.read_text(encoding="utf-8", errors="replace"), flags=re.DOTALL)
    return re.findall(rf"""\b{attribute}\s*=\s*["']([^"']+)["']""", text)
