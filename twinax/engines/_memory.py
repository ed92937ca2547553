"""What a problem needs of memory, from shapes alone: refused in a sentence before anything is made.

The state is that of `init` with a generator whose arrays take no memory, and draws say their shapes themselves. What a
step computes besides is bounded by rows and widths; only where that bound is not far below what is free the step is
traced, which takes seconds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from twinax import tree
from twinax.errors import TwinaxError
from twinax.memory import GIGABYTE, available_memory, is_mapped
from twinax.noise import Draw
from twinax.problem import Problem
from twinax.shapes import ShapeGenerator, blank
from twinax.train_options import TrainOptions

COPIES = 2
"""A state is held by the device, and by the host while it is made and while it is saved."""
LOGGED = 10
"""Numbers that a step logs, about."""
SLACK = 10
"""How far below what is free a step's bound has to be for the step not to be traced: attention and convolutions make
rows longer than widths say, and some losses compare all pairs of rows."""
MARKS = 2**24
WORDS = {
    "networks": "the networks with their optimizer",
    "carry": "what is carried from step to step",
    "draws": "the random numbers of a step",
    "step": "what a step computes",
    "evaluation": "the random numbers of an evaluation",
    "data": "the data",
    "log": "the log of a chunk (trainer.chunk)",
}
"""What takes memory, where a problem has no words of its own for it."""
LIKE_NETWORKS = ("optimizer.first.", "optimizer.second.", "targets.")
VIEWS = {"broadcast_in_dim", "convert_element_type", "expand_dims", "iota", "reshape", "slice", "squeeze", "transpose"}
"""Operations whose results are views, or are never written out."""
IN_PLACE = {"dynamic_update_slice", "scatter", "scatter-add"}
"""Operations that write into what they are given."""

Shapes = Mapping[str, np.ndarray]
"""Blank arrays by their names in a state."""


def check_memory(problem: Problem, options: TrainOptions, available: float | None = None) -> None:
    """Refuse a problem that does not fit into what is free, in a sentence that says what takes most of it."""
    free = available_memory() if available is None else available
    shapes = find_shapes(problem)
    parts = known_bytes(problem, options, shapes)
    known = sum(parts.values())
    if known <= free < known + SLACK * step_bound(problem, options, shapes):
        parts["step"] = traced_bytes(problem, options) * options.seeds
    refuse_if_larger(parts, free, {**WORDS, **problem.compile.memory}, shapes)


def refuse_if_larger(
    parts: Mapping[str, float], available: float, words: Mapping[str, str], shapes: Shapes | None = None
) -> None:
    """Refuse when the parts, bytes by name, exceed the memory.

    >>> refuse_if_larger({"draws": 1e6}, 2e9, WORDS)
    """
    total = sum(parts.values())
    if total <= available:
        return
    told: dict[str, float] = {}
    for name, size in parts.items():
        told[_word(name, words)] = told.get(_word(name, words), 0.0) + size
    most = max(told, key=lambda one: told[one])
    mine = {name: x for name, x in (shapes or {}).items() if _word(_part(name), words) == most}
    largest = max(mine, key=lambda name: mine[name].nbytes, default=None)
    array = f" array, {largest}," if largest is not None and "." in largest else " array"
    shape = "" if largest is None else f"; its largest{array} is {' x '.join(map(str, mine[largest].shape))}"
    raise TwinaxError(
        f"this problem needs about {_gigabytes(total)} of memory and {_gigabytes(available)} are free; most of it, "
        f"{_gigabytes(told[most])}, is {most}{shape}"
    )


def find_shapes(problem: Problem) -> Shapes:
    """A state's arrays, blank; only what is known of it where `init` cannot do without numbers."""
    rng: Any = ShapeGenerator()
    try:
        return {name: np.asanyarray(leaf) for name, leaf in tree.named_leaves(problem.init(rng)).items()}
    except MemoryError as error:  # of NumPy, for zeros that no computer has
        carry = blank(getattr(error, "shape", (2**62,)), getattr(error, "dtype", np.uint8))
        return {"networks": blank((rng.drawn,)), "carry": carry}
    except Exception:  # a stranger's `init` may do anything with its seed
        return {"networks": blank((rng.drawn,))}


def known_bytes(problem: Problem, options: TrainOptions, shapes: Shapes) -> dict[str, float]:
    """Bytes by part: those of the state by the name of each array, where moments and targets count as networks."""
    parts: dict[str, float] = {}

    def add(name: str, size: float) -> None:
        parts[name] = parts.get(name, 0.0) + size

    for name, x in shapes.items():
        add(_part(name), COPIES * _bytes(x.shape, x.dtype, options) * options.seeds)
        if name.startswith("networks"):
            add(name, _bytes(x.shape, x.dtype, options) * options.seeds)  # its gradient
    add("draws", _draw_bytes(problem.draws(), options) * options.seeds)
    add("evaluation", _draw_bytes(problem.judge.draws(), options))
    arrays = [x for x in jax.tree.leaves(problem.inputs().data) if not is_mapped(x) or _widens(x.dtype, options)]
    add("data", float(sum(_bytes(np.shape(x), x.dtype, options) for x in arrays)))
    add("log", float(LOGGED * _width(options) * options.chunk * options.seeds))
    return parts


