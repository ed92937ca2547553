"""The text of config.yaml: a sum over its lines in the first of them, plain data below."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError

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
    import yaml

    if first := _SUM.match(text):
        text = text[first.end() :]
        if first[1] != _digest(text):
            raise TwinaxError(
                f"{path} was changed after it was written: its sha256 is {_digest(text)[:12]}..., its first line says "
                f"{first[1][:12]}...; put it back and give settings as key=value after the command, or delete its "
                "first line to take the file as it is"
            )
    try:
        config = yaml.load(text, _without_aliases())
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise TwinaxError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise TwinaxError(f"{path} holds a {type(config).__name__}, not a configuration")
    return config, text


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """What never changes in a run, of its configuration.

    >>> identity({"seed": 3, "env": {"name": "grid", "side": 8}, "optimizer": {"name": "adam"}})
    {'seed': 3, 'env.name': 'grid'}
    """
    found = {name: config[name] for name in _FIXED if name in config}
    for name, section in config.items():
        if isinstance(section, dict) and "name" in section and name not in _FREE:
            found[f"{name}.name"] = section["name"]
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _without_aliases() -> Any:
    """YAML's safe loader, which builds no objects, without aliases: a few lines of them can stand for gigabytes."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias, which a run never writes")
            return super().compose_node(parent, index)

    return Loader
