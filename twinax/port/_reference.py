"""PyTorch's own answer: the person's code in float64, or the captured graph with given draws."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.port._capture import ONE_AT_A_TIME, Capture, wrapped
from twinax.port._evaluate import ASSERTIONS
from twinax.port._lines import line_of_error
from twinax.port._refusals import at
from twinax.port._shapes import flatten
from twinax.port._table import OPERATORS

Weights = Callable[[list[Any]], list[Any]]
"""From outputs to what each is weighed with before they are added up and differentiated; None for what does not
count."""

FAILURES = (RuntimeError, AssertionError, TypeError, ValueError)
"""What code raises that does not like what it is given."""


@dataclass(frozen=True)
class Answer:
    """What a side says, as NumPy arrays."""

    outputs: list[Any]
    buffers: dict[str, Any]
    gradients: dict[str, Any]
    """By the names of parameters, then of inputs."""


def own_answer(function: Any, inputs: Any, weights: Weights | None, wide: bool) -> Answer:
    """What the person's module or loss says; the module is then as it was."""
    try:
        return _own_answer(function, inputs, weights, wide, True)
    except FAILURES:  # code may refuse inputs that are differentiated; then only parameters are
        pass
    try:
        return _own_answer(function, inputs, weights, wide, False)
    except FAILURES as error:
        where = "in float64, where the proof needs it" if wide else "in the proof"
        said = " ".join(str(error).split())[:200] or type(error).__name__
        raise TwinaxError(
            f"the module can be captured but does not run {where}: {said}{at(line_of_error(error))}; let it take the "
            "dtype of what it is given, or leave the proof out with check=False"
        ) from error


def _own_answer(function: Any, inputs: Any, weights: Weights | None, wide: bool, differentiated: bool) -> Answer:
    import torch

    module = function.module
    leaves, structure = _leaves(inputs, wide, differentiated)
    parameters = {name: _leaf(p, wide, p.requires_grad) for name, p in module.named_parameters()}
    held = {f"module.{name}": p for name, p in parameters.items()}
    held |= {f"module.{name}": _leaf(b, wide, False) for name, b in module.named_buffers()}
    widened = as_doubles() if wide else contextlib.nullcontext()
    with _as_it_was(module), unvalidated(), torch.enable_grad(), widened:
        # In the very module, so that code which reaches it another way (agent.policy) sees the same numbers.
        result = torch.func.functional_call(wrapped(module, function.call), held, structure(leaves))
        outputs, _ = flatten(result)
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        gradients = _gradients(outputs, weights, {**trained, **dict(leaves)})
    buffers = {name: _plain(held[f"module.{name}"]) for name, _ in module.named_buffers()}
    return Answer([_plain(x) for x in outputs if isinstance(x, torch.Tensor)], buffers, gradients)


def graph_answer(
    capture: Capture,
    function: Any,
    inputs: Any,
    weights: Weights | None,
    draws: Mapping[str, Any],
    wide: bool,
    watch: Callable[[str, Any, Any, Any], None] | None = None,
) -> Answer:
    """What PyTorch makes of the captured graph, with draws in place of its own randomness; `watch` sees each node with
    its arguments, options and value."""
    import torch

    program = capture.program
    with torch.enable_grad(), as_doubles() if wide else contextlib.nullcontext():
        leaves, _ = _leaves(inputs, wide)
        parameters = {name: _leaf(p, wide, p.requires_grad) for name, p in function.module.named_parameters()}
        buffers = {name: _leaf(b, wide, False) for name, b in function.module.named_buffers()}
        values = {node: parameters[name] for node, name in program.parameters.items()}
        values |= {node: buffers[name] for node, name in program.buffers.items()}
        specs = capture.exported.graph_signature.input_specs
        given = [one.arg.name for one in specs if one.kind.name == "USER_INPUT"]
        values |= {name: x for name, (_, x) in zip(given, leaves, strict=True)}
        graph = capture.exported.graph_module
        places = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
        for one in specs:
            if one.arg.name not in values:
                values[one.arg.name] = _leaf(capture.exported.constants[one.target], wide, False)
        drawn = {name: torch.from_numpy(np.array(draw)) for name, draw in draws.items()}
        interpreter = _interpreter(graph, {k: x.double() if wide else x for k, x in drawn.items()}, watch)
        found = interpreter.run(*(values[name] for name in places))
        signature = capture.exported.graph_signature
        outputs, changed = [], {}
        for one, value in zip(signature.output_specs, found, strict=True):
            if one.kind.name == "BUFFER_MUTATION":
                changed[one.target.removeprefix("module.")] = value
            elif isinstance(value, torch.Tensor):
                outputs.append(value)
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        gradients = _gradients(outputs, weights, {**trained, **dict(leaves)})
    return Answer(
        [_plain(x) for x in outputs], {name: _plain(b) for name, b in {**buffers, **changed}.items()}, gradients
    )


def weights_for(outputs: list[Any], is_loss: bool) -> list[Any]:
    """With what each output is weighed before all are added up and differentiated: a loss counts alone, as it is."""
    rng = np.random.default_rng(0)
    found: list[Any] = []
    for place, x in enumerate(outputs):
        if np.asarray(x).dtype.kind != "f" or (is_loss and place):
            found.append(None)
        else:
            found.append(np.ones(()) if is_loss else rng.normal(size=np.shape(x)))
    return found


