"""Rolling out a policy, forwards from the source and backwards from finished objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._exploration import sample_actions
from twinax.types import Array, Float, Int


@tree.record
class Trajectories:
    """A batch of trajectories, time first; entries at and after `length` are padding."""

    states: Any
    """States 0..length of each trajectory, leaves of shape (time + 1, batch, ...)."""
    actions: Int[Array, "time batch"]
    length: Int[Array, " batch"]
    """Number of actions."""

    def trimmed(self) -> Trajectories:
        """Without the time after the longest trajectory, where shapes may depend on data (not in JAX)."""
        longest = ops.max(self.length)
        states = tree.map_leaves(lambda x: ops.used(x, longest + 1), self.states)
        return Trajectories(states, ops.used(self.actions, longest), self.length)

    @property
    def last(self) -> Any:
        """The final state of each trajectory: padding repeats it."""
        return tree.map_leaves(lambda x: x[-1], self.states)


def forward_rollout(
    env: Environment,
    logits: Callable[[Any], Float[Array, "batch actions"]],
    uniform: Float[Array, "time batch actions"],
    explore: Float[Array, "time batch"],
    epsilon: Any = 0.0,
    temperature: Any = 1.0,
) -> Trajectories:
    """Act until every trajectory is done; the loop ends with the longest one, not at `max_steps`."""
    batch = uniform.shape[1]
    state = ops.like(env.reset(batch), uniform)
    states = tree.map_leaves(lambda x: ops.set_at(ops.zeros((env.max_steps + 1, *x.shape), x), 0, x), state)
    actions = ops.zeros((env.max_steps, batch), uniform, "int32")
    length = ops.zeros((batch,), uniform, "int32")

    def going(carry):
        state, _, _, _, t = carry
        return (t < env.max_steps) & ~ops.all(state.done)

    def act(carry):
        state, states, actions, length, t = carry
        action = sample_actions(
            logits(env.observe(state)), env.forward_mask(state), uniform[t], explore[t], epsilon, temperature
        )
        moved = env.step(state, action)
        states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, t + 1, x), states, moved)
        actions = ops.set_at(actions, t, action)
        return moved, states, actions, length + ops.cast(~state.done, length), t + 1

    final, states, actions, length, _ = ops.while_loop(going, act, (state, states, actions, length, 0))
    # Slots after the longest trajectory stay unwritten, but the last one always holds the final state.
    states = tree.map_leaves(lambda buffer, x: ops.set_at(buffer, -1, x), states, final)
    return Trajectories(states, actions, length)


def backward_rollout(
    env: Environment,
    logits: Callable[[Any], Float[Array, "batch backward_actions"]],
    final: Any,
    uniform: Float[Array, "time batch backward_actions"],
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
        return (t < steps) & ~ops.all(at_source(state))

    def undo(carry):
        state, states, actions, length, t = carry
        arrived = at_source(state)
        mask = env.backward_mask(state)
        choice = sample_actions(logits(state), mask, uniform[t], reference + 1.0, 0.0, 1.0)
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
