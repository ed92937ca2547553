"""Errors that ports of the nine agents are known to make, one test each: losses by their gradients, and the update."""

from __future__ import annotations

import dataclasses

import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest
import torch

from twinax import tree
from twinax.engines import make_engine
from twinax.errors import TwinaxError
from twinax.offline import problem
from twinax.offline.learning import first_state
from twinax.offline.networks import Actor
from twinax.optimizer import Optimizer

RATE = 3e-4
MEMORY = {"rebrac": {}, "mbpo_rebrac": {"faithful": True}, "dino_rebrac": {}}


class Tensors:
    """A lesson in PyTorch, and gradients of its losses."""

    def __init__(self, name, phase, seed=0, **options):
        self.agent, self.phase = few.small(name, **options), phase
        given = few.lesson(self.agent, phase, seed)
        self.networks, self.targets, self.batch, self.draws = jtu.tree_map(lambda x: torch.tensor(np.asarray(x)), given)
        jtu.tree_map(lambda x: x.requires_grad_(True), self.networks)

    def loss(self, *names):
        nets = few.nets_of(self.networks, self.targets)
        rows = self.agent.prepared(nets, self.batch, self.draws, self.phase)
        losses = self.agent.losses(self.phase)
        return sum(losses[name](nets, rows, self.draws)[0] for name in names or losses)

    def gradient(self, network, *names):
        """Of the sum of losses (of all without names) to a network's parameters; zeros where there is none."""
        leaves = jtu.tree_leaves(self.networks[network])
        found = torch.autograd.grad(self.loss(*names), leaves, allow_unused=True)
        zeros = [torch.zeros_like(leaf) for leaf in leaves]
        return torch.cat([(zero if x is None else x).reshape(-1) for x, zero in zip(found, zeros, strict=True)])

    def raised(self, network, amount, member=None):
        """A critic that says more, in one member or in all."""
        last = self.targets[network].body.members.layers[-1]
        with torch.no_grad():
            last.bias[slice(None) if member is None else member] += amount


# InFOM, and what holds for every actor


@pytest.mark.parametrize(
    ("name", "phase", "loss", "options"),
    [
        ("infom", "finetune", "actor", {"alpha": 0.0}),
        ("iql", "finetune", "actor", {"alpha": 0.0, "extraction": "ddpgbc"}),
        ("rebrac", "finetune", "actor", {"alpha_actor": 0.0}),
        ("mbpo_rebrac", "finetune", "actor", {"alpha_actor": 0.0}),
        ("dino_rebrac", "finetune", "actor", {"alpha_actor": 0.0}),
        ("crl_infonce", "finetune", "actor", {"alpha": 0.0}),
        ("td_infonce", "finetune", "actor", {"alpha": 0.0}),
        ("fb_repr", "pretrain", "fb_actor", {"alpha_repr": 0.0}),
    ],
)
def test_actor_gets_the_gradient_of_q_without_cloning(name, phase, loss, options):
    assert Tensors(name, phase, **options).gradient("actor", loss).abs().max() > 1e-4


def test_infom_actor_without_cloning_raises_q():
    given = Tensors("infom", "finetune", alpha=0.0)
    before = given.loss("actor").item()
    step = given.gradient("actor", "actor")
    sizes = [leaf.numel() for leaf in jtu.tree_leaves(given.networks["actor"])]
    with torch.no_grad():
        for leaf, part in zip(jtu.tree_leaves(given.networks["actor"]), step.split(sizes), strict=True):
            leaf -= 1e-4 * part.reshape(leaf.shape)
    expected = 1e-4 * step.square().sum().item()
    assert before - given.loss("actor").item() == pytest.approx(expected, rel=0.05)


def test_infom_intention_learns_from_the_flow_without_kl():
    given = Tensors("infom", "pretrain", kl_weight=0.0)
    assert given.gradient("intention", "flow_occupancy").abs().max() > 1e-5


def test_infom_intention_learns_from_the_current_state_only():
    # With discount 1 only the future is left, whose latents are constant.
    given = Tensors("infom", "pretrain", kl_weight=0.0, gamma=1.0)
    assert not given.gradient("intention", "flow_occupancy").any()
    assert given.gradient("field", "flow_occupancy").any()


def test_infom_noise_of_the_future_is_not_that_of_the_present():
    given = Tensors("infom", "pretrain")
    assert (given.draws["current"] != given.draws["future"]).all()
    first = given.loss("flow_occupancy").item()
    given.draws["current"] = given.draws["future"]
    assert first != given.loss("flow_occupancy").item()


