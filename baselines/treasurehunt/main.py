"""Five agents hunt for gems, with the configuration of the original's example.

    python baselines/treasurehunt/main.py                                    # JAX, all agents at once
    python baselines/treasurehunt/main.py model.parallel_processing=false    # JAX, one after the other
    python baselines/treasurehunt/main.py model.use_jax=false                # PyTorch

Any setting of `twinax train` may follow; the rules are in twinax/envs/_treasurehunt.py, the loss in twinax/iqn.
"""

from __future__ import annotations

import sys

from twinax.cli import main

SETTINGS = [
    "experiment=treasurehunt",
    "preset=seed",
    "experiment.epochs=1000",
    "experiment.max_turns=50",
    "experiment.record_period=50",
    "model.agent_vision_radius=2",
    "model.epsilon=1",
    "model.epsilon_min=0.0",
    "model.epsilon_decay=0.001",
    "model.batch_size=256",
    "model.use_jax=true",
    "model.parallel_processing=true",
    "world.height=10",
    "world.width=10",
    "world.gem_value=10",
    "world.spawn_prob=0.02",
    "world.num_agents=5",
]

if __name__ == "__main__":
    sys.exit(main(["train", *SETTINGS, *sys.argv[1:]]))
