"""Published settings of phylogenetic trees, and settings of molecules."""

from __future__ import annotations

from collections.abc import Mapping

from twinax.conf._mirror import mirror
from twinax.conf._registry import Preset
from twinax.envs import ENVIRONMENTS

TREES: Mapping[str, Preset] = {
    "phylo": Preset(
        {
            "env": mirror(ENVIRONMENTS["phylo"], leave_out=["reward"], name="phylo")(),
            "policy": {"backward": "uniform"},
            "exploration": {"epsilon": 1.0, "epsilon_end": 0.0, "epsilon_steps": 50_000},
            # Published is half a cosine with a warm-up; a straight line from and to the same rates comes near it.
            "optimizer": {"learning_rate": 3e-4, "decay_steps": 100_000, "decay_to": 1 / 30},
            "trainer": {"batch_size": 32, "steps": 100_000},
        },
        choose={"proxy": "parsimony", "objective": "forward_looking"},
    ),
    "molecules": Preset(
        {
            "env": mirror(ENVIRONMENTS["molecules"], leave_out=["reward"], name="molecules")(),
            "policy": {"hidden": [128, 128], "backward": "uniform"},
            "exploration": {"epsilon": 0.05},
            "optimizer": {"learning_rate": 1e-3, "log_z_learning_rate": 0.05},
            # All rewards of the 161,051 strings would take minutes before the first number is shown.
            "metrics": {"exact_limit": 20_000},
            "trainer": {"batch_size": 32, "steps": 5_000},
        },
        choose={"proxy": "properties"},
    ),
}
