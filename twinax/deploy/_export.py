"""A policy on disk for those who run it elsewhere: the network, a description with checksums, and a robot's MJCF.

policy.onnx          or policy.safetensors, whose description is policy.safetensors.json
policy.json          format, observation layout, actions, robot, run, versions, SHA-256 of the files beside it
biped.xml            the robot's model, if there is one
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.deploy import _onnx
from twinax.errors import TwinaxError, require
from twinax.exportable import Exportable
from twinax.runs import plain
from twinax.runs.versions import versions

FORMAT = 3
SUFFIXES = (".onnx", ".safetensors")
TOLERANCE = 1e-5
"""Largest difference from the library's policy, as a part of the largest action that there is (or value of one)."""
_PICKLES = (".pt", ".pth", ".pkl", ".pt2", ".bin")


@dataclass(frozen=True)
class Exported:
    """What `export` wrote."""

    path: Path
    difference: float
    """Largest difference from the library's own policy, as a part of the largest action that there is."""
    files: tuple[Path, ...]
    """All of them."""
    description: Mapping[str, Any]
    """What policy.json says."""
    observations: int
    """How many random ones it was compared on."""


def export(policy: Exportable, path: Path | str, facts: Mapping[str, Any] | None = None) -> Exported:
    """Write a policy as ONNX or safetensors; checked first, so a bad one is not written. `facts` tell its origin."""
    path = Path(path)
    suffix = _known_suffix(path)
    if path.is_dir():
        raise TwinaxError(f"{path} is a directory; give the name of a file")
    _refuse_non_finite(policy)
    if suffix == ".onnx":
        content, built = _onnx.onnx_bytes(policy), {"opset": _onnx.OPSET}
        run = _onnx.session(content)
        largest = refuse_if_different(policy, lambda x: run.run(["action"], {"observation": x})[0], "ONNX")
    else:
        content, built, largest = _safetensors(policy)
    contents = {path.name: content, **_assets(policy, path)}
    spec = {
        "format": FORMAT,
        **policy.description,
        "run": dict(facts or {}),
        "versions": versions(),
        "file": path.name,
        "network": built,
        "checked": {"largest_difference": largest, "observations": policy.rows},
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
    }
    # Last, so that whoever sees the description sees the files that it speaks of.
    contents[spec_path(path).name] = (plain.dumps(spec, indent=2) + "\n").encode()
    return Exported(path, largest, _write(path.parent, contents), spec, policy.rows)


def difference(policy: Exportable, x: np.ndarray, action: np.ndarray) -> float:
    """Largest distance of actions from those of the policy in float64, as a part of the largest that there is.

    A small action in a wide range is a difference of large numbers, so its own size would be no measure. Of two choices
    that are equally good either is right, so an index is measured by how much worse its value is.
    """
    wanted = policy.values(x)
    if policy.discrete:
        chosen = np.take_along_axis(wanted, np.asarray(action)[:, None], -1)[:, 0]
        return float((wanted.max(-1) - chosen).max() / max(np.abs(wanted).max(), 1e-30))
    if np.shape(action) != wanted.shape:
        raise TwinaxError(f"the exported policy gives actions of shape {np.shape(action)}, not {wanted.shape}")
    return float(np.abs(action - wanted).max() / max(np.abs(wanted).max(), policy.largest, 1e-30))


def refuse_if_different(policy: Exportable, run: Any, form: str) -> float:
    """Run it on random observations, one row as well; the largest difference, if it is small enough."""
    x = policy.observations(policy.rows)
    largest = max(difference(policy, rows, run(rows)) for rows in (x, x[:1]))
    if not largest <= TOLERANCE:
        own = difference(policy, x, policy.act(x))
        raise TwinaxError(
            f"the policy as {form} differs from the library's by {largest:.2g} of the largest value, more than "
            f"{TOLERANCE:g} (the library's own differs by {own:.2g} between float32 and float64); nothing was written"
        )
    return largest


def _refuse_non_finite(policy: Exportable) -> None:
    bad = [
        f"{step.name}.{name}"
        for step in policy.steps
        for name, array in step.arrays.items()
        if np.isnan(array).any() or name not in ("low", "high") and not np.isfinite(array).all()
    ]
    if bad:
        raise TwinaxError(f"the policy is not finite: {len(bad)} of its arrays hold NaN or infinity, {bad[0]} first")


def spec_path(path: Path) -> Path:
    """Where a policy's description lies. Both forms of one policy can lie side by side."""
    return path.with_suffix(".json") if path.suffix.lower() == ".onnx" else path.with_name(f"{path.name}.json")


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


def _safetensors(policy: Exportable) -> tuple[bytes, Any, float]:
    require("torch", "torch", "a policy for PyTorch")
    import torch
    from safetensors.numpy import save

    from twinax.deploy._torch_policy import arrays, make_torch_policy, structure

    built, weights = structure(policy), arrays(policy)
    module = make_torch_policy(built, weights)
    largest = refuse_if_different(policy, lambda x: module(torch.from_numpy(x)).numpy(), "a PyTorch module")
    return save(weights, metadata={"format": "pt"}), built, largest


def _assets(policy: Exportable, path: Path) -> dict[str, bytes]:
    contents = {}
    for asset in policy.assets:
        if asset.name in (path.name, spec_path(path).name):
            raise TwinaxError(f"{path.name} would replace the world's own file {asset.name}; choose another name")
        contents[asset.name] = asset.read_bytes()
    return contents


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
