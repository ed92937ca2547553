"""Modules of PyTorch: their layers by class, in the order of their definition."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_module, numpy_to_tensor
from twinax.bridge.conversion._build_torch import torch_modules
from twinax.bridge.conversion._layers import (
    IMAGES,
    Chain,
    Found,
    Opened,
    alone,
    border,
    dotted,
    each_axis,
    found,
    kind_of,
)
from twinax.bridge.conversion._layouts import LAYOUTS
from twinax.bridge.conversion._plain_layers import plain_module
from twinax.errors import TwinaxError

STACKS = {"GRU": "gru_cell", "LSTM": "lstm_cell"}
"""Cells over time, one above the other."""
COUNT = "num_batches_tracked"


class Torch:
    """`torch.nn.Module`."""

    name = "torch"
    title = "PyTorch"

    def owns(self, module: Any) -> bool:
        return is_module(module)

    def opened(self, module: Any, inputs: tuple | None, run: Any) -> Opened:
        layers = tuple(_with_ties(list(_layers(module, "", set())), module))
        single = len(layers) == 1 and layers[0].kind != "array" and not layers[0].path
        chain = list(_chain(module, {layer.path: layer for layer in layers}, ""))
        strange = next((item for item in chain if isinstance(item, str)), "")
        return Opened(layers, None if strange else tuple(chain), single, strange)  # type: ignore[arg-type]

    def filled(self, module: Any, values: Mapping[str, np.ndarray]) -> Any:
        import torch

        made = copy.deepcopy(module)
        leaves = dict(made.named_parameters(remove_duplicate=False)) | dict(made.named_buffers(remove_duplicate=False))
        with torch.no_grad():
            for name, value in values.items():
                leaves[name].copy_(numpy_to_tensor(np.array(value, order="C")))
        return made

    def built(self, chain: Chain, single: bool) -> Any:
        import torch

        modules = torch_modules(chain)
        return modules[0] if single else torch.nn.Sequential(*modules)

    def outputs(self, module: Any, opened: Opened, inputs: tuple, run: Any, dtype: str) -> list[np.ndarray]:
        import torch

        wanted = getattr(torch, dtype)
        copied = copy.deepcopy(module).cpu().eval()
        for part in copied.modules():
            if isinstance(part, torch.nn.RMSNorm) and part.eps is None:
                # Its epsilon would change with the precision of the check.
                part.eps = torch.finfo(_dtype(part)).eps
        copied = copied.to(wanted)

        def given(x: Any) -> Any:
            x = np.asarray(x)
            return torch.from_numpy(np.array(x)).to(wanted) if x.dtype.kind == "f" else torch.from_numpy(np.array(x))

        given_inputs = jtu.tree_map(given, inputs)
        with torch.no_grad():
            if run is not None:
                out = run(copied, *given_inputs)
            elif opened.single and opened.layers[0].kind == "attention":
                first = copied.batch_first
                out = copied(*(x if first else x.swapaxes(0, 1) for x in given_inputs))[0]
                out = out if first else out.swapaxes(0, 1)
            else:
                out = copied(*given_inputs)
        return [host_array("", leaf) for leaf in jtu.tree_leaves(out)]


def _dtype(module: Any) -> Any:
    import torch

    return next((p.dtype for p in module.parameters()), torch.get_default_dtype())


def _own(module: Any) -> dict[str, Any]:
    """Parameters and kept buffers of a module itself."""
    kept = {k: v for k, v in module._buffers.items() if k not in module._non_persistent_buffers_set}
    return {name: leaf for name, leaf in {**module._parameters, **kept}.items() if leaf is not None}


def _layers(module: Any, path: str, seen: set[int]) -> Iterator[Found]:
    import torch
    from torch.nn.utils import parametrize

    if id(module) in seen:
        return
    seen.add(id(module))
    title = _title(module)
    if parametrize.is_parametrized(module):
        raise TwinaxError(
            f"'{path or title}' ({title}) computes a weight from others; make it plain with "
            "torch.nn.utils.parametrize.remove_parametrizations first"
        )
    own = _own(module)
    if title in STACKS and isinstance(module, torch.nn.RNNBase):
        yield from _stack(module, path, title)
        return
    axes = module.weight.ndim - 2 if isinstance(own.get("weight"), torch.Tensor) else 0
    if (kind := kind_of("torch", title, axes)) is not None:
        yield _known(module, kind, path, title)
        return
    if own and type(module).__module__.startswith("torch.nn.modules"):
        raise TwinaxError(
            f"there is no rule for {title}, the class of '{path or title}'; known are "
            f"{', '.join(sorted(name for layout in LAYOUTS['torch'].values() for name in layout.classes))}, GRU, LSTM"
        )
    for name, leaf in own.items():
        if leaf.is_floating_point() or leaf.is_complex():
            yield alone(dotted(path, name), host_array(dotted(path, name), leaf))
    for name, child in module.named_children():
        yield from _layers(child, dotted(path, name), seen)


def _with_ties(layers: list[Found], module: Any) -> Iterator[Found]:
    """The layers, with a remark where one shares an array with an earlier one."""
    leaves, owners = dict(module.named_parameters(remove_duplicate=False)), {}
    for layer in layers:
        shared = {owners.setdefault(id(leaves[name]), layer.path) for name in layer.places.values() if name in leaves}
        texts = [f"'{layer.path}' and '{other}' share an array in PyTorch" for other in sorted(shared - {layer.path})]
        yield dataclasses.replace(layer, remarks=(*layer.remarks, *texts))


def _title(module: Any) -> str:
    """The class of PyTorch that this is, or comes from."""
    known = {name for layout in LAYOUTS["torch"].values() for name in layout.classes} | set(STACKS)
    names = [c.__name__ for c in type(module).__mro__ if c.__module__.startswith("torch.nn")]
    return next((name for name in names if name in known), type(module).__name__)


def _known(module: Any, kind: str, path: str, title: str) -> Found:
    places = {name: dotted(path, name) for name in _own(module) if name != COUNT}
    if kind == "attention":
        places |= {f"out_proj/{name}": dotted(path, "out_proj", name) for name in _own(module.out_proj)}
    leaves = dict(module.named_parameters()) | dict(module.named_buffers())
    start = len(path) + 1 if path else 0
    arrays = {name: host_array(place, leaves[place[start:]]) for name, place in places.items()}
    settings, remarks = _settings(module, kind, path or title)
    return found("torch", kind, path, title, arrays, places, settings, remarks=tuple(remarks))


def _settings(module: Any, kind: str, name: str) -> tuple[dict[str, Any], list[str]]:
    """In PyTorch's words; what no other library has is refused or remarked on."""
    if kind in IMAGES:
        if module.padding_mode != "zeros":
            raise TwinaxError(f"'{name}' pads with {module.padding_mode}; only padding with zeros has a rule")
        axes = IMAGES[kind]
        window, stride, dilation = module.kernel_size, module.stride, module.dilation
        known = {"axes": axes, "window": window, "stride": stride, "dilation": dilation, "groups": module.groups}
        if "transpose" not in kind:
            return {**known, "padding": border(module.padding, window, stride, dilation)}, []
        spans = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
        low = [span - p for span, p in zip(spans, each_axis(module.padding, axes), strict=True)]
        edges = tuple((n, n + more) for n, more in zip(low, module.output_padding, strict=True))
        return {**known, "edges": edges}, []
    if kind == "layer_norm":
        return {"eps": module.eps, "shape": tuple(module.normalized_shape)}, []
    if kind == "rms_norm":
        import torch

        given = module.eps
        eps = float(torch.finfo(_dtype(module)).eps) if given is None else given
        remark = (
            [f"'{name}' has no epsilon of its own: PyTorch takes {eps:.3g} for its numbers"] if given is None else []
        )
        return {"eps": eps, "shape": tuple(module.normalized_shape)}, remark
    if kind == "group_norm":
        return {"eps": module.eps, "groups": module.num_groups, "channels": module.num_channels}, []
    if kind == "batch_norm":
        if not module.track_running_stats:
            raise TwinaxError(f"'{name}' keeps no running statistics, which the other libraries always have")
        if module.momentum is None:
            raise TwinaxError(f"'{name}' averages over all batches (momentum=None), which no other library does")
        axes = 2 if type(module).__name__ == "BatchNorm2d" else 0
        return {"eps": module.eps, "momentum": module.momentum, "image": axes}, []
    if kind == "embedding":
        if module.max_norm is not None:
            raise TwinaxError(f"'{name}' shortens its rows to max_norm={module.max_norm}, which no other library does")
        padding = module.padding_idx
        text = f"row {padding} of '{name}' is never trained in PyTorch (padding_idx), but elsewhere it is"
        return {}, [] if padding is None else [text]
    if kind == "attention":
        if module.bias_k is not None or module.add_zero_attn or not module._qkv_same_embed_dim:
            raise TwinaxError(f"'{name}' has keys of another width, or added ones; only plain attention has a rule")
        return {"heads": module.num_heads}, []
    return {}, []


def _stack(module: Any, path: str, title: str) -> Iterator[Found]:
    if module.bidirectional or module.proj_size:
        raise TwinaxError(
            f"'{path or title}' ({title}) runs both ways or projects its state; only a plain one has a rule"
        )
    for k in range(module.num_layers):
        places = {
            name: dotted(path, f"{name}_l{k}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            if hasattr(module, f"{name}_l{k}")
        }
        arrays = {name: host_array(place, getattr(module, f"{name}_l{k}")) for name, place in places.items()}
        yield found("torch", STACKS[title], dotted(path, f"l{k}"), title, arrays, places)


def _chain(module: Any, layers: dict[str, Found], path: str) -> Iterator[Any]:
    """The layers of nested sequences in order; a text says what stands in the way."""
    import torch

    if path in layers:
        yield layers[path]
    elif isinstance(module, torch.nn.Sequential):
        for name, child in module.named_children():
            yield from _chain(child, layers, dotted(path, name))
    elif (plain := plain_module(module)) is not None:
        yield plain
    else:
        yield f"'{path}' is a {type(module).__name__}" if path else f"it is a {type(module).__name__}"
