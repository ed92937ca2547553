"""Published settings of sequences, by world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinax.conf._mirror import mirror
from twinax.conf._registry import Preset
from twinax.envs import ENVIRONMENTS


def _section(name: str) -> Any:
    return mirror(ENVIRONMENTS[name], leave_out=["reward"], name=name)()


SEQUENCES: Mapping[str, Preset] = {
    "sequences": Preset(
        {
            "env": _section("sequences"),
            "trainer": {"batch_size": 64, "steps": 2_000},
        },
        choose={"proxy": "doubled_letters"},
    ),
    "bitseq": Preset(
        {
            "env": _section("bitseq"),
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
    "tfbind8": Preset(
        {
            "env": _section("tfbind8"),
            "policy": {"hidden": [256, 256], "backward": "uniform"},
            "exploration": {"epsilon": 1.0, "epsilon_end": 0.0, "epsilon_steps": 50_000},
            "optimizer": {"learning_rate": 5e-4, "log_z_learning_rate": 0.05},
            "trainer": {"batch_size": 16, "steps": 1_000_000, "evaluate_every": 10_000},
        }
    ),
    "qm9": Preset(
        {
            "env": _section("qm9"),
            "policy": {"hidden": [256, 256], "backward": "uniform"},
            "exploration": {"epsilon": 1.0, "epsilon_end": 0.0, "epsilon_steps": 50_000},
            "optimizer": {"learning_rate": 5e-4, "log_z_learning_rate": 0.05},
            "trainer": {"batch_size": 16, "steps": 1_000_000, "evaluate_every": 10_000},
        }
    ),
    "rna": Preset(
        {
            "env": _section("rna"),
            "policy": {"hidden": [128, 128], "backward": "uniform"},
            "exploration": {"epsilon": 0.01},
            "optimizer": {"learning_rate": 1e-4, "log_z_learning_rate": 1e-2, "clip_norm": 10.0},
            "trainer": {"batch_size": 32, "steps": 5_000},
        }
    ),
    "amp": Preset(
        {
            "env": _section("amp"),
            "policy": {"backward": "uniform"},
            "exploration": {"epsilon": 0.01},
            "optimizer": {
                "name": "adamw",
                "learning_rate": 1e-3,
                "weight_decay": 1e-4,
                "log_z_learning_rate": 0.64,
            },
            # A trajectory of sixty letters is sixty-one sequences to the network.
            "metrics": {"top_k": 100, "samples": 64},
            "trainer": {"batch_size": 16, "steps": 20_000},
        }
    ),
}
"""The settings of gfnx, for RNA those of LS-GFN without its replay, and those of recursion's toy of doubled letters."""
