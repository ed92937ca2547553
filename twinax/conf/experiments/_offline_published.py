"""Published settings of the nine offline agents, by agent and domain, and the names that their code gives to options.

The domains are those of ExORL (cheetah, walker, quadruped, jaco) and OGBench (the others; visual ones show images).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twinax.conf._registry import Preset

STATES: dict[str, dict[str, Any]] = {
    "trainer": {"batch_size": 256, "steps": 1_500_000, "chunk": 100, "evaluate_every": 50_000},
    "phases": {"pretrain_steps": 1_000_000},
    "data": {"rows": 1_000_000, "finetune_rows": 500_000, "normalise": "normal"},
    "task": {"episodes": 50},
}
"""What all runs on states share."""
IMAGES: dict[str, dict[str, Any]] = {
    "trainer": {**STATES["trainer"], "steps": 350_000, "evaluate_every": 10_000},
    "phases": {"pretrain_steps": 250_000},
    "data": {**STATES["data"], "frame_stack": 3, "augment": 0.5},
    "task": STATES["task"],
}
"""What all runs on images share; images are not normalised."""
EXORL = ("cheetah", "walker", "quadruped", "jaco")

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    "infom": {
        "cheetah": {"latent_dim": 128, "kl_weight": 0.05, "alpha": 0.3},
        "walker": {"kl_weight": 0.1, "alpha": 0.3},
        "quadruped": {"kl_weight": 0.005, "alpha": 0.3},
        "jaco": {"kl_weight": 0.2, "alpha": 0.1},
        "cube_single": {"kl_weight": 0.05, "expectile": 0.95, "alpha": 30.0},
        "cube_double": {"latent_dim": 128, "kl_weight": 0.025, "expectile": 0.9, "alpha": 30.0},
        "scene": {"latent_dim": 128, "kl_weight": 0.2, "expectile": 0.99, "alpha": 300.0},
        "puzzle_4x4": {"latent_dim": 128, "kl_weight": 0.1, "expectile": 0.95, "alpha": 300.0},
        "visual_cube_single": {"kl_weight": 0.025, "expectile": 0.95, "alpha": 30.0},
        "visual_cube_double": {"latent_dim": 128, "kl_weight": 0.01, "expectile": 0.9, "alpha": 30.0},
        "visual_scene": {"latent_dim": 128, "kl_weight": 0.1, "expectile": 0.99, "alpha": 300.0},
        "visual_puzzle_4x4": {"latent_dim": 128, "kl_weight": 0.1, "expectile": 0.95, "alpha": 300.0},
    },
    "iql": {"cheetah": {"alpha": 1.0}, "cube_single": {"alpha": 1.0}},
    "rebrac": {
        "cheetah": {"alpha_actor": 0.1, "alpha_critic": 0.1},
        "cube_single": {"alpha_actor": 1.0, "alpha_critic": 1.0},
        "visual_cube_single": {"alpha_actor": 1.0, "alpha_critic": 0.0},
    },
    "dino_rebrac": {
        "cheetah": {"repr_temp": 0.1},
        "cube_single": {"repr_temp": 0.04},
        "visual_cube_single": {"repr_temp": 0.1},
    },
    "mbpo_rebrac": {
        "cheetah": {"num_model_rollouts": 128, "num_model_rollout_steps": 1},
        "cube_single": {"num_model_rollouts": 256, "num_model_rollout_steps": 2},
    },
    "crl_infonce": {
        "cheetah": {"alpha": 0.03},
        "cube_single": {"alpha": 30.0},
        "visual_cube_single": {"alpha": 30.0},
    },
    "td_infonce": {"cheetah": {"alpha": 0.003}, "cube_single": {"alpha": 30.0}},
    "fb_repr": {
        "cheetah": {"alpha_repr": 1.0, "alpha": 1.0},
        "cube_single": {"alpha_repr": 10.0, "alpha": 1.0},
        "visual_cube_single": {"alpha_repr": 10.0, "alpha": 1.0},
    },
    "hilp": {"cheetah": {"alpha": 1.0}, "cube_single": {"alpha": 1.0}},
}
"""What differs from an agent's defaults, by agent and domain."""


def published_presets(named: Callable[[str], Any]) -> dict[str, Preset]:
    """A preset for each agent and domain, such as infom_cheetah; `named` makes the section that holds its name."""
    presets = {}
    for agent, domains in PUBLISHED.items():
        for domain, options in domains.items():
            name, images = f"{agent}_{domain}", domain.startswith("visual_")
            sections = {"preset": named(name), **(IMAGES if images else STATES)}
            sections["agent"] = {**options, **({"encoder": "impala_small"} if images else {})}
            # ExORL's worlds are no Gymnasium environments; those of OGBench are, and task.env says which.
            task = "none" if domain in EXORL else "gymnasium"
            presets[name] = Preset(sections, choose={"agent": agent, "task": task})
    return presets


