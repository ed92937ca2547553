"""Which keys exist: for suggestions, for `twinax list keys`, and for choices that lack a key."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from twinax.conf._aliases import all_keys
from twinax.conf._mirror import CHOSEN
from twinax.conf._registry import Experiment, Preset
from twinax.errors import TwinaxError


def known_keys(experiment: Experiment) -> dict[str, Any]:
    """Every dotted key with its default, over all choices of all groups."""
    keys: dict[str, Any] = {}
    for section in _sections(experiment):
        keys.update(section)
    return keys


def choices_with(experiment: Experiment, key: str) -> list[str]:
    """Group choices that have a key, as `group=choice`; empty when it is in no group."""
    group_name = key.partition(".")[0]
    group = experiment.groups.get(group_name)
    if group is None:
        return []
    nodes = {name: _group_node(group_name, choice) for name, choice in group.choices.items()}
    return [f"{group_name}={name}" for name, node in nodes.items() if key in dict(_leaves(node, f"{group_name}."))]


def unknown_key(key: str, experiment: Experiment, choices: Mapping[str, str] | None = None) -> TwinaxError:
    """The error for a key that is not there, with the closest one: of the `choices` of its group, if there is one."""
    if key in experiment.hints:
        return TwinaxError(f"there is no key '{key}' here: {experiment.hints[key]}")
    owners = choices_with(experiment, key)
    if owners:
        return TwinaxError(f"'{key}' belongs to {' or '.join(owners)}; choose that, or leave the key out")
    if own := _of_choice(key, experiment, choices or {}):
        return TwinaxError(f"unknown key '{key}'; {own}")
    names = [*known_keys(experiment), *experiment.groups, "experiment"]
    older = {name: target for name, target in all_keys(experiment).items() if isinstance(target, str)}
    close = difflib.get_close_matches(key, [*names, *older], n=1, cutoff=0.6) or _same_last_part(key, [*names, *older])
    meant = older.get(close[0], close[0]) if close else None
    hint = f"did you mean '{meant}'?" if meant else "`twinax list keys` shows all of them"
    return TwinaxError(f"unknown key '{key}'; {hint}")


def _of_choice(key: str, experiment: Experiment, choices: Mapping[str, str]) -> str:
    """What is near a key, or which keys there are, in the choice of its group that was named."""
    group, _, name = key.partition(".")
    made = experiment.groups[group].choices.get(choices[group]) if name and group in choices else None
    names = [] if made is None else [leaf for leaf, _ in _leaves(_group_node(group, made), f"{group}.")]
    if not names:
        return ""
    if close := difflib.get_close_matches(key, names, n=1, cutoff=0.8):
        return f"did you mean '{close[0]}'?"
    return f"{group}={choices[group]} has {', '.join(leaf for leaf in names if leaf != f'{group}.name')}"


def documentation(experiment: Experiment) -> list[tuple[str, str, Any, str]]:
    """(section, key, default, sentence) for every field: the text that stands under it in the source."""
    rows: dict[str, tuple[str, str, Any, str]] = {}
    for node, prefix in _nodes(experiment):
        sentences = _sentences(type(node))
        for key, value in _leaves(node, prefix):
            name = key.removeprefix(prefix)
            if "." not in name:
                chosen = f"Name of the choice that {prefix.rstrip('.')}=NAME makes." if name == "name" else ""
                sentence = " ".join((sentences.get(name) or chosen).split())  # where lines end in the source
                rows.setdefault(key, (prefix.rstrip("."), key, value, sentence))
    return list(rows.values())


def _nodes(experiment: Experiment) -> Iterator[tuple[Any, str]]:
    root = experiment.schema()
    yield root, ""
    for field in dataclasses.fields(root):
        value = getattr(root, field.name)
        if dataclasses.is_dataclass(value) and field.name not in experiment.groups:
            yield value, f"{field.name}."
    for name, group in experiment.groups.items():
        # The group's own default first: its values are the ones to show.
        for choice in sorted(group.choices, key=lambda choice: choice != group.default):
            yield _group_node(name, group.choices[choice]), f"{name}."


def _sections(experiment: Experiment) -> Iterator[dict[str, Any]]:
    for node, prefix in _nodes(experiment):
        yield dict(_leaves(node, prefix))


def _group_node(name: str, choice: Any) -> Any:
    return choice.sections[name] if isinstance(choice, Preset) else choice


def _leaves(node: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if value == CHOSEN and not prefix:  # a group's section, which stands with its choices
            continue
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value


def _same_last_part(key: str, names: list[str]) -> list[str]:
    last = key.rpartition(".")[2]
    return [name for name in names if name.rpartition(".")[2] == last][:1]


def _sentences(section: type) -> dict[str, str]:
    """Field name to its sentence, base classes first."""
    sentences: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(section.__mro__)):
        own = {field.name for field in dataclasses.fields(base)}
        # A mirrored section has its text in the library, perhaps in several classes there, of which it may lack fields.
        made_of = base.__dict__.get("options")
        written = made_of.__mro__ if isinstance(made_of, type) else (base,)
        for kind in (one for one in reversed(written) if dataclasses.is_dataclass(one)):
            sentences |= {name: text for name, text in _written_under(kind).items() if name in own}
    return sentences


def _written_under(kind: Any) -> dict[str, str]:
    """Field name to the string under it in the source, or in `sentences` of a section that was made otherwise."""
    if "sentences" in kind.__dict__:
        return kind.__dict__["sentences"]
    try:
        source = inspect.getsource(kind)
    except OSError:  # made while a program runs, as somebody's code and sections of functions are
        return {}
    body = ast.parse(textwrap.dedent(source)).body[0].body  # type: ignore[attr-defined]
    return {
        field.target.id: inspect.cleandoc(ast.literal_eval(text.value))
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    }
