"""Modules of Equinox, the networks of this project among them: layers by class, in the order of the fields."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_array
from twinax.bridge.conversion._build_equinox import equinox_layer
from twinax.bridge.conversion._equinox_statistics import STATISTICS, statistics_of, with_statistics
from twinax.bridge.conversion._inference import cast
from twinax.bridge.conversion._layers import (
    IMAGES,
    Chain,
    Found,
    Opened,
    Plain,
    alone,
    border,
    dotted,
    found,
    is_weight,
    kind_of,
)
from twinax.bridge.conversion._plain_layers import plain_function
from twinax.bridge.weight_files import _filled
from twinax.errors import TwinaxError
from twinax.networks import GRU, LSTM, MLP, Ensemble
from twinax.tree import named_leaves


class Equinox:
    """`equinox.Module`, or (module, state) where layers have one."""

    name = "equinox"
    title = "Equinox"

    def owns(self, module: Any) -> bool:
        return isinstance(_split(module)[0], eqx.Module | GRU | LSTM)

    def opened(self, module: Any, inputs: tuple | None, run: Any) -> Opened:
        network, state = _split(module)
        layers = tuple(_layers(network, state, ""))
        single = len(layers) == 1 and layers[0].kind != "array" and not layers[0].path
        chain = list(_chain(network, {layer.path: layer for layer in layers}, ""))
        strange = next((item for item in chain if isinstance(item, str)), "")
        unbatched = not any(_is_ours(part) for part in _parts(network))
        return Opened(layers, None if strange else tuple(chain), single, strange, unbatched)  # type: ignore[arg-type]

    def filled(self, module: Any, values: Mapping[str, np.ndarray]) -> Any:
        network, state = _split(module)
        leaves = [
            _filled(name, leaf, values[name]) if name in values else leaf
            for name, leaf in named_leaves(network).items()
        ]
        made = jtu.tree_unflatten(jtu.tree_structure(network), leaves)
        if state is None:
            return made
        state = jtu.tree_map(lambda leaf: leaf, state)
        for path, norm in _norms(network, ""):
            if dotted(path, "running_mean") in values:
                state = with_statistics(norm, state, [values[dotted(path, name)] for name in STATISTICS])
        return made, state

    def built(self, chain: Chain, single: bool) -> Any:
        stateful = any(isinstance(step, Found) and step.kind == "batch_norm" for step in chain)

        def make() -> Any:
            made = [equinox_layer(step) for step in chain]
            return made[0] if single else eqx.nn.Sequential(made)

        return eqx.nn.make_with_state(make)() if stateful else make()

    def outputs(self, module: Any, opened: Opened, inputs: tuple, run: Any, dtype: str) -> list[np.ndarray]:
        network, state = cast(_split(module), dtype)
        network, given = eqx.nn.inference_mode(network), cast(inputs, dtype)
        if run is not None:
            out = run(network if state is None else (network, state), *given)
        elif not opened.unbatched:
            out = network(*given)
        elif state is None:
            out = jax.vmap(network)(*given)
        else:
            out = jax.vmap(lambda *x: network(*x, state)[0])(*given)
        return [host_array("", leaf) for leaf in jtu.tree_leaves(out)]


def _split(module: Any) -> tuple[Any, Any]:
    pair = isinstance(module, tuple) and len(module) == 2 and isinstance(module[1], eqx.nn.State)
    return module if pair else (module, None)


def _is_ours(node: Any) -> bool:
    return type(node).__module__.startswith("twinax.networks")


def _is_theirs(node: Any) -> bool:
    return type(node).__module__.startswith("equinox.nn")


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a module, of a list or of a dictionary, in order."""
    if dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            if not field.metadata.get("static") and hasattr(node, field.name):
                yield field.name, getattr(node, field.name)
    elif isinstance(node, Mapping):
        yield from ((str(key), value) for key, value in node.items())
    elif isinstance(node, tuple | list):
        yield from ((str(i), value) for i, value in enumerate(node))


def _parts(node: Any) -> Iterator[Any]:
    yield node
    for _, child in _children(node):
        yield from _parts(child)


def _norms(node: Any, path: str) -> Iterator[tuple[str, eqx.nn.BatchNorm]]:
    if isinstance(node, eqx.nn.BatchNorm):
        yield path, node
        return
    for name, child in _children(node):
        yield from _norms(child, dotted(path, name))


def _layers(node: Any, state: Any, path: str) -> Iterator[Found]:
    title = type(node).__name__
    if isinstance(node, Ensemble) or isinstance(node, eqx.nn.MLP) and node.scan:
        raise TwinaxError(
            f"'{path or title}' ({title}) keeps several layers in one array; convert a module with one of each"
        )
    if isinstance(node, GRU | LSTM):
        for k, cell in enumerate(node.cells):
            places = {name: dotted(path, f"{name}_l{k}") for name, leaf in _children(cell) if leaf is not None}
            yield found("torch", _own_kind(cell), dotted(path, f"l{k}"), title, _arrays(cell, places), places)
    elif (_is_ours(node) and (kind := _own_kind(node))) or (_is_theirs(node) and (kind := _kind(node))):
        yield _known(node, state, kind, path, title)
    elif is_array(node):
        if is_weight(array := host_array(path, node)):
            yield alone(path, array)
    else:
        if _is_theirs(node) and any(is_array(child) for _, child in _children(node)):
            raise TwinaxError(f"there is no rule for {title}, the class of '{path or title}' in Equinox")
        for name, child in _children(node):
            yield from _layers(child, state, dotted(path, name))


