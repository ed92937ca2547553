"""Proof that an environment's rules fit together: small worlds are enumerated, large ones are walked at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._black_box import black_boxes
from twinax.envs._broken_rule import fail, refuse
from twinax.envs._check_frameworks import check_frameworks
from twinax.envs._check_structure import check_hashable as check_hashable
from twinax.envs._check_structure import check_structure
from twinax.envs._check_walks import WALKS, at_source, walk_back, wander
from twinax.envs._enumeration import TooManyStates, discover, levels
from twinax.envs._environment import Environment
from twinax.envs.state_rows import equal, pick, size_of
from twinax.errors import TwinaxError
from twinax.networks import KHot, Tokens, flat


@dataclass(frozen=True)
class EnvReport:
    """What was looked at; a rule that does not hold raises instead."""

    enumerated: bool
    """Whether every state was visited; otherwise the states are those of random walks."""
    states: int
    """States looked at, done ones included."""
    done: int
    """How many of them are done."""
    edges: int
    """Forward transitions looked at."""
    longest: int
    """Length of the longest trajectory met, in actions."""
    frameworks: tuple[str, ...]
    """Frameworks in which the rules gave the same results."""


HIGHEST = 1e15
"""A log-reward of this size has a square, and a batch of squares a sum, that a float32 holds."""
EDGES = 50_000
"""Edges looked at in a world that is not enumerated."""
TRIED = 64
"""Actions that are tried one by one where they must not matter, however many a world has."""
QUICK_LIMIT = 1000
"""States that a quick check enumerates at most."""
QUICK_ASKED = 32
"""Objects whose rewards a quick check asks a `BlackBox` for: each may take a second."""
QUICK_WALKS, QUICK_STATES = 16, 128
"""Walks of a quick check through worlds that have more, and states of those walks that rules are checked on."""


@checked
def check_env(env: Environment, limit: int = 50_000, seed: int = 0, quick: bool = False) -> EnvReport:
    """Check every rule of an environment; the first one that is broken raises, with its state and action.

    Worlds of up to `limit` states are enumerated; larger ones are walked at random, forwards and backwards. A `quick`
    check, which runs before every training, holds the same rules in a fraction of a second: it looks at fewer states,
    and in JAX it only traces the rules, without comparing what they give.

    >>> from twinax.envs import Hypergrid
    >>> check_env(Hypergrid(dim=2, side=4)).states
    32
    """
    return inspect_env(env, limit, seed, quick)[0]


def inspect_env(
    env: Environment,
    limit: int = 50_000,
    seed: int = 0,
    quick: bool = False,
    frameworks: Sequence[str] = ("numpy", "jax", "torch"),
) -> tuple[EnvReport, Any]:
    """The same, in some frameworks only; and the states that were met."""
    rng = np.random.default_rng(seed)
    check_structure(env)
    _check_shapes(env, env.reset(3))
    _check_reset(env)
    try:
        states, _, _, target = discover(env, min(limit, QUICK_LIMIT) if quick else limit)
    except TooManyStates:
        states, target = wander(env, rng, QUICK_WALKS if quick else WALKS), None
    met = states
    if quick and target is None:
        chosen = np.asarray(met.done).copy()  # the ends of all walks, and some states of the way
        chosen[rng.permutation(size_of(met))[:QUICK_STATES]] = True
        states = pick(met, np.flatnonzero(chosen))
    _check_shapes(env, states)
    _check_ends(env, states)
    row, action = (x.astype(np.int32) for x in np.nonzero(env.forward_mask(states)))
    if target is None and len(row) > EDGES:
        chosen = np.sort(rng.permutation(len(row))[:EDGES])
        row, action = row[chosen], action[chosen]
    children = env.step(pick(states, row), action)
    _check_forward(env, pick(states, row), action, children)
    _check_sources(env, states)
    _check_backward(env, states)
    if target is None:
        lengths = walk_back(env, states, rng)
        longest = int(lengths.max())
        _check_fixed_length(env, states, lengths)
    else:
        longest = _check_graph(env, states, row, action, target)
        walk_back(env, pick(states, rng.permutation(size_of(states))[:2048]), rng)
    finished = np.flatnonzero(_finished(env, states))
    if quick and any(black_boxes(env)):
        finished = np.sort(rng.permutation(finished)[:QUICK_ASKED])
    objects = pick(states, finished)
    _check_values(env, objects)
    some, few = np.sort(rng.permutation(len(row))[:128]), np.sort(rng.permutation(len(finished))[:128])
    edges = pick(states, row[some]), action[some]
    same = check_frameworks(env, *edges, pick(objects, few), frameworks, traced=quick)
    done = int(np.asarray(states.done).sum())
    return EnvReport(target is not None, size_of(states), done, len(row), longest, same), met


def _some(actions: int) -> list[int]:
    """All numbers of actions, or some between the first and the last."""
    return np.unique(np.linspace(0, actions - 1, min(actions, TRIED)).astype(int)).tolist()


def _check_reset(env: Environment) -> None:
    states = env.reset(3)
    refuse(~equal(states, pick(states, np.zeros(3, int))), states, "reset gives more than one source state")
    refuse(np.asarray(states.done), states, "the source state is done")
    moved = env.step(states, env.forward_mask(states).argmax(1).astype(np.int32))
    if jtu.tree_structure(states) != jtu.tree_structure(moved):
        raise TwinaxError(f"step turns a state from {jtu.tree_structure(states)} into {jtu.tree_structure(moved)}")
    for before, after in zip(jtu.tree_leaves(states), jtu.tree_leaves(moved), strict=True):
        if before.shape != after.shape or before.dtype != after.dtype:
            kinds = f"{before.dtype}{before.shape} into {after.dtype}{after.shape}"
            raise TwinaxError(f"step turns an array of the state from {kinds}; shape and dtype must be kept")


def _check_shapes(env: Environment, states: Any) -> None:
    number = size_of(states)
    masks = {"forward_mask": (env.forward_mask, env.num_actions)}
    masks["backward_mask"] = (env.backward_mask, env.num_backward_actions)
    for name, (function, actions) in masks.items():
        mask = np.asarray(function(states))
        if mask.shape != (number, actions) or mask.dtype != bool:
            raise TwinaxError(f"{name} gives {mask.dtype}{mask.shape}, but it must be bool{(number, actions)}")
    seen = env.observe(states)
    if isinstance(seen, Tokens):
        bad = ((seen.ids < 0) | (seen.ids >= seen.vocabulary)).any(-1)
        refuse(bad, states, f"observe gives a token outside 0..{seen.vocabulary - 1}")
    seen = flat(seen)
    if isinstance(seen, KHot):
        bad = ((seen.indices < 0) | (seen.indices >= seen.size)).any(-1)
        refuse(bad, states, f"observe gives an index outside 0..{seen.size - 1}")
        ordered = np.sort(seen.indices, -1)
        refuse((ordered[:, 1:] == ordered[:, :-1]).any(-1), states, "observe gives the same index twice in a KHot")
        shapes = [(seen.indices.shape[0], seen.size)]
    else:
        shapes = [np.shape(leaf) for leaf in jtu.tree_leaves(seen)]
    for shape in shapes:
        if shape[:1] != (number,):
            raise TwinaxError(f"observe gives an array of shape {shape} for {number} states; they come first")
    if not isinstance(seen, KHot):
        for leaf in jtu.tree_leaves(seen):
            refuse(~np.isfinite(leaf).reshape(number, -1).all(1), states, "observe gives a value that is not finite")
    # A world that shows a flat row may say how wide it is, for an MLP; any other tree is for a network of its own.
    if type(env).observation_size is not Environment.observation_size and shapes != [(number, env.observation_size)]:
        raise TwinaxError(
            f"observe gives the shape {shapes[0]}, but observation_size={env.observation_size} asks for "
            f"{(number, env.observation_size)}"
        )
    ratio = env.log_paths_ratio(states)
    if ratio is not None:
        if np.shape(ratio) != (number, env.num_backward_actions):
            wanted = (number, env.num_backward_actions)
            raise TwinaxError(f"log_paths_ratio gives the shape {np.shape(ratio)}, but it must be {wanted}")
        bad = ~np.isfinite(ratio) & np.asarray(env.backward_mask(states))
        refuse(bad.any(1), states, "log_paths_ratio is not finite for an allowed backward action", bad.argmax(1))


def _check_ends(env: Environment, states: Any) -> None:
    done, allowed = np.asarray(states.done), env.forward_mask(states)
    refuse(done & allowed.any(1), states, "a done state allows a forward action", allowed.argmax(1))
    refuse(~done & ~allowed.any(1), states, "a state that is not done allows no forward action")
    finished = pick(states, np.flatnonzero(done))
    for action in _some(env.num_actions):
        actions = np.full(size_of(finished), action, np.int32)
        stayed = equal(env.step(finished, actions), finished)
        refuse(~stayed, finished, "a done state does not stay as it is under step", actions)


def _check_forward(env: Environment, states: Any, action: np.ndarray, children: Any) -> None:
    refuse(equal(children, states), states, "an allowed forward action does not change the state", action)
    stop = (action == env.num_actions - 1) if env.stops else np.zeros(len(action), bool)
    if env.stops:
        ended = np.asarray(children.done)
        refuse(ended != stop, states, "the stop action, and in a world that stops nothing else, must end it", action)
        halted, copies = pick(children, np.flatnonzero(stop)), pick(states, np.flatnonzero(stop))
        for undo in _some(env.num_backward_actions):
            undone = env.backward_step(halted, np.full(size_of(halted), undo, np.int32))
            refuse(~equal(undone, copies), copies, "backward_step does not undo the stop action", action[stop])
    rest = np.flatnonzero(~stop)
    states, action, children = pick(states, rest), action[rest], pick(children, rest)
    undo = np.asarray(env.backward_action(children, action))
    inside = (undo >= 0) & (undo < env.num_backward_actions)
    refuse(~inside, states, f"backward_action gives a number outside 0..{env.num_backward_actions - 1}", action)
    allowed = env.backward_mask(children)[np.arange(len(undo)), undo]
    refuse(~allowed, states, "the backward mask forbids the way back of an allowed forward action", action)
    back = equal(env.backward_step(children, undo), states)
    refuse(~back, states, "backward_step does not undo step", action)
    again = np.asarray(env.forward_action(children, undo)) == action
    refuse(~again, states, "forward_action does not invert backward_action", action)


def _check_sources(env: Environment, states: Any) -> None:
    source, done = at_source(env, states), np.asarray(states.done)
    mask = env.backward_mask(states)
    parents = mask.any(1)
    refuse(source & parents, states, "the source allows a backward action", mask.argmax(1))
    if env.stops:
        refuse(done & parents, states, "a stopped state allows a backward action", mask.argmax(1))
    inner = ~source & ~(done & env.stops)
    refuse(inner & ~parents, states, "a second source: a state other than the source has no parent")
    total = np.where(mask, ops.softmax(np.zeros(mask.shape), mask), 0.0).sum(1)
    refuse(inner & (np.abs(total - 1) > 1e-9), states, "the uniform backward policy does not sum to 1")


def _check_backward(env: Environment, states: Any) -> None:
    row, undo = (x.astype(np.int32) for x in np.nonzero(env.backward_mask(states)))
    children = pick(states, row)
    parents = env.backward_step(children, undo)
    action = np.asarray(env.forward_action(children, undo))
    inside = (action >= 0) & (action < env.num_actions)
    refuse(~inside, children, f"forward_action gives a number outside 0..{env.num_actions - 1}", undo)
    allowed = env.forward_mask(parents)[np.arange(len(action)), action]
    refuse(~allowed, children, "the backward mask allows a parent whose forward mask forbids the way there", undo)
    refuse(~equal(env.step(parents, action), children), children, "step does not redo an allowed backward_step", undo)


def _check_graph(env: Environment, states: Any, row: np.ndarray, action: np.ndarray, target: np.ndarray) -> int:
    """Rules about the graph as a whole; the length of its longest path."""
    level = levels(states, row, target)
    rest = np.flatnonzero(action != env.num_actions - 1) if env.stops else np.arange(len(action))
    undo = np.asarray(env.backward_action(pick(states, target[rest]), action[rest]))
    reached = np.zeros((size_of(states), env.num_backward_actions), bool)
    reached[target[rest], undo] = True
    extra = env.backward_mask(states) & ~reached
    refuse(extra.any(1), states, "a second source: a parent cannot be reached from the source", extra.argmax(1))
    longest = int(level.max())
    if longest != env.max_steps:
        fail(
            f"the longest trajectory has {longest} actions, but max_steps is {env.max_steps}",
            states,
            int(level.argmax()),
        )
    skipped = level[target] != level[row] + 1  # a shorter way to the same state
    if env.fixed_length and skipped.any():
        fail(
            "fixed_length holds in no world where two paths to a state differ in length",
            states,
            int(target[skipped.argmax()]),
        )
    _check_fixed_length(env, states, level)
    ratio = env.log_paths_ratio(states)
    if ratio is not None:
        _check_path_counts(states, level, row, target, rest, undo, np.asarray(ratio, np.float64))
    return longest


def _check_fixed_length(env: Environment, states: Any, lengths: np.ndarray) -> None:
    """Some length of a path from the source to each state; where all are equal, that of any path will do."""
    other = np.asarray(states.done) & (lengths != env.max_steps)
    if env.fixed_length and other.any():
        row = int(other.argmax())
        fail(f"fixed_length says {env.max_steps} actions for every trajectory, not {lengths[row]}", states, row)


def _check_path_counts(states, level, row, target, rest, undo, ratio) -> None:
    paths = np.full(size_of(states), -np.inf)
    paths[level == 0] = 0.0
    for k in range(level.max()):
        here = np.flatnonzero(level[row] == k)
        np.logaddexp.at(paths, target[here], paths[row[here]])
    # Both sides are fixed up to a constant per state: compare after taking out each state's total.
    counted, claimed = paths[row[rest]], ratio[target[rest], undo]
    for values in (counted, claimed):
        total = np.full(size_of(states), -np.inf)
        np.logaddexp.at(total, target[rest], values)
        values -= total[target[rest]]
    bad = ~(np.abs(counted - claimed) < 1e-6)
    refuse(bad, pick(states, target[rest]), "log_paths_ratio disagrees with the counted paths to a parent", undo)


def _finished(env: Environment, states: Any) -> np.ndarray:
    """Which states stand for an object: done ones, and those that could stop. Only these need to have a reward."""
    return np.asarray(states.done) | (np.asarray(env.forward_mask(states))[:, -1] & env.stops)


def _check_text(env: Environment, states: Any) -> None:
    """Before anything is said about an object."""
    try:
        text = env.text(jtu.tree_map(np.asarray, env.objects(states)), 0)
    except Exception as error:  # a stranger's rules may raise anything
        raise TwinaxError(f"text(objects, 0) fails with {type(error).__name__}: {error}") from error
    if not isinstance(text, str):
        raise TwinaxError(f"text(objects, 0) gives a {type(text).__name__}; it must be one line of text")


def _check_values(env: Environment, objects: Any) -> None:
    """Text, rewards and modes of finished states."""
    _check_text(env, objects)
    number, reward = size_of(objects), np.asarray(env.log_reward(objects))
    if reward.shape != (number,):
        raise TwinaxError(f"log_reward gives the shape {reward.shape} for {number} states; it must be ({number},)")
    if reward.dtype.kind != "f":
        raise TwinaxError(f"log_reward gives {reward.dtype}; it must be floats, such as float32")
    refuse(~np.isfinite(reward), objects, "the log-reward is not finite; rewards must be finite and above 0")
    refuse(np.abs(reward) > HIGHEST, objects, f"the log-reward is beyond {HIGHEST:g}; its square is no float32")
    for box in black_boxes(env):
        box.check(env, objects)
    if env.num_modes:
        if type(env).modes is Environment.modes:
            mode = np.asarray(env.mode(objects))
            bad = (mode < -1) | (mode >= env.num_modes)
            refuse(bad, objects, f"mode gives a number outside -1..{env.num_modes - 1}")
        modes = np.asarray(env.modes(objects))
        if modes.shape != (number, env.num_modes) or modes.dtype != bool:
            raise TwinaxError(
                f"modes gives {modes.dtype}{modes.shape}, but it must be bool{(number, env.num_modes)}: a column for "
                "each mode"
            )
