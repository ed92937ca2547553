"""Published settings of grids, sets, trees, rings and spins, by the name that env=NAME chooses."""

from __future__ import annotations

from twinax.conf._mirror import mirror
from twinax.conf._registry import Preset
from twinax.envs import Hypergrid


def _grid(name: str, dim: int, side: int, reward: str) -> Preset:
    section = mirror(Hypergrid, leave_out=["reward"], name=name)
    return Preset({"env": section(dim=dim, side=side)}, choose={"proxy": reward})


PRESETS: dict[str, Preset] = {
    "deceptive_2d": _grid("deceptive_2d", 2, 256, "deceptive"),
    "deceptive_4d": _grid("deceptive_4d", 4, 32, "deceptive"),
}
"""The two deceptive grids are those of the adaptive teacher's paper."""
