"""A dataset: steps of many trajectories, one after the other, in flat arrays.

Three things that are easily confused are kept apart. `terminals` is where a trajectory ends, for whatever reason.
`masks` is 0 where nothing follows, so that a value must not be bootstrapped. `truncations` is where a limit of time
cut a trajectory short. An end that is neither masked nor truncated is where the recording stopped.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.mapped_files import aligned, in_blocks, row_blocks
from twinax.memory import is_mapped
from twinax.offline._columns import row_count
from twinax.offline._ends import CUT, OVER, dataset_ends, missing_ends
from twinax.offline._normaliser import Normaliser
from twinax.offline._notes import say_unused
from twinax.types import Float, Int

FIELDS = (
    "observations", "actions", "terminals", "next_observations", "rewards", "masks", "truncations", "valids",
)  # fmt: skip
"""Arrays of a dataset."""
LARGEST_ACTION = 1 - 1e-5
"""Actions are held within plus and minus this: the density of a tanh policy is not finite at 1."""
OUTSIDE = 1e-5
"""How far beyond 1 an action may lie, as rounding leaves it, before it counts as outside the box."""
_finite: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
"""Mapped arrays, by their id, that were found to be finite; nobody can write to them, and looking again takes long."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Steps in flat arrays; what is wrong with them is said at construction.

    In the regular layout each row has its next observation. In the compact layout `next_observations` is None: the
    next observation is the next row, every trajectory has one more row for its final state, and `valids` is False
    there.

    >>> data = Dataset(
    ...     observations=np.arange(6.0).reshape(6, 1), next_observations=np.arange(1.0, 7.0).reshape(6, 1),
    ...     actions=np.zeros((6, 2)), terminals=np.array([0, 0, 1, 0, 0, 1]))
    >>> data.ends.tolist(), data.starts.tolist()
    ([2, 2, 2, 5, 5, 5], [0, 0, 0, 3, 3, 3])
    """

    _made_by = "read one from a file with tx.offline.read_dataset(path), or make it with tx.offline.from_arrays(...)"

    observations: Any
    """float32 (rows, width) or (rows, height, ...), or uint8 for images."""
    actions: Any
    """float32 in [-1, 1], (rows, width); or int32 (rows,)."""
    terminals: Any
    """bool (rows,): the last step of a trajectory."""
    next_observations: Any = None
    """As the observations; None in the compact layout."""
    rewards: Any = None
    """float32 (rows,); None where there are none."""
    masks: Any = None
    """float32 (rows,): 0 where bootstrapping must stop; by default 1 everywhere."""
    truncations: Any = None
    """bool (rows,): the limit of time came; by default nowhere."""
    valids: Any = None
    """bool (rows,): the row may be drawn; only in the compact layout."""
    reward_on_next: bool = False
    """The reward is one of the next observation, not of the observation (as in ExORL)."""
    normaliser: Normaliser | None = None
    """How the observations were normalised; None if they were not."""
    source: str = ""
    """Where the rows are from; errors begin with it."""
    box: Any = None
    """(low, high) of the actions before they were scaled to [-1, 1]; None if they were not."""

    def __post_init__(self):
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731 - the way of frozen dataclasses
        put("observations", self._states("observations", self.observations))
        rows = len(self.observations)
        if rows == 0:
            raise self.error("observations has no rows")
        put("actions", self._actions(rows))
        put("terminals", self._flags("terminals", self.terminals, rows))
        compact = self.valids is not None
        if compact == (self.next_observations is not None):
            both = "next_observations and valids are both given" if compact else "next_observations is missing"
            raise self.error(f"{both}; the regular layout has next_observations, the compact one has valids instead")
        if not compact:
            put("next_observations", self._states("next_observations", self.next_observations))
            if self.next_observations.shape != self.observations.shape:
                raise self.error(
                    f"next_observations has shape {self.next_observations.shape}, "
                    f"but observations has {self.observations.shape}"
                )
            if self.next_observations.dtype != self.observations.dtype:
                raise self.error(
                    f"next_observations is {self.next_observations.dtype}, but observations is "
                    f"{self.observations.dtype}; either both are uint8 images or none is"
                )
        else:
            put("valids", self._flags("valids", self.valids, rows))
        if self.rewards is not None:
            put("rewards", self._numbers("rewards", self.rewards, rows))
        masks = np.ones(rows, np.float32) if self.masks is None else self._numbers("masks", self.masks, rows)
        if len(wrong := np.flatnonzero((masks < 0) | (masks > 1))):
            raise self.error(f"masks is {masks[wrong[0]]} at row {wrong[0]}; it must be between 0 and 1")
        put("masks", masks)
        cut = np.zeros(rows, bool) if self.truncations is None else self.truncations
        put("truncations", self._flags("truncations", cut, rows))
        if compact:
            put("terminals", self._compact_terminals())

    # What the rows are

    @property
    def compact(self) -> bool:
        """The next observation is the next row."""
        return self.valids is not None

    @property
    def rows(self) -> int:
        """All rows, those for final states included."""
        return len(self.observations)

    @property
    def size(self) -> int:
        """Rows that may be drawn."""
        return len(self.drawable)

    @cached_property
    def drawable(self) -> Int[np.ndarray, " size"]:
        """The rows that may be drawn."""
        return _kept(np.flatnonzero(self.valids) if self.compact else np.arange(self.rows))

    @cached_property
    def _finals(self) -> np.ndarray:
        # Rows of the compact layout that hold only the final state of a trajectory
        return self.terminals & ~self.valids if self.compact else np.zeros(self.rows, bool)

    @cached_property
    def _firsts(self) -> np.ndarray:
        # The first row of each trajectory; a trailing one that never ends counts
        closing = self._finals if self.compact else self.terminals
        return np.concatenate([[0], np.flatnonzero(closing[:-1]) + 1])

    @cached_property
    def _trajectory(self) -> np.ndarray:
        sizes = np.diff(np.append(self._firsts, self.rows))
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def starts(self) -> Int[np.ndarray, " rows"]:
        """The first row of each row's trajectory."""
        return _kept(self._firsts[self._trajectory])

    @cached_property
    def ends(self) -> Int[np.ndarray, " rows"]:
        """The last step of each row's trajectory; a final state's row is its own."""
        last = np.append(self._firsts[1:], self.rows) - 1 - self.compact
        return _kept(np.where(self._finals, np.arange(self.rows), last[self._trajectory]))

    @cached_property
    def lengths(self) -> Int[np.ndarray, " trajectories"]:
        """Steps of each trajectory."""
        return _kept(np.diff(np.append(self._firsts, self.rows)) - self.compact)

    @property
    def open_end(self) -> bool:
        """The last trajectory does not end: the recording stopped in it, and nothing says so."""
        return not self.terminals[-1]

    def require_goals(self) -> None:
        """An error unless goals can be taken from the later rows of every trajectory."""
        if self.open_end:
            raise self.error(
                f"terminals is 0 at row {self.rows - 1}, the last one; goals are drawn up to the end of a trajectory, "
                "so the last row must be terminal"
            )

    def require_rewards(self) -> None:
        """An error unless there are rewards."""
        if self.rewards is None:
            raise self.error("rewards is missing; this agent or phase learns from rewards")

    # Other datasets

    def reward_free(self) -> Dataset:
        """Without rewards, and with every mask 1: nothing of a task is left."""
        return dataclasses.replace(self, rewards=None, masks=None)

    def first(self, rows: int) -> Dataset:
        """The first rows only; the recording stops there."""
        if not 1 <= rows <= self.rows:
            raise self.error(f"{rows} rows were asked for, but there are {self.rows}")
        names = ("observations", "actions", "terminals", "next_observations", "rewards", "masks", "truncations")
        cut = {name: value[:rows] for name in names if (value := getattr(self, name)) is not None}
        cut["terminals"] = cut["terminals"].copy()
        if self.compact:
            # The last row becomes a final state, unless that would leave it alone.
            if self.starts[rows - 1] == rows - 1:
                return self.first(rows - 1) if rows > 1 else self.first(0)
            cut["valids"] = self.valids[:rows].copy()
            cut["valids"][-1] = False
        cut["terminals"][-1] = True
        return dataclasses.replace(self, **cut)

    def statistics(self, kind: str) -> Normaliser:
        """How observations like these are normalised: none, normal or bounded."""
        return Normaliser.fit(self.chunks(), kind, self.observations)

    def normalised(self, normaliser: Normaliser | str) -> Dataset:
        """With normalised observations: by these statistics, or by this dataset's own if only their kind is named.

        >>> both = [pretraining.normalised("normal")]                       # doctest: +SKIP
        >>> both.append(finetuning.normalised(both[0].normaliser))          # doctest: +SKIP
        """
        if self.normaliser is not None:
            raise self.error("the observations are normalised already")
        if isinstance(normaliser, str):
            normaliser = self.statistics(normaliser)
        if normaliser.shift.shape not in ((), self.observations.shape[1:]):
            raise self.error(
                f"the statistics are for observations of shape {normaliser.shift.shape}, "
                f"but these have {self.observations.shape[1:]}"
            )
        if normaliser.kind == "none":
            return dataclasses.replace(self, normaliser=normaliser)

        def one(x):
            key = ("normalised", normaliser.kind, normaliser.shift.tobytes(), normaliser.scale.tobytes())
            return in_blocks(x, np.float32, lambda block: normaliser(block.astype(np.float64)), key)

        following = None if self.compact else one(self.next_observations)
        return dataclasses.replace(
            self, observations=one(self.observations), next_observations=following, normaliser=normaliser
        )

    def chunks(self) -> Iterator[np.ndarray]:
        """The observations of the rows that may be drawn, some rows at a time."""
        return self._chunks(self.observations)

    def _chunks(self, array: np.ndarray) -> Iterator[np.ndarray]:
        for block in row_blocks(array):
            part = np.asarray(array[block])
            yield part[self.valids[block]] if self.compact else part

    def observation_range(self) -> tuple[Float[np.ndarray, "*width"], Float[np.ndarray, "*width"]]:
        """The smallest and the largest value of each entry of the observations."""
        return _limits(self._chunks(self.observations))

    def action_range(self) -> tuple[Any, Any]:
        """The smallest and the largest value of each entry of the actions, or of the choices."""
        return _limits(self._chunks(self.actions))

    # For the samplers

    def arrays(self) -> dict[str, np.ndarray]:
        """What the samplers read, by name."""
        names = ["observations", "actions", "next_observations", "rewards", "masks", "starts", "ends"]
        if self.size < self.rows:
            names.append("drawable")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def placed(self) -> Dataset:
        """With mapped arrays where JAX can use them without a copy in memory; see `twinax.memory.ALIGNMENT`."""
        names = ("observations", "next_observations", "actions")
        arrays = {name: aligned(value) for name in names if (value := getattr(self, name)) is not None}
        if all(getattr(self, name) is value for name, value in arrays.items()):
            return self
        return dataclasses.replace(self, **arrays)

    @property
    def mapped(self) -> bool:
        """The observations lie in a file."""
        return is_mapped(self.observations)

    def on(self, reference: Any) -> dict[str, Any]:
        """`arrays` in the framework and on the device of a reference array."""
        return ops.like(self.arrays(), reference)

    # Checks

    def error(self, text: str) -> TwinaxError:
        """An error that begins with the source."""
        return TwinaxError(f"{self.source}: {text}" if self.source else text)

    def _array(self, name: str, value: Any) -> np.ndarray:
        if value is None:
            raise self.error(f"{name} is missing")
        array = value if isinstance(value, np.ndarray) else _as_array(name, value, self.source)
        if array.dtype.kind not in "fiub":
            raise self.error(f"{name} has dtype {array.dtype}; it must hold numbers")
        return array

    def _states(self, name: str, value: Any) -> np.ndarray:
        states = self._array(name, value)
        if states.ndim < 2:
            raise self.error(f"{name} has shape {states.shape}; it must be (rows, width) or (rows, height, ...)")
        if len(states) and not states.size:
            raise self.error(f"{name} has shape {states.shape}, so its rows are empty")
        if states.dtype not in (np.uint8, np.float32):
            states = in_blocks(states, np.float32, _narrow, "float32") if is_mapped(states) else _narrow(states)
        if states.dtype == np.float32 and _finite.get(id(states)) is not states:
            for block in row_blocks(states):
                part = np.asarray(states[block])
                good = np.isfinite(part).reshape(len(part), -1).all(1)
                if not good.all():
                    row = int(np.flatnonzero(~good)[0])
                    bad = part[row][~np.isfinite(part[row])].flat[0]
                    raise self.error(f"{name} is {bad} at row {block.start + row}; it must be finite")
            if is_mapped(states):
                _finite[id(states)] = states
        return states

    def _actions(self, rows: int) -> np.ndarray:
        actions = self._array("actions", self.actions)
        if len(actions) != rows if actions.ndim else True:
            raise self.error(f"actions has shape {actions.shape}, but observations has {rows} rows")
        if actions.dtype.kind in "iu" and actions.ndim == 1:
            if (actions < 0).any():
                least, row = actions.min(), actions.argmin()
                raise self.error(f"actions is {least} at row {row}; a discrete action is 0 or more")
            return actions.astype(np.int32)
        if actions.ndim != 2 or not actions.size:
            raise self.error(f"actions has shape {actions.shape}; it must be (rows, width), or (rows,) of integers")
        settled = actions.dtype == np.float32 and is_mapped(actions)  # then it is copied only if something must change
        for block in row_blocks(actions):
            part = _narrow(actions[block])
            inside = (np.abs(part) <= 1 + OUTSIDE).all(1)  # nan is not
            if not inside.all():
                row = int(np.flatnonzero(~inside)[0])
                value = part[row][~(np.abs(part[row]) <= 1 + OUTSIDE)][0]
                if not np.isfinite(value):
                    raise self.error(f"actions is {value:g} at row {block.start + row}; it must be finite")
                raise self.error(
                    f"actions is {value:g} at row {block.start + row}; it must lie in [-1, 1], so name its box by low "
                    "and high (in a run data.low and data.high), and it is scaled"
                )
            settled = settled and bool((np.abs(part) <= np.float32(LARGEST_ACTION)).all())
        return actions if settled else in_blocks(actions, np.float32, _clipped, ("clipped", LARGEST_ACTION))

    def _column(self, name: str, value: Any, rows: int) -> np.ndarray:
        column = self._array(name, value)
        if column.shape == (rows, 1):
            column = column[:, 0]
        if column.shape != (rows,):
            raise self.error(f"{name} has shape {column.shape}, but observations has {rows} rows")
        return column

    def _numbers(self, name: str, value: Any, rows: int) -> np.ndarray:
        numbers = _narrow(self._column(name, value, rows))
        if len(wrong := np.flatnonzero(~np.isfinite(numbers))):
            raise self.error(f"{name} is {numbers[wrong[0]]} at row {wrong[0]}; it must be finite")
        return numbers

    def _flags(self, name: str, value: Any, rows: int) -> np.ndarray:
        flags = self._column(name, value, rows)
        if len(wrong := np.flatnonzero((flags != 0) & (flags != 1))):
            raise self.error(f"{name} is {flags[wrong[0]]} at row {wrong[0]}; it must be 0 or 1")
        return flags.astype(bool)

    def _compact_terminals(self) -> np.ndarray:
        finals = self.terminals & ~self.valids
        if self.valids[-1]:
            raise self.error(f"valids is 1 at row {self.rows - 1}, the last one, but no row follows it")
        if not finals[-1]:
            raise self.error(f"terminals is 0 at row {self.rows - 1}, the last one; it must be a final state")
        alone = finals & np.concatenate([[True], finals[:-1]])
        if alone.any():
            raise self.error(
                f"the trajectory that ends at row {np.flatnonzero(alone)[0]} is empty: no step leads there"
            )
        steps = np.append(finals[1:], False)
        if len(wrong := np.flatnonzero(self.terminals & ~finals & ~steps)):
            raise self.error(
                f"terminals is 1 at row {wrong[0]}, but row {wrong[0] + 1} is no final state (valids is 1 there)"
            )
        return finals | steps


