"""Masks as indices, from the person's code to the compiled function."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from twinax import port
from twinax.errors import TwinaxError

X = torch.arange(12.0).reshape(4, 3) - 5


class Reads(torch.nn.Module):
    def __init__(self, mask, buffer=False):
        super().__init__()
        if buffer:
            self.register_buffer("mask", mask)
        else:
            self.mask = mask

    def forward(self, x):
        return x[:, self.mask].sum(1)


class Picks(torch.nn.Module):
    def forward(self, x, mask):
        return x[mask] * 2


class Clears(torch.nn.Module):
    def forward(self, x, mask):
        y = x.clone()
        y[mask] = 0.5
        return y


def test_a_mask_that_never_changes_is_compiled():
    module = Reads(torch.tensor([True, False, True]))
    ported = port.function(module, X, check=False)
    np.testing.assert_array_equal(jax.jit(ported)({}, X.numpy()), module(X).numpy())


def test_a_mask_in_a_buffer_is_refused_with_its_line():
    with pytest.raises(TwinaxError, match=r"torch\.where, multiply.*test_port_masks\.py:\d+: .*x\[:, self\.mask\]"):
        port.function(Reads(torch.tensor([True, False, True]), buffer=True), X, check=False)


def test_a_computed_mask_is_refused_with_its_line():
    with pytest.raises(TwinaxError, match=r"torch\.where, multiply.*test_port_masks\.py:\d+: return x\[mask\]"):
        port.function(Picks(), X, X > 0, check=False)


def test_writing_by_a_computed_mask_is_compiled():
    ported = port.function(Clears(), X, X > 0, check=False)
    np.testing.assert_array_equal(jax.jit(ported)({}, X.numpy(), (X > 0).numpy()), Clears()(X, X > 0).numpy())
