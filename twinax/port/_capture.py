"""From a PyTorch module, and perhaps a loss, to a program: `torch.export`, and one sentence where it cannot."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from twinax.errors import TwinaxError
from twinax.port._cuts import keep_cuts
from twinax.port._lines import innermost_line, line_of_error
from twinax.port._program import Dtype, Line, Node, Program, Ref
from twinax.port._randomness import draw_of
from twinax.port._refusals import check_graph, check_module, explain

KEPT = ("gru.input", "lstm.input", "rnn_tanh.input", "rnn_relu.input", "logsumexp.default")
KEPT += ("softplus.default", "mish.default", "std.correction", "std_mean.correction")
"""Operators that are not taken apart: recurrent ones would be written out over time, others lose finite gradients."""
IGNORED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")
"""Options that say how an array lies in memory."""


@dataclass(frozen=True)
class Capture:
    """A program, with what only PyTorch can read."""

    program: Program
    exported: Any
    """The decomposed `torch.export.ExportedProgram`."""
    inputs: Any
    """Structure of the arguments, PyTorch's."""
    outputs: Any
    """Structure of the result, PyTorch's."""


def capture(
    module: Any, example: tuple[Any, ...], loss: Callable[..., Any] | None = None, dynamic: Any = None
) -> Capture:
    """What `module(*example)`, or `loss(module, *example)`, computes, as a program. The module stays as it is."""
    import torch

    check_module(module)
    whole = wrapped(module, loss)
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with _quiet():
            exported = torch.export.export(whole, example, strict=False, dynamic_shapes=dynamic)
            keep_cuts(exported)
            table = torch.export.default_decompositions()
            for name in KEPT:
                packet, overload = name.split(".")
                table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
            exported = exported.run_decompositions(table)
    except TwinaxError:
        raise
    except Exception as error:  # a person's code may raise anything, and so may its capture
        raise TwinaxError(explain(error, line_of_error(error))) from error
    finally:
        for name, buffer in module.named_buffers():  # a capture may leave fake numbers in them
            if buffer is not kept[name]:
                with torch.no_grad():
                    buffer.copy_(kept[name])
    check_graph(exported, module)
    return Capture(_program(exported), exported, exported.call_spec.in_spec, exported.call_spec.out_spec)


def wrapped(module: Any, loss: Callable[..., Any] | None) -> Any:
    """A module whose only child is the person's, so that names are those of its `state_dict`."""
    import torch

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *given: Any) -> Any:
            return self.module(*given) if loss is None else loss(self.module, *given)

    return Whole().train(module.training) if not _mixed(module) else Whole()


def _mixed(module: Any) -> bool:
    """Whether parts of a module are in training and others are not; they stay so."""
    return len({one.training for one in module.modules()}) > 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without PyTorch's warnings about itself, and without checks that look at numbers, as distributions have."""
    import torch

    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


def _program(exported: Any) -> Program:
    import torch
    from torch.export.graph_signature import InputKind, OutputKind

    signature = exported.graph_signature
    parameters, buffers, constants, inputs = {}, {}, {}, []
    for one in signature.input_specs:
        name = getattr(one.arg, "name", None)
        owner = (one.target or "").removeprefix("module.")
        if one.kind is InputKind.PARAMETER:
            parameters[name] = owner
        elif one.kind is InputKind.BUFFER:
            buffers[name] = owner
        elif one.kind is InputKind.CONSTANT_TENSOR:
            constants[name] = exported.constants[one.target].detach()
        elif one.kind is InputKind.USER_INPUT:
            inputs.append(name)
    nodes, draws = [], {}
    for node in exported.graph.nodes:
        if node.op == "get_attr":
            constants[node.name] = getattr(exported.graph_module, node.target).detach()
        if node.op != "call_function":
            continue
        made = _node(node)
        nodes.append(made)
        draw = draw_of(made.operator, node)
        if draw is not None:
            draws[node.name] = draw
    results, changed = [], {}
    (output,) = (node for node in exported.graph.nodes if node.op == "output")
    for one, value in zip(signature.output_specs, output.args[0], strict=True):
        if one.kind is OutputKind.USER_OUTPUT:
            results.append(_plain(value))
        elif one.kind is OutputKind.BUFFER_MUTATION:
            changed[one.target.removeprefix("module.")] = _plain(value)
    constants = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in constants.items()}
    return _trimmed(
        Program(parameters, buffers, constants, tuple(inputs), tuple(nodes), tuple(results), changed, draws)
    )


def _node(node: Any) -> Node:
    import torch

    name = str(node.target) if isinstance(node.target, torch._ops.OpOverload) else node.target.__name__
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    dtypes = tuple(_dtype_name(one.dtype) if isinstance(one, torch.Tensor) else None for one in values)
    options = {key: _plain(x) for key, x in node.kwargs.items() if key not in IGNORED}
    line: Line | None = innermost_line(node.meta.get("stack_trace") or "")
    return Node(node.name, name, tuple(_plain(x) for x in node.args), options, dtypes, line)


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _plain(value: Any) -> Any:
    """An argument without PyTorch's types."""
    import torch

    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, torch.dtype):
        return Dtype(_dtype_name(value))
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return None
    if isinstance(value, (list, tuple)):
        return tuple(_plain(part) for part in value)
    if isinstance(value, torch.Tensor):  # a constant that was not lifted
        return value.detach().numpy()
    return value


def _trimmed(program: Program) -> Program:
    """Without nodes that nothing reads, but for those that draw: who asks for draws gets the same ones."""
    import dataclasses

    from twinax.port._program import fill

    needed: set[str] = set()

    def need(tree: Any) -> None:
        fill(tree, lambda ref: needed.add(ref.name), lambda dtype: None)

    need((program.results, dict(program.changed)))
    kept = []
    for node in reversed(program.nodes):
        if node.name in needed:
            kept.append(node)
            need((node.arguments, dict(node.options)))
    names = {node.name for node in kept}
    draws = {name: draw for name, draw in program.draws.items() if name in names}
    return dataclasses.replace(program, nodes=tuple(reversed(kept)), draws=draws)
