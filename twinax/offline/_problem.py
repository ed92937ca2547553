"""An offline agent and its data as a problem: one step is one update, first of pretraining, then of finetuning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.errors import TwinaxError
from twinax.networks import ema, frozen
from twinax.noise import Draw, below
from twinax.offline._agent import PHASES, Agent, Sizes
from twinax.offline._dataset import Dataset
from twinax.offline._goals import GoalOptions, goal_batch_draws, goal_preset, sample_goal_batch
from twinax.offline._learning import Lesson, first_state, learned, total_loss
from twinax.offline._normaliser import Normaliser
from twinax.offline._pretrained import statistics_of
from twinax.offline._sampling import BatchOptions, batch_draws, batch_of_rows, sample_batch
from twinax.offline._tasks import Task, judged
from twinax.optimizer import Optimizer
from twinax.problem import Metrics, Problem, State, Terms

INFERRED_FROM = 10_000
"""Rows of labelled data from which a task's latent is inferred."""


@dataclass(frozen=True, eq=False)
class Offline(Problem):
    """See `problem`, which fills in the defaults."""

    agent: Agent
    datasets: dict[str, Dataset]
    """By phase; without finetuning data, pretraining never ends."""
    optimizer: Optimizer
    pretrain_steps: int
    batch: BatchOptions
    goals: GoalOptions | None
    task: Task | None = None
    validation: Dataset | None = None
    pretrained: State | None = None
    """Where finetuning begins, in place of pretraining."""

    best = ("success", "return")
    parity_steps = 5
    """Each is an update of networks with millions of parameters, in float64."""

    def __post_init__(self):
        if not self.datasets:
            raise TwinaxError("there are no data; give pretraining data, finetuning data or both")
        for phase, data in self.datasets.items():
            if data.actions.ndim != 2:
                raise data.error("actions are discrete; these agents act in a box of real numbers")
            if data.observations.ndim == 2 and self.batch.frame_stack > 1:
                raise data.error(f"frame_stack is {self.batch.frame_stack}, but observations are vectors, not images")
            if self.goals is not None:
                data.require_goals()
            if phase == "finetune":
                data.require_rewards()
        if self.validation is not None and "finetune" in self.datasets:
            self.validation.require_rewards()
        if self.task is not None and self.latent and "finetune" not in self.datasets:
            raise TwinaxError(
                f"{self.agent.name} infers a task from labelled data, but there are none; leave the task out"
            )
        if self.batch.batch_size < self.agent.least_rows:
            raise TwinaxError(
                f"batch_size is {self.batch.batch_size}, but {self.agent.name} compares the rows of a batch with each "
                f"other; it must be at least {self.agent.least_rows}"
            )
        if self.latent and "finetune" in self.datasets:
            data = self.datasets["finetune"]
            if not data.rewards[data.drawable].any():
                raise data.error(f"every reward is 0, so {self.agent.name} cannot infer a task from them")
        if self.pretrain_steps < 0:
            raise TwinaxError(f"pretrain_steps is {self.pretrain_steps}; it must be at least 0")
        if self.pretrain_steps and "pretrain" not in self.datasets and self.pretrained is None:
            raise TwinaxError(f"pretrain_steps is {self.pretrain_steps}, but there are no pretraining data")
        if not self.pretrain_steps and "finetune" not in self.datasets:
            raise TwinaxError("pretrain_steps is 0, but there are no finetuning data")
        shapes = {(data.observations.shape[1:], data.actions.shape[1]) for data in self.datasets.values()}
        boxes = [data.box for data in self.datasets.values() if data.box is not None]
        if not all(np.array_equal(boxes[0], box) for box in boxes[1:]):
            low, high = zip(*boxes, strict=True)
            raise TwinaxError(
                f"the two datasets had actions from {low[0]} to {high[0]} and from {low[1]} to {high[1]}; an action "
                "must mean the same in both, so read them with the same low and high"
            )
        if len(shapes) > 1:
            raise TwinaxError(f"the two datasets have observations and actions of different widths: {sorted(shapes)}")
        widths = self.widths  # refuses observations that the agent cannot read
        if self.task is not None:
            self.task.require_like(widths.shape, widths.action)
            if self.box is None:
                self.task.say_range(self.datasets[self.phases[-1]])

    # Sizes and phases

    @cached_property
    def widths(self) -> Sizes:
        """Shape and widths of observations and actions, and rows of a batch."""
        data = next(iter(self.datasets.values()))
        *place, channels = data.observations.shape[1:]
        shape = (*place, channels * self.batch.frame_stack)
        return self.agent.sizes(shape, data.actions.shape[1], self.batch.batch_size)

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """The phases that this run has."""
        pretrains = "pretrain" in self.datasets and (self.pretrain_steps or "finetune" not in self.datasets)
        return tuple(
            phase
            for phase in PHASES
            if (phase == "pretrain" and pretrains) or (phase == "finetune" and "finetune" in self.datasets)
        )

    @property
    def latent(self) -> bool:
        """Whether the actor is told a task by a latent."""
        return self.agent.actor_sees == "latent"

    def still(self, phase: str) -> tuple[str, ...]:
        """Networks without gradient and momentum in a phase."""
        moved = set(self.agent.trained[phase])
        if phase == "finetune" and (self.pretrain_steps or self.pretrained is not None):
            # What was pretrained drifts on with its momentum, as it would with one optimizer for all.
            moved |= set(self.agent.trained["pretrain"])
        return tuple(name for name in self.agent.network_names() if name not in moved)

    # State

    def init(self, seed: int) -> State:
        carry: dict[str, Any] = {
            "terms": {name: np.zeros((), np.float32) for name in self.term_names},
            "normaliser": statistics_of(self.normaliser, self.widths),
        }
        if self.latent:
            carry["latent"] = np.zeros(getattr(self.agent, "width"), np.float32)  # noqa: B009 - of these agents only
        if memory := self.agent.memory(self.widths):
            carry["memory"] = memory
        fresh = dataclasses.replace(first_state(self.agent, self.widths, self.optimizer, seed), carry=carry)
        if self.pretrained is None:
            return fresh
        kept = tree.map_leaves(np.copy, self.pretrained)
        return dataclasses.replace(
            fresh,
            networks=kept.networks,
            targets=kept.targets,
            optimizer=self.optimizer.adopted(kept.optimizer),
            step=kept.step,
        )

    @property
    def term_names(self) -> tuple[str, ...]:
        """Every term that a step of any phase logs."""
        return tuple(dict.fromkeys(name for names in self.phase_terms.values() for name in names))

    @cached_property
    def phase_terms(self) -> dict[str, tuple[str, ...]]:
        """The terms that a step of each phase logs."""
        import jax

        def terms():
            rng = np.random.default_rng(0)
            networks = self.agent.build(rng, self.widths)
            targets = self.agent.first_targets(networks, rng, self.widths)
            draws = {name: np.zeros(draw.shape, _kind(draw)) for name, draw in self.draws().items()}
            data = self.data()
            latent = {"latent": np.ones(getattr(self.agent, "width", 1), np.float32)}
            given = jax.tree.map(jax.numpy.asarray, (networks, targets, draws, data, latent))

            def all_of(networks, targets, draws, data, latent):
                found = {}
                for phase in self.phases:
                    own = below(draws, phase)
                    rows = self.rows(phase, data, own, latent)
                    found[phase] = self.loss(networks, Lesson({phase: rows}, {phase: own}, targets))[1].log()
                return found

            return jax.eval_shape(all_of, *given)

        return {phase: tuple(found) for phase, found in terms().items()}

    # Data and draws

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for phase in self.phases:
            arrays = self._with_range(self.datasets[phase])
            # What both phases share is held once.
            found[phase] = {
                name: value for name, value in arrays.items() if value is not found.get("pretrain", {}).get(name)
            }
        return found

    def _with_range(self, dataset: Dataset) -> dict[str, np.ndarray]:
        arrays = dict(dataset.arrays())
        if "range" in self.agent.needs and not self.agent.encoder:
            arrays["observation_min"], arrays["observation_max"] = dataset.observation_range()
        return arrays

    def _arrays(self, phase: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        shared = {} if phase == "pretrain" or "pretrain" not in settings else dict(settings["pretrain"])
        if phase == "finetune":
            shared.pop("drawable", None)
        return {**shared, **settings[phase]}

    def draws(self) -> Mapping[str, Draw]:
        found = {}
        for phase in self.phases:
            own = self._phase_draws(phase, self.datasets[phase].size)
            found |= {f"{phase}/{name}": draw for name, draw in own.items()}
        return found

    def _phase_draws(self, phase: str, size: int) -> dict[str, Draw]:
        if self.goals is None:
            rows = batch_draws(self.batch, size)
        else:
            rows = goal_batch_draws(self.batch, self.goals, size)
        return {**rows, **self.agent.draws(phase, self.widths)}

    def rows(self, phase: str, settings: Mapping[str, Any], draws: Mapping[str, Any], carry: Mapping[str, Any]) -> Any:
        """A batch of a phase."""
        return self._drawn(phase, self._arrays(phase, settings), draws, carry)

    def _drawn(self, phase: str, arrays: Mapping[str, Any], draws: Mapping[str, Any], carry: Mapping[str, Any]) -> Any:
        if self.goals is None:
            batch = sample_batch(arrays, self.batch, draws)
        else:
            batch = sample_goal_batch(arrays, self.batch, self.goals, draws)
        del batch["rows"]
        for name in ("observation_min", "observation_max"):
            if name in arrays:
                batch[name] = arrays[name]
        if phase == "finetune":
            if self.datasets[phase].reward_on_next and not self.agent.faithful:
                batch["reward_observations"] = batch["next_observations"]
            if self.latent:
                batch["latents"] = ops.broadcast(carry["latent"][None], (self.batch.batch_size, *carry["latent"].shape))
        return batch

    # Learning

    def collect(self, state: State, draws, settings) -> tuple[Any, Lesson]:
        """Batches of all phases: what a step learns from in each of them."""
        rows, own, carry = {}, {}, dict(state.carry)
        for phase in self.phases:
            own[phase] = below(draws, phase)
            batch = self.rows(phase, settings, own[phase], carry)
            if phase == "finetune" and "memory" in carry:
                carry["memory"] = self.agent.imagine(frozen(state.networks), carry["memory"], batch, own[phase])
                batch = self.agent.recalled(carry["memory"], batch, own[phase])
            rows[phase] = batch
        return carry, Lesson(rows, own, state.targets)

    def loss(self, networks, batch: Lesson, size: int | None = None) -> tuple[Any, Terms]:
        return total_loss(self.agent, networks, batch)

    def prepare(self, batch: Lesson) -> Lesson:
        decided = batch.choice is not None and ops.framework(batch.choice) != "jax"
        return batch.chosen(bool(batch.choice)) if decided else batch

    def alternatives(self, batch: Lesson) -> tuple[Any, Lesson, Lesson] | None:
        return None if batch.choice is None else (batch.choice, batch.chosen(True), batch.chosen(False))

    def step(self, state: State, draws, settings, update) -> tuple[State, Metrics]:
        state = self._entered(state, settings)
        done = ops.cast(state.step, "int32")

        def learn(phase: str):
            return lambda: self._learned(state, draws, settings, update, phase)

        if self.phases == PHASES:
            parts, terms = ops.cond(done < self.pretrain_steps, learn("pretrain"), learn("finetune"))
        else:
            parts, terms = learn(*self.phases)()
        networks, moments, targets, carry = parts
        state = dataclasses.replace(state, networks=networks, optimizer=moments, targets=targets, carry=carry)
        return state, {**carry["terms"], **terms}

    def _learned(self, state: State, draws, settings, update, phase: str):
        """One update: ((networks, moments, targets, carry), terms)."""
        own, carry = below(draws, phase), dict(state.carry)
        rows = self.rows(phase, settings, own, carry)
        if phase == "finetune" and "memory" in carry:
            carry["memory"] = self.agent.imagine(frozen(state.networks), carry["memory"], rows, own)
            rows = self.agent.recalled(carry["memory"], rows, own)
        lesson = Lesson({phase: rows}, {phase: own}, state.targets)
        if phase == "finetune" and self.agent.gated and self.agent.actor_freq > 1:
            full = (ops.cast(state.step, "int32") + 1) % self.agent.actor_freq == 0
            lesson = dataclasses.replace(lesson, choice=full, last=carry["terms"])
        state, terms = learned(state, self.agent, self.loss, lesson, phase, update, self.still(phase))
        whole = {name: terms.pop(name) for name in ("loss", "grad_norm")}
        # A term that this phase does not have, or that was left out, is shown as it was last.
        carry["terms"] = {**carry["terms"], **terms}
        return (state.networks, state.optimizer, state.targets, carry), whole

    def _entered(self, state: State, settings: Mapping[str, Any]) -> State:
        """At the first step of finetuning: targets that start anew, and the task's latent."""
        names = self.agent.reset_targets()
        if "finetune" not in self.phases or not (names or self.latent):
            return state

        def enter():
            networks = frozen(state.networks)
            latent = self._inferred(networks, self._arrays("finetune", settings)) if self.latent else ()
            return {name: ema(state.targets[name], networks[name], 1.0) for name in names}, latent

        def stay():
            return {name: state.targets[name] for name in names}, state.carry["latent"] if self.latent else ()

        begins = ops.cast(state.step, "int32") == self.pretrain_steps
        targets, latent = ops.cond(begins, enter, stay)
        carry = {**state.carry, "latent": latent} if self.latent else state.carry
        return dataclasses.replace(state, targets={**state.targets, **targets}, carry=carry)

    def _inferred(self, networks: Any, arrays: Mapping[str, Any]) -> Any:
        """The latent of the labelled rows: of 10,000 evenly spaced ones at most."""
        data = self.datasets["finetune"]
        number = min(INFERRED_FROM, data.size)
        chosen = data.drawable[(np.arange(number) * data.size) // number]
        options = dataclasses.replace(self.batch, batch_size=number, augment=0.0)
        rows = ops.like(chosen, arrays["masks"])
        batch = batch_of_rows(arrays, options, rows)
        if data.reward_on_next and not self.agent.faithful:
            batch["reward_observations"] = batch["next_observations"]
        return ops.cast(self.agent.infer(networks, batch), batch["rewards"])

    # Evaluation

    def evaluation_draws(self) -> Mapping[str, Draw]:
        found = {} if self.task is None else {f"task/{name}": draw for name, draw in self.task.draws().items()}
        if self.validation is not None:
            for phase in self.phases:
                own = self._phase_draws(phase, self.validation.size)
                found |= {f"validation/{phase}/{name}": draw for name, draw in own.items()}
        return found

    def tables(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.latent and "finetune" in self.phases:
            found["labelled"] = self.datasets["finetune"].arrays()
        if self.validation is not None:
            found["validation"] = self._with_range(self.validation)
        return found

    def measure(self, state: State, draws, tables) -> Metrics:
        networks, found = frozen(state.networks), {}
        if self.task is not None:
            given = self._given(state, networks, tables)
            if self.task.compiled:
                found |= self.task.rollout(self._acting(networks, given), below(draws, "task"))
                found |= self._values(state, networks, given)
            else:
                found |= {"networks": networks, **({} if given is None else {"given": given})}
        if self.validation is not None:
            found |= self._validated(state, networks, below(draws, "validation"), tables["validation"])
        return found

    def _validated(self, state: State, networks: Any, draws, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The terms of the losses on validation data, by phase, and the number of the phase that the state is in: only
        its terms are computed."""
        nothing = ops.zeros((), _leaf(networks))

        def terms(phase: str):
            own = below(draws, phase)
            rows = self._drawn(phase, arrays, own, state.carry)
            if phase == "pretrain" and not self.agent.faithful:  # as in Dataset.reward_free
                rows = {**rows, "masks": ops.zeros(rows["masks"].shape, rows["masks"]) + 1}
                rows.pop("rewards", None)
            shown = self.loss(networks, Lesson({phase: rows}, {phase: own}, state.targets))[1].log()
            others = {other: dict.fromkeys(names, nothing) for other, names in self.phase_terms.items()}
            return {**others, phase: {name: ops.cast(shown[name], nothing) for name in self.phase_terms[phase]}}

        if len(self.phases) == 1:
            return {"validation": terms(self.phases[0]), "validation_phase": nothing}
        later = ops.cast(state.step, "int32") > self.pretrain_steps
        found = ops.cond(later, lambda: terms("finetune"), lambda: terms("pretrain"))
        return {"validation": found, "validation_phase": ops.cast(later, nothing)}

    def _given(self, state: State, networks: Any, tables: Mapping[str, Any]) -> Any:
        """What the actor is told: the task's latent, inferred anew while pretraining (zero-shot), or its goal."""
        if self.agent.actor_sees == "goal":
            goal = None if self.task is None else self.task.goal
            if goal is None:
                raise TwinaxError(f"{self.agent.name} goes to goals, but this task has none")
            goal = np.asarray(goal if self.normaliser is None else self.normaliser(goal), np.float32)
            # A goal is seen as if one had stood there: its frames are the same.
            goal = np.concatenate([goal] * (self.widths.shape[-1] // goal.shape[-1]), -1)
            return ops.like(goal, _leaf(networks))
        if not self.latent or "labelled" not in tables:
            return None
        pretraining = ops.cast(state.step, "int32") <= self.pretrain_steps
        return ops.cond(
            pretraining, lambda: self._inferred(networks, tables["labelled"]), lambda: state.carry["latent"]
        )

    @property
    def normaliser(self) -> Normaliser | None:
        """How observations were normalised in the last phase, which evaluations follow."""
        return self.datasets[self.phases[-1]].normaliser

    @property
    def box(self) -> Any:
        """(low, high) of the data's actions before they were scaled to [-1, 1]; None if they were not."""
        return next((data.box for data in self.datasets.values() if data.box is not None), None)

    def _acting(self, networks: Any, given: Any):
        """Observations as the world gives them, to actions without noise, in the box that the data had."""

        def act(observations):
            action = self.agent.act(networks, *self._seen(networks, observations, given), 0.0)
            if self.box is None:
                return action
            low, high = (ops.cast(ops.like(side, action), action) for side in self.box)
            return low + (action + 1) / 2 * (high - low)

        return act

    def _seen(self, networks: Any, observations: Any, given: Any) -> tuple[Any, Any, Any]:
        """Observations as the agent sees them, what it is told beside each, and noise of 0."""
        states = observations if self.normaliser is None else self.normaliser(observations)
        rows = states.shape[0]
        told = None if given is None else ops.broadcast(given[None], (rows, *given.shape))
        return states, told, ops.zeros((rows, self.widths.action), _leaf(networks))

    def _values(self, state: State, networks: Any, given: Any) -> dict[str, Any]:
        """How good the places of the task's picture are; nan as long as the network that says so has not learned."""
        places = None if self.task is None else self.task.places()
        if places is None or not self.agent.valued_by:
            return {}
        leaf = _leaf(networks)
        places = ops.cast(ops.like(places, leaf), leaf)
        found = self.agent.values(networks, *self._seen(networks, places, given))
        if self.agent.valued_by in self.agent.trained["pretrain"]:
            return {"values": found}
        return {"values": ops.where(ops.cast(state.step, "int32") > self.pretrain_steps, found, found * math.nan)}

    def evaluate(self, measured: Mapping[str, Any]) -> Metrics:
        found: Metrics = {}
        if "validation" in measured:
            phase = self.phases[int(measured["validation_phase"])]
            found = {f"validation.{name}": float(x) for name, x in measured["validation"][phase].items()}
        if self.task is None:
            return found
        if not self.task.compiled:
            measured = self.task.play(self._acting(measured["networks"], measured.get("given")), self.box)
        pictures = {f"picture/{name}": array for name, array in self.task.pictures(measured).items()}
        return {**judged(measured), **found, **pictures}

    def members(self, networks: Any) -> dict[str, Any]:
        return dict(networks)

    def describe(self) -> dict[str, Any]:
        sizes = {f"{phase} rows": self.datasets[phase].size for phase in self.phases}
        return {"agent": repr(self.agent), "pretrain_steps": self.pretrain_steps, **sizes, "task": repr(self.task)}


def _leaf(networks: Any) -> Any:
    return next(iter(tree.named_leaves(networks).values()))


def _kind(draw: Draw) -> str:
    return "int32" if draw.kind == "integers" else "float32"


@checked
def problem(
    agent: Agent,
    pretraining: Dataset | None = None,
    finetuning: Dataset | None = None,
    *,
    pretrain_steps: int = 0,
    batch_size: int = 256,
    optimizer: Optimizer | None = None,
    goals: GoalOptions | None = None,
    frame_stack: int = 1,
    augment: float = 0.0,
    task: Task | None = None,
    validation: Dataset | None = None,
    pretrained: State | None = None,
) -> Offline:
    """An agent that learns from data: `pretrain_steps` updates without rewards, then updates with them.

    Pretraining data lose their rewards and masks, unless the agent is `faithful`. One Adam updates all networks; it
    counts steps once for all of them, and a network without a gradient still moves by its momentum. From a `pretrained`
    state, finetuning begins at the next step.

    >>> from twinax.envs import PointMaze
    >>> from twinax.offline import collect_maze, label_maze
    >>> from twinax.offline.agents import IQL
    >>> maze = PointMaze("u")
    >>> data = label_maze(collect_maze(maze, trajectories=4, steps=25), maze, goal=(1.5, 1.5))
    >>> problem(IQL(hidden=(8,)), data, data, pretrain_steps=10, batch_size=4).phases
    ('pretrain', 'finetune')
    """
    if pretrained is not None:
        pretrain_steps = int(pretrained.step)
    if pretraining is not None and not agent.faithful:
        pretraining = pretraining.reward_free()
    found = {"pretrain": pretraining, "finetune": finetuning}
    needs_goals = "goals" in agent.needs
    if needs_goals and goals is None:
        if not 0 < agent.discount < 1:
            raise TwinaxError(
                f"discount is {agent.discount}, but {agent.name} draws goals at a distance of about 1 / (1 - discount) "
                "steps; it must be between 0 and 1, neither of them"
            )
        goals = dataclasses.replace(goal_preset(agent.name), gamma=agent.discount)
    return Offline(
        agent=agent,
        datasets={phase: data for phase, data in found.items() if data is not None},
        optimizer=optimizer or Optimizer(learning_rate=3e-4),
        pretrain_steps=pretrain_steps,
        batch=BatchOptions(
            batch_size=batch_size,
            next_actions="next_actions" in agent.needs,
            faithful=agent.faithful,
            frame_stack=frame_stack,
            augment=augment,
        ),
        goals=goals if needs_goals else None,
        task=task,
        validation=validation,
        pretrained=pretrained,
    )
