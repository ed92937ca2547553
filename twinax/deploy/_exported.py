"""Exported policies, read again."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from twinax.deploy import _onnx
from twinax.deploy._export import FORMAT, spec_path
from twinax.errors import TwinaxError, require


class LoadedPolicy:
    """A policy that onnxruntime runs; see `load_policy`."""

    def __init__(self, session: Any, spec: dict[str, Any]):
        self._session = session
        self.spec = spec
        """What policy.json says."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation."""
        return tuple(self.spec["input"]["shape"])

    def act(self, observation: Any) -> np.ndarray:
        """The likeliest action for one observation, or actions for rows of them."""
        shape = self.shape
        x = np.asarray(observation, self.spec["input"]["type"])
        if x.ndim - len(shape) not in (0, 1) or x.shape[x.ndim - len(shape) :] != shape:
            inner = ", ".join(map(str, shape))
            raise TwinaxError(f"the observation has shape {x.shape}; this policy needs {shape} or (batch, {inner})")
        rows = x if x.ndim > len(shape) else x[None]
        action = self._session.run(["action"], {"observation": rows})[0]
        return action if x.ndim > len(shape) else action[0]


def load_policy(path: Path | str) -> LoadedPolicy:
    """A policy from policy.onnx (or its policy.json); refused if any file is not the one that was exported.

    >>> policy = load_policy("policy.onnx")                                 # doctest: +SKIP
    >>> policy.act(observation)                                             # doctest: +SKIP
    """
    file, spec = read_spec(path)
    if file.suffix != ".onnx":
        raise TwinaxError(f"{file.name} is no ONNX file; read it with twinax.deploy.load_torch_policy")
    return LoadedPolicy(_onnx.session(file.read_bytes()), spec)


def load_torch_policy(path: Path | str) -> Any:
    """The module of an exported policy.safetensors; refused if any file is not the one that was exported."""
    require("torch", "torch", "load_torch_policy")
    from safetensors.numpy import load

    from twinax.deploy._torch_policy import make_torch_policy

    file, spec = read_spec(path)
    if file.suffix != ".safetensors":
        raise TwinaxError(f"{file.name} is no safetensors file; read it with twinax.deploy.load_policy")
    return make_torch_policy(spec["network"], load(file.read_bytes()))


def read_spec(path: Path | str) -> tuple[Path, dict[str, Any]]:
    """A policy's file and its description, after every checksum was compared."""
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
        actual = _digest(place.with_name(name))
        if actual != digest:
            raise TwinaxError(
                f"{place.with_name(name)} is not the file that was exported: its sha256 is {actual[:12]}..., "
                f"{place.name} says {str(digest)[:12]}...; export the policy again"
            )
    return place.with_name(wanted), spec


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TwinaxError(f"{path} cannot be read: {error.strerror or error}") from error
