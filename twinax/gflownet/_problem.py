"""A GFlowNet as a problem: what is sampled, the loss, and how it is judged."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs import Enumeration, Environment, enumerate_states
from twinax.envs._check import HIGHEST
from twinax.envs._enumeration import TooManyStates
from twinax.errors import TwinaxError
from twinax.gflownet import _exact, _metrics, objectives
from twinax.gflownet._conditions import check_conditions, sound_states
from twinax.gflownet._exploration import Exploration, scheduled
from twinax.gflownet._metrics import MetricOptions, Samples
from twinax.gflownet._policy import Networks, PolicyOptions, backward_log_probs, init_networks
from twinax.gflownet._scores import Scores, Visited, num_rows, score, visit
from twinax.gflownet._trajectories import Trajectories, backward_rollout, forward_rollout
from twinax.noise import Draw
from twinax.optimizer import Optimizer
from twinax.problem import Metrics, Problem, State, Terms, two_results

TILE = 16_384
"""States that an exact evaluation looks at in one piece."""
DESCRIBED = 20_000
"""Worlds with at most this many states are enumerated to describe a run."""


@dataclass(frozen=True, eq=False)
class GFlowNet(Problem):
    """See `problem`, which fills in the defaults."""

    env: Environment
    objective: str
    batch_size: int
    policy: PolicyOptions
    exploration: Exploration
    optimizer: Optimizer
    metrics: MetricOptions
    log_z: tuple[float, ...] = (0.0,)
    """Initial values of the parameters whose sum is log Z."""
    decay: float = objectives.DECAY
    """Decay of sub-trajectory balance."""
    normalise: str = "batch"
    """Over what sub-trajectory balance and flow matching take their mean: one of their functions' `normalise`."""
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self):
        if self.batch_size < 1:
            raise TwinaxError(f"the batch size is {self.batch_size}; it must be at least 1")
        needs = objectives.objective(self.objective).needs
        name = objectives.ALIASES.get(self.objective, self.objective)
        object.__setattr__(self, "objective", name)
        objectives.check_options(name, self.decay, self.normalise)
        if "log_pf_stop" in needs and not self.env.stops:
            raise TwinaxError(f"{name} needs an environment in which every state can stop")
        if self.policy.backward == "maxent" and self.env.log_paths_ratio(self.env.reset(1)) is None:
            raise TwinaxError(
                "policy.backward=maxent needs an environment with log_paths_ratio; use learned or uniform"
            )
        if "log_z" in needs and not self.log_z:
            raise TwinaxError(f"{name} needs log Z, but no parameter for it was given: log_z is empty")
        if self.batch_size < (least := objectives.OBJECTIVES[name].least_batch):
            raise TwinaxError(
                f"the batch size is {self.batch_size}, but {name} compares trajectories of a batch with one another: "
                f"make it at least {least}"
            )
        if not all(np.abs(self.log_z) < HIGHEST):
            raise TwinaxError(f"the initial log Z is {self.log_z}; every entry must be finite, and below {HIGHEST:g}")
        longest = self.env.max_steps + (0 if self.env.stops else 1)
        object.__setattr__(self, "sizes", row_sizes(self.batch_size, longest))

    @property
    def needs(self) -> frozenset[str]:
        """Optional scores that the objective uses."""
        return objectives.OBJECTIVES[self.objective].needs

    def check(self, mode: str) -> None:
        """A quick `check_env` in the frameworks of a mode, and what the objective asks of the world's states."""
        frameworks = {"torch": ("torch",), "hybrid": ("torch", "jax")}.get(mode, ("jax",))
        check_conditions(self.env, self.objective, self.needs, sound_states(self.env, frameworks))

    def init(self, seed: int) -> State:
        rng = np.random.default_rng(seed)
        log_z = np.array(self.log_z, np.float32) if "log_z" in self.needs else None
        networks = init_networks(rng, self.env, self.policy, "log_flow" in self.needs, log_z)
        return State(
            networks=networks,
            targets=None,
            carry=Samples.empty(self.env, self.metrics.fifo, self.batch_size),
            optimizer=self.optimizer.init(networks),
            step=np.zeros((), np.int32),
            seed=np.array(seed, np.uint32),
        )

    def draws(self) -> Mapping[str, Draw]:
        return _rollout_draws(self.env, self.batch_size)

    def settings(self) -> dict[str, np.ndarray]:
        return self.exploration.settings()

    def collect(self, state: State, draws, settings) -> tuple[Samples, Trajectories]:
        policy = state.networks.policy.acting()
        trajectories = forward_rollout(
            self.env,
            lambda observation: policy(observation).forward_logits,
            draws["action"],
            draws["explore"],
            scheduled(settings["epsilon"], state.step),
            scheduled(settings["temperature"], state.step),
        )
        return state.carry.update(self.env, trajectories.last), trajectories

    def prepare(self, batch: Trajectories) -> Visited:
        return visit(self.env, batch)

    def count(self, batch: Trajectories | Visited):
        return num_rows(self.env, batch) if isinstance(batch, Trajectories) else batch.count

    def scores(self, networks: Networks, batch: Trajectories | Visited, size: int | None = None) -> Scores:
        """The log-probabilities that the objective is made of."""
        return score(self.env, networks, batch, self.policy.backward, self.needs, size)

    def loss(self, networks: Networks, batch: Trajectories | Visited, size: int | None = None) -> tuple[Any, Terms]:
        s = self.scores(networks, batch, size)
        entry = objectives.OBJECTIVES[self.objective]
        loss, terms = two_results(entry.function(s, **{name: getattr(self, name) for name in entry.options}))
        shown = {"log_reward": ops.mean(s.log_reward), "length": ops.mean(ops.cast(batch.length, s.log_reward))}
        if s.log_z is not None:
            shown["log_z"] = s.log_z
        return loss, Terms(terms.parts, {**terms.shown, **shown}, terms.arrays)

    # Evaluation

    @property
    def graph(self) -> Enumeration | None:
        """The enumerated world, or None if it is too large."""
        return _graph(self.env, self.metrics.exact_limit)

    def evaluation_draws(self) -> Mapping[str, Draw]:
        number = self.metrics.samples
        draws = {**_rollout_draws(self.env, number)}
        if self.graph is not None:
            draws["target"] = Draw((number,))
            draws["undo"] = Draw((self.env.max_steps, number, self.env.num_backward_actions))
        return draws

    def tables(self) -> dict[str, Any]:
        graph = self.graph
        if graph is None:
            return {}
        done = np.flatnonzero(graph.done)
        return {
            "states": graph.states,
            "objects": jtu.tree_map(lambda x: x[done], graph.states),
            "cumulative": np.cumsum(graph.target_distribution[done]).astype(np.float32),
        }

    def measure(self, state: State, draws, tables) -> Metrics:
        networks, env = state.networks, self.env

        def logits(observation):
            return networks.policy(observation).forward_logits

        def estimates(trajectories):
            return score(env, networks, trajectories, self.policy.backward, self.needs)

        fresh = forward_rollout(env, logits, draws["action"], draws["explore"])
        scores = estimates(fresh)
        found = {"elbo": objectives.log_z_estimates(scores), "modes": state.carry.modes, "fresh": fresh.last}
        found["log_z"] = self._log_z(scores, found["elbo"])
        found |= {"objects": state.carry.objects, "added": state.carry.added}
        if tables:
            last = tables["cumulative"].shape[0] - 1
            index = ops.clip(ops.searchsorted(tables["cumulative"], ops.cast(draws["target"], "float32")), 0, last)
            objects = tree.map_leaves(lambda x: ops.take(x, ops.cast(index, "int32")), tables["objects"])
            found["eubo"] = objectives.log_z_estimates(estimates(self._undo(networks, objects, draws["undo"])))

            def probabilities(states):
                return ops.softmax(logits(env.observe(states)), env.forward_mask(states))

            found["probabilities"] = ops.map_rows(probabilities, tables["states"], TILE)
        return found

    def _undo(self, networks: Networks, objects: Any, uniform: Any) -> Trajectories:
        def logits(states):
            out = networks.policy(self.env.observe(states))
            return backward_log_probs(self.env, self.policy.backward, states, out.backward_logits, out.forward_logits)

        return backward_rollout(self.env, logits, objects, uniform)

    def _log_z(self, scores: Scores, estimates):
        where = objectives.OBJECTIVES[self.objective].log_z
        if where == "log_z":
            return scores.log_z
        if where == "log_flow":
            return scores.log_flow[0, 0]
        if where == "log_outflow":
            return scores.log_outflow[0, 0]
        if where == "forward_looking":
            return scores.log_flow[0, 0] + scores.state_log_reward[0, 0]
        return ops.mean(estimates)

    def evaluate(self, measured: Mapping[str, Any]) -> Metrics:
        self.env.watch()
        graph = self.graph
        objects = _metrics.stored(Samples(measured["objects"], measured["added"], measured["modes"]))
        metrics: Metrics = {
            "log_z": float(measured["log_z"]),
            "elbo": float(np.mean(measured["elbo"])),
            "top_k_reward": _metrics.top_k_reward(self.env, objects, self.metrics.top_k),
        }
        if self.env.num_modes:
            metrics["modes_found"] = int(measured["modes"].sum())
        if graph is None:
            return metrics
        exact, learned = _metrics.exact_metrics(graph, measured["probabilities"])
        fresh = _metrics.indices_of(graph, measured["fresh"])
        target, sampled = graph.target_distribution, _metrics.sampled_distribution(graph, objects)
        metrics |= exact
        metrics |= {
            "log_z_error": metrics["log_z"] - graph.log_z,
            "eubo": float(np.mean(measured["eubo"])),
            "sampled_total_variation": _exact.total_variation(sampled, target),
            "reward_correlation": _metrics.correlation(np.log(learned[fresh]), graph.log_reward[fresh]),
        }
        pictures = {"target": target, "learned": learned, "sampled": sampled}
        for name, distribution in pictures.items():
            if (picture := _metrics.marginal(graph, distribution)) is not None:
                metrics[f"picture/{name}"] = picture
        return metrics

    def watch(self, logs: Mapping[str, np.ndarray]) -> None:
        self.env.watch()

    def describe(self) -> dict[str, Any]:
        facts = {"environment": repr(self.env), "objective": self.objective, "batch_size": self.batch_size}
        # Told before the first step, so a large world is not walked through for it.
        if (self.env.num_states or DESCRIBED + 1) <= DESCRIBED and self.graph is not None:
            facts |= {"states": int(self.graph.done.sum()), "log_z": self.graph.log_z}
        return facts


