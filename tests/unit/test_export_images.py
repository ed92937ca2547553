"""Exported policies that see images, that name subgoals, and that have networks of somebody's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import numpy as np
import pytest
from exported import both_forms_act_alike, perturbed

import twinax as tx
from twinax import ops, tree
from twinax.deploy import Trained, _onnx
from twinax.deploy._torch_policy import TorchPolicy, arrays, make_torch_policy, structure
from twinax.errors import TwinaxError
from twinax.exportable import Exportable
from twinax.networks import MLP, Impala, Linear, ResNet
from twinax.offline import agents, from_arrays
from twinax.offline._encoder_steps import encoder_steps
from twinax.offline._encoders import ENCODERS

SHAPE = (8, 7, 3)


@pytest.fixture(autouse=True)
def small_encoders(monkeypatch):
    """Encoders of few numbers."""
    small = partial(Impala.init, widths=(2, 3), blocks=1, hidden=(6,), norm=True)
    monkeypatch.setitem(ENCODERS._entries, "impala_debug", small)
    monkeypatch.setitem(ENCODERS._entries, "resnet_34", partial(ResNet.init, stages=(1, 1), width=4))


def films(rows=12):
    """Random images with rewards."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (rows, *SHAPE)).astype(np.uint8)
    data = {"observations": pixels, "next_observations": pixels[::-1], "actions": rng.uniform(-0.9, 0.9, (rows, 2))}
    return from_arrays({**data, "terminals": np.arange(rows) % 6 == 5, "rewards": rng.normal(size=rows)})


def seeing(agent, **options):
    return tx.offline.problem(agent, finetuning=films(), batch_size=4, **options)


@pytest.mark.parametrize("encoder", [
    Impala.init(np.random.default_rng(0), (15, 18, 3), widths=(4, 5), blocks=2, hidden=(7,)),
    Impala.init(np.random.default_rng(0), (9, 8, 1), widths=(4,), blocks=1, hidden=(7, 6), norm=True),
    ResNet.init(np.random.default_rng(0), (15, 18, 3), stages=(2, 1, 1), width=4),
], ids=["impala", "impala with norms", "resnet"])  # fmt: skip
def test_an_encoder_is_the_same_elsewhere(encoder):
    import torch

    rng = np.random.default_rng(1)
    encoder = tree.map_leaves(lambda x: (x + 0.1 * rng.normal(size=x.shape)).astype(np.float32), encoder)
    images = rng.integers(0, 256, (5, *encoder.shape)).astype(np.float32)
    made = Exportable(
        steps=tuple(encoder_steps("encoder", encoder)),
        shape=encoder.shape,
        values=encoder,
        act=encoder,
        observations=lambda rows: images[:rows],
        discrete=False,
        outputs=encoder.width,
        largest=0.0,
        description={},
    )
    wanted = tree.map_leaves(lambda x: x.astype(np.float64), encoder)(images.astype(np.float64))
    scale = np.abs(wanted).max()
    assert wanted.std(0).max() > 0.01 * scale
    found = _onnx.session(_onnx.onnx_bytes(made)).run(["action"], {"observation": images})[0]
    np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-6)
    module = make_torch_policy(structure(made), arrays(made))
    np.testing.assert_allclose(module(torch.from_numpy(images)).numpy() / scale, wanted / scale, atol=2e-6)
    program = torch.export.export(module, (torch.zeros(2, *encoder.shape),))
    assert program.module()(torch.from_numpy(images[:2])).shape == (2, encoder.width)


SEEING = {
    "an actor": lambda: seeing(agents.IQL(hidden=(8,), encoder="impala_debug")),
    "residual blocks": lambda: seeing(agents.ReBRAC(hidden=(8,), encoder="resnet_34")),
    "one encoder for all": lambda: seeing(agents.DinoReBRAC(hidden=(8,), encoder="resnet_34")),
    "noise": lambda: seeing(agents.FQL(hidden=(8,), encoder="impala_debug")),
    "stacked frames": lambda: seeing(agents.BC(hidden=(8,), encoder="impala_debug"), frame_stack=2),
}


@pytest.mark.parametrize("kind", SEEING)
def test_agents_that_see_images_are_exported(tmp_path, kind):
    subject = SEEING[kind]()
    x = np.random.default_rng(2).integers(0, 256, (6, *subject.widths.shape)).astype(np.uint8)
    both_forms_act_alike(perturbed(subject, 0.1), x, tmp_path)


@pytest.mark.parametrize("name", ["GCBC", "HIQL"])
def test_a_goal_that_is_an_image_is_encoded_once(tmp_path, name):
    subject = seeing(getattr(agents, name)(hidden=(8,), encoder="impala_debug"))
    trained = perturbed(subject, 0.1)
    rng = np.random.default_rng(2)
    x, goals = rng.integers(0, 256, (6, *SHAPE)).astype(np.uint8), rng.integers(0, 256, (2, *SHAPE))
    both_forms_act_alike(trained, x, tmp_path, goal=goals[0])
    assert not np.allclose(trained.act(x, True, goal=goals[0]), trained.act(x, True, goal=goals[1]), atol=1e-4)


