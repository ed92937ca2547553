"""The text of config.yaml: a sum over its lines in the first of them, plain data below."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError
from twinax.runs import settings_file

_SUM = re.compile(r"# sha256 of the lines below: ([0-9a-f]{64})\n")
_FIXED = ("experiment", "seed", "seeds")
# Sections whose name is a setting like others; that of the rest says which world, agent or objective it is.
_FREE = ("run", "optimizer")


def dumps(config: Mapping[str, Any]) -> str:
    """A configuration as YAML under its sum.

    >>> loads(dumps({"seed": 3}), Path("config.yaml"))
    ({'seed': 3}, 'seed: 3\\n')
    """
    import yaml

    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    return f"# sha256 of the lines below: {_digest(text)}\n{text}"


def loads(text: str, path: Path) -> tuple[dict[str, Any], str]:
    """A configuration and its text without the sum; a changed one is refused.

    One without a sum is a person's own and taken as it is.
    """
    if first := _SUM.match(text):
        text = text[first.end() :]
        if first[1] != _digest(text):
            raise TwinaxError(
                f"{path} was changed after it was written: its sha256 is {_digest(text)[:12]}..., its first line says "
                f"{first[1][:12]}...; put it back and give settings as key=value after the command, or delete its "
                "first line to take the file as it is"
            )
    return settings_file.parse(text, path), text


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What never changes in a run, of its configuration.

    >>> identity({"seed": 3, "env": {"name": "grid", "side": 8}, "optimizer": {"name": "adam"}})
    {'seed': 3, 'env.name': 'grid'}
    """
    fixed = {name: config[name] for name in _FIXED if name in config}
    for name, section in config.items():
        if isinstance(section, dict) and "name" in section and name not in _FREE:
            fixed[f"{name}.name"] = section["name"]
    return fixed


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
