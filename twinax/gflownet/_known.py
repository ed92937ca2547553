"""Known objects from a file, with which a replay begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.envs import Environment
from twinax.envs.state_rows import equal, pick, show, size_of
from twinax.errors import TwinaxError
from twinax.gflownet._trajectories import backward_rollout, undo_draws
from twinax.noise import numpy_draws
from twinax.npz_files import read_npz

AT_ONCE = 1024
"""Objects that are walked back side by side."""


def known_objects(env: Environment, path: str | Path) -> Any:
    """The finished states in an .npz file, as NumPy arrays, if the rules reach each of them.

    The file has an array for each part of the state, by its name, one object a row; `done` may be left out. Or it has
    one array `objects`, where the world's `states_of` makes states of them.

    >>> known_objects(Hypergrid(dim=2, side=8), "known.npz")  # doctest: +SKIP
    GridState(position=array(...), done=array(...))
    """
    arrays = _arrays(Path(path))
    source = tree.named_leaves(env.reset(1))
    if set(arrays) == {"objects"} and "objects" not in source:
        states = _from_objects(env, arrays["objects"], path)
    else:
        states = _by_name(env, arrays, path)
    for name, (leaf, like) in _pairs(states, source, path).items():
        if leaf.shape[1:] != like.shape[1:]:
            _refuse(path, f"the array '{name}' has rows of shape {leaf.shape[1:]}; in {env} they are {like.shape[1:]}")
    if not size_of(states):
        _refuse(path, "there is no object in it")
    for first in range(0, size_of(states), AT_ONCE):
        _refuse_unreached(env, pick(states, np.arange(first, min(first + AT_ONCE, size_of(states)))), first, path)
    return states


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_npz(path)
    except FileNotFoundError as error:
        raise TwinaxError(f"replay.file={path} is not there") from error
    except OSError as error:
        raise TwinaxError(f"replay.file={path} cannot be read: {error.strerror}") from error
    except TwinaxError as error:  # which begins with the path
        raise TwinaxError(f"replay.file={error}") from error


def _by_name(env: Environment, arrays: dict[str, np.ndarray], path: str | Path) -> Any:
    source = env.reset(1)
    like = tree.named_leaves(source)
    names, done = set(like), {name for name, leaf in like.items() if leaf is source.done}
    unknown, missing = sorted(set(arrays) - names), sorted(names - set(arrays) - done)
    if unknown or missing:
        what = f"unknown {', '.join(unknown)}" if unknown else f"missing {', '.join(missing)}"
        _refuse(path, f"its arrays are not those of a state of {env}: {what}; they are {', '.join(sorted(names))}")
    rows = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(rows.values())) > 1:
        _refuse(path, "its arrays have different numbers of rows: " + ", ".join(f"{k} {n}" for k, n in rows.items()))
    number = max(rows.values(), default=0)
    full = {name: arrays.get(name, np.ones(number, bool)) for name in like}
    return tree.with_leaves(source, {name: _converted(full[name], like[name], name, path) for name in like})


def _converted(array: np.ndarray, like: np.ndarray, name: str, path: str | Path) -> np.ndarray:
    if array.dtype.kind not in "biuf":
        _refuse(path, f"the array '{name}' holds {array.dtype}, not numbers")
    if not np.isfinite(array).all():
        _refuse(path, f"the array '{name}' has entries that are not finite numbers")
    with np.errstate(all="ignore"):
        converted = array.astype(like.dtype)
    if like.dtype.kind != "f" and not (converted == array).all():
        _refuse(path, f"the array '{name}' has entries that are no {like.dtype}")
    return converted


def _from_objects(env: Environment, objects: np.ndarray, path: str | Path) -> Any:
    try:
        states = env.states_of(objects)
    except (ValueError, IndexError, TypeError, KeyError) as error:
        _refuse(path, f"{type(env).__name__}.states_of cannot read its objects: {error}", error)
    if states is None:
        names = ", ".join(sorted(tree.named_leaves(env.reset(1))))
        _refuse(path, f"it has objects, but {type(env).__name__} makes no states of them; save the arrays {names}")
    shown = env.objects(states)
    if isinstance(shown, np.ndarray) and shown.shape == objects.shape and (other := np.argwhere(shown != objects)).size:
        place = tuple(other[0])
        _refuse(path, f"row {place[0]} of its objects has {objects[place]}, which the world reads as {shown[place]}")
    return states


def _pairs(states: Any, source: dict[str, Any], path: str | Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    leaves = tree.named_leaves(states)
    if set(leaves) != set(source):
        _refuse(path, f"states_of made the arrays {', '.join(leaves)}; a state has {', '.join(source)}")
    return {name: (np.asarray(leaves[name]), source[name]) for name in source}


def _refuse_unreached(env: Environment, states: Any, first: int, path: str | Path) -> None:
    """Walk back to the source and forth again: a state that rules reach is found again."""
    number = size_of(states)

    def refuse(good: np.ndarray, why: str) -> None:
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            _refuse(path, f"row {first + row} ({show(states, row)}) is {why} in {env}")

    refuse(np.asarray(states.done), "not finished")
    uniform = numpy_draws({"undo": undo_draws(env, number)}, 0, 0)["undo"]
    try:
        walk = backward_rollout(env, lambda s: 0.0 * ops.cast(env.backward_mask(s), uniform), states, uniform)
        here, good = env.reset(number), np.ones(number, bool)
        good &= equal(here, jtu.tree_map(lambda x: x[0], walk.states))
        for time in range(env.max_steps):
            going, action = time < walk.length, walk.actions[time]
            good &= np.take_along_axis(np.asarray(env.forward_mask(here)), action[:, None], 1)[:, 0] | ~going
            here = env.step(here, action)
        good &= equal(here, states)
    except (IndexError, ValueError) as error:
        _refuse(path, f"the rules of {env} cannot read its states: {error}", error)
    refuse(good, "no state that the rules reach")


def _refuse(path: str | Path, why: str, error: Exception | None = None) -> NoReturn:
    raise TwinaxError(f"replay.file={path} cannot be used: {why}") from error
