"""Presets of the published settings: every one composes, and its values are those of the published commands."""

from __future__ import annotations

import pytest

from twinax import conf
from twinax.conf import find_experiment
from twinax.conf._mirror import make_options
from twinax.errors import TwinaxError

COMMANDS = {
    # agent, domain: options of the published command, under their published names
    ("infom", "cheetah"): "agent.latent_dim=128 agent.kl_weight=0.05 agent.alpha=0.3",
    ("infom", "walker"): "agent.kl_weight=0.1 agent.alpha=0.3",
    ("infom", "quadruped"): "agent.kl_weight=0.005 agent.alpha=0.3",
    ("infom", "jaco"): "agent.kl_weight=0.2 agent.alpha=0.1",
    ("infom", "cube_single"): "agent.kl_weight=0.05 agent.expectile=0.95 agent.alpha=30",
    ("infom", "cube_double"): "agent.latent_dim=128 agent.kl_weight=0.025 agent.expectile=0.9 agent.alpha=30",
    ("infom", "scene"): "agent.latent_dim=128 agent.expectile=0.99 agent.kl_weight=0.2 agent.alpha=300",
    ("infom", "puzzle_4x4"): "agent.latent_dim=128 agent.expectile=0.95 agent.kl_weight=0.1 agent.alpha=300",
    ("infom", "visual_cube_single"): "agent.expectile=0.95 agent.kl_weight=0.025 agent.alpha=30",
    ("infom", "visual_cube_double"): "agent.latent_dim=128 agent.expectile=0.9 agent.kl_weight=0.01 agent.alpha=30",
    ("infom", "visual_scene"): "agent.latent_dim=128 agent.expectile=0.99 agent.kl_weight=0.1 agent.alpha=300",
    ("infom", "visual_puzzle_4x4"): "agent.latent_dim=128 agent.expectile=0.95 agent.kl_weight=0.1 agent.alpha=300",
    ("iql", "cheetah"): "agent.alpha=1",
    ("iql", "cube_single"): "agent.alpha=1",
    ("rebrac", "cheetah"): "agent.alpha_actor=0.1 agent.alpha_critic=0.1",
    ("rebrac", "cube_single"): "agent.alpha_actor=1 agent.alpha_critic=1",
    ("rebrac", "visual_cube_single"): "agent.alpha_actor=1 agent.alpha_critic=0",
    ("dino_rebrac", "cheetah"): "agent.repr_temp=0.1",
    ("dino_rebrac", "cube_single"): "agent.repr_temp=0.04",
    ("dino_rebrac", "visual_cube_single"): "agent.repr_temp=0.1",
    ("mbpo_rebrac", "cheetah"): "agent.num_model_rollouts=128 agent.num_model_rollout_steps=1",
    ("mbpo_rebrac", "cube_single"): "agent.num_model_rollouts=256 agent.num_model_rollout_steps=2",
    ("crl_infonce", "cheetah"): "agent.alpha=0.03",
    ("crl_infonce", "cube_single"): "agent.alpha=30",
    ("crl_infonce", "visual_cube_single"): "agent.alpha=30",
    ("td_infonce", "cheetah"): "agent.alpha=0.003",
    ("td_infonce", "cube_single"): "agent.alpha=30",
    ("fb_repr", "cheetah"): "agent.alpha_repr=1 agent.alpha_awr=1",
    ("fb_repr", "cube_single"): "agent.alpha_repr=10 agent.alpha_awr=1",
    ("fb_repr", "visual_cube_single"): "agent.alpha_repr=10 agent.alpha_awr=1",
    ("hilp", "cheetah"): "agent.alpha=1",
    ("hilp", "cube_single"): "agent.alpha=1",
}
STATES = "pretraining_steps=1_000_000 finetuning_steps=500_000 eval_interval=50_000"
IMAGES = (
    "pretraining_steps=250_000 finetuning_steps=100_000 eval_interval=10_000 p_aug=0.5 frame_stack=3 "
    "agent.encoder=impala_small"
)
SIZES = "pretraining_size=1_000_000 finetuning_size=500_000 eval_episodes=50 obs_norm_type=normal"


