"""The proof that a captured function is the person's: values and gradients, and where they first differ."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge import to_jax, to_numpy, to_torch
from twinax.engines import QUICK_COMPILE
from twinax.noise import numpy_draws
from twinax.parity import FLOOR, Evidence, Report, Row, counts_of, difference, likely_cause, precision
from twinax.port._capture import Capture
from twinax.port._evaluate import evaluate
from twinax.port._reference import Answer, graph_answer, own_answer, weights_for
from twinax.port._shapes import flatten, unflatten
from twinax.port._where import check_numbers, comparable, first_difference

NARROW_TOLERANCES = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest relative difference in the module's own precision, where the order of sums shows: of values, and of gradients
beside the largest of them. More is allowed where PyTorch itself is as far from its own float64."""
WORSE = 10
"""How many times as far as PyTorch JAX may then be."""
NARROW = " in its own precision"
"""At the end of a rung."""
SIDES = ("torch", "jax")


@dataclass(frozen=True)
class Trial:
    """Inputs with which both sides are asked."""

    name: str
    inputs: Any
    draws: Mapping[str, Any]
    moved: bool = False
    """Whether parameters are moved a little: behind a head that begins with zeros, no gradient would show anything."""


def prove(function: Any, inputs: Any, tolerance: float = 1e-9) -> Report:
    """Outputs, changed buffers and gradients by every parameter and input, in float64 on the example and on random
    inputs like it, and in the module's own precision on the example. A difference names the first operator that makes
    it."""
    capture: Capture = function.capture(inputs)
    rows: list[Row] = []
    hint = exact = None
    narrow = _own_precision(function.module, capture)
    for trial, wide in _trials(function, capture, inputs):
        with moved(function.module) if trial.moved else contextlib.nullcontext():
            theirs, ours = _ask(function, capture, trial, wide)
            if exact is None:
                exact = theirs
                check_numbers(function, capture, trial, theirs)
            allowed = tolerance if wide else NARROW_TOLERANCES[narrow or "float32"]
            found = list(_rows(trial, theirs, ours, None if wide else exact, function, capture, allowed))
            rows += found
            if not all(row.ok for row in found):
                hint = _cause(function, capture, trial, theirs, ours, found, wide, tolerance)
                break
    parameters = sum(p.numel() for p in function.module.parameters())
    return Report(tuple(rows), SIDES, tolerance, "float64", parameters, hint)


def _trials(function: Any, capture: Capture, inputs: Any) -> Iterator[tuple[Trial, bool]]:
    draws = numpy_draws(capture.program.draws, 0, 0)
    example = Trial("example", inputs, draws)
    yield example, True
    yield Trial("random inputs", inputs_like(inputs), numpy_draws(capture.program.draws, 1, 1), moved=True), True
    if _own_precision(function.module, capture):
        yield example, False


def _own_precision(module: Any, capture: Capture) -> str | None:
    """The narrowest dtype of parameters, and of what is computed where they are not doubles; None if they are."""
    kinds = {str(p.dtype).removeprefix("torch.") for p in module.parameters() if p.is_floating_point()}
    if kinds - {"float64"}:
        kinds |= {dtype for node in capture.program.nodes for dtype in node.dtypes if dtype is not None}
    return max(kinds & set(NARROW_TOLERANCES), key=lambda kind: NARROW_TOLERANCES[kind], default=None)


def inputs_like(example: Any, seed: int = 0) -> Any:
    """Random inputs of the same kind: rows are drawn anew, the same ones of all arrays, so that masks and probabilities
    stay what they are together; floats besides move by a tenth within their range."""
    import torch

    rng = np.random.default_rng(seed)
    chosen: dict[int, np.ndarray] = {}

    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.numel():
            return x
        made = to_numpy(x.detach())
        if x.ndim:
            rows = len(made)
            made = made[chosen.setdefault(rows, rng.integers(0, rows, rows))]
        if made.dtype.kind == "f" and not _is_bound(made):
            low, high = made.min(), made.max()
            made = np.clip(made * (1 + 0.1 * rng.normal(size=made.shape)), low, high).astype(made.dtype)
        return to_torch(np.array(made, order="C")).to(x.dtype)

    leaves, structure = flatten(example)
    return unflatten([one(leaf) for leaf in leaves], structure)


