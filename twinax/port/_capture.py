"""From a PyTorch module, and perhaps a loss, to a program: `torch.export`, and one sentence where it cannot."""

from __future__ import annotations

import contextlib
import io
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twinax import blame
from twinax.errors import TwinaxError
from twinax.port._cuts import keep_cuts
from twinax.port._lines import innermost_line, line_of_error
from twinax.port._program import Dtype, Line, Node, Program, Ref
from twinax.port._randomness import draw_of, draws
from twinax.port._refusals import check_graph, explain
from twinax.port._shapes import input_names

KEPT = ("gru.input", "lstm.input", "rnn_tanh.input", "rnn_relu.input", "logsumexp.default")
KEPT += ("softplus.default", "mish.default", "std.correction", "std_mean.correction", "linear.default")
"""Operators that are not taken apart: recurrent ones would be written out over time, others lose finite gradients, and
a linear layer of rows that do not lie in order would become a product for each of them."""
IGNORED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit")
"""Options that say how an array lies in memory."""


@dataclass(frozen=True)
class Capture:
    """A program, with what only PyTorch can read."""

    program: Program
    exported: Any
    """The decomposed `torch.export.ExportedProgram`."""
    outputs: Any
    """Structure of the result, PyTorch's."""
    names: tuple[str, ...]
    """What a person calls each leaf of the inputs, such as batch['x']."""
    shapes: tuple[tuple[int, ...] | None, ...]
    """Shapes of the results; None for one that is no array."""
    any_rows: bool
    """Whether it serves every size of the first axis."""


def capture(
    module: Any, example: tuple[Any, ...], loss: Callable[..., Any] | None = None, dynamic: Any = None
) -> Capture:
    """What `module(*example)`, or `loss(module, *example)`, computes, as a program. The module stays as it is."""
    import torch

    whole = wrapped(module, loss)
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with _capturing():
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
    names = input_names(example, module.forward if loss is None else loss, 0 if loss is None else 1)
    check_graph(exported, names)
    program, shapes = _program(exported, first_names(module)), _result_shapes(exported)
    return Capture(program, exported, exported.call_spec.out_spec, names, shapes, dynamic and _is_dynamic(exported))


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
def _capturing() -> Iterator[None]:
    """Without PyTorch's warnings and logs about itself, and without checks that look at numbers, as distributions have.

    Every node remembers the person's own lines, also those of functions that are no module's `forward`.
    """
    import torch
    from torch.fx.proxy import TracerBase

    distribution, name = torch.distributions.Distribution, "_filter_traceback_frames"
    theirs = getattr(TracerBase, name)

    def own_frames(tracer: Any, summary: Any) -> Any:
        own = [frame for frame in summary if not blame.is_library_file(frame.filename)]
        return traceback.StackSummary.from_list(own) if own else theirs(tracer, summary)

    checked, logged = distribution._validate_args, logging.root.manager.disable
    distribution.set_default_validate_args(False)
    setattr(TracerBase, name, own_frames)
    logging.disable(logging.CRITICAL)
    try:
        # PyTorch prints what it had of a graph when it gives up.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        distribution.set_default_validate_args(checked)
        setattr(TracerBase, name, theirs)
        logging.disable(logged)


def first_names(module: Any) -> dict[str, str]:
    """Names of parameters and buffers, and of what is tied the name that comes first."""
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def _program(exported: Any, named: Mapping[str, str]) -> Program:
    import torch
    from torch.export.graph_signature import InputKind, OutputKind

    signature = exported.graph_signature
    parameters, buffers, constants, inputs = {}, {}, {}, []
    for one in signature.input_specs:
        name = getattr(one.arg, "name", None)
        owner = (one.target or "").removeprefix("module.")
        if one.kind is InputKind.PARAMETER:
            parameters[name] = named[owner]
        elif one.kind is InputKind.BUFFER:
            buffers[name] = named.get(owner, owner)
        elif one.kind is InputKind.CONSTANT_TENSOR:
            constants[name] = exported.constants[one.target].detach()
        elif one.kind is InputKind.USER_INPUT:
            inputs.append(name)
    nodes, random = [], {}
    for node in exported.graph.nodes:
        if node.op == "get_attr":
            constants[node.name] = getattr(exported.graph_module, node.target).detach()
        if node.op != "call_function":
            continue
        made = _node(node)
        nodes.append(made)
        if draws(node):
            random[node.name] = draw_of(node)
    results, changed = [], {}
    (output,) = (node for node in exported.graph.nodes if node.op == "output")
    for one, value in zip(signature.output_specs, output.args[0], strict=True):
        if one.kind is OutputKind.USER_OUTPUT:
            results.append(_plain(value))
        elif one.kind is OutputKind.BUFFER_MUTATION:
            changed[one.target.removeprefix("module.")] = _plain(value)
    constants = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in constants.items()}
    return _trimmed(
        Program(parameters, buffers, constants, tuple(inputs), tuple(nodes), tuple(results), changed, random)
    )


def _result_shapes(exported: Any) -> tuple[tuple[int, ...] | None, ...]:
    nodes = {node.name: node for node in exported.graph.nodes}
    found = []
    for one in exported.graph_signature.output_specs:
        if one.kind.name == "USER_OUTPUT":
            node = nodes.get(getattr(one.arg, "name", None))
            value = None if node is None else node.meta.get("val")
            found.append(None if value is None or not hasattr(value, "shape") else tuple(value.shape))
    return tuple(found)


def _is_dynamic(exported: Any) -> bool:
    """Whether every input kept an open first axis, and nothing random has the size of the example."""
    inputs = set(exported.graph_signature.user_inputs)
    for node in exported.graph.nodes:
        if node.op == "placeholder" and node.name in inputs and not isinstance(node.meta["val"].shape[0], int):
            continue
        if (node.op == "placeholder" and node.name in inputs) or draws(node):
            return False
    return True


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
