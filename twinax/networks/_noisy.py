"""A linear layer whose weights are normal variables: exploration by noise that training can turn down."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks._layers import _in_precision_of
from twinax.types import Array, Float


class NoisyLinear(eqx.Module):
    """x (W + S * e)^T + b + s * f with independent normal e and f, one for every weight and every bias.

    The draws are an argument, so one draw serves a whole batch and every engine can be given the same.

    >>> layer = NoisyLinear.init(np.random.default_rng(0), inputs=3, outputs=2)
    >>> layer.noise_size
    8
    >>> x = np.ones((5, 3), np.float32)
    >>> layer(x).shape, layer(x, np.zeros(8, np.float32)).shape
    ((5, 2), (5, 2))
    """

    weight: Array
    bias: Array
    weight_sigma: Array
    bias_sigma: Array

    @classmethod
    def init(cls, rng: np.random.Generator, inputs: int, outputs: int, sigma: float = 0.017) -> NoisyLinear:
        """Means of weight and bias uniform on +-sqrt(3/inputs), every standard deviation `sigma`."""
        if inputs < 1 or outputs < 1:
            raise TwinaxError(f"a noisy layer has {inputs} inputs and {outputs} outputs; it needs at least 1 of each")
        bound = np.sqrt(3.0 / inputs)

        def uniform(*shape):
            return rng.uniform(-bound, bound, shape).astype(np.float32)

        def constant(*shape):
            return np.full(shape, sigma, np.float32)

        return cls(uniform(outputs, inputs), uniform(outputs), constant(outputs, inputs), constant(outputs))

    @property
    def noise_size(self) -> int:
        """How many normal numbers one draw of the layer takes."""
        outputs, inputs = self.weight.shape[-2:]
        return outputs * inputs + outputs

    def drawn(self, noise: Float[Array, " noise"] | None = None) -> tuple[Array, Array]:
        """Weight and bias under one draw: `noise_size` normal numbers, those of the weight row by row before those of
        the bias. None gives the means."""
        if noise is None:
            return self.weight, self.bias
        check_noise(noise, self.noise_size)
        draw = _in_precision_of(self.weight, noise)
        split = math.prod(self.weight.shape)
        weight = self.weight + self.weight_sigma * draw[:split].reshape(self.weight.shape)
        return weight, self.bias + self.bias_sigma * draw[split:]

    def __call__(self, x: Array, noise: Float[Array, " noise"] | None = None) -> Array:
        return ops.linear(_in_precision_of(self.weight, x), *self.drawn(noise))


def check_noise(noise: Any, size: int) -> None:
    """Refuse a draw that is not one flat vector of the right length."""
    if tuple(noise.shape) != (size,):
        raise TwinaxError(
            f"the noise has shape {tuple(noise.shape)}, the network takes ({size},); draw noise_size numbers"
        )
