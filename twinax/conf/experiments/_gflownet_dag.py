"""Bayesian structure learning: the published settings for `env=dag`."""

from __future__ import annotations

from twinax.conf._mirror import mirror
from twinax.conf._registry import Preset
from twinax.envs import DAG

PRESETS = {
    "dag": Preset(
        sections={
            "env": mirror(DAG, leave_out=["reward"], name="dag")(),
            "policy": {"backward": "uniform"},
            "objective": {"residual_loss": "huber"},
            "targets": {"every": 1_000},
            "exploration": {"epsilon": 1.0, "epsilon_end": 0.1, "epsilon_steps": 50_000},
            "optimizer": {"learning_rate": 1e-4},
            "trainer": {"batch_size": 128, "steps": 100_000},
        },
        choose={"proxy": "bge", "objective": "modified_detailed_balance"},
    )
}
"""gfnx's, but for its graph network (policy.network=graph): modified detailed balance, as every graph may stop."""
