"""Networks of the offline agents against loops in plain Python, their first weights, and densities by integration."""

from __future__ import annotations

import dataclasses
import math

import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest
import slow_offline as slow
import torch

from twinax import tree
from twinax.networks import MLP, Ensemble, Normal
from twinax.offline import AGENTS
from twinax.offline.networks import Actor, Bilinear, Intention, Metric, Value

ROWS = np.random.default_rng(1).normal(size=(4, 3))


def away(net, seed=0):
    """In float64, with no leaf at its first value."""
    rng = np.random.default_rng(seed)
    return jtu.tree_map(lambda x: x + 0.3 * rng.normal(size=x.shape), few.wide(net))


def made(kind, *args, **options):
    make = kind.xavier if kind is MLP else kind.init
    return away(make(np.random.default_rng(0), *args, **options))


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("outputs", [None, 1, 2])
def test_a_perceptron_is_linear_gelu_layer_norm(norm, outputs):
    net = made(MLP, 3, (7, 5), outputs, norm=norm)
    want = [slow.perceptron(net, slow.row(ROWS, i)) for i in range(4)]
    np.testing.assert_allclose(net(ROWS), want, rtol=1e-11)
    assert len(net.norms) == 2 * norm


def test_layer_norm_adds_a_millionth_to_the_variance():
    # Of numbers this close to each other the eps is most of the variance.
    net = made(MLP, 3, (4,), 2)
    close = dataclasses.replace(net.layers[0], weight=1e-3 * net.layers[0].weight, bias=np.full(4, 0.2))
    net = dataclasses.replace(net, layers=(close, net.layers[1]))
    np.testing.assert_allclose(net(ROWS)[0], slow.perceptron(net, slow.row(ROWS, 0)), rtol=1e-9)


def test_members_stand_on_the_leading_axis():
    net = made(Value, 3, (5,), members=2)
    assert net(ROWS).shape == (2, 4)
    want = [[slow.number(net, slow.row(ROWS, i), e=e) for i in range(4)] for e in range(2)]
    np.testing.assert_allclose(net(ROWS), want, rtol=1e-11)
    wide = made(Value, 3, (5,), 1, members=2)
    assert wide(ROWS).shape == (2, 4, 1)


def test_a_bilinear_critic_pairs_every_state_with_every_goal():
    net = made(Bilinear, 5, 3, (6,), 4)
    rng = np.random.default_rng(2)
    goals, actions = rng.normal(size=(6, 3)), rng.normal(size=(4, 2))
    found = net(goals, ROWS, actions)
    assert found.shape == (2, 4, 6)
    for e in range(2):
        for i in range(4):
            phi = slow.output(net.phi, e, slow.row(ROWS, i), slow.row(actions, i))
            want = [slow.dot(phi, slow.output(net.psi, e, slow.row(goals, j))) / math.sqrt(4) for j in range(6)]
            np.testing.assert_allclose(found[e, i], want, rtol=1e-11)


def test_a_metric_is_minus_a_distance_with_a_floor():
    net = made(Metric, 3, (6,), 4)
    goals = np.random.default_rng(2).normal(size=(4, 3))
    goals[3] = ROWS[3]
    found = net(ROWS, goals)
    for e in range(2):
        for i in range(4):
            a, b = (slow.output(net.phi, e, slow.row(x, i)) for x in (ROWS, goals))
            square = sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
            np.testing.assert_allclose(found[e, i], -math.sqrt(max(square, 1e-12)), rtol=1e-9)
    assert (found[:, 3] == -1e-6).all()


def test_the_gradient_of_a_distance_of_nothing_is_zero_not_nan():
    net = jtu.tree_map(lambda x: torch.tensor(x, requires_grad=True), made(Metric, 3, (6,), 4))
    states = torch.tensor(ROWS)
    grads = torch.autograd.grad(net(states, states).sum(), jtu.tree_leaves(net))
    assert all((grad == 0).all() for grad in grads)


def test_intentions_have_two_plain_heads_without_limits():
    net = made(Intention, 3, (6,), 4)
    far = Intention(net.trunk, net.mean, dataclasses.replace(net.log_std, bias=np.array([-50.0, 50.0, 0.0, 9.0])))
    found = far(ROWS)
    for i in range(4):
        mean, log_std = slow.intention(far, slow.row(ROWS, i))
        np.testing.assert_allclose(found.mean[i], mean, rtol=1e-11)
        np.testing.assert_allclose(found.log_std[i], log_std, rtol=1e-11)
    assert found.log_std.min() < -40 and found.log_std.max() > 40


