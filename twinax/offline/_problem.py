"""An offline agent and its data as a problem: one step is one update, first of pretraining, then of finetuning."""

from __future__ import annotations

import dataclasses
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
from twinax.offline._agent import PHASES, Agent
from twinax.offline._dataset import Dataset
from twinax.offline._goals import GoalOptions, goal_preset
from twinax.offline._judge import TITLES, Judging
from twinax.offline._phases import Phases
from twinax.offline._sampling import BatchOptions, batch_of_rows
from twinax.offline._tasks import Task
from twinax.offline._use import Using
from twinax.offline.learning import Lesson, first_state, learned, statistics_of, total_loss
from twinax.optimizer import Optimizer
from twinax.parts import Compile, Judge, Present, Prove, Unit, Use
from twinax.problem import Inputs, Metrics, Problem, State, Terms
from twinax.recipe import remembered
from twinax.shapes import blank, shapes_of

INFERRED_FROM = 10_000
"""Rows of labelled data from which a task's latent is inferred."""
MEMORY = {
    "networks": "the networks (agent.hidden)",
    "carry.memory": "the imagined steps (agent.num_model_rollouts, agent.num_model_rollout_steps)",
    "draws": "a batch (trainer.batch_size)",
    "step": "a batch in the networks (trainer.batch_size, agent.hidden)",
    "data": "the data (data.rows, data.mapped)",
}
"""What takes memory."""


