"""The states that a batch of trajectories has visited, in one list, which a network sees in one pass."""

from __future__ import annotations

import dataclasses
from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._trajectories import Given, Trajectories
from twinax.types import Array, Bool, Float, Int


@tree.record
class Visited:
    """The visited states of all trajectories in one list, and all that a loss needs of them besides networks.

    None of it depends on parameters, so it is worked out once, outside of differentiation and of the choice
    of a size.
    """

    states: Any
    """The states, trajectory after trajectory, and rows after the last repeat the first; time after time where all
    trajectories have one length."""
    forward_mask: Bool[Array, "rows actions"]
    action: Int[Array, " rows"]
    """The action taken in each state (padding in a final state)."""
    undo: Int[Array, " rows"]
    """The backward action that undoes the action which led to each state (padding in the source)."""
    places: Any
    """Row of state t of each trajectory, row of state t + 1, and whether there are such rows, each (time, batch); None
    where all trajectories have one length, whose rows then lie in the order of the grid."""
    valid: Bool[Array, "time batch"]
    """True for actions that were taken."""
    length: Int[Array, " batch"]
    log_reward: Float[Array, " batch"]
    """log R of the finished objects."""
    count: Int[Array, ""]
    """Rows in use."""
    given: Given
    weight: Any
    """How often each trajectory counts, (batch,); None: each once."""
    learners: Any
    """Which forward heads learn from each trajectory, (batch, heads); None: the policy as it is."""
    last: Any
    """The finished states, where rows can be read from these token by token; otherwise None."""
    spot: Any
    """Row of each state among all tokens of the finished ones, in that case."""
    results: Any
    """What the layers of the networks give for the rows; None where that is not known."""
    known: Any = None
    """What the world knows of all rows that were made on the way; None where it makes none."""
    owner: Any = None
    """The trajectory of each state, in that case."""
    each: int | None = tree.static(default=None)
    """States of every time, where these are listed time by time."""

    def head(self, size: int) -> Visited:
        """Only the first rows; `size` is at least `count`."""
        cut = {"states": tree.map_leaves(lambda x: x[:size], self.states)}
        more = (name for name in ("spot", "owner") if getattr(self, name) is not None)
        names = ("forward_mask", "action", "undo", *more)
        cut |= {name: getattr(self, name)[:size] for name in names}
        return dataclasses.replace(self, **cut)

    def without_ends(self) -> Visited:
        """Only the states in which an action was taken, where all trajectories have one length."""
        times, batch = self.valid.shape
        return self.head(times * batch)

    def grid(self, row: Float[Array, "rows ..."]) -> Float[Array, "time batch"]:
        """Values of rows on the grid: state t of each trajectory, 0 where there is none; those of heads adjoin."""
        return self._on_grid(row, 0)

    def next_grid(self, row: Float[Array, "rows ..."]) -> Float[Array, "time batch"]:
        """The same for state t + 1."""
        return self._on_grid(row, 1)

    def next_present(self) -> Bool[Array, "time batch"]:
        """Whether there is a row of state t + 1."""
        if self.places is not None:
            return self.places[1][1]
        times, batch = self.valid.shape
        number = ops.arange(times * batch, self.action).reshape(times, batch)
        return number + batch < self.action.shape[0]

    def _on_grid(self, row: Array, later: int) -> Array:
        (times, batch), more = self.valid.shape, row.shape[1:]
        if self.places is not None:
            place, present = self.places[later]
            values = ops.where(present[..., None] if more else present, ops.take(row, place), 0.0)
        else:
            values = row[later * batch : (later + times) * batch]
            if (missing := times * batch - values.shape[0]) > 0:
                values = ops.concat([values, ops.zeros((missing, *more), row)])
        return values.reshape(times, -1) if more else values.reshape(times, batch)


def num_rows(env: Environment, trajectories: Trajectories) -> Int[Array, ""]:
    """How many states a network has to see: those before a stop, or all where the rules end a trajectory."""
    return ops.sum(_row_counts(env, trajectories))


