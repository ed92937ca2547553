"""What a robot's MJCF does not say, in a small file beside it: read, and refused in one sentence where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError, UnknownName

KEYS = ("base", "push_body", "feet", "joints", "keyframe")
SUFFIXES = (".yaml", ".yml", ".json")
FEET = 2
"""The gait's clock lifts one foot and then the other."""


def description_file(path: Path) -> Path | None:
    """The description beside an MJCF, if there is one."""
    return next((beside for suffix in SUFFIXES if (beside := path.with_suffix(suffix)).is_file()), None)


def read_description(path: Path) -> dict[str, Any]:
    """What stands beside an MJCF; nothing where there is no such file."""
    import yaml

    beside = description_file(path)
    if beside is None:
        return {}
    try:
        description = yaml.safe_load(beside.read_text(encoding="utf-8"))  # JSON is YAML
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TwinaxError(f"{beside.name} is neither YAML nor JSON: {' '.join(str(error).split())}") from None
    if not isinstance(description, dict):
        raise TwinaxError(f"{beside.name} holds a {type(description).__name__}; it must map names to values")
    return description


def check_description(name: str, description: Mapping[str, Any]) -> None:
    """Refuse a description whose entries are not of their kind; whether names are those of the MJCF is seen later."""
    for key in description:
        if key not in KEYS:
            raise UnknownName("entry of a robot's description", key, KEYS)
    for key in ("base", "feet"):
        if key not in description:
            raise TwinaxError(f"the description of {name} has no '{key}'; write it into {name}.yaml or pass {key}=...")
    for key in ("base", "push_body", "keyframe"):
        if key in description and not _is_name(description[key]):
            raise _wrong(name, key, description[key], "must be a name")
    if "joints" in description and not _are_names(description["joints"]):
        wanted = "must be a list of names in the order of the actuators, or be left out"
        raise _wrong(name, "joints", description["joints"], wanted)
    feet = description["feet"]
    if not isinstance(feet, list | tuple) or not feet:
        raise _wrong(name, "feet", feet, "must be two lists of names of spheres, the left foot first")
    if len(feet) != FEET:
        raise TwinaxError(f"the description of {name} has {len(feet)} feet; there must be {FEET}, the left one first")
    for foot in feet:
        if not isinstance(foot, list | tuple) or not all(map(_is_name, foot)):
            raise _wrong(name, "feet", foot, "must hold a list of names of spheres for each foot")
    sizes = [len(foot) for foot in feet]
    if len(set(sizes)) > 1 or 0 in sizes:
        raise TwinaxError(f"the feet of {name} have {', '.join(map(str, sizes))} points; give as many for each")


def _wrong(name: str, key: str, value: Any, wanted: str) -> TwinaxError:
    given = "is empty" if value is None or value == [] else f"has {value!r}"
    return TwinaxError(f"'{key}' in the description of {name} {given}; it {wanted}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_name, value))
