"""What cannot be captured, each in one sentence with the line and the way out."""

from __future__ import annotations

import gc
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from twinax.errors import TwinaxError
from twinax.port._lines import innermost_line
from twinax.port._program import Line
from twinax.port._table import LEFT_OUT, OPERATORS

CAUSES = (
    (
        r"torch\.autograd inside|functorch tensor|has no attribute 'constant'",
        "it differentiates by itself (backward, torch.autograd.grad, torch.func.grad), which cannot be captured; give "
        "the loss alone, or port what is differentiated and use jax.grad on that",
    ),
    (
        r"argument 'size' failed to unpack",
        "a size is a number inside a tensor, as lengths are for pack_padded_sequence; give whole sequences and a mask, "
        "and sizes as Python numbers",
    ),
    (
        r"GuardOnDataDependent|data-dependent|Could not guard|unbacked|cond predicate|vmap over calling '?item",
        "Python decides by a number inside a tensor, which a compiled function cannot; choose with torch.where or a "
        "mask, or keep that part in PyTorch and give its result as an input",
    ),
    (
        r"FakeTensor|fake tensor|\.numpy\(\)|numpy\(\) is not supported|DataPtr|data_ptr|storage",
        "the numbers of a tensor are read outside of PyTorch (by .data, .numpy() or a library), which cannot be "
        "captured; use .detach() for .data, or keep that part in PyTorch and give its result as an input",
    ),
    (
        r"Cannot cast FakeTensor|\.item\(\)|_local_scalar_dense|nonzero",
        "a number is taken out of a tensor (.item(), float(), nonzero), which a compiled function cannot; compute with "
        "the tensor itself",
    ),
)
"""What a capture's exception says, and what it means."""
LEAD = "the module cannot be captured"


def explain(error: BaseException, line: Line | None) -> str:
    """One sentence on why a capture failed."""
    said = f"{type(error).__name__}: {error}"
    meaning = next((text for pattern, text in CAUSES if re.search(pattern, said)), None)
    if meaning is None:
        meaning = " ".join(said.split())[:300]
    return f"{LEAD}: {meaning}{at(line)}"


def at(line: Line | None) -> str:
    return f" ({line})" if line else ""