def _std(value: str) -> list[str]:
    return [f"agent.std={'free' if value.strip().lower() in ('false', '0') else 'one'}"]


def _contrast(value: str) -> list[str]:
    return [f"agent.symmetric={str(value == 'symmetric_infonce').lower()}"]


KEY_ALIASES: Mapping[str, str | Callable[[str], list[str]]] = {
    "pretraining_steps": "phases.pretrain_steps",
    "finetuning_steps": "phases.finetune_steps",
    "pretraining_size": "data.rows",
    "finetuning_size": "data.finetune_rows",
    "log_interval": "trainer.log_every",
    "eval_interval": "trainer.evaluate_every",
    "save_interval": "trainer.checkpoint_every",
    "eval_episodes": "task.episodes",
    "obs_norm_type": "data.normalise",
    "frame_stack": "data.frame_stack",
    "p_aug": "data.augment",
    "env_name": "task.env",
    "restore_path": "phases.pretrained",
    "agent.lr": "optimizer.learning_rate",
    "agent.batch_size": "trainer.batch_size",
    "agent.actor_loss": "agent.extraction",
    "agent.const_std": _std,
    "agent.alpha_awr": "agent.alpha",
    "agent.actor_noise": "agent.policy_noise",
    "agent.actor_noise_clip": "agent.noise_clip",
    "agent.num_flow_steps": "agent.flow_steps",
    "agent.normalize_q_loss": "agent.normalise",
    "agent.q_agg": "agent.aggregation",
    "agent.repr_agg": "agent.aggregation",
    "agent.logit_agg": "agent.aggregation",
    "agent.contrastive_loss": _contrast,
    # Names that options had here before.
    "agent.discount": "agent.gamma",
    "agent.target_rate": "agent.tau",
    "agent.actor_norm": "agent.actor_layer_norm",
    "agent.value_norm": "agent.value_layer_norm",
    "agent.width": "agent.latent_dim",
    "agent.noise": "agent.policy_noise",
    "agent.rollouts": "agent.num_model_rollouts",
    "agent.rollout_steps": "agent.num_model_rollout_steps",
    "agent.capacity": "agent.buffer_size",
    "agent.repr_clip": "agent.repr_noise_clip",
    "agent.goals": "agent.num_flow_goals",
    "agent.clip_goals": "agent.clip_flow_goals",
    "agent.latents": "agent.critic_latent_type",
    "agent.mix": "agent.latent_mix_prob",
    "agent.orthonormal": "agent.orthonorm_coeff",
    "phases.pretrain": "phases.pretrain_steps",
    "phases.finetune": "phases.finetune_steps",
    "task.copies": "task.num_envs",
}
"""Names of the published configurations, to the names here."""

_LAYERS = "all networks have the same layers: agent.hidden=[512,512]"
_NORMS = (
    "this network has norms; those of values and of the actor are agent.value_layer_norm and agent.actor_layer_norm"
)
_GOALS = "goals are drawn as the agent's published settings say; in Python, problem(goals=...) takes others"
_PARTS = ("actor", "value", "reward", "transition", "intention_encoder", "forward_repr", "backward_repr")
HINTS: dict[str, str] = {
    **{f"agent.{part}_hidden_dims": _LAYERS for part in _PARTS},
    **{f"agent.{part}_layer_norm": _NORMS for part in ("reward", "transition", "intention_encoder", "fb_repr")},
    **{f"agent.{kind}_p_{goal}goal": _GOALS for kind in ("value", "actor") for goal in ("cur", "traj", "random")},
    **{f"agent.{kind}_geom_{what}": _GOALS for kind in ("value", "actor") for what in ("sample", "start_offset")},
    "agent.gc_negative": _GOALS,
    "agent.relabel_reward": _GOALS,
    "agent.tanh_squash": "agents built on ReBRAC are squashed, the others are not",
    "agent.actor_fc_scale": "an actor's last layer begins at a hundredth of the variance of the others",
    "agent.logsumexp_penalty_coeff": "it is 0.01",
    "agent.num_latent_inference_samples": "a latent is inferred from 10,000 rows at most",
    "agent.target_repr_center_tau": "the teacher is centred by the mean of each batch",
    "num_aug": "each view of dino_rebrac is a crop of its own; data.augment crops batches of the other agents",
    "inplace_aug": "each view of dino_rebrac is a crop of its own; data.augment crops batches of the other agents",
}
"""Published options that are not settings here."""
