"""An agent and its data by phase: what belongs together is checked, and batches are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.offline._agent import PHASES, Agent, Sizes
from twinax.offline._dataset import Dataset
from twinax.offline._goals import GoalOptions, goal_batch_draws, sample_goal_batch
from twinax.offline._normaliser import Normaliser
from twinax.offline._sampling import BatchOptions, batch_draws, sample_batch
from twinax.offline._tasks import Task
from twinax.optimizer import Optimizer
from twinax.problem import State
from twinax.ranges import check_range


@dataclass(frozen=True, eq=False)
class Phases:
    """The fields of `Offline`."""

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
        check_range(self, "at least 0", "pretrain_steps")
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

    @property
    def normaliser(self) -> Normaliser | None:
        """How observations were normalised in the last phase, which evaluations follow."""
        return self.datasets[self.phases[-1]].normaliser

    @property
    def box(self) -> Any:
        """(low, high) of the data's actions before they were scaled to [-1, 1]; None if they were not."""
        return next((data.box for data in self.datasets.values() if data.box is not None), None)

    def arrays(self) -> dict[str, Any]:
        """What steps read of the data, by phase."""
        by_phase: dict[str, Any] = {}
        for phase in self.phases:
            arrays = self.with_range(self.datasets[phase])
            # What both phases share is held once.
            by_phase[phase] = {
                name: value for name, value in arrays.items() if value is not by_phase.get("pretrain", {}).get(name)
            }
        return by_phase

    def with_range(self, dataset: Dataset) -> dict[str, np.ndarray]:
        """Its arrays, with the range of observations for agents that need it."""
        arrays = dict(dataset.arrays())
        if "range" in self.agent.needs and not self.agent.encoder:
            arrays["observation_min"], arrays["observation_max"] = dataset.observation_range()
        return arrays

    def arrays_of(self, phase: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Those of one phase, of what `arrays` gave."""
        shared = {} if phase == "pretrain" or "pretrain" not in data else dict(data["pretrain"])
        if phase == "finetune":
            shared.pop("drawable", None)
        return {**shared, **data[phase]}

    def draws(self) -> Mapping[str, Draw]:
        draws = {}
        for phase in self.phases:
            own = self.phase_draws(phase, self.datasets[phase].size)
            draws |= {f"{phase}/{name}": draw for name, draw in own.items()}
        return draws

    def phase_draws(self, phase: str, size: int) -> dict[str, Draw]:
        """The random arrays of one update in data of this size."""
        if self.goals is None:
            rows = batch_draws(self.batch, size)
        else:
            rows = goal_batch_draws(self.batch, self.goals, size)
        return {**rows, **self.agent.draws(phase, self.widths)}

    def rows(self, phase: str, data: Mapping[str, Any], draws: Mapping[str, Any], carry: Mapping[str, Any]) -> Any:
        """A batch of a phase."""
        return self.draw_batch(phase, self.arrays_of(phase, data), draws, carry)

    def draw_batch(
        self, phase: str, arrays: Mapping[str, Any], draws: Mapping[str, Any], carry: Mapping[str, Any]
    ) -> Any:
        """The same from arrays of any data."""
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
