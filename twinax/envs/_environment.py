"""What a world for GFlowNets has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from twinax.envs.state_rows import show, without_done
from twinax.errors import TwinaxError
from twinax.networks import KHot
from twinax.types import Array, Bool, Float, Int


class Environment(ABC):
    """A directed acyclic graph of states, built one action at a time, batch first.

    A state is any tree of arrays with a leading batch axis and a boolean leaf `done`. Masks are True
    where an action is allowed. Every rule is written with `ops`, so it runs on the arrays it is given. An
    environment holds only constants and is hashable: a frozen dataclass.
    `check_env` proves that the rules fit together.
    """

    _made_by = "such as tx.envs.Hypergrid(dim=2, side=8), or a subclass of tx.envs.Environment with your rules"

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """Forward actions; where there is a stop action it is the last."""

    @property
    @abstractmethod
    def num_backward_actions(self) -> int:
        """Backward actions, which undo forward actions other than stop."""

    @property
    @abstractmethod
    def max_steps(self) -> int:
        """Length of the longest trajectory in actions, stop included."""

    @property
    def stops(self) -> bool:
        """Whether a trajectory ends by the stop action.

        Then a done state is a copy of the state it stopped in, its only parent, and the backward probability of
        stopping is 1. Otherwise the rules decide when a state is done.
        """
        return True

    @abstractmethod
    def reset(self, batch: int) -> Any:
        """The source state, repeated, as NumPy arrays."""

    @abstractmethod
    def step(self, state: Any, action: Int[Array, " batch"]) -> Any:
        """The next state; a done state stays as it is."""

    @abstractmethod
    def backward_step(self, state: Any, action: Int[Array, " batch"]) -> Any:
        """The parent by a backward action; a done state is un-stopped whatever the action if `stops`."""

    @abstractmethod
    def forward_mask(self, state: Any) -> Bool[Array, "batch actions"]:
        """Allowed forward actions; none in a done state."""

    @abstractmethod
    def backward_mask(self, state: Any) -> Bool[Array, "batch backward_actions"]:
        """Allowed backward actions; none in the source, and none in a done state if `stops`."""

    @abstractmethod
    def observe(self, state: Any) -> Any:
        """What a network sees: a float array or a `KHot`."""

    def log_reward(self, state: Any) -> Float[Array, " batch"]:
        """log R of the object that a state stands for, in the widest float the framework has on.

        By default it is left to a reward that the world has as its field `reward`: a record with
        `log_reward(env, state)`.
        """
        reward = getattr(self, "reward", None)
        if reward is None:
            raise TwinaxError(
                f"{type(self).__name__} has no reward: give the world a field `reward`, write its log_reward, or name "
                "a reward with gflownet.problem(env, reward=...), on the command line proxy=package.module:Name"
            )
        return reward.log_reward(self, state)

    def objects(self, state: Any) -> Any:
        """What a reward of somebody else sees of a batch of states: an array, or a tree of arrays, batch first.

        By default everything but `done`: the array itself where there is just one, otherwise a dictionary by name.
        """
        return without_done(state)

    def text(self, objects: Any, index: int) -> str:
        """One object of a NumPy batch in human form, in one line; its numbers by default."""
        return show(objects, index)

    def with_reward(self, reward: Any) -> Environment:
        """The same world, paying by another reward.

        A record with `log_reward(env, state)` is taken as it is; any other callable (a function, a `torch.nn.Module`, a
        model's `predict`) becomes a `BlackBox`.
        """
        # These import this file.
        from twinax.envs._rewarded import with_reward

        return with_reward(self, reward)

    def watch(self) -> None:
        """Raise, in a sentence, what a `BlackBox` could not say from within a JAX program; it then gave nan."""
        from twinax.envs._black_box import black_boxes

        for box in black_boxes(self):
            box.watch()

    @property
    def observation_size(self) -> int:
        """Width of an observation written out, which an MLP sees; only a flat row has one."""
        seen = self.observe(self.reset(1))
        if isinstance(seen, KHot):
            return seen.size
        shape = tuple(seen.shape) if hasattr(seen, "shape") else ()
        if len(shape) != 2:
            raise TwinaxError(
                f"{type(self).__name__} shows no flat row of numbers, so an MLP cannot read it; give a network of its "
                "own with gflownet.problem(env, network=...) or policy.network=package.module:Name"
            )
        return shape[1]

    def backward_action(self, state: Any, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """The backward action that undoes a forward action which led to this state; the same number by default."""
        return action

    def forward_action(self, state: Any, action: Int[Array, " batch"]) -> Int[Array, " batch"]:
        """The forward action that a backward action from this state undoes; the same number by default."""
        return action

    def log_paths_ratio(self, state: Any) -> Float[Array, "batch backward_actions"] | None:
        """Up to a constant per row: log of the number of paths from the source to each parent.

        The maximum-entropy backward policy is its softmax. None where no closed form is known.
        """
        return None

    @property
    def num_states(self) -> int | None:
        """How many states there are, done ones included, where that is known without walking through the world."""
        return None

    @property
    def num_modes(self) -> int:
        """How many modes `mode` distinguishes; 0 if the world defines none."""
        return 0

    def mode(self, state: Any) -> Int[Array, " batch"]:
        """Which mode a finished object belongs to, -1 for none."""
        raise NotImplementedError