@pytest.mark.parametrize(("agent", "domain"), COMMANDS, ids="_".join)
def test_a_preset_is_its_published_command(agent, domain):
    found = conf.compose(["experiment=offline", f"preset={agent}_{domain}"])
    both = IMAGES if domain.startswith("visual_") else STATES
    command = f"agent=agents/{agent}.py {both} {SIZES} {COMMANDS[agent, domain]} agent.lr=3e-4 agent.batch_size=256"
    # preset=paper for the width of the networks, which no command names
    wanted = conf.compose(["experiment=offline", "preset=paper", *command.split()])
    assert (found.agent, found.phases, found.data, found.optimizer) == (
        wanted.agent,
        wanted.phases,
        wanted.data,
        wanted.optimizer,
    )
    assert found.trainer == wanted.trainer and found.task.episodes == wanted.task.episodes == 50
    assert found.agent.hidden == [512] * 4 and make_options(found.agent).name == agent
    assert found.task.name == ("none" if domain in ("cheetah", "walker", "quadruped", "jaco") else "gymnasium")


def test_there_is_a_preset_for_each_published_command_and_no_other():
    named = {"_".join(pair) for pair in COMMANDS}
    assert {*find_experiment("offline").groups["preset"].choices} == {*named, "small", "paper"}


def test_the_published_sizes():
    paper = conf.compose(["experiment=offline", "preset=paper"])
    assert (paper.phases.pretrain_steps, paper.trainer.steps, paper.trainer.evaluate_every) == (
        1_000_000,
        1_500_000,
        50_000,
    )
    assert (paper.data.rows, paper.data.finetune_rows, paper.task.episodes) == (1_000_000, 500_000, 50)


def test_what_is_said_besides_a_preset_wins():
    found = conf.compose(["experiment=offline", "preset=infom_scene", "agent.alpha=3", "task=none", "trainer.steps=7"])
    assert (found.agent.alpha, found.agent.kl_weight, found.task.name, found.trainer.steps) == (3.0, 0.2, "none", 7)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("agent=iql agent.actor_loss=ddpgbc", "extraction", "ddpgbc"),
        ("agent=iql agent.const_std=False", "std", "free"),
        ("agent=infom agent.q_agg=mean", "aggregation", "mean"),
        ("agent=infom agent.critic_latent_type=encoding", "critic_latent_type", "encoding"),
        ("agent=infom agent.clip_flow_goals=False", "clip_flow_goals", False),
        ("agent=td_infonce agent.logit_agg=min", "aggregation", "min"),
        ("agent=crl_infonce agent.contrastive_loss=symmetric_infonce", "symmetric", True),
        ("agent=crl_infonce agent.contrastive_loss=forward_infonce", "symmetric", False),
        ("agent=fb_repr agent.orthonorm_coeff=2", "orthonorm_coeff", 2.0),
        ("agent=fb_repr agent.latent_mix_prob=0.3", "latent_mix_prob", 0.3),
        ("agent=rebrac agent.actor_noise_clip=0.1", "noise_clip", 0.1),
    ],
)
def test_published_names_of_options(override, key, value):
    assert getattr(conf.compose(["experiment=offline", *override.split()]).agent, key) == value


def test_published_options_that_are_no_settings_here_say_so():
    for key in ("agent.value_p_curgoal", "agent.reward_hidden_dims", "agent.tanh_squash", "num_aug"):
        with pytest.raises(TwinaxError, match=f"there is no key '{key}' here: "):
            conf.compose(["experiment=offline", f"{key}=1"])


def test_a_preset_of_another_agent_is_refused():
    with pytest.raises(TwinaxError, match="agent=iql and preset=infom_cheetah do not go together") as caught:
        conf.compose(["experiment=offline", "agent=iql", "preset=infom_cheetah"])
    assert "\n" not in str(caught.value)
