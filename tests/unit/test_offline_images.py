"""Offline agents on images: an encoder for each network, gradients only where they belong, frames and crops."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest
import torch
from test_offline_agents import TABLE, all_losses

import twinax as tx
from twinax import tree
from twinax.agents import TorchAgent
from twinax.engines import make_engine
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import Encoded, Ensemble
from twinax.noise import below
from twinax.offline import AGENTS, from_arrays, problem
from twinax.offline._agent import PHASES
from twinax.offline._encoders import ENCODERS, Impala
from twinax.offline._judge import Judging
from twinax.offline.learning import first_state, statistics_of

SHAPE = (8, 8, 3)
BATCH, WIDTH = 4, 5
EIGHT = ("iql", "rebrac", "dino_rebrac", "crl_infonce", "td_infonce", "fb_repr", "hilp", "infom")
IN_JAX = {"dino_rebrac": "pretrain", "td_infonce": "pretrain", "infom": "finetune"}
"""Losses that are compared in JAX as well: one phase each, as compiling takes time."""

# The encoders in each network, by how its leaves begin; the others have one at `encoder`.
ENCODERS_OF = {
    "crl_infonce": {"critic": ("phi.encoder", "psi.encoder"), "reward": ("encoder",), "actor": ("encoder",)},
    "td_infonce": {"critic": ("phi.encoder", "psi.encoder"), "reward": ("encoder",), "actor": ("encoder",)},
    "dino_rebrac": {"encoder": ("",), "critic": (), "actor": ()},
    "hilp": {"metric": ("phi.encoder",), "value": ("encoder",), "critic": ("encoder",), "actor": ("encoder",)},
    "infom": {"reward": (), **dict.fromkeys(("critic", "field", "intention", "actor"), ("encoder",))},
}


@pytest.fixture(autouse=True)
def small_encoder(monkeypatch):
    """The encoder for tests with one stack and few outputs."""
    monkeypatch.setitem(ENCODERS._entries, "impala_debug", partial(Impala.init, widths=(2,), blocks=1, hidden=(WIDTH,)))


def seeing(name, **options):
    return few.small(name, **{"encoder": "impala_debug", **options})


def films(shape=SHAPE, trajectories=4, steps=6, seed=0):
    """Random images with rewards."""
    rng = np.random.default_rng(seed)
    rows = trajectories * steps
    pixels = rng.integers(0, 256, (trajectories, steps + 1, *shape)).astype(np.uint8)
    ends = np.zeros((trajectories, steps), bool)
    ends[:, -1] = True
    return from_arrays(
        {
            "observations": pixels[:, :-1].reshape(rows, *shape),
            "next_observations": pixels[:, 1:].reshape(rows, *shape),
            "actions": rng.uniform(-0.9, 0.9, (rows, 2)),
            "terminals": ends.reshape(-1),
            "rewards": rng.normal(size=rows),
        }
    )


def made(name, data=None, steps=4, frame_stack=1, augment=0.0, **options):
    data = data or films()
    given = {"pretrain_steps": steps, "batch_size": BATCH, "frame_stack": frame_stack, "augment": augment}
    return problem(seeing(name, **options), data, data, **given)


def drawn(draw, rng):
    if draw.kind == "integers":
        return rng.integers(0, draw.high, draw.shape).astype(np.int32)
    return rng.normal(size=draw.shape) if draw.kind == "normal" else np.asarray(rng.random(draw.shape))


def lesson(subject, phase, seed=0):
    """Networks away from their first weights, targets, a batch and draws, as training has them; NumPy, float64."""
    rng = np.random.default_rng(seed)
    state = first_state(subject.agent, subject.widths, subject.optimizer, seed)
    networks = jtu.tree_map(lambda x: x + 0.3 * rng.normal(size=x.shape), few.wide(state.networks))
    targets = {
        name: jtu.tree_map(lambda x: x + 0.2 * rng.normal(size=x.shape), networks[name]) for name in state.targets
    }
    draws = {name: drawn(draw, rng) for name, draw in below(subject.draws(), phase).items()}
    batch = subject.rows(phase, few.wide(subject.arrays()), draws, {"latent": rng.normal(size=WIDTH)})
    return networks, targets, batch, draws


def encoders_of(name, network):
    return ENCODERS_OF.get(name, {}).get(network, ("encoder",))


@pytest.mark.parametrize("name", EIGHT)
def test_losses_agree_and_reach_only_their_networks_and_encoders(name, double_precision):
    subject = made(name, frame_stack=2 if name == "td_infonce" else 1)
    agent = subject.agent
    for phase in PHASES:
        given = lesson(subject, phase)
        want = all_losses(agent, phase, *given)
        assert set(want) == set(TABLE[name][phase])
        tensors = jtu.tree_map(lambda x: torch.tensor(np.asarray(x)), given)
        parameters, targets = jtu.tree_map(lambda x: x.requires_grad_(True), tensors[:2])
        found = all_losses(agent, phase, parameters, targets, *tensors[2:])
        named = tree.named_leaves(parameters)
        for label, (value, terms) in want.items():
            assert np.isfinite(value)
            np.testing.assert_allclose(found[label][0].detach(), value, rtol=1e-8)
            for key, term in terms.log().items():
                np.testing.assert_allclose(found[label][1].log()[key], term, rtol=1e-8, atol=1e-10)
            leaves = [*named.values(), *jtu.tree_leaves(targets)]
            grads = torch.autograd.grad(found[label][0], leaves, retain_graph=True, allow_unused=True)
            assert all(grad is None for grad in grads[len(named) :]), "a target has a gradient"
            reached = {leaf for leaf, grad in zip(named, grads, strict=False) if grad is not None and grad.any()}
            wanted = set(TABLE[name][phase][label].split())
            assert {leaf.split(".")[0] for leaf in reached} == wanted, (phase, label)
            for network in wanted:
                for encoder in encoders_of(name, network):
                    begin = f"{network}.{encoder}".rstrip(".")
                    assert {leaf for leaf in named if leaf.startswith(begin)} <= reached, (phase, label, begin)
        if IN_JAX.get(name) == phase:
            losses = jax.jit(lambda *given, phase=phase: [v for v, _ in all_losses(agent, phase, *given).values()])
            for value, have in zip(want.values(), losses(*jtu.tree_map(jnp.asarray, given)), strict=True):
                np.testing.assert_allclose(have, value[0], rtol=1e-8)


@pytest.mark.parametrize("name", EIGHT)
def test_every_network_has_encoders_of_its_own(name):
    agent = seeing(name)
    networks = agent.build(np.random.default_rng(0), agent.sizes(SHAPE, 2))
    firsts = {}
    for network in networks:
        leaves = tree.named_leaves(networks[network])
        convolutions = [leaf for leaf in leaves if "stacks.0.convs.0.weight" in leaf]
        begins = [leaf.split("stacks")[0].rstrip(".") for leaf in convolutions]
        assert sorted(begins) == sorted(encoders_of(name, network)), network
        # An encoder stands outside of its ensemble: its weights have no axis of members.
        assert all(leaves[leaf].shape == (2, 3, 3, 3) for leaf in convolutions)
        firsts |= {f"{network}.{leaf}": leaves[leaf].tobytes() for leaf in convolutions}
    assert len(set(firsts.values())) == len(firsts)


def test_critic_heads_share_an_encoder():
    agent = seeing("rebrac")
    critic = agent.build(np.random.default_rng(0), agent.sizes(SHAPE, 2))["critic"]
    assert isinstance(critic, Encoded) and isinstance(critic.net.body, Ensemble)


def test_modes_agree_over_the_switch_of_phases():
    found = {}
    subject = made("rebrac", steps=3, frame_stack=2, augment=0.5, actor_freq=1)
    for mode in ("torch", "jax"):
        engine = make_engine(subject, mode=mode, dtype="float64", chunk=6)
        engine.start(0)
        logs = engine.run(6)
        found[mode] = {**logs, **tree.named_leaves(engine.state())}
    assert found["torch"].keys() == found["jax"].keys()
    for label, want in found["torch"].items():
        np.testing.assert_allclose(found["jax"][label], want, rtol=1e-8, atol=1e-9, err_msg=label)


@pytest.mark.parametrize("name", sorted(set(AGENTS) - set(EIGHT) - {"mbpo_rebrac", "qrl"}))
def test_the_other_agents_read_images(name):
    subject = made(name)
    networks, targets, batch, draws = lesson(subject, "finetune")
    losses = all_losses(subject.agent, "finetune", networks, targets, batch, draws)
    assert set(losses) == set(TABLE[name]["finetune"]) and all(np.isfinite(v) for v, _ in losses.values())
    goals = batch.get("actor_goals") if subject.agent.actor_sees == "goal" else None
    networks = subject.agent.build(np.random.default_rng(0), subject.widths)
    actions = subject.agent.act(networks, batch["observations"], goals, np.zeros((BATCH, 2)), 0.0)
    assert actions.shape == (BATCH, 2) and np.abs(actions).max() <= 1
    if goals is not None:
        others = subject.agent.act(networks, batch["observations"], goals[::-1], np.zeros((BATCH, 2)), 0.0)
        assert (actions != others).any()


# Batches


def test_goals_are_stacked_once():
    subject = made("crl_infonce", frame_stack=2)
    assert subject.widths.shape == (8, 8, 6) and subject.widths.observation == WIDTH
    _, _, batch, _ = lesson(subject, "pretrain")
    for name in ("observations", "next_observations", "value_goals", "actor_goals"):
        assert batch[name].shape == (BATCH, 8, 8, 6) and batch[name].dtype == np.uint8


def test_crops_change_the_batch():
    def batch_with(augment):
        subject = made("crl_infonce", augment=augment)
        return lesson(subject, "pretrain")[2]

    plain, cropped = batch_with(1e-9), batch_with(1.0)
    for name in ("observations", "next_observations", "value_goals", "actor_goals"):
        assert (plain[name] != cropped[name]).any(), name
    np.testing.assert_array_equal(plain["actions"], cropped["actions"])


def test_views_of_an_image_are_two_crops():
    subject = made("dino_rebrac")
    _, _, batch, draws = lesson(subject, "pretrain")
    assert draws["views"].shape == (2, BATCH, 2) and draws["views"].min() >= 0 and draws["views"].max() <= 6
    first, second = subject.agent.views(batch["observations"], draws["views"])
    assert first.shape == second.shape == batch["observations"].shape and (first != second).any()
    still = subject.agent.views(batch["observations"], np.full((2, BATCH, 2), 3, np.int32))
    np.testing.assert_array_equal(still[0], batch["observations"])


def test_images_are_not_normalised_and_have_no_range():
    subject = made("infom")
    assert "observation_min" not in subject.arrays()["pretrain"]
    assert statistics_of(subject.normaliser, subject.widths)["shift"].shape == ()


def test_the_reward_of_infom_is_one_of_encoded_states():
    import dataclasses

    data = dataclasses.replace(films(), reward_on_next=True)
    subject = made("infom", data=data)
    networks, targets, batch, draws = lesson(subject, "finetune")
    nets = few.nets_of(networks, targets)
    seen = subject.agent.prepared(nets, batch, draws, "finetune")
    np.testing.assert_array_equal(seen["reward_observations"], networks["field"].encoder(batch["next_observations"]))
    s, then = seen["flow_states"]
    np.testing.assert_array_equal(s, networks["field"].encoder(batch["observations"]))
    np.testing.assert_array_equal(then, targets["field"].encoder(batch["next_observations"]))


# Other observations and options


def test_vectors_may_have_an_encoder():
    agent = few.small("hilp", encoder="mlp")
    sizes = agent.sizes((3,), 2, 6)
    assert (sizes.observation, sizes.shape) == (512, (3,))
    networks = agent.build(np.random.default_rng(0), sizes)
    states = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)
    metric = networks["metric"]
    assert metric(states, states).shape == (2, 7)
    np.testing.assert_allclose(agent.features(networks, states), metric.phi(states)[0], rtol=1e-4, atol=1e-5)


def test_without_an_encoder_networks_are_as_they_were():
    for name in AGENTS:
        agent = few.small(name)
        sizes = agent.sizes((3,), 2, 6)
        assert sizes == few.SIZES
        one, other = (f(np.random.default_rng(0), sizes) for f in (agent.networks, agent.build))
        for a, b in zip(jtu.tree_leaves(one), jtu.tree_leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)


def test_many_images_are_placed_some_at_a_time():
    agent = seeing("hilp")
    sizes = agent.sizes((4, 4, 1), 2)
    networks = agent.build(np.random.default_rng(0), sizes)
    states = np.random.default_rng(1).integers(0, 256, (520, 4, 4, 1)).astype(np.uint8)
    found = agent.features(networks, states)
    np.testing.assert_allclose(found[515:], networks["metric"].first(states[515:]), rtol=1e-5, atol=1e-6)
    assert found.shape == (520, WIDTH)


def test_a_torch_agent_sees_one_image_or_many():
    agent = seeing("iql")
    subject = TorchAgent(agent, agent.sizes(SHAPE, 2, BATCH))
    images = torch.from_numpy(films().observations[:3])
    many = subject.sample_actions(images)
    assert many.shape == (3, 2)
    torch.testing.assert_close(subject.sample_actions(images[0]), many[0])


def test_goals_of_a_task_are_stacked_and_told():
    class Picture(tx.offline.Task):
        goal = films().observations[0]

    data = films()
    subject = problem(seeing("gcbc"), data, None, pretrain_steps=2, batch_size=BATCH, frame_stack=2, task=Picture())
    state = first_state(subject.agent, subject.widths, subject.optimizer, 0)
    networks = state.networks
    given = Judging(subject).given(state, networks, {})
    assert given.shape == (8, 8, 6)
    frames = np.concatenate([data.observations[:5]] * 2, -1)
    assert Judging(subject).acting(networks, given)(frames).shape == (5, 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoder": ""}, r"observations have shape \(8, 8, 3\), but iql reads vectors; give it an encoder"),
        ({"encoder": "mlp"}, "reads vectors, but an observation has shape"),
        ({"encoder": "impala_debug", "data": few.walks()}, r"reads \(height, width, channels\)"),
        ({"encoder": "", "data": few.walks(), "frame_stack": 2}, "frame_stack is 2, but observations are vectors"),
    ],
)
def test_observations_that_do_not_fit_the_encoder(change, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        made("iql", **change)


@pytest.mark.parametrize("name", ["mbpo_rebrac", "qrl"])
def test_agents_that_predict_observations_refuse_images(name):
    with pytest.raises(TwinaxError, match=f"{name} predicts observations, so it has no encoder and reads vectors only"):
        seeing(name)
    with pytest.raises(TwinaxError, match=f"{name} reads vectors; it predicts observations"):
        made(name, encoder="")


def test_unknown_encoders_are_refused():
    with pytest.raises(UnknownName, match="unknown encoder 'impala_smal'"):
        few.small("iql", encoder="impala_smal")
