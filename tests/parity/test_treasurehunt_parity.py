"""Agents in the treasure hunt in every mode: samples, values, gradients, and whole runs with the same draws."""

from __future__ import annotations

from typing import Any

import jax
import pytest

from twinax import parity
from twinax.envs import TreasureHunt
from twinax.iqn import Learners, Players, ReplayOptions, problem

WORLD = {"height": 7, "width": 8, "num_agents": 3, "turns": 20, "radius": 2, "spawn_prob": 0.1}
# Half of the actions are the networks' own, so that a difference in acting would show.
LEARNER = {"width": 16, "num_quantiles": 4, "num_act_quantiles": 4, "num_cosines": 8, "batch_size": 16, "epsilon": 0.5}
PLAIN = {**LEARNER, "noisy": False, "dueling": False}


@pytest.fixture
def quick_compilation():
    """Programs that run for a moment: XLA leaves out what takes it long. The default game is compiled in full."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def check(made, steps, modes=("torch", "jax")):
    report = parity.check(made, modes, steps=steps, seed=1).raise_if_different()
    compared = {(row.rung, row.side) for row in report.rows}
    sides = set(modes[1:])
    assert compared >= {(rung, side) for rung in ("collect", "values", "gradients", "training") for side in sides}
    items = {row.item for row in report.rows if row.rung == "training"}
    assert {"loss at each step", "score at each step", "trained at each step"} <= items
    for name in made.learners:
        # The ring holds what was seen, done and gained: equal worlds, turn by turn.
        kinds = ("views", "actions", "rewards", "done", "head")
        assert {f"carry.{name}.{kind}" for kind in kinds} <= items
        assert {f"targets.{name}.feature.weight", f"networks.{name}.advantage.weight"} <= items
    return items


def test_the_default_game():
    replay = ReplayOptions(buffer_size=60, frame_stack=3)
    check(
        problem(
            TreasureHunt(**WORLD), {"iqn": Learners(count=3, target_network_frequency=20, replay=replay, **LEARNER)}
        ),
        50,
    )


def test_three_kinds_of_items_and_sorrels_habits(quick_compilation):
    world = TreasureHunt(variant="gem_food_bone", **WORLD)
    replay = ReplayOptions(buffer_size=50, frame_stack=2, store_done=False, clear_gap=False, returns=False, ring=False)
    # Agents that learn one after the other in JAX
    check(problem(world, {"iqn": Learners(count=3, replay=replay, **PLAIN)}, parallel=False), 6)


@pytest.mark.slow
def test_two_ways_of_learning_and_a_player_at_once(quick_compilation):
    """Two worlds, agents that move together, prioritised replay, two train steps after an epoch; hybrid as well."""
    ring: dict[str, Any] = {"buffer_size": 70, "frame_stack": 2}
    groups = {
        "qr": Learners(count=1, variant="qr", replay=ReplayOptions(alpha=0.6, **ring), **{**LEARNER, "noisy": False}),
        "seeker": Players(rule="seeker"),
        "iqn": Learners(count=1, replay=ReplayOptions(**ring), learning_rate=1e-3, **PLAIN),
    }
    world = TreasureHunt(turn_rule="simultaneous", **WORLD)
    items = check(problem(world, groups, num_envs=2, gradient_steps=2), 6, ("torch", "hybrid", "jax"))
    assert "carry.qr.priority" in items


def test_atoms(quick_compilation):
    replay = ReplayOptions(buffer_size=60, frame_stack=2)
    made = problem(
        TreasureHunt(**WORLD), {"c51": Learners(count=3, variant="c51", num_atoms=7, replay=replay, **PLAIN)}
    )
    check(made, 6)
