"""A JAX function as an `nn.Module`, and a person's module as a network of a problem."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import twinax as tx
from twinax.errors import TwinaxError

torch = pytest.importorskip("torch")
nn = torch.nn


def affine(params, inputs, scale):
    hidden = jnp.tanh(inputs["x"] @ params["layers"][0]["weight"].T + params["layers"][0]["bias"])
    return {"out": hidden * scale, "sign": hidden > 0}


def parameters():
    rng = np.random.default_rng(0)
    layer = {"weight": rng.normal(size=(2, 3)).astype(np.float32), "bias": rng.normal(size=2).astype(np.float32)}
    return {"layers": [layer]}


def test_a_jax_function_is_a_module_with_jaxs_gradients():
    module = tx.port.module(affine, parameters())
    assert set(module.state_dict()) == {"layers.0.weight", "layers.0.bias"}
    x = torch.randn(5, 3, requires_grad=True)
    found = module({"x": x}, 2.0)
    theirs = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
    y = x.detach().clone().requires_grad_()
    expected = 2 * torch.tanh(nn.functional.linear(y, theirs["layers.0.weight"], theirs["layers.0.bias"]))
    torch.testing.assert_close(found["out"], expected)
    assert torch.equal(found["sign"], expected > 0) and not found["sign"].requires_grad
    weight = torch.randn(5, 2)
    (found["out"] * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    for name, p in module.named_parameters():
        torch.testing.assert_close(p.grad, theirs[name].grad)


def test_it_is_trained_by_an_optimizer_of_pytorch():
    module = tx.port.module(lambda p, x: jnp.square(x @ p["w"] - 1).mean(), {"w": np.zeros((3, 1), np.float32)})
    optimizer = torch.optim.Adam(module.parameters(), 0.1)
    x = torch.eye(3)
    for _ in range(200):
        optimizer.zero_grad()
        loss = module(x)
        loss.backward()
        optimizer.step()
    np.testing.assert_allclose(module.w.detach(), 1, atol=1e-2)


class Policy(nn.Module):
    def __init__(self, columns: int, outputs: int):
        super().__init__()
        self.body, self.heads = nn.Linear(columns, 16), nn.Linear(16, outputs)

    def forward(self, x):
        return self.heads(torch.tanh(self.body(x)))


def made(spec):
    return Policy(spec.observation.size, spec.outputs)


ENV = tx.envs.Hypergrid(dim=2, side=4)


def test_a_module_of_ones_own_trains_in_every_mode(tmp_path):
    problem = tx.gflownet.problem(ENV, network=tx.port.network(made), batch_size=4)
    tx.parity.check(problem, steps=3).raise_if_different()
    whole = tx.train(problem, mode="jax", steps=6, seed=1, run_dir=tmp_path / "whole")
    part = tx.train(problem, mode="torch", steps=3, seed=1, run_dir=tmp_path / "part")
    other = tx.resume(tmp_path / "part", problem=problem, mode="jax", steps=6)
    assert part.summary["loss"] != whole.summary["loss"] == pytest.approx(other.summary["loss"], rel=1e-4)


def test_every_seed_has_fresh_weights_of_a_function_and_those_of_a_module():
    spec = tx.networks.NetworkSpec("policy", np.ones((1, 3), np.float32), {"forward": 2})
    seeds = [np.random.default_rng(seed) for seed in (0, 1, 1)]
    fresh = [tx.port.network(lambda spec: Policy(3, 2))(rng, spec).parameters["body.weight"] for rng in seeds]
    assert not np.array_equal(fresh[0], fresh[1]) and np.array_equal(fresh[1], fresh[2])
    own = Policy(3, 2)
    kept = [tx.port.network(own)(rng, spec).parameters["body.weight"] for rng in seeds[:2]]
    assert all(np.array_equal(one, own.body.weight.detach()) for one in kept)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (lambda spec: nn.Sequential(Policy(8, spec.outputs), nn.Dropout()), r"is random .*call module.eval"),
        (
            lambda spec: nn.Sequential(Policy(8, spec.outputs), nn.BatchNorm1d(spec.outputs)),
            r"changes '1.running_mean'",
        ),
        (lambda spec: np.zeros(3), r"made a ndarray; it must make an nn.Module"),
        (3, r"an nn.Module or a function that makes one, but this is a int"),
        (Policy(8, 3), r"gives the shape \(1, 3\) for one observation"),
    ],
)
def test_modules_that_are_no_network_are_one_sentence(module, said):
    with pytest.raises(TwinaxError, match=said):
        tx.gflownet.problem(ENV, network=tx.port.network(module)).init(0)


def test_what_was_trained_goes_back_into_the_persons_own_module():
    class Cast(Policy):
        def forward(self, x):
            return super().forward(x.float())  # in float64 the proof asks for doubles all the same

    network = tx.port.network(lambda spec: Cast(spec.observation.size, spec.outputs))
    problem = tx.gflownet.problem(ENV, network=network, batch_size=4)
    tx.parity.check(problem, modes=("torch", "hybrid"), steps=1).raise_if_different()
    trained = tx.train(problem, mode="jax", steps=3, progress=False).networks.policy.network
    module, x = trained.module(), np.ones((2, 8), np.float32)
    np.testing.assert_allclose(module(torch.from_numpy(x)).detach(), trained(jnp.asarray(x)), atol=1e-6)
    assert not torch.equal(module.body.weight, trained.function.module.body.weight)
