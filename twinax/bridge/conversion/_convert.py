"""Modules of PyTorch, Flax linen, Flax nnx and Equinox turned into each other, layer by layer, and run to prove it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array
from twinax.bridge.conversion import _layouts
from twinax.bridge.conversion._conversion import Conversion
from twinax.bridge.conversion._forward import compared, made_inputs
from twinax.bridge.conversion._layers import Found, Library, Opened
from twinax.bridge.conversion._library_equinox import Equinox
from twinax.bridge.conversion._library_flax import Flax
from twinax.bridge.conversion._library_nnx import Nnx
from twinax.bridge.conversion._library_torch import Torch
from twinax.bridge.conversion._losses import losses
from twinax.bridge.conversion._pairing import Pair, adapted, paired
from twinax.bridge.conversion._remarks import notes, rows
from twinax.errors import TwinaxError, UnknownName, require

LIBRARIES: dict[str, Library] = {"torch": Torch(), "flax": Flax(), "nnx": Nnx(), "equinox": Equinox()}
TOLERANCE = 1e-10
"""In float64, by the size of the outputs; a layout that is wrong differs by far more."""
ROUGHLY = 1e-3
"""In float32, where rounding adds up through many layers."""
COMPARED = ("eps", "momentum", "groups", "stride", "padding", "dilation", "edges")
"""Settings that change what a layer computes, or how it trains."""


def convert(
    source: Any,
    to: str | None = None,
    into: Any = None,
    *,
    example: Any = None,
    names: Mapping[str, str] | None = None,
    lossy: bool = False,
    check: bool = True,
    run: tuple[Callable | None, Callable | None] = (None, None),
) -> Conversion:
    """The same network in another library: `to` is "torch", "flax" (linen), "nnx" or "equinox".

    `source` is a `torch.nn.Module`, an `equinox.Module` or a network of `twinax.networks`, (module, state) of Equinox,
    an `nnx.Module`, or (module, variables) of Flax linen. `into` is such a thing in the other library: a copy of it
    gets the weights. Without it a single layer, or a sequence of layers and activations, is built.

    Layers are paired by kind; among those of one kind by their names if they agree, otherwise by their order, and
    `names={target: source}` says it where that is wrong. Both modules are then run on `example`, an input or a tuple of
    them in PyTorch's layout (rows first, channels before places); a single layer or sequence needs none. `run` holds a
    function for each side, `f(module, *example)`, where a module is called in another way. A pair of layers that cannot
    be turned into each other and back bit by bit is refused unless `lossy`.

    >>> import equinox, jax
    >>> layer = equinox.nn.Linear(2, 3, key=jax.random.key(0))
    >>> made = convert(layer, to="torch")
    >>> made.result
    Linear(in_features=2, out_features=3, bias=True)
    >>> made.check.float64 < 1e-12
    True
    """
    inputs = _inputs(example)
    origin, goal = _library(source, "source"), _goal(to, into)
    opened, built = origin.opened(source, inputs, run[0]), into is None
    into = _built(goal, opened) if built else into
    inputs = made_inputs(opened.chain) if inputs is None and opened.chain else inputs
    there = goal.opened(into, inputs, run[1])
    inputs = made_inputs(there.chain) if inputs is None and there.chain else inputs
    if check and inputs is None:
        raise TwinaxError(
            "the converted module is run beside the given one, and no input for them can be made here: give "
            "example=array, or pass check=False"
        )
    titles = (origin.title, goal.title)
    pairs = paired(opened.layers, there.layers, names or {}, titles)
    result, given = _written(goal, into, pairs)
    read = {layer.path: layer for layer in goal.opened(result, inputs, run[1]).layers}
    lost = [loss for a, b in pairs for loss in losses(a, given[b.path], read[b.path], goal.title)]
    if lost and not lossy:
        raise TwinaxError(f"{lost[0].text}; lossy=True converts it nevertheless")
    made = Conversion(
        result,
        *titles,
        moved=tuple(row for a, b in pairs for row in rows(a, b)),
        differs=tuple(text for a, b in pairs for text in _differences(a, b, titles)),
        notes=tuple(dict.fromkeys(notes(opened, pairs, origin, goal, built))),
        lost=tuple(loss.text for loss in lost),
        check=compared((origin, goal), (source, result), (opened, there), inputs or (), run) if check else None,
    )
    _judge(made, max((loss.tolerance for loss in lost), default=0.0))
    return made


def _built(goal: Library, opened: Opened) -> Any:
    """An empty module of the layers that were found."""
    if opened.chain and opened.layers:
        return goal.built(opened.chain, opened.single)
    reason = opened.why or ("it has no arrays" if not opened.layers else "its order is not known")
    raise TwinaxError(
        f"only a single layer or a sequence of known layers can be built in {goal.title}, and here {reason}: "
        "write the module there and give it as `into`"
    )


def _judge(made: Conversion, allowed: float) -> None:
    """Refuse a module that computes something else, and name what may be the cause."""
    check, differs = made.check, [text for text in made.differs if " has momentum " not in text]
    if check is None or check.float64 <= max(TOLERANCE, allowed) and check.float32 <= max(ROUGHLY, allowed):
        return
    cause = "; ".join(differs) or (
        "layers of one kind may be used in another order than they were paired in, which names={target: source} puts "
        "right, or something between the layers differs"
    )
    raise TwinaxError(
        f"the outputs of {made.source} and {made.target} differ by {check.float64:.1e} in float64 and "
        f"{check.float32:.1e} in float32: {cause}"
    )


def _inputs(example: Any) -> tuple | None:
    if example is None:
        return None
    given = example if isinstance(example, tuple) else (example,)
    return jtu.tree_map(lambda leaf: host_array("example", leaf), given)


def _library(module: Any, role: str) -> Library:
    """The library that a module belongs to; one that was never imported has made none."""
    package = {"torch": "torch", "flax": "flax", "nnx": "flax", "equinox": "equinox"}
    for name, library in LIBRARIES.items():
        if package[name] in sys.modules and library.owns(module):
            return library
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    raise TwinaxError(
        f"the {role} is a {kind}; give a torch.nn.Module, an equinox.Module, an nnx.Module or, for Flax linen, "
        "(module, variables)"
    )


def _goal(to: str | None, into: Any) -> Library:
    if to is not None and to not in LIBRARIES:
        raise UnknownName("library", to, LIBRARIES)
    if into is None:
        if to is None:
            raise TwinaxError(f"say what to convert to: to= one of {', '.join(LIBRARIES)}, or a module there as `into`")
        package = "flax" if to in ("flax", "nnx") else to
        require(package, package, f"convert(to={to!r})")
        return LIBRARIES[to]
    library = _library(into, "module given as `into`")
    if to not in (None, library.name):
        raise TwinaxError(f"`into` is a module of {library.title}, but to={to!r} was asked for")
    return library


def _written(goal: Library, into: Any, pairs: list[Pair]) -> tuple[Any, dict[str, _layouts.Arrays]]:
    """The filled module, and what was written into each layer of it, in PyTorch's layout."""
    values, given = {}, {}
    for a, b in pairs:
        given[b.path] = adapted(a, b, goal.title)
        for name, array in _layouts.out(given[b.path], b.layout, b.settings).items():
            if name in b.places:
                values[b.places[name]] = array
            elif np.any(array):
                raise TwinaxError(f"the {name} of {b} in {goal.title} is missing, and {a} has numbers for it")
    return goal.filled(into, values), given


def _differences(a: Found, b: Found, titles: tuple[str, str]) -> list[str]:
    """Settings of a pair that are not the same."""
    keys = [key for key in COMPARED if key in a.settings and key in b.settings]
    return [
        f"{a} has {key} {a.settings[key]} in {titles[0]}, and {b} has {b.settings[key]} in {titles[1]}"
        for key in keys
        if a.settings[key] != b.settings[key]
    ]
