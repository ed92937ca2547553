"""Rolling out a policy, forwards from the source and backwards from finished objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._exploration import action_draws, sample_actions
from twinax.gflownet._reading import Logits, Reader
from twinax.noise import Draw
from twinax.types import Array, Bool, Float, Int


@tree.record
class Given:
    """What a loss is given besides networks and trajectories: no parameter enters it."""

    constants: dict[str, Any] = field(default_factory=dict)
    """Those of the world, in the framework of the engine."""
    targets: Any = None
    """Networks that follow the trained ones slowly, or stand still; None where there are none."""
    contrast: Any = None
    """Data and fakes, as a `Contrast`, where the reward is learned; otherwise None."""
    intrinsic: Any = None
    """Scale of the rewards for what is new; None where there are none."""


@tree.record
class Trajectories:
    """A batch of trajectories, time first; entries at and after `length` are padding."""

    states: Any
    """States 0..length of each trajectory, leaves of shape (time + 1, batch, ...)."""
    actions: Int[Array, "time batch"]
    length: Int[Array, " batch"]
    """Number of actions."""
    given: Given = field(default_factory=Given)
    weight: Any = None
    """How often each trajectory counts in a loss, (batch,); None: each once."""
    learners: Any = None
    """Which forward heads learn from each trajectory, (batch, heads); None: the policy as it is."""
    results: Any = None
    """What the layers of the networks that are trained give in each state that a loss asks about, (time, batch, width);
    None where that is not known."""

    def trimmed(self) -> Trajectories:
        """Without the time after the longest trajectory, where shapes may depend on data (not in JAX)."""
        longest = ops.max(self.length)
        states = tree.map_leaves(lambda x: ops.used(x, longest + 1), self.states)
        return dataclasses.replace(self, states=states, actions=ops.used(self.actions, longest))

    @property
    def last(self) -> Any:
        """The final state of each trajectory: padding repeats it."""
        return tree.map_leaves(lambda x: x[-1], self.states)


def joined(env: Environment, parts: Sequence[Trajectories]) -> Trajectories:
    """Several batches of trajectories as one."""
    if len(parts) == 1:
        return parts[0]
    if not env.fixed_length:
        parts = [_padded(one) for one in parts]
    states = tree.map_leaves(lambda *each: ops.concat(each, 1), *(one.states for one in parts))
    actions, length = (ops.concat([getattr(one, name) for one in parts], -1) for name in ("actions", "length"))
    learners = [one.learners for one in parts]
    heads = None if any(one is None for one in learners) else ops.concat(learners)
    return Trajectories(states, actions, length, parts[0].given, _joined_weights(parts), heads)


def _joined_weights(parts: Sequence[Trajectories]) -> Any:
    like = next((one.weight for one in parts if one.weight is not None), None)
    if like is None:
        return None
    each = (ops.full(one.length.shape, 1.0, like) if one.weight is None else one.weight for one in parts)
    return ops.concat(list(each), -1)


def _padded(one: Trajectories) -> Trajectories:
    """The final state stands in all of the padding: another batch's longest trajectory may be longer."""
    ended = ops.arange(one.actions.shape[0] + 1, one.length)[:, None] > one.length[None]

    def fill(x):
        return ops.where(ended.reshape(*ended.shape, *[1] * (x.ndim - 2)), x[-1][None], x)

    return dataclasses.replace(one, states=tree.map_leaves(fill, one.states))


def rollout_draws(env: Environment, batch: int) -> dict[str, Draw]:
    """What `forward_rollout` needs."""
    numbers = action_draws(env.num_actions, env.action_shape)
    return {"action": Draw((env.max_steps, batch, numbers)), "explore": Draw((env.max_steps, batch))}


def undo_draws(env: Environment, batch: int) -> Draw:
    """What `backward_rollout` needs."""
    numbers = action_draws(env.num_backward_actions, (env.num_backward_actions,))
    return Draw((env.max_steps, batch, numbers))


def forward_rollout(
    env: Environment,
    logits: Logits | Reader,
    uniform: Float[Array, "time batch numbers"],
    explore: Float[Array, "time batch"],
    epsilon: Any = 0.0,
    temperature: Any = 1.0,
    first: Any = None,
) -> Trajectories:
    """Act until every trajectory is done; the loop ends with the longest one, not after `max_steps`. Trajectories begin
    in the source, or in the `first` states.

    In a compiled loop the network sees fewer and fewer rows: whenever half of the trajectories have ended,
    the ones still going are gathered into half as many rows. Where all trajectories have one length, steps are counted.
    """
    steps, batch = uniform.shape[:2]
    state = ops.like(env.reset(batch), uniform) if first is None else first
    states = tree.map_leaves(lambda x: ops.set_at(ops.zeros((steps + 1, *x.shape), x), 0, x), state)
    actions = ops.zeros((steps, batch), uniform, "int32")
    length = ops.zeros((batch,), uniform, "int32")

    reader = logits if isinstance(logits, Reader) else Reader(env, logits)

    def going(carry, more_than: int):
        state, _, _, _, _, t = carry
        if env.fixed_length:
            return t < steps
        return (t < steps) & (ops.sum(ops.cast(~state.done, "int32")) > more_than)

    def act(carry, rows: Rows | None):
        state, memory, states, actions, length, t = carry
        if rows is None:
            out, memory = reader.step(memory, state, t)
        else:
            out = rows.spread(reader.step(memory, rows.pick(state), t)[0])
        mask = env.forward_mask(state)
        out = reader.chosen(out)
        action = sample_actions(out, mask, uniform[t], explore[t], epsilon, temperature, env.action_shape)
        moved = env.step(state, action)
        states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, t + 1, x), states, moved)
        actions = ops.set_at(actions, t, action)
        return moved, memory, states, actions, length + ops.cast(~state.done, length), t + 1

    carry = (state, reader.start(state, steps), states, actions, length, 0)
    shrinks = ops.framework(uniform) == "jax" and not env.fixed_length and not reader.remembers
    sizes = _row_counts(batch) if shrinks else [batch]
    for size, smaller in zip(sizes, [*sizes[1:], 0], strict=True):
        rows = None if size == batch else Rows.of_going(carry[0].done, size)
        carry = ops.while_loop(
            lambda carry, smaller=smaller: going(carry, smaller), lambda carry, rows=rows: act(carry, rows), carry
        )
    final, memory, states, actions, length, _ = carry
    # Slots after the longest trajectory stay unwritten, but the last one always holds the final state.
    states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, -1, x), states, final)
    return Trajectories(states, actions, length, results=reader.results(memory, final))


