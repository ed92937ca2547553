"""Pools, padding, patches and resampling of the table against PyTorch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from port_operators import check_operator

from twinax.port._table import OPERATORS

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape)


def tied(*shape):
    """Few values, so that maxima are tied."""
    return RNG.integers(0, 3, shape).astype(float)


@settings(max_examples=8)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.integers(1, 2), st.booleans(), st.integers(5, 9))
def test_max_pool(kernel, stride, padding, dilation, ceil_mode, size):
    assume(padding <= kernel // 2 and size + 2 * padding > dilation * (kernel - 1))
    options = ([kernel, 2], [stride, 1], [padding, 1], [dilation, 2], ceil_mode)
    check_operator("aten.max_pool2d_with_indices.default", tied(2, 2, size, 6), *options)


@settings(max_examples=8)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(4, 9))
def test_avg_pool(kernel, stride, padding, ceil_mode, count_include_pad, size):
    assume(padding <= kernel // 2)
    options = ([kernel, 2], [stride, 2], [padding, 1], ceil_mode, count_include_pad)
    x = normal(2, 2, size, 6)
    check_operator("aten.avg_pool2d.default", x, *options)
    check_operator("aten.avg_pool2d.default", x, *options, 5)


def test_pools_of_other_ranks():
    check_operator("aten.avg_pool1d.default", normal(2, 3, 7), [3], [2], [1], True, False)
    check_operator("aten.avg_pool3d.default", normal(2, 2, 5, 4, 6), [2, 3, 2], [2], [1], True, False)
    check_operator("aten.avg_pool3d.default", normal(2, 5, 4, 6), 2)
    check_operator("aten.max_pool3d_with_indices.default", tied(2, 2, 5, 4, 6), [2, 3, 2], [2, 1, 2], [1], [1], True)
    check_operator("aten.max_pool2d_with_indices.default", tied(2, 5, 4), 2)


def test_max_pool_of_nothing_finite_gives_the_first_place_inside():
    x = np.full((1, 1, 4, 4), -np.inf)
    check_operator("aten.max_pool2d_with_indices.default", x, [3, 3], [2, 2], [1, 1], gradients=False)


def test_max_pool_gives_the_last_nan():
    x = normal(1, 1, 5, 5)
    x[0, 0, 1, 1] = x[0, 0, 1, 3] = x[0, 0, 2, 2] = np.nan
    check_operator("aten.max_pool2d_with_indices.default", x, [3, 3], [1, 1], gradients=False)


def test_max_pool_of_integers():
    check_operator("aten.max_pool2d_with_indices.default", -RNG.integers(1, 9, (1, 1, 5, 5)), [3, 3], [2, 2], [1, 1])


@pytest.mark.parametrize("out", [1, 3, 5])
def test_adaptive_average_over_one_axis(out):
    check_operator("aten.adaptive_avg_pool1d.default", normal(2, 3, 7), [out])


@pytest.mark.parametrize("out", [(1, 1), (2, 3), (5, 4), (6, 6), (7, 9), (4, 12)])
def test_adaptive_pools(out):
    check_operator("aten._adaptive_avg_pool2d.default", normal(2, 2, 6, 8), out)
    check_operator("aten.adaptive_max_pool2d.default", tied(2, 2, 6, 8), out)


def test_adaptive_pools_of_three_axes():
    check_operator("aten._adaptive_avg_pool3d.default", normal(2, 2, 6, 5, 4), [3, 2, 4])
    check_operator("aten.adaptive_max_pool3d.default", tied(2, 6, 5, 4), [4, 2, 3])


@pytest.mark.parametrize(
    "size, factors", [((5, 7), None), ((12, 8), None), ((3, 4), None), (None, (1.7, 0.6)), (None, (2.0, 3.0))]
)
def test_upsampling_of_images(size, factors):
    x = normal(2, 2, 6, 4)
    check_operator("aten.upsample_nearest2d.vec", x, size, factors)
    for align_corners in (False, True):
        check_operator("aten.upsample_bilinear2d.vec", x, size, align_corners, factors)


def test_upsampling_of_other_ranks():
    check_operator("aten.upsample_nearest1d.vec", normal(2, 2, 6), [9], None)
    check_operator("aten.upsample_nearest3d.vec", normal(2, 2, 3, 4, 2), [6, 6, 1], None)
    check_operator("aten.upsample_linear1d.vec", normal(2, 2, 6), [9], False, None)
    check_operator("aten.upsample_trilinear3d.vec", normal(2, 2, 3, 4, 2), None, True, [2.0, 1.5, 2.0])
    check_operator("aten.upsample_nearest2d.default", normal(2, 2, 3, 4), [7, 5])
    check_operator("aten.upsample_bilinear2d.default", normal(2, 2, 3, 4), [7, 1], True)


@settings(max_examples=6)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(1, 3), st.booleans())
def test_patches_and_back(kernel, dilation, padding, stride, batched):
    lead = (2,) if batched else ()
    options = ([kernel, 2], [dilation, 1], [padding, 1], [stride, 2])
    check_operator("aten.im2col.default", normal(*lead, 3, 7, 6), *options)
    windows = ((7 + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1) * 4
    check_operator("aten.col2im.default", normal(*lead, 3 * kernel * 2, windows), [7, 6], *options)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("interpolation", [0, 1, 2])
def test_reading_at_places(interpolation, padding, align_corners):
    x, grid = normal(2, 3, 5, 4), RNG.uniform(-2.5, 2.5, (2, 6, 7, 2))
    check_operator("aten.grid_sampler_2d.default", x, grid, interpolation, padding, align_corners, tolerance=1e-11)


def test_reading_at_the_corners():
    corners = np.array([[[[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]]])
    for padding in (0, 1):
        check_operator("aten.grid_sampler_2d.default", normal(1, 1, 3, 3), corners, 0, padding, True)


@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_padding(kind):
    check_operator(f"aten.{kind}_pad1d.default", normal(2, 3, 5), [2, 4])
    check_operator(f"aten.{kind}_pad2d.default", normal(2, 3, 5, 4), [2, 0, 1, 3])
    check_operator(f"aten.{kind}_pad2d.default", normal(3, 5, 4), [1, 1, 1, 1])
    check_operator(f"aten.{kind}_pad3d.default", normal(2, 3, 3, 4, 5), [2, 1, 0, 3, 1, 2])
    check_operator(f"aten.{kind}_pad2d.default", normal(2, 3, 5, 6), [-1, 2, 1, -2])


def test_the_program_of_a_pool_grows_with_one_side_of_the_window():
    pool = OPERATORS["aten.max_pool2d_with_indices.default"].function

    def equations(kernel):
        return len(jax.make_jaxpr(lambda x: pool(x, (kernel, kernel))[0])(jnp.zeros((1, 1, 32, 32))).eqns)

    assert equations(16) < 2.5 * equations(8)


def test_pools_are_compiled_and_mapped():
    x = np.float32(normal(3, 2, 2, 6, 6))
    pool = OPERATORS["aten.max_pool2d_with_indices.default"].function
    found, index = jax.jit(jax.vmap(lambda one: pool(one, (2, 2))))(x)
    np.testing.assert_array_equal(found, x.reshape(3, 2, 2, 3, 2, 3, 2).max((4, 6)))
    assert index.dtype == jnp.int32
