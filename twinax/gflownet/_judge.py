"""How a GFlowNet is judged: by fresh trajectories, by what it has sampled, and exactly where its world is small."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.envs import Enumeration, Environment
from twinax.envs.state_rows import pick, size_of
from twinax.gflownet import _exact, _metrics, objectives
from twinax.gflownet._energy import held_energy
from twinax.gflownet._likelihood import likelihood_draws, log_probabilities
from twinax.gflownet._metrics import Samples
from twinax.gflownet._reading import Reader
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
    "top_k_diversity": Title("Top-k diversity", "Mean distance between two of the best distinct objects."),
    "modes_apart": Title("Modes apart", "High rewards in the store that are far from one another."),
    "test_pearson": Title(
        "Held-out correlation", "Pearson, of log-probability and log-reward over a fixed set; 1 is perfect.", tile=True
    ),
    "test_spearman": Title("Held-out rank correlation", "Spearman, over the same set; 1 is perfect."),
    "test_error": Title("Noise of the held-out set", "Mean relative standard error of its estimated probabilities."),
    "reward_accuracy": Title("Reward accuracy", "Expected reward in percent of the target's, at most 100."),
    "reward_correlation": Title(
        "Reward correlation", "Between log-probability and log-reward; 1 is perfect.", tile=True
    ),
    "sampled_total_variation": Title(
        "Sampled total variation", "From recent samples; sampling alone keeps it above 0."
    ),
    "acceptance": Title(
        "Acceptance", "Share of proposals from data that were accepted as fakes, by Metropolis-Hastings."
    ),
    "contrast_loss": Title(
        "Contrast", "Mean log R of fakes minus that of data: what the learned reward is taught by; 0 is no difference."
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
        elif (test := self._test_states) is not None:
            draws["test"] = likelihood_draws(self.problem.env, size_of(test), self.problem.metrics.rollouts)
        return draws

    @property
    def _test_states(self) -> Any:
        """The world's held-out set, or a part of it."""
        return _test_states(self.problem.env, self.problem.metrics.test_size)

    def tables(self) -> dict[str, Any]:
        constants = self.problem.env.constants()
        given = {"constants": constants} if constants else {}
        graph = self.problem.graph
        if graph is None:
            test = self._test_states
            return given if test is None else {**given, "test": test}
        done = np.flatnonzero(graph.done)
        return {
            **given,
            "states": graph.states,
            "objects": jtu.tree_map(lambda x: x[done], graph.states),
            "cumulative": np.cumsum(graph.target_distribution[done]).astype(np.float32),
        }

    def measure(self, state: State, draws, tables) -> Metrics:
        networks = self.problem.judged(state)
        env = self.problem.env.given({**tables.get("constants", {}), **held_energy(networks)})

        def estimates(trajectories):
            return score(env, networks, trajectories, self.problem.policy.backward, self.problem.needs)

        fresh = forward_rollout(env, Reader.of(env, networks.policy), draws["action"], draws["explore"])
        scores = estimates(fresh)
        measured = {"elbo": objectives.log_z_estimates(scores), "modes": state.carry.modes, "fresh": fresh.last}
        measured["log_z"] = self.problem.objective.log_z(scores)
        measured |= {"objects": state.carry.objects, "added": state.carry.added, "energy": held_energy(networks)}
        if "states" in tables:
            cumulative = tables["cumulative"]
            if networks.energy is not None:  # the target moves with what is learned
                cumulative = ops.cast(ops.cumsum(ops.softmax(env.log_reward(tables["objects"]))), "float32")
            last = cumulative.shape[0] - 1
            index = ops.clip(ops.searchsorted(cumulative, ops.cast(draws["target"], "float32")), 0, last)
            objects = tree.map_leaves(lambda x: ops.take(x, ops.cast(index, "int32")), tables["objects"])
            walks = undo(env, networks, self.problem.policy.backward, objects, draws["undo"])
            measured["eubo"] = objectives.log_z_estimates(estimates(walks))

            def probabilities(networks):
                def of_states(states):
                    seen = networks.policy(env.observe(states))
                    return ops.softmax(seen.forward_logits, env.forward_mask(states))

                return ops.map_rows(of_states, tables["states"], TILE)

            measured["probabilities"] = probabilities(networks)
            if self.problem.objective.prior:
                measured["prior"] = probabilities(state.targets["prior"])
        elif "test" in tables:
            kind = self.problem.policy.backward
            log_p, error = log_probabilities(env, networks, kind, tables["test"], draws["test"])
            measured |= {"test_log_p": log_p, "test_error": error}
        return measured

    def _fresh(self, objects: Any) -> Any:
        """Of stored objects those that the policy has drawn; each batch ends with the proposals made from them."""
        if not self.problem.search.rounds:
            return objects
        return pick(objects, np.arange(size_of(objects)) % self.problem.finished < self.problem.batch_size)

    def _towards(self, env: Environment, measured: Mapping[str, Any]) -> Enumeration | None:
        """The enumerated world with what the objective learns towards in place of log R, where a prior has its part or
        the reward is learned."""
        graph = self.problem.graph
        if graph is not None and measured["energy"]:
            paid = np.full(len(graph.done), -np.inf)
            paid[graph.done] = env.log_reward(pick(graph.states, np.flatnonzero(graph.done)))
            graph = graph._replace(log_reward=paid)
        if graph is None or "prior" not in measured:
            return graph
        prior = _metrics.learned_distribution(graph, measured["prior"])[graph.done]
        log_prior = np.log(np.maximum(prior, np.finfo(np.float64).tiny))
        wanted = np.full(len(graph.done), -np.inf)
        wanted[graph.done] = self.problem.objective.log_target(graph.log_reward[graph.done], log_prior)
        return graph._replace(log_reward=wanted)

    def summarise(self, measured: Mapping[str, Any]) -> Metrics:
        env = self.problem.world(measured["energy"])
        env.watch()
        graph = self._towards(env, measured)
        objects = _metrics.stored(Samples(measured["objects"], measured["added"], measured["modes"]))
        metrics: Metrics = {
            "log_z": float(measured["log_z"]),
            "elbo": float(np.mean(measured["elbo"])),
            **_metrics.top_k(env, objects, self.problem.metrics.top_k),
        }
        if env.num_modes:
            metrics["modes_found"] = int(measured["modes"].sum())
        known = graph.log_z if graph is not None else None if self.problem.objective.prior else env.log_partition
        if known is not None:
            metrics["log_z_error"] = metrics["log_z"] - known
        if self.problem.metrics.mode_reward:
            metrics["modes_apart"] = _metrics.modes_apart(env, objects, self.problem.metrics)
        if graph is None:
            if "test_log_p" in measured:
                log_reward = np.asarray(env.log_reward(self._test_states), np.float64)
                metrics |= _metrics.held_out_correlations(np.asarray(measured["test_log_p"], np.float64), log_reward)
                metrics["test_error"] = float(np.mean(measured["test_error"]))
            fresh = measured["fresh"]
            return {**metrics, **env.measures(fresh, np.full(size_of(fresh), 1 / size_of(fresh)))}
        exact, learned = _metrics.exact_metrics(graph, measured["probabilities"])
        fresh = _metrics.indices_of(graph, measured["fresh"])
        target, sampled = graph.target_distribution, _metrics.sampled_distribution(graph, self._fresh(objects))
        metrics |= exact
        done = np.flatnonzero(graph.done)
        metrics |= env.measures(pick(graph.states, done), learned[done])
        with np.errstate(divide="ignore"):
            log_learned = np.log(np.maximum(learned[done], np.finfo(np.float64).tiny))
        metrics |= _metrics.held_out_correlations(log_learned, graph.log_reward[done])
        metrics["reward_accuracy"] = _metrics.reward_accuracy(graph, learned)
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


@functools.lru_cache(maxsize=8)
def _test_states(env: Environment, size: int) -> Any:
    states = env.test_states(0) if size else None
    if states is None or size_of(states) <= size:
        return states
    return pick(states, np.sort(np.random.default_rng(0).permutation(size_of(states))[:size]))