def _kind(node: Any) -> str | None:
    return kind_of("equinox", type(node).__name__, getattr(node, "num_spatial_dims", 0))


def _own_kind(node: Any) -> Any:
    """Of a layer of this project, which has PyTorch's arrays."""
    return kind_of("torch", type(node).__name__, getattr(node, "AXES", 0))


def _arrays(node: Any, places: Mapping[str, str]) -> dict[str, np.ndarray]:
    return {name: host_array(place, functools.reduce(getattr, name.split("/"), node)) for name, place in places.items()}


def _known(node: Any, state: Any, kind: str, path: str, title: str) -> Found:
    library = "torch" if _is_ours(node) else "equinox"
    leaves = [name for name, leaf in named_leaves(node).items() if is_array(leaf)]
    if kind == "batch_norm":
        leaves = [name for name in leaves if name in ("weight", "bias")]
    places = {name.replace(".", "/"): dotted(path, name) for name in leaves}
    arrays, more = _arrays(node, places), {}
    if kind == "batch_norm":
        if state is None:
            raise TwinaxError(
                f"'{path or title}' is a BatchNorm, whose statistics Equinox keeps apart: give (module, state), as "
                "equinox.nn.make_with_state makes them"
            )
        *statistics, losses, remarks = statistics_of(node, state, path or title)
        arrays |= dict(zip(STATISTICS, statistics, strict=True))
        places |= {name: dotted(path, name) for name in STATISTICS}
        more = {"losses": losses, "remarks": remarks}
    return found(library, kind, path, title, arrays, places, _settings(node, kind, path or title), **more)


def _settings(node: Any, kind: str, name: str) -> dict[str, Any]:
    if kind in IMAGES and _is_ours(node):
        axes = node.AXES
        known = {key: (getattr(node, key),) * axes for key in ("stride", "dilation")}
        zeros = "SAME" if node.padding is None else node.padding
        window = node.weight.shape[2:]
        padding = border(zeros, window, known["stride"], known["dilation"])
        return {"axes": axes, "window": window, **known, "groups": node.groups, "padding": padding}
    if kind in IMAGES:
        if node.padding_mode != "ZEROS":
            raise TwinaxError(f"'{name}' pads with {node.padding_mode}; only padding with zeros has a rule")
        window, stride, dilation = node.kernel_size, node.stride, node.dilation
        known = {"window": window, "stride": stride, "dilation": dilation, "groups": node.groups}
        known["axes"] = node.num_spatial_dims
        if "transpose" not in kind:
            return {**known, "padding": border(node.padding, window, stride, dilation)}
        zeros = ((0, 0),) * len(window) if node.padding == "VALID" else node.padding
        if isinstance(zeros, str):
            raise TwinaxError(f"'{name}' has the padding {zeros}; give it numbers, which the others have too")
        spans = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
        rest = zip(spans, zeros, node.output_padding, strict=True)
        return {**known, "edges": tuple((span - low, span - high + more) for span, (low, high), more in rest)}
    if kind in ("layer_norm", "rms_norm"):
        return {"eps": node.eps, "shape": getattr(node, "shape", None) or tuple(node.weight.shape)}
    if kind == "group_norm":
        return {
            "eps": node.eps,
            "groups": node.groups,
            "channels": getattr(node, "channels", None) or node.weight.shape[0],
        }
    if kind == "batch_norm":
        return {"eps": node.eps, "momentum": round(1 - node.momentum, 12)}
    if kind == "attention":
        return {"heads": node.heads if _is_ours(node) else node.num_heads}
    return {}


def _chain(node: Any, layers: dict[str, Found], path: str) -> Iterator[Any]:
    """The layers of nested sequences in order; a text says what stands in the way."""
    if path in layers:
        yield layers[path]
    elif isinstance(node, MLP):
        yield from _own_chain(node, layers, path)
    elif isinstance(node, eqx.nn.MLP):
        for i in range(len(node.layers)):
            yield layers[dotted(path, "layers", str(i))]
            last = i == len(node.layers) - 1
            step = _function(node.final_activation if last else node.activation, path, last)
            if not (last and step == Plain("identity")):
                yield step
    elif isinstance(node, eqx.nn.Sequential):
        for i, child in enumerate(node.layers):
            yield from _chain(child, layers, dotted(path, "layers", str(i)))
    elif isinstance(node, eqx.nn.Dropout):
        yield Plain("dropout", float(node.p))
    elif isinstance(node, eqx.nn.Identity):
        yield Plain("identity")
    elif isinstance(node, eqx.nn.Lambda):
        yield _function(node.fn, path)
    else:
        yield f"'{path}' is a {type(node).__name__}" if path else f"it is a {type(node).__name__}"


def _own_chain(node: MLP, layers: dict[str, Found], path: str) -> Iterator[Any]:
    """An MLP of this project: linear layers, each but the last with an activation and perhaps a norm."""
    active = len(node.layers) if node.final else len(node.layers) - 1
    for i in range(len(node.layers)):
        yield layers[dotted(path, "layers", str(i))]
        if i < active:
            yield Plain(node.activation)
            if node.norms:
                yield layers[dotted(path, "norms", str(i))]


def _function(function: Any, path: str, last: bool = False) -> Any:
    if (plain := plain_function(function)) is not None:
        return plain
    # Equinox gives an MLP a function of its own for "nothing at the end".
    nothing = last and getattr(function, "__name__", "") == "<lambda>" and function(3.25) == 3.25
    return Plain("identity") if nothing else f"'{path or 'it'}' applies {getattr(function, '__name__', function)!s}"
