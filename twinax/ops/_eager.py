"""Control flow of the eager frameworks: plain Python, the same for PyTorch and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util as jtu


def scan(stack: Callable, step: Callable, carry: Any, xs: Any, reverse: bool) -> tuple[Any, Any]:
    length = jtu.tree_leaves(xs)[0].shape[0]
    ys = []
    for t in reversed(range(length)) if reverse else range(length):
        carry, y = step(carry, jtu.tree_map(lambda x, t=t: x[t], xs))
        ys.append(y)
    if reverse:
        ys.reverse()
    return carry, jtu.tree_map(lambda *items: stack(items), *ys) if ys else None


def while_loop(condition: Callable, body: Callable, carry: Any) -> Any:
    while bool(condition(carry)):
        carry = body(carry)
    return carry


def map_rows(concat: Callable, function: Callable, rows: Any, tile: int) -> Any:
    number = jtu.tree_leaves(rows)[0].shape[0]
    starts = range(0, number, tile) or (0,)
    parts = [function(jtu.tree_map(lambda x, i=i: x[i : i + tile], rows)) for i in starts]
    return jtu.tree_map(lambda *items: concat(items), *parts)


def used(x: Any, count: Any) -> Any:
    return x[: int(count)]


def switch_size(count: Any, sizes: tuple[int, ...], function: Callable[[int], Any]) -> Any:
    return function(int(count))


def cond(predicate: Any, then: Callable[[], Any], otherwise: Callable[[], Any], each: bool) -> Any:
    return then() if bool(predicate) else otherwise()


def members(stack: Callable, unbind: Callable, function: Callable, trees: Any, parallel: bool) -> Any:
    leaves, structure = jtu.tree_flatten(trees)
    each = zip(*(unbind(leaf) for leaf in leaves), strict=True)
    results = [function(*jtu.tree_unflatten(structure, row)) for row in each]
    return jtu.tree_map(lambda *items: stack(items), *results)


def member_losses(stack: Callable, unbind: Callable, function: Callable, networks: Any, rest: Any, *_) -> Any:
    return members(stack, unbind, function, (networks, *rest), True)
