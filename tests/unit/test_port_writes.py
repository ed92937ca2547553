"""Writes in place through `detach`, which PyTorch lets others see, and a captured program would lose."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from twinax import port
from twinax.errors import TwinaxError

X = torch.arange(6.0).reshape(2, 3)


class Module(torch.nn.Module):
    def __init__(self, write):
        super().__init__()
        self.write = write
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.write(self, x)


def parameter(self, x):
    self.scale.detach().mul_(2.0)
    return x * self.scale


def view_of_an_input(self, x):
    x.detach()[0].mul_(2.0)
    return x * self.scale


def what_is_read_again(self, x):
    y = x * self.scale
    y.detach().mul_(2.0)
    return y


@pytest.mark.parametrize("write", [parameter, view_of_an_input, what_is_read_again])
def test_is_refused_where_others_would_see_it(write):
    with pytest.raises(TwinaxError, match=r"in place through \.detach\(\).*\(\.detach\(\)\.clone\(\)\)"):
        port.function(Module(write), X, check=False)


def test_is_fine_where_nobody_else_reads():
    def own(self, x):
        return (x * self.scale).detach().mul_(2.0) + x

    module = Module(own)
    ported = port.function(module, X, check=False)
    np.testing.assert_array_equal(ported(ported.params, X.numpy()), module(X).detach().numpy())


def test_embeddings_that_are_renormed_are_refused():
    with pytest.raises(TwinaxError, match="max_norm"):
        port.function(torch.nn.Embedding(5, 3, max_norm=1.0), torch.tensor([0, 2]), check=False)