def _gradients(outputs: list[Any], weights: Weights | None, by: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    if weights is None:
        return {}
    outputs = [x for x in outputs if isinstance(x, torch.Tensor)]
    total = None
    for x, weight in zip(outputs, weights(outputs), strict=True):
        if weight is None or not x.requires_grad:
            continue
        finite = torch.where(torch.isfinite(x), x, torch.zeros_like(x))
        part = (finite * torch.from_numpy(np.asarray(weight)).to(x.dtype)).sum()
        total = part if total is None else total + part
    wanted = {name: x for name, x in by.items() if isinstance(x, torch.Tensor) and x.requires_grad}
    if total is None or not wanted:
        return {name: np.zeros(tuple(x.shape)) for name, x in wanted.items()}
    found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
    return {
        name: np.zeros(tuple(x.shape)) if g is None else _plain(g)
        for (name, x), g in zip(wanted.items(), found, strict=True)
    }


@contextlib.contextmanager
def _as_it_was(module: Any) -> Iterator[None]:
    """Inside, a module may keep what it likes in its attributes; afterwards it has what it had."""
    kept = [(one, {name: _kept(name, x) for name, x in vars(one).items()}) for one in module.modules()]
    try:
        yield
    finally:
        for one, attributes in kept:
            vars(one).clear()
            vars(one).update(attributes)


def _kept(name: str, value: Any) -> Any:
    own = name not in ("_parameters", "_buffers", "_modules")  # which are put back by whoever replaced what is in them
    return copy.copy(value) if own and type(value) in (list, dict, set) else value


def _leaves(inputs: Any, wide: bool, differentiated: bool = True) -> tuple[list[tuple[str, Any]], Any]:
    """Inputs as fresh tensors that can be differentiated by, with names, and what puts them back in their tree."""
    from torch.utils import _pytree

    leaves, structure = flatten(inputs)
    named = [(f"input {k}", _leaf(x, wide, differentiated)) for k, x in enumerate(leaves)]
    return named, lambda pairs: _pytree.tree_unflatten([x for _, x in pairs], structure)


def _leaf(value: Any, wide: bool, differentiated: bool) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().clone()
    if value.is_floating_point():
        value = value.double() if wide else value
        value.requires_grad_(differentiated)
    return value


def _plain(value: Any) -> Any:
    from twinax.bridge import to_numpy

    if not hasattr(value, "detach"):
        return value
    value = value.detach()
    return np.array(to_numpy(value.to_dense() if value.is_sparse else value))  # as an embedding's gradient may be


@contextlib.contextmanager
def unvalidated() -> Iterator[None]:
    """Inside, distributions do not look at numbers, which are moved in a proof."""
    import torch

    distribution = torch.distributions.Distribution
    before = distribution._validate_args
    distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        distribution.set_default_validate_args(before)


@contextlib.contextmanager
def as_doubles() -> Iterator[None]:
    """Inside, PyTorch makes doubles wherever code asks for narrower floats, also of tensors that are no parameters."""
    with ONE_AT_A_TIME, _as_doubles():
        yield


@contextlib.contextmanager
def _as_doubles() -> Iterator[None]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    narrow = (torch.float32, torch.float16, torch.bfloat16)

    def widened(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.double() if x.dtype in narrow else x
        return type(x)(map(widened, x)) if type(x) in (list, tuple) else x

    class Doubles(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = {
                k: torch.float64 if isinstance(v, torch.dtype) and v in narrow else v for k, v in (kwargs or {}).items()
            }
            if all(one.alias_info is None for one in func._schema.returns):  # else it must share what it is given
                args, kwargs = widened(args), {k: widened(v) for k, v in kwargs.items()}
            return func(*args, **kwargs)

    before, finfo = torch.get_default_dtype(), torch.finfo
    torch.set_default_dtype(torch.float64)
    # Limits are read while a graph is captured, from the narrower floats that it was captured with.
    limits: Any = lambda dtype=None: finfo(torch.float32 if dtype in (None, torch.float64) else dtype)  # noqa: E731
    setattr(torch, "finfo", limits)  # noqa: B010
    try:
        with Doubles():
            yield
    finally:
        torch.set_default_dtype(before)
        setattr(torch, "finfo", finfo)  # noqa: B010


def _interpreter(graph: Any, draws: Mapping[str, Any], watch: Any) -> Any:
    import torch

    class Interpreter(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            if str(node.target) in ASSERTIONS:  # such as that something is float32, which is a double here
                return None
            value = self._value(node)
            if watch is not None and node.op == "call_function":
                arguments, options = self.fetch_args_kwargs_from_env(node)
                watch(node.name, arguments, options, value)
            return value

        def _value(self, node: Any) -> Any:
            if node.name not in draws:
                return super().run_node(node)
            arguments, options = self.fetch_args_kwargs_from_env(node)
            options = {k: v for k, v in options.items() if k == "dtype"}
            made = OPERATORS[str(node.target)].function(*arguments, draw=draws[node.name], **options)
            kind = getattr(node.meta["val"], "dtype", None)
            return made if kind is None or kind.is_floating_point else made.to(kind)

    return Interpreter(graph)
