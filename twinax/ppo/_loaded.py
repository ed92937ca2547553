"""Exported policies, read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, require
from twinax.ppo import _onnx
from twinax.ppo._export import read_spec
from twinax.ppo._policy import Policy, read_policy


class LoadedPolicy:
    """A policy that onnxruntime runs; see `load_policy`."""

    def __init__(self, session: Any, spec: dict[str, Any]):
        self._session = session
        self.spec = spec
        """What policy.json says."""

    @property
    def inputs(self) -> int:
        """Numbers of an observation."""
        return int(self.spec["input"]["size"])

    def act(self, observation: Any) -> np.ndarray:
        """The likeliest action for one observation, or actions for rows of them."""
        x = np.asarray(observation, np.float32)
        if x.ndim not in (1, 2) or x.shape[-1] != self.inputs:
            raise TwinaxError(
                f"the observation has shape {x.shape}; this policy needs ({self.inputs},) or (batch, {self.inputs})"
            )
        action = self._session.run(["action"], {"observation": np.atleast_2d(x)})[0]
        return action[0] if x.ndim == 1 else action


def load_policy(path: Path | str) -> LoadedPolicy:
    """A policy from policy.onnx (or its policy.json); refused if any file is not the one that was exported.

    >>> policy = load_policy("policy.onnx")                                 # doctest: +SKIP
    >>> policy.act(observation)                                             # doctest: +SKIP
    """
    file, spec = read_spec(path)
    if file.suffix != ".onnx":
        raise TwinaxError(f"{file.name} is no ONNX file; read it with twinax.ppo.load_torch_policy")
    return LoadedPolicy(_onnx.session(file.read_bytes()), spec)


def torch_policy(policy: Policy | Path | str, seed: int | None = None) -> Any:
    """A policy, or that of a run's directory, as a plain `torch.nn.Module`, without gradients.

    >>> module = torch_policy("runs/walk")                                  # doctest: +SKIP
    >>> module(torch.zeros(1, 43))                                          # doctest: +SKIP
    """
    require("torch", "torch", "torch_policy")
    from twinax.ppo._torch_policy import arrays, make_torch_policy, structure

    policy = policy if isinstance(policy, Policy) else read_policy(policy, seed)
    return make_torch_policy(structure(policy), arrays(policy))


def load_torch_policy(path: Path | str) -> Any:
    """The module of an exported policy.safetensors; refused if any file is not the one that was exported."""
    require("torch", "torch", "load_torch_policy")
    from safetensors.numpy import load

    from twinax.ppo._torch_policy import make_torch_policy

    file, spec = read_spec(path)
    if file.suffix != ".safetensors":
        raise TwinaxError(f"{file.name} is no safetensors file; read it with twinax.ppo.load_policy")
    return make_torch_policy(spec["network"], load(file.read_bytes()))
