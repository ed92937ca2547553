"""Networks that say how a return is distributed: implicit quantiles, fixed quantiles, or atoms on a fixed support.

All three have the same trunk: a linear feature layer, one noisy hidden layer, noisy dueling heads. Their output is
(rows, numbers, actions): one number per quantile or atom for each action.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import ActingLinear, Linear, NoisyLinear, check_noise
from twinax.types import Array, Float

Layer: TypeAlias = Linear | NoisyLinear | ActingLinear
T = TypeVar("T", bound="_Trunk")
Noise: TypeAlias = Float[Array, " noise"] | None


class _Trunk(eqx.Module):
    """What the variants share; a head gives all actions of the first quantile or atom, then those of the next."""

    feature: Any
    """A linear layer, or a network of one's own with as many columns."""
    hidden: Layer
    advantage: Layer
    value: Layer | None

    @property
    def noise_size(self) -> int:
        """How many normal numbers one draw takes: those of `hidden`, then of `advantage`, then of `value`."""
        return sum(_noise_sizes(self))

    def acting(self: T) -> T:
        """The same network without noise and with its heads in one, laid out for many small batches without
        gradients."""
        kinds = (Linear, NoisyLinear)
        layers = {name: (layer.weight, layer.bias) for name, layer in vars(self).items() if isinstance(layer, kinds)}
        if "value" in layers:
            layers["advantage"] = _duel(layers.pop("value"), layers["advantage"])
        if ops.framework(self.hidden.weight) == "jax":
            plain = {name: ActingLinear(ops.transpose(weight), bias) for name, (weight, bias) in layers.items()}
        else:
            plain = {name: Linear(weight, bias) for name, (weight, bias) in layers.items()}
        return dataclasses.replace(self, **(plain | {"value": None}))

    def mean(self, output: Float[Array, "rows numbers actions"]) -> Float[Array, "rows actions"]:
        """The expected return of each action: the mean over quantiles, or the sum over atoms of z p."""
        return expected_return(self, output)


class QuantileNetwork(_Trunk):
    """Implicit quantiles (IQN): the return at any quantile fraction tau, which is an input.

    h = relu(feature(x)), phi = relu(cosine(cos(pi i tau))) for i = 1.., q = heads(relu(hidden(h * phi))).

    >>> net = QuantileNetwork.init(np.random.default_rng(0), inputs=6, width=8, actions=4)
    >>> net(np.zeros((3, 6)), np.full((3, 12), 0.5), np.zeros(net.noise_size)).shape
    (3, 12, 4)
    """

    cosine: Linear | ActingLinear

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        width: int,
        actions: int,
        cosines: int = 64,
        dueling: bool = True,
        noisy: bool = True,
    ) -> QuantileNetwork:
        """Weights from a NumPy generator; `cosines` is the size of the embedding of tau."""
        _check_sizes(inputs=inputs, width=width, actions=actions, cosines=cosines)
        trunk = _init_trunk(rng, inputs, width, actions, 1, dueling, noisy)
        return cls(**trunk, cosine=Linear.init(rng, cosines, width))

    def __call__(self, x: Any, taus: Float[Array, "rows n"], noise: Noise = None) -> Float[Array, "rows n actions"]:
        h = _features(self, x)
        rows, n = taus.shape
        weight = self.cosine.weight
        width, cosines = weight.shape
        # Products of two axes, (rows * n, width): the fastest form in both frameworks.
        angles = ops.cast(taus, weight).reshape(rows * n, 1) * ops.cast(ops.arange(cosines, weight) + 1, weight)
        phi = ops.relu(self.cosine(ops.cos_pi(angles)))
        mixed = h[:, None, :] * phi.reshape(rows, n, width)
        q = _heads(self, mixed.reshape(rows * n, width), noise)
        return q.reshape(rows, n, q.shape[1])


class FixedQuantiles(_Trunk):
    """Fixed quantiles (QR-DQN): the return at the middles of `quantiles` equal slices of probability.

    >>> net = FixedQuantiles.init(np.random.default_rng(0), inputs=6, width=8, actions=4, quantiles=2)
    >>> net(np.zeros((3, 6))).shape
    (3, 2, 4)
    >>> net.taus(1)
    array([[0.25, 0.75]], dtype=float32)
    """

    quantiles: int = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        width: int,
        actions: int,
        quantiles: int = 12,
        dueling: bool = True,
        noisy: bool = True,
    ) -> FixedQuantiles:
        """Weights from a NumPy generator."""
        _check_sizes(inputs=inputs, width=width, actions=actions, quantiles=quantiles)
        return cls(**_init_trunk(rng, inputs, width, actions, quantiles, dueling, noisy), quantiles=quantiles)

    def taus(self, rows: int) -> Float[Array, "rows quantiles"]:
        """The fractions (2 i + 1) / (2 quantiles) of the outputs, the same in every row."""
        weight = self.hidden.weight
        index = ops.cast(ops.arange(self.quantiles, weight), weight)
        return ops.broadcast((2 * index + 1) / (2 * self.quantiles), (rows, self.quantiles))

    def __call__(self, x: Any, taus: Any = None, noise: Noise = None) -> Float[Array, "rows quantiles actions"]:
        """`taus` is there for the sake of one call for all variants and is not read."""
        return _by_action(_heads(self, _features(self, x), noise), self.quantiles)


