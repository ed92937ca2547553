"""A policy on disk for those who run it elsewhere: the network, a description with checksums, and a robot's MJCF.

policy.onnx          or policy.safetensors, whose description is policy.safetensors.json
policy.json          format, observation layout, actions, robot, run, versions, SHA-256 of the files beside it
biped.xml            the robot's model, if there is one
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs import Box
from twinax.errors import TwinaxError, require
from twinax.ppo import _onnx
from twinax.ppo._policy import Policy, read_policy

FORMAT = 1
SUFFIXES = (".onnx", ".safetensors")
_PICKLES = (".pt", ".pth", ".pkl", ".pt2", ".bin")


@dataclass(frozen=True)
class Exported:
    """What `export` wrote."""

    path: Path
    difference: float
    """Largest difference from the library's own policy, as a part of the largest action that there is."""
    files: tuple[Path, ...]
    """All of them."""


def export(policy: Policy | Path | str, path: Path | str, seed: int | None = None) -> Exported:
    """Write a policy, or that of a run's directory, as ONNX or safetensors; checked first, so a bad one is not written.

    >>> export("runs/walk", "policy.onnx").difference < 1e-5                # doctest: +SKIP
    True
    """
    path = Path(path)
    suffix = _known_suffix(path)
    if path.is_dir():
        raise TwinaxError(f"{path} is a directory; give the name of a file")
    if not isinstance(policy, Policy):
        policy = read_policy(policy, seed)
    if suffix == ".onnx":
        content, built = _onnx.onnx_bytes(policy), {"opset": _onnx.OPSET}
        largest = _onnx.refuse_if_different(policy, content)
    else:
        content, built, largest = _safetensors(policy)
    assets = _assets(policy, path)
    contents = {path.name: content, **assets}
    spec = {
        **describe(policy),
        "file": path.name,
        "network": built,
        "checked": {"largest_difference": largest, "observations": _onnx.ROWS},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    from twinax.runs import plain

    # Last, so that whoever sees the description sees the files that it speaks of.
    contents[spec_path(path).name] = (plain.dumps(spec, indent=2) + "\n").encode()
    return Exported(path, largest, _write(path.parent, contents))


def spec_path(path: Path) -> Path:
    """Where a policy's description lies. Both forms of one policy can lie side by side."""
    return path.with_suffix(".json") if path.suffix.lower() == ".onnx" else path.with_name(f"{path.name}.json")


def describe(policy: Policy) -> dict[str, Any]:
    """What a policy sees and does, and where it comes from."""
    from twinax.runs.versions import versions

    world, actions = policy.world, policy.world.actions
    manual = dict(world.manual())
    names = manual.pop("actions", None)
    places = np.cumsum([0, *world.layout.values()]).tolist()
    parts = [
        {"name": name, "first": first, "size": size}
        for first, (name, size) in zip(places, world.layout.items(), strict=False)
    ]
    output: dict[str, Any] = {"name": "action", "type": "int64", "choices": policy.outputs}
    if isinstance(actions, Box):
        output = {"name": "action", "type": "float32", "size": actions.size, "low": actions.low, "high": actions.high}
        output["squashed"] = policy.agent.kind == "tanh"
    normaliser = None if policy.moments is None else {"inside": True, **_scaling(policy)}
    return {
        "format": FORMAT,
        "world": world.name,
        "input": {"name": "observation", "type": "float32", "size": policy.inputs, "layout": parts},
        "output": output if names is None else {**output, "names": names},
        "normaliser": normaliser,
        **manual,
        "run": dict(policy.facts),
        "versions": versions(),
    }


def _scaling(policy: Policy) -> dict[str, Any]:
    """How the normaliser inside divides and cuts off; None where it does not."""
    return {"eps": policy.scaling.eps, "clip": policy.scaling.limit or None}


def _known_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in _PICKLES:
        raise TwinaxError(
            f"'{path.name}' would hold a pickle, which runs code when it is read; write {path.stem}.onnx, or "
            f"{path.stem}.safetensors for PyTorch"
        )
    if suffix not in SUFFIXES:
        raise TwinaxError(f"a policy cannot be written as '{path.name}'; end its name with {' or '.join(SUFFIXES)}")
    return suffix


def _safetensors(policy: Policy) -> tuple[bytes, dict[str, Any], float]:
    require("torch", "torch", "a policy for PyTorch")
    import torch
    from safetensors.numpy import save

    from twinax.ppo._torch_policy import arrays, make_torch_policy, structure

    built, weights = structure(policy), arrays(policy)
    x = _onnx.observations(policy)
    action = make_torch_policy(built, weights)(torch.from_numpy(x)).numpy()
    largest = _onnx.refuse_above(policy, _onnx.difference(policy, x, action), "a PyTorch module")
    return save(weights, metadata={"format": "pt"}), built, largest


def _assets(policy: Policy, path: Path) -> dict[str, bytes]:
    found = {}
    for asset in policy.world.assets():
        if asset.name in (path.name, spec_path(path).name):
            raise TwinaxError(f"{path.name} would replace the world's own file {asset.name}; choose another name")
        found[asset.name] = asset.read_bytes()
    return found


def _write(directory: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """All files, or none under its own name."""
    temporary = {name: directory / f".tmp-{name}" for name in contents}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in contents.items():
            temporary[name].write_bytes(data)
        for name, made in temporary.items():
            os.replace(made, directory / name)
    except OSError as error:
        reason = error.strerror or error
        raise TwinaxError(f"the policy cannot be written into {directory.absolute()}: {reason}") from error
    finally:
        for made in temporary.values():
            if os.path.lexists(made):
                made.unlink()
    return tuple(directory / name for name in contents)


def read_spec(path: Path | str) -> tuple[Path, dict[str, Any]]:
    """A policy's file and its description, after every checksum was compared."""
    import json

    path = Path(path)
    place = path if path.suffix == ".json" else spec_path(path)
    try:
        spec = json.loads(place.read_text(encoding="utf-8"))
        number, file, sums = spec["format"], spec["file"], spec["sha256"]
    except OSError as error:
        raise TwinaxError(f"the policy's description {place} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TwinaxError(f"{place} is not the description of a policy: it is truncated or was edited") from error
    if number != FORMAT:
        raise TwinaxError(f"{place} has policy format {number}, this twinax reads format {FORMAT}")
    wanted = file if path.suffix == ".json" else path.name
    if wanted not in sums:
        raise TwinaxError(f"{place} describes {file}, not {wanted}")
    for name, digest in sums.items():
        if not re.fullmatch(r"[^/\\]+", name) or name in (".", ".."):
            raise TwinaxError(f"{place} names the file '{name}', which does not lie beside it")
        found = _digest(place.with_name(name))
        if found != digest:
            raise TwinaxError(
                f"{place.with_name(name)} is not the file that was exported: its sha256 is {found[:12]}..., "
                f"{place.name} says {str(digest)[:12]}...; export the policy again"
            )
    return place.with_name(wanted), spec


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TwinaxError(f"{path} cannot be read: {error.strerror or error}") from error
