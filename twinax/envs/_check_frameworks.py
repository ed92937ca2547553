"""An environment's rules in the three frameworks, side by side."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.envs._broken_rule import refuse
from twinax.envs._environment import Environment
from twinax.errors import TwinaxError
from twinax.networks import KHot, flat


def check_frameworks(
    env: Environment, states: Any, action: np.ndarray, objects: Any, frameworks: Sequence[str], traced: bool
) -> tuple[str, ...]:
    """Every rule gives the same in NumPy, in JAX under jit and, where it is installed, in PyTorch.

    `objects` are finished states, whose rewards are looked at.
    Where they are only `traced`, the rules need not be compiled, and JAX says no more than shapes and dtypes.
    """
    children = env.step(states, action)
    undo = np.clip(env.backward_action(children, action), 0, env.num_backward_actions - 1).astype(np.int32)

    def rules(states, action, children, undo, objects):
        results = {
            "step": env.step(states, action),
            "backward_step": env.backward_step(children, undo),
            "forward_mask": env.forward_mask(states),
            "backward_mask": env.backward_mask(states),
            "backward_action": env.backward_action(children, action),
            "forward_action": env.forward_action(children, undo),
            "log_reward": env.log_reward(objects),
            "log_paths_ratio": env.log_paths_ratio(states),
        }
        seen = flat(env.observe(children))
        results["observe"] = seen.dense("float32") if isinstance(seen, KHot) else seen
        if env.num_modes:
            results["modes"] = env.modes(objects)
        return results

    inputs = (states, action, children, undo, objects)
    expected = rules(*inputs)
    same = ["numpy"]
    if "jax" in frameworks:
        import jax.numpy as jnp

        given = ops.like(inputs, jnp.zeros(()))
        results = _in_jax(rules, given, traced)
        env.watch()
        _compare_kinds("jax", given[0], results, expected)
        if not traced:
            _compare_values("jax", results, expected, states, action, objects)
            same.append("jax")
    if "torch" in frameworks and importlib.util.find_spec("torch") is not None:
        import torch

        given = ops.like(inputs, torch.zeros((), device="cpu"))
        results = rules(*given)
        _compare_kinds("torch", given[0], results, expected)
        _compare_values("torch", results, expected, states, action, objects)
        same.append("torch")
    return tuple(same)


def _in_jax(rules: Any, inputs: Any, traced: bool) -> Any:
    import jax

    try:
        return jax.eval_shape(rules, *inputs) if traced else jax.jit(rules)(*inputs)
    except jax.errors.JAXTypeError as error:
        reason = str(error).splitlines()[0]
        raise TwinaxError(f"the rules do not run under jax.jit; write them with twinax.ops: {reason}") from error


def _compare_kinds(framework: str, given: Any, results: dict, expected: dict) -> None:
    """Dtypes of states are kept, and shapes are those of NumPy."""
    for name in ("step", "backward_step"):
        for a, b in zip(jtu.tree_leaves(results[name]), jtu.tree_leaves(given), strict=True):
            if a.dtype != b.dtype:
                raise TwinaxError(f"{name} turns an array of the state from {b.dtype} into {a.dtype} in {framework}")
    for name, wanted in expected.items():
        for a, b in zip(jtu.tree_leaves(results[name]), jtu.tree_leaves(wanted), strict=True):
            b = np.asarray(b)
            if tuple(a.shape) != b.shape or str(a.dtype).endswith("bool") != (b.dtype == bool):
                kind = f"{a.dtype}{tuple(a.shape)}"
                raise TwinaxError(f"{name} gives {kind} in {framework}, {b.dtype}{b.shape} in numpy")


def _compare_values(
    framework: str, results: dict, expected: dict, states: Any, action: np.ndarray, objects: Any
) -> None:
    for name, wanted in expected.items():
        for a, b in zip(jtu.tree_leaves(results[name]), jtu.tree_leaves(wanted), strict=True):
            a, b = np.asarray(a), np.asarray(b)
            same = np.isclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True) if a.dtype.kind == "f" else a == b
            rule = f"{name} is not the same in {framework} as in numpy"
            given, by = (objects, None) if name in ("log_reward", "modes") else (states, action)
            refuse(~same.reshape(len(a), -1).all(1), given, rule, by)