class Categorical(_Trunk):
    """Atoms (C51): log-probabilities of returns on an evenly spaced support from `low` to `high`.

    >>> net = Categorical.init(np.random.default_rng(0), inputs=6, width=8, actions=4, low=-1, high=1)
    >>> log_probs = net(np.zeros((3, 6)))
    >>> log_probs.shape, net.mean(log_probs).shape
    ((3, 51, 4), (3, 4))
    """

    atoms: int = eqx.field(static=True)
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        rng: np.random.Generator,
        inputs: int,
        width: int,
        actions: int,
        atoms: int = 51,
        low: float = -10.0,
        high: float = 10.0,
        dueling: bool = True,
        noisy: bool = True,
    ) -> Categorical:
        """Weights from a NumPy generator; returns outside [low, high] count as the nearer end."""
        _check_sizes(inputs=inputs, width=width, actions=actions, atoms=atoms)
        check_support(atoms, low, high)
        return cls(
            **_init_trunk(rng, inputs, width, actions, atoms, dueling, noisy),
            atoms=atoms,
            low=float(low),
            high=float(high),
        )

    def support(self) -> Float[Array, " atoms"]:
        """The returns that the atoms stand for."""
        weight = self.hidden.weight
        return ops.cast(ops.like(np.linspace(self.low, self.high, self.atoms), weight), weight)

    def __call__(self, x: Any, taus: Any = None, noise: Noise = None) -> Float[Array, "rows atoms actions"]:
        """`taus` is there for the sake of one call for all variants and is not read."""
        logits = _heads(self, _features(self, x), noise)
        return ops.log_softmax(_by_action(logits, self.atoms), axis=1)


VARIANTS: dict[str, type[QuantileNetwork] | type[FixedQuantiles] | type[Categorical]] = {
    "iqn": QuantileNetwork,
    "qr": FixedQuantiles,
    "c51": Categorical,
}


def expected_return(network: _Trunk, output: Float[Array, "rows numbers actions"]) -> Float[Array, "rows actions"]:
    """The mean of the distribution that a network gave."""
    # A function, as the parts below: Equinox makes an object of a method at each look, dear in eager PyTorch.
    if isinstance(network, Categorical):
        return ops.sum(ops.exp(output) * network.support()[:, None], 1)
    return ops.mean(output, 1)


def variant(name: str) -> type[QuantileNetwork] | type[FixedQuantiles] | type[Categorical]:
    """A distributional network by name; unknown names list the known ones.

    >>> variant("qr").__name__
    'FixedQuantiles'
    """
    if name not in VARIANTS:
        raise UnknownName("distributional variant", name, VARIANTS)
    return VARIANTS[name]


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise TwinaxError(f"a distributional network has {name}={size}; it must be at least 1")


def check_support(atoms: int, low: float, high: float) -> None:
    """Refuse atoms that do not span an interval."""
    if atoms < 2 or not -np.inf < low < high < np.inf:
        raise TwinaxError(
            f"a support has {atoms} atoms from {low} to {high}; it needs at least 2, and finite numbers low < high"
        )


def _init_trunk(
    rng: np.random.Generator, inputs: int, width: int, actions: int, numbers: int, dueling: bool, noisy: bool
) -> dict[str, Any]:
    make = NoisyLinear.init if noisy else Linear.init
    return {
        "feature": Linear.init(rng, inputs, width),
        "hidden": make(rng, width, width),
        "advantage": make(rng, width, numbers * actions),
        "value": make(rng, width, numbers) if dueling else None,
    }


def _noise_sizes(network: _Trunk) -> list[int]:
    layers = (network.hidden, network.advantage, network.value)
    return [layer.noise_size if isinstance(layer, NoisyLinear) else 0 for layer in layers]


def _features(network: _Trunk, x: Any) -> Float[Array, "rows width"]:
    """The first layer; rows may also be a `KHot`."""
    return ops.relu(network.feature(x))


def _heads(network: _Trunk, h: Float[Array, "batch width"], noise: Noise) -> Float[Array, "batch out"]:
    """Hidden layer and heads: value + advantage - mean over actions of the advantage, for each quantile or atom."""
    sizes = _noise_sizes(network)
    parts: list[Noise] = [None, None, None]
    if noise is not None:
        check_noise(noise, sum(sizes))
        ends = itertools.accumulate(sizes)
        parts = [noise[end - size : end] for size, end in zip(sizes, ends, strict=True)]
    h = ops.relu(ops.linear(h, *_drawn(network.hidden, parts[0])))
    advantage = _drawn(network.advantage, parts[1])
    if network.value is None:
        return ops.linear(h, *advantage)
    return ops.linear(h, *_duel(_drawn(network.value, parts[2]), advantage))


def _duel(value: tuple[Array, Any], advantage: tuple[Array, Any]) -> tuple[Array, Array]:
    """Weight and bias of both heads in one: they combine linearly, so the small weights are combined in place of the
    large outputs, and one product is saved."""

    def combine(v: Array, a: Array) -> Array:
        by_action = a.reshape(v.shape[0], -1, *a.shape[1:])
        return (v[:, None] + by_action - ops.mean(by_action, 1)[:, None]).reshape(a.shape)

    return combine(value[0], advantage[0]), combine(value[1], advantage[1])


def _drawn(layer: Layer, noise: Noise) -> tuple[Array, Any]:
    return layer.drawn(noise) if isinstance(layer, NoisyLinear) else (layer.weight, layer.bias)


def _by_action(output: Float[Array, "rows out"], numbers: int) -> Float[Array, "rows numbers actions"]:
    rows, size = output.shape
    return output.reshape(rows, numbers, size // numbers)