# First weights


def bounds(net: MLP, e: int | None = None):
    """The largest weight of each layer, over sqrt(6 / (inputs + outputs))."""
    weights = [layer.weight if e is None else layer.weight[e] for layer in net.layers]
    return [np.abs(w).max() / math.sqrt(6 / sum(w.shape)) for w in weights]


def test_first_weights_are_xavier_uniform_and_biases_zero():
    net = MLP.xavier(np.random.default_rng(0), 40, (90, 60), 50)
    assert all(0.995 < bound <= 1 + 1e-6 for bound in bounds(net))
    for layer in net.layers:
        # Uniform, not normal: the variance is a third of the square of the bound.
        assert layer.weight.var() / np.square(layer.weight).max() == pytest.approx(1 / 3, rel=0.05)
        assert not layer.bias.any()
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in net.norms)


def test_fans_are_those_of_one_member_and_members_differ():
    net = Ensemble.init(np.random.default_rng(0), 5, lambda rng: MLP.xavier(rng, 40, (90,), 50))
    for e in range(5):
        assert all(0.99 < bound <= 1 + 1e-6 for bound in bounds(net.members, e))
    first = net.members.layers[0].weight
    assert all(np.abs(first[0] - first[e]).max() > 0.1 for e in range(1, 5))


@pytest.mark.parametrize("std", ["one", "state"])
def test_heads_of_an_actor_have_a_tenth_of_the_xavier_bound(std):
    net = Actor.init(np.random.default_rng(0), 30, (80,), 60, std=std)
    heads = [net.mean] if std == "one" else [net.mean, net.log_std]
    for head in heads:
        assert np.abs(head.weight).max() / math.sqrt(6 / (80 + 60)) == pytest.approx(0.1, rel=0.005)
        assert not head.bias.any()


def test_heads_of_an_intention_have_the_whole_bound():
    net = Intention.init(np.random.default_rng(0), 30, (80,), 60)
    for head in (net.mean, net.log_std):
        assert np.abs(head.weight).max() / math.sqrt(6 / (80 + 60)) == pytest.approx(1, rel=0.005)


NORMED = {
    # Which networks have LayerNorm, by agent, where all options are the default.
    "iql": "value critic",
    "rebrac": "critic",
    "mbpo_rebrac": "critic transition reward",
    "dino_rebrac": "encoder critic",
    "crl_infonce": "critic reward",
    "td_infonce": "critic reward",
    "fb_repr": "forward backward value critic",
    "hilp": "metric value critic",
    "infom": "intention reward",
}


@pytest.mark.parametrize("name", NORMED)
def test_layer_norm_is_where_it_belongs(name):
    networks = few.small(name, hidden=(6, 6)).networks(np.random.default_rng(0), few.SIZES)
    found = {key for key, net in networks.items() if any("norms." in leaf for leaf in tree.named_leaves(net))}
    assert found == set(NORMED[name].split())


DEFAULTS = {
    "iql": {"expectile": 0.9, "alpha": 10.0, "extraction": "awr"},
    "rebrac": {"alpha_actor": 0.0, "alpha_critic": 0.0, "policy_noise": 0.2, "noise_clip": 0.5},
    "mbpo_rebrac": {"num_model_rollouts": 256, "num_model_rollout_steps": 1},
    "dino_rebrac": {
        "repr_noise": 0.5,
        "repr_noise_clip": 1.0,
        "repr_temp": 0.1,
        "target_repr_temp": 0.04,
        "latent_dim": 512,
    },
    "hilp": {"expectile": 0.9, "alpha": 10.0, "latent_dim": 512},
    "fb_repr": {
        "alpha_repr": 10.0,
        "alpha": 10.0,
        "expectile": 0.9,
        "latent_mix_prob": 0.5,
        "orthonorm_coeff": 1.0,
        "latent_dim": 512,
    },
    "crl_infonce": {"alpha": 0.1, "latent_dim": 512, "normalise": True, "symmetric": False},
    "td_infonce": {"alpha": 0.1, "latent_dim": 512, "normalise": True, "aggregation": "mean"},
    "infom": {
        "latent_dim": 512,
        "expectile": 0.9,
        "kl_weight": 0.01,
        "alpha": 10.0,
        "num_flow_goals": 16,
        "flow_steps": 10,
    },
}
COMMON = {"hidden": (512,) * 4, "gamma": 0.99, "tau": 0.005, "actor_freq": 4, "actor_layer_norm": False}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_the_published_ones(name):
    agent = AGENTS[name]()
    wanted = {**COMMON, "value_layer_norm": name != "infom", **DEFAULTS[name]}
    assert {key: getattr(agent, key) for key in wanted} == wanted