def retraced(env: Environment, actions: Int[Array, "time batch"]) -> Trajectories:
    """The trajectories that these actions make from the source; what comes after an end is not looked at."""
    steps, batch = actions.shape
    state = ops.like(env.reset(batch), actions)
    states = tree.map_leaves(lambda x: ops.set_at(ops.zeros((steps + 1, *x.shape), x), 0, x), state)

    def going(carry):
        state, _, _, t = carry
        return t < steps if env.fixed_length else (t < steps) & ~ops.all(state.done)

    def act(carry):
        state, states, length, t = carry
        moved = env.step(state, actions[t])
        states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, t + 1, x), states, moved)
        return moved, states, length + ops.cast(~state.done, length), t + 1

    last, states, length, _ = ops.while_loop(going, act, (state, states, ops.zeros((batch,), actions, "int32"), 0))
    states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, -1, x), states, last)
    return Trajectories(states, actions, length)


def _row_counts(batch: int) -> list[int]:
    # Each size is a loop to compile: two halvings give most of what there is to gain.
    return [batch, -(-batch // 2), -(-batch // 4)] if batch >= 16 else [batch]


@tree.record
class Rows:
    """The trajectories that a network still has to look at, in a smaller batch."""

    index: Int[Array, " rows"]
    """Trajectory of each row."""
    place: Int[Array, " batch"]
    """Row of each trajectory; any row for those that are done."""

    @classmethod
    def of_going(cls, done: Bool[Array, " batch"], size: int) -> Rows:
        """Those not done come first, in order; there are at most `size` of them."""
        order = ops.cumsum(ops.cast(~done, "int32")) - 1
        place = ops.where(done, size - 1, order)
        slots = ops.arange(size, done)[:, None]
        batch = ops.arange(done.shape[0], done)[None]
        index = ops.sum(ops.where((place[None] == slots) & ~done[None], batch, 0), 1)
        return cls(ops.cast(index, "int32"), ops.cast(place, "int32"))

    def pick(self, state: Any) -> Any:
        """The rows of a batch of states."""
        return tree.map_leaves(lambda x: ops.take(x, self.index), state)

    def spread(self, rows: Float[Array, "rows *heads actions"]) -> Float[Array, "batch *heads actions"]:
        """Back to the whole batch; done trajectories get some row, which masks make irrelevant."""
        return ops.take(rows, self.place)


def backward_rollout(
    env: Environment,
    logits: Callable[[Any], Float[Array, "batch backward_actions"]],
    final: Any,
    uniform: Float[Array, "time batch numbers"],
) -> Trajectories:
    """From finished objects back to the source, then turned round: a trajectory that ends in each of them."""
    batch, steps = uniform.shape[1], env.max_steps
    reference = uniform[0, :, 0]
    states = tree.map_leaves(lambda x: ops.set_at(ops.zeros((steps + 1, *x.shape), x), 0, x), final)
    actions = ops.zeros((steps, batch), uniform, "int32")
    length = ops.zeros((batch,), uniform, "int32")
    stop = env.num_actions - 1

    def at_source(state):
        return ~ops.any(env.backward_mask(state), -1) & ~state.done

    def going(carry):
        state, _, _, _, t = carry
        if env.fixed_length:
            return t < steps
        return (t < steps) & ~ops.all(at_source(state))

    def undo(carry):
        state, states, actions, length, t = carry
        arrived = at_source(state)
        mask = env.backward_mask(state)
        shape = (env.num_backward_actions,)
        choice = sample_actions(logits(state), mask, uniform[t], reference + 1.0, 0.0, 1.0, shape)
        unstop = state.done if env.stops else state.done & False
        forward = ops.where(unstop, stop, env.forward_action(state, choice))
        parent = env.backward_step(state, choice)

        def keep(old, new):
            return ops.where(arrived.reshape(-1, *[1] * (old.ndim - 1)), old, new)

        parent = tree.map_leaves(keep, state, parent)
        states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, t + 1, x), states, parent)
        actions = ops.set_at(actions, t, ops.cast(forward, actions))
        return parent, states, actions, length + ops.cast(~arrived, length), t + 1

    _, states, actions, length, _ = ops.while_loop(going, undo, (final, states, actions, length, 0))
    # Time t of the forward trajectory is time length - t of the backward one.
    time = ops.arange(steps + 1, actions)[:, None]
    reverse = ops.clip(length[None] - time, 0, steps)
    columns = ops.arange(batch, actions)[None]

    def turn(buffer, index):
        flat = buffer.reshape(buffer.shape[0] * buffer.shape[1], *buffer.shape[2:])
        return ops.take(flat, ops.cast(index, "int32") * batch + columns)

    states = tree.map_leaves(lambda x: turn(x, reverse), states)
    actions = turn(actions, ops.clip(length[None] - 1 - time[:-1], 0, steps - 1))
    return Trajectories(states, actions, length)
