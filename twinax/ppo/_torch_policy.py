"""A policy as a plain `torch.nn.Module`: nothing of this library is needed to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from twinax.envs import Box
from twinax.ppo._policy import Policy

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "elu": nn.ELU,
    "silu": nn.SiLU,
}


class TorchPolicy(nn.Module):
    """From observations [batch, n] to the likeliest actions; normaliser and bounds are buffers, so `.to` moves all."""

    mean: torch.Tensor
    deviation: torch.Tensor
    limit: torch.Tensor
    """Where the normalised observation is cut off; infinite where it is not."""
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, sizes: Sequence[int], activation: str, kind: str):
        super().__init__()
        self.kind = kind
        layers: list[nn.Module] = []
        for inputs, outputs in zip(sizes[:-1], sizes[1:], strict=True):
            layers += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*layers[:-1])
        for name, size in {"mean": sizes[0], "deviation": sizes[0], "low": sizes[-1], "high": sizes[-1]}.items():
            self.register_buffer(name, torch.zeros(size))
        self.register_buffer("limit", torch.tensor(float("inf")))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        x = torch.maximum(torch.minimum((observation - self.mean) / self.deviation, self.limit), -self.limit)
        point = self.layers(x)
        if self.kind == "categorical":
            return torch.argmax(point, -1)
        if self.kind == "tanh":
            return self.low + (torch.tanh(point) + 1) * (0.5 * (self.high - self.low))
        return torch.minimum(torch.maximum(point, self.low), self.high)


def structure(policy: Policy) -> dict[str, Any]:
    """Arguments of `TorchPolicy`."""
    layers = policy.layers()
    sizes = [layers[0].weight.shape[1], *(layer.weight.shape[0] for layer in layers)]
    return {
        "sizes": sizes,
        "activation": layers[0].activation or policy.agent.actor.activation,
        "kind": policy.agent.kind,
    }


def arrays(policy: Policy) -> dict[str, np.ndarray]:
    """The `state_dict` of `TorchPolicy`."""
    found: dict[str, Any] = {}
    for k, layer in enumerate(policy.layers()):
        # In the sequence every second module is an activation.
        found |= {f"layers.{2 * k}.weight": layer.weight, f"layers.{2 * k}.bias": layer.bias}
    moments, actions = policy.moments, policy.world.actions
    none = np.zeros(policy.inputs)
    found["mean"] = none if moments is None else moments.mean
    found["deviation"] = none + 1 if moments is None else policy.scaling.deviation(moments.variance.astype(np.float64))
    found["limit"] = np.array(np.inf if moments is None else policy.scaling.bound)
    bounds = (actions.low, actions.high) if isinstance(actions, Box) else [np.zeros(policy.outputs)] * 2
    found |= {"low": np.array(bounds[0]), "high": np.array(bounds[1])}
    return {name: np.ascontiguousarray(value, np.float32).reshape(np.shape(value)) for name, value in found.items()}


def make_torch_policy(built: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> TorchPolicy:
    """The module with its numbers, ready to act."""
    module = TorchPolicy(**built)
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    return module.eval().requires_grad_(False)
