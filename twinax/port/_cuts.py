"""Where a person's code stops gradients, kept through PyTorch's decomposition, which forgets it.

`detach` and the insides of `torch.no_grad` come out of a decomposition as if they were never there. So before it, what
they give is passed through an operator of our own that nothing decomposes.
"""

from __future__ import annotations

import functools
from typing import Any

from twinax.port._refusals import check_write

CUT = "twinax::stop_gradient"


@functools.cache
def cut() -> Any:
    """The operator, registered when it is first asked for."""
    import torch

    @torch.library.custom_op(CUT, mutates_args=(), schema="(Tensor x) -> Tensor")
    def stop_gradient(x: Any) -> Any:
        return x.detach().clone()

    stop_gradient.register_fake(torch.empty_like)
    stop_gradient.register_autograd(lambda context, gradient: None)
    return torch.ops.twinax.stop_gradient.default


def keep_cuts(exported: Any) -> None:
    """Put the operator wherever gradients stop, and what stood inside of `no_grad` in the open."""
    import torch

    module = exported.graph_module
    _open_blocks(module)
    for node in list(module.graph.nodes):
        if node.target in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
            _check_writes(node)
            node.target = cut()
    module.graph.lint()
    module.recompile()


def _check_writes(detached: Any) -> None:
    """Refuse a write in place through `detach` that others would see: the operator gives an array of its own."""
    (tensor, *_) = detached.args
    if tensor.op == "call_function" and len(tensor.users) == 1:
        return
    shared = [detached]
    for one in shared:  # grows by what else shows the same memory
        for user in one.users:
            schema = getattr(user.target, "_schema", None)
            if schema is None or not user.args or user.args[0] is not one:
                continue
            if schema.is_mutable:
                check_write(user, tensor.name)
            elif schema.returns and schema.returns[0].alias_info is not None:
                shared.append(user)


def _open_blocks(module: Any) -> None:
    """Blocks with another mode of gradients become nodes of the graph, however deep they stand."""
    import torch

    for node in list(module.graph.nodes):
        if node.target is not torch.ops.higher_order.wrap_with_set_grad_enabled:
            continue
        enabled, inner, *given = node.args
        block = getattr(module, inner.target)
        _open_blocks(block)
        places = [one for one in block.graph.nodes if one.op == "placeholder"]
        values = dict(zip(places, given, strict=True))
        with module.graph.inserting_before(node):
            # Submodules of the block were opened; what attributes are left are constants.
            for one in block.graph.nodes:
                if one.op == "get_attr":
                    name = f"{inner.target}_{one.target}"
                    setattr(module, name, getattr(block, one.target))
                    values[one] = module.graph.get_attr(name)
            results = _copied(module.graph, block.graph, values)
            if not enabled:
                results = [_cut(module.graph, one) for one in results]
        for user in list(node.users):  # each takes one result
            user.replace_all_uses_with(results[user.args[1]])
            module.graph.erase_node(user)
        module.graph.erase_node(node)


def _copied(graph: Any, block: Any, values: dict[Any, Any]) -> list[Any]:
    results: Any = ()
    for one in block.nodes:
        if one.op == "output":
            results = one.args[0]
        elif one not in values:
            values[one] = graph.node_copy(one, lambda inner: values[inner])
    results = results if isinstance(results, (list, tuple)) else (results,)
    return [values.get(one, one) for one in results]


def _cut(graph: Any, node: Any) -> Any:
    import torch

    value = getattr(node, "meta", {}).get("val")
    if not isinstance(value, torch.Tensor):  # such as a size
        return node
    made = graph.call_function(cut(), (node,))
    made.meta.update(node.meta)
    return made
