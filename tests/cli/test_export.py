"""`twinax export`: from a run to a policy elsewhere, and one sentence where that cannot be."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

TINY = [
    "experiment=ppo",
    "ppo.num_envs=4",
    "ppo.num_steps=8",
    "ppo.num_minibatches=2",
    "ppo.hidden=[8]",
    "ppo.episodes=2",
    "env.time_limit=10",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of several engines, precisions and numbers of seeds."""
    from twinax.cli import main

    path = tmp_path_factory.mktemp("runs")
    for name, words in {
        "cart": ["env=cartpole", "trainer.mode=torch"],
        "double": ["env=pendulum", "trainer.mode=torch", "trainer.dtype=float64", "ppo.normalise_observations=true"],
        "seeds": ["env=pendulum", "ppo.policy=tanh", "seeds=2", "seed=5"],
    }.items():
        assert main(["train", "--quiet", *TINY, *words, "trainer.steps=2", f"run.dir={path / name}"]) == 0
    return path


@pytest.mark.parametrize("name", ["cart", "double", "seeds"])
def test_a_run_is_exported_and_acts_as_in_its_evaluation(twinax, runs, tmp_path, name):
    from twinax import deploy

    done = twinax("export", str(runs / name), "policy.onnx")
    assert done.code == 0, done.err
    assert "largest difference" in done.out and "policy.json" in done.out
    run, loaded = deploy.load(runs / name), deploy.load_policy(tmp_path / "policy.onnx")
    x = np.random.default_rng(0).normal(size=(20, *loaded.shape)).astype(np.float32)
    np.testing.assert_allclose(loaded.act(x), run.act(x, deterministic=True), atol=1e-5)
    spec = json.loads((tmp_path / "policy.json").read_text())
    assert spec["run"]["step"] == 2 and spec["run"]["config"]["ppo"]["hidden"] == [8]
    assert str(runs) not in (tmp_path / "policy.json").read_text()


def test_the_policy_is_that_of_the_checkpoint(runs):
    from safetensors.numpy import load_file

    from twinax import deploy

    stored = load_file(runs / "seeds" / "checkpoints" / "0000000002" / "state.safetensors")
    for seed in (5, 6):
        layer = deploy.load(runs / "seeds", seed=seed).networks["agent"].actor.layers[0]
        np.testing.assert_array_equal(layer.weight, stored["networks.agent.actor.layers.0.weight"][seed - 5])


def test_both_forms_lie_side_by_side(twinax, runs, tmp_path):
    import torch

    from twinax import deploy

    for name in ("policy.onnx", "policy.safetensors"):
        assert twinax("export", str(runs / "double"), name).code == 0
    x = np.ones((3, 3), np.float32)
    action = deploy.load_torch_policy(tmp_path / "policy.safetensors")(torch.from_numpy(x))
    np.testing.assert_allclose(action, deploy.load_policy(tmp_path / "policy.json").act(x), atol=1e-6)


def test_wrong_input_is_one_sentence(twinax, runs, trained, tmp_path):
    empty = tmp_path / "empty"
    shutil.copytree(runs / "cart", empty, ignore=shutil.ignore_patterns("checkpoints"))
    foreign = tmp_path / "python"
    foreign.mkdir()
    for words, sentence in (
        (
            (str(trained), "policy.onnx"),
            "is of a GFlowNet, which has no export; it has sample, top_k, evaluate; export is for runs of",
        ),
        ((str(empty), "policy.onnx"), "it has no checkpoint, so nothing is trained in it yet"),
        ((str(foreign), "policy.onnx"), "has no config.yaml"),
        ((str(tmp_path / "nowhere"), "policy.onnx"), "there is no run directory"),
        ((str(runs / "cart"), "policy.pt"), "would hold a pickle"),
        ((str(runs / "cart"), "policy"), "end its name with .onnx or .safetensors"),
        ((str(runs / "cart"), "policy.onnx", "--seed", "3"), "there is no seed 3 in this run; it has seeds 0 to 0"),
        ((str(runs / "cart"), "/dev/null/policy.onnx"), "cannot be written into /dev/null: File exists"),
    ):
        done = twinax("export", *words)
        assert done.code != 0 and sentence in done.err, done.err
        assert done.err.startswith("error: ") and done.err.count("\n") == 1
    assert not (tmp_path / "policy.onnx").exists()