@dataclass(frozen=True, eq=False)
class Offline(Phases, Problem):
    """See `problem`, which fills in the defaults."""

    def init(self, seed: int) -> State:
        carry: dict[str, Any] = {
            "terms": {name: np.zeros((), np.float32) for name in self.term_names},
            "normaliser": statistics_of(self.normaliser, self.widths),
        }
        if self.latent:
            carry["latent"] = np.zeros(getattr(self.agent, "latent_dim"), np.float32)  # noqa: B009 - of these agents only
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

        def build(rng):
            networks = self.agent.build(rng, self.widths)
            return networks, self.agent.first_targets(networks, rng, self.widths)

        def log(networks, targets, draws, data, latent):
            logs = {}
            for phase in self.phases:
                own = below(draws, phase)
                rows = self.rows(phase, data, own, latent)
                logs[phase] = self.loss(networks, Lesson({phase: rows}, {phase: own}, targets))[1].log()
            return logs

        draws = {name: blank(draw.shape, _kind(draw)) for name, draw in self.draws().items()}
        latent = {"latent": blank((getattr(self.agent, "latent_dim", 1),))}
        given = (*shapes_of(build), draws, self.arrays(), latent)
        logs = jax.eval_shape(log, *jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given))
        return {phase: tuple(terms) for phase, terms in logs.items()}

    def inputs(self) -> Inputs:
        return Inputs(data=self.arrays())

    # Learning

    def collect(self, state: State, draws, inputs: Inputs) -> tuple[Any, Lesson]:
        """Batches of all phases: what a step learns from in each of them."""
        rows, own, carry = {}, {}, dict(state.carry)
        for phase in self.phases:
            own[phase] = below(draws, phase)
            batch = self.rows(phase, inputs.data, own[phase], carry)
            if phase == "finetune" and "memory" in carry:
                carry["memory"] = self.agent.imagine(frozen(state.networks), carry["memory"], batch, own[phase])
                batch = self.agent.recalled(carry["memory"], batch, own[phase])
            rows[phase] = batch
        return carry, Lesson(rows, own, state.targets)

    def loss(self, networks, batch: Lesson, size: int | None = None) -> tuple[Any, Terms]:
        return total_loss(self.agent, networks, batch)

    def step(self, state: State, draws, inputs: Inputs, update) -> tuple[State, Metrics]:
        state = self._entered(state, inputs.data)
        done = ops.cast(state.step, "int32")

        def learn(phase: str):
            return lambda: self._learned(state, draws, inputs.data, update, phase)

        if self.phases == PHASES:
            parts, terms = ops.cond(done < self.pretrain_steps, learn("pretrain"), learn("finetune"))
        else:
            parts, terms = learn(*self.phases)()
        networks, moments, targets, carry = parts
        state = dataclasses.replace(state, networks=networks, optimizer=moments, targets=targets, carry=carry)
        return state, {**carry["terms"], **terms}

    def _learned(self, state: State, draws, data: Mapping[str, Any], update, phase: str):
        """One update: ((networks, moments, targets, carry), terms)."""
        own, carry = below(draws, phase), dict(state.carry)
        rows = self.rows(phase, data, own, carry)
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

    def _entered(self, state: State, data: Mapping[str, Any]) -> State:
        """At the first step of finetuning: targets that start anew, and the task's latent."""
        names = self.agent.reset_targets()
        if "finetune" not in self.phases or not (names or self.latent):
            return state

        def enter():
            networks = frozen(state.networks)
            latent = self.inferred(networks, self.arrays_of("finetune", data)) if self.latent else ()
            return {name: ema(state.targets[name], networks[name], 1.0) for name in names}, latent

        def stay():
            return {name: state.targets[name] for name in names}, state.carry["latent"] if self.latent else ()

        begins = ops.cast(state.step, "int32") == self.pretrain_steps
        targets, latent = ops.cond(begins, enter, stay)
        carry = {**state.carry, "latent": latent} if self.latent else state.carry
        return dataclasses.replace(state, targets={**state.targets, **targets}, carry=carry)

    def inferred(self, networks: Any, arrays: Mapping[str, Any]) -> Any:
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

    # What others read

    @property
    def compile(self) -> Compile:
        return Compile(prepare=_prepare, alternatives=_alternatives, memory=MEMORY)

    @property
    def judge(self) -> Judge:
        judging = Judging(self)
        return Judge(
            judging.draws,
            judging.tables,
            judging.measure,
            judging.summarise,
            best=("success", "return"),
            titles=TITLES,
            pictures={} if self.task is None else self.task.drawn(),
            own_seeds="" if self.task is None else self.task.own_seeds,
        )

    @property
    def prove(self) -> Prove:
        return Prove(steps=5)  # each is an update of networks with millions of parameters, in float64

    @property
    def present(self) -> Present:
        return Present(unit=Unit("updates"), describe=self._describe, members=dict)

    @property
    def use(self) -> Use:
        using, goes = Using(self), self.agent.actor_sees == "goal"
        return Use(
            act=using.act,
            act_options=("goal",) if goes else (),
            observation=self.widths.shape,
            export=using.export,
        )

    def _describe(self) -> dict[str, Any]:
        sizes = {f"{phase} rows": self.datasets[phase].size for phase in self.phases}
        return {"agent": repr(self.agent), "pretrain_steps": self.pretrain_steps, **sizes, "task": repr(self.task)}


def _prepare(batch: Lesson) -> Lesson:
    decided = batch.choice is not None and ops.framework(batch.choice) != "jax"
    return batch.chosen(bool(batch.choice)) if decided else batch


def _alternatives(batch: Lesson) -> tuple[Any, Lesson, Lesson] | None:
    return None if batch.choice is None else (batch.choice, batch.chosen(True), batch.chosen(False))


def _kind(draw: Draw) -> str:
    return "int32" if draw.kind == "integers" else "float32"


@remembered
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
    datasets = {"pretrain": pretraining, "finetune": finetuning}
    needs_goals = "goals" in agent.needs
    if needs_goals and goals is None:
        if not 0 < agent.gamma < 1:
            raise TwinaxError(
                f"gamma is {agent.gamma}, but {agent.name} draws goals at a distance of about 1 / (1 - gamma) "
                "steps; it must be between 0 and 1, neither of them"
            )
        goals = dataclasses.replace(goal_preset(agent.name), gamma=agent.gamma)
    return Offline(
        agent=agent,
        datasets={phase: data for phase, data in datasets.items() if data is not None},
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
