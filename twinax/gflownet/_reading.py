"""What a policy has read it need not read again: tokens of sequences that grow at their end, and rows
that actions made once and for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinax import ops
from twinax.envs import Environment, MadeRows
from twinax.gflownet._heads import of_head
from twinax.gflownet._policy import split_heads
from twinax.networks import SharedItems
from twinax.tree import record
from twinax.types import Array, Float, Int

Logits = Callable[[Any], Float[Array, "rows actions"]]


def reads_on(env: Environment, policy: Any) -> bool:
    """Whether a policy can read this world's sequences token by token."""
    return env.in_order and getattr(policy, "one_by_one", False)


def rows_read(env: Environment, policy: Any) -> MadeRows | None:
    """How actions make rows, where this world's do and the policy can read each by itself."""
    return env.made_rows if getattr(policy, "row_by_row", False) else None


@record
class ReadRows:
    """The rows of a rollout so far."""

    known: Any
    """What the world knows of those that were made."""
    rows: Float[Array, "rows width"]
    """What stands for each row in the network: the first ones, then those made in trajectory 0, 1, ..., by number."""


class Reader:
    """Forward logits of states in a rollout: by a function of what is observed, or by a policy, which may remember the
    tokens or rows that it has read."""

    def __init__(self, env: Environment, logits: Logits | Reader):
        self.env = env
        self.logits = logits.logits if isinstance(logits, Reader) else logits
        self.policy: Any = logits.policy if isinstance(logits, Reader) else None
        self.made: MadeRows | None = logits.made if isinstance(logits, Reader) else None
        self.head: Any = logits.head if isinstance(logits, Reader) else None

    @classmethod
    def of(cls, env: Environment, policy: Any, head: Any = None) -> Reader:
        """A policy's forward head; where it has several, the `head` of each trajectory, or the mean of all."""
        reader = cls(env, lambda seen: reader._forward(policy(seen)))
        reader.made = rows_read(env, policy)
        reader.policy = policy if reads_on(env, policy) or reader.made is not None else None
        reader.head = head
        return reader

    def _forward(self, out: Any) -> Any:
        return out.forward_logits if self.head is None else out.head_logits

    def chosen(self, logits: Float[Array, "batch *heads actions"]) -> Float[Array, "batch actions"]:
        """Of what `step` gave for all trajectories the logits that they act by."""
        return logits if self.head is None else of_head(logits, self.head)

    @property
    def remembers(self) -> bool:
        """Whether rows must keep their places, because something is remembered of each."""
        return self.policy is not None

    def start(self, states: Any, steps: int) -> Any:
        """What is remembered of source states, from which at most so many steps are made."""
        if self.policy is None:
            return ()
        if self.made is None:
            return self.policy.start(*self.env.observe(states).ids.shape)
        first = self.policy.row(self.made.first(states.done))
        others = ops.zeros((states.done.shape[0] * self.made.number, first.shape[-1]), first)
        return ReadRows(self.made.known(states), ops.concat([first, others]))

    def step(self, memory: Any, states: Any, time: Any) -> tuple[Float[Array, "rows *heads actions"], Any]:
        """Logits of states after `time` actions, and what is remembered then."""
        if self.made is not None:
            return self._step_rows(self.made, memory, states)
        seen = self.env.observe(states)
        if self.policy is None:
            return self.logits(seen), memory
        out, memory = self.policy.step(memory, seen.ids[:, time])
        return self._forward(out), memory

    def results(self, memory: Any, final: Any) -> Any:
        """What a loss may know of the networks when a rollout has ended; None where nothing was kept for it."""
        return None

    def _step_rows(self, made: MadeRows, memory: ReadRows, states: Any) -> tuple[Float[Array, "rows actions"], Any]:
        known, number = made.grown(memory.known, states)
        batch = number.shape[0]
        each = ops.arange(batch, number)
        place = memory.rows.shape[0] + (each - batch) * made.number + number
        rows = ops.set_at(memory.rows, (place,), self.policy.row(made.newest(known, number)))
        index, present = made.index(states, each), made.present(states)

        def among(most: int):
            return self.policy.whole(SharedItems(rows, index, present, ((batch, most),))).forward_logits

        sizes = tuple(sorted({most for _, most in made.crowds(batch)}))
        out = ops.switch_size(ops.max(ops.sum(ops.cast(present, index), -1)), sizes, among)
        return out, ReadRows(known, rows)


def can_record(env: Environment, policy: Any, like: Any) -> bool:
    """Whether a `Recorder` of a policy is of use: PyTorch needs to see what gradients are worked out for."""
    return env.fixed_length and hasattr(policy, "results") and ops.framework(like) == "jax"


class Recorder(Reader):
    """A policy's forward head that keeps what its layers give, so that a loss need not work it out again.

    The policy has to be the one that the loss trains, `acting`, and all trajectories have one length.
    """

    def __init__(self, env: Environment, policy: Any, ends: bool):
        super().__init__(env, lambda seen: policy(seen).forward_logits)
        self._acting, self._ends = policy, ends
        """Whether the loss asks about finished states, which are not acted in."""

    @property
    def remembers(self) -> bool:
        return True

    def start(self, states: Any, steps: int) -> Any:
        weights = [layer.bias if layer.bias is not None else layer.weight[:, 0] for layer in self._acting.layers]
        rows = (steps + self._ends, states.done.shape[0])
        return tuple(ops.zeros((*rows, *weight.shape), weight) for weight in weights)

    def step(self, memory: Any, states: Any, time: Any) -> tuple[Float[Array, "rows actions"], Any]:
        results = self._acting.results(self.env.observe(states))
        logits = split_heads(results[-1], self._acting.sizes).forward_logits
        return logits, tuple(ops.set_at(kept, time, x) for kept, x in zip(memory, results, strict=True))

    def results(self, memory: Any, final: Any) -> Any:
        return self.step(memory, final, -1)[1] if self._ends else memory


def read_prefixes(env: Environment, policy: Any, last: Any, spot: Int[Array, " rows"]) -> Any:
    """Outputs for states on the way to the `last` ones, from one pass: `spot` counts tokens, sequence by sequence."""
    out = policy.prefixes(env.observe(last))

    def rows(head):
        return None if head is None else ops.take(head.reshape(-1, *head.shape[2:]), spot)

    return type(out)(*map(rows, out))