def check_module(module: Any) -> None:
    """Refuse what a capture would lose in silence."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise TwinaxError(
            f"a torch.nn.Module is ported, but this is a {type(module).__name__}; give its networks in one module, "
            "such as a torch.nn.ModuleDict"
        )
    for name, one in module.named_modules():
        where = f"'{name}' is" if name else "this is"
        kind = type(one).__name__
        if isinstance(one, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
            raise TwinaxError(f"{where} a {kind}, which shares work out itself; give the module inside it, .module")
        if type(one).__module__.startswith(("torch.ao.nn.quantized", "torch.ao.nn.intrinsic")):
            raise TwinaxError(f"{where} a {kind}, which computes in quantized integers; give the module before that")
        if isinstance(one, torch.jit.ScriptModule):
            raise TwinaxError(f"{where} a {kind}, whose code is no longer Python; give the module that it was made of")
        if one._backward_hooks or one._backward_pre_hooks:
            raise TwinaxError(
                f"the module '{name or kind}' has a backward hook, which JAX's gradients would not call; remove it, or "
                "put what it does into the loss"
            )
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if torch.nn.parameter.is_lazy(tensor):
            raise TwinaxError(f"'{name}' has no shape yet, as in lazy layers; call the module once before it is ported")
        if tensor.is_inference():
            raise TwinaxError(f"'{name}' was made inside torch.inference_mode, so nothing trains it; make it outside")
        if tensor.device.type != "cpu":
            raise TwinaxError(f"'{name}' is on device {tensor.device}; move the module to the CPU with module.cpu()")
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise TwinaxError(f"the parameter '{name}' has a hook on its gradient, which JAX would not call; remove it")


def check_graph(exported: Any, names: Sequence[str]) -> None:
    """Refuse what a captured graph has and a function in JAX cannot have; `names` are those of the inputs in order."""

    signature = exported.graph_signature
    shown = dict(zip(signature.user_inputs, names, strict=True))
    written = {shown[name]: "the input" for name in signature.user_inputs_to_mutate.values()}
    for name in getattr(signature, "parameters_to_mutate", {}).values():
        written[name.removeprefix("module.")] = "the parameter"
    for name, kind in written.items():
        raise TwinaxError(
            f"{LEAD}: {kind} {name} is written to in place, and a function must leave what it is given; work on a copy "
            f"({name}.clone())"
        )
    check_constants(exported)
    known = set(signature.inputs_to_lifted_tensor_constants)
    for node in exported.graph.nodes:
        if node.op == "call_function":
            check_operator(node)
            check_masks(node, known)


def check_constants(exported: Any) -> None:
    """Refuse trained tensors of others: a capture would take their numbers of now for good."""
    import torch

    read = {value.data_ptr(): node for node, value in _constants(exported) if value.numel()}
    if not read:
        return
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor) and one.is_leaf and one.requires_grad and one.device.type == "cpu":
            if type(one).__module__.startswith("torch._subclasses") or one.data_ptr() not in read:
                continue
            node = read[one.data_ptr()]
            user = next(iter(node.users), node)
            line = innermost_line(user.meta.get("stack_trace") or "")
            raise TwinaxError(
                f"{LEAD}: it reads a trained tensor of shape {tuple(one.shape)} that is not one of the module's own "
                "parameters; give one module that holds all that is read, such as a torch.nn.ModuleDict, with lone "
                f"tensors as torch.nn.Parameter{at(line)}"
            )


def _constants(exported: Any) -> Iterator[tuple[Any, Any]]:
    """Nodes of constants with their values."""
    import torch

    nodes = {node.name: node for node in exported.graph.nodes}
    for one in exported.graph_signature.input_specs:
        if one.kind.name == "CONSTANT_TENSOR":
            value = exported.constants[one.target]
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                yield nodes[one.arg.name], value


def check_operator(node: Any) -> None:
    """Refuse a node whose operator is not in the table."""
    import torch

    from twinax.port._evaluate import ASSERTIONS, PYTHON

    target = node.target
    name = str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))
    if name in OPERATORS or name in PYTHON or name in ASSERTIONS:
        return
    because = LEFT_OUT.get(name)
    why = f"because {because}" if because else "which is not in the table (twinax port --operators)"
    line = innermost_line(node.meta.get("stack_trace") or "")
    raise TwinaxError(
        f"{LEAD}: the operator {name} cannot be ported, {why}; keep that part in PyTorch and give its result as an "
        f"input{at(line)}"
    )


def check_masks(node: Any, known: Collection[str]) -> None:
    """Refuse x[mask], unless the mask is a constant: how many entries it gives depends on numbers."""
    import torch

    aten = torch.ops.aten
    if node.target is not aten.index.Tensor:
        return
    for index in node.args[1]:
        if index is None or index.meta["val"].dtype not in (torch.bool, torch.uint8):
            continue
        while index.target in (aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default):
            index = index.args[0]
        if index.op != "get_attr" and index.name not in known:
            raise TwinaxError(
                f"{LEAD}: a mask that is computed, or kept in a buffer, picks a number of entries that is not known "
                "beforehand; choose with torch.where, multiply by the mask, or make it a plain attribute if it never "
                f"changes{at(innermost_line(node.meta.get('stack_trace') or ''))}"
            )


def check_write(node: Any, written: str) -> None:
    """Refuse a node that writes to a tensor in place through what was detached from it."""
    if str(node.target) in LEFT_OUT:
        check_operator(node)
    raise TwinaxError(
        f"{LEAD}: '{written}' is written to in place through .detach(), which would be lost; write to a copy "
        f"(.detach().clone()), or to the tensor itself inside torch.no_grad()"
        f"{at(innermost_line(node.meta.get('stack_trace') or ''))}"
    )
