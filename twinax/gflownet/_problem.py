"""A GFlowNet as a problem: what is sampled, the loss, and how it is judged."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs import Enumeration, Environment, TooManyStates, enumerate_states
from twinax.gflownet import objectives
from twinax.gflownet._backward_losses import backward_losses, held_still
from twinax.gflownet._conditions import check_conditions, sound_states
from twinax.gflownet._energy import EnergyOptions, contrast, energy_draws, energy_losses, held_energy
from twinax.gflownet._exploration import Exploration, scheduled
from twinax.gflownet._heads import by_head
from twinax.gflownet._intrinsic import end_novelty, init_novelty, intrinsic_reward, novelty_loss, rewarded
from twinax.gflownet._judge import PICTURES, TITLES, Judging
from twinax.gflownet._lessons import lesson, replay_draws
from twinax.gflownet._local_search import LocalSearchOptions, local_search, search_draws
from twinax.gflownet._metrics import MetricOptions, Samples
from twinax.gflownet._option_checks import check_options
from twinax.gflownet._policy import Networks, PolicyOptions, asks_of_ends, init_networks
from twinax.gflownet._reading import Reader, Recorder, can_record
from twinax.gflownet._replay import Replay, ReplayOptions, first_replay
from twinax.gflownet._scores import Scores, score
from twinax.gflownet._targets import TargetOptions
from twinax.gflownet._trajectories import Given, Trajectories, forward_rollout, joined, rollout_draws
from twinax.gflownet._use import Using
from twinax.gflownet._visited import Visited, num_rows, visit
from twinax.networks import NetworkFactory
from twinax.noise import Draw, below
from twinax.optimizer import Optimizer
from twinax.parts import Compile, Judge, Present, Prove, Unit, Use
from twinax.problem import Inputs, Metrics, Problem, State, Terms, Update, two_results
from twinax.recipe import remembered

DESCRIBED = 20_000
"""Worlds with at most this many states are enumerated to describe a run."""
MANY_ROWS = 1024
"""So many rows of a loss take longer to compute a thousand times than a branch takes to compile."""
MEMORY = {
    "networks": "the networks (policy.hidden, env)",
    "networks.log_z": "log Z (objective.log_z_size)",
    "carry": "the store of samples (metrics.fifo, env)",
    "carry.replay": "the replay (replay.size, env)",
    "carry.modes": "a mark for each mode (env)",
    "draws": "a batch (trainer.batch_size, replay.batch_size, local_search.rounds, env)",
    "step": "a batch in the networks (trainer.batch_size, replay.batch_size, policy.hidden, env)",
    "evaluation": "an evaluation (metrics.samples, metrics.test_size, metrics.rollouts, env)",
}
"""What takes memory."""


@dataclass(frozen=True, eq=False)
class GFlowNet(Problem):
    """See `problem`, which fills in the defaults."""

    env: Environment
    objective: objectives.Objective
    batch_size: int
    policy: PolicyOptions
    exploration: Exploration
    optimizer: Optimizer
    metrics: MetricOptions
    log_z: tuple[float, ...] = (0.0,)
    """Initial values of the parameters whose sum is log Z."""
    network: NetworkFactory | None = None
    """What makes the policy network, or its name; None: what suits the world."""
    targets: TargetOptions = TargetOptions()
    """How slower networks follow the trained ones."""
    replay: ReplayOptions = ReplayOptions()
    """What is remembered of finished objects and trained on again."""
    search: LocalSearchOptions = LocalSearchOptions()
    """How fresh objects are varied."""
    energy: EnergyOptions = EnergyOptions()
    """How the reward is learned from data, where it is one that can be."""

    def __post_init__(self):
        check_options(self)

    @property
    def learns_energy(self) -> bool:
        """Whether the reward is learned from data."""
        return bool(self._learnable)

    @functools.cached_property
    def _learnable(self) -> dict[str, np.ndarray]:
        return self.env.learnable()

    @functools.cached_property
    def _observed(self) -> Any:
        return self.env.observed()

    def world(self, energy: Mapping[str, Any]) -> Environment:
        """The world that pays by what is learned, for NumPy states and in float64."""
        if not energy:
            return self.env
        return self.env.given({**self._constants, **{name: np.asarray(x, np.float64) for name, x in energy.items()}})

    @property
    def needs(self) -> frozenset[str]:
        """Optional scores that the objective uses."""
        return self.objective.needs

    @property
    def in_update(self) -> int:
        """Trajectories of an update, fresh ones and others."""
        return self.finished + self.replay.batch_size + self.retraced

    @property
    def retraced(self) -> int:
        """Trajectories to data that an update learns from, too."""
        return self.energy.batch_size if self.learns_energy and self.energy.retrace else 0

    @property
    def finished(self) -> int:
        """Objects that a step makes: fresh ones, and proposals of the local search."""
        return self.batch_size * (1 + self.search.rounds)

    def _check(self, mode: str) -> None:
        """A quick `check_env` in the frameworks of a mode, and what the objective asks of the world's states."""
        frameworks = {"torch": ("torch",), "hybrid": ("torch", "jax")}.get(mode, ("jax",))
        check_conditions(self.env, self.objective.name, self.needs, sound_states(self.env, frameworks))

    def init(self, seed: int) -> State:
        rng = np.random.default_rng(seed)
        log_z = np.array(self.log_z, np.float32) if "log_z" in self.needs else None
        flow, heads = "log_flow" in self.needs, self.exploration.thompson_heads
        networks, fixed = init_networks(rng, self.env, self.policy, flow, log_z, self.network, heads), None
        if self.learns_energy:
            energy = {name: np.array(first, np.float32) for name, first in self._learnable.items()}
            networks = dataclasses.replace(networks, energy=energy)
        if self.exploration.intrinsic:
            learning, fixed = init_novelty(rng, self.env, self.exploration.intrinsic_widths)
            networks = dataclasses.replace(networks, novelty=learning)
        targets = self.targets.init(networks, self.objective.prior)
        return State(
            networks=networks,
            targets=targets if fixed is None else {**(targets or {}), "novelty": fixed},
            carry=dataclasses.replace(
                Samples.empty(self.env, self.metrics.fifo, self.finished),
                replay=jtu.tree_map(np.copy, self.first_replay),
            ),
            optimizer=self.optimizer.init(networks),
            step=np.zeros((), np.int32),
            seed=np.array(seed, np.uint32),
        )

    @functools.cached_property
    def first_replay(self) -> Replay | None:
        """The replay before the first step, with the known objects of a file."""
        if not self.replay.batch_size:
            return None
        return first_replay(self.env, self.replay, self.policy.keeps_actions)

    def draws(self) -> Mapping[str, Draw]:
        fresh: dict[str, Draw] = {}
        if self.batch_size:
            fresh = rollout_draws(self.env, self.batch_size) | search_draws(self.env, self.search, self.batch_size)
            if self.exploration.thompson:
                fresh["heads"] = Draw((self.finished + self.retraced, 1 + self.exploration.thompson_heads))
        if self.learns_energy:
            fresh |= energy_draws(self.env, self.energy)
        return {**fresh, **replay_draws(self.env, self.replay, self.policy, self.exploration)}

    def inputs(self) -> Inputs:
        data: dict[str, Any] = {"constants": self._constants} if self._constants else {}
        if self.learns_energy:
            data["observed"] = self._observed
        return Inputs(settings=self.exploration.settings(), data=data)

    @functools.cached_property
    def _constants(self) -> dict[str, np.ndarray]:
        return self.env.constants()

    def collect(self, state: State, draws, inputs: Inputs) -> tuple[Samples, Trajectories]:
        carry, fresh = self._act(state, draws, inputs)
        if fresh is not None and not self.replay.batch_size:
            return carry, fresh
        own = {name: numbers[0] for name, numbers in below(draws, "replay").items()}
        return carry, self._lesson(dataclasses.replace(state, carry=carry), fresh, own, inputs)[0]

    def step(self, state: State, draws, inputs: Inputs, update: Update) -> tuple[State, Metrics]:
        before = state.step
        learn = self._learn if self.replay.batch_size else self._learn_fresh
        state, log = learn(state, draws, inputs, update)
        return dataclasses.replace(state, targets=self.targets.moved(state.targets, state.networks, before)), log

    def _learn_fresh(self, state: State, draws, inputs: Inputs, update: Update) -> tuple[State, Metrics]:
        """Fresh trajectories, of which the networks that act and that are trained are asked once."""
        carry, fresh = self._act(state, draws, inputs, keep=True)
        state, log = update(state, self.loss, fresh)
        return dataclasses.replace(state, carry=carry), log

    def _learn(self, state: State, draws, inputs: Inputs, update: Update) -> tuple[State, Metrics]:
        """Fresh trajectories, and updates with objects of the replay beside them."""
        carry, fresh = self._act(state, draws, inputs)

        def once(state: State, own):
            batch, slots = self._lesson(state, fresh, own, inputs)
            carry = state.carry
            state, log = update(state, self.loss, batch)
            if "error" in log:
                errors = log.pop("error")[-self.replay.batch_size :]
                carry = dataclasses.replace(carry, replay=carry.replay.weighed(slots, errors))
            return dataclasses.replace(state, carry=carry), log

        state, log = ops.scan(once, dataclasses.replace(state, carry=carry), below(draws, "replay"))
        return state, {name: ops.mean(values, 0) for name, values in log.items()}

    def _act(self, state: State, draws, inputs: Inputs, keep: bool = False) -> tuple[Samples, Trajectories | None]:
        """Fresh trajectories and proposals, whose objects are stored; none where all comes from a file. They may `keep`
        what the layers of the policy give, for a loss of the same networks."""
        if not self.batch_size:
            return state.carry, None
        policy = state.networks.policy.acting()
        given = self._given(state, inputs)
        env = self.env.given(given.constants)
        head, learners = self.exploration.heads(draws["heads"]) if self.exploration.thompson else (None, None)
        reader = Reader.of(env, policy, None if head is None else head[: self.batch_size])
        alone = not self.search.rounds and not self.retraced  # what others walked, nothing was kept of
        if keep and alone and can_record(env, policy, draws["action"]):
            reader = Recorder(env, policy, asks_of_ends(env, self.policy.backward, self.needs))
        fresh = forward_rollout(
            env,
            reader,
            draws["action"],
            self.exploration.explore(draws["explore"]),
            scheduled(inputs.settings["epsilon"], state.step),
            scheduled(inputs.settings["temperature"], state.step),
        )
        fresh = dataclasses.replace(fresh, given=given)
        if self.search.rounds:
            own, backward = below(draws, "search"), self.policy.backward
            found = local_search(self.env, state.networks, backward, self.search, fresh.last, own, given)
            fresh = joined(env, [fresh, found])
        carry = state.carry.update(env, fresh.last)
        if self.learns_energy:
            own, observed = below(draws, "energy"), inputs.data["observed"]
            seen, traced = contrast(
                self.env, state.networks, self.policy.backward, self.energy, observed, own, fresh.given
            )
            fresh = fresh if traced is None else joined(env, [fresh, traced])
            fresh = dataclasses.replace(fresh, given=dataclasses.replace(given, contrast=seen))
        if learners is not None:
            fresh = dataclasses.replace(fresh, learners=learners)
        if carry.replay is not None:
            carry = dataclasses.replace(carry, replay=carry.replay.add(self.replay, env, fresh.last, fresh.actions))
        return carry, fresh

    def _given(self, state: State, inputs: Inputs) -> Given:
        scale = None
        if self.exploration.intrinsic:
            scale = scheduled(inputs.settings["intrinsic"], state.step)
        constants = {**inputs.data.get("constants", {}), **held_energy(state.networks)}
        return Given(constants, state.targets, intrinsic=scale)

    def _lesson(self, state: State, fresh: Trajectories | None, own, inputs: Inputs) -> tuple[Trajectories, Any]:
        given = self._given(state, inputs)
        return lesson(self.env, state, self.replay, self.policy, self.exploration, fresh, own, given)

    def judged(self, state: State) -> Networks:
        """The networks that evaluations and samples use."""
        return (state.targets or {}).get("ema", state.networks)

    def scores(self, networks: Networks, batch: Trajectories | Visited, size: int | None = None) -> Scores:
        """The log-probabilities that the objective is made of."""
        return score(self.env, networks, batch, self.policy.backward, self.needs, size)

    def loss(self, networks: Networks, batch: Trajectories | Visited, size: int | None = None) -> tuple[Any, Terms]:
        if self.exploration.thompson and batch.learners is None:
            # Trajectories from elsewhere, of which nobody has said who learns from them.
            everyone = ops.full((*batch.length.shape, self.exploration.thompson_heads), 1, batch.length) > 0
            batch = dataclasses.replace(batch, learners=everyone)
        s = self.scores(networks, batch, size)
        apart = backward_losses(self.env, self.policy.backward, s, self.batch_size, self.replay.batch_size)
        s = held_still(s) if apart else s
        shown = {"log_reward": ops.mean(s.log_reward), "length": ops.mean(ops.cast(batch.length, s.log_reward))}
        if networks.energy is not None:
            learned, seen = energy_losses(self.env, networks.energy, batch.given, self.energy)
            apart, shown = {**apart, **learned}, {**shown, **seen}
        if s.novelty is not None:
            form, scale = self.exploration.intrinsic_form, batch.given.intrinsic
            shown["intrinsic_reward"] = ops.mean(intrinsic_reward(end_novelty(s), scale))
            apart, s = {**apart, "novelty_loss": novelty_loss(s, form)}, rewarded(s, form, scale)
        loss, terms = two_results(self.objective(by_head(s)))
        if apart:
            parts = {**(terms.parts or {"objective_loss": loss}), **apart}
            loss, terms = loss + sum(apart.values()), dataclasses.replace(terms, parts=parts)
        if s.log_z is not None:
            shown["log_z"] = s.log_z
        arrays = terms.arrays
        if self.replay.batch_size and self.replay.priority == "loss":
            arrays = {**arrays, "error": self.objective.log_z(s) - objectives.log_z_estimates(s)}
        return loss, Terms(terms.parts, {**terms.shown, **shown}, arrays)

    @property
    def graph(self) -> Enumeration | None:
        """The enumerated world, or None if it is too large."""
        return _graph(self.env, self.metrics.exact_limit)

    @functools.cached_property
    def compile(self) -> Compile:
        longest = self.env.max_steps + (0 if self.env.stops else 1)
        return Compile(
            sizes=() if self.env.fixed_length else row_sizes(self.in_update, longest),
            count=self._count,
            prepare=lambda batch: visit(self.env, batch),
            watch=lambda logs: self.env.watch(),
            updates=self.replay.updates,
            memory=MEMORY,
        )

    def _count(self, batch: Trajectories | Visited) -> Any:
        return num_rows(self.env, batch) if isinstance(batch, Trajectories) else batch.count

    @property
    def judge(self) -> Judge:
        judging = Judging(self)
        functions = judging.draws, judging.tables, judging.measure, judging.summarise
        return Judge(*functions, titles={**TITLES, **self.env.titles}, pictures={**PICTURES, **self.env.pictures})

    @property
    def prove(self) -> Prove:
        return Prove(check=self._check)

    @property
    def present(self) -> Present:
        counts = {"trajectories": self.batch_size or self.in_update}
        files = (Path(self.replay.file),) if self.replay.file else ()
        return Present(
            unit=Unit("updates"),
            counts=counts,
            describe=self._describe,
            sources=(*self.env.files, *files),
            tables=Using(self).tables,
            drawings=Using(self).drawings,
        )

    @property
    def use(self) -> Use:
        using = Using(self)
        return Use(sample=using.sample, top_k=using.top_k)

    def _describe(self) -> dict[str, Any]:
        facts = {"environment": repr(self.env), "objective": self.objective.name, "batch_size": self.batch_size}
        # Told before the first step, so a large world is not walked through for it.
        if (self.env.num_states or DESCRIBED + 1) <= DESCRIBED and self.graph is not None:
            facts["states"] = int(self.graph.done.sum())
            if not self.learns_energy:
                facts["log_z"] = self.graph.log_z
        return facts