def test_infom_expectile_is_of_each_member_before_their_mean():
    # Two members at equal distances on both sides of the target: of their mean nothing would be left.
    given = Tensors("infom", "finetune", expectile=0.9)
    last = given.networks["critic"].body.members.layers[-1]
    with torch.no_grad():
        for leaf in (last.weight, last.bias, given.networks["reward"].body.layers[-1].weight):
            leaf.zero_()
        given.networks["reward"].body.layers[-1].bias.fill_(0.03)
        last.bias[0], last.bias[1] = 3.0 + 2.0, 3.0 - 2.0
    assert given.loss("critic").item() == pytest.approx(0.5 * (0.1 * 4 + 0.9 * 4))


def test_infom_latent_of_a_prior_is_shared_by_its_goals():
    draws = few.small("infom").draws("finetune", few.SIZES)
    assert draws["prior"].shape == (6, 5) and draws["goals"].shape == (3, 6, 3)


# ReBRAC and what builds on it


@pytest.mark.parametrize(("name", "options"), MEMORY.items())
def test_rebrac_actor_loss_leaves_critic_and_encoder_alone(name, options):
    given = Tensors(name, "finetune", **options)
    assert torch.equal(given.gradient("critic"), given.gradient("critic", "critic"))
    assert not given.gradient("critic", "actor").any()
    if "encoder" in given.networks:
        assert not given.gradient("encoder").any(), "the encoder learns in finetuning"


@pytest.mark.parametrize(("name", "options"), MEMORY.items())
def test_rebrac_critic_loss_is_a_mean_over_members(name, options):
    given = Tensors(name, "finetune", **options)
    with torch.no_grad():
        for leaf in jtu.tree_leaves(given.networks["critic"]):
            leaf[1] = leaf[0]
    states, following = given.batch["observations"], given.batch["next_observations"]
    if "encoder" in given.networks:
        states, following = given.networks["encoder"](states), given.targets["encoder"](following)
    action = (given.targets["actor"](following).mode + (0.2 * given.draws["action"]).clamp(-0.5, 0.5)).clamp(-1, 1)
    later = given.targets["critic"](following, action).amin(0)
    y = given.batch["rewards"] + 0.99 * given.batch["masks"] * later
    one = (given.networks["critic"](states, given.batch["actions"])[0] - y).square().mean()
    assert given.loss("critic").item() == pytest.approx(one.item(), rel=1e-12)


def test_iql_critic_loss_is_a_sum_over_members():
    given = Tensors("iql", "finetune")
    y = given.batch["rewards"] + 0.99 * given.batch["masks"] * given.networks["value"](given.batch["next_observations"])
    q = given.networks["critic"](given.batch["observations"], given.batch["actions"])
    each = (q - y).square().mean(1)
    assert given.loss("critic").item() == pytest.approx((each[0] + each[1]).item(), rel=1e-12)


def test_rebrac_penalty_is_on_the_action_with_noise():
    # The target's critic is constant here, so that noise acts through the penalty alone.
    given = Tensors("rebrac", "finetune", alpha_critic=1.0, faithful=True)
    last = given.targets["critic"].body.members.layers[-1]
    last.weight.zero_()
    noisy = given.loss("critic").item()
    given.draws["action"] = torch.zeros_like(given.draws["action"])
    assert noisy != pytest.approx(given.loss("critic").item(), rel=1e-3)


def test_rebrac_penalty_is_discounted_and_masked_like_the_value():
    given = Tensors("rebrac", "finetune", alpha_critic=5.0, faithful=True)
    given.batch["masks"] = torch.zeros_like(given.batch["masks"])
    q = given.networks["critic"](given.batch["observations"], given.batch["actions"])
    assert given.loss("critic").item() == pytest.approx((q - given.batch["rewards"]).square().mean().item())


def test_rebrac_smaller_member_is_sought_over_members_not_rows():
    # A member far above the other one never counts.
    given = Tensors("rebrac", "finetune")
    given.raised("critic", 1000.0, member=0)
    once = given.loss("critic").item()
    given.raised("critic", 1000.0, member=0)
    assert given.loss("critic").item() == once
    given.raised("critic", 1000.0)
    assert given.loss("critic").item() != once


def test_dino_faithful_has_no_centre():
    # Softmax does not see one number added to all entries, but it sees one added to an entry: a centre would hide it.
    def change(faithful):
        given = Tensors("dino_rebrac", "pretrain", faithful=faithful)
        before = given.loss("repr").item()
        given.targets["encoder"].layers[-1].bias[0] += 1.0
        return abs(given.loss("repr").item() / before - 1)

    assert change(True) > 1e-3 and change(False) < 1e-10


