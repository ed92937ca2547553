"""What a policy has read it need not read again: tokens of sequences that grow at their end, and rows
that actions made once and for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinax import ops
from twinax.envs import Environment
from twinax.gflownet._policy import Outputs
from twinax.tree import record
from twinax.types import Array, Float, Int

Logits = Callable[[Any], Float[Array, "rows actions"]]


def reads_on(env: Environment, policy: Any) -> bool:
    """Whether a policy can read this world's sequences token by token."""
    return env.in_order and getattr(policy, "one_by_one", False)


def reads_rows(env: Environment, policy: Any) -> bool:
    """Whether a policy can read each row that this world's actions make by itself."""
    return env.made_rows is not None and getattr(policy, "row_by_row", False)


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

    @classmethod
    def of(cls, env: Environment, policy: Any) -> Reader:
        """A policy's forward head."""
        reader = cls(env, lambda seen: policy(seen).forward_logits)
        reader.policy = policy if reads_on(env, policy) or reads_rows(env, policy) else None
        return reader

    @property
    def remembers(self) -> bool:
        """Whether rows must keep their places, because something is remembered of each."""
        return self.policy is not None

    def start(self, states: Any) -> Any:
        """What is remembered of source states."""
        if self.policy is None:
            return ()
        if self.env.in_order:
            return self.policy.start(*self.env.observe(states).ids.shape)
        made = self.env.made_rows
        first = self.policy.row(made.first(states.done))
        others = ops.zeros((states.done.shape[0] * made.number, first.shape[-1]), first)
        return ReadRows(made.known(states), ops.concat([first, others]))

    def step(self, memory: Any, states: Any, time: Any) -> tuple[Float[Array, "rows actions"], Any]:
        """Logits of states after `time` actions, and what is remembered then."""
        if self.policy is not None and not self.env.in_order:
            memory = self._read_newest(memory, states)
            made = self.env.made_rows
            index = made.index(states, ops.arange(states.done.shape[0], states.done))
            return self.policy.whole(ops.take(memory.rows, index), made.present(states)).forward_logits, memory
        seen = self.env.observe(states)
        if self.policy is None:
            return self.logits(seen), memory
        out, memory = self.policy.step(memory, seen.ids[:, time])
        return out.forward_logits, memory

    def _read_newest(self, memory: ReadRows, states: Any) -> ReadRows:
        made = self.env.made_rows
        known, number = made.grown(memory.known, states)
        batch = number.shape[0]
        place = memory.rows.shape[0] + (ops.arange(batch, number) - batch) * made.number + number
        row = self.policy.row(made.newest(known, number))
        return ReadRows(known, ops.set_at(memory.rows, (place,), row))


def read_prefixes(env: Environment, policy: Any, last: Any, spot: Int[Array, " rows"]) -> Outputs:
    """Outputs for states on the way to the `last` ones, from one pass: `spot` counts tokens, sequence by sequence."""
    out = policy.prefixes(env.observe(last))

    def rows(head):
        return None if head is None else ops.take(head.reshape(-1, *head.shape[2:]), spot)

    return Outputs(*map(rows, out))
