"""Random operators: each is a function of its draw. Written over `ops`, so PyTorch can be given the same draws."""

from __future__ import annotations

import math
from typing import Any

from twinax import ops
from twinax.port._table import leave_out, operator


@operator("aten.native_dropout.default")
def native_dropout(x, p, train=True, *, draw=None):
    """The chance to stay is that of a uniform number below 1 - p."""
    if draw is None or p == 0:
        return x, (x == x) | (x != x)
    kept = draw < 1 - p
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return x * ops.cast(kept, x) * scale, kept


@operator("aten.rand.default", "aten.rand_like.default", "aten.randn.default", "aten.randn_like.default")
def standard(*given, draw, **options):
    """Uniform on (0, 1), or normal, as drawn."""
    return draw


@operator("aten.normal_functional.default")
def normal_functional(x, mean=0.0, std=1.0, *, draw):
    return mean + std * draw


@operator("aten.normal.Tensor_Tensor", "aten.normal.Tensor_float", "aten.normal.float_Tensor")
def normal(mean, std=1.0, *, draw):
    return mean + std * draw


@operator("aten.normal.float_float")
def normal_of_size(mean, std, size, *, draw, **options):
    return mean + std * draw


@operator("aten.log_normal.default")
def log_normal(x, mean=1.0, std=2.0, *, draw):
    return ops.exp(mean + std * draw)


@operator("aten.uniform.default")
def uniform(x, low=0.0, high=1.0, *, draw):
    return low + (high - low) * draw


@operator("aten.exponential.default")
def exponential(x, rate=1.0, *, draw):
    return -ops.log(draw) / rate


@operator("aten.cauchy.default")
def cauchy(x, median=0.0, sigma=1.0, *, draw):
    angle = math.pi * (draw - 0.5)
    return median + sigma * ops.sin(angle) / ops.cos(angle)


@operator("aten.geometric.default")
def geometric(x, p, *, draw):
    return ops.log(draw) / math.log1p(-p) // 1 + 1


@operator("aten.bernoulli.p", "aten.bernoulli.Tensor")
def bernoulli(x, p=0.5, *, draw):
    return draw < p


@operator("aten.randint.default")
def randint(high, size, *, draw, **options):
    return integers(0, high, draw)


@operator("aten.randint_like.default")
def randint_like(x, high, *, draw, **options):
    return integers(0, high, draw)


@operator("aten.randint.low")
def randint_between(low, high, size, *, draw, **options):
    return integers(low, high, draw)


@operator("aten.randint_like.low_dtype")
def randint_like_between(x, low, high, *, draw, **options):
    return integers(low, high, draw)


def integers(low: int, high: int, draw: Any) -> Any:
    """Integers in [low, high) of uniform numbers."""
    return low + draw * (high - low) // 1


@operator("aten.randperm.default")
def randperm(n, *, draw, **options):
    return ops.smallest(draw, n)


@operator("aten.multinomial.default")
def multinomial(weights, number, replacement=False, *, draw):
    """The largest of log weights plus Gumbel noise, or the largest few where nothing may come twice."""
    noise = -ops.log(-ops.log(draw))
    scores = ops.log(weights)
    if replacement:
        return ops.argmax(scores[..., None, :] + noise)
    return ops.smallest(-(scores + noise), number)


leave_out(
    "it draws by rejection, so how many random numbers it needs is not known beforehand",
    "aten._standard_gamma.default",
    "aten._sample_dirichlet.default",
    "aten.poisson.default",
    "aten.binomial.default",
)