def _row_counts(env: Environment, trajectories: Trajectories) -> Int[Array, " batch"]:
    return trajectories.length + (0 if env.stops else 1)


def visit(env: Environment, trajectories: Trajectories, size: int | None = None) -> Visited:
    """List the visited states in `size` rows: by default as many as there are, or in JAX as there can be."""
    env = env.given(trajectories.given.constants)
    if env.fixed_length and size is None:
        return _visit_all(env, trajectories)
    trajectories = trajectories.trimmed()
    times, batch = trajectories.actions.shape
    if size is None and ops.framework(trajectories.actions) == "jax":
        size = batch * (times + (0 if env.stops else 1))
    count = _row_counts(env, trajectories)
    end = ops.cast(ops.cumsum(count), "int32")
    start = end - count
    row = ops.arange(int(end[-1]) if size is None else size, count)
    trajectory = ops.searchsorted(end, row, right=True)
    inside = trajectory < batch
    trajectory = ops.where(inside, trajectory, 0)
    time = ops.where(inside, row - ops.take(start, trajectory), 0)

    def gather(x, time):
        flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        return ops.take(flat, ops.cast(time * batch + trajectory, "int32"))

    def places(shift):
        t = ops.arange(times, count)[:, None] + shift
        there = t < count[None]
        return ops.cast(ops.where(there, start[None] + t, 0), "int32"), there

    states = tree.map_leaves(lambda x: gather(x, time), trajectories.states)
    action = gather(trajectories.actions, ops.clip(time, 0, times - 1))
    previous = gather(trajectories.actions, ops.clip(time - 1, 0, times - 1))
    valid = ops.arange(times, count)[:, None] < trajectories.length[None]
    where = trajectory, time
    on_grid = places(0), places(1)
    return _listed(env, trajectories, states, action, previous, valid, ops.sum(count), on_grid, where)


def _visit_all(env: Environment, trajectories: Trajectories) -> Visited:
    """The same where all trajectories have one length: nothing has to be gathered."""
    times, batch = trajectories.actions.shape
    rows = times + (0 if env.stops else 1)

    def flat(x, times=rows):
        return x[:times].reshape(times * batch, *x.shape[2:])

    actions = trajectories.actions
    action = flat(actions) if env.stops else ops.concat([flat(actions, times), actions[-1]])
    previous = ops.concat([actions[0], flat(actions, rows - 1)])
    number = ops.arange(rows * batch, actions)
    valid = number[: times * batch].reshape(times, batch) >= 0
    states = tree.map_leaves(flat, trajectories.states)
    count = ops.zeros((), actions, "int32") + rows * batch
    where = number % batch, number // batch
    listed = _listed(env, trajectories, states, action, previous, valid, count, None, where)
    return dataclasses.replace(listed, each=batch)


def _listed(
    env: Environment,
    trajectories: Trajectories,
    states: Any,
    action: Array,
    previous: Array,
    valid: Array,
    count: Array,
    places: Any,
    where: tuple[Array, Array],
) -> Visited:
    last = trajectories.last
    spot = known = None
    if env.in_order:
        trajectory, time = where
        spot = ops.cast(trajectory * env.observe(last).ids.shape[-1] + time, "int32")
    if env.made_rows is not None:
        known = env.made_rows.known(last)
    return Visited(
        states=states,
        forward_mask=env.forward_mask(states),
        action=action,
        undo=ops.clip(env.backward_action(states, previous), 0, env.num_backward_actions - 1),
        places=places,
        valid=valid,
        length=trajectories.length,
        log_reward=env.log_reward(last),
        count=count,
        given=trajectories.given,
        weight=trajectories.weight,
        learners=trajectories.learners,
        last=last if env.in_order else None,
        spot=spot,
        results=tree.map_leaves(lambda x: x.reshape(-1, x.shape[-1]), trajectories.results),
        known=known,
        owner=None if known is None else where[0],
    )
