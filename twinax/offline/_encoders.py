"""Encoders of observations by name: images to vectors by convolutions, and states by a perceptron.

Every network that reads images has an encoder of its own. It stands outside of ensembles, so the heads of a critic
share one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from twinax.errors import TwinaxError
from twinax.networks import MLP, Encoded, Impala, NetworkSpec, ResNet, make_own
from twinax.offline.networks import Bilinear, Metric
from twinax.registry import Registry
from twinax.types import Array, Float

Maker = Callable[[np.random.Generator, Sequence[int]], Any]
"""(generator, shape of an observation) -> encoder"""


class StateEncoder(eqx.Module):
    """A perceptron on vectors; its last layer is linear."""

    net: MLP

    @classmethod
    def init(
        cls, rng: np.random.Generator, shape: Sequence[int], hidden: Sequence[int] = (512, 512, 512, 512)
    ) -> StateEncoder:
        if len(shape) != 1 or shape[0] < 1:
            raise TwinaxError(
                f"the encoder 'mlp' reads vectors, but an observation has shape {tuple(shape)}; for images take "
                "'impala_small'"
            )
        return cls(MLP.xavier(rng, shape[0], hidden[:-1], hidden[-1]))

    @property
    def width(self) -> int:
        """Of the vectors that it makes."""
        return self.net.layers[-1].weight.shape[-2]

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        wanted = self.net.layers[0].weight.shape[-1]
        if not observations.shape or observations.shape[-1] != wanted:
            raise TwinaxError(
                f"the encoder reads vectors of width {wanted}, but the observations have shape "
                f"{tuple(observations.shape)}"
            )
        return self.net(observations)


class OwnEncoder(eqx.Module):
    """A network of one's own as an encoder."""

    net: Any
    width: int = eqx.field(static=True)
    """Of the vectors that it makes."""

    def __call__(self, observations: Any) -> Float[Array, "*rows width"]:
        return self.net(observations)


MAKERS: dict[str, Maker] = {
    "impala": Impala.init,
    "impala_small": partial(Impala.init, blocks=1),
    "impala_debug": partial(Impala.init, widths=(4, 4), blocks=1),
    "impala_large": partial(Impala.init, widths=(64, 128, 128), hidden=(1024,)),
    "resnet_34": ResNet.init,
    "mlp": StateEncoder.init,
}
ENCODERS = Registry("encoder", MAKERS)
"""Makers of encoders by name; all but `mlp` read images."""


def encoder(name: str) -> Maker:
    """The maker of an encoder by name; unknown names list the known ones.

    `package.module:Name` is a network of one's own, made by `(rng, spec) -> module`: a function, or a class that takes
    no arguments and makes one.

    >>> encoder("mlp")(np.random.default_rng(0), (3,)).width
    512
    """
    found: Any = ENCODERS.find(name)
    if name in ENCODERS:
        return found
    factory = found() if isinstance(found, type) else found

    def make(rng: np.random.Generator, shape: Sequence[int]) -> OwnEncoder:
        kind = np.uint8 if len(shape) > 1 else np.float32  # images have whole numbers
        made, out = make_own(factory, rng, NetworkSpec("encoder", np.zeros((1, *shape), kind), {}))
        return OwnEncoder(made, out.shape[-1])

    return make


def make_encoder(name: str, rng: np.random.Generator, observation_shape: Sequence[int]) -> Any:
    """An encoder with its first weights; `.width` is that of the vectors it makes.

    >>> make_encoder("impala_debug", np.random.default_rng(0), (16, 16, 3)).width
    512
    """
    return encoder(name)(rng, observation_shape)


def with_encoders(net: Any, make: Callable[[], Any], goal: bool = False) -> Any:
    """A network behind encoders of its own, each made by `make`.

    Its first argument is a state, and with `goal` its second one a goal. A bilinear network has one for states and one
    for goals, a metric one for both; the others' further arguments are actions and latents, which are not encoded.
    """
    if isinstance(net, Bilinear):
        return dataclasses.replace(net, phi=Encoded(make(), net.phi), psi=Encoded(make(), net.psi))
    if isinstance(net, Metric):
        return dataclasses.replace(net, phi=Encoded(make(), net.phi))
    return Encoded(make(), net, goal_encoder=make() if goal else None)
