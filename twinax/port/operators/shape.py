"""Operators that arrange numbers anew."""

from __future__ import annotations

import jax.numpy as jnp

from twinax.port._table import operator


@operator("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")
def view(x, shape):
    return jnp.reshape(x, shape)


@operator("aten.permute.default")
def permute(x, axes):
    return jnp.transpose(x, axes)


@operator("aten.clone.default", "aten.alias.default", "aten.lift_fresh_copy.default")
def same(x):
    return x
