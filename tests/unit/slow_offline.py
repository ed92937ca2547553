"""Networks of the offline agents, one number at a time in plain Python: what the agents are compared with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from twinax.networks import Ensemble

Vector = list[float]


def row(x: Any, *index: int) -> Vector:
    """Part of an array as a list."""
    return [float(value) for value in x[index]]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def clipped(x: Sequence[float], low: float = -1.0, high: float = 1.0) -> Vector:
    return [min(max(value, low), high) for value in x]


def sphere(x: Sequence[float]) -> Vector:
    """The same direction with the length sqrt(width)."""
    length = math.sqrt(dot(x, x))
    return [math.sqrt(len(x)) * value / length for value in x]


def log_sum_exp(x: Sequence[float]) -> float:
    top = max(x)
    return top + math.log(sum(math.exp(value - top) for value in x))


def softmax(x: Sequence[float]) -> Vector:
    whole = log_sum_exp(x)
    return [math.exp(value - whole) for value in x]


# Networks


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def layer_norm(x: Vector, weight: Any, bias: Any) -> Vector:
    middle = mean(x)
    variance = mean([value**2 for value in x]) - middle**2
    size = math.sqrt(variance + 1e-6)
    return [(value - middle) / size * float(weight[k]) + float(bias[k]) for k, value in enumerate(x)]


def linear(layer: Any, x: Vector, e: int | None = None) -> Vector:
    """A layer, or member e of stacked layers."""
    weight, bias = (layer.weight, layer.bias) if e is None else (layer.weight[e], layer.bias[e])
    return [dot(row(weight, k), x) + float(bias[k]) for k in range(len(bias))]


def perceptron(net: Any, x: Vector, e: int | None = None) -> Vector:
    """Linear, GELU, LayerNorm, and so on; the last layer is bare unless the network is a trunk."""
    for i, layer in enumerate(net.layers):
        x = linear(layer, x, e)
        if net.final or i < len(net.layers) - 1:
            x = [gelu(value) for value in x]
            if net.norms:
                norm = net.norms[i]
                weight, bias = (norm.weight, norm.bias) if e is None else (norm.weight[e], norm.bias[e])
                x = layer_norm(x, weight, bias)
    return x


def output(net: Any, e: int | None, *parts: Sequence[float]) -> Vector:
    """What a perceptron, or member e of an ensemble, makes of inputs side by side."""
    x = [value for part in parts for value in part]
    return perceptron(net.members, x, e) if isinstance(net, Ensemble) else perceptron(net, x)


def vector(net: Any, *parts: Sequence[float], e: int | None = None) -> Vector:
    """What a `Value` with vectors gives."""
    return output(net.body, e, *parts)


def number(net: Any, *parts: Sequence[float], e: int | None = None) -> float:
    """What a `Value` with numbers gives."""
    (found,) = output(net.body, e, *parts)
    return found


def smaller(net: Any, *parts: Sequence[float]) -> float:
    """The smaller of two members."""
    return min(number(net, *parts, e=0), number(net, *parts, e=1))


def actor_mean(actor: Any, *parts: Sequence[float]) -> Vector:
    return linear(actor.mean, perceptron(actor.trunk, [value for part in parts for value in part]))


def normal_log_prob(x: Sequence[float], mean: Sequence[float]) -> float:
    """Of independent normal variables with standard deviation 1."""
    return sum(-((a - m) ** 2) / 2 - math.log(2 * math.pi) / 2 for a, m in zip(x, mean, strict=True))


def tanh_log_prob(action: Sequence[float], mean: Sequence[float]) -> float:
    """The same through tanh: the density at atanh(a), over the slope of tanh there."""
    x = [math.atanh(a) for a in action]
    return normal_log_prob(x, mean) - sum(math.log(1 - a**2) for a in action)


def intention(net: Any, *parts: Sequence[float]) -> tuple[Vector, Vector]:
    """Means and log standard deviations of latents."""
    h = perceptron(net.trunk, [value for part in parts for value in part])
    return linear(net.mean, h), linear(net.log_std, h)
