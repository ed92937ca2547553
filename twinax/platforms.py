"""JAX's devices, or one sentence when those that were asked for are not there."""

from __future__ import annotations

import os
from typing import Any

from twinax.errors import TwinaxError

_ANY = "any kind of device"


def find_devices() -> list[Any]:
    """The devices that JAX computes on; what JAX_PLATFORMS asks for and nobody has is one sentence."""
    import jax

    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        sentence = explain(error)
        if sentence is None:
            raise
        raise TwinaxError(sentence) from error


def explain(error: BaseException) -> str | None:
    """What to do about an error of JAX while it looks for devices; None for any other error."""
    import traceback  # here, because the help of a command must come at once

    frames = traceback.extract_tb(error.__traceback__)
    # Where CUDA was asked for and its plugin is missing, JAX fails an assertion that says nothing.
    silent = isinstance(error, AssertionError) and frames and frames[-1].filename.endswith("xla_bridge.py")
    if not silent and "Unable to initialize backend" not in str(error):
        return None
    asked = os.environ.get("JAX_PLATFORMS", "") or _ANY
    said = str(error).strip().splitlines()
    reason = f" ({said[0].partition(' (set JAX_PLATFORMS')[0].rstrip('.')})" if said else ""
    if asked == _ANY:
        return f"JAX cannot use the devices of this machine{reason}; set JAX_PLATFORMS=cpu to use its processors"
    return (
        f"JAX_PLATFORMS={asked} asks for devices that JAX cannot use here{reason}; processors are always there: unset "
        "JAX_PLATFORMS or set it to cpu, and for NVIDIA's devices pip install 'jax[cuda12]'"
    )
