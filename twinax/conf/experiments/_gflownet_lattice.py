"""Published settings of grids, sets, trees, rings and spins, by the name that env=NAME chooses."""

from __future__ import annotations

from twinax.conf._mirror import mirror
from twinax.conf._registry import Preset
from twinax.envs import Bags, Hypergrid, Ising, PerfectTree, PlainSpins, RingGraphs, Sets


def _grid(name: str, dim: int, side: int, reward: str) -> Preset:
    section = mirror(Hypergrid, leave_out=["reward"], name=name)
    return Preset({"env": section(dim=dim, side=side)}, choose={"proxy": reward})


def _world(name: str, kind: type, hidden: list[int], batch: int, reward: str = "own") -> Preset:
    """A world whose uniform backward policy is right: every order of the same actions leads to the same object."""
    return Preset(
        {
            "env": mirror(kind, leave_out=["reward"], name=name)(),
            "policy": {"hidden": hidden, "backward": "uniform"},
            # log Z grows with the number of places: as a sum of several parameters it gets there sooner.
            "objective": {"log_z_size": 16},
            "trainer": {"batch_size": batch},
        },
        choose={"proxy": reward},
    )


PRESETS: dict[str, Preset] = {
    "ising": _world("ising", Ising, [256] * 4, 256),
    "spins": _world("spins", PlainSpins, [256, 256], 128, "learned_couplings"),
    "learned_ising": Preset(
        {
            "env": mirror(Ising, name="learned_ising")(side=10, sigma=0.1),
            "policy": {"hidden": [256] * 4},
            "objective": {"residual_loss": "half"},
            "energy": {"l1": 0.1},
            "optimizer": {"learning_rate": 1e-2, "log_z_learning_rate": 1e-3, "energy_learning_rate": 1e-4},
            "trainer": {"batch_size": 256, "steps": 20_000},
        },
        choose={"proxy": "learned_couplings"},
    ),
    "set": _world("set", Sets, [256, 256], 16, "item_weights"),
    "bag": _world("bag", Bags, [256, 256], 16, "bag_modes"),
    "perfect_tree": _world("perfect_tree", PerfectTree, [64, 64], 16, "leaf_number"),
    "rings": _world("rings", RingGraphs, [256, 256], 16, "ring"),
    "deceptive_2d": _grid("deceptive_2d", 2, 256, "deceptive"),
    "deceptive_4d": _grid("deceptive_4d", 4, 32, "deceptive"),
}
"""The two deceptive grids are those of the adaptive teacher's paper; couplings are learned with gfnx's settings."""
