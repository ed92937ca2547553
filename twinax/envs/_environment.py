"""What a world for GFlowNets has to say."""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from twinax import ops
from twinax.envs.state_rows import rows_of, show, without_done
from twinax.errors import TwinaxError
from twinax.networks import width
from twinax.parts import Picture, Title
from twinax.types import Array, Bool, Float, Int

if TYPE_CHECKING:
    from twinax.envs._made_rows import MadeRows


class Environment(ABC):
    """A directed acyclic graph of states, built one action at a time, batch first.

    A state is any tree of arrays with a leading batch axis and a boolean leaf `done`. Masks are True
    where an action is allowed. Every rule is written with `ops`, so it runs on the arrays it is given. An
    environment holds only constants and is hashable: a frozen dataclass; long arrays are its `constants`.
    `check_env` proves that the rules fit together.
    """

    titles: ClassVar[Mapping[str, Title]] = {}
    """How reports show what `measures` gives."""
    pictures: ClassVar[Mapping[str, Picture]] = {}
    """How reports draw arrays that `measures` gives as picture/NAME/ARRAY, by the name of the picture."""

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

    @property
    def fixed_length(self) -> bool:
        """Whether every trajectory has `max_steps` actions: then nothing of a batch is ragged."""
        return False

    @property
    def action_shape(self) -> tuple[int, ...]:
        """How the forward actions are arranged. With (places, words) action place * words + word writes a word at a
        place: it is drawn in two levels, and a network may have the words of a place side by side."""
        return (self.num_actions,)

    @property
    def in_order(self) -> bool:
        """Whether each action adds one token at the end of what is observed, behind a first one, and changes none that
        was there: a network that reads token by token then has nothing to read twice."""
        return False

    @property
    def default_network(self) -> str:
        """The name of the network that suits it, where nobody asks for another."""
        return "mlp"

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
        """What a network sees: a float array, a `KHot`, `Tokens`, a `Graph`, or any tree for a network of one's own."""

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

    def log_energy(self, state: Any) -> Float[Array, " batch"]:
        """What forward-looking objectives take for log R of a state on the way, finished or not; by default log R."""
        return self.log_reward(state)

    def constants(self) -> dict[str, np.ndarray]:
        """Long arrays that rules and rewards read, by name, such as a table of rewards.

        Rules ask for them with `constant(name, like)`. Engines give them to their programs as data, so that they are
        converted once and never compiled in. A reward that is a record may have `constants(env)` of its own.
        """
        return self._of_reward("constants", {})

    def constant(self, name: str, like: Any) -> Array:
        """One of the constants, in the framework of an array."""
        given = getattr(self, "_given", {})
        return given[name] if name in given else ops.like(_constants(self)[name], like)

    def given(self, constants: Mapping[str, Any]) -> Any:
        """The same world, which reads these arrays, in the framework of an engine, in place of its own constants."""
        if not constants:
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "_given", dict(constants))
        return bound

    def learnable(self) -> dict[str, np.ndarray]:
        """First values of those constants that a GFlowNet learns from data while it samples; by default, of those in
        the `learnable(env)` of the reward, where it has such a method.

        A reward with parameters reads them with `constant(name, like)`, as it reads all of its constants.
        """
        return self._of_reward("learnable", {})

    def observed(self) -> Any:
        """The data that constants are learned from, as finished NumPy states; by default, the `observed(env)` of the
        reward, where it has such a method."""
        return self._of_reward("observed", None)

    def _of_reward(self, name: str, otherwise: Any) -> Any:
        method: Any = getattr(getattr(self, "reward", None), name, None)
        return method(self) if callable(method) else otherwise

    @property
    def made_rows(self) -> MadeRows | None:
        """How each action makes one row of what is observed, in a world where none is changed: networks then read each
        row once. None elsewhere."""
        return None

    def knowing(self, known: Any, owner: Int[Array, " rows"]) -> Any:
        """The same world, in whose `is_known` rules may look up what they would have to work out of each state anew:
        what is `known` of made rows, and on the way to which number of that batch each state is."""
        bound = copy.copy(self)
        object.__setattr__(bound, "_known", (known, owner))
        return bound

    @property
    def is_known(self) -> Any:
        """What `knowing` was given, (known, owner); None without it."""
        return getattr(self, "_known", None)

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that it was made from, which a run keeps, so that it can be built again."""
        return ()

    def objects(self, state: Any) -> Any:
        """What a reward of somebody else sees of a batch of states: an array, or a tree of arrays, batch first.

        By default everything but `done`: the array itself where there is just one, otherwise a dictionary by name.
        """
        return without_done(state)

    def states_of(self, objects: Any) -> Any:
        """The finished NumPy states of a batch of NumPy objects, the other way round than `objects`: how files of known
        objects are read. None where the world does not say."""
        return None

    def text(self, objects: Any, index: int) -> str:
        """One object of a NumPy batch in human form, in one line; its numbers by default."""
        return show(objects, index)

    def draw(self, objects: Any, index: int) -> np.ndarray | None:
        """A picture of one object of a NumPy batch, (height, width, 3) of uint8; None where there is none."""
        return None

    def picture(self, states: Any, distribution: np.ndarray) -> np.ndarray | None:
        """A distribution over NumPy states as an array of one or two axes, for a map; None where there is none."""
        return None

    def distance(self, one: Any, other: Any) -> np.ndarray:
        """Distances between two NumPy batches of objects, (number of one, number of other): by default the number of
        entries in which they differ."""
        rows, columns = rows_of(one), rows_of(other)
        return (
            np.stack([(rows != column).sum(1) for column in columns], 1) if len(columns) else np.zeros((len(rows), 0))
        )

    def measures(self, states: Any, weights: np.ndarray) -> dict[str, Any]:
        """Numbers of its own about a distribution over finished NumPy states, whose weights add up to 1: the policy's
        exact one where the world is small, otherwise fresh samples. `titles` has their names in words."""
        return {}

    def test_states(self, seed: int) -> Any:
        """Finished NumPy states, the same for the same seed, over which learned probabilities are compared with
        rewards; None where the world has no such set."""
        return None

    @property
    def log_partition(self) -> float | None:
        """log Z where it is known without an enumeration; by default, where the reward has `log_partition(env)`."""
        value = self._of_reward("log_partition", None)
        return None if value is None else float(value)

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
        """Width of an observation written out, which an MLP sees; only what is a flat row, or can be, has one."""
        return width(self.observe(self.reset(1)))

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
        """How many modes there are; 0 if the world defines none."""
        return 0

    def mode(self, state: Any) -> Int[Array, " batch"]:
        """Which mode a finished object belongs to, -1 for none."""
        raise NotImplementedError

    def modes(self, state: Any) -> Bool[Array, "batch modes"]:
        """Which modes a finished object belongs to; by default the one of `mode`."""
        ids = ops.arange(self.num_modes, state.done)
        return self.mode(state)[:, None] == ids[None]


@functools.lru_cache(maxsize=32)
def _constants(env: Environment) -> dict[str, np.ndarray]:
    return env.constants()
