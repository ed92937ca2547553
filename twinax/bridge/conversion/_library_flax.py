"""Flax linen: (module, variables). Its layers are known by running it, in the order of their use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array
from twinax.bridge.conversion._build_flax import flax_layer
from twinax.bridge.conversion._flax_options import arguments, result, settings
from twinax.bridge.conversion._inference import cast, first, last, places, same_numbers
from twinax.bridge.conversion._layers import CELLS, Chain, Found, Opened, Plain, dotted, found, is_weight, kind_of
from twinax.bridge.conversion._layouts import LAYOUTS
from twinax.bridge.conversion._plain_layers import plain_function
from twinax.errors import TwinaxError

NAMES = {"linear": "Dense", "embedding": "Embed", "attention": "MultiHeadDotProductAttention"}
STATISTICS = ("mean", "var")


class Flax:
    """(`flax.linen.Module`, its variables)."""

    name = "flax"
    title = "Flax linen"

    def owns(self, module: Any) -> bool:
        import flax.linen

        return isinstance(module[0] if isinstance(module, tuple) and module else module, flax.linen.Module)

    def opened(self, module: Any, inputs: tuple | None, run: Any) -> Opened:
        network, variables = _split(module)
        steps = list(_steps(network, ""))
        strange = next((item for item in steps if isinstance(item, str)), "")
        if not strange:
            chain = tuple(step if isinstance(step, Plain) else _known(step[0], step[1], variables) for step in steps)
            layers = tuple(step for step in chain if isinstance(step, Found))
            return Opened(layers, chain, len(layers) == 1 and not layers[0].path)
        if inputs is None:
            raise TwinaxError(
                f"the layers of a {type(network).__name__} in Flax linen show when it runs: give an input of it, as "
                "example=array"
            )
        layers = tuple(_run(network, variables, inputs, run))
        return Opened((*layers, *_rest(variables, layers)), None, False, strange)

    def filled(self, module: Any, values: Mapping[str, np.ndarray]) -> Any:
        network, variables = _split(module)

        def one(path: Any, leaf: Any) -> Any:
            name = "/".join(str(key.key) for key in path)
            return same_numbers(values[name], leaf) if name in values else leaf

        return network, jtu.tree_map_with_path(one, variables)

    def built(self, chain: Chain, single: bool) -> Any:
        import flax.linen as nn

        variables: dict[str, Any] = {}
        layers = [flax_layer(step, "" if single else f"layers_{i}", variables, nn) for i, step in enumerate(chain)]
        return (layers[0] if single else nn.Sequential(layers)), variables

    def outputs(self, module: Any, opened: Opened, inputs: tuple, run: Any, dtype: str) -> list[np.ndarray]:
        import flax.linen

        network, variables = _split(module)
        axes = places(opened, inputs)
        given = cast(inputs if run else jtu.tree_map(lambda x: last(np.asarray(x), axes), inputs), dtype)
        kind = opened.layers[0].kind if opened.single else ""
        bound = network.bind(cast(variables, dtype))
        with flax.linen.intercept_methods(_began):
            if run is not None:
                out = run(bound, *given)
            elif kind in CELLS:
                out = result(kind, bound(*arguments(kind, given)))
            elif kind == "batch_norm" and network.use_running_average is None:
                out = bound(*given, use_running_average=True)
            else:
                out = bound(*given)
        leaves = [host_array("", leaf) for leaf in jtu.tree_leaves(out)]
        return leaves if run else [first(leaf, axes) for leaf in leaves]


def _split(module: Any) -> tuple[Any, dict[str, Any]]:
    pair = isinstance(module, tuple) and len(module) == 2 and isinstance(module[1], Mapping)
    if not pair:
        raise TwinaxError("a module of Flax linen has no arrays of its own: give (module, variables)")

    def plain(tree: Any) -> Any:
        return {key: plain(value) for key, value in tree.items()} if isinstance(tree, Mapping) else tree

    network, variables = module[0], plain(module[1])
    return network, variables if "params" in variables or "batch_stats" in variables else {"params": variables}


def _at(variables: Mapping[str, Any], collection: str, path: str) -> Mapping[str, Any]:
    """The arrays of a layer, and those of its parts by dotted names."""
    inner: Any = variables.get(collection, {})
    for name in path.split(".") if path else ():
        inner = inner.get(name, {}) if isinstance(inner, Mapping) else {}
    return _flat(inner, "/")


def _flat(tree: Any, joined: str) -> dict[str, Any]:
    if not isinstance(tree, Mapping):
        return {"": tree}
    return {
        joined.join(part for part in (str(name), rest) if part): leaf
        for name, inner in tree.items()
        for rest, leaf in _flat(inner, joined).items()
    }


def _kind(node: Any, variables: Mapping[str, Any], path: str) -> str | None:
    if not type(node).__module__.startswith("flax.linen"):
        return None
    kernel = _at(variables, "params", path).get("kernel")
    return kind_of("flax", type(node).__name__, 0 if kernel is None else np.ndim(kernel) - 2)


def _known(path: str, node: Any, variables: Mapping[str, Any]) -> Found:
    title, kind = type(node).__name__, _kind(node, variables, path)
    given = {"params": _at(variables, "params", path), "batch_stats": _at(variables, "batch_stats", path)}
    folder = path.replace(".", "/")
    if kind is None or not any(given.values()) and getattr(node, "use_scale", True):
        raise TwinaxError(f"the variables have no arrays for '{path or title}' ({title})")
    whole = {
        name: ("/".join(part for part in (collection, folder, name) if part), leaf)
        for collection, leaves in given.items()
        for name, leaf in leaves.items()
    }
    arrays = {name: host_array(place, leaf) for name, (place, leaf) in whole.items()}
    names = {name: place for name, (place, _) in whole.items()}
    return found("flax", kind, path, title, arrays, names, settings(node, kind, path or title, arrays))


def _steps(node: Any, path: str) -> Iterator[Any]:
    """Paths and modules of nested sequences in order; a text says what stands in the way."""
    import flax.linen as nn

    if isinstance(node, nn.Sequential):
        for i, child in enumerate(node.layers):
            yield from _steps(child, dotted(path, f"layers_{i}"))
    elif isinstance(node, nn.Dropout):
        yield Plain("dropout", float(node.rate))
    elif isinstance(node, nn.Module):
        # The axes of a window show in its arrays alone, so any of them will do here.
        known = any(type(node).__name__ in layout.classes for layout in LAYOUTS["flax"].values())
        ours = known and type(node).__module__.startswith("flax.linen")
        yield (path, node) if ours else f"'{path or 'it'}' is a {type(node).__name__}"
    else:
        function = plain_function(node)
        yield function if function else f"'{path}' applies {getattr(node, '__name__', node)!s}"


def _run(network: Any, variables: Mapping[str, Any], inputs: tuple, run: Any) -> Iterator[Found]:
    """The layers that an input passes, in order."""
    import flax.linen as nn

    seen: dict[str, Any] = {}

    def look(function: Any, args: Any, kwargs: Any, context: Any) -> Any:
        args, kwargs = _begun(args, kwargs, context)
        path = ".".join(context.module.path)
        if context.method_name in ("__call__", "attend") and not any(_below(path, known) for known in seen):
            if _kind(context.module, variables, path) is not None:
                seen[path] = context.module
            elif _is_strange(context.module, variables, path):
                title = type(context.module).__name__
                raise TwinaxError(f"there is no rule for {title}, the class of '{path or title}' in Flax linen")
        return function(*args, **kwargs)

    axes = 0 if run else _window_axes(variables)

    def go(values: Any, given: Any) -> Any:
        with nn.intercept_methods(look):
            bound = network.bind(values)
            return run(bound, *given) if run else bound(*given)

    jax.eval_shape(go, cast(variables, "float32"), cast(jtu.tree_map(lambda x: last(x, axes), inputs), "float32"))
    for path, node in seen.items():
        yield _known(path, node.clone(parent=None), variables)


def _begun(args: Any, kwargs: Any, context: Any) -> tuple[Any, Any]:
    """Arguments of a method; those of an RNN with its first state in the precision of its input, not of its making."""
    import flax.linen as nn

    if not isinstance(context.module, nn.RNN) or context.method_name != "__call__" or "initial_carry" in kwargs:
        return args, kwargs
    node, x = context.module, args[0]
    time = 0 if node.time_major else x.ndim - node.cell.num_feature_axes - 1
    carry = node.cell.initialize_carry(jax.random.key(0), x.shape[:time] + x.shape[time + 1 :])
    return args, {**kwargs, "initial_carry": jtu.tree_map(lambda leaf: leaf.astype(x.dtype), carry)}


def _began(function: Any, args: Any, kwargs: Any, context: Any) -> Any:
    args, kwargs = _begun(args, kwargs, context)
    return function(*args, **kwargs)


def _is_strange(node: Any, variables: Mapping[str, Any], path: str) -> bool:
    """Whether this is a layer of Flax itself that holds arrays."""
    theirs = type(node).__module__.startswith("flax.linen")
    return theirs and any("/" not in name for name in _at(variables, "params", path) if name)


def _below(path: str, known: str) -> bool:
    return path == known or path.startswith(f"{known}.") or not known


def _window_axes(variables: Mapping[str, Any]) -> int:
    """The axes of places of its convolutions: kernels that are no projections of an attention."""
    names = _flat(variables.get("params", {}), "/").items()
    kernels = [np.ndim(leaf) for name, leaf in names if name.endswith("kernel") and not _projects(name)]
    return max((axes - 2 for axes in kernels), default=0)


def _projects(name: str) -> bool:
    return name.split("/")[-2:-1] in (["query"], ["key"], ["value"], ["out"])


def _rest(variables: Mapping[str, Any], layers: tuple[Found, ...]) -> Iterator[Found]:
    """Arrays that no known layer has."""
    taken = {place for layer in layers for place in layer.places.values()}
    for name, leaf in _flat(
        {key: variables[key] for key in ("params", "batch_stats") if key in variables}, "/"
    ).items():
        if name not in taken:
            array, path = host_array(name, leaf), ".".join(name.split("/")[1:])
            if is_weight(array):
                yield Found("array", path, "array", {"": array}, {"": name})