def _is_bound(x: np.ndarray) -> bool:
    """Whether floats are tied together, as whole numbers and probabilities are."""
    whole = bool((x == np.round(x)).all())
    return whole or (x.ndim > 0 and bool((x >= 0).all()) and np.allclose(x.sum(-1), 1, atol=1e-4))


@contextlib.contextmanager
def moved(module: Any) -> Iterator[None]:
    """Inside, a module's float parameters are a little other ones."""
    import torch

    rng = np.random.default_rng(0)
    own = [p for p in module.parameters() if p.is_floating_point()]
    kept = [p.detach().clone() for p in own]
    try:
        for p in own:
            noise = torch.from_numpy(np.asarray(rng.normal(size=tuple(p.shape)))).to(p.dtype)
            p.data.add_((0.1 * p.data.abs() + 0.01) * noise)  # by `data`: nobody is to think that it was trained
        yield
    finally:
        for p, before in zip(own, kept, strict=True):
            p.data.copy_(before)


def _ask(function: Any, capture: Capture, trial: Trial, wide: bool) -> tuple[Answer, Answer]:
    """Both answers; with draws PyTorch's is that of the graph, since the same draws can only be given to that."""
    weights: list[Any] = []

    def weigh(outputs: list[Any]) -> list[Any]:
        weights[:] = weights_for([to_numpy(x.detach()) for x in outputs], function.loss is not None)
        return weights

    if capture.program.draws:
        theirs = graph_answer(capture, function, trial.inputs, weigh, trial.draws, wide)
    else:
        theirs = own_answer(function, trial.inputs, weigh, wide)
    return theirs, _jax_answer(function, capture, trial, weights, wide)


def _jax_answer(function: Any, capture: Capture, trial: Trial, weights: list[Any], wide: bool) -> Answer:
    program = capture.program
    with precision("float64" if wide else "float32"):
        leaves, _ = flatten(trial.inputs)
        inputs = [to_jax(_widened(x, wide), narrow="allow") if hasattr(x, "detach") else x for x in leaves]
        named = {
            name: to_jax(_widened(x.detach(), wide), narrow="allow")
            for name, x in [*function.module.named_parameters(), *function.module.named_buffers()]
        }
        trained = {name: named[name] for name, p in function.module.named_parameters() if p.requires_grad}
        floats = {k for k, x in enumerate(inputs) if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)}
        by = {f"input {k}": inputs[k] for k in sorted(floats)}
        rest = {f"input {k}": x for k, x in enumerate(inputs) if f"input {k}" not in by and hasattr(x, "dtype")}

        def total(differentiated: Any, arrays: Any) -> Any:
            given = [{**differentiated, **arrays}.get(f"input {k}", x) for k, x in enumerate(inputs)]
            held = {**named, **{name: x for name, x in differentiated.items() if name in named}}
            outputs, changed = evaluate(program, held, held, given, trial.draws, wide=wide)
            outputs = [x for x in outputs if hasattr(x, "dtype")]
            value = jnp.zeros(())
            for x, weight in zip(outputs, weights, strict=True):
                if weight is not None:
                    value = value + (jnp.where(jnp.isfinite(x), x, 0) * weight).sum()
            return value, (outputs, changed)

        compiled = jax.jit(jax.grad(total, has_aux=True), compiler_options=QUICK_COMPILE)
        gradients, (outputs, changed) = compiled({**trained, **by}, rest)
        buffers = {name: named[name] for name, _ in function.module.named_buffers()}
        plain = jax.tree.map(np.asarray, (list(outputs), {**buffers, **changed}, gradients))
    return Answer(*plain)


