"""A function of rows, applied to as many rows as are in use, in a compiled program with static shapes.

The rows are taken a tile at a time in a loop whose trip count is data, forwards and, for the gradient,
once more: what differentiation keeps of each tile is stored, not recomputed. The program holds one tile's code
however many rows there may be, and works on at most one tile of empty rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax

from twinax import tree
from twinax.ops._axis import current_seed_axis


@tree.record
class Kept:
    """What the forward loop leaves for the backward one."""

    pull: Any
    """The tiles' pullbacks as one: leaves that depend on the tile have a leading tile axis."""
    stacked: tuple[bool, ...] = tree.static()
    """Which leaves those are."""


def tile_rows(function: Callable, parameters: Any, rows: Any, count: Any, tile: int) -> Any:
    """`function(parameters, rows)` for the first `count` rows; the results of other rows are 0 or arbitrary."""
    number = jtu.tree_leaves(rows)[0].shape[0]
    tiles = -(-number // tile)

    def split(x):
        padded = jnp.pad(x, [(0, tiles * tile - number)] + [(0, 0)] * (x.ndim - 1), mode="edge")
        return padded.reshape(tiles, tile, *x.shape[1:])

    used = (jnp.asarray(count, jnp.int32) + tile - 1) // tile
    if (axis := current_seed_axis()) is not None:
        used = lax.pmax(used, axis)
    results = _tiled(function, parameters, jtu.tree_map(split, rows), used)
    return jtu.tree_map(lambda y: y.reshape(tiles * tile, *y.shape[2:])[:number], results)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _tiled(function, parameters, rows, used):
    def body(i, out):
        return _store(out, i, function(parameters, _at(rows, i)))

    shapes = jax.eval_shape(function, parameters, _at(rows, 0))
    return lax.fori_loop(0, used, body, _room(shapes, rows, jnp.zeros))


def _forward(function, parameters, rows, used):
    def differentiate(parameters, row):
        out, pull = jax.vjp(lambda p: function(p, row), parameters)
        return out, pull

    shapes, pull_shapes = jax.eval_shape(differentiate, parameters, _at(rows, 0))
    structure = jtu.tree_structure(pull_shapes)
    stacked = _depends_on_rows(differentiate, parameters, _at(rows, 0))

    def body(i, carry):
        out, kept = carry
        value, pull = differentiate(parameters, _at(rows, i))
        leaves = jtu.tree_leaves(pull)
        kept = _store(kept, i, [leaf for leaf, each in zip(leaves, stacked, strict=True) if each])
        return _store(out, i, value), kept

    room = [x for x, each in zip(jtu.tree_leaves(pull_shapes), stacked, strict=True) if each]
    out, kept = lax.fori_loop(0, used, body, (_room(shapes, rows, jnp.zeros), _room(room, rows, lax.empty)))
    # What is the same for all tiles is read off the first; nothing of that tile is computed for it.
    same, kept = jtu.tree_leaves(differentiate(parameters, _at(rows, 0))[1]), iter(kept)
    pull = jtu.tree_unflatten(structure, [next(kept) if each else same[k] for k, each in enumerate(stacked)])
    return out, (Kept(pull, stacked), parameters, used)


def _backward(function, residual, gradient):
    kept, parameters, used = residual
    leaves, structure = jtu.tree_flatten(kept.pull)

    def body(i, total):
        tile = [_at(leaf, i) if each else leaf for leaf, each in zip(leaves, kept.stacked, strict=True)]
        (share,) = jtu.tree_unflatten(structure, tile)(_at(gradient, i))
        return jtu.tree_map(jnp.add, total, share)

    return lax.fori_loop(0, used, body, jtu.tree_map(jnp.zeros_like, parameters)), None, None


_tiled.defvjp(_forward, _backward)


def _at(values: Any, i: Any) -> Any:
    return jtu.tree_map(lambda x: lax.dynamic_index_in_dim(x, i, 0, keepdims=False), values)


def _store(buffers: Any, i: Any, values: Any) -> Any:
    return jtu.tree_map(lambda b, x: lax.dynamic_update_index_in_dim(b, x, i, 0), buffers, values)


def _room(shapes: Any, rows: Any, make: Callable) -> Any:
    tiles = jtu.tree_leaves(rows)[0].shape[0]
    return jtu.tree_map(lambda x: make((tiles, *x.shape), x.dtype), shapes)


def _depends_on_rows(differentiate: Callable, parameters: Any, row: Any) -> tuple[bool, ...]:
    """For each leaf of the pullback, whether the rows enter it; the others, such as weights, are the same for all."""
    program = jax.make_jaxpr(lambda p, r: jtu.tree_leaves(differentiate(p, r)[1]))(parameters, row).jaxpr
    dependent = set(program.invars[len(jtu.tree_leaves(parameters)) :])
    for equation in program.eqns:
        if any(not isinstance(v, jax.extend.core.Literal) and v in dependent for v in equation.invars):
            dependent.update(equation.outvars)
    return tuple(not isinstance(v, jax.extend.core.Literal) and v in dependent for v in program.outvars)
