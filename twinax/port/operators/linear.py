"""Products of matrices and vectors."""

from __future__ import annotations

import jax.numpy as jnp

from twinax.port._products import product, rows
from twinax.port._table import operator


@operator("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default")
def matmul(a, b):
    return product(a, b)


@operator("aten.vdot.default")
def vdot(a, b):
    return jnp.conj(a) @ b


@operator("aten.linear.default")
def linear(x, weight, bias=None):
    if weight.ndim == 1:
        return x @ weight
    y = product(x.reshape(-1, x.shape[-1]), weight.T).reshape(*x.shape[:-1], weight.shape[0])
    return y if bias is None else y + rows(bias, y.shape)


@operator("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def add_product(x, a, b, *, beta=1, alpha=1):
    return weighted_sum(x, product(a, b), beta, alpha)


@operator("aten.addbmm.default")
def add_summed_products(x, a, b, *, beta=1, alpha=1):
    return weighted_sum(x, jnp.einsum("bij,bjk->ik", a, b), beta, alpha)


@operator("aten.addr.default")
def add_outer_product(x, a, b, *, beta=1, alpha=1):
    return weighted_sum(x, a[:, None] * b, beta, alpha)


def weighted_sum(x, product, beta, alpha):
    """PyTorch does not read `x` where beta is zero, so a NaN in it does no harm."""
    product = product if alpha == 1 else alpha * product
    if beta == 0:
        return jnp.broadcast_to(product, jnp.broadcast_shapes(product.shape, x.shape))
    x = rows(x, product.shape) if x.ndim == 1 and product.ndim == 2 else x
    return (x if beta == 1 else beta * x) + product


@operator("aten._trilinear.default")
def trilinear(a, b, c, expand_a, expand_b, expand_c, summed, unroll_axis=1):
    """The product of three arrays with axes put in, summed over some axes; what nn.Bilinear computes."""
    rank = a.ndim + len(expand_a)
    names = [[axis for axis in range(rank) if axis not in expand] for expand in (expand_a, expand_b, expand_c)]
    left = [axis for axis in range(rank) if axis not in summed]
    return jnp.einsum(a, names[0], b, names[1], c, names[2], left, optimize="optimal")