def from_arrays(
    fields: Mapping[str, Any], low: Any = -1.0, high: Any = 1.0, reward_on_next: bool = False, source: str = ""
) -> Dataset:
    """A dataset of plain arrays by name; actions in a box from `low` to `high` are scaled to [-1, 1].

    Ends may be called as D4RL (terminals, timeouts) or Gymnasium (terminations, truncations) call them. Names that are
    not used are said.
    """
    begin = f"{source}: " if source else ""
    for name in ("observations", "actions"):
        if name not in fields:
            raise TwinaxError(f"{begin}{name} is missing; there are {', '.join(sorted(fields)) or 'no arrays'}")
    if not set(OVER) & set(fields):
        raise missing_ends(fields, source)
    known = {name: fields[name] for name in FIELDS if name in fields}
    rows = row_count(_as_array("observations", fields["observations"], source))
    if rows and set(fields) & {*CUT, "terminations"}:
        known |= dataset_ends(fields, rows, source)
    actions = fields["actions"] if is_mapped(fields["actions"]) else _as_array("actions", fields["actions"], source)
    box = None
    if actions.ndim and (np.any(np.asarray(low) != -1) or np.any(np.asarray(high) != 1)):
        actions = scaled_actions(actions, low, high, source)
        box = tuple(np.broadcast_to(np.asarray(side, np.float32), actions.shape[1:]) for side in (low, high))
    known = {"terminals": None, **known, "actions": actions}
    dataset = Dataset(**known, reward_on_next=reward_on_next, source=source, box=box)
    say_unused(source, set(fields) - {*FIELDS, *OVER, *CUT})
    return dataset


