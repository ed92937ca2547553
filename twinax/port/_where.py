"""The first operator of a program that JAX and PyTorch answer differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from twinax.bridge import to_jax
from twinax.errors import TwinaxError
from twinax.parity import difference, precision
from twinax.port._capture import Capture
from twinax.port._evaluate import run_node
from twinax.port._program import Node
from twinax.port._reference import graph_answer
from twinax.port._refusals import at
from twinax.port._shapes import flatten


def first_difference(function: Any, capture: Capture, trial: Any, tolerance: float) -> str | None:
    """A clause that names it, with both numbers and the person's line: by its value, and else by its gradient.

    Each operator is asked on what PyTorch has computed up to there, so what comes before does not count.
    """
    nodes = {node.name: node for node in capture.program.nodes}
    found: list[str] = []

    def watch(name: str, arguments: Any, options: Any, value: Any) -> None:
        node = nodes.get(name)
        if found or node is None or not node.operator.startswith(("aten", "twinax")):
            return
        draw = trial.draws.get(name)
        clause = _compare(node, arguments, value, draw, tolerance)
        if clause:
            found.append(f"the first operator that differs is {node.operator}{at(node.line)}, {clause}")

    with precision("float64"):
        graph_answer(capture, function, trial.inputs, None, trial.draws, True, watch)
    return found[0] if found else None


def comparable(theirs: Any, ours: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as doubles, complex numbers in two halves, with 0 where neither side has a number: there they agree."""
    a, b = (_doubles(x) for x in (theirs, ours))
    if a.shape == b.shape:
        neither = np.isnan(a) & np.isnan(b)
        a, b = np.where(neither, 0.0, a), np.where(neither, 0.0, b)
    return a, b


def _doubles(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array.astype(np.float64)


def check_numbers(function: Any, capture: Capture, trial: Any, theirs: Any) -> None:
    """Refuse a module or a loss that is not a number in PyTorch already: nothing can be compared."""
    first = np.asarray(theirs.outputs[0]) if theirs.outputs else np.zeros(())
    wrong = [name for name, g in theirs.gradients.items() if np.isnan(g).any() and not name.startswith("input ")]
    if first.dtype.kind != "f" or not (np.isnan(first).any() or wrong):
        return
    what = "the result" if np.isnan(first).any() else f"the gradient of '{wrong[0]}'"
    raise TwinaxError(
        f"{what} is not a number in PyTorch itself{_not_a_number(function, capture, trial)}; mend that first, or give "
        "another example"
    )


def _not_a_number(function: Any, capture: Capture, trial: Any) -> str:
    """A clause on what is not a number first: a parameter, an input, or what an operator makes."""
    leaves = zip(capture.names, flatten(trial.inputs)[0], strict=True)
    for name, x in [*function.module.named_parameters(), *function.module.named_buffers(), *leaves]:
        if hasattr(x, "isnan") and x.detach().isnan().any():
            return f", as {name} has such entries"
    nodes = {node.name: node for node in capture.program.nodes}
    found: list[str] = []

    def watch(name: str, arguments: Any, options: Any, value: Any) -> None:
        node = nodes.get(name)
        if not found and node is not None and hasattr(value, "isnan") and value.isnan().any():
            found.append(f", from {node.operator}{at(node.line)}")

    graph_answer(capture, function, trial.inputs, None, trial.draws, True, watch)
    return found[0] if found else ""


def _compare(node: Node, arguments: Any, value: Any, draw: Any, tolerance: float) -> str | None:
    tensors = _tensors(arguments)
    options = _options(node)
    theirs = list(value) if isinstance(value, (list, tuple)) else [value]

    def ours(*arrays: Any) -> list[Any]:
        waiting = iter(arrays)
        given = _filled(arguments, lambda tensor: next(waiting))
        made = run_node(node, given, options, draw, wide=True)
        return list(made) if isinstance(made, tuple) else [made]

    arrays = [to_jax(x.detach()) for x in tensors]
    results = ours(*arrays)
    for b, a in zip(results, theirs, strict=False):
        if clause := _told(a, b, tolerance, ""):
            return clause
    floats = [k for k, x in enumerate(tensors) if x.is_floating_point()]
    outputs = [k for k, x in enumerate(theirs) if getattr(x, "requires_grad", False) and x.is_floating_point()]
    if not floats or not outputs:
        return None
    return _compare_gradients(node, tensors, floats, theirs, outputs, ours, arrays, tolerance)


def _compare_gradients(
    node: Node, tensors: Any, floats: Any, theirs: Any, outputs: Any, ours: Any, arrays: Any, tolerance: float
) -> str | None:
    import torch

    rng = np.random.default_rng(0)
    weights = [rng.normal(size=tuple(theirs[k].shape)) for k in outputs]
    wanted = [k for k in floats if tensors[k].requires_grad]
    total: Any = sum((theirs[k] * torch.from_numpy(np.asarray(w))).sum() for k, w in zip(outputs, weights, strict=True))
    expected = torch.autograd.grad(total, [tensors[k] for k in wanted], allow_unused=True, retain_graph=True)

    def scalar(chosen: list[Any]) -> Any:
        whole = list(arrays)
        for k, x in zip(wanted, chosen, strict=True):
            whole[k] = x
        made = ours(*whole)
        return sum((made[k] * w).sum() for k, w in zip(outputs, weights, strict=True))

    for a, b in zip(expected, jax.grad(scalar)([arrays[k] for k in wanted]), strict=True):
        if a is not None and (clause := _told(a, b, tolerance, "a gradient of ")):
            return clause
    return None


def _told(theirs: Any, ours: Any, tolerance: float, what: str) -> str | None:
    if not hasattr(theirs, "detach"):
        return None
    a, b = comparable(theirs.detach().numpy(), ours)
    row = difference("values", "", "jax", "torch", b, a, tolerance)
    if row.ok:
        return None
    if row.index is None:
        return f"whose result has {row.note}"
    return f"which gives {what}{a[row.index]:.9g} in PyTorch and {b[row.index]:.9g} in JAX at {list(row.index)}"


def _tensors(arguments: Any) -> list[Any]:
    found: list[Any] = []
    _filled(arguments, found.append)
    return found


def _filled(tree: Any, change: Any) -> Any:
    if hasattr(tree, "detach"):
        return change(tree)
    return tuple(_filled(part, change) for part in tree) if isinstance(tree, (list, tuple)) else tree


def _options(node: Node) -> Mapping[str, Any]:
    """Options without arrays, dtypes in JAX."""
    from twinax.port._dtypes import to_jax_dtype
    from twinax.port._program import fill

    return fill(dict(node.options), lambda ref: None, lambda dtype: to_jax_dtype(dtype.name, True))
