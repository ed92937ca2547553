"""Configuration: defaults, presets, older names, and that what was saved comes back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml

from twinax import conf, engines
from twinax.envs import GridReward, Hypergrid
from twinax.errors import TwinaxError
from twinax.gflownet import objectives, problem


def test_defaults_are_the_librarys():
    """`twinax train` alone is the problem of the README's first program."""
    built = conf.build_problem(conf.compose())
    assert repr(built) == repr(problem(Hypergrid(dim=4, side=20), objective="trajectory_balance"))


def test_grid_changes_other_sections():
    config = conf.compose(["env=grid"])
    built = conf.build_problem(config)
    assert (built.env.dim, built.env.side, built.batch_size) == (2, 3, 10)
    assert (built.policy.hidden, built.policy.activation) == ((128, 128), "leaky_relu")
    assert sum(built.log_z) == 37.5 and len(built.log_z) == 16
    assert built.optimizer.learning_rate == 1e-4
    assert built.optimizer.rates["log_z"] == pytest.approx(1e-3)
    assert config.proxy.name == "uniform"


def test_explicit_overrides_win_over_a_preset_in_any_order():
    for overrides in (
        ["env=grid", "proxy=hard", "policy.hidden=[7]", "optimizer.learning_rate=0.5"],
        ["optimizer.learning_rate=0.5", "policy.hidden=[7]", "proxy=hard", "env=grid"],
    ):
        built = conf.build_problem(conf.compose(overrides))
        assert built.env.reward == GridReward.hard()
        assert built.policy.hidden == (7,)
        assert built.optimizer.rates["log_z"] == pytest.approx(5.0)  # still ten times the other


@pytest.mark.parametrize("env", ["dag", "phylo"])
def test_target_networks_of_a_preset_are_for_objectives_that_read_them(env):
    small = {"dag": ["env.num_nodes=3"], "phylo": ["env.taxa=5", "env.sites=100"]}[env]
    reads = [name for name, kind in objectives.OBJECTIVES.items() if kind.reads_target]
    for name in ("trajectory_balance", "subtrajectory_balance", "log_partition_variance", *reads):
        if name == "modified_detailed_balance" and env == "phylo":
            continue  # no tree may stop early
        targets = conf.build_problem(conf.compose([f"env={env}", f"objective={name}", *small])).targets
        assert bool(targets.every or targets.rate) == (name in reads), name
    own = conf.compose([f"env={env}", "objective=trajectory_balance", "targets.rate=0.1", "targets.every=0"])
    with pytest.raises(TwinaxError, match="trajectory_balance does not read any; set both to 0"):
        conf.build_problem(own)


def test_the_later_of_two_equal_keys_wins():
    assert conf.compose(["seed=1", "seed=2"]).seed == 2
    assert conf.compose(["objective=tb", "objective=fm"]).objective.name == "flow_matching"


@pytest.mark.parametrize("name", [*objectives.OBJECTIVES, *objectives.ALIASES])
def test_every_objective_by_every_name(name):
    wanted = objectives.ALIASES.get(name, name)
    assert conf.compose([f"objective={name}"]).objective.name == wanted
    assert conf.compose([f"loss={name}"]).objective.name == wanted


@pytest.mark.parametrize("name", ["uniform", "corners", "easy", "hard", "bands"])
def test_every_proxy_builds(name):
    built = conf.build_problem(conf.compose([f"proxy={name}", "env.dim=2", "env.side=8"]))
    assert built.env.log_reward(built.env.reset(1)).shape == (1,)


def test_any_bands():
    config = conf.compose(["proxy=bands", "proxy.r0=0.25", "proxy.r1=1", "proxy.r2=3"])
    assert conf.build_problem(config).env.reward == GridReward(0.25, 1.0, 3.0)