def scaled_actions(actions: np.ndarray, low: Any, high: Any, source: str = "") -> np.ndarray:
    """Actions of a box in [-1, 1]."""
    begin = f"{source}: " if source else ""
    low, high = _side("low", low, actions, begin), _side("high", high, actions, begin)
    if actions.dtype.kind in "iu" and actions.ndim == 1:
        raise TwinaxError(f"{begin}the actions are choices, which have no box; leave low and high out")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise TwinaxError(
            f"{begin}the box of actions is from {low} to {high}; low must be less than high and both finite, so name "
            "another by low and high"
        )
    reach = OUTSIDE * (high - low)

    def scaled(part: np.ndarray) -> np.ndarray:
        return np.clip(2 * (part - low) / (high - low) - 1, -1, 1)

    for block in row_blocks(actions):
        part = np.asarray(actions[block])
        outside = ~((part >= low - reach) & (part <= high + reach)).reshape(len(part), -1)
        if outside.any():
            row = int(np.flatnonzero(outside.any(1))[0])
            value = part[row].reshape(-1)[outside[row]][0]
            if not np.isfinite(value):
                raise TwinaxError(f"{begin}actions is {value:g} at row {block.start + row}; it must be finite")
            raise TwinaxError(
                f"{begin}actions is {value:g} at row {block.start + row}; it must lie in the box from {low} to {high}"
            )
    # On the disk it is as narrow as the dataset will have it.
    dtype = np.float32 if is_mapped(actions) else np.float64
    return in_blocks(actions, dtype, scaled, ("scaled", low.tolist(), high.tolist()))


def _side(name: str, value: Any, actions: np.ndarray, begin: str) -> np.ndarray:
    """One side of a box: a number, or one for each entry of an action."""
    try:
        side = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise TwinaxError(f"{begin}{name} is {value!r}; it must be a number, or a list of them") from None
    if side.shape not in ((), actions.shape[1:]):
        raise TwinaxError(
            f"{begin}{name} has shape {side.shape}, but actions has rows of shape {actions.shape[1:]}; give one "
            "number, or one for each entry"
        )
    return side


def _as_array(name: str, value: Any, source: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:
        begin = f"{source}: " if source else ""
        raise TwinaxError(f"{begin}{name} has rows of different lengths; all of them must have the same") from None


def _narrow(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # what is too large becomes inf, and is named
        return x.astype(np.float32)


def _clipped(x: np.ndarray) -> np.ndarray:
    return np.clip(_narrow(x), np.float32(-LARGEST_ACTION), np.float32(LARGEST_ACTION))


def _limits(parts: Iterator[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    limits = [(x.min(0), x.max(0)) for x in parts if len(x)]
    return np.min([low for low, _ in limits], 0), np.max([high for _, high in limits], 0)


def _kept(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.int32)
    x.flags.writeable = False
    return x
