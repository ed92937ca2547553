"""Problems of every family, as small as they come: what parity is tested on."""

from __future__ import annotations

from typing import Any

import numpy as np
import offline_small as few

from twinax import iqn, offline, ops, ppo
from twinax.envs import CartPole, Hypergrid, Pendulum, TreasureHunt
from twinax.envs._reference import Feature, Reference
from twinax.gflownet import MetricOptions, PolicyOptions, problem
from twinax.optimizer import Optimizer

TINY: dict[str, Any] = {
    "hidden": (8, 8),
    "num_envs": 4,
    "num_steps": 8,
    "num_epochs": 1,
    "num_minibatches": 2,
    "episodes": 2,
    "groups": 2,
}


def gflownet(objective: str, **optimizer):
    return problem(
        Hypergrid(dim=2, side=3),
        objective,
        batch_size=4,
        policy=PolicyOptions(hidden=(8,)),
        optimizer=Optimizer(learning_rate=1e-2, **optimizer),
        metrics=MetricOptions(fifo=20),
    )


def agents_of_two_kinds(**optimizer):
    """Two groups of agents, one of them with priorities."""
    options: dict[str, Any] = {"width": 8, "num_quantiles": 3, "batch_size": 4, "epsilon": 0.5, "noisy": False}
    plain, weighed = (iqn.ReplayOptions(buffer_size=30, frame_stack=1, alpha=alpha) for alpha in (0.0, 0.6))
    groups = {
        "iqn": iqn.Learners(count=1, replay=plain, num_act_quantiles=2, num_cosines=4, **options),
        "qr": iqn.Learners(count=1, variant="qr", replay=weighed, **options),
    }
    world = TreasureHunt(height=5, width=5, num_agents=2, turns=8, radius=1, spawn_prob=0.2)
    return iqn.problem(world, groups, optimizer=Optimizer(clip_norm=1.0, **optimizer))


def balancing(**optimizer):
    return ppo.problem(CartPole(), optimizer=Optimizer(clip_norm=0.5, **optimizer), **TINY)


def squashed(**optimizer):
    """Actions in a box, whose entropy is estimated."""
    return ppo.problem(Pendulum(), optimizer=Optimizer(clip_norm=0.5, **optimizer), policy="tanh", **TINY)


def with_style(separate: bool = True, **optimizer):
    """PPO with a discriminator."""
    t = np.arange(40) / 20
    layout = (Feature("angle/pole", "rad"), Feature("speed/pole", "rad/s"))
    frames = np.stack([np.pi + 0.5 * np.sin(np.pi * t), 0.5 * np.pi * np.cos(np.pi * t)], 1)
    options = ppo.AmpOptions(hidden=(6,), batch=8, updates=2, memory=20, kept=6, remembered=0.5)
    hooks = ppo.amp(
        Reference(layout, frames, 20.0), lambda state: ops.stack([state.angle, state.spin], -1), 0.05, options
    )
    optimizer = {"clip_norm": 0.5, "rates": {"discriminator": 1e-4}, **optimizer}
    return ppo.problem(Pendulum(time_limit=6), optimizer=Optimizer(separate=separate, **optimizer), hooks=hooks, **TINY)


WEIGHTS = {"rebrac": {"alpha_actor": 0.3}, "mbpo_rebrac": {"alpha_actor": 0.3}, "dino_rebrac": {"alpha_actor": 0.3}}
"""Where a part has no weight by default."""


def agent(name: str, **optimizer):
    """An offline agent that pretrains for two steps."""
    data = few.walks()
    made = few.small(name, **WEIGHTS.get(name, {}))
    recipe = Optimizer(learning_rate=1e-3, **optimizer)
    return offline.problem(made, data, data, pretrain_steps=2, batch_size=few.SIZES.batch, optimizer=recipe)
