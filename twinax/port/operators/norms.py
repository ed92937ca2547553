"""Normalisation. The variance is that of what is left when the mean is taken away, as PyTorch's."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from twinax.errors import TwinaxError
from twinax.port._products import rows
from twinax.port._table import operator


@operator("aten.native_layer_norm.default")
def native_layer_norm(x, shape, weight, bias, eps):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y, mean, rstd, _ = standardised(x, axes, eps)
    scale, offset = (one if one is None or one.ndim > 1 else rows(one, x.shape) for one in (weight, bias))
    return affine(y, scale, offset), lax.stop_gradient(mean), lax.stop_gradient(rstd)


@operator("aten.native_group_norm.default")
def native_group_norm(x, weight, bias, batch, channels, places, groups, eps):
    """The groups are of neighbouring channels, each over all places; in PyTorch gradients pass these statistics."""
    y, mean, rstd, _ = standardised(x.reshape(batch, groups, -1), (2,), eps)
    y = affine(y.reshape(x.shape), *(by_channel(one, x.ndim) for one in (weight, bias)))
    return y, mean[..., 0], rstd[..., 0]


@operator("aten._native_batch_norm_legit_functional.default")
def native_batch_norm_legit_functional(x, weight, bias, running_mean, running_var, training, momentum, eps):
    """Also gives the running statistics afterwards; their variance is the unbiased one."""
    if not training:
        return *batch_norm(x, weight, bias, running_mean, running_var, eps), running_mean, running_var
    y, mean, rstd, var = batch_norm_in_training(x, weight, bias, eps)
    number = math.prod(x.shape) // x.shape[1]
    unbiased = var * (number / (number - 1) if number > 1 else jnp.nan)
    running_mean, running_var = (
        lax.stop_gradient(momentum * new + (1 - momentum) * old)
        for new, old in ((mean, running_mean), (unbiased, running_var))
    )
    return y, mean, rstd, running_mean, running_var


@operator("aten._native_batch_norm_legit.default")
def native_batch_norm_legit(x, weight, bias, running_mean, running_var, training, momentum, eps):
    if training:
        raise TwinaxError(
            "a batch norm that writes its running statistics in place cannot be ported; capture it with "
            "twinax.port.function, which gives them as results"
        )
    return batch_norm(x, weight, bias, running_mean, running_var, eps)


@operator("aten._native_batch_norm_legit.no_stats")
def native_batch_norm_legit_without_statistics(x, weight, bias, training, momentum, eps):
    return batch_norm_in_training(x, weight, bias, eps)[:3]


@operator("aten._native_batch_norm_legit_no_training.default")
def native_batch_norm_legit_no_training(x, weight, bias, running_mean, running_var, momentum, eps):
    return batch_norm(x, weight, bias, running_mean, running_var, eps)


def batch_norm(x, weight, bias, mean, var, eps):
    """By given statistics; PyTorch's saved statistics are then empty."""
    scale = lax.rsqrt(var + eps)
    y = (x - by_channel(mean, x.ndim)) * by_channel(scale, x.ndim)
    return affine(y, by_channel(weight, x.ndim), by_channel(bias, x.ndim)), mean[:0], var[:0]


def batch_norm_in_training(x, weight, bias, eps):
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    y, *statistics = standardised(x, axes, eps)
    mean, rstd, var = (lax.stop_gradient(one.reshape(-1)) for one in statistics)
    return affine(y, by_channel(weight, x.ndim), by_channel(bias, x.ndim)), mean, rstd, var


def standardised(x, axes, eps):
    """Over the axes: mean zero and variance one; then the mean, one over the deviation, and the variance."""
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x - mean
    var = jnp.mean(centred * centred, axes, keepdims=True)
    rstd = lax.rsqrt(var + eps)
    return centred * rstd, mean, rstd, var


def affine(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def by_channel(x, rank):
    """One number for each channel, the second axis of so many."""
    return x if x is None else x.reshape(-1, *[1] * (rank - 2))
