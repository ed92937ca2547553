"""PPO learns what its presets promise, in the time that they promise it, with every seed."""

from __future__ import annotations

import time

import pytest

from twinax import conf
from twinax.engines import Engine, make_engine

SEEDS = (0, 1, 2)


STAND = ("experiment=biped", "task=stand")


def trained(seed: int, *overrides: str) -> tuple[Engine, float]:
    """An engine after a training by a preset, and its seconds, compilation included."""
    config = conf.compose([*overrides, f"seed={seed}"])
    engine = make_engine(conf.build_problem(config), mode=config.trainer.mode, chunk=config.trainer.chunk)
    engine.start(seed)
    begin = time.perf_counter()
    engine.run(config.trainer.steps)
    return engine, time.perf_counter() - begin


def learned(seed: int, *overrides: str) -> tuple[dict[str, float], float]:
    """The evaluation after a training by a preset, and its seconds."""
    engine, seconds = trained(seed, *overrides)
    return engine.evaluate(), seconds


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("mode", "most"), [("jax", 40), ("torch", 80)])
def test_cartpole_balances(mode, most, seed):
    # On two quiet cores under 20 s; here two tests run side by side.
    metrics, seconds = learned(seed, "experiment=ppo", "env=cartpole", f"trainer.mode={mode}")
    assert metrics["episode_return"] >= 475
    assert seconds < most


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("env", "least"), [("pendulum", -200), ("acrobot", -100)])
def test_torques_are_learned(env, least, seed):
    assert learned(seed, "experiment=ppo", f"env={env}")[0]["episode_return"] >= least


@pytest.mark.slow
@pytest.mark.parametrize(("env", "least"), [("mountain_car", -125), ("mountain_car_continuous", 90)])
def test_rare_goals_are_found(env, least):
    config = conf.compose(["experiment=ppo", f"env={env}"])
    engine = make_engine(conf.build_problem(config), mode="jax", chunk=config.trainer.chunk, seeds=len(SEEDS))
    engine.start(SEEDS[0])
    engine.run(config.trainer.steps)
    assert (engine.evaluate()["episode_return"] >= least).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_robot_stands_against_pushes(seed):
    pytest.importorskip("mujoco")
    engine, seconds = trained(seed, *STAND)
    ten_seconds = conf.build_problem(conf.compose([*STAND, "task.time_limit=500", "ppo.episodes=512"]))
    judge = make_engine(ten_seconds, mode="jax", chunk=1)
    judge.start(seed)
    judge.load(engine.state())
    # Of robots that hold their home pose fewer than half do (benchmarks/plot_biped.py).
    assert judge.evaluate()["episode_survived"] >= 0.95
    assert seconds < 600


@pytest.mark.slow
def test_style_moves_the_gait_towards_the_reference():
    pytest.importorskip("mujoco")
    config = conf.compose(["experiment=biped", "task=walk", "amp=scripted", "amp.style=1.0", "trainer.steps=250"])
    engine = make_engine(conf.build_problem(config), mode="jax", chunk=10)
    engine.start(0)
    engine.run(50)
    before = engine.evaluate()["gait_distance"]
    engine.run(100)
    assert engine.evaluate()["gait_distance"] < 0.75 * before  # 0.38 and 0.23; without style it stays
