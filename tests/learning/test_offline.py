"""Offline agents learn what cloning cannot: the way to one place of a maze, from walks to random places."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from twinax import conf
from twinax.engines import make_engine

ROOT = Path(__file__).resolve().parents[2]
MARGIN = 0.15
"""By how much more often than cloning an agent reaches the goal."""


def settings() -> dict[str, list[str]]:
    """Those of the baseline script."""
    spec = importlib.util.spec_from_file_location("offline_main", ROOT / "baselines" / "offline" / "main.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SETTINGS


def success(agent: str, seed: int) -> float:
    """The share of 200 episodes that reach the goal after training."""
    overrides = ["experiment=offline", f"agent={agent}", *settings()[agent], f"seed={seed}", "task.episodes=200"]
    config = conf.compose(overrides)
    engine = make_engine(conf.build_problem(config), mode="jax", chunk=config.trainer.chunk)
    engine.start(seed)
    engine.run(config.trainer.steps)
    return engine.evaluate()["success"]


@pytest.fixture(scope="module")
def cloned() -> float:
    return max(success("bc", seed) for seed in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["iql", "rebrac", "hilp", "fb_repr", "crl_infonce", "infom"])
def test_agents_beat_cloning(agent, cloned):
    for seed in range(3):
        began = time.perf_counter()
        found = success(agent, seed)
        assert time.perf_counter() - began < 600
        assert found > cloned + MARGIN, (agent, seed, found, cloned)