def test_dino_encoder_learns_from_its_own_loss_only():
    given = Tensors("dino_rebrac", "pretrain")
    assert torch.equal(given.gradient("encoder"), given.gradient("encoder", "repr"))


def test_mbpo_transition_of_width_one_is_no_vector_of_rows(monkeypatch):
    monkeypatch.setattr(few, "SIZES", dataclasses.replace(few.SIZES, observation=1))
    given = Tensors("mbpo_rebrac", "pretrain")
    s, then = given.batch["observations"], given.batch["next_observations"]
    assert given.networks["transition"](s, given.batch["actions"]).shape == s.shape
    errors = given.networks["transition"](s, given.batch["actions"]) - (then - s)
    assert given.loss("transition").item() == pytest.approx(errors.square().mean().item(), rel=1e-12)


# TD InfoNCE


def test_td_infonce_actor_reads_the_observation_alone():
    given = Tensors("td_infonce", "pretrain")
    assert given.networks["actor"].trunk.layers[0].weight.shape[1] == few.SIZES.observation
    mode = few.small("td_infonce").act(given.networks, given.batch["observations"], None, None, 0.0)
    direct = given.networks["actor"](given.batch["observations"])
    assert torch.equal(mode, direct.mode.clamp(-1, 1))
    wanted = -direct.log_prob(given.batch["actions"]).mean()
    assert given.loss("bc").item() == pytest.approx(wanted.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "phase", "loss"),
    [
        ("td_infonce", "pretrain", "critic"),
        ("td_infonce", "finetune", "actor"),
        ("fb_repr", "pretrain", "fb_repr"),
        ("infom", "finetune", "actor"),
    ],
)
def test_aggregation_of_members_can_be_chosen(name, phase, loss):
    found = [Tensors(name, phase, aggregation=how).loss(loss).item() for how in ("mean", "min")]
    assert abs(found[0] - found[1]) > 1e-6
    with pytest.raises(TwinaxError, match="largest"):
        few.small(name, aggregation="largest")


def test_td_infonce_next_actions_are_the_data_s_then_the_actor_s():
    for phase in ("pretrain", "finetune"):
        given = Tensors("td_infonce", phase)
        before = given.loss("critic").item()
        given.batch["next_actions"] = torch.zeros_like(given.batch["next_actions"])
        assert (given.loss("critic").item() != before) == (phase == "pretrain")


# Numerics


def test_crl_actor_does_not_overflow_in_single_precision():
    agent = few.small("crl_infonce")
    networks, targets, batch, draws = few.lesson(agent, "finetune")
    networks["critic"] = jtu.tree_map(lambda x: 8 * x, networks["critic"])
    single = jtu.tree_map(lambda x: np.asarray(x, np.float32), (networks, targets, batch, draws))
    logits = single[0]["critic"](batch["actor_goals"], batch["observations"], batch["actions"])
    assert logits.max() > 89
    assert np.isfinite(agent.losses("finetune")["actor"](few.nets_of(*single[:2]), *single[2:])[0])


def test_hilp_latent_is_the_shortest_where_features_repeat(double_precision):
    # Fewer rows than entries: every framework takes the same one of many solutions.
    import jax.numpy as jnp

    agent = few.small("hilp", latent_dim=5)
    networks = few.lesson(agent, "pretrain")[0]
    rng = np.random.default_rng(0)
    batch = {key: rng.normal(size=(3, 3)) for key in ("observations", "next_observations")}
    batch["rewards"] = rng.normal(size=3)
    found = agent.infer(networks, batch)
    rows = agent.task_features(networks, batch)
    shortest = np.linalg.pinv(rows) @ batch["rewards"]
    np.testing.assert_allclose(found, np.sqrt(5) * shortest / np.linalg.norm(shortest), rtol=1e-9)
    for convert in (jnp.asarray, torch.tensor):
        theirs = agent.infer(*jtu.tree_map(lambda x, to=convert: to(np.asarray(x)), (networks, batch)))
        np.testing.assert_allclose(np.asarray(theirs), found, rtol=1e-8)


def test_iql_sampled_actions_are_differentiable():
    given = Tensors("iql", "finetune", extraction="ddpgbc", std="free", alpha=0.0)
    grad = torch.autograd.grad(given.loss("actor"), given.networks["actor"].log_std)[0]
    assert isinstance(given.networks["actor"], Actor) and grad.abs().max() > 1e-6


