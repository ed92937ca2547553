"""Our worlds in Brax's hands: its training runs on them, and what it learns is read back."""

from __future__ import annotations

import numpy as np
import pytest

from twinax.bridge._brax import brax_env, read_brax
from twinax.envs import CartPole, Pendulum
from twinax.errors import TwinaxError
from twinax.ppo import problem, to_world
from twinax.runs import checkpoint

pytest.importorskip("brax")
pytestmark = [
    pytest.mark.usefixtures("quick_compilation"),
    # Brax's own, of old ways to call JAX
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SETTINGS: dict = {"hidden": (8, 8), "worlds": 8, "steps": 5, "epochs": 2, "minibatches": 2, "episodes": 4}


def test_a_step_in_brax_is_a_step_of_the_world():
    import jax

    world = Pendulum(time_limit=20)
    env = brax_env(world)
    state = env.reset(jax.random.key(0))
    action = np.array([0.25])
    after = env.step(state, action)
    before = jax.tree.map(lambda x: np.asarray(x)[None], state.pipeline_state)
    moved = world.step(before, np.array([[0.5]], np.float32), {})
    np.testing.assert_allclose(after.obs, world.observe(moved.state)[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.reward, moved.reward[0], rtol=1e-5)
    assert jax.tree.structure(state) == jax.tree.structure(after)
    kinds = [[(x.shape, x.dtype) for x in jax.tree.leaves(one)] for one in (state, after)]
    assert kinds[0] == kinds[1]


@pytest.mark.slow
def test_brax_trains_on_a_world_and_its_policy_is_read_back(tmp_path):
    import jax
    from brax.training.agents.ppo import networks as brax_networks

    from twinax.runs.brax import train_with_brax

    subject = problem(
        Pendulum(time_limit=10), policy="tanh", std="state", activation="silu", normalise_observations=True, **SETTINGS
    )
    run = train_with_brax(subject, 4, run_dir=tmp_path / "run", evaluations=2, progress=False)
    assert run.summary["status"] == "finished" and run.summary["steps"] >= 4
    assert [row["step"] for row in run.metrics][0] == 0
    stored, meta = checkpoint.load(checkpoint.latest(tmp_path / "run"), like=subject.init(0))
    # Brax's own inference gives the same actions from the same parameters.
    agent, moments = stored.networks["agent"], stored.carry.observation
    observation = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    ours = to_world(subject.world.actions, agent.policy(moments.scaled(observation, limit=1e9)).mode, True)
    network = brax_networks.make_ppo_networks(
        3, 1, lambda x, _: x, policy_hidden_layer_sizes=(8, 8), value_hidden_layer_sizes=(8, 8)
    )
    layers = {
        f"hidden_{k}": {"kernel": layer.weight.T, "bias": layer.bias} for k, layer in enumerate(agent.actor.layers)
    }
    scaled = (observation - moments.mean) / np.sqrt(moments.variance)
    logits = network.policy_network.apply(None, {"params": layers}, jax.numpy.asarray(scaled))
    theirs = network.parametric_action_distribution.mode(logits)
    np.testing.assert_allclose(ours, 2 * np.asarray(theirs), rtol=1e-4, atol=1e-5)
    assert meta["step"] == run.summary["steps"]


def test_values_are_read_as_well():
    import jax
    from brax.training.acme import running_statistics
    from brax.training.agents.ppo import networks as brax_networks

    network = brax_networks.make_ppo_networks(4, 2, policy_hidden_layer_sizes=(6,), value_hidden_layer_sizes=(5, 7))
    policy, value = (n.init(jax.random.key(k)) for k, n in enumerate((network.policy_network, network.value_network)))
    normaliser = running_statistics.init_state(jax.numpy.zeros(4))
    agent, moments, critic = read_brax((normaliser, policy, value), False)
    observation = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    np.testing.assert_allclose(
        agent.value(observation), network.value_network.apply(normaliser, value, observation), rtol=1e-4, atol=1e-5
    )
    assert critic is None and moments.mean.shape == (4,)


def test_discrete_actions_are_refused():
    with pytest.raises(TwinaxError, match="acts in boxes"):
        brax_env(CartPole())
