"""An environment's rules in the three frameworks, side by side."""

from __future__ import annotations

import importlib.util
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.envs._broken_rule import refuse
from twinax.envs._environment import Environment
from twinax.errors import TwinaxError
from twinax.networks import KHot


def check_frameworks(env: Environment, states: Any, action: np.ndarray) -> tuple[str, ...]:
    """Every rule gives the same in NumPy, in JAX under jit and, where it is installed, in PyTorch."""
    children = env.step(states, action)
    undo = np.clip(env.backward_action(children, action), 0, env.num_backward_actions - 1).astype(np.int32)

    def rules(states, action, children, undo):
        results = {
            "step": env.step(states, action),
            "backward_step": env.backward_step(children, undo),
            "forward_mask": env.forward_mask(states),
            "backward_mask": env.backward_mask(states),
            "backward_action": env.backward_action(children, action),
            "forward_action": env.forward_action(children, undo),
            "log_reward": env.log_reward(children),
            "log_paths_ratio": env.log_paths_ratio(states),
        }
        seen = env.observe(children)
        results["observe"] = seen.dense("float32") if isinstance(seen, KHot) else seen
        if env.num_modes:
            results["mode"] = env.mode(children)
        return results

    import jax.numpy as jnp

    inputs = (states, action, children, undo)
    expected = rules(*inputs)
    given = ops.like(inputs, jnp.zeros(()))
    _compare("jax", given[0], _in_jax(rules, given), expected, states, action)
    if importlib.util.find_spec("torch") is None:
        return ("numpy", "jax")
    import torch

    given = ops.like(inputs, torch.zeros(()))
    _compare("torch", given[0], rules(*given), expected, states, action)
    return ("numpy", "jax", "torch")


def _in_jax(rules: Any, inputs: Any) -> Any:
    import jax

    try:
        return jax.jit(rules)(*inputs)
    except jax.errors.JAXTypeError as error:
        reason = str(error).splitlines()[0]
        raise TwinaxError(f"the rules do not run under jax.jit; write them with twinax.ops: {reason}") from error


def _compare(framework: str, given: Any, results: dict, expected: dict, states: Any, action: np.ndarray) -> None:
    for name in ("step", "backward_step"):
        for a, b in zip(jtu.tree_leaves(results[name]), jtu.tree_leaves(given), strict=True):
            if a.dtype != b.dtype:
                raise TwinaxError(f"{name} turns an array of the state from {b.dtype} into {a.dtype} in {framework}")
    for name, wanted in expected.items():
        for a, b in zip(jtu.tree_leaves(results[name]), jtu.tree_leaves(wanted), strict=True):
            a, b = np.asarray(a), np.asarray(b)
            if a.shape != b.shape or (a.dtype == bool) != (b.dtype == bool):
                raise TwinaxError(f"{name} gives {a.dtype}{a.shape} in {framework}, {b.dtype}{b.shape} in numpy")
            same = np.isclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True) if a.dtype.kind == "f" else a == b
            rule = f"{name} is not the same in {framework} as in numpy"
            refuse(~same.reshape(len(a), -1).all(1), states, rule, action)
