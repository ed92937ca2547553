"""compat=brax against Brax's own functions, with the same numbers: statistics, first weights, an iteration's loss."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from twinax import conf, tree
from twinax.brax.habits import ALWAYS, DEFAULTS, combined
from twinax.envs import Pendulum
from twinax.envs._control import Box
from twinax.errors import UnknownName
from twinax.noise import numpy_draws
from twinax.ppo import RunningMoments, Scaling, make_networks, problem
from twinax.ppo._playing import play_iteration, roll_out

SMALL: dict = {"hidden": (8, 8), "num_envs": 6, "num_steps": 5, "num_epochs": 1, "num_minibatches": 1, "episodes": 3}
BRAX: dict = {name: value for name, value in combined(ALWAYS, DEFAULTS)["ppo"].items() if name != "anneal"}
AS_BRAX = Scaling(limit=0.0, eps=0.0)


def brax_networks(hidden, observations: int, actions: int, normalise=lambda x, _: x):
    import jax
    from brax.training.agents.ppo import networks

    return networks.make_ppo_networks(
        observations,
        actions,
        preprocess_observations_fn=normalise,
        policy_hidden_layer_sizes=hidden,
        value_hidden_layer_sizes=hidden,
        activation=jax.nn.silu,
    )


def test_statistics_are_those_of_brax():
    """Three batches: an entry that never moves, one that moves a little, one that moves by millions, and a far one."""
    pytest.importorskip("brax")
    import jax
    from brax.training.acme import running_statistics

    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        theirs, ours = running_statistics.init_state(jax.numpy.zeros(4)), RunningMoments.empty(4)
        for k, number in enumerate((3, 40, 17)):
            rows = rng.normal(k, 1 + k, (number, 4)) * np.array([0.0, 1e-3, 1e8, 1.0])
            rows[0, 3] = 1e3
            theirs, ours = running_statistics.update(theirs, jax.numpy.asarray(rows)), ours.with_rows(rows)
            np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(AS_BRAX.deviation(ours.variance), theirs.std, rtol=1e-6)
            want = running_statistics.normalize(jax.numpy.asarray(rows), theirs)
            np.testing.assert_allclose(ours.scaled(rows, AS_BRAX), want, rtol=1e-5, atol=1e-6)
        assert np.abs(want).max() > 10  # nothing is cut off
        assert np.abs(ours.scaled(rows)).max() <= 10


def test_first_weights_are_drawn_as_brax_draws_them():
    pytest.importorskip("brax")
    import jax
    from scipy import stats

    network = brax_networks((64, 32), 5, 3)
    policy, value = (
        part.init(jax.random.key(k)) for k, part in enumerate((network.policy_network, network.value_network))
    )
    ours = make_networks(
        np.random.default_rng(0),
        5,
        5,
        Box((-1.0,) * 3, (1.0,) * 3),
        hidden=(64, 32),
        activation="silu",
        kind="tanh",
        std="state",
        initial_weights=BRAX["initial_weights"],
    )
    for mine, theirs in ((ours.actor, policy), (ours.critic, value)):
        for k, layer in enumerate(mine.layers):
            kernel = np.asarray(theirs["params"][f"hidden_{k}"]["kernel"])
            assert layer.weight.shape == kernel.T.shape and not layer.bias.any()
            assert not np.asarray(theirs["params"][f"hidden_{k}"]["bias"]).any()
            bound = np.sqrt(3 / layer.weight.shape[1])
            for weights in (layer.weight, kernel):
                assert 0.8 * bound < np.abs(weights).max() <= bound * (1 + 1e-6)
                assert stats.kstest(weights.ravel() / bound, stats.uniform(-1, 2).cdf).pvalue > 1e-3


def test_the_loss_of_an_iteration_is_that_of_brax():
    """Two iterations: statistics before learning, population's deviation, nothing cut off, Brax's reading of a rollout;
    in float64, with gradients, ends and time limits among the rows."""
    pytest.importorskip("brax")
    import jax
    from brax.training import types
    from brax.training.acme import running_statistics
    from brax.training.agents.ppo import losses

    subject = problem(Pendulum(time_limit=7), reward_scale=0.1, gamma=0.97, **{**BRAX, **SMALL})
    wide = lambda part: tree.map_leaves(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, part)  # noqa: E731
    with jax.enable_x64(True):
        state = wide(subject.init(0))
        theirs = running_statistics.init_state(jax.numpy.zeros(3))
        network = brax_networks(subject.hidden, 3, 1, running_statistics.normalize)
        truncated = 0
        for step in range(2):
            draws = wide(numpy_draws(subject.draws(), 0, step))
            key = jax.random.key(step)
            draws["entropy"] = np.asarray(jax.random.normal(key, (subject.num_steps, subject.num_envs, 1)))
            _, happened = roll_out(subject, state, draws)
            truncated += happened.truncated.sum()
            played = play_iteration(subject, state, draws)
            agent = state.networks["agent"]
            theirs = running_statistics.update(theirs, jax.numpy.asarray(happened.observation))
            swapped = tree.map_leaves(lambda x: jax.numpy.swapaxes(jax.numpy.asarray(x), 0, 1), happened)
            data = types.Transition(
                observation=swapped.observation,
                action=jax.numpy.tanh(swapped.point),
                reward=swapped.reward,
                discount=1.0 - swapped.ended,
                next_observation=swapped.next_observation,
                extras={
                    "state_extras": {"truncation": swapped.truncated * 1.0},
                    "policy_extras": {
                        "raw_action": swapped.point,
                        "log_prob": swapped.log_prob,
                        "distribution_params": jax.numpy.zeros((*swapped.reward.shape, 2)),
                    },
                },
            )

            def parameters(net):
                layers = {
                    f"hidden_{k}": {"kernel": layer.weight.T, "bias": layer.bias} for k, layer in enumerate(net.layers)
                }
                return {"params": layers}

            def brax_loss(agent, normaliser=theirs, data=data, key=key):
                both = losses.PPONetworkParams(policy=parameters(agent.actor), value=parameters(agent.critic))
                return losses.compute_ppo_loss(
                    both,
                    normaliser,
                    data,
                    key,
                    network,
                    entropy_cost=subject.ent_coef,
                    discounting=subject.gamma,
                    reward_scaling=subject.reward_scale,
                    gae_lambda=subject.gae_lambda,
                    clipping_epsilon=subject.clip,
                    vf_coefficient=subject.vf_coef,
                )[0]

            def our_loss(agent, rows=played.rows):
                return subject.loss({"agent": agent}, tree.map_leaves(jax.numpy.asarray, rows))[0]

            agent = tree.map_leaves(jax.numpy.asarray, agent)
            ours, want = (jax.value_and_grad(f)(agent) for f in (our_loss, brax_loss))
            # Brax counts its rows in float32.
            np.testing.assert_allclose(ours[0], want[0], rtol=1e-7)
            gradients = [tree.named_leaves(found[1]) for found in (ours, want)]
            for name in gradients[0]:
                np.testing.assert_allclose(gradients[0][name], gradients[1][name], rtol=1e-6, atol=1e-9, err_msg=name)
            assert (
                np.abs(
                    np.exp(agent.policy(played.rows.observation).log_prob_at(played.rows.point) - played.rows.log_prob)
                    - 1
                ).max()
                > 1e-3
            )  # by new statistics, unlike the player
            state = dataclasses.replace(state, carry=played.carry)
        assert truncated


@pytest.mark.parametrize(
    ("setting", "value"),
    [("advantage_deviation", "N"), ("initial_weights", "lecun"), ("observation_statistics", "before")],
)
def test_unknown_names_list_the_known_ones(setting, value):
    with pytest.raises(UnknownName, match=f"unknown {setting} '{value}'; known: "):
        problem(Pendulum(), **{setting: value})


@pytest.mark.parametrize("words", [("experiment=ppo", "env=pendulum", "compat=brax"), ("experiment=biped", "level=2")])
def test_the_command_line_follows_the_table(words):
    if "experiment=biped" in words:
        pytest.importorskip("mujoco")
    config = conf.compose(list(words))
    for section, values in ALWAYS.items():
        assert {name: getattr(getattr(config, section), name) for name in values} == values