@pytest.mark.parametrize("name", ["hilp", "fb_repr"])
def test_latent_agents_sample_as_iql_does(name):
    # ddpgbc with a learned standard deviation takes a sample; without its draw it would be the mode, silently.
    agent = few.small(name, extraction="ddpgbc", std="free")
    assert "actor" in agent.draws("finetune", few.SIZES)


def test_dividing_by_the_size_of_q_adds_no_epsilon():
    given = Tensors("rebrac", "finetune", alpha_actor=0.0)
    with torch.no_grad():
        last = given.networks["critic"].body.members.layers[-1]
        last.weight.zero_()
        last.bias.fill_(1e-9)
    assert given.loss("actor").item() == pytest.approx(-1, rel=1e-12)


# The update: targets, gradients that are zero, one count


@pytest.fixture(scope="module")
def engine():
    """Five steps of pretraining, then finetuning with a full step at every fourth; PyTorch in float64."""
    data = few.walks()
    subject = problem(few.small("iql", tau=0.25), data, data, pretrain_steps=5, batch_size=6)
    return make_engine(subject, mode="torch", dtype="float64", chunk=1)


@pytest.fixture(scope="module")
def states(engine):
    """After 5, 6 and 7 steps: no full step of finetuning is among them."""
    engine.start(0)
    engine.run(5)
    found = [jtu.tree_map(np.copy, engine.state())]
    for _ in range(2):
        engine.run(1)
        found.append(jtu.tree_map(np.copy, engine.state()))
    return found


def test_targets_follow_the_networks_of_before_the_step(states):
    before, between, after = (tree.named_leaves(state.networks["critic"]) for state in states)
    found = tree.named_leaves(states[2].targets["critic"])
    for key, first in tree.named_leaves(states[0].targets["critic"]).items():
        want = 0.75 * (0.75 * first + 0.25 * before[key]) + 0.25 * between[key]
        np.testing.assert_allclose(found[key], want, rtol=1e-12, err_msg=key)
        assert np.abs(after[key] - between[key]).max() > 1e-5


def test_a_network_without_a_loss_has_zero_gradients_rather_than_none(states):
    # The cloned actor goes on between full steps: its moments decay, by Adam's rule with a gradient of zero.
    old, new = (tree.named_leaves(state.networks["actor"]) for state in states[:2])
    moments = states[0].optimizer
    first, second = (tree.named_leaves(x["actor"]) for x in (moments.first, moments.second))
    for key in old:
        m, v = 0.9 * first[key] / (1 - 0.9**6), 0.999 * second[key] / (1 - 0.999**6)
        np.testing.assert_allclose(new[key], old[key] - RATE * m / (np.sqrt(v) + 1e-8), rtol=1e-10, err_msg=key)
        assert (new[key] != old[key]).any()


def first_move(before, after):
    """How far the critic went, over the step size, where its gradient is not nearly zero."""
    old, new = (tree.named_leaves(state.networks["critic"]) for state in (before, after))
    moved = np.concatenate([np.abs(new[key] - old[key]).reshape(-1) for key in old]) / RATE
    return np.quantile(moved, 0.9)


def test_one_count_of_steps_for_all_networks(states):
    # The critic is first trained at step 6, with moments of one gradient and the correction of six.
    want = 0.1 / (1 - 0.9**6) / np.sqrt(0.001 / (1 - 0.999**6))
    assert first_move(*states[:2]) == pytest.approx(want, rel=1e-3)


def test_one_count_makes_late_first_steps_three_times_as_long(engine, states):
    count = np.array(1_000_000, np.int32)
    moments = dataclasses.replace(states[0].optimizer, count=count)
    engine.load(dataclasses.replace(states[0], step=count.copy(), optimizer=moments))
    engine.run(1)
    assert first_move(states[0], engine.state()) == pytest.approx(np.sqrt(10), rel=1e-3)


def test_pretrained_networks_begin_finetuning_at_once():
    # The caller need not repeat how long pretraining was: targets start anew and the latent is inferred.
    agent = few.small("hilp")
    kept = dataclasses.replace(first_state(agent, few.SIZES, Optimizer(), 0), step=np.array(4, np.int32))
    subject = problem(agent, finetuning=few.walks(), batch_size=6, pretrained=kept)
    assert subject.pretrain_steps == 4 and subject.phases == ("finetune",)
    entered = subject._entered(subject.init(1), subject.arrays())
    assert np.linalg.norm(entered.carry["latent"]) == pytest.approx(np.sqrt(5), rel=1e-5)
