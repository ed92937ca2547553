"""Products of matrices, and convolutions."""

from __future__ import annotations

from twinax.port._table import operator


@operator("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def matmul(a, b):
    return a @ b


@operator("aten.addmm.default")
def addmm(x, a, b, *, beta=1, alpha=1):
    product = a @ b
    return (x if beta == 1 else beta * x) + (product if alpha == 1 else alpha * product)
