"""Running statistics of a BatchNorm of Equinox, which lie in a state beside the module."""

from __future__ import annotations

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twinax.bridge.conversion._inference import same_numbers

STATISTICS = ("running_mean", "running_var")


def statistics_of(norm: eqx.nn.BatchNorm, state: eqx.nn.State, name: str) -> tuple:
    """Mean, variance, what is lost and what is worth saying."""
    if norm.mode == "ema":
        mean, var = (np.asarray(x) for x in state.get(norm.ema_state_index))  # type: ignore[arg-type]
        if bool(state.get(norm.ema_first_time_index)):  # type: ignore[arg-type]
            mean, var = np.zeros_like(mean), np.ones_like(var)
        text = f"'{name}' has mode='ema': in training it divides by the running variance, the others by the batch's"
        return mean, var, (), (text,)
    count = int(state.get(norm.batch_counter))  # type: ignore[arg-type]
    mean, var = (np.asarray(x) for x in state.get(norm.batch_state_index))  # type: ignore[arg-type]
    share = mean.dtype.type(1 - norm.momentum**count) if count else mean.dtype.type(1)
    text = f"'{name}' still weighs its statistics up (batches so far: {count}), and this weight has no place elsewhere"
    return mean / share, var / share, (text,) if share != 1 else (), ()


def with_statistics(norm: eqx.nn.BatchNorm, state: eqx.nn.State, values: list[np.ndarray]) -> eqx.nn.State:
    """The state with this mean and variance, from which training goes on as it would in PyTorch."""
    index = norm.ema_state_index if norm.mode == "ema" else norm.batch_state_index
    before = state.get(index)  # type: ignore[arg-type]
    state = state.set(index, tuple(same_numbers(x, old) for x, old in zip(values, before, strict=True)))  # type: ignore
    if norm.mode == "ema":
        return state.set(norm.ema_first_time_index, jnp.array(False))  # type: ignore[arg-type]
    # After so many batches the weight of the beginning is gone in any precision, as it is in PyTorch.
    count = math.ceil(60 * math.log(2) / -math.log(norm.momentum)) if 0 < norm.momentum < 1 else 1
    return state.set(norm.batch_counter, 0 * state.get(norm.batch_counter) + count)  # type: ignore[arg-type]
