"""Processes that train together, perhaps on several hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from twinax.errors import TwinaxError

TIMEOUT = 120
"""Seconds in which all processes must have come."""
HEARTBEAT = 20
"""Seconds of silence after which a process is taken for dead."""


class LostProcess(TwinaxError):
    """Another of the processes that train together does not answer."""

    exit_code = 1


def join(coordinator: str | None = None, number: int | None = None, index: int | None = None) -> None:
    """Meet the other processes; without arguments SLURM or Open MPI tell who is who. Before JAX computes anything."""
    import jax

    try:
        jax.distributed.initialize(
            coordinator, number, index, initialization_timeout=TIMEOUT, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError) as error:
        who = "this process" if index is None else f"process {index}"
        reason = str(error).strip().splitlines()[0]
        raise TwinaxError(
            f"{who} could not meet the others at {coordinator or 'the address of the cluster'}: {reason}"
        ) from error


def provide_devices(number: int) -> int:
    """How many devices a run shall use, when it asked for `number`: with several processes those of all of them.

    On a CPU the devices of one process are threads, which are made here; before JAX computes anything.
    """
    import jax

    if jax.distributed.is_initialized():
        return jax.device_count()
    if number > 1:
        try:
            jax.config.update("jax_num_cpu_devices", number)
        except RuntimeError:  # JAX has begun; whether there are enough is seen later
            pass
    return number


def is_leader() -> bool:
    """Whether this process writes and speaks."""
    import jax

    return jax.process_index() == 0


def num_processes() -> int:
    """How many processes train together."""
    import jax

    return jax.process_count() if jax.distributed.is_initialized() else 1


@contextmanager
def together(number: int) -> Iterator[None]:
    """While `number` processes compute together: a sentence when the others do not answer."""
    import jax

    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # Small collectives raise a ValueError. What a world on this host raised is this process's own.
        silent = "Gloo" in str(error) if isinstance(error, ValueError) else "callback" not in str(error).lower()
        if number == 1 or not silent:
            raise
        reason = str(error).strip().splitlines()[0]
        raise LostProcess(
            f"another of the {number} processes has gone, so this one stops; go on from the last checkpoint ({reason})"
        ) from error


def agreed(number: int) -> int:
    """The largest number that any of the processes names; all of them must ask."""
    processes = num_processes()
    if processes == 1:
        return number
    from jax.experimental.multihost_utils import process_allgather

    with together(processes):
        return int(np.max(process_allgather(np.array(number, np.int32))))
