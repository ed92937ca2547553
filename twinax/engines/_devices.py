"""Several devices, here or on several hosts, that share out the worlds of one training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from twinax import ops
from twinax.errors import TwinaxError

AXIS = "shards"


class Devices:
    """A row of devices; some arrays are divided along their leading axis, all others are on each of them."""

    def __init__(self, number: int):
        found = jax.devices()
        if len(found) < number:
            raise TwinaxError(
                f"devices={number}, but JAX has {len(found)} of kind {found[0].platform}; on a CPU set "
                f"JAX_NUM_CPU_DEVICES={number} before Python starts"
            )
        self.number = number
        self.mesh = jax.make_mesh((number,), (AXIS,), axis_types=(AxisType.Auto,), devices=found[:number])

    def spread(self, state: Any, divided: Any) -> Any:
        """Arrays that are known here in whole, on all devices."""

        def one(x, is_divided):
            x = np.asarray(x)
            sharding = NamedSharding(self.mesh, _spec(is_divided))
            return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

        return jax.tree.map(one, state, divided)

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