def test_vectors_behind_a_perceptron(tmp_path):
    from twinax.offline._encoders import StateEncoder

    rows = 12
    rng = np.random.default_rng(0)
    data = from_arrays({
        "observations": rng.normal(size=(rows, 3)), "next_observations": rng.normal(size=(rows, 3)),
        "actions": rng.uniform(-0.9, 0.9, (rows, 2)), "terminals": np.arange(rows) % 6 == 5,
    })  # fmt: skip
    subject = tx.offline.problem(agents.BC(hidden=(8,), encoder="mlp"), data, pretrain_steps=2, batch_size=4)
    assert isinstance(subject.init(0).networks["actor"].encoder, StateEncoder)
    both_forms_act_alike(perturbed(subject, 0.02), rng.normal(size=(6, 3)).astype(np.float32), tmp_path)


def test_a_step_that_reads_what_is_not_there_is_refused():
    step = {"kind": "add", "name": "sum", "reads": ["observation", "nowhere"]}
    with pytest.raises(TwinaxError, match="unknown step of a policy 'nowhere'"):
        TorchPolicy([step])


# Networks of one's own


class Doubling(eqx.Module):
    """No perceptron."""

    inner: Any

    def __call__(self, x):
        return ops.tanh(self.inner(x)) * 2


def own(rng, spec):
    return Doubling(Linear.init(rng, spec.observation.shape[-1], spec.outputs))


def perceptron(rng, spec):
    return MLP.xavier(rng, spec.observation.shape[-1], (6, 5), spec.outputs)


EYES = """
import equinox as eqx
from twinax import networks, ops

class Eye(eqx.Module):
    conv: networks.Conv2d

    def __call__(self, images):
        return ops.mean(self.conv(ops.cast(images, self.conv.weight) / 255), (1, 2))

def eye(rng, spec):
    return Eye(networks.Conv2d.init(rng, spec.observation.shape[-1], 4, 3, channels_last=True))
"""


def ppo(network, **options):
    sizes = {"num_envs": 4, "num_steps": 4, "num_minibatches": 2, "film": False}
    return tx.ppo.problem(tx.envs.Pendulum(), network=network, **sizes, **options)


def hunters(network):
    sizes = {"width": 8, "num_quantiles": 4, "num_act_quantiles": 4, "num_cosines": 8, "batch_size": 4}
    group = tx.iqn.Learners(
        count=1, replay=tx.iqn.ReplayOptions(buffer_size=16, frame_stack=2), network=network, **sizes
    )
    return tx.iqn.problem(tx.envs.TreasureHunt(num_agents=1, turns=6, height=8, width=8), {"learner": group})


OWN = {
    "the actor is a network of your own (Doubling)": lambda: ppo(own),
    "the agent begins with a network of your own (Doubling)": lambda: hunters(own),
    "the network actor.encoder is a Eye": lambda: seeing(agents.IQL(hidden=(8,), encoder="image_eyes:eye")),
}


@pytest.mark.parametrize("sentence", OWN)
@pytest.mark.parametrize("file", ["policy.onnx", "policy.safetensors", None])
def test_networks_of_ones_own_are_one_sentence(tmp_path, monkeypatch, sentence, file):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "image_eyes.py").write_text(EYES)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    subject = OWN[sentence]()
    trained = Trained(subject, subject.init(0))
    with pytest.raises(TwinaxError) as caught:
        trained.export(tmp_path / file) if file else trained.torch_module()
    said = str(caught.value)
    assert said.startswith(sentence) and said.endswith("run it with twinax.load(run).act"), said
    assert not list(tmp_path.glob("policy*"))
    trained.act(np.zeros((2, *subject.use.observation)).astype(int), deterministic=True)  # what the sentence says


def test_perceptrons_that_somebody_makes_are_exported(tmp_path):
    x = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)
    both_forms_act_alike(perturbed(ppo(perceptron), 0.1), x, tmp_path)
    both_forms_act_alike(perturbed(ppo(perceptron, policy="tanh", std="state"), 0.1), x, tmp_path)
    subject = hunters(perceptron)
    views = np.random.default_rng(1).integers(0, len(subject.world.codebook), (50, *subject.use.observation))
    both_forms_act_alike(perturbed(subject, 0.5, seed=2), views, tmp_path)


def test_a_perceptron_with_norms_acts_in_a_rollout_as_it_learns():
    agent = ppo(perceptron).networks(np.random.default_rng(0))
    x = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_allclose(agent.acting().policy(x).mean, agent.policy(x).mean, rtol=1e-5, atol=1e-6)


def test_the_description_says_what_images_are(tmp_path):
    done = perturbed(SEEING["an actor"](), 0.1).export(tmp_path / "policy.onnx")
    assert done.observations == 32 and done.description["checked"]["observations"] == 32
    seen = {"name": "observation", "type": "float32", "shape": list(SHAPE), "range": [0, 255]}
    assert done.description["input"] == seen
