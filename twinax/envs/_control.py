"""The contract of a world with one agent whose actions have effects over time: CartPole, a robot, your own.

A world is rules over arrays. Every array has a leading axis of worlds that run side by side, random numbers are given,
and no rule knows of episodes: who plays restarts a world that has ended, and keeps the true last observation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinax import tree
from twinax.episode import View
from twinax.errors import TwinaxError
from twinax.noise import Draw

FRAMEWORKS = ("numpy", "torch", "jax")


@dataclass(frozen=True)
class Discrete:
    """One of `n` actions, as int32."""

    n: int

    def __post_init__(self):
        if self.n < 1:
            raise TwinaxError(f"a discrete action has {self.n} choices; it needs at least 1")


@dataclass(frozen=True)
class Box:
    """A row of numbers, each between its bounds."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self):
        if len(self.low) != len(self.high):
            raise TwinaxError(
                f"the bounds of an action have {len(self.low)} and {len(self.high)} entries; give as many"
            )
        if not self.low:
            raise TwinaxError("an action has 0 entries; it needs at least 1")
        for k, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if not low < high:
                raise TwinaxError(f"entry {k} of an action is bounded by {low} and {high}; the first must be smaller")

    @property
    def size(self) -> int:
        """Entries of an action."""
        return len(self.low)


Actions = Discrete | Box


@tree.record
class Moved:
    """What a step does in each world."""

    state: Any
    """After the step, and before any restart."""
    reward: Any
    terminated: Any
    """Whether the world came to an end of its own: nothing is worth anything after it. A time limit is no such end."""
    terms: dict[str, Any]
    """Parts of the reward and other numbers to watch, one for each world."""
    truncated: Any = None
    """Only from a `Restarting` world: whether an episode was cut off."""
    onward: Any = None
    """Only from a `Restarting` world: the states to go on from, which are new ones where an episode ended."""
    seen: tuple[Any, Any] | None = None
    """What the agent and a critic see of `state`, from a world that has it at hand; else they are asked for."""


class Control(ABC):
    """Rules of a world, many copies at once."""

    _made_by = "such as tx.envs.CartPole(), or tx.envs.GymnasiumWorld('CartPole-v1') for an environment of Gymnasium"
    name: str
    observation_size: int
    actions: Actions
    time_limit: int = 0
    """Steps after which an episode is cut off (truncated, not terminated); 0 for never."""
    frameworks: tuple[str, ...] = FRAMEWORKS
    """Where the rules can run."""
    seconds: float = 0.0
    """Of a step; 0 where a step has no duration."""
    privileged: bool = False
    """Whether a critic sees more than the agent."""

    @property
    def critic_size(self) -> int:
        """Width of what a critic sees."""
        return self.observation_size

    @property
    def layout(self) -> dict[str, int]:
        """Parts of an observation in their order, with their sizes, for those who run a policy elsewhere."""
        return {"observation": self.observation_size}

    def manual(self) -> dict[str, Any]:
        """What they must know besides, as plain values: `actions` (names in their order), rates, a home pose."""
        return {}

    def on_host(self) -> Control:
        """The same world, as it is best stepped once at a time and outside of any program."""
        return self

    def view(self, states: Any) -> View:
        """States of one episode for people to look at; the time stands where worlds do."""
        return View()

    def watch(self, logs: Mapping[str, Any]) -> None:
        """Refuse, in a sentence, to go on where the terms of a training's last steps show that the world is broken."""
        return None

    def assets(self) -> tuple[Path, ...]:
        """Files that describe the world, such as a robot's MJCF."""
        return ()

    def sources(self) -> tuple[Path, ...]:
        """Files that a person gave and without which the world cannot be made again; a setting names the first."""
        return ()

    @abstractmethod
    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        """The random arrays that `reset` needs, worlds first."""

    @abstractmethod
    def reset(self, draws: Mapping[str, Any]) -> Any:
        """States at the beginning of an episode; floats in the draws' dtype."""

    def step_draws(self, worlds: int) -> dict[str, Draw]:
        """The random arrays that `step` needs, worlds first."""
        return {}

    @abstractmethod
    def step(self, state: Any, action: Any, draws: Mapping[str, Any]) -> Moved:
        """One step. Actions beyond their bounds are the world's to limit."""

    @abstractmethod
    def observe(self, state: Any) -> Any:
        """What the agent sees: (world, observation)."""

    def observe_critic(self, state: Any) -> Any:
        """What a critic sees, which may be more."""
        return self.observe(state)

    def observe_both(self, state: Any) -> tuple[Any, Any]:
        """What the agent and a critic see, for worlds that find the one on the way to the other."""
        return self.observe(state), self.observe_critic(state)


class Restarting(Control):
    """A world with hidden state, kept by somebody else, such as a simulator on the host.

    Such a state can be neither copied nor saved, so the world itself starts ended episodes anew, and keeps its own time
    limit. What stands in arrays is what is seen, and enough to tell whether the copies are where the arrays say.
    """

    @abstractmethod
    def enter(self, state: Any, draws: Mapping[str, Any]) -> tuple[Any, Any]:
        """Before playing on from a state: `(state, lost)`.

        Worlds that are elsewhere, as after a checkpoint was loaded, are lost and begin anew with `reset_draws`.
        """

    @abstractmethod
    def apart(self) -> Restarting:
        """The same world with copies of its own, for evaluation; always the same one."""
