"""Processes that train together, perhaps on several hosts."""

from __future__ import annotations

from twinax.errors import TwinaxError

TIMEOUT = 120
"""Seconds in which all processes must have come."""
HEARTBEAT = 20
"""Seconds of silence after which a process is taken for dead."""


def join(coordinator: str | None = None, number: int | None = None, index: int | None = None) -> None:
    """Meet the other processes; without arguments SLURM or Open MPI tell who is who. Before JAX computes anything."""
    import jax

    try:
        jax.distributed.initialize(
            coordinator, number, index, initialization_timeout=TIMEOUT, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise TwinaxError(
            f"process {index} could not meet the other processes at {coordinator or 'the address of the cluster'}: "
            f"{reason}"
        ) from error


def provide_devices(number: int) -> int:
    """How many devices a run shall use, when it asked for `number`: with several processes all there are.

    On a CPU the devices of one process are threads, which are made here; before JAX computes anything.
    """
    import jax

    if jax.distributed.is_initialized():
        return jax.device_count() if number == 1 else number
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


def lost_process(error: BaseException, number: int) -> TwinaxError:
    """What to say when the others do not answer."""
    reason = str(error).strip().splitlines()[0]
    return TwinaxError(
        f"another of the {number} processes has gone, so this one stops; go on from the last checkpoint ({reason})"
    )
