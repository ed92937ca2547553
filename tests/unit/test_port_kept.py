"""Operators that are not taken apart, since their parts have no finite gradient where they have one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch

from twinax.port._capture import capture
from twinax.port._evaluate import evaluate


def test_gradients_stay_finite():
    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.softplus(x) + torch.nn.functional.mish(x) + x.std()

    x = torch.full((3,), 1000.0, requires_grad=True)
    module = Module()
    (expected,) = torch.autograd.grad(module(x).sum(), x)
    program = capture(module, (x.detach(),)).program
    slope = jax.grad(lambda x: evaluate(program, {}, {}, [x], {})[0][0].sum())(jnp.full(3, 1000.0))
    np.testing.assert_allclose(slope, expected.numpy(), rtol=1e-6)
