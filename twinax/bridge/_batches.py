"""A batch made by somebody else's PyTorch code, ready for the objectives."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.bridge._arrays import host_array
from twinax.bridge._checks import GRIDS, check_batch
from twinax.bridge._exchange import to_jax


def batch_from_torch(
    *,
    log_pf: Any,
    log_pb: Any,
    log_reward: Any,
    valid: Any,
    objective: str = "trajectory_balance",
    log_z: Any = None,
    **grids: Any,
) -> Any:
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
    from twinax.gflownet import Scores, objectives

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
