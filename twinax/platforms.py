"""The device of a run in PyTorch or in JAX, or one sentence when it is not there.

`auto` is what each framework prefers: PyTorch's CUDA where it sees a card and else the CPU, JAX's first device. Apple's
`mps` has to be asked for by name, because it has no float64.
"""

from __future__ import annotations

import os
import re
from typing import Any

from twinax.errors import TwinaxError, require

_ANY = "any kind of device"
CUDA_FOR_TORCH = (
    "pip install --force-reinstall torch brings PyTorch's CUDA build on Linux, for other systems see the installation "
    "page of PyTorch"
)
CUDA_FOR_JAX = "for NVIDIA's devices pip install 'jax[cuda12]', for TPUs pip install 'jax[tpu]'"


def split_device(name: str) -> tuple[str, int | None]:
    """The kind of a device and its number among those of that kind.

    >>> split_device("cuda:1"), split_device("cpu")
    (('cuda', 1), ('cpu', None))
    """
    parts = re.fullmatch(r"([a-z]+)(?::(\d{1,4}))?", name)
    if parts is None:
        raise TwinaxError(
            f"device is '{name}', which is no name of one; give auto, cpu, cuda, or cuda:1 for the second"
        )
    return parts[1], None if parts[2] is None else int(parts[2])


def device_label(mode: str, name: str) -> str:
    """The device that a mode computes on when `name` is asked for, as people read it.

    >>> device_label("jax", "cpu")
    'cpu'
    """
    if mode == "jax":
        device = jax_device(name) or find_devices()[0]
        return device.platform if name == "auto" or split_device(name)[1] is None else name
    label = str(torch_device(name))
    return f"{label}, JAX on {find_devices()[0].platform}" if mode == "hybrid" else label


# PyTorch


def torch_device(name: str) -> Any:
    """PyTorch's device of that name.

    >>> torch_device("cpu").type
    'cpu'
    """
    require("torch", "torch", f"device={name}")
    import torch

    there = torch_devices()
    if name == "auto":
        return torch.device(there[1] if there[1:] and there[1] != "mps" else "cpu")
    kind, index = split_device(name)
    full_name = name if kind == "mps" or index is not None else f"{kind}:0" if kind == "cuda" else kind
    if full_name not in there:
        raise TwinaxError(
            f"device={name}, but PyTorch {torch.__version__} has {', '.join(there)} here: {_why_not(kind)}"
        )
    return torch.device(full_name)


def torch_devices() -> list[str]:
    """Names of what PyTorch can compute on here, the CPU first."""
    import torch

    cards = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else [])]


def torch_build() -> str:
    """For what PyTorch was built."""
    import torch

    if torch.version.cuda is not None:
        return f"CUDA {torch.version.cuda}"
    if torch.version.hip is not None:
        return f"ROCm {torch.version.hip}"
    return "CPU and Apple's mps" if torch.backends.mps.is_built() else "CPU only"


def _why_not(kind: str) -> str:
    """What to do where PyTorch lacks a device."""
    import torch

    if kind == "cuda" and not torch.cuda.is_available():
        if torch.version.cuda is None and torch.version.hip is None:
            return f"this build has no CUDA, and {CUDA_FOR_TORCH}"
        return (
            f"this build is for {torch_build()} but sees no card, so look at the driver (nvidia-smi) and at "
            "CUDA_VISIBLE_DEVICES"
        )
    if kind == "mps":
        return "mps needs a Mac with an Apple GPU and PyTorch's build for it; use device=cpu or device=cuda"
    return "name one of those"


# JAX


def jax_device(name: str) -> Any:
    """JAX's device of that name; None for auto, which leaves the choice to JAX."""
    everything = find_devices()
    if name == "auto":
        return None
    kind, index = split_device(name)
    import jax

    try:
        devices = jax.local_devices(backend=kind)
    except (RuntimeError, AssertionError) as error:
        has = ", ".join(dict.fromkeys([device.platform for device in everything] + ["cpu"]))
        asked = os.environ.get("JAX_PLATFORMS")
        hidden = f" under JAX_PLATFORMS={asked}" if asked else ""
        raise TwinaxError(f"device={name}, but JAX {jax.__version__} has {has} here{hidden}: {CUDA_FOR_JAX}") from error
    if (index or 0) >= len(devices):
        more = f", on a CPU set JAX_NUM_CPU_DEVICES={(index or 0) + 1} before Python starts" if kind == "cpu" else ""
        raise TwinaxError(
            f"device={name}, but JAX has {', '.join(f'{kind}:{k}' for k in range(len(devices)))} here: name one of "
            f"those{more}"
        )
    return devices[index or 0]


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
        f"JAX_PLATFORMS or set it to cpu, and {CUDA_FOR_JAX}"
    )
