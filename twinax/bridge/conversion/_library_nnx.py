"""Flax nnx: layers by class, in the order in which the attributes were set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_array
from twinax.bridge.conversion._build_nnx import nnx_layer
from twinax.bridge.conversion._flax_options import arguments, result, settings
from twinax.bridge.conversion._inference import cast, first, last, places, same_numbers
from twinax.bridge.conversion._layers import (
    CELLS,
    Chain,
    Found,
    Opened,
    Plain,
    alone,
    dotted,
    found,
    is_weight,
    kind_of,
)
from twinax.bridge.conversion._plain_layers import plain_function
from twinax.errors import TwinaxError


class Nnx:
    """`flax.nnx.Module`."""

    name = "nnx"
    title = "Flax nnx"

    def owns(self, module: Any) -> bool:
        from flax import nnx

        return isinstance(module, nnx.Module)

    def opened(self, module: Any, inputs: tuple | None, run: Any) -> Opened:
        layers = tuple(_layers(module, "", set()))
        single = len(layers) == 1 and layers[0].kind != "array" and not layers[0].path
        chain = list(_chain(module, {layer.path: layer for layer in layers}, ""))
        strange = next((item for item in chain if isinstance(item, str)), "")
        return Opened(layers, None if strange else tuple(chain), single, strange)  # type: ignore[arg-type]

    def filled(self, module: Any, values: Mapping[str, np.ndarray]) -> Any:
        from flax import nnx

        made = nnx.clone(module)
        for name, variable in _variables(made, ""):
            if name in values:
                variable.set_value(same_numbers(values[name], variable.get_value()))
        return made

    def built(self, chain: Chain, single: bool) -> Any:
        from flax import nnx

        made = [nnx_layer(step) for step in chain]
        return made[0] if single else nnx.Sequential(*made)

    def outputs(self, module: Any, opened: Opened, inputs: tuple, run: Any, dtype: str) -> list[np.ndarray]:
        from flax import nnx

        axes = places(opened, inputs)
        given = cast(inputs if run else jtu.tree_map(lambda x: last(np.asarray(x), axes), inputs), dtype)
        made = nnx.clone(module)
        for _, variable in _variables(made, ""):
            variable.set_value(cast(variable.get_value(), dtype))
        made.eval()
        _set_precision(made, dtype)
        kind = opened.layers[0].kind if opened.single else ""
        if run is not None:
            out = run(made, *given)
        elif kind in CELLS:
            out = result(kind, made(*arguments(kind, given)))
        else:
            out = made(*given, decode=False) if kind == "attention" else made(*given)
        leaves = [host_array("", leaf) for leaf in jtu.tree_leaves(out)]
        return leaves if run else [first(leaf, axes) for leaf in leaves]


def _set_precision(module: Any, dtype: str) -> None:
    """Let a copy compute in this precision: attention without dropout calls a function whose softmax is always in
    float32, an embedding keeps the dtype that it was made with, and a cell begins with zeros of that dtype."""
    from flax import nnx

    def exact(*args: Any, **options: Any) -> Any:
        return nnx.dot_product_attention(*args, **{**options, "dropout_rate": 0.5, "deterministic": True})

    for _, part in nnx.iter_modules(module):
        usual = isinstance(part, nnx.MultiHeadAttention) and part.attention_fn is nnx.dot_product_attention
        if usual and dtype == "float64":
            part.attention_fn = exact  # type: ignore[attr-defined]
        if hasattr(part, "param_dtype"):
            part.param_dtype = jnp.dtype(dtype)  # type: ignore[attr-defined]
        if getattr(part, "dtype", None) is not None:
            part.dtype = jnp.dtype(dtype)  # type: ignore[attr-defined]


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """What a module, a list or a dictionary holds, without the notes that nnx keeps there."""
    from flax import nnx

    if isinstance(node, Mapping | nnx.Dict):
        yield from ((str(key), value) for key, value in node.items())
    elif isinstance(node, list | tuple | nnx.List):
        yield from ((str(i), value) for i, value in enumerate(node))
    elif isinstance(node, nnx.Module):
        yield from ((name, value) for name, value in vars(node).items() if not name.startswith("_pytree__"))


def _variables(node: Any, path: str, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Parameters and statistics by name; the state of generators is none of them."""
    from flax import nnx

    seen = set() if seen is None else seen
    for name, child in _children(node):
        whole = dotted(path, name)
        if isinstance(child, nnx.RngState) or isinstance(child, nnx.Rngs | nnx.RngStream) or id(child) in seen:
            continue
        seen.add(id(child))
        if isinstance(child, nnx.Variable):
            if is_array(child.get_value()):
                yield whole, child
        else:
            yield from _variables(child, whole, seen)


def _layers(node: Any, path: str, seen: set[int]) -> Iterator[Found]:
    from flax import nnx

    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, nnx.Module) and (kind := _kind(node)) is not None:
        yield _known(node, kind, path)
        return
    theirs = type(node).__module__.startswith("flax.nnx.nn") and not isinstance(node, nnx.Sequential | nnx.RNN)
    for name, child in _children(node):
        whole = dotted(path, name)
        if isinstance(child, nnx.RngState) or isinstance(child, nnx.Rngs | nnx.RngStream):
            continue
        if isinstance(child, nnx.Variable):
            if theirs:
                raise TwinaxError(
                    f"there is no rule for {type(node).__name__}, the class of '{path or 'it'}' in Flax nnx"
                )
            if is_array(child.get_value()) and id(child) not in seen:
                seen.add(id(child))
                if is_weight(array := host_array(whole, child.get_value())):
                    yield alone(whole, array)
        else:
            yield from _layers(child, whole, seen)


def _kind(node: Any) -> str | None:
    if not type(node).__module__.startswith("flax.nnx"):
        return None
    return kind_of("nnx", type(node).__name__, len(getattr(node, "kernel_size", (0,))))


def _known(node: Any, kind: str, path: str) -> Found:
    title = type(node).__name__
    leaves = dict(_variables(node, ""))
    if any(isinstance(leaf.get_value(), jax.ShapeDtypeStruct) for leaf in leaves.values()):
        raise TwinaxError(f"'{path or title}' ({title}) has shapes but no numbers; make it outside of nnx.eval_shape")
    arrays = {name.replace(".", "/"): host_array(name, leaf.get_value()) for name, leaf in leaves.items()}
    whole = {name.replace(".", "/"): dotted(path, name) for name in leaves}
    return found("nnx", kind, path, title, arrays, whole, settings(node, kind.split()[0], path or title, arrays))


def _chain(node: Any, layers: dict[str, Found], path: str) -> Iterator[Any]:
    """The layers of nested sequences in order; a text says what stands in the way."""
    from flax import nnx

    if path in layers:
        yield layers[path]
    elif isinstance(node, nnx.Sequential):
        for i, child in enumerate(node.layers):
            yield from _chain(child, layers, dotted(path, "layers", str(i)))
    elif isinstance(node, nnx.Dropout):
        yield Plain("dropout", float(node.rate))
    elif isinstance(node, nnx.Module):
        yield f"'{path or 'it'}' is a {type(node).__name__}"
    else:
        function = plain_function(node)
        yield function if function else f"'{path}' applies {getattr(node, '__name__', node)!s}"
