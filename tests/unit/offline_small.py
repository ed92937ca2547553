"""Small offline agents and data for tests."""

from __future__ import annotations

import jax.tree_util as jtu
import numpy as np

from twinax.networks import frozen
from twinax.offline import AGENTS, Dataset, Nets, Sizes, from_arrays
from twinax.offline._agent import Agent

SIZES = Sizes(observation=3, action=2, batch=6)
OPTIONS = {
    "infom": {"num_flow_goals": 3, "flow_steps": 2},
    "fql": {"flow_steps": 2},
    "mbpo_rebrac": {"num_model_rollouts": 6, "num_model_rollout_steps": 2, "buffer_size": 30},
}
WITH_WIDTH = ("dino_rebrac", "crl_infonce", "td_infonce", "fb_repr", "hilp", "infom", "hiql", "qrl")


def small(name: str, **options) -> Agent:
    """An agent with tiny networks."""
    width = {"latent_dim": 5} if name in WITH_WIDTH else {}
    return AGENTS[name](**{"hidden": (6,), **width, **OPTIONS.get(name, {}), **options})


def wide(tree):
    """Floating-point leaves in float64."""

    def one(leaf):
        x = np.asarray(leaf)
        return x.astype(np.float64) if x.dtype.kind == "f" else leaf

    return jtu.tree_map(one, tree)


def lesson(agent: Agent, phase: str, seed: int = 0):
    """Networks, targets that differ from them, a batch and draws; NumPy, float64."""
    rng = np.random.default_rng(seed)
    networks = wide(agent.networks(rng, SIZES))
    # Biases are zero at first, and heads nearly: away from there nothing is hidden by a zero.
    networks = jtu.tree_map(lambda x: x + 0.3 * rng.normal(size=x.shape), networks)
    targets = {k: jtu.tree_map(lambda x: x + 0.2 * rng.normal(size=x.shape), networks[k]) for k in agent.targets}
    rows, d, a = SIZES.batch, SIZES.observation, SIZES.action
    names = ("", "next_")
    batch = {f"{name}observations": rng.normal(size=(rows, d)) for name in names}
    for goal in ("value_goals", "actor_goals", "low_actor_goals", "high_actor_goals", "high_actor_targets"):
        batch[goal] = rng.normal(size=(rows, d))
    batch |= {f"{name}actions": rng.uniform(-0.9, 0.9, (rows, a)) for name in names}
    flags = ("masks", "next_action_masks", "relabeled_masks")
    batch |= {name: (rng.random(rows) < 0.7) * 1.0 for name in flags}
    batch |= {"rewards": rng.normal(size=rows), "relabeled_rewards": -1.0 * (rng.random(rows) < 0.7)}
    batch |= {"observation_min": np.full(d, -2.0), "observation_max": np.full(d, 2.0)}
    if phase == "finetune" and agent.actor_sees == "latent":
        batch["latents"] = np.tile(rng.normal(size=5), (rows, 1))
    draws = {
        name: rng.normal(size=draw.shape) if draw.kind == "normal" else rng.random(draw.shape)
        for name, draw in agent.draws(phase, SIZES).items()
    }
    return networks, targets, batch, draws


def nets_of(networks, targets) -> Nets:
    """What a loss sees."""
    return Nets(networks, frozen(networks), frozen(targets))


def walks(trajectories: int = 6, steps: int = 9, seed: int = 0, **fields) -> Dataset:
    """Random walks with rewards, in the regular layout."""
    rng = np.random.default_rng(seed)
    rows = trajectories * steps
    actions = rng.uniform(-0.9, 0.9, (rows, SIZES.action)).astype(np.float32)
    states = rng.normal(size=(trajectories, steps + 1, SIZES.observation)).astype(np.float32)
    ends = np.zeros((trajectories, steps), bool)
    ends[:, -1] = True
    return from_arrays(
        {
            "observations": states[:, :-1].reshape(rows, -1),
            "next_observations": states[:, 1:].reshape(rows, -1),
            "actions": actions,
            "terminals": ends.reshape(-1),
            "rewards": rng.normal(size=rows).astype(np.float32),
            "masks": (rng.random(rows) < 0.9).astype(np.float32),
            **fields,
        }
    )