@checked
def problem(
    env: Environment,
    objective: str = "trajectory_balance",
    *,
    reward: Any = None,
    batch_size: int = 16,
    policy: PolicyOptions | None = None,
    exploration: Exploration | None = None,
    optimizer: Optimizer | None = None,
    metrics: MetricOptions | None = None,
    log_z: tuple[float, ...] = (0.0,),
    decay: float = objectives.DECAY,
    normalise: str = "batch",
) -> GFlowNet:
    """A GFlowNet on an environment.

    A `reward` takes the place of the environment's own: a record with `log_reward(env, state)`, or any callable (a
    function, a `torch.nn.Module`, a model's `predict`) that gives one number for each object; see `tx.envs.BlackBox`.

    >>> from twinax.envs import Hypergrid
    >>> problem(Hypergrid(dim=2, side=8), "detailed_balance").objective
    'detailed_balance'
    """
    return GFlowNet(
        env=env if reward is None else env.with_reward(reward),
        objective=objective,
        batch_size=batch_size,
        policy=policy or PolicyOptions(),
        exploration=exploration or Exploration(),
        optimizer=optimizer or Optimizer(rates={"log_z": 0.1}),
        metrics=metrics or MetricOptions(),
        log_z=log_z,
        decay=decay,
        normalise=normalise,
    )


@functools.lru_cache(maxsize=8)
def _graph(env: Environment, limit: int) -> Enumeration | None:
    if env.num_states is not None and env.num_states > limit:
        return None
    try:
        return enumerate_states(env, limit)
    except TooManyStates:
        return None


def row_sizes(batch: int, longest: int, number: int = 9) -> tuple[int, ...]:
    """Static numbers of rows for a compiled loss, in multiples of 16, from six a trajectory to the most possible.

    Each size is a branch to compile (about a second), each gap between two sizes is work on empty rows: roots are
    spaced evenly, so that gaps grow with the size, and the last but one, which is hardly ever needed, is left out.
    """
    most, least = batch * longest, max(64, 6 * batch)
    if most < 2 * least:
        return (most,)
    number = min(number, 2 + most // least)
    sizes = np.linspace(np.sqrt(least), np.sqrt(most), number) ** 2
    return (*(-(-int(size) // 16) * 16 for size in sizes[:-2]), most)


def _rollout_draws(env: Environment, batch: int) -> dict[str, Draw]:
    return {"action": Draw((env.max_steps, batch, env.num_actions)), "explore": Draw((env.max_steps, batch))}