@pytest.mark.parametrize(
    ("older", "key", "value"),
    [
        ("gflownet.optimizer.n_train_steps=10", "trainer.steps", 10),
        ("gflownet.optimizer.lr=0.01", "optimizer.learning_rate", 0.01),
        ("gflownet.optimizer.lr_z_mult=100", "optimizer.log_z_learning_rate", 0.1),
        ("gflownet.optimizer.z_dim=4", "objective.log_z_size", 4),
        ("gflownet.optimizer.batch_size=5", "trainer.batch_size", 5),
        ("gflownet.optimizer.batch_size.forward=5", "trainer.batch_size", 5),
        ("gflownet.optimizer.clip_grad_norm=1", "optimizer.clip_norm", 1.0),
        ("gflownet.random_action_prob=0.1", "exploration.epsilon", 0.1),
        ("num_train_steps=1_000", "trainer.steps", 1000),
        ("num_envs=8", "trainer.batch_size", 8),
        ("logging.tqdm_print_rate=100", "trainer.log_every", 100),
        ("logging.eval_each=50", "trainer.evaluate_every", 50),
        ("env.n_dim=3", "env.dim", 3),
        ("env.length=5", "env.side", 5),
        ("environment.dim=3", "env.dim", 3),
        ("environment.side=5", "env.side", 5),
        ("environment.reward=hard", "proxy.name", "hard"),
        ("agent.train_backward=false", "policy.backward", "uniform"),
        ("agent.train_backward=true", "policy.backward", "learned"),
        ("agent.start_eps=1", "exploration.epsilon", 1.0),
        ("agent.exploration_steps=30_000", "exploration.epsilon_steps", 30_000),
        ("float_precision=64", "trainer.dtype", "float64"),
        ("trainer.mode=legacy", "trainer.mode", "torch"),
        ("proxy=box/corners", "proxy.name", "corners"),
    ],
)
def test_older_names(older, key, value):
    found = conf.compose(["env.dim=2", older])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == pytest.approx(value) if isinstance(value, float) else found == value


@pytest.mark.parametrize(
    ("older", "key", "value"),
    [
        ("num_envs=8", "ppo.num_envs", 8),
        ("num_steps=32", "ppo.num_steps", 32),
        ("total_timesteps=100_000", "trainer.env_steps", 100_000),
        ("update_epochs=2", "ppo.num_epochs", 2),
        ("learning_rate=1e-4", "optimizer.learning_rate", 1e-4),
        ("max_grad_norm=0.3", "optimizer.clip_norm", 0.3),
        ("ent_coef=0.02", "ppo.ent_coef", 0.02),
    ],
)
def test_names_of_cleanrl_mean_what_they_mean_there(older, key, value):
    found = conf.compose(["experiment=ppo", older])
    for part in key.split("."):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize("experiment", ["ppo", "biped"])
def test_ppo_has_no_batch_of_its_own(experiment):
    with pytest.raises(TwinaxError, match="batch_size"):
        conf.compose([f"experiment={experiment}", "trainer.batch_size=64"])


def test_saved_configuration_comes_back():
    config = conf.compose(["env=grid", "proxy=corners", "proxy.mu=0.5", "trainer.steps=7", "objective=subtb"])
    stored = yaml.safe_load(yaml.safe_dump(conf.as_dict(config)))
    assert conf.restore(stored) == config
    changed = conf.restore(stored, ["trainer.mode=torch", "num_train_steps=9"])
    assert (changed.trainer.mode, changed.trainer.steps) == ("torch", 9)
    assert dataclasses.replace(changed, trainer=config.trainer) == config


def test_a_choice_cannot_change_in_a_saved_configuration():
    stored = conf.as_dict(conf.compose())
    with pytest.raises(TwinaxError, match="objective=detailed_balance cannot change"):
        conf.restore(stored, ["objective=db"])


@pytest.mark.parametrize("name", conf.experiment_names())
def test_every_key_has_a_sentence_that_stands_alone(name):
    rows = conf.documentation(conf.find_experiment(name))
    assert len(rows) > 50
    bad = [f"{key}: {sentence}" for _, key, default, sentence in rows if not stands_alone(sentence, default)]
    assert bad == []


def stands_alone(sentence: str, default: object) -> bool:
    """Whether a sentence says what it is about, in a few words at least, and what null means where that is a value."""
    words = sentence.split()
    if len(words) < 4 or not sentence.endswith(".") or not sentence[0].isupper():
        return False
    refers = words[0] in ("Of", "Whose", "It", "Its", "Between", "Over", "Chosen") or words[:2] == ["The", "same"]
    return not refers and (default is not None or "null" in sentence)


def test_composing_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    conf.compose(["env=grid"])
    assert list(tmp_path.iterdir()) == []


def test_composing_leaves_a_persons_hydra_alone():
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    with hydra.initialize(version_base="1.3", config_path=None):
        outer = GlobalHydra.instance().hydra
        conf.compose(["env=grid"])
        assert GlobalHydra.instance().hydra is outer