def step_bound(problem: Problem, options: TrainOptions, shapes: Shapes) -> float:
    """About the bytes that a step makes: for each row, which has random numbers of its own, what goes into layers and
    comes out of them. Convolutions have no such bound, for no weight says how large an image is; neither have long
    lists of marks, which rows are compared with."""
    rows = max((math.prod(draw.shape[:-1] or draw.shape) for draw in problem.draws().values()), default=1)
    weights = [x.shape for name, x in shapes.items() if name.startswith("networks") and x.ndim > 1]
    marks = [x.size for name, x in shapes.items() if name.startswith("carry") and x.ndim == 1]
    if any(len(shape) > 3 for shape in weights) or max(marks, default=0) > MARKS:
        return math.inf
    width = sum(float(math.prod(shape[:-1])) + shape[-1] for shape in weights)
    return float(rows) * width * _width(options) * options.seeds


def traced_bytes(problem: Problem, options: TrainOptions) -> float:
    """The most that a step holds at once besides what it is given, as if every operation wrote its result out."""
    from twinax.engines.jax_engine import make_update

    def abstract(x: Any) -> jax.ShapeDtypeStruct:
        x = np.asanyarray(x)
        return jax.ShapeDtypeStruct(x.shape, options.dtype if _widens(x.dtype, options) else x.dtype)

    def step(state: Any, draws: Any, inputs: Any) -> Any:
        return problem.step(state, draws, inputs, make_update(problem, inputs.settings))

    draws = {
        name: jax.ShapeDtypeStruct(draw.shape, np.int32 if draw.kind == "integers" else options.dtype)
        for name, draw in problem.draws().items()
    }
    inputs = problem.inputs()
    inputs = dataclasses.replace(inputs, settings={**inputs.settings, **problem.optimizer.settings()})
    try:
        given = jax.tree.map(abstract, (problem.init(options.seed), inputs))  # it fits: its shapes were counted
        return peak_bytes(jax.make_jaxpr(step)(given[0], draws, given[1]).jaxpr)
    except Exception:  # a stranger's world or network may not be traceable, and PyTorch alone can run it
        return 0.0


def peak_bytes(jaxpr: Any) -> float:
    """The most that is alive at once of what a program computes, without what it is given."""
    last = {var: i for i, one in enumerate(jaxpr.eqns) for var in one.invars if not hasattr(var, "val")}
    last |= {var: len(jaxpr.eqns) for var in jaxpr.outvars if not hasattr(var, "val")}
    alive: dict[Any, float] = {}
    now = peak = 0.0
    for i, one in enumerate(jaxpr.eqns):
        inner = max((peak_bytes(body) for body in _bodies(one.params)), default=0.0)
        free = one.primitive.name in VIEWS or one.primitive.name in IN_PLACE
        made = {var: 0.0 if free else _aval_bytes(var.aval) for var in one.outvars if var in last}
        now += sum(made.values())
        alive |= made
        peak = max(peak, now + inner)
        for var in {var for var in one.invars if not hasattr(var, "val")}:
            if last[var] == i:
                now -= alive.pop(var, 0.0)
    return peak


def _bodies(params: Mapping[str, Any]) -> list[Any]:
    """The programs within an operation: of loops, branches and functions."""
    values = [x for value in params.values() for x in (value if isinstance(value, tuple | list) else (value,))]
    return [body for body in (getattr(x, "jaxpr", x) for x in values) if hasattr(body, "eqns")]


def _aval_bytes(aval: Any) -> float:
    return float(math.prod(aval.shape)) * np.dtype(aval.dtype).itemsize if hasattr(aval, "shape") else 0.0


def _part(name: str) -> str:
    """The part that an array of a state belongs to: moments and targets go with their networks."""
    head = next((start for start in LIKE_NETWORKS if name.startswith(start)), None)
    return name if head is None else f"networks.{name.removeprefix(head)}"


def _word(name: str, words: Mapping[str, str]) -> str:
    """What a part is called: by the longest beginning of its name that there are words for."""
    while name not in words and "." in name:
        name = name.rpartition(".")[0]
    return words.get(name, name)


def _width(options: TrainOptions) -> int:
    return np.dtype(options.dtype).itemsize


def _widens(dtype: Any, options: TrainOptions) -> bool:
    return np.dtype(dtype).kind == "f" and np.dtype(dtype) != np.dtype(options.dtype)


def _bytes(shape: tuple[int, ...], dtype: Any, options: TrainOptions) -> float:
    each = _width(options) if np.dtype(dtype).kind == "f" else np.dtype(dtype).itemsize
    return float(math.prod(shape)) * each


def _draw_bytes(draws: Mapping[str, Draw], options: TrainOptions) -> float:
    return sum(
        _bytes(draw.shape, np.int32 if draw.kind == "integers" else np.float32, options) for draw in draws.values()
    )


def _gigabytes(size: float) -> str:
    return f"{size / GIGABYTE:,.1f} GB" if size < 1e15 else f"{size / GIGABYTE:.0e} GB"
