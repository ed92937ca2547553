"""A policy as a plain `torch.nn.Module`: nothing of this library is needed to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twinax.errors import TwinaxError, UnknownName
from twinax.exportable import KINDS, OBSERVATION, Exportable

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "elu": nn.ELU,
    "silu": nn.SiLU,
}


def _norm(m: Any, x: Tensor) -> Tensor:
    return nn.functional.layer_norm(x, m.weight.shape, m.weight, m.bias, m.options["eps"])


def _group_norm(m: Any, x: Tensor) -> Tensor:
    return nn.functional.group_norm(x, m.options["groups"], m.weight, m.bias, m.options["eps"])


def _bordered(m: Any, x: Tensor, value: float) -> Tensor:
    (top, bottom), (left, right) = m.options["border"]
    return nn.functional.pad(x, (left, right, top, bottom), value=value)


def _conv(m: Any, x: Tensor) -> Tensor:
    own = m.options
    x = _bordered(m, x, 0.0)
    return nn.functional.conv2d(x, m.weight, m.bias, own["stride"], 0, own["dilation"], own["groups"])


def _max_pool(m: Any, x: Tensor) -> Tensor:
    return nn.functional.max_pool2d(_bordered(m, x, -torch.inf), m.options["window"], m.options["stride"])


def _sphere(m: Any, x: Tensor) -> Tensor:
    size = torch.sqrt(torch.clamp((x * x).sum(-1, keepdim=True), min=m.options["least"]))
    return x.shape[-1] ** 0.5 * x / size


RULES: dict[str, Callable[..., Tensor]] = {
    "normalise": lambda m, x: (x - m.mean) / m.deviation,
    "limit": lambda m, x: torch.maximum(torch.minimum(x, m.limit), -m.limit),
    "linear": lambda m, x: nn.functional.linear(x, m.weight, m.bias),
    "norm": _norm,
    "activation": lambda m, x: m.function(x),
    "clamp": lambda m, x: torch.minimum(torch.maximum(x, m.low), m.high),
    "stretch": lambda m, x: m.low + (x + 1) * (0.5 * (m.high - m.low)),
    "codebook": lambda m, x: m.table[x.long()].transpose(-1, -2).flatten(1),
    "quantiles": lambda m, x: x[:, None] * m.factors,
    "split": lambda m, x: x.unflatten(1, (m.options["numbers"], -1)),
    "mean": lambda m, x: x.mean(1),
    "expectation": lambda m, x: (torch.softmax(x, 1) * m.support[:, None]).sum(1),
    "argmax": lambda m, x: torch.argmax(x, -1),
    "concat": lambda m, *parts: torch.cat(parts, -1),
    "add": lambda m, x, y: x + y,
    "sphere": _sphere,
    "channels_first": lambda m, x: x.permute(0, 3, 1, 2),
    "channels_last": lambda m, x: x.permute(0, 2, 3, 1),
    "planes": lambda m, x: torch.cat([x, m.planes.expand(x.shape[0], *m.planes.shape)], 1),
    "conv": _conv,
    "max_pool": _max_pool,
    "group_norm": _group_norm,
    "spatial_mean": lambda m, x: x.mean((2, 3)),
    "flatten": lambda m, x: x.flatten(1),
}
"""What each kind of step does."""
LEARNED = ("weight", "bias")
"""Arrays that are parameters; the others are buffers."""


class Part(nn.Module):
    """One step."""

    def __init__(self, kind: str, shapes: Mapping[str, Sequence[int]], options: Mapping[str, Any]):
        super().__init__()
        self.kind, self.options = kind, dict(options)
        for name, shape in shapes.items():
            blank = torch.zeros(tuple(shape))
            if name in LEARNED:
                self.register_parameter(name, nn.Parameter(blank))
            else:
                self.register_buffer(name, blank)
        if kind == "activation":
            self.function = ACTIVATIONS[options["activation"]]()

    def forward(self, *read: Tensor) -> Tensor:
        return RULES[self.kind](self, *read)


class TorchPolicy(nn.Module):
    """From observations [batch, ...] to the likeliest actions; arrays are named as in the ONNX file."""

    def __init__(self, steps: Sequence[Mapping[str, Any]]):
        super().__init__()
        self._chain: list[tuple[str, tuple[str, ...]]] = []
        for step in steps:
            kind, options = step["kind"], step.get("options") or {}
            if kind not in KINDS:
                raise UnknownName("step of a policy", kind, KINDS)
            if kind == "activation" and options.get("activation") not in ACTIVATIONS:
                raise UnknownName("activation", options.get("activation"), ACTIVATIONS)
            before = self._chain[-1][0] if self._chain else OBSERVATION
            reads = tuple(map(str, step.get("reads") or (before,)))
            known = {OBSERVATION, *(name for name, _ in self._chain)}
            if missing := [name for name in reads if name not in known]:
                raise UnknownName("step of a policy", missing[0], known)
            self._chain.append((str(step["name"]), reads))
            self._put(str(step["name"]), Part(kind, step.get("arrays") or {}, options))

    def _put(self, name: str, part: Part) -> None:
        """The part under its dotted name, so that its arrays have that name in `state_dict`."""
        where: nn.Module = self
        *above, last = name.split(".")
        for word in above:
            if word not in where._modules:
                where.add_module(word, nn.Module())
            where = where.get_submodule(word)
        if last in where._modules:
            raise TwinaxError(f"two steps of a policy are called '{name}'; each needs a name of its own")
        where.add_module(last, part)

    def forward(self, observation: Tensor) -> Tensor:
        x, outputs = observation, {OBSERVATION: observation}
        for name, reads in self._chain:
            x = outputs[name] = self.get_submodule(name)(*(outputs[one] for one in reads))
        return x


def structure(policy: Exportable) -> list[dict[str, Any]]:
    """Arguments of `TorchPolicy`, as plain values."""
    return [
        {
            "kind": step.kind,
            "name": step.name,
            "arrays": {name: list(np.shape(array)) for name, array in step.arrays.items()},
            "options": dict(step.options),
            **({"reads": list(step.reads)} if step.reads else {}),
        }
        for step in policy.steps
    ]


def arrays(policy: Exportable) -> dict[str, np.ndarray]:
    """The `state_dict` of `TorchPolicy`."""
    return {
        f"{step.name}.{name}": np.ascontiguousarray(array, np.float32).reshape(np.shape(array))
        for step in policy.steps
        for name, array in step.arrays.items()
    }


def make_torch_policy(steps: Sequence[Mapping[str, Any]], weights: Mapping[str, np.ndarray]) -> TorchPolicy:
    """The module with its numbers, ready to act."""
    module = TorchPolicy(steps)
    module.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
    return module.eval().requires_grad_(False)
