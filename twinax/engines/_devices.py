"""Several devices, here or on several hosts, that share out the worlds of one training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from twinax import ops
from twinax.errors import TwinaxError
from twinax.platforms import jax_device

AXIS = "shards"


class Devices:
    """A row of devices; some arrays are divided along their leading axis, all others are on each of them."""

    def __init__(self, number: int, kind: str = "auto"):
        jax_device(kind)  # a kind that is not there is refused in a sentence
        devices = jax.devices(None if kind == "auto" else kind)
        if len(devices) < number:
            raise TwinaxError(
                f"devices={number}, but JAX has {len(devices)} of kind {devices[0].platform}; on a CPU set "
                f"JAX_NUM_CPU_DEVICES={number} before Python starts"
            )
        self.number = number
        self.mesh = jax.make_mesh((number,), (AXIS,), axis_types=(AxisType.Auto,), devices=devices[:number])

    def spread(self, state: Any, divided: Any) -> Any:
        """Arrays that are known here in whole, on all devices."""

        def one(x, sharding):
            x = np.asarray(x)
            return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

        return jax.tree.map(one, state, self.shardings(divided))

    def shardings(self, divided: Any) -> Any:
        """Where each array of a tree is."""
        return jax.tree.map(lambda is_divided: NamedSharding(self.mesh, _spec(is_divided)), divided)

    def compiled(self, program: Callable, divided: Any) -> Any:
        """Of `program(state, ...) -> (state, same on all)`: arrays come out where they went in, empty ones as well."""
        placed = (self.shardings(divided), NamedSharding(self.mesh, PartitionSpec()))
        return jax.jit(program, donate_argnums=0, out_shardings=placed)

    def run(self, function: Callable, state: Any, divided: Any, *rest: Any) -> Any:
        """`function(state, *rest) -> (state, same on all)` with each device on its own part."""
        specs = jax.tree.map(_spec, divided)

        def part(state, *rest):
            with ops.shards(AXIS, self.number):
                return function(state, *rest)

        everywhere = PartitionSpec()
        return jax.shard_map(
            part,
            mesh=self.mesh,
            in_specs=(specs, *[everywhere] * len(rest)),
            out_specs=(specs, everywhere),
            # Gradients are averaged where an update asks for it, not by the rules of differentiation.
            check_vma=False,
        )(state, *rest)


def _spec(is_divided: bool) -> PartitionSpec:
    return PartitionSpec(AXIS) if is_divided else PartitionSpec()


def whole(x: Any) -> np.ndarray:
    """An array in NumPy, its parts on other hosts included; then all hosts must ask for it."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        if x.is_fully_replicated:
            return np.array(x.addressable_data(0))
        from jax.experimental.multihost_utils import process_allgather

        return np.array(process_allgather(x, tiled=True))
    return np.array(x)