def _widened(x: Any, wide: bool) -> Any:
    return x.double() if wide and x.is_floating_point() else x


def _rows(
    trial: Trial, theirs: Answer, ours: Answer, exact: Answer | None, function: Any, capture: Capture, tolerance: float
) -> Iterator[Row]:
    """Row by row; with PyTorch's answer in float64 (`exact`) these two are in the module's own precision."""
    names = output_names(function, len(theirs.outputs))
    sizes = (np.abs(g[np.isfinite(g)]).max(initial=0.0) for g in map(np.asarray, theirs.gradients.values()))
    largest = max(map(float, sizes), default=0.0)

    def row(rung: str, name: str, theirs: Any, ours: Any, exact: Any, floor: float = 0.0) -> Row:
        if exact is None:
            a, b = comparable(theirs, ours)
            found = difference(rung, name, "jax", "torch", b, a, tolerance, FLOOR * max(floor, 1.0))
        else:
            a, b = comparable(theirs, ours)
            found = difference(f"{rung}{NARROW}", name, "jax", "torch", b, a, tolerance, max(floor, FLOOR))
            if not found.ok and found.absolute <= WORSE * float(np.abs(comparable(exact, ours)[0] - a).max()):
                found = replace(found, ok=True)
        return found if found.ok else replace(found, note=", ".join(filter(None, (found.note, f"on the {trial.name}"))))

    for k, (name, a, b) in enumerate(zip(names, theirs.outputs, ours.outputs, strict=True)):
        yield row("values", name, a, b, exact and exact.outputs[k])
    for name, a in theirs.buffers.items():
        yield row("values", name, a, ours.buffers[name], exact and exact.buffers[name])
    for name, a in theirs.gradients.items():
        shown = capture.names[int(name[6:])] if name.startswith("input ") else name
        told = f"{names[0] if function.loss else 'outputs'} d {shown}"
        yield row("gradients", told, a, ours.gradients[name], exact and exact.gradients[name], largest)


def output_names(function: Any, number: int) -> list[str]:
    """What the arrays of a result are called."""
    first = ["loss"] if function.loss else ["output"]
    return (first + [f"{first[0]} {k}" for k in range(1, number)])[:number]


def _cause(
    function: Any,
    capture: Capture,
    trial: Trial,
    theirs: Answer,
    ours: Answer,
    rows: list[Row],
    wide: bool,
    tolerance: float,
) -> str:
    """The first operator that differs, if one does; and what parity makes of the numbers."""
    names = output_names(function, len(theirs.outputs))
    term = names[0] if function.loss else "outputs"
    values = {
        side: {**dict(zip(names, one.outputs, strict=True)), "outputs": np.array(0.0)}
        for side, one in zip(SIDES, (theirs, ours), strict=True)
    }
    gradients = {side: {term: one.gradients} for side, one in zip(SIDES, (theirs, ours), strict=True)}
    row = next(row for row in rows if not row.ok)
    row = replace(row, rung=row.rung.removesuffix(NARROW))
    told = likely_cause(row, Evidence(values, gradients, counts_of(_arrays(trial.inputs))))
    place = first_difference(function, capture, trial, tolerance)
    if place is not None:
        return f"{place}; {told}"
    if not wide:
        return "every operator agrees in float64, so this is rounding in the module's own precision."
    return (
        "every operator of the captured graph agrees, so the graph is not what the module does: Python state that "
        "changes from call to call, numbers drawn outside of PyTorch, or a torch.autograd.Function with a backward of "
        f"its own. {told}"
    )


def _arrays(inputs: Any) -> dict[str, Any]:
    leaves, _ = flatten(inputs)
    return {f"input {k}": to_numpy(x.detach()) for k, x in enumerate(leaves) if hasattr(x, "detach")}
