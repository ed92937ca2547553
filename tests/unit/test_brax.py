"""Our worlds in Brax's hands: its training runs on them, and what it learns is read back."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

import numpy as np
import pytest

from twinax import conf
from twinax.brax.exchange import brax_env, read_brax
from twinax.brax.habits import ALWAYS
from twinax.bridge import load_weights
from twinax.envs import CartPole, Pendulum
from twinax.errors import TwinaxError
from twinax.networks import ACTIVATIONS
from twinax.networks import activation as function
from twinax.optimizer import Optimizer
from twinax.ppo import problem, to_world
from twinax.runs import Diverged, Interrupted, Removed, RunDirectory, checkpoint

pytest.importorskip("brax")
pytestmark = [
    pytest.mark.usefixtures("quick_compilation"),
    # Brax's own, of old ways to call JAX
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

LIKE_BRAX: dict = {name: value for name, value in ALWAYS["ppo"].items() if name != "anneal"}
SETTINGS: dict = {"hidden": (8, 8), "num_envs": 8, "num_steps": 5, "num_epochs": 2, "num_minibatches": 2, "episodes": 4}


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

    from twinax.brax.training import train_with_brax

    settings = {**SETTINGS, **LIKE_BRAX, "activation": "tanh", "normalise_observations": True, "film": False}
    subject = problem(Pendulum(time_limit=10), optimizer=Optimizer(learning_rate=1e-2), **settings)
    run = train_with_brax(subject, 4, run_dir=tmp_path / "run", evaluations=2, progress=False)
    assert run.summary["status"] == "finished" and run.summary["steps"] >= 4
    assert [row["step"] for row in run.metrics][0] == 0
    stored, meta = checkpoint.load(checkpoint.latest(tmp_path / "run"), like=subject.init(0))
    # Brax's own inference gives the same actions from the same parameters.
    agent, moments = stored.networks["agent"], stored.carry.observation
    observation = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    ours = to_world(subject.world.actions, agent.policy(moments.scaled(observation, subject.scaling)).point(), True)
    network = brax_networks.make_ppo_networks(
        3, 1, lambda x, _: x, policy_hidden_layer_sizes=(8, 8), value_hidden_layer_sizes=(8, 8), activation=jax.nn.tanh
    )
    layers = {
        f"hidden_{k}": {"kernel": layer.weight.T, "bias": layer.bias} for k, layer in enumerate(agent.actor.layers)
    }
    scaled = (observation - moments.mean) / np.sqrt(moments.variance)
    logits = network.policy_network.apply(None, {"params": layers}, jax.numpy.asarray(scaled))
    theirs = network.parametric_action_distribution.mode(logits)
    np.testing.assert_allclose(ours, 2 * np.asarray(theirs), rtol=1e-4, atol=1e-5)
    assert meta["step"] == run.summary["steps"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_are_read_as_well(name):
    import jax
    from brax.training.acme import running_statistics
    from brax.training.agents.ppo import networks as brax_networks

    forms = {"gelu": lambda x: jax.nn.gelu(x, approximate=False), "gelu_tanh": jax.nn.gelu}
    own: Any = forms.get(name) or getattr(jax.nn, name)
    network = brax_networks.make_ppo_networks(
        4, 2, policy_hidden_layer_sizes=(6,), value_hidden_layer_sizes=(5, 7), activation=own
    )
    policy, value = (n.init(jax.random.key(k)) for k, n in enumerate((network.policy_network, network.value_network)))
    normaliser = running_statistics.init_state(jax.numpy.zeros(4))
    agent, moments, critic = read_brax((normaliser, policy, value), False, name)
    observation = np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32)
    np.testing.assert_allclose(
        agent.value(observation), network.value_network.apply(normaliser, value, observation), rtol=1e-4, atol=1e-5
    )
    assert critic is None and moments.mean.shape == (4,)
    # Brax is given the library's function, which is JAX's.
    x = jax.numpy.linspace(-3, 3, 50)
    np.testing.assert_allclose(jax.jit(function(name))(x), own(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "tanh", "silu"])
def test_brax_trains_with_the_activation_that_its_policy_is_read_with(monkeypatch, name):
    """Parameters do not show it, so the networks that Brax is given are held against those that are read."""
    import jax
    from brax.training.acme import running_statistics

    from twinax.brax.training import train_with_brax

    subject = problem(Pendulum(), optimizer=Optimizer(), activation=name, **SETTINGS, **LIKE_BRAX)
    observation = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    theirs = {}

    def train(network_factory, policy_params_fn, num_timesteps, **_):
        network = network_factory(3, 1)
        keys = zip((network.policy_network, network.value_network), jax.random.split(jax.random.key(0)), strict=True)
        policy, value = (net.init(key) for net, key in keys)
        normaliser = running_statistics.init_state(jax.numpy.zeros(3))
        theirs["logits"] = network.policy_network.apply(normaliser, policy, observation)
        theirs["value"] = network.value_network.apply(normaliser, value, observation)
        policy_params_fn(num_timesteps, None, (normaliser, policy, value))

    monkeypatch.setattr("brax.training.agents.ppo.train.train", train)
    agent: Any = train_with_brax(subject, 2, progress=False).state.networks["agent"]
    np.testing.assert_allclose(agent.actor(observation), theirs["logits"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(agent.value(observation), theirs["value"], rtol=1e-4, atol=1e-5)


class TestBookkeeping:
    """A run by Brax is a run as any other; Brax's program itself is played here, call by call."""

    STEPS = 6

    @pytest.fixture
    def run(self, monkeypatch, tmp_path):
        """`run(during)` trains; `during(step)` is called within Brax's program, after each sixth of it."""
        import jax
        from brax.training.acme import running_statistics

        from twinax.brax.training import train_with_brax

        subject = problem(Pendulum(time_limit=10), optimizer=Optimizer(), film=False, **SETTINGS, **LIKE_BRAX)

        def start(during=lambda step: 1.0, loss=0.5, **options):
            def train(network_factory, policy_params_fn, progress_fn, num_timesteps, **_):
                network = network_factory(3, 1)
                nets = (network.policy_network, network.value_network)
                policy, value = (
                    net.init(key) for net, key in zip(nets, jax.random.split(jax.random.key(0)), strict=True)
                )
                normaliser = running_statistics.init_state(jax.numpy.zeros(3))
                found = {"eval/episode_reward": -3.0, "eval/avg_episode_length": 10.0}
                progress_fn(0, found)
                policy_params_fn(0, None, (normaliser, policy, value))
                for step in range(1, self.STEPS + 1):
                    scale = during(step) or 1.0
                    scaled = jax.tree.map(lambda x, scale=scale: scale * x, policy)
                    policy_params_fn(step * num_timesteps // self.STEPS, None, (normaliser, scaled, value))
                    progress_fn(step * num_timesteps // self.STEPS, found | {"training/total_loss": loss})

            monkeypatch.setattr("brax.training.agents.ppo.train.train", train)
            return train_with_brax(subject, self.STEPS, run_dir=tmp_path / "run", progress=False, **options)

        start.subject, start.dir = subject, tmp_path / "run"  # type: ignore[attr-defined]
        return start

    def test_it_leaves_what_every_run_leaves(self, run):
        result = run()
        assert result.summary["status"] == "finished" and result.summary["episode_return"] == -3.0
        assert checkpoint.steps(run.dir) == [4, 5, 6], "as many as the plan keeps"
        assert [row["step"] for row in result.metrics] == list(range(7))
        assert len((run.dir / "metrics.csv").read_text().splitlines()) == 8
        loaded = load_weights(run.dir / "weights" / "networks.safetensors", like=run.subject.init(0).networks)
        np.testing.assert_array_equal(
            loaded["agent"].actor.layers[0].weight, result.networks["agent"].actor.layers[0].weight
        )
        assert not (run.dir / ".lock").exists()

    def test_a_second_training_is_refused(self, run):
        def during(step):
            with pytest.raises(TwinaxError, match="is being trained by process"), RunDirectory(run.dir).lock():
                pass

        run(during)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_saves_and_says_how_to_go_on(self, run, number, code):
        with pytest.raises(
            Interrupted, match=r"stopped at step 3 of 6 and saved in .*0000000003; continue with"
        ) as caught:
            run(lambda step: os.kill(os.getpid(), number) if step == 3 else None)
        assert caught.value.exit_code == code and int(caught.value.run.state.step) == 3
        assert RunDirectory(run.dir).read_summary()["status"] == "interrupted"
        assert checkpoint.steps(run.dir)[-1] == 3 and (run.dir / "metrics.csv").exists()

    @pytest.mark.parametrize("scale", [np.nan, 1e12])
    def test_parameters_that_ran_away_are_not_kept(self, run, scale):
        with pytest.raises(Diverged, match="step 4: the parameter 'agent.actor") as caught:
            run(lambda step: scale if step == 4 else 1.0)
        assert caught.value.checkpoint == checkpoint.latest(run.dir) == checkpoint.place(run.dir, 3)
        assert RunDirectory(run.dir).read_summary()["status"] == "diverged"

    def test_a_loss_that_is_not_finite_is_no_success(self, run):
        with pytest.raises(Diverged, match="'training/total_loss' is no longer finite"):
            run(loss=np.nan)

    def test_a_removed_directory_is_noticed(self, run):
        with pytest.raises(Removed):
            run(lambda step: shutil.rmtree(run.dir) if step == 2 else None)
        assert not run.dir.exists()

    def test_a_program_that_fails_leaves_its_mark(self, run):
        def during(step):
            if step == 2:
                raise ValueError("a stranger's reward")

        with pytest.raises(ValueError, match="stranger"):
            run(during)
        assert RunDirectory(run.dir).read_summary()["status"] == "failed" and checkpoint.steps(run.dir) == [0, 1]


def test_discrete_actions_are_refused():
    with pytest.raises(TwinaxError, match="acts in boxes"):
        brax_env(CartPole())


def test_problems_that_brax_would_train_otherwise_are_refused(tmp_path):
    from twinax.brax.training import train_with_brax

    world, adam = Pendulum(time_limit=10), Optimizer()
    for changes, optimizer, words in (
        ({"policy": "gaussian"}, adam, "cannot do ppo.policy=gaussian: with it ppo.policy is tanh"),
        ({"pool": 8}, adam, "ppo.pool=8"),
        ({}, Optimizer(decay_steps=10), "optimizer.decay_steps=10"),
        ({"num_envs": 6, "num_minibatches": 4, "num_steps": 8}, adam, "6 worlds do not divide into 4"),
    ):
        subject = problem(world, optimizer=optimizer, **{**SETTINGS, **LIKE_BRAX, **changes})
        with pytest.raises(TwinaxError, match=words):
            train_with_brax(subject, 2, run_dir=tmp_path / "run")
        assert not (tmp_path / "run").exists()


class TestConfiguration:
    """What is said of Brax is one table."""

    @pytest.mark.parametrize(
        "word",
        [
            "ppo.policy=gaussian",
            "ppo.std=free",
            "ppo.anneal=true",
            "ppo.value_clip=0.2",
            "ppo.normalise_rewards=true",
            "ppo.target_kl=0.01",
            "ppo.advantage=gae",
            "ppo.standardise=rollout",
            "ppo.advantage_deviation=sample",
            "ppo.initial_weights=orthogonal",
            "ppo.observation_limit=10.0",
            "ppo.observation_eps=1e-08",
            "ppo.observation_statistics=after_learning",
            "ppo.pool=16",
            "ppo.groups=2",
            "ppo.shared=true",
            "ppo.first_std=0.5",
            "ppo.pipelined=true",
            "optimizer.decay_to=0.1",
            "optimizer.eps=0.001",
            "trainer.mode=torch",
            "trainer.dtype=float64",
            "trainer.evaluate_every=10",
            "trainer.checkpoint_every=10",
            "trainer.devices=2",
            "seeds=2",
        ],
    )
    def test_settings_that_brax_would_ignore_are_refused(self, word):
        pytest.importorskip("mujoco")
        train = conf.find_experiment("biped").train
        assert train(conf.compose(["experiment=biped", "level=2"])) is not None
        key, _, value = word.partition("=")
        with pytest.raises(TwinaxError, match=f"^Brax's training cannot do {key}={value}: with it {key} is") as found:
            train(conf.compose(["experiment=biped", "level=2", word]))
        assert "\n" not in str(found.value)

    def test_the_table_holds_against_defaults_of_every_level_2_task(self):
        pytest.importorskip("mujoco")
        for task in ("walk", "stand"):
            config = conf.compose(["experiment=biped", f"task={task}", "level=2"])
            assert (config.ppo.activation, config.ppo.clip, config.ppo.pool) == ("silu", 0.3, 0)
            assert (config.trainer.evaluate_every, config.optimizer.eps, config.ppo.anneal) == (None, 1e-8, False)

    def test_several_processes_are_refused(self, monkeypatch):
        pytest.importorskip("mujoco")
        import jax

        monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(jax, "process_count", lambda: 2)
        config = conf.compose(["experiment=biped", "level=2", "trainer.devices=2"])
        with pytest.raises(TwinaxError, match="Brax's training is one process here, and 2 were started"):
            conf.find_experiment("biped").train(config)

    @pytest.mark.parametrize("env", ["pendulum", "mountain_car_continuous"])
    def test_compat_is_the_same_table_and_wins_over_the_world(self, env):
        config = conf.compose(["experiment=ppo", f"env={env}", "compat=brax"])
        found = config.ppo
        assert (found.policy, found.std, found.activation, found.clip) == ("tanh", "state", "silu", 0.3)
        assert (found.normalise_rewards, found.anneal, found.value_clip) == (False, False, 0.0)
        assert conf.build_problem(config).squashed
        config = conf.compose(["experiment=ppo", f"env={env}", "compat=brax", "ppo.policy=gaussian"])
        assert conf.build_problem(config).policy == "gaussian"

    def test_compat_knows_discrete_actions(self):
        config = conf.compose(["experiment=ppo", "env=cartpole", "compat=brax"])
        built = conf.build_problem(config)
        assert not built.squashed and built.policy == config.ppo.policy == "auto"
        again = conf.restore(conf.as_dict(config))
        assert conf.build_problem(again).policy == "auto"
