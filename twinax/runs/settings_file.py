"""A stored configuration read as plain values: text, numbers, true, false and null in lists and named sections.

A run may come from anybody. YAML can do more than a configuration needs (aliases that unfold to gigabytes, objects,
keys given twice), and each of those is refused by its key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from twinax.errors import TwinaxError

LARGEST = 1_000_000
"""Characters of a configuration; those that this library writes have a few thousand."""
_TAG = "tag:yaml.org,2002:"
_SCALARS = {_TAG + name for name in ("null", "bool", "int", "float", "str")}


class _Refused(Exception):
    """What is wrong, as the second half of a sentence."""


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _Refused(f"line {self.peek_event().start_mark.line + 1} repeats a part by an alias; write it out")
        return super().compose_node(parent, index)


def parse(text: str, source: Path | str) -> dict[str, Any]:
    """The values of a configuration, or one sentence on why it is none that names its source.

    >>> parse("seed: 3\\ntrainer: {mode: jax}", "config.yaml")
    {'seed': 3, 'trainer': {'mode': 'jax'}}
    """
    try:
        if len(text) > LARGEST:
            raise _Refused(f"it has more than {LARGEST:,} characters, so it is no configuration")
        loader = _Loader(text)
        root = loader.get_single_node()
        values = None if root is None else _value(loader, root, "")
    except (yaml.YAMLError, _Refused) as error:
        raise TwinaxError(f"{source} cannot be read: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise TwinaxError(f"{source} cannot be read: its values are nested too deeply") from error
    if not isinstance(values, dict):
        raise TwinaxError(f"{source} holds a {type(values).__name__}, not a configuration")
    return values


def _value(loader: _Loader, node: Any, key: str) -> Any:
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        mapping: dict[str, Any] = {}
        for name, value in node.value:
            if name.tag != _TAG + "str":
                raise _Refused(f"line {name.start_mark.line + 1} has the key '{name.value}', which is no text")
            inner = f"{key}.{name.value}" if key else name.value
            if name.value in mapping:
                raise _Refused(f"the key '{inner}' is there twice, again in line {name.start_mark.line + 1}")
            mapping[name.value] = _value(loader, value, inner)
        return mapping
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        return [_value(loader, value, key) for value in node.value]
    if node.tag not in _SCALARS:
        raise _Refused(f"{key or 'it'} is a {node.tag.removeprefix(_TAG)}, not text, a number, true, false or null")
    try:
        return loader.construct_object(node)
    except (ValueError, KeyError) as error:  # such as a number of more digits than Python converts
        raise _Refused(f"{key or 'it'} is no {node.tag.removeprefix(_TAG)}: {error}") from error
