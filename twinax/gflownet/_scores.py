"""From trajectories to the log-probabilities that objectives are made of.

The network sees every visited state once: one pass gives the forward probability of the action taken
there, the backward probability of the action that led there, and the flow. Only visited states are
computed (gathered into `size` rows), then put back on the (time, batch) grid.
"""

from __future__ import annotations

from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._policy import Networks, backward_log_probs
from twinax.gflownet._trajectories import Trajectories
from twinax.types import Array, Bool, Float, Int


@tree.record
class Scores:
    """Log-probabilities of trajectories on the (time, batch) grid, 0 where not valid; None where not asked for."""

    log_pf: Float[Array, "time batch"]
    """log P_F of each action taken."""
    log_pb: Float[Array, "time batch"]
    """log P_B of undoing each action."""
    log_reward: Float[Array, " batch"]
    """log R of the finished object."""
    valid: Bool[Array, "time batch"]
    """True for actions that were taken."""
    log_flow: Any = None
    """log F of state t, (time, batch)."""
    log_z: Any = None
    """The learned log Z, a scalar."""
    state_log_reward: Any = None
    """log R of state t, (time, batch)."""
    log_pf_stop: Any = None
    """log P_F of stopping in state t, (time, batch)."""
    log_inflow: Any = None
    """log of the summed edge flows into state t, (time, batch)."""
    log_outflow: Any = None
    """log of the summed edge flows out of state t, (time, batch)."""
    log_final_flow: Any = None
    """log flow into the state after action t if that ends the trajectory, (time, batch)."""

    @property
    def terminal(self) -> Bool[Array, "time batch"]:
        """True for the last action of each trajectory."""
        following = ops.concat([self.valid[1:], self.valid[:1] & False])
        return self.valid & ~following


@tree.record
class Rows:
    """Where the visited states of all trajectories stand in one list, trajectory after trajectory."""

    time: Int[Array, " rows"]
    trajectory: Int[Array, " rows"]
    start: Int[Array, " batch"]
    """Row of each trajectory's first state."""
    count: Int[Array, " batch"]
    """Rows of each trajectory."""

    def gather(self, x: Array, time: Array | None = None) -> Array:
        """The rows of a (time, batch, ...) array."""
        time = self.time if time is None else time
        flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        return ops.take(flat, time * x.shape[1] + self.trajectory)

    def grid(self, row: Float[Array, " rows"], times: int, shift: int = 0) -> Float[Array, "time batch"]:
        """Rows back on the grid: entry (t, b) is the row of state t + shift of trajectory b, 0 where there is none."""
        t = ops.arange(times, self.start)[:, None] + shift
        inside = t < self.count[None]
        index = ops.where(inside, self.start[None] + t, 0)
        return ops.where(inside, ops.take(row, ops.cast(index, "int32")), 0.0)


def num_rows(env: Environment, trajectories: Trajectories) -> Int[Array, ""]:
    """How many states a network has to see: those before a stop, or all where the rules end a trajectory."""
    return ops.sum(_row_counts(env, trajectories))


def _row_counts(env: Environment, trajectories: Trajectories) -> Int[Array, " batch"]:
    return trajectories.length + (0 if env.stops else 1)


def visited_rows(env: Environment, trajectories: Trajectories, size: int) -> Rows:
    """The list of visited states, padded to `size` rows with repeats of the first."""
    count = _row_counts(env, trajectories)
    end = ops.cast(ops.cumsum(count), "int32")
    start = end - count
    row = ops.arange(size, count)
    trajectory = ops.searchsorted(end, row, right=True)
    inside = trajectory < count.shape[0]
    trajectory = ops.where(inside, trajectory, 0)
    time = ops.where(inside, row - ops.take(start, trajectory), 0)
    return Rows(ops.cast(time, "int32"), ops.cast(trajectory, "int32"), start, count)


def score(
    env: Environment,
    networks: Networks,
    trajectories: Trajectories,
    backward: str = "learned",
    needs: frozenset[str] = frozenset(),
    size: int | None = None,
) -> Scores:
    """Everything an objective may need, from one pass over the visited states.

    `needs` names the optional fields of `Scores` to fill; `size` is the static number of rows (JAX).
    """
    trajectories = trajectories.trimmed()
    size = int(num_rows(env, trajectories)) if size is None else size
    rows = visited_rows(env, trajectories, size)
    states = tree.map_leaves(rows.gather, trajectories.states)
    out = networks.policy(env.observe(states))
    logits = out.forward_logits
    times, batch = trajectories.actions.shape

    mask = env.forward_mask(states)
    forward = ops.log_softmax(logits, mask)
    # At the final state of a world without stop nothing is allowed: its "action" is padding and never on the grid.
    action = rows.gather(trajectories.actions, ops.clip(rows.time, 0, times - 1))
    previous = rows.gather(trajectories.actions, ops.clip(rows.time - 1, 0, times - 1))
    undo = ops.clip(env.backward_action(states, previous), 0, env.num_backward_actions - 1)
    back = backward_log_probs(env, backward, states, out.backward_logits, logits)

    valid = ops.arange(times, rows.start)[:, None] < trajectories.length[None]
    log_reward = ops.cast(env.log_reward(trajectories.last), logits)

    fields: dict[str, Any] = {}
    if "log_flow" in needs:
        fields["log_flow"] = rows.grid(out.log_flow, times)
    if "log_z" in needs:
        fields["log_z"] = ops.sum(networks.log_z)
    if "state_log_reward" in needs:
        fields["state_log_reward"] = rows.grid(ops.cast(env.log_reward(states), logits), times)
    if "log_pf_stop" in needs:
        fields["log_pf_stop"] = rows.grid(forward[..., env.num_actions - 1], times)
    if "log_inflow" in needs:
        inflow = _log_inflow(env, networks, states)
        fields["log_inflow"] = rows.grid(inflow, times)
        fields["log_outflow"] = rows.grid(ops.logsumexp(logits, -1, mask), times)
        stop_flow = rows.grid(ops.take_along(logits, action), times)
        fields["log_final_flow"] = stop_flow if env.stops else rows.grid(inflow, times, shift=1)
    return Scores(
        log_pf=ops.where(valid, rows.grid(ops.take_along(forward, action), times), 0.0),
        log_pb=ops.where(valid, rows.grid(ops.take_along(back, undo), times, shift=1), 0.0),
        log_reward=log_reward,
        valid=valid,
        **fields,
    )


def _log_inflow(env: Environment, networks: Networks, states: Any) -> Float[Array, " rows"]:
    """log of the summed flows of the edges into each state, by looking at all of its parents."""
    mask = env.backward_mask(states)
    rows = mask.shape[0]
    edges = []
    for k in range(env.num_backward_actions):
        choice = ops.full((rows,), k, mask, "int32")
        # A parent that does not exist stands in as the state itself; its edge is masked below.
        chosen = mask[:, k]
        parent = tree.map_leaves(
            lambda here, there: ops.where(chosen.reshape(-1, *[1] * (here.ndim - 1)), there, here),  # noqa: B023
            states,
            env.backward_step(states, choice),
        )
        logits = networks.policy(env.observe(parent)).forward_logits
        edges.append(ops.take_along(logits, env.forward_action(states, choice)))
    return ops.logsumexp(ops.stack(edges, -1), -1, mask)