# Distributions


def test_the_density_of_a_squashed_normal_integrates_to_its_probabilities():
    # The mass below a point is that of the normal variable below its atanh.
    mean, log_std = np.array([[0.4]]), np.array([[-0.3]])
    grid = np.linspace(-1, 1, 200_001)
    middle = 0.5 * (grid[1:] + grid[:-1])
    density = np.exp(Normal(mean, log_std, True).log_prob(middle[:, None]))
    below = np.cumsum(density) * (grid[1] - grid[0])
    for point in (-0.9, -0.3, 0.2, 0.7):
        z = (math.atanh(point) - 0.4) / math.exp(-0.3)
        k = np.searchsorted(grid, point) - 1
        assert below[k] == pytest.approx(0.5 * (1 + math.erf(z / math.sqrt(2))), abs=1e-5)
    assert below[-1] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("squashed", [False, True])
def test_log_densities_are_summed_over_actions(squashed):
    rng = np.random.default_rng(0)
    mean, action = rng.normal(size=(3, 2)), rng.uniform(-0.99999, 0.99999, (3, 2))
    action[0] = 1 - 1e-5
    by_hand = slow.tanh_log_prob if squashed else slow.normal_log_prob
    want = [by_hand(slow.row(action, i), slow.row(mean, i)) for i in range(3)]
    np.testing.assert_allclose(Normal(mean, None, squashed).log_prob(action), want, rtol=1e-9)


def test_actions_at_the_edge_of_the_box_have_finite_densities_in_single_precision():
    edge = np.full((1, 2), 1 - 1e-5, np.float32)
    for action in (edge, -edge):
        found = Normal(np.zeros((1, 2), np.float32), None, True).log_prob(action)
        want = slow.tanh_log_prob(slow.row(action, 0), [0.0, 0.0])
        np.testing.assert_allclose(found, want, rtol=1e-3)


@pytest.mark.parametrize("std", ["free", "state"])
def test_log_standard_deviations_are_clipped(std):
    net = made(Actor, 3, (6,), 4, std=std)
    wild = np.array([-50.0, 50.0, 0.5, -4.0])
    head = wild if std == "free" else dataclasses.replace(net.log_std, weight=0 * net.log_std.weight, bias=wild)
    found = Actor(net.trunk, net.mean, head, False)(ROWS).log_std
    np.testing.assert_array_equal(found, np.tile([-5, 2, 0.5, -4], (4, 1)))


def test_a_sample_has_the_mean_and_the_scaled_standard_deviation():
    normal = Normal(np.array([[0.3]]), np.array([[-0.7]]), False)
    np.testing.assert_allclose(normal.sample(np.array([[2.0]]), 0.5), 0.3 + math.exp(-0.7) * 0.5 * 2)
    squashed = Normal(np.array([[0.3]]), None, True)
    np.testing.assert_allclose(squashed.sample(np.array([[2.0]])), math.tanh(2.3))
    assert squashed.mode == math.tanh(0.3) and normal.mode == 0.3


@pytest.mark.parametrize("name", ["iql", "rebrac", "hilp", "fb_repr", "dino_rebrac"])
def test_an_agent_acts_on_one_state_as_on_rows(name):
    agent = few.small(name)
    networks = few.lesson(agent, "finetune")[0]
    rng = np.random.default_rng(0)
    states, noise = rng.normal(size=(4, 3)), np.zeros((4, 2))
    latent = rng.normal(size=5) if agent.actor_sees else None
    rows = None if latent is None else np.tile(latent, (4, 1))
    together = agent.act(networks, states, rows, noise, 0.0)
    alone = [agent.act(networks, states[i], latent, noise[i], 0.0) for i in range(4)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert np.abs(together).max() <= 1
