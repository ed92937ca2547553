"""A step in one safetensors file: everything that it needs to go on, and nothing that is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from twinax.bridge import to_numpy, to_torch
from twinax.bridge.weight_files import read_arrays, write_arrays
from twinax.errors import TwinaxError

FORMAT = "twinax.port.step 1"


def save_step(step: Any, path: Path) -> None:
    """Write parameters, buffers and what optimizers remember, with their settings and counts as metadata."""
    state = step.numbers()
    arrays = {f"parameters/{name}": x for name, x in state["parameters"].items()}
    arrays |= {f"buffers/{name}": x for name, x in state["buffers"].items()}
    for k, memory in enumerate(state["memory"]):
        arrays |= {f"memory/{k}/{name}/{key}": x for name, held in memory.items() for key, x in held.items()}
    about = {
        "steps": step.steps,
        "seed": step.seed,
        "counts": [managed.counts for managed in step.managed],
        "groups": [[group_settings(group) for group in managed.optimizer.param_groups] for managed in step.managed],
    }
    metadata = {"format": FORMAT, "step": json.dumps(about, sort_keys=True)}
    write_arrays(path, {name: to_numpy(x) for name, x in arrays.items()}, metadata, "the step")


def load_step(step: Any, path: Path) -> None:
    """Read it all before anything is changed."""
    import torch

    arrays, metadata = read_arrays(path, "the step")
    if metadata.get("format") != FORMAT:
        raise TwinaxError(f"{path} holds no step: its format is '{metadata.get('format', 'not said')}', not '{FORMAT}'")
    about = _read_about(path, metadata)
    state = step.numbers()
    wanted = {f"parameters/{name}": x for name, x in state["parameters"].items()}
    wanted |= {f"buffers/{name}": x for name, x in state["buffers"].items()}
    for k, memory in enumerate(state["memory"]):
        wanted |= {f"memory/{k}/{name}/{key}": x for name, held in memory.items() for key, x in held.items()}
    odd = sorted(set(wanted) ^ set(arrays))
    if odd:
        raise TwinaxError(f"{path} does not fit this step: only one of them has '{odd[0]}'")
    for name, x in wanted.items():
        if tuple(arrays[name].shape) != tuple(x.shape):
            raise TwinaxError(
                f"{path} does not fit this step: '{name}' has shape {tuple(arrays[name].shape)} there and "
                f"{tuple(x.shape)} here"
            )
    counts, groups = about["counts"], about["groups"]
    if [sorted(one) for one in counts] != [sorted(managed.counts) for managed in step.managed] or [
        len(one) for one in groups
    ] != [len(managed.optimizer.param_groups) for managed in step.managed]:
        raise TwinaxError(f"{path} does not fit this step: its optimizers have other parameters or groups")
    with torch.no_grad():
        for kind, named in (("parameters", step.module.named_parameters()), ("buffers", step.module.named_buffers())):
            for name, tensor in named:
                tensor.copy_(to_torch(np.array(arrays[f"{kind}/{name}"])))
    for k, managed in enumerate(step.managed):
        for group, settings in zip(managed.optimizer.param_groups, groups[k], strict=True):
            group.update({key: tuple(x) if isinstance(x, list) else x for key, x in settings.items() if key in group})
        managed.counts = {name: int(count) for name, count in counts[k].items()}
        managed.memory = {
            name: {key: jnp.array(arrays[f"memory/{k}/{name}/{key}"]) for key in held}
            for name, held in state["memory"][k].items()
        }
        managed.push()
    step.pull()
    step.steps, step.seed = int(about["steps"]), int(about["seed"])


def group_settings(group: dict[str, Any]) -> dict[str, Any]:
    """A group's settings as plain values; parameters are known by name."""
    plain = {key: x.item() if hasattr(x, "item") else x for key, x in group.items() if key != "params"}
    return {key: x for key, x in plain.items() if x is None or isinstance(x, (bool, int, float, str, tuple, list))}


def _read_about(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        about = json.loads(metadata["step"])
        known = {key: about[key] for key in ("steps", "seed", "counts", "groups")}
    except (KeyError, TypeError, ValueError) as error:
        raise TwinaxError(
            f"{path} does not say how far its step was ({type(error).__name__}); it was edited"
        ) from error
    return known
