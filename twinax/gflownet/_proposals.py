"""Proposals that walk back from an object and forward to another one, and the probability of accepting them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from twinax import ops
from twinax.errors import UnknownName
from twinax.types import Array, Float

RULES = ("metropolis", "barker")


@runtime_checkable
class Weighed(Protocol):
    """What is read of a trajectory: `Scores` has it."""

    @property
    def log_reward(self) -> Array:
        """log R of the object at its end."""
        ...

    @property
    def log_pf(self) -> Array:
        """log P_F of each of its actions, (time, batch); 0 where there is none."""
        ...

    @property
    def log_pb(self) -> Array:
        """log P_B of undoing each of them."""
        ...


def accept_log_ratio(scores_old: Weighed, scores_new: Weighed) -> Float[Array, " batch"]:
    """log of the ratio by which a proposal is accepted, for the law R / Z to stay as it is.

    From the object x one walks back by P_B along tau to a state, and from there forward by P_F along tau' to x'. The
    proposal has the probability P_B(tau | x) P_F(tau'), and the way back P_B(tau' | x') P_F(tau), hence

        log a = log R(x') - log R(x) + log P_B(tau' | x') + log P_F(tau) - log P_B(tau | x) - log P_F(tau').

    Scores may be of the parts behind the state where the two trajectories part, or of the whole ones: what they have in
    common cancels. The way back has to be a proposal too: walk back as many steps from x' as from x. That holds where
    all trajectories are equally long, or when every walk goes back to the source.
    """
    return _weight(scores_new) - _weight(scores_old)


def _weight(scores: Weighed) -> Float[Array, " batch"]:
    return scores.log_reward + ops.sum(scores.log_pb, 0) - ops.sum(scores.log_pf, 0)


def log_acceptance(log_ratio: Float[Array, " batch"], rule: str = "metropolis") -> Float[Array, " batch"]:
    """log of the probability of accepting: min(1, a) by Metropolis and Hastings, or a / (1 + a) by Barker."""
    if rule == "metropolis":
        return ops.minimum(log_ratio, log_ratio * 0)
    if rule == "barker":
        return ops.log_sigmoid(log_ratio)
    raise UnknownName("rule of acceptance", rule, RULES)


def accepted(log_ratio: Float[Array, " batch"], uniform: Float[Array, " batch"], rule: str = "metropolis") -> Any:
    """Which proposals are accepted, decided by uniform numbers in (0, 1)."""
    return ops.log(uniform) < log_acceptance(log_ratio, rule)
