"""Several forward heads on one network, for Thompson sampling: one acts in a trajectory, and some learn from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx

from twinax import ops, tree
from twinax.types import Array, Bool, Float, Int

if TYPE_CHECKING:  # these import this file
    from twinax.gflownet._policy import Outputs
    from twinax.gflownet._scores import Scores


class ManyOutputs(NamedTuple):
    """What a policy with several forward heads says about a batch of states: `Outputs`, and what each head says."""

    forward_logits: Float[Array, "*batch actions"]
    backward_logits: Any
    log_flow: Any
    head_logits: Float[Array, "*batch heads actions"]


class ManyHeads(eqx.Module):
    """A policy with several forward heads, whose own forward logits are the mean of theirs.

    The softmax of a mean of logits is the normalised geometric mean of the heads' policies: theirs where they agree,
    whatever number each adds to all logits of a state. Log flows and values of actions keep their meaning.
    """

    network: Any
    """A policy whose forward logits are those of all heads, side by side."""
    number: int = eqx.field(static=True)
    """How many heads there are."""

    def __call__(self, observation: Any) -> ManyOutputs:
        return self._with_mean(self.network(observation))

    def acting(self) -> ManyHeads:
        """The same laid out for a rollout."""
        return ManyHeads(self.network.acting(), self.number)

    @property
    def one_by_one(self) -> bool:
        """Whether it reads sequences token by token, as `Headed` does."""
        return getattr(self.network, "one_by_one", False)

    def start(self, rows: int, length: int) -> Any:
        """What `step` remembers before the first token."""
        return self.network.start(rows, length)

    def step(self, cache: Any, token: Any) -> tuple[ManyOutputs, Any]:
        """What it says after one more token of each sequence, and what it then remembers."""
        out, cache = self.network.step(cache, token)
        return self._with_mean(out), cache

    def prefixes(self, observation: Any) -> ManyOutputs:
        """What it says of every prefix of whole sequences."""
        return self._with_mean(self.network.prefixes(observation))

    def _with_mean(self, out: Outputs) -> ManyOutputs:
        *rows, columns = out.forward_logits.shape
        each = out.forward_logits.reshape(*rows, self.number, columns // self.number)
        return ManyOutputs(ops.mean(each, -2), out.backward_logits, out.log_flow, each)


def head_names(number: int) -> tuple[str, ...]:
    """What networks call the forward heads that they are asked for."""
    return ("forward", *(f"forward_{place}" for place in range(2, number + 1)))


def heads_of(
    uniform: Float[Array, "batch numbers"], bootstrap: float
) -> tuple[Int[Array, " batch"], Bool[Array, "batch heads"]]:
    """A head for each trajectory, all of them equally likely, and which heads learn from it: its own, so that none was
    walked in vain, and every other one with the probability `bootstrap`. Of each row the first number says the head.

    >>> import numpy as np
    >>> own, learners = heads_of(np.array([[0.9, 0.1, 0.2, 0.8], [0.1, 0.9, 0.9, 0.9]]), bootstrap=0.3)
    >>> own.tolist(), learners.tolist()
    ([2, 0], [[True, True, True], [True, False, False]])
    """
    number = uniform.shape[-1] - 1
    own = ops.cast(uniform[:, 0] * number, "int32")
    own = ops.where(own < number, own, number - 1)
    return own, (uniform[:, 1:] < bootstrap) | (own[:, None] == ops.arange(number, own)[None])


def of_head(logits: Float[Array, "batch heads actions"], head: Int[Array, " batch"]) -> Float[Array, "batch actions"]:
    """The logits of one head for each row."""
    batch, number, actions = logits.shape
    row = ops.arange(batch, head) * number + head
    return ops.take(logits.reshape(batch * number, actions), ops.cast(row, "int32"))


def for_each_head(x: Any, number: int) -> Any:
    """What stands once for each trajectory, on the last axis, once for each pair of a trajectory and a head: all heads
    of the first trajectory, then those of the second."""
    if x.ndim == 0:
        return x
    return ops.broadcast(x[..., None], (*x.shape, number)).reshape(*x.shape[:-1], x.shape[-1] * number)


def by_head(s: Scores) -> Scores:
    """The same scores with a trajectory of its own for each pair of a trajectory and a head, which counts where the
    head learns from it: what objectives make of these is the mean over the pairs that count.

    Flow, backward policy and log Z are those that all heads share; a prior is the mean of its heads.
    """
    if s.heads is None:
        return s
    number = s.learners.shape[-1]
    shared = dataclasses.replace(s, heads=None, learners=None, target=None)
    spread = tree.map_leaves(lambda x: for_each_head(x, number), shared)
    weight = ops.cast(s.learners.reshape(-1), s.log_reward)
    weight = weight if spread.weight is None else weight * ops.cast(spread.weight, weight)
    target = None if s.target is None else by_head(s.target)
    return dataclasses.replace(spread, weight=weight, target=target, **s.heads)
