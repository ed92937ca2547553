"""What tests of exported policies share."""

from __future__ import annotations

import dataclasses

import numpy as np

from twinax import tree
from twinax.deploy import Trained, load_policy, load_torch_policy


def perturbed(problem, size, seed=0):
    """What was learned, with numbers everywhere: fresh actors begin nearly indifferent."""
    rng = np.random.default_rng(seed)
    state = problem.init(seed)

    def moved(x):
        return (x + size * rng.normal(size=x.shape)).astype(x.dtype)

    return Trained(problem, dataclasses.replace(state, networks=tree.map_leaves(moved, state.networks)))


def both_forms_act_alike(trained, x, tmp_path, **options):
    """Export in both forms; each gives the actions that the library gives, and these are not all alike."""
    import torch

    wanted = trained.act(x, deterministic=True, **options)
    assert len(np.unique(wanted)) > 1
    for name in ("policy.onnx", "policy.safetensors"):
        done = trained.export(tmp_path / name, **options)
        assert done.difference < 1e-5
        seen = torch.from_numpy(x.astype(done.description["input"]["type"]))
        onnx = name.endswith("onnx")
        action = load_policy(done.path).act(x) if onnx else load_torch_policy(done.path)(seen).numpy()
        np.testing.assert_allclose(action, wanted, atol=1e-5)
    np.testing.assert_allclose(trained.torch_module(**options)(seen).numpy(), wanted, atol=1e-5)
