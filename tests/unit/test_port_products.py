"""What a step does for speed gives the numbers that it would have without, and a changed module is still noticed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax.port import Step
from twinax.port._products import product, quick_gradients, rows
from twinax.port._updates import square_sum

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.mark.parametrize("shape", [(5, 3, 16), (5, 16, 3), (1, 4, 4), (6, 2, 1)])
def test_quick_gradients_are_the_usual_ones(shape):
    batch, inputs, outputs = shape
    generator = np.random.default_rng(0)
    x, w, b, y = (
        jnp.asarray(generator.normal(size=one), jnp.float32)
        for one in ((batch, inputs), (outputs, inputs), (outputs,), (batch, outputs))
    )

    def loss(x, w, b):
        out = product(x, w.T)
        return jnp.sum(jnp.sin(out + rows(b, out.shape)) * y)

    usual = jax.grad(loss, (0, 1, 2))(x, w, b)
    with quick_gradients():
        quick = jax.jit(jax.grad(loss, (0, 1, 2)))(x, w, b)
    for one, other in zip(usual, quick, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
    assert jax.jvp(lambda x: product(x, w.T), (x,), (x,))[1].shape == y.shape  # outside of it also forwards


@pytest.mark.parametrize("size", [1, 255, 256, 1000])
def test_squares_are_summed_whatever_their_number(size):
    x = np.random.default_rng(size).normal(size=size)
    assert np.isclose(float(square_sum(jnp.asarray(x, jnp.float32))), np.square(x).sum(), rtol=1e-5)


def test_a_part_put_in_behind_the_steps_back_is_noticed_and_evaluation_is_another_program():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    step = Step(module, lambda m, b: m(b["x"]).mean(), torch.optim.SGD(module.parameters(), 0.1), check=False)
    batch = {"x": torch.ones(2, 3)}
    step(batch)
    step(batch)
    assert len(set(map(id, step._programs.values()))) == 1
    module.eval()
    step(batch)
    assert len(set(map(id, step._programs.values()))) == 2
    module[2] = nn.Linear(4, 1)
    with pytest.raises(Exception, match=r"'2\.weight' was changed outside of the step"):
        step(batch)


def test_a_steps_vectors_stay_where_they_are():
    module = nn.Linear(3, 4)
    step = Step(module, lambda m, b: m(b["x"]).square().mean(), torch.optim.Adam(module.parameters()), check=False)
    places = set()
    for _ in range(4):
        step({"x": torch.ones(2, 3)})
        places.add(step._moving["blocks"][0].unsafe_buffer_pointer())
    assert len(places) == 1


def test_casts_of_a_loss_are_captured():
    module = nn.Linear(3, 4)

    def loss(m, b):
        return -torch.distributions.Categorical(logits=m(b["x"])).log_prob(b["action"]).mean()

    step = Step(module, loss, torch.optim.Adam(module.parameters()))
    assert np.isfinite(step({"x": torch.ones(2, 3), "action": torch.tensor([0, 3])})["loss"])
