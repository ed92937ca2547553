"""Actor and critic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.envs import Actions, Discrete
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import MLP, Categorical, Linear, NetworkFactory, NetworkSpec, Normal, acting, activation, make_own
from twinax.noise import Draw
from twinax.types import Array, Float

POLICIES = ("categorical", "gaussian", "tanh")
STDS = ("free", "state")
INITIAL_WEIGHTS = ("orthogonal", "lecun_uniform")
LEAST_STD = 1e-3


class ActorCritic(eqx.Module):
    """A policy and a value, with layers of their own or a trunk that both share."""

    trunk: MLP | None
    actor: Any
    """An MLP, or a network of one's own."""
    critic: Any
    log_std: Array | None
    """A vector of its own, or None: there is none, or it comes from the actor (softplus plus 0.001)."""
    kind: str = eqx.field(static=True)

    def policy(self, observation: Any) -> Categorical | Normal:
        """The distribution of actions."""
        y = self.actor(self._shared(observation))
        if self.kind == "categorical":
            return Categorical(y)
        squashed = self.kind == "tanh"
        if self.log_std is not None:
            return Normal(y, self.log_std + ops.zeros(y.shape, y), squashed)
        size = y.shape[-1] // 2
        return Normal(y[..., :size], ops.log(ops.softplus(y[..., size:]) + LEAST_STD), squashed)

    def value(self, observation: Any) -> Float[Array, "*rows"]:
        """What a state is worth; with an asymmetric critic from its own observation."""
        return self.critic(self._shared(observation))[..., 0]

    def acting(self) -> ActorCritic:
        """The same, laid out for a rollout."""

        def turned(net: Any) -> Any:
            if isinstance(net, MLP):
                return dataclasses.replace(net, layers=acting(net.layers))  # type: ignore[arg-type]
            return net.acting() if hasattr(net, "acting") else net

        return ActorCritic(turned(self.trunk), turned(self.actor), self.critic, self.log_std, self.kind)

    def _shared(self, observation: Any) -> Any:
        return observation if self.trunk is None else activation(self.trunk.activation)(self.trunk(observation))


