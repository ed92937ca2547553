"""Exported policies: equal to the library's, whole, unchanged since, and free of pickles."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from exported import both_forms_act_alike, perturbed

from twinax import tree
from twinax.deploy import _export, _onnx, export, load_policy, load_torch_policy
from twinax.deploy._torch_policy import arrays, make_torch_policy, structure
from twinax.envs import CartPole, Pendulum
from twinax.envs.biped import Biped
from twinax.errors import TwinaxError
from twinax.networks import ACTIVATIONS
from twinax.ppo import Policy, RunningMoments, problem
from twinax.ppo._exportable import exportable

SMALL: dict = {"num_envs": 4, "num_steps": 4, "num_minibatches": 2}


def state_of(agent, moments) -> Any:
    """What a policy reads of a state."""
    return SimpleNamespace(networks={"agent": agent}, carry=SimpleNamespace(observation=moments))


def policy_of(world, seed=0, **settings) -> Policy:
    """A policy with numbers everywhere: fresh actors begin nearly indifferent, and fresh statistics do nothing."""
    subject = problem(world, **{"hidden": (16, 8), **SMALL, **settings})
    rng = np.random.default_rng(seed)
    agent = tree.map_leaves(lambda x: x + rng.normal(size=x.shape).astype(np.float32) * 0.3, subject.networks(rng))
    moments = None
    if subject.normalise_observations:
        size = world.observation_size
        moments = RunningMoments(rng.normal(size=size), rng.uniform(0.01, 4, size), np.array(100.0))
    return Policy.of(subject, state_of(agent, moments))


def module_of(policy: Policy):
    """As a plain PyTorch module."""
    made = exportable(policy)
    return make_torch_policy(structure(made), arrays(made))


def by_hand(policy: Policy, x: np.ndarray, act, tanh: bool) -> np.ndarray:
    """The mean action, written out in float64."""
    if policy.moments is not None:
        x = (x - policy.moments.mean) / np.sqrt(policy.moments.variance + policy.scaling.eps)
        x = np.clip(x, -10, 10) if policy.scaling.limit else x
    nets = [net for net in (policy.agent.trunk, policy.agent.actor) if net is not None]
    layers = [layer for net in nets for layer in net.layers]
    for k, layer in enumerate(layers):
        x = x @ np.asarray(layer.weight, np.float64).T + layer.bias
        x = x if k == len(layers) - 1 else act(x)
    x = x[:, : policy.outputs]
    actions = policy.world.actions
    if policy.discrete:
        return x.argmax(-1)
    low, high = np.array(actions.low), np.array(actions.high)  # pyright: ignore
    return low + (np.tanh(x) + 1) / 2 * (high - low) if tanh else np.clip(x, low, high)


KINDS = {
    "discrete": lambda: policy_of(CartPole(), normalise_observations=True),
    "gaussian": lambda: policy_of(Pendulum()),
    "tanh": lambda: policy_of(Pendulum(), policy="tanh", normalise_observations=True),
    "state": lambda: policy_of(Pendulum(), policy="tanh", std="state"),
    "shared": lambda: policy_of(Pendulum(), shared=True, normalise_observations=True),
    "not cut off": lambda: policy_of(
        Pendulum(), policy="tanh", normalise_observations=True, observation_limit=0.0, observation_eps=0.0
    ),
    "one layer": lambda: policy_of(Pendulum(), hidden=()),
}


@pytest.mark.parametrize("suffix", _export.SUFFIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_export_is_the_policy(tmp_path, kind, suffix):
    import torch

    policy = KINDS[kind]()
    done = export(exportable(policy), tmp_path / f"policy{suffix}")
    assert done.difference < 1e-6
    rng = np.random.default_rng(1)
    x = (5 * rng.normal(size=(200, policy.inputs))).astype(np.float32)
    if suffix == ".onnx":
        action = load_policy(done.path).act(x)
    else:
        action = load_torch_policy(done.path)(torch.from_numpy(x)).numpy()
    wanted = by_hand(policy, x.astype(np.float64), np.tanh, policy.agent.kind == "tanh")
    assert action.dtype == (np.int64 if policy.discrete else np.float32) and action.shape == wanted.shape
    assert len(np.unique(wanted)) > 1
    np.testing.assert_allclose(action, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_can_be_exported(tmp_path, name):
    import torch

    policy = policy_of(Pendulum(), activation=name)
    x = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32)
    action = load_policy(export(exportable(policy), tmp_path / "policy.onnx").path).act(x)
    np.testing.assert_allclose(action, by_hand(policy, x.astype(np.float64), ACTIVATIONS[name], False), atol=1e-5)
    np.testing.assert_allclose(module_of(policy)(torch.from_numpy(x)).numpy(), action, atol=1e-5)


def test_the_file_says_what_goes_in_and_out(tmp_path):
    import onnx

    export(exportable(policy_of(CartPole())), tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    assert (model.ir_version, model.opset_import[0].version) == (8, 13)
    assert [x.name for x in model.graph.input] == ["observation"]
    assert [x.name for x in model.graph.output] == ["action"]
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert shape[0].dim_param == "batch" and shape[1].dim_value == 4
    # Weights have the names and layout of PyTorch's.
    weight = next(x for x in model.graph.initializer if x.name == "actor.layers.0.weight")
    assert list(weight.dims) == [16, 4]


def test_one_observation_or_many(tmp_path):
    loaded = load_policy(export(exportable(policy_of(Pendulum())), tmp_path / "policy.onnx").path)
    assert loaded.act(np.zeros(3)).shape == (1,) and loaded.act(np.zeros((5, 3))).shape == (5, 1)
    with pytest.raises(TwinaxError, match=r"shape \(4,\); this policy needs \(3,\) or \(batch, 3\)"):
        loaded.act(np.zeros(4))


def test_a_robots_policy_comes_with_all_that_a_robot_needs(tmp_path):
    world = Biped(history=1)
    done = export(exportable(policy_of(world, policy="tanh")), tmp_path / "policy.onnx", {"step": 7})
    assert [file.name for file in done.files] == ["policy.onnx", "biped.xml", "policy.json"]
    spec = json.loads((tmp_path / "policy.json").read_text())
    parts = spec["input"]["layout"]
    assert sum(part["size"] for part in parts) == spec["input"]["size"] == world.observation_size
    assert parts[2] == {"name": "joint_angles", "first": 6, "size": 10}
    assert spec["output"]["names"][:2] == ["left_hip_pitch", "left_hip_roll"]
    assert spec["output"]["low"] == [-1.0] * 10
    assert spec["control"]["rate"] == pytest.approx(50)
    assert spec["robot"]["home"] == pytest.approx(world.body.home.tolist())
    assert spec["run"]["step"] == 7
    content = (tmp_path / "biped.xml").read_bytes()
    assert spec["sha256"]["biped.xml"] == hashlib.sha256(content).hexdigest()
    assert load_policy(done.path).act(np.zeros(world.observation_size)).shape == (10,)


def test_the_layout_of_an_observation_is_where_things_are():
    world = Biped()
    draws = {name: np.full(draw.shape, 0.5, np.float32) for name, draw in world.reset_draws(1).items()}
    state = world.reset(draws)
    angles = state.qpos.copy()
    angles[:, world.body.columns[3]] += 0.25
    moved = world.observe(dataclasses.replace(state, qpos=angles)) - world.observe(state)
    names = np.repeat(list(world.layout), list(world.layout.values()))
    places = np.flatnonzero(np.abs(moved[0]) > 0.2)
    assert names[places].tolist() == ["joint_angles"] and places[0] == 6 + 3


@pytest.mark.parametrize("file", ["policy.onnx", "biped.xml"])
def test_a_file_that_was_changed_is_refused(tmp_path, file):
    done = export(exportable(policy_of(Biped())), tmp_path / "policy.onnx")
    changed = tmp_path / file
    changed.write_bytes(changed.read_bytes() + b" ")
    with pytest.raises(TwinaxError, match=f"{file} is not the file that was exported: its sha256"):
        load_policy(done.path)


def test_descriptions_that_are_wrong_are_refused(tmp_path):
    path = export(exportable(policy_of(Pendulum())), tmp_path / "policy.onnx").path
    spec = json.loads((tmp_path / "policy.json").read_text())
    for change, match in (
        ({"format": 1}, "has policy format 1, this twinax reads format 3"),
        ({"sha256": {**spec["sha256"], "../x": ""}}, "'../x', which does not lie beside it"),
        ({"sha256": {**spec["sha256"], "gone.xml": ""}}, "gone.xml cannot be read: No such file"),
    ):
        (tmp_path / "policy.json").write_text(json.dumps({**spec, **change}))
        with pytest.raises(TwinaxError, match=match):
            load_policy(path)
    (tmp_path / "policy.json").write_text("{")
    with pytest.raises(TwinaxError, match="truncated or was edited"):
        load_policy(path)
    (tmp_path / "policy.json").unlink()
    with pytest.raises(TwinaxError, match=r"policy\.json cannot be read: No such file"):
        load_policy(path)


def test_a_wrong_graph_is_not_written(tmp_path, monkeypatch):
    policy = policy_of(Pendulum())
    wrong = dataclasses.replace(policy, agent=tree.map_leaves(lambda x: x * np.float32(1.001), policy.agent))
    right = _onnx.onnx_bytes
    monkeypatch.setattr(_onnx, "onnx_bytes", lambda _: right(exportable(wrong)))
    with pytest.raises(TwinaxError, match=r"differs from the library's by .* nothing was written"):
        export(exportable(policy), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_network_that_loses_digits_everywhere_is_refused_and_says_why(tmp_path):
    policy = exportable(policy_of(Biped(), hidden=(512, 256, 128), activation="elu", normalise_observations=True))
    x = policy.observations(policy.rows)
    own = _export.difference(policy, x, policy.act(x))
    assert own > 1e-5
    with pytest.raises(TwinaxError, match=rf"more than 1e-05 \(the library's own differs by {own:.2g} between float32"):
        export(policy, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_wrong_choices_are_found():
    policy = exportable(policy_of(CartPole()))
    x = policy.observations(policy.rows)
    best = policy.act(x)
    assert _export.difference(policy, x, best) == 0
    assert _export.difference(policy, x, 1 - best) > 0.1


@pytest.mark.parametrize("name", ["policy.pt", "policy.pth", "policy.pt2"])
def test_pickles_are_not_written(tmp_path, name):
    with pytest.raises(TwinaxError, match=r"would hold a pickle.*policy\.safetensors"):
        export(exportable(policy_of(Pendulum())), tmp_path / name)


def test_bad_places(tmp_path):
    policy = exportable(policy_of(Pendulum()))
    with pytest.raises(TwinaxError, match=r"'policy\.h5'; end its name with \.onnx or \.safetensors"):
        export(policy, tmp_path / "policy.h5")
    (tmp_path / "file").write_text("")
    with pytest.raises(TwinaxError, match="cannot be written into .*file/below: Not a directory"):
        export(policy, tmp_path / "file" / "below" / "policy.onnx")
    (tmp_path / "policy.onnx").mkdir()
    with pytest.raises(TwinaxError, match="is a directory; give the name of a file"):
        export(policy, tmp_path / "policy.onnx")


def test_a_policy_that_is_not_finite_is_refused():
    subject = problem(Pendulum(), **SMALL)
    agent = tree.map_leaves(lambda x: x * np.float32(np.nan), subject.networks(np.random.default_rng(0)))
    with pytest.raises(TwinaxError, match="the policy is not finite"):
        Policy.of(subject, state_of(agent, None))


def test_the_module_is_plain_pytorch():
    import torch

    policy = policy_of(Pendulum(), policy="tanh", normalise_observations=True)
    module = module_of(policy)
    assert {name.split(".")[0] for name in module.state_dict()} == {"normaliser", "actor", "action"}
    assert "actor.layers.0.weight" in module.state_dict()
    x = torch.zeros(2, 3)
    program = torch.export.export(module, (x,), dynamic_shapes={"observation": {0: torch.export.Dim("batch")}})
    np.testing.assert_allclose(program.module()(torch.ones(5, 3)), module(torch.ones(5, 3)), rtol=1e-6)


AGENTS = ["IQL", "ReBRAC", "DinoReBRAC", "FQL", "GCBC", "HILP", "HIQL"]
"""A normal actor, a squashed one, one behind an encoder, one that takes noise, one told a goal, one told a latent, and
one whose high level names a subgoal."""


@pytest.mark.parametrize("name", AGENTS)
def test_offline_agents_are_exported(tmp_path, name):
    from twinax.envs import PointMaze
    from twinax.offline import MazeTask, agents, collect_maze, label_maze
    from twinax.offline import problem as offline

    maze = PointMaze("u")
    data = label_maze(collect_maze(maze, trajectories=4, steps=25), maze, goal=(1.5, 1.5)).normalised("normal")
    agent = getattr(agents, name)(hidden=(8, 8), actor_layer_norm=True)
    subject = offline(agent, finetuning=data, batch_size=4, task=MazeTask(maze, (1.5, 1.5), episodes=2))
    x = np.random.default_rng(1).uniform(0, 4, (20, *subject.widths.shape)).astype(np.float32)
    both_forms_act_alike(perturbed(subject, 0.1), x, tmp_path)


@pytest.mark.parametrize("variant", ["iqn", "qr", "c51"])
def test_agents_of_a_world_are_exported(tmp_path, variant):
    from twinax.envs import TreasureHunt
    from twinax.iqn import Learners, ReplayOptions
    from twinax.iqn import problem as agents

    sizes = {"width": 8, "num_quantiles": 4, "num_act_quantiles": 4, "num_cosines": 8, "batch_size": 4}
    group = Learners(count=2, variant=variant, replay=ReplayOptions(buffer_size=16, frame_stack=2), **sizes)
    subject = agents(TreasureHunt(num_agents=2, turns=6, height=8, width=8), {"learner": group})
    cells = subject.world.view_cells
    x = np.random.default_rng(1).integers(0, len(subject.world.codebook), (50, 2, cells))
    trained = perturbed(subject, 0.5)
    both_forms_act_alike(trained, x, tmp_path, agent=1)
    assert not np.array_equal(trained.act(x, True, agent=0), trained.act(x, True, agent=1))
    spec = json.loads((tmp_path / "policy.json").read_text())
    assert spec["agent"] == "learner_1" and spec["output"]["names"] == list(subject.world.actions)
