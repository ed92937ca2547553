"""Sequences that grow at their end, read token by token: once for a rollout, and in one pass for a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinax import ops
from twinax.envs import Environment
from twinax.gflownet._heads import of_head
from twinax.gflownet._policy import split_heads
from twinax.types import Array, Float, Int

Logits = Callable[[Any], Float[Array, "rows actions"]]


def reads_on(env: Environment, policy: Any) -> bool:
    """Whether a policy can read this world's sequences token by token."""
    return env.in_order and getattr(policy, "one_by_one", False)


class Reader:
    """Forward logits of states in a rollout: by a function of what is observed, or by a policy, which may remember the
    tokens that it has read."""

    def __init__(self, env: Environment, logits: Logits | Reader):
        self.env = env
        self.logits = logits.logits if isinstance(logits, Reader) else logits
        self.policy: Any = logits.policy if isinstance(logits, Reader) else None
        self.head: Any = logits.head if isinstance(logits, Reader) else None

    @classmethod
    def of(cls, env: Environment, policy: Any, head: Any = None) -> Reader:
        """A policy's forward head; where it has several, the `head` of each trajectory, or the mean of all."""
        reader = cls(env, lambda seen: reader._forward(policy(seen)))
        reader.policy = policy if reads_on(env, policy) else None
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
        return () if self.policy is None else self.policy.start(*self.env.observe(states).ids.shape)

    def step(self, memory: Any, states: Any, time: Any) -> tuple[Float[Array, "rows *heads actions"], Any]:
        """Logits of states after `time` actions, and what is remembered then."""
        seen = self.env.observe(states)
        if self.policy is None:
            return self.logits(seen), memory
        out, memory = self.policy.step(memory, seen.ids[:, time])
        return self._forward(out), memory

    def results(self, memory: Any, final: Any) -> Any:
        """What a loss may know of the networks when a rollout has ended; None where nothing was kept for it."""
        return None


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