def orthogonal(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> Linear:
    """A layer whose rows or columns are orthogonal and of length `gain`; no bias to begin with."""
    q, r = np.linalg.qr(rng.normal(size=(max(inputs, outputs), min(inputs, outputs))))
    q = q * np.sign(np.diag(r))
    weight = gain * (q if outputs >= inputs else q.T)
    return Linear(weight.astype(np.float32, order="C"), np.zeros(outputs, np.float32))


def lecun_uniform(rng: np.random.Generator, inputs: int, outputs: int) -> Linear:
    """A layer with weights uniform between -sqrt(3 / inputs) and sqrt(3 / inputs); no bias to begin with."""
    bound = math.sqrt(3 / inputs)
    return Linear(rng.uniform(-bound, bound, (outputs, inputs)).astype(np.float32), np.zeros(outputs, np.float32))


def make_mlp(
    rng: np.random.Generator,
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    act: str,
    gain: float,
    initial_weights: str = "orthogonal",
) -> MLP:
    """An MLP with orthogonal layers of gain sqrt 2, the last of its own, or with lecun_uniform ones."""
    activation(act)  # unknown names fail here
    if initial_weights not in INITIAL_WEIGHTS:
        raise UnknownName("initial_weights", initial_weights, INITIAL_WEIGHTS)
    sizes, gains = (inputs, *hidden, outputs), [math.sqrt(2)] * len(hidden) + [gain]
    if bad := [n for n in sizes if n < 1]:
        raise TwinaxError(f"a network has layers of {sizes}; {bad[0]} is too small, every size must be at least 1")
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    if initial_weights == "lecun_uniform":
        return MLP(tuple(lecun_uniform(rng, a, b) for a, b in pairs), act)
    return MLP(tuple(orthogonal(rng, a, b, g) for (a, b), g in zip(pairs, gains, strict=True)), act)


def policy_kind(actions: Actions, kind: str = "auto") -> str:
    """The distribution for a kind of actions; `auto` is categorical or gaussian."""
    if kind == "auto":
        return "categorical" if isinstance(actions, Discrete) else "gaussian"
    if kind not in POLICIES:
        raise UnknownName("policy", kind, ("auto", *POLICIES))
    if (kind == "categorical") != isinstance(actions, Discrete):
        raise TwinaxError(f"policy={kind} does not fit actions {actions}; use policy=auto")
    if kind == "tanh" and not isinstance(actions, Discrete) and not np.isfinite((actions.low, actions.high)).all():
        raise TwinaxError(f"policy=tanh stretches to bounds, and some of {actions} are infinite; use policy=gaussian")
    return kind


def make_networks(
    rng: np.random.Generator,
    observation: int,
    critic_observation: int,
    actions: Actions,
    *,
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    kind: str = "auto",
    std: str = "free",
    first_std: float = 1.0,
    shared: bool = False,
    initial_weights: str = "orthogonal",
    network: NetworkFactory | None = None,
) -> ActorCritic:
    """Orthogonal layers with an actor that begins indifferent, or lecun_uniform ones; with `std=free` a deviation that
    is a vector. A `network` of one's own makes actor and critic, one after the other."""
    kind = policy_kind(actions, kind)
    if std not in STDS:
        raise UnknownName("std", std, STDS)
    if not 0 < first_std < math.inf:
        raise TwinaxError(f"first_std is {first_std}; a deviation must be finite and above 0")
    if shared and not hidden:
        raise TwinaxError("shared=true needs a layer to share and hidden is []; give it a width or use shared=false")
    if shared and critic_observation != observation:
        raise TwinaxError(
            f"a shared trunk needs one observation, but the actor sees {observation} numbers and the critic "
            f"{critic_observation}; use shared=false"
        )
    number = actions.n if isinstance(actions, Discrete) else actions.size
    outputs = 2 * number if kind != "categorical" and std == "state" else number
    free = kind != "categorical" and std == "free"
    log_std = np.full(number, math.log(first_std), np.float32) if free else None
    if network is not None:
        if shared:
            raise TwinaxError("shared=true is for networks of ours; with a network of your own use shared=false")
        first, last = ("logits", "") if kind == "categorical" else ("mean", "deviation")
        heads = {first: number, last: outputs - number} if outputs > number else {first: number}
        seen, seen_by_critic = (np.zeros((1, size), np.float32) for size in (observation, critic_observation))
        actor, _ = make_own(network, rng, NetworkSpec("actor", seen, heads))
        critic, _ = make_own(network, rng, NetworkSpec("critic", seen_by_critic, {"value": 1}))
        return ActorCritic(None, actor, critic, log_std, kind)
    trunk, own = None, tuple(hidden)
    if shared:
        trunk = make_mlp(rng, observation, hidden[:-1], hidden[-1], activation, math.sqrt(2), initial_weights)
        observation, critic_observation, own = hidden[-1], hidden[-1], ()
    actor = make_mlp(rng, observation, own, outputs, activation, 0.01, initial_weights)
    critic = make_mlp(rng, critic_observation, own, 1, activation, 1.0, initial_weights)
    return ActorCritic(trunk, actor, critic, log_std, kind)


def policy_draw(actions: Actions, *leading: int) -> Draw:
    """The random numbers behind one action."""
    if isinstance(actions, Discrete):
        return Draw((*leading, actions.n))
    return Draw((*leading, actions.size), "normal")


def to_world(actions: Actions, point: Any, squashed: bool) -> Any:
    """From a policy's point to an action of the world: as it is, within its bounds, or tanh stretched to them."""
    if isinstance(actions, Discrete):
        return point
    low, high = (ops.cast(ops.like(np.array(bound), point), point) for bound in (actions.low, actions.high))
    if squashed:
        return low + (ops.tanh(point) + 1) * (0.5 * (high - low))
    return ops.minimum(ops.maximum(point, low), high)
