"""From trajectories to the log-probabilities that objectives are made of.

The network sees every visited state once: one pass gives the forward probability of the action taken
there, the backward probability of the action that led there, and the flow. Only visited states are
computed (gathered into `size` rows), then put back on the (time, batch) grid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from twinax import ops, tree
from twinax.envs import Environment
from twinax.gflownet._heads import for_each_head
from twinax.gflownet._policy import Networks, asks_of_ends, backward_log_probs, counts_paths
from twinax.gflownet._reading import read_prefixes, reads_on, rows_read
from twinax.gflownet._trajectories import Trajectories
from twinax.gflownet._visited import Visited, visit
from twinax.types import Array, Bool, Float


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
    state_log_energy: Any = None
    """What the world gives for log R of state t on the way, (time, batch)."""
    log_pf_stop: Any = None
    """log P_F of stopping in state t, (time, batch)."""
    log_inflow: Any = None
    """log of the summed edge flows into state t, (time, batch)."""
    log_outflow: Any = None
    """log of the summed edge flows out of state t, (time, batch)."""
    log_final_flow: Any = None
    """log flow into the state after action t if that ends the trajectory, (time, batch)."""
    logit: Any = None
    """The logit of each action taken, (time, batch)."""
    target: Any = None
    """The same scores by the target networks; None where there are none."""
    prior: Any = None
    """The same scores by the networks that training began with; None where the objective does not read them."""
    path_error: Any = None
    """What the backward logits of state t + 1 say of the log of the number of paths to state t, less what those of
    state t say, (time, batch); None where no numbers of paths are learned."""
    weight: Any = None
    """How often each trajectory counts, (batch,); None: each once."""
    heads: Any = None
    """Of what forward logits say the scores by each of several heads, by name, all heads of a trajectory side by side,
    (time, batch x heads); None where there is one."""
    learners: Any = None
    """Which heads learn from each trajectory, (batch, heads)."""
    novelty: Any = None
    """|f - g|^2 of the state that each action leads to (a stop: that it was taken in), (time, batch), where f learns to
    foretell g; None without intrinsic rewards."""
    state_novelty: Any = None
    """The same of state t, (time, batch)."""

    def mean(self, values: Array, number: Any = None) -> Array:
        """The mean over trajectories of values (batch,), a trajectory of weight 2 counting as two.

        Values may be sums over a `number` of things in each trajectory, which are then averaged; or of shape (time,
        batch), with a mask `number` that is True for those that count.

        >>> import numpy as np
        >>> one = np.zeros((1, 2))
        >>> s = Scores(one, one, one[0], one == 0, weight=np.array([1.0, 3.0]))
        >>> float(s.mean(np.array([0.0, 4.0]))), float(s.mean(np.array([[0.0, 4.0]]), np.array([[True, False]])))
        (3.0, 0.0)
        """
        if number is None:
            number = ops.full(values.shape, 1.0, values)
        values, number = ops.where(number != 0, values, 0.0), ops.cast(number, values)
        if self.weight is not None:
            weight = ops.cast(self.weight, values)
            values, number = weight * values, weight * number
        total = ops.sum(number)
        return ops.sum(values) / ops.where(total == 0, 1.0, total)

    @property
    def terminal(self) -> Bool[Array, "time batch"]:
        """True for the last action of each trajectory."""
        following = ops.concat([self.valid[1:], self.valid[:1] & False])
        return self.valid & ~following


def score(
    env: Environment,
    networks: Networks,
    trajectories: Trajectories | Visited,
    backward: str = "learned",
    needs: frozenset[str] = frozenset(),
    size: int | None = None,
) -> Scores:
    """Everything an objective may need, from one pass over the visited states.

    `needs` names the optional fields of `Scores` to fill; `size` is a static number of rows, at least as many as
    there are.
    """
    visited = visit(env, trajectories, size) if isinstance(trajectories, Trajectories) else trajectories
    visited = visited if size is None else visited.head(size)
    env = env.given(visited.given.constants)
    others = visited.given.targets or {}
    slower = {
        name: _score(env, others[name], visited, backward, needs) for name in ("target", "prior") if name in others
    }
    own = _score(env, networks, visited, backward, needs, visited.results)
    if "novelty" in others:
        slower |= _novelty(env, networks.novelty, others["novelty"], visited, needs)
    return dataclasses.replace(own, **slower) if slower else own


def _score(
    env: Environment,
    networks: Networks,
    visited: Visited,
    backward: str,
    needs: frozenset[str],
    results: Any = None,
) -> Scores:
    whole, valid = visited, visited.valid
    if env.fixed_length and not asks_of_ends(env, backward, needs):
        visited = visited.without_ends()
    states = visited.states
    env = env if visited.known is None else env.knowing(visited.known, visited.owner)
    if reads_on(env, networks.policy):
        out = read_prefixes(env, networks.policy, visited.last, visited.spot)
    elif (made := rows_read(env, networks.policy)) is not None:
        out = networks.policy(made.shown(visited.known, states, visited.owner, visited.each))
    elif results is not None:
        out = networks.policy.known(env.observe(states), results)  # type: ignore[attr-defined]
    else:
        out = networks.policy(env.observe(states))
    logits = out.forward_logits
    back = backward_log_probs(env, backward, whole.states, out.backward_logits, logits)

    fields = _of_forward_logits(env, networks, visited, needs, out)
    if visited.learners is not None:
        fields["heads"] = _of_forward_logits(env, networks, visited, needs, out, visited.learners.shape[-1])
    if "log_flow" in needs:
        fields["log_flow"] = visited.grid(out.log_flow)
    if "log_z" in needs:
        fields["log_z"] = ops.sum(networks.log_z)
    if "state_log_reward" in needs:
        fields["state_log_reward"] = visited.grid(ops.cast(env.log_reward(states), logits))
    if "state_log_energy" in needs:
        fields["state_log_energy"] = visited.grid(ops.cast(env.log_energy(states), logits))
    if counts_paths(env, backward):
        fields["path_error"] = _path_error(env, visited, out.backward_logits)
    return Scores(
        log_pb=ops.where(valid, whole.next_grid(ops.take_along(back, whole.undo)), 0.0),
        log_reward=ops.cast(visited.log_reward, logits),
        valid=valid,
        weight=visited.weight,
        learners=visited.learners,
        **fields,
    )


def _of_forward_logits(
    env: Environment, networks: Networks, visited: Visited, needs: frozenset[str], out: Any, heads: int = 0
) -> dict[str, Any]:
    """The scores that depend on forward logits, by name: those of the policy, or of each of its heads side by side."""

    def read(out: Any) -> Array:
        return out.head_logits if heads else out.forward_logits

    def each(x: Array) -> Array:
        """A column beside each row's, for all heads alike."""
        return ops.broadcast(x[:, None], (x.shape[0], heads, *x.shape[1:])) if heads else x

    logits, mask, action = read(out), each(visited.forward_mask), each(visited.action)
    valid = for_each_head(visited.valid, heads) if heads else visited.valid
    forward = ops.log_softmax(logits, mask)
    fields = {"log_pf": ops.where(valid, visited.grid(ops.take_along(forward, action)), 0.0)}
    if "log_pf_stop" in needs:
        fields["log_pf_stop"] = visited.grid(forward[..., env.num_actions - 1])
    if "logit" in needs:
        fields["logit"] = visited.grid(ops.take_along(logits, action))
    if "log_outflow" in needs or "log_inflow" in needs:
        fields["log_outflow"] = visited.grid(ops.logsumexp(logits, -1, mask))
    if "log_inflow" in needs:
        inflow = _log_inflow(env, networks, visited.states, read, each)
        fields["log_inflow"] = visited.grid(inflow)
        stop_flow = visited.grid(ops.take_along(logits, action))
        fields["log_final_flow"] = stop_flow if env.stops else visited.next_grid(inflow)
    return fields


