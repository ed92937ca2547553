"""How a GFlowNet is judged: by fresh trajectories, by what it has sampled, and exactly where its world is small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.envs.state_rows import pick, size_of
from twinax.gflownet import _exact, _metrics, objectives
from twinax.gflownet._metrics import Samples
from twinax.gflownet._scores import score
from twinax.gflownet._trajectories import forward_rollout, rollout_draws, undo_draws
from twinax.gflownet._undoing import undo
from twinax.noise import Draw
from twinax.parts import Picture, Title
from twinax.problem import Metrics, State

if TYPE_CHECKING:
    from twinax.gflownet._problem import GFlowNet

TILE = 16_384
"""States that an exact evaluation looks at in one piece."""

TITLES = {
    "total_variation": Title("Total variation", "Half the L1 distance to the target, exact; 0 is perfect.", tile=True),
    "log_z_error": Title("log Z error", "Learned log Z minus the true one; 0 is perfect.", tile=True),
    "kl": Title("KL divergence", "Of the target from the learned distribution, exact; 0 is perfect."),
    "jsd": Title("Jensen-Shannon divergence", "Between learned and target distribution, exact; 0 is perfect."),
    "log_z": Title("log Z", "The learned logarithm of the partition function."),
    "elbo": Title("ELBO", "Lower bound of log Z from forward trajectories."),
    "eubo": Title("EUBO", "Upper bound of log Z from backward trajectories."),
    "modes_found": Title("Modes found", "Different modes that were ever sampled.", tile=True),
    "top_k_reward": Title("Top-k reward", "Mean reward of the best distinct objects in the store."),
    "reward_correlation": Title(
        "Reward correlation", "Between log-probability and log-reward; 1 is perfect.", tile=True
    ),
    "sampled_total_variation": Title(
        "Sampled total variation", "From recent samples; sampling alone keeps it above 0."
    ),
    "length": Title("Trajectory length", "Mean number of steps in a trajectory."),
    "log_reward": Title("log reward", "Mean over the batch."),
}
"""What reports call its numbers."""
LABELS = {"target": "Target", "learned": "Learned", "sampled": "Sampled"}
PICTURES = {"": Picture("Target and learned", labels=LABELS, difference=("learned", "target"))}
"""How reports draw its distributions."""


@dataclass(frozen=True, eq=False)
class Judging:
    """The functions of a GFlowNet's `Judge`."""

    problem: GFlowNet

    def draws(self) -> dict[str, Draw]:
        number = self.problem.metrics.samples
        draws = rollout_draws(self.problem.env, number)
        states, limit = self.problem.env.num_states, self.problem.metrics.exact_limit
        # Asked for before the first step, so a world that knows its size is not walked through for it.
        if (self.problem.graph is not None) if states is None else states <= limit:
            draws["target"] = Draw((number,))
            draws["undo"] = undo_draws(self.problem.env, number)
        return draws

    def tables(self) -> dict[str, Any]:
        constants = self.problem.env.constants()
        given = {"constants": constants} if constants else {}
        graph = self.problem.graph
        if graph is None:
            return given
        done = np.flatnonzero(graph.done)
        return {
            **given,
            "states": graph.states,
            "objects": jtu.tree_map(lambda x: x[done], graph.states),
            "cumulative": np.cumsum(graph.target_distribution[done]).astype(np.float32),
        }

    def measure(self, state: State, draws, tables) -> Metrics:
        networks, env = state.networks, self.problem.env.given(tables.get("constants", {}))

        def logits(observation):
            return networks.policy(observation).forward_logits

        def estimates(trajectories):
            return score(env, networks, trajectories, self.problem.policy.backward, self.problem.needs)

        fresh = forward_rollout(env, logits, draws["action"], draws["explore"])
        scores = estimates(fresh)
        measured = {"elbo": objectives.log_z_estimates(scores), "modes": state.carry.modes, "fresh": fresh.last}
        measured["log_z"] = self.problem.objective.log_z(scores)
        measured |= {"objects": state.carry.objects, "added": state.carry.added}
        if "states" in tables:
            last = tables["cumulative"].shape[0] - 1
            index = ops.clip(ops.searchsorted(tables["cumulative"], ops.cast(draws["target"], "float32")), 0, last)
            objects = tree.map_leaves(lambda x: ops.take(x, ops.cast(index, "int32")), tables["objects"])
            back = undo(env, networks, self.problem.policy.backward, objects, draws["undo"])
            measured["eubo"] = objectives.log_z_estimates(estimates(back))

            def probabilities(states):
                return ops.softmax(logits(env.observe(states)), env.forward_mask(states))

            measured["probabilities"] = ops.map_rows(probabilities, tables["states"], TILE)
        return measured

    def summarise(self, measured: Mapping[str, Any]) -> Metrics:
        env = self.problem.env
        env.watch()
        graph = self.problem.graph
        objects = _metrics.stored(Samples(measured["objects"], measured["added"], measured["modes"]))
        metrics: Metrics = {
            "log_z": float(measured["log_z"]),
            "elbo": float(np.mean(measured["elbo"])),
            "top_k_reward": _metrics.top_k_reward(env, objects, self.problem.metrics.top_k),
        }
        if env.num_modes:
            metrics["modes_found"] = int(measured["modes"].sum())
        known = env.log_partition if graph is None else graph.log_z
        if known is not None:
            metrics["log_z_error"] = metrics["log_z"] - known
        if graph is None:
            fresh = measured["fresh"]
            return {**metrics, **env.measures(fresh, np.full(size_of(fresh), 1 / size_of(fresh)))}
        exact, learned = _metrics.exact_metrics(graph, measured["probabilities"])
        fresh = _metrics.indices_of(graph, measured["fresh"])
        target, sampled = graph.target_distribution, _metrics.sampled_distribution(graph, objects)
        metrics |= exact
        done = np.flatnonzero(graph.done)
        metrics |= env.measures(pick(graph.states, done), learned[done])
        metrics |= {
            "eubo": float(np.mean(measured["eubo"])),
            "sampled_total_variation": _exact.total_variation(sampled, target),
            "reward_correlation": _metrics.correlation(np.log(learned[fresh]), graph.log_reward[fresh]),
        }
        pictures = {"target": target, "learned": learned, "sampled": sampled}
        for name, distribution in pictures.items():
            if (picture := env.picture(graph.states, distribution)) is not None:
                metrics[f"picture/{name}"] = picture
        return metrics
