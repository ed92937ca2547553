"""Gradients that PyTorch has as operators of their own: where a loss takes a gradient itself, as a penalty does."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from twinax import ops
from twinax.port._table import operator
from twinax.port.operators import windows
from twinax.port.operators.convolution import convolution
from twinax.port.operators.norms import by_channel


def pulled(function, gradient, *primals):
    """The gradients by `primals` of what `function` gives."""
    return jax.vjp(function, *primals)[1](gradient.astype(jax.eval_shape(function, *primals).dtype))


def masked(gradients, mask):
    """PyTorch gives those that were asked for."""
    return tuple(one if asked else None for one, asked in zip(gradients, mask, strict=True))


@operator("aten.convolution_backward.default")
def convolution_backward(gradient, x, weight, bias_sizes, *options):
    *options, mask = options
    x_gradient, weight_gradient = pulled(lambda x, weight: convolution(x, weight, None, *options), gradient, x, weight)
    bias_gradient = gradient.sum([axis for axis in range(gradient.ndim) if axis != 1])
    return masked((x_gradient, weight_gradient, bias_gradient), mask)


@operator("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(gradient, x, shape, mean, rstd, weight, bias, mask):
    lead = tuple(range(x.ndim - len(shape)))
    standard = (x - mean) * rstd
    inner = gradient if weight is None else gradient * weight
    x_gradient = through_standardising(inner, standard, rstd, tuple(range(len(lead), x.ndim)))
    return masked((x_gradient, (gradient * standard).sum(lead), gradient.sum(lead)), mask)


@operator("aten.native_group_norm_backward.default")
def native_group_norm_backward(gradient, x, mean, rstd, weight, batch, channels, places, groups, mask):
    grouped, mean, rstd = x.reshape(batch, groups, -1), mean[..., None], rstd[..., None]
    standard = (grouped - mean) * rstd
    inner = gradient if weight is None else gradient * by_channel(weight, x.ndim)
    x_gradient = through_standardising(inner.reshape(grouped.shape), standard, rstd, (2,)).reshape(x.shape)
    others = [axis for axis in range(x.ndim) if axis != 1]
    return masked((x_gradient, (gradient * standard.reshape(x.shape)).sum(others), gradient.sum(others)), mask)


@operator("aten.native_batch_norm_backward.default")
def native_batch_norm_backward(gradient, x, weight, running_mean, running_var, save_mean, save_rstd, train, eps, mask):
    mean, rstd = (save_mean, save_rstd) if train else (running_mean, 1 / jnp.sqrt(running_var + eps))
    mean, rstd = by_channel(mean, x.ndim), by_channel(rstd, x.ndim)
    others = tuple(axis for axis in range(x.ndim) if axis != 1)
    standard = (x - mean) * rstd
    inner = gradient if weight is None else gradient * by_channel(weight, x.ndim)
    x_gradient = through_standardising(inner, standard, rstd, others) if train else inner * rstd
    return masked((x_gradient, (gradient * standard).sum(others), gradient.sum(others)), mask)


def through_standardising(gradient, standard, rstd, axes):
    """d x of y = (x - mean(x)) / deviation(x): what changes mean or deviation is taken away."""
    along = standard * jnp.mean(gradient * standard, axes, keepdims=True)
    return rstd * (gradient - jnp.mean(gradient, axes, keepdims=True) - along)


@operator("aten.avg_pool2d_backward.default")
def avg_pool2d_backward(gradient, x, *options):
    return pulled(lambda x: windows.avg_pool2d(x, *options), gradient, x)[0]


@operator("aten.avg_pool3d_backward.default")
def avg_pool3d_backward(gradient, x, *options):
    return pulled(lambda x: windows.avg_pool3d(x, *options), gradient, x)[0]


@operator("aten._adaptive_avg_pool2d_backward.default")
def adaptive_avg_pool2d_backward(gradient, x):
    return pulled(lambda x: windows.adaptive_average(x, gradient.shape[-2:]), gradient, x)[0]


@operator("aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool3d_backward(gradient, x):
    return pulled(lambda x: windows.adaptive_average(x, gradient.shape[-3:]), gradient, x)[0]


@operator("aten.max_pool2d_with_indices_backward.default")
def max_pool2d_with_indices_backward(gradient, x, kernel, stride, padding, dilation, ceil_mode, indices):
    return pulled(
        lambda x: windows.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[0], gradient, x
    )[0]


@operator("aten.max_pool3d_with_indices_backward.default")
def max_pool3d_with_indices_backward(gradient, x, kernel, stride, padding, dilation, ceil_mode, indices):
    return pulled(
        lambda x: windows.max_pool3d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[0], gradient, x
    )[0]


@operator("aten.embedding_dense_backward.default")
def embedding_dense_backward(gradient, indices, rows, padding_row, scale_by_frequency):
    """Rows' gradients added up; the padding row has none."""
    flat = indices.reshape(-1)
    gradient = gradient.reshape(flat.shape[0], math.prod(gradient.shape[indices.ndim :]))
    if scale_by_frequency:
        gradient = gradient / jnp.zeros(rows, gradient.dtype).at[flat].add(1)[flat][:, None]
    gradient = ops.where((flat == padding_row)[:, None], 0, gradient)
    return jnp.zeros((rows, gradient.shape[1]), gradient.dtype).at[flat].add(gradient)
