"""How often each object of a replay is drawn: evenly, or by its reward, its rank or its loss."""

from __future__ import annotations

from typing import Any

from twinax import ops
from twinax.types import Array, Bool, Float, Int

KINDS = ("uniform", "reward", "top", "rank", "loss")
BY_REWARD = ("reward", "top", "rank")
"""Those that look at rewards."""
TOP = 0.1
"""Share of the objects that count as the best."""
RANK_SHARE = 0.01
"""Share of the number of objects that is added to a rank: the smaller, the more often the best are drawn."""
LOSS_POWER = 0.9
"""Power of the size of a trajectory's error."""


def choose(weights: Float[Array, " slots"], uniform: Float[Array, " draws"]) -> Int[Array, " draws"]:
    """Slots in proportion to their weights, never one of weight 0.

    >>> import numpy as np
    >>> choose(np.array([1.0, 0.0, 3.0]), np.array([0.1, 0.24, 0.26, 0.99])).tolist()
    [0, 0, 2, 2]
    """
    running = ops.cumsum(weights)
    slots = ops.searchsorted(running, ops.cast(uniform, running) * running[-1], right=True)
    # Rounding may carry a number to the end of the sum.
    last = ops.max(ops.where(weights > 0, ops.arange(weights.shape[0], slots), 0))
    return ops.cast(ops.where(slots < last, slots, last), "int32")


def drawn(
    kind: str, held: Bool[Array, " slots"], values: Any, ranks: Any, uniform: Float[Array, " draws"]
) -> Int[Array, " draws"]:
    """Slots of held objects.

    `values` are log-rewards (reward), or powers of errors (loss); `ranks` are places in the order of rewards, the best
    first (top, rank). One object may be drawn several times.
    """
    number = ops.sum(ops.cast(held, "int32"))
    if kind == "uniform":
        slots = ops.cast(uniform * ops.cast(number, uniform), "int32")
        return ops.where(slots < number, slots, number - 1)
    if kind == "top":
        best = held & (ops.cast(ranks, uniform) < TOP * ops.cast(number, uniform))
        others = held & (~best | (number == 1))
        half = (uniform.shape[0] + 1) // 2
        parts = ((best, uniform[:half]), (others, uniform[half:]))
        return ops.concat([choose(ops.cast(group, uniform), numbers) for group, numbers in parts])
    if kind == "reward":
        known = ops.where(held, values, ops.full((), -1e30, values))
        weights = ops.exp(known - ops.max(known))
    elif kind == "rank":
        weights = 1.0 / (RANK_SHARE * ops.cast(number, uniform) + ops.cast(ranks, uniform))
    else:
        weights = values
    return choose(ops.where(held, weights, ops.zeros((), weights)), uniform)


def importance(
    held: Bool[Array, " slots"], values: Float[Array, " slots"], slots: Int[Array, " draws"], power: float
) -> Float[Array, " draws"]:
    """What makes up for drawing some objects more often: (N p)^-power for one of N that is drawn with probability p.

    With power 1 the mean by these weights is that of even draws. Their own mean is at most 1, so they are left as they
    are.

    >>> import numpy as np
    >>> importance(np.array([True, True, False]), np.array([1.0, 3.0, 9.0]), np.array([0, 1]), 1.0).round(3).tolist()
    [2.0, 0.667]
    """
    weights = ops.where(held, values, ops.zeros((), values))
    chance = ops.take(weights, slots) / ops.sum(weights)
    return ops.exp(-power * ops.log(chance * ops.cast(ops.sum(ops.cast(held, "int32")), values)))


def reranked(
    ranks: Int[Array, " slots"],
    old: Float[Array, " rows"],
    after: Float[Array, " slots"],
    slots: Int[Array, " rows"],
    gone: Bool[Array, " rows"],
    come: Bool[Array, " rows"],
    held: Bool[Array, " slots"],
) -> Int[Array, " slots"]:
    """Places in the order of rewards, the best first, when some slots were written; of equal ones the lower slot first.

    Only what was written is compared with all others, so nothing is sorted. `old` are the rewards that lay in the
    slots, `after` those of all slots now; `gone` says which of the slots held an object before, `come` which of them
    were written, `held` what is held now.
    """
    place = ops.arange(ranks.shape[0], ranks)

    def better(values, own, own_slots):
        """(rows, slots): whether a row is better than a slot."""
        return (own[:, None] > values[None]) | ((own[:, None] == values[None]) & (own_slots[:, None] < place[None]))

    new = ops.take(after, slots)
    more = ops.cast(better(after, new, slots) & come[:, None], "int32")
    fewer = ops.cast(better(after, old, slots) & (gone & come)[:, None], "int32")
    moved = ranks + ops.cast(ops.sum(more - fewer, 0), ranks)
    ahead = ~better(after, new, slots) & held[None] & (place[None] != slots[:, None])
    fresh = ops.cast(ops.sum(ops.cast(ahead, "int32"), 1), ranks)
    return ops.set_at(moved, slots, ops.where(come, fresh, ops.take(moved, slots)))
