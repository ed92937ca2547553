"""A reward that is somebody's function: asked on the host, once for each object."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs._answers import call, label_of, log_rewards, read, shortened
from twinax.envs.state_rows import pick, size_of
from twinax.errors import TwinaxError
from twinax.types import Array, Float

ALONE = 32
"""Objects that are asked for one by one to find the one at which a function fails."""
AGAIN = 4
"""Objects that are asked for a second time in a check, each in a call of its own."""


@checked
@dataclass(frozen=True, eq=False, repr=False)
class BlackBox:
    """A reward that is any function of a batch of objects: Python, a PyTorch module, a model's `predict`.

    The function is given `env.objects(state)` as NumPy arrays (a `torch.nn.Module` as tensors), of any number of
    objects, and answers with one number for each. It is asked on the host, and each object is asked for once. An
    answer must depend on the object alone: not on chance, and not on what else is in the batch. Where the function
    changes, as a proxy does that is trained further, make a new `BlackBox`: this one keeps what it knows.

    >>> import twinax as tx
    >>> env = tx.envs.Hypergrid(2, 3, reward=BlackBox(lambda cells: 1.0 + cells.sum(1)))
    >>> [float(round(reward, 3)) for reward in np.exp(env.log_reward(env.reset(2)))]
    [1.0, 1.0]
    """

    function: Callable[..., Any]
    """Gives one number for each object: R, above 0."""
    log: bool = False
    """Whether the numbers are log R instead."""
    batch_size: int | None = None
    """Objects that the function is given at once at most; None: as many as are asked for. With 1 an answer cannot
    depend, even in its last digits, on what else is in the batch."""
    cache: int = 100_000
    """Objects whose rewards are remembered; those not asked for the longest are forgotten first. 0: none."""
    _known: OrderedDict[Any, float] = field(init=False, default_factory=OrderedDict)
    _kinds: dict[Any, int] = field(init=False, default_factory=dict)
    """A number for each kind of objects: equal bytes of other shapes are other objects."""
    # Seeds are threads; a function that can be asked by several at once cannot be told from one that cannot.
    _lock: Any = field(init=False, default_factory=threading.RLock)
    _failed: list[TwinaxError] = field(init=False, default_factory=list)
    """The first call from within a JAX program that failed."""

    def __post_init__(self):
        if self.batch_size is not None and self.batch_size < 1:
            raise TwinaxError(f"the batch size of {self} is {self.batch_size}; it must be at least 1, or None")
        if self.cache < 0:
            raise TwinaxError(f"the cache of {self} holds {self.cache} objects; it must hold at least 0")

    def __repr__(self) -> str:
        own = (entry for entry in dataclasses.fields(self) if entry.init and entry.name != "function")
        changed = [(entry.name, getattr(self, entry.name), entry.default) for entry in own]
        options = [f"{name}={value!r}" for name, value, default in changed if value != default]
        return f"BlackBox({', '.join([label_of(self.function), *options])})"

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """log R of a batch of states, in any framework; no gradient flows."""
        leaves, structure = jtu.tree_flatten(env.objects(state))
        batch = tuple(state.done.shape)
        shapes = [tuple(x.shape) for x in leaves]
        if not shapes or any(shape[: len(batch)] != batch for shape in shapes):
            raise TwinaxError(
                f"objects of {type(env).__name__} gives arrays of shapes {shapes} for {batch[0]} states; it must give "
                "at least one array, the states first"
            )
        inner = leaves[0].ndim - len(batch)

        def on_host(*leaves):
            # Within a program that is mapped over seeds there are more axes in front.
            lead = leaves[0].shape[: leaves[0].ndim - inner]
            rows = [np.asarray(x).reshape(math.prod(lead), *x.shape[len(lead) :]) for x in leaves]
            return self.log_rewards(env, jtu.tree_unflatten(structure, rows)).reshape(lead)

        def told_later(*leaves):
            # JAX would bury the sentence under its own traceback: `watch` raises it.
            if not self._failed:
                try:
                    return on_host(*leaves)
                except TwinaxError as error:
                    self._failed.append(error)
            return np.full(leaves[0].shape[: leaves[0].ndim - inner], np.nan)

        within_jax = ops.framework(leaves[0]) == "jax"
        results = ops.like(np.zeros(batch), leaves[0])
        return ops.host_call(told_later if within_jax else on_host, results, *leaves)

    def watch(self) -> None:
        """Raise what went wrong within a JAX program."""
        if self._failed:
            first = self._failed[0]
            self._failed.clear()  # threads of several seeds may have failed at the same time
            raise first

    def log_rewards(self, env: Any, objects: Any) -> np.ndarray:
        """log R of NumPy objects in float64; only those are asked for that are not known, and each of them once."""
        keys = self._keys(objects)
        with self._lock:
            values = {key: self._known[key] for key in set(keys) if key in self._known}
            missing: dict[Any, int] = {}
            for row, key in enumerate(keys):
                if key not in values:
                    missing.setdefault(key, row)
            for key in values:
                self._known.move_to_end(key)
            asked, rows = list(missing), np.fromiter(missing.values(), np.int64, len(missing))
            for part in self._pieces(len(asked)):
                answers = self._ask(env, pick(objects, rows[part])).tolist()
                new = dict(zip(asked[part], answers, strict=True))
                values |= new
                self._known.update(new if self.cache else ())
                while len(self._known) > self.cache:
                    self._known.popitem(last=False)
        return np.array([values[key] for key in keys], np.float64)

    def _keys(self, objects: Any) -> list[Any]:
        leaves, structure = jtu.tree_flatten(objects)
        kind = (structure, *((x.shape[1:], x.dtype.str) for x in leaves))
        with self._lock:
            number = self._kinds.setdefault(kind, len(self._kinds))
        rows = [np.ascontiguousarray(x).reshape(len(x), math.prod(x.shape[1:])).view(np.uint8) for x in leaves]
        row = np.concatenate(rows, 1) if len(rows) > 1 else rows[0]
        return [(number, one.tobytes()) for one in row]

    def _pieces(self, number: int) -> Iterator[slice]:
        size = self.batch_size or number
        return (slice(start, start + size) for start in range(0, number, size or 1))

    def _ask(self, env: Any, objects: Any) -> np.ndarray:
        """log R of distinct objects, by one call of the function."""
        who, number = f"the reward {label_of(self.function)}", size_of(objects)

        def text(row: int) -> str:
            return shortened(env.text(objects, row))

        try:
            answer = call(self.function, objects)
        except TwinaxError:  # says in a sentence what was wrong
            raise
        except Exception as error:  # nobody knows what a stranger's code raises
            said = (str(error).strip().splitlines() or [""])[0]
            raise TwinaxError(
                f"{who} failed {self._where(objects, text)} ({type(error).__name__}{f': {said}' if said else ''}); it "
                f"is given {_kinds(objects)}, and must answer for any number of objects"
            ) from error
        return log_rewards(read(answer, number, who, text(0)), self.log, who, text)

    def _where(self, objects: Any, text: Callable[[int], str]) -> str:
        number = size_of(objects)
        for row in range(min(number, ALONE) if number > 1 else 0):
            try:
                call(self.function, pick(objects, np.array([row])))
            except Exception:  # the same stranger's code
                return f"for the object {text(row)}"
        return f"for the object {text(0)}" if number == 1 else f"for {number} objects, the first being {text(0)}"

    def check(self, env: Any, states: Any) -> None:
        """Refuse a function that answers otherwise when some objects are asked for again, each alone."""
        objects = jtu.tree_map(np.asarray, env.objects(states))
        rows = np.unique(np.linspace(0, size_of(objects) - 1, AGAIN).astype(int))
        first = self.log_rewards(env, objects)[rows]
        with self._lock:
            again = np.array([self._ask(env, pick(objects, rows[k : k + 1]))[0] for k in range(len(rows))])
        if (other := np.flatnonzero(~np.isclose(first, again, rtol=1e-5, atol=1e-5))).size:
            k = int(other[0])
            raise TwinaxError(
                f"the reward {label_of(self.function)} gave log R = {first[k]:g} for the object "
                f"{shortened(env.text(objects, int(rows[k])))}, and {again[k]:g} when asked for it again, alone; it "
                "must always answer alike: take chance out of it, and what depends on the rest of the batch"
            )


def _kinds(objects: Any) -> str:
    kinds = [f"{x.dtype} of shape ({', '.join(['n', *map(str, x.shape[1:])])})" for x in jtu.tree_leaves(objects)]
    return " and ".join(kinds)


def black_boxes(thing: Any) -> Iterator[BlackBox]:
    """Those that a world, or a reward made of other rewards, has among its fields."""
    if isinstance(thing, BlackBox):
        yield thing
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for entry in dataclasses.fields(thing):
            yield from black_boxes(getattr(thing, entry.name, None))
    elif isinstance(thing, tuple) and thing and dataclasses.is_dataclass(thing[0]):  # others may be long tables
        for one in thing:
            yield from black_boxes(one)
