"""Which layer of one module is which of another: by kind, then by name where these agree, else by order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from twinax.bridge.conversion._layers import NORMS, Found
from twinax.bridge.conversion._layouts import NEUTRAL, Arrays
from twinax.errors import TwinaxError, UnknownName

Pair = tuple[Found, Found]


def paired(
    source: Sequence[Found], target: Sequence[Found], names: Mapping[str, str], titles: tuple[str, str]
) -> list[Pair]:
    """Layers of the source and of the target; each has exactly one counterpart."""
    given = dict(_named(source, target, names))
    left = [layer for layer in source if layer.path not in {one.path for one in given.values()}]
    for kind in dict.fromkeys(layer.kind for layer in (*left, *target)):
        ours = [layer for layer in left if layer.kind == kind]
        theirs = [layer for layer in target if layer.kind == kind and layer.path not in given]
        if len(ours) != len(theirs):
            raise TwinaxError(
                f"the modules do not fit: the source in {titles[0]} has {_counted(ours, kind)} and the target in "
                f"{titles[1]} {_counted(theirs, kind)}; names={{target: source}} says which is which"
            )
        if kind == "array":
            ours = _of_one_name(ours, theirs, titles)
        by_path = {layer.path: layer for layer in ours}
        agree = all(layer.path in by_path for layer in theirs)
        given |= {b.path: by_path[b.path] if agree else a for a, b in zip(ours, theirs, strict=True)}
    pairs = [(given[layer.path], layer) for layer in target]
    for a, b in pairs:
        _check(a, b, titles)
    return pairs


def _of_one_name(ours: list[Found], theirs: list[Found], titles: tuple[str, str]) -> list[Found]:
    """Parameters of their own in the order of the target's: several are told apart by their names alone."""
    if len(ours) < 2:
        return ours
    short = {layer.path.rpartition(".")[2]: layer for layer in ours}
    names = [layer.path.rpartition(".")[2] for layer in theirs]
    if sorted(short) != sorted(names):
        raise TwinaxError(
            f"which of {_counted(ours, 'array')} in {titles[0]} is which of {_counted(theirs, 'array')} in {titles[1]} "
            "does not show in their names: say it with names={target: source}"
        )
    return [short[name] for name in names]


def _named(source: Sequence[Found], target: Sequence[Found], names: Mapping[str, str]) -> list[tuple[str, Found]]:
    here, there = ({layer.path: layer for layer in layers} for layers in (source, target))
    for key, value in names.items():
        for name, known in ((key, there), (value, here)):
            if name not in known:
                raise UnknownName("layer", name, known)
        if there[key].kind != here[value].kind:
            raise TwinaxError(f"{here[value]} cannot become {there[key]}, which is another kind of layer")
    return [(key, here[value]) for key, value in names.items()]


def _counted(layers: Sequence[Found], kind: str) -> str:
    word = "parameter of its own" if kind == "array" else kind.replace("_", " ")
    listed = ", ".join(str(layer) for layer in layers[:5]) + (", ..." if len(layers) > 5 else "")
    return f"no {word}" if not layers else f"{len(layers)} x {word} ({listed})"


def _check(a: Found, b: Found, titles: tuple[str, str]) -> None:
    """The shapes and heads of a pair, in PyTorch's layout."""
    heads = a.settings.get("heads"), b.settings.get("heads")
    if heads[0] != heads[1]:
        raise TwinaxError(f"{a} in {titles[0]} has {heads[0]} heads, but {b} in {titles[1]} has {heads[1]}")
    ours, theirs = a.ours, b.ours
    for name in (name for name in ours if name in theirs):
        if ours[name].shape != theirs[name].shape:
            hint = "; it looks transposed" if ours[name].shape == theirs[name].shape[::-1] else ""
            word = f"the {name} of {a}" if name else f"{a}"
            raise TwinaxError(
                f"{word} in {titles[0]} has shape {ours[name].shape}, but {b} in {titles[1]} needs "
                f"{theirs[name].shape}, both said in PyTorch's layout{hint}"
            )


def adapted(a: Found, b: Found, title: str) -> Arrays:
    """The arrays of a layer with those that its counterpart has besides; one that it cannot hold is an error."""
    ours, theirs = a.ours, b.ours
    for name in ours.keys() - theirs.keys():
        if not _is_neutral(name, ours[name], a.kind):
            raise TwinaxError(f"the {name} of {a} has no place in {b} of {title}, which has none")
    for name in theirs.keys() - ours.keys():
        if not _may_lack(name, a.kind):
            raise TwinaxError(f"{b} of {title} needs a {name}, but {a} has none")
    return {
        name: ours[name] if name in ours else np.full_like(array, NEUTRAL[name], _number(ours, array))
        for name, array in theirs.items()
    }


def _number(ours: Arrays, array: np.ndarray) -> np.dtype:
    return next(iter(ours.values())).dtype if ours else array.dtype


def _may_lack(name: str, kind: str) -> bool:
    return name in NEUTRAL and (name != "weight" or kind in NORMS)


def _is_neutral(name: str, array: np.ndarray, kind: str) -> bool:
    return _may_lack(name, kind) and bool(np.all(array == NEUTRAL[name]))