def _novelty(env: Environment, learning: Any, fixed: Any, visited: Visited, needs: frozenset[str]) -> dict[str, Any]:
    """How far one network is from another, by state."""
    seen = env.observe(visited.states)
    row = ops.sum(ops.square(learning(seen) - fixed(seen)), -1)
    here = visited.grid(row)
    fields = {"novelty": ops.where(visited.next_present(), visited.next_grid(row), here)}
    return {**fields, "state_novelty": here} if "state_log_reward" in needs else fields


def _path_error(env: Environment, visited: Visited, logits: Float[Array, "rows backward_actions"]) -> Any:
    """Backward logits are logs of the numbers of paths to the parents, whose sum is that of the state; the source
    has one."""
    mask = env.backward_mask(visited.states)
    source = ~ops.any(mask, -1)
    log_paths = ops.where(source, 0.0, ops.logsumexp(logits, -1, mask | source[:, None]))
    return visited.next_grid(ops.take_along(logits, visited.undo)) - visited.grid(log_paths)


def _log_inflow(
    env: Environment, networks: Networks, states: Any, read: Callable[[Any], Array], each: Callable[[Array], Array]
) -> Float[Array, "rows ..."]:
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
        logits = read(networks.policy(env.observe(parent)))
        edges.append(ops.take_along(logits, each(env.forward_action(states, choice))))
    return ops.logsumexp(ops.stack(edges, -1), -1, each(mask))
