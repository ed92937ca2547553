"""Offline agents in a maze, each with settings that suit it.

    python baselines/offline/main.py                     # all of them, some minutes each
    python baselines/offline/main.py hilp seed=1         # one of them; settings of `twinax train` may follow

The data are walks of a noisy hand to random places. The task is to reach the upper left corner from anywhere.
"""

from __future__ import annotations

import sys

from twinax.cli import main

BY_GOALS = ["task.positive=true", "optimizer.learning_rate=1e-3"]
"""For agents that weigh goals by their reward: where it is 0 elsewhere, only goals at the right place count."""
SETTINGS: dict[str, list[str]] = {
    "bc": [],
    "iql": [],
    "rebrac": ["agent.alpha_actor=0.03", "agent.gamma=0.98", "agent.hidden=[256,256]", "agent.actor_freq=2"],
    "hilp": ["agent.latent_dim=32"],
    "fb_repr": ["agent.latent_dim=32"],
    "crl_infonce": ["agent.latent_dim=32", "agent.gamma=0.95", "agent.alpha=0.3", *BY_GOALS],
    "infom": [
        "agent.latent_dim=16",
        "agent.num_flow_goals=8",
        "agent.flow_steps=5",
        "agent.gamma=0.95",
        "agent.tau=0.01",
        "agent.expectile=0.95",
        "agent.alpha=0.1",
        "agent.normalise=true",
        "task.reach=1.5",
        "phases.pretrain_steps=12000",
        "trainer.steps=16500",
        *BY_GOALS,
    ],
}
"""Agents by name, and what differs from the defaults of `experiment=offline`."""


def run(arguments: list[str]) -> int:
    """Train the named agent, or all of them."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    named = [argument for argument in arguments if "=" not in argument]
    overrides = [argument for argument in arguments if "=" in argument]
    for name in named or SETTINGS:
        if code := main(["train", "experiment=offline", f"agent={name}", *SETTINGS.get(name, []), *overrides]):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