@remembered
@checked
def problem(
    env: Environment,
    objective: str | objectives.Objective = "trajectory_balance",
    *,
    reward: Any = None,
    batch_size: int = 16,
    policy: PolicyOptions | None = None,
    exploration: Exploration | None = None,
    optimizer: Optimizer | None = None,
    metrics: MetricOptions | None = None,
    log_z: tuple[float, ...] = (0.0,),
    network: NetworkFactory | None = None,
    targets: TargetOptions | None = None,
    replay: ReplayOptions | None = None,
    local_search: LocalSearchOptions | None = None,
    energy: EnergyOptions | None = None,
) -> GFlowNet:
    """A GFlowNet on an environment.

    An `objective` is a name, or an object with options of its own. A `reward` takes the place of the environment's own:
    a record with `log_reward(env, state)`, or any callable (a function, a `torch.nn.Module`, a model's `predict`) that
    gives one number for each object; see `tx.envs.BlackBox`. A `network` makes the policy, `(rng, spec) -> module`; see
    `tx.networks.NetworkSpec`. `targets` are slower copies of the networks. A `replay` draws known objects beside the
    fresh trajectories of a step: `replay=ReplayOptions(size=10_000, batch_size=16, priority="rank")`. A `local_search`
    varies fresh objects: `local_search=LocalSearchOptions(rounds=7, steps=4)`. `energy` says how a reward is learned
    from data that can be, such as `tx.envs.LearnedCouplings`: `energy=EnergyOptions(steps=4, l1=0.01)`.

    >>> from twinax.envs import Hypergrid
    >>> problem(Hypergrid(dim=2, side=8), "detailed_balance").objective.name
    'detailed_balance'
    """
    return GFlowNet(
        env=env if reward is None else env.with_reward(reward),
        objective=objectives.objective(objective),
        batch_size=batch_size,
        policy=policy or PolicyOptions(),
        exploration=exploration or Exploration(),
        optimizer=optimizer or Optimizer(rates={"log_z": 0.1}),
        metrics=metrics or MetricOptions(),
        log_z=log_z,
        network=network,
        targets=targets or TargetOptions(),
        replay=replay or ReplayOptions(),
        search=local_search or LocalSearchOptions(),
        energy=energy or EnergyOptions(),
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
    Where trajectories are short, three quarters of many rows are worth a branch.
    """
    most, least = batch * longest, max(64, 6 * batch)
    if most < 2 * least:
        return (-(-3 * most // 64) * 16, most) if most >= MANY_ROWS else (most,)
    number = min(number, 2 + most // least)
    sizes = np.linspace(np.sqrt(least), np.sqrt(most), number) ** 2
    return (*(-(-int(size) // 16) * 16 for size in sizes[:-2]), most)
