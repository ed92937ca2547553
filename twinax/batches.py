"""A GFlowNet's batch made by somebody else's PyTorch code, ready for the objectives; each usual mistake has its own
message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from twinax.bridge import host_array, to_jax
from twinax.errors import TwinaxError
from twinax.gflownet import Scores, objectives

__all__ = ["GRIDS", "batch_from_torch", "check_batch"]

GRIDS = {
    "log_flow": "log F of the state at each step",
    "state_log_reward": "log R of the state at each step",
    "logit": "the logit of each action taken",
    "state_log_energy": "what the world gives for log R of the state at each step",
    "log_pf_stop": "log P_F of stopping in the state at each step",
    "log_inflow": "log of the summed flows into the state at each step",
    "log_outflow": "log of the summed flows out of the state at each step",
    "log_final_flow": "log flow into the state after each step, where that ends the trajectory",
}
"""What the optional arrays of shape (time, batch) mean."""


def batch_from_torch(
    *,
    log_pf: Any,
    log_pb: Any,
    log_reward: Any,
    valid: Any,
    objective: str = "trajectory_balance",
    log_z: Any = None,
    **grids: Any,
) -> Scores:
    """`twinax.gflownet.Scores` with JAX arrays, from PyTorch tensors (or arrays) of shape (time, batch).

    `valid` is True for each action taken, `log_reward` has shape (batch,), `log_z` is a number or
    parameters whose sum is log Z. Other arrays that the objective needs, such as `log_flow`, are named
    as in `Scores`. What is missing or does not fit raises a `TwinaxError` that says so. The result has
    no PyTorch graph: hand JAX's gradient back with `log_pf.backward(to_torch(gradient.log_pf) * valid)`.

    >>> scores = batch_from_torch(
    ...     log_pf=np.log([[0.5, 0.5]]), log_pb=np.zeros((1, 2)), log_reward=np.zeros(2),
    ...     valid=np.ones((1, 2), bool), objective="log_partition_variance")  # doctest: +SKIP
    >>> loss, terms = twinax.gflownet.objectives.log_partition_variance(scores)  # doctest: +SKIP
    """
    unknown = sorted(set(grids) - set(GRIDS))
    if unknown:
        raise TypeError(f"batch_from_torch() got unexpected arguments {unknown}; known: {', '.join(GRIDS)}")
    needs = set(objectives.objective(objective).needs)
    if "log_inflow" in needs:
        needs |= {"log_outflow", "log_final_flow"}
    batch = {"log_pf": log_pf, "log_pb": log_pb, "log_reward": log_reward, "valid": valid, "log_z": log_z, **grids}
    check_batch(batch, needs)
    arrays = {name: host_array(name, value) for name, value in batch.items() if value is not None}
    steps = arrays["valid"]
    # Objectives sum over time, so what stands in the padding (often -inf or the last value) must be 0.
    for name in ("log_pf", "log_pb", *GRIDS):
        if name in arrays:
            arrays[name] = np.where(steps, arrays[name], np.zeros((), arrays[name].dtype))
    for name in ("log_pf", "log_pb"):
        arrays.setdefault(name, np.zeros(steps.shape, arrays["log_reward"].dtype))
    if "log_z" in arrays:
        arrays["log_z"] = np.asarray(np.sum(arrays["log_z"]), arrays["log_reward"].dtype)
    return Scores(**to_jax(arrays))


def check_batch(batch: Mapping[str, Any], needs: Collection[str] = ()) -> None:
    """Raise a `TwinaxError` for what is missing or does not fit.

    `batch` has `log_pf`, `log_pb` and `valid` of shape (time, batch), `log_reward` of shape (batch,) and, where
    `needs` names them, the arrays of `GRIDS` and `log_z`: the names of `twinax.gflownet.Scores`.

    >>> check_batch({"log_pf": None, "log_pb": None, "valid": None, "log_reward": None})
    Traceback (most recent call last):
    twinax.errors.TwinaxError: the batch has no 'valid': pass a boolean array (time, batch), True at each step taken
    """
    if not isinstance(batch, Mapping):
        raise TwinaxError(f"a batch is a mapping from names to arrays, not a {type(batch).__name__}")
    arrays = {name: host_array(name, value) for name, value in batch.items() if value is not None}
    valid = _check_valid(arrays)
    _check_reward(arrays, valid.shape)
    if "log_inflow" not in needs:  # flow matching balances edge flows and has no use for log-probabilities
        _check_log_probs(arrays, valid)
    for name in GRIDS:
        if name in needs or name in arrays:
            _check_grid(name, arrays, valid)
    if "log_z" in needs or "log_z" in arrays:
        _check_log_z(arrays)


def _check_valid(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if "valid" not in arrays:
        raise TwinaxError("the batch has no 'valid': pass a boolean array (time, batch), True at each step taken")
    valid = arrays["valid"]
    if valid.ndim != 2:
        raise TwinaxError(f"'valid' has shape {valid.shape}; it must be (time, batch)")
    if valid.dtype != np.bool_:
        raise TwinaxError(f"'valid' is {valid.dtype}; it must be boolean")
    if valid.shape[0] == 0 or not valid[0].all():
        raise TwinaxError("'valid' must be True at the first step of every trajectory: each takes at least one action")
    if (valid[1:] & ~valid[:-1]).any():
        raise TwinaxError(
            "'valid' has steps after a trajectory's end; it must be True up to the last action, then False"
        )
    return valid


def _check_reward(arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
    if "log_reward" not in arrays:
        raise TwinaxError(
            "the batch has no 'log_reward': no proxy or reward was set; set it, compute the reward of each "
            "trajectory's final state, and pass its logarithm"
        )
    reward = arrays["log_reward"]
    if reward.shape != shape[1:]:
        hint = "; time comes first, so transpose the others" if reward.shape == shape[:1] else ""
        raise TwinaxError(
            f"'log_reward' has shape {reward.shape} but 'valid' is {shape}, so it must be {shape[1:]}{hint}"
        )
    if not np.isfinite(reward).all():
        index = int(np.argmin(np.isfinite(reward)))
        raise TwinaxError(
            f"'log_reward' of trajectory {index} is {reward[index]}; rewards must be above 0 and finite: "
            "give impossible objects a small reward"
        )


def _check_log_probs(arrays: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
    for name in ("log_pf", "log_pb"):
        if name not in arrays:
            raise TwinaxError(
                f"the batch has no '{name}': the log-probabilities were never computed; evaluate the policy on "
                "the states and actions of the batch"
            )
        values = arrays[name]
        _same_shape(name, values, valid)
        _finite(name, values, valid)
        if (values[valid] > 0).any() and not np.isclose(values[valid].max(), 0, atol=1e-4):
            raise TwinaxError(
                f"'{name}' is as large as {values[valid].max():.4g}; a log-probability is at most 0: "
                "pass log-probabilities, not probabilities or logits"
            )
    # log_pb may be 0 everywhere, where each state has one parent; log_pf only if there was never a choice.
    if not arrays["log_pf"][valid].any():
        raise TwinaxError(
            f"'log_pf' is exactly 0 at all {int(valid.sum())} steps: the log-probabilities were never computed; "
            "evaluate the policy on the states and actions of the batch"
        )


def _check_grid(name: str, arrays: Mapping[str, np.ndarray], valid: np.ndarray) -> None:
    if name not in arrays:
        raise TwinaxError(f"the batch has no '{name}', which this objective needs: pass {GRIDS[name]}, (time, batch)")
    _same_shape(name, arrays[name], valid)
    _finite(name, arrays[name], valid)


def _check_log_z(arrays: Mapping[str, np.ndarray]) -> None:
    if "log_z" not in arrays:
        raise TwinaxError(
            "log Z is missing: this objective needs it; pass log_z (a number, or parameters whose sum is log Z), or "
            "choose an objective without it, such as log_partition_variance or detailed_balance"
        )
    if not np.isfinite(arrays["log_z"]).all():
        raise TwinaxError(f"log_z is {arrays['log_z']}; it must be finite")


def _same_shape(name: str, values: np.ndarray, valid: np.ndarray) -> None:
    if values.shape != valid.shape:
        hint = "; time comes first, so transpose it" if values.shape == valid.shape[::-1] else ""
        raise TwinaxError(f"'{name}' has shape {values.shape} but 'valid' has shape {valid.shape}{hint}")


def _finite(name: str, values: np.ndarray, valid: np.ndarray) -> None:
    bad = np.argwhere(valid & ~np.isfinite(values))
    if len(bad):
        step, trajectory = bad[0]
        raise TwinaxError(
            f"'{name}' is {values[step, trajectory]} at step {step} of trajectory {trajectory}: "
            "an action that the mask forbids, or an overflow"
        )