def test_commas_make_every_combination():
    assert conf.split_commas(["seed=1,2", "objective=tb,db", "policy.hidden=[1,2]"]) == [
        ["seed=1", "objective=tb", "policy.hidden=[1,2]"],
        ["seed=1", "objective=db", "policy.hidden=[1,2]"],
        ["seed=2", "objective=tb", "policy.hidden=[1,2]"],
        ["seed=2", "objective=db", "policy.hidden=[1,2]"],
    ]


def test_the_default_problem_fits_a_small_machine():
    config = conf.compose()
    engines.check_memory(conf.build_problem(config), conf.train_options(config), 1e9)
    config = conf.compose(["policy.hidden=[8192,8192]"])
    with pytest.raises(TwinaxError, match="needs about"):
        engines.check_memory(conf.build_problem(config), conf.train_options(config), 1e9)


def test_modes_are_the_engines():
    for mode in (*engines.MODES, *engines.ALIASES):
        assert conf.compose([f"trainer.mode={mode}"]).trainer.mode in engines.MODES


def test_older_names_of_worlds_in_the_treasure_hunt():
    config = conf.compose(["experiment=treasurehunt", "preset.worlds=2", "evaluation.worlds=3"])
    assert (config.preset.num_envs, config.evaluation.num_envs) == (2, 3)


@pytest.mark.parametrize(
    ("experiment", "older", "key", "value"),
    [
        ("treasurehunt", "preset.train_steps", "preset.gradient_steps", 3),
        ("treasurehunt", "model.quantiles", "model.num_quantiles", 3),
        ("treasurehunt", "model.act_quantiles", "model.num_act_quantiles", 3),
        ("treasurehunt", "model.cosines", "model.num_cosines", 3),
        ("treasurehunt", "model.atoms", "model.num_atoms", 3),
        ("treasurehunt", "model.low", "model.v_min", -3.0),
        ("treasurehunt", "model.high", "model.v_max", 3.0),
        ("treasurehunt", "model.target_rate", "model.tau", 0.25),
        ("treasurehunt", "model.TAU", "model.tau", 0.25),
        ("treasurehunt", "model.sync_every", "model.target_network_frequency", 3),
        ("treasurehunt", "model.sync_freq", "model.target_network_frequency", 3),
        ("treasurehunt", "replay.memory", "replay.buffer_size", 300),
        ("treasurehunt", "replay.frames", "replay.frame_stack", 3),
        ("offline", "agent.discount", "agent.gamma", 0.25),
        ("offline", "agent.target_rate", "agent.tau", 0.25),
        ("offline", "agent.actor_norm", "agent.actor_layer_norm", True),
        ("offline", "agent.value_norm", "agent.value_layer_norm", False),
        ("offline agent=hilp", "agent.width", "agent.latent_dim", 3),
        ("offline agent=rebrac", "agent.noise", "agent.policy_noise", 0.25),
        ("offline agent=rebrac", "agent.actor_noise", "agent.policy_noise", 0.25),
        ("offline agent=mbpo_rebrac", "agent.rollouts", "agent.num_model_rollouts", 3),
        ("offline agent=mbpo_rebrac", "agent.rollout_steps", "agent.num_model_rollout_steps", 3),
        ("offline agent=mbpo_rebrac", "agent.capacity", "agent.buffer_size", 300),
        ("offline agent=dino_rebrac", "agent.repr_clip", "agent.repr_noise_clip", 0.25),
        ("offline agent=infom", "agent.goals", "agent.num_flow_goals", 3),
        ("offline agent=infom", "agent.clip_goals", "agent.clip_flow_goals", False),
        ("offline agent=infom", "agent.latents", "agent.critic_latent_type", "encoding"),
        ("offline agent=fb_repr", "agent.mix", "agent.latent_mix_prob", 0.25),
        ("offline agent=fb_repr", "agent.orthonormal", "agent.orthonorm_coeff", 0.25),
        ("offline", "phases.pretrain", "phases.pretrain_steps", 3),
        ("offline", "task.copies", "task.num_envs", 3),
    ],
)
def test_older_names_of_options(experiment, older, key, value):
    section, name = key.split(".")
    for written in (older, key):
        config = conf.compose([f"experiment={experiment.split()[0]}", *experiment.split()[1:], f"{written}={value}"])
        assert getattr(getattr(config, section), name) == value
