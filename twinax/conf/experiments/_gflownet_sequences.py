"""Published settings of sequences, by world."""

from __future__ import annotations

from collections.abc import Mapping

from twinax.conf._mirror import mirror
from twinax.conf._registry import Preset
from twinax.envs import ENVIRONMENTS

SEQUENCES: Mapping[str, Preset] = {
    "sequences": Preset(
        {
            "env": mirror(ENVIRONMENTS["sequences"], leave_out=["reward"], name="sequences")(),
            "trainer": {"batch_size": 64, "steps": 2_000},
        },
        choose={"proxy": "doubled_letters"},
    ),
    "bitseq": Preset(
        {
            "env": mirror(ENVIRONMENTS["bitseq"], leave_out=["reward"], name="bitseq")(),
            "policy": {"backward": "uniform"},
            "exploration": {"epsilon": 1e-3},
            "optimizer": {
                "name": "adamw",
                "learning_rate": 1e-3,
                "weight_decay": 1e-5,
                "log_z_learning_rate": 0.05,
            },
            "trainer": {"batch_size": 16, "steps": 50_000, "evaluate_every": 2_000},
        },
        choose={"proxy": "bit_modes"},
    ),
}
"""The settings of gfnx, and of recursion's toy world of doubled letters."""
