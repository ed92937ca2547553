"""Parameters of Flax networks put into this project's, layer by layer.

Flax names layers by their class and the order of their making (Dense_0, LayerNorm_0, Dense_1), or by the attribute that
holds them. A field of a network here is paired with the layers of its name there, with those of a name in `NAMES`, or,
if there is only one such group, with the layers of its type. Nothing is paired by shape or by its place in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import host_array, is_array
from twinax.bridge._flax_encoders import encoder_pairs, has_encoder
from twinax.bridge._flax_layers import (
    NAMES,
    ByName,
    Names,
    Parts,
    as_it_is,
    by_type,
    dotted,
    grouped,
    inside,
    layout_of,
    leaf_names,
    parts_of,
    under,
)
from twinax.bridge._flax_packed import is_packed, pack
from twinax.bridge.weight_files import _filled
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import Ensemble
from twinax.tree import named_leaves

T = TypeVar("T")


@dataclass(frozen=True)
class Match:
    """An array that was found: its names and shapes here and there."""

    ours: str
    theirs: str
    shape: tuple[int, ...]
    their_shape: tuple[int, ...]


@dataclass(frozen=True)
class KeyReport:
    """Which arrays were found for which; `str` gives a table."""

    matched: tuple[Match, ...]
    missing: tuple[str, ...]
    """Arrays of the networks here for which nothing was found."""
    unexpected: tuple[str, ...]
    """Arrays there, in the networks that were asked for, which have no place here."""
    unused: tuple[str, ...]
    """Networks there that nobody asked for."""

    @property
    def complete(self) -> bool:
        """Whether every array found its place."""
        return not self.missing and not self.unexpected

    def __str__(self) -> str:
        rows = [(m.ours, str(m.shape), m.theirs, str(m.their_shape)) for m in self.matched]
        rows = [("here", "shape", "Flax", "shape"), *rows]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(text.ljust(n) for text, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        for label in ("missing", "unexpected", "unused"):
            names = getattr(self, label)
            lines.append(f"{label}: {', '.join(names) or 'none'}")
        return "\n".join(lines)


def load_flax(
    tree: T,
    params: Mapping[str, Any],
    modules: Mapping[str, str] | None = None,
    names: Names | None = None,
    strict: bool = True,
    report: Callable[[KeyReport], Any] | None = None,
) -> tuple[T, KeyReport]:
    """A network, or a dictionary of networks, with the arrays of Flax parameters; dtypes and framework stay.

    In a dictionary the network `critic` is looked for under `critic` and `modules_critic`, or under the name that
    `modules` gives. `names` says what Flax calls a field where that cannot be known, as in `{"layers": "hidden"}`.
    `report` is called with the report, also when an array is missing or has no place, which is an error if `strict`.

    Flax numbers layers as they are made. In `Dense(2)(Dense(4)(x))` the outer one is made first and is `Dense_0`; then
    say the order of use: `names={"layers": ["Dense_1", "Dense_0"]}`.

    >>> from twinax.networks import MLP
    >>> net = MLP.init(np.random.default_rng(0), inputs=2, hidden=(), outputs=3)
    >>> params = {"Dense_0": {"kernel": np.ones((2, 3)), "bias": np.zeros(3)}}
    >>> net, found = load_flax(net, params)
    >>> print(found)
    here             shape   Flax            shape
    layers.0.weight  (3, 2)  Dense_0/kernel  (2, 3)
    layers.0.bias    (3,)    Dense_0/bias    (3,)
    missing: none
    unexpected: none
    unused: none
    """
    search = _Search(names or {})
    unused: list[str] = []
    if isinstance(tree, Mapping):
        unused = search.networks(tree, *_unwrapped(params, tree), modules or {}, strict)
    else:
        search.pair(tree, *_unwrapped(params, ()))
    leaves, values = named_leaves(tree), search.values
    missing = tuple(name for name, leaf in leaves.items() if is_array(leaf) and name not in values)
    result = KeyReport(tuple(search.matched), missing, tuple(search.unexpected), tuple(unused))
    if report is not None:
        report(result)
    if strict and not result.complete:
        raise TwinaxError(
            f"the Flax parameters do not fit the network: missing {list(missing[:5]) or 'none'}, unexpected "
            f"{search.unexpected[:5] or 'none'} ({len(missing)} missing, {len(search.unexpected)} unexpected)"
        )
    filled = [_filled(name, leaf, values[name]) if name in values else leaf for name, leaf in leaves.items()]
    return jtu.tree_unflatten(jtu.tree_structure(tree), filled), result


def _unwrapped(params: Mapping[str, Any], wanted: Collection[str]) -> tuple[Mapping[str, Any], str]:
    """The parameters inside of a saved agent, a train state or a variable collection, and where that is."""
    where = ""
    while key := next((k for k in ("agent", "network", "params") if k in params and k not in wanted), None):
        if not isinstance(params[key], Mapping):
            break
        params, where = params[key], under(where, key)
    return params, where


@dataclass
class _Search:
    """Walks a network and Flax parameters side by side, and keeps what it finds."""

    names: Names
    values: dict[str, np.ndarray] = field(default_factory=dict)
    matched: list[Match] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)

    def networks(
        self,
        tree: Mapping[str, Any],
        parameters: Mapping[str, Any],
        there: str,
        modules: Mapping[str, str],
        strict: bool,
    ) -> list[str]:
        """Pair each network with the parameters of its name; gives the names that nobody asked for."""
        for name in modules:
            if name not in tree:
                raise UnknownName("network", name, tree)
        used: set[str] = set()
        claimed = {*modules.values(), *tree, *(f"modules_{name}" for name in tree)}
        for name, network in tree.items():
            keys = (modules[name],) if name in modules else (name, f"modules_{name}")
            key = next((k for k in keys if k in parameters), None)
            if key is None and (strict or name in modules):
                raise UnknownName(f"Flax parameters for the network '{name}':", keys[-1], parameters)
            if key is None:
                continue
            used.add(key)
            apart = f"{key}_encoder"  # an encoder of its own that stands beside the network, not in it
            if apart in parameters and apart not in claimed and has_encoder(network):
                used.add(apart)
                self.pair(network.encoder, parameters[apart], under(there, apart), dotted(name, "encoder"))
                network, name = network.net, dotted(name, "net")
            self.pair(network, parameters[key], under(there, key), name)
        return sorted(under(there, key) for key in parameters if key not in used)

    def pair(self, node: Any, parameters: Any, there: str, here: str = "", members: int = 0) -> None:
        """Find the arrays of a part of a network in a part of the Flax parameters."""
        if isinstance(node, Ensemble):
            self.pair(node.members, parameters, there, dotted(here, "members"), members + 1)
        elif is_array(node):
            self.keep(node, *inside(parameters, there), here, as_it_is)
        elif is_packed(node):
            self.packed(node, parameters, there, here)
        elif (layout := layout_of(node)) is not None:
            self.layer(node, layout, *inside(parameters, there), here)
        elif isinstance(parameters, Mapping) and (pairs := encoder_pairs(node, parameters, self.names)) is not None:
            for (label, child), place, value in pairs:
                self.pair(child, value, under(there, place), dotted(here, label), members)
        elif isinstance(parameters, Mapping):
            self.fields(parts_of(node, parameters), node, parameters, there, here, members)
        else:
            self.unexpected.append(there)

    def layer(self, node: Any, layout: ByName, parameters: Any, there: str, here: str) -> None:
        """The arrays of a linear layer, a convolution or a norm."""
        for key, value in parameters.items() if isinstance(parameters, Mapping) else [("", parameters)]:
            ours, turn = layout.get(key, ("", as_it_is))
            self.keep(getattr(node, ours, None), value, under(there, key), dotted(here, ours), turn)

    def packed(self, node: Any, parameters: Any, there: str, here: str) -> None:
        """The arrays of attention, or of a recurrent network."""
        arrays, left = pack(node, parameters, there, here)
        for one in arrays:
            if one.value.shape != tuple(one.leaf.shape):
                raise TwinaxError(
                    f"'{one.here}' has shape {tuple(one.leaf.shape)}, but '{one.there}' is {one.value.shape} in the "
                    "layout used here"
                )
            self.values[one.here] = one.value
            self.matched.append(Match(one.here, one.there, one.value.shape, one.shape))
        self.unexpected.extend(left)

    def keep(self, leaf: Any, value: Any, there: str, here: str, turn: Callable[[np.ndarray], np.ndarray]) -> None:
        """Note an array, in the layout that is used here."""
        if leaf is None or isinstance(value, Mapping):
            self.unexpected.extend(leaf_names(value, there))
            return
        array, shape = host_array(there, value), tuple(leaf.shape)
        turned = turn(array) if array.ndim == len(shape) else array
        if turned.shape != shape:
            layout = f", which is {turned.shape} in the layout used here" if turned.shape != array.shape else ""
            raise TwinaxError(f"'{here}' has shape {shape}, but '{there}' has shape {array.shape}{layout}")
        self.values[here] = turned
        self.matched.append(Match(here, there, shape, array.shape))

    def fields(self, parts: Parts, node: Any, parameters: Mapping, there: str, here: str, members: int) -> None:
        """Pair the fields of a network with groups of Flax parameters; each group goes to one field."""
        groups = grouped(parameters, self.names)
        chosen = self.by_name(parts, groups)
        chosen |= by_type(parts, groups, chosen, parameters, members)
        left = {key: parameters[key] for stem, keys in groups.items() if stem not in chosen.values() for key in keys}
        for name, stem in chosen.items():
            for (label, child), key in zip(parts[name], groups[stem], strict=False):
                self.pair(child, parameters[key], under(there, key), dotted(here, label), members)
            left |= {key: parameters[key] for key in groups[stem][len(parts[name]) :]}
        alone = [part for name in parts if name not in chosen for part in parts[name]]
        if left and len(alone) == 1 and not is_array(alone[0][1]) and layout_of(alone[0][1]) is None:
            # Wrapped here, but not there.
            ((label, child),) = alone
            self.pair(child, left, there, dotted(here, label), members)
        elif not chosen and len(left) == 1 and isinstance(inner := next(iter(left.values())), Mapping):
            # Wrapped there, but not here.
            self.pair(node, inner, under(there, next(iter(left))), here, members)
        else:
            self.unexpected.extend(leaf_names(left, there))

    def by_name(self, parts: Parts, groups: Mapping[str, list[str]]) -> dict[str, str]:
        """Groups of Flax parameters for fields, by what they are called."""
        chosen: dict[str, str] = {}
        for name in parts:
            given = self.names.get(name)
            known = (given,) if isinstance(given, str) else (name, *NAMES.get(name, ()))
            stem = next((k for k in known if k in groups and k not in chosen.values()), None)
            if stem is not None:
                chosen[name] = stem
        return chosen
