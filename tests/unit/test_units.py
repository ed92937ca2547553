"""What people count: each family says it once, and logs, speeds, progress and axes follow."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

import twinax as tx
from twinax import conf, engines
from twinax.errors import TwinaxError
from twinax.parts import Unit
from twinax.runs import resume, train, write_report
from twinax.runs.curves import common_unit, read_runs
from twinax.train_options import TrainOptions

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

QUIET = {"progress": False, "log_every": 2, "evaluate_every": 4, "checkpoint_every": 4}


class Player(ProbeProblem):
    """The probe as a problem that takes 128 steps in an environment in each of its own."""

    @property
    def present(self):
        unit = Unit("environment steps", 128, "env_steps")
        return dataclasses.replace(super().present, unit=unit, counts={"trajectories": 4})


@pytest.fixture
def probe(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", ProbeEngine)


def test_families_say_what_they_count():
    cart = tx.ppo.problem(tx.envs.CartPole(), num_envs=8, num_steps=16, num_minibatches=2)
    assert cart.present.unit == Unit("environment steps", 128, "env_steps")
    hunt = tx.iqn.problem(tx.envs.TreasureHunt(num_agents=2, turns=10), num_envs=3)
    assert hunt.present.unit == Unit("environment steps", 30, "env_steps")
    grid = tx.gflownet.problem(tx.envs.Hypergrid(dim=2, side=3), batch_size=4)
    assert grid.present.unit == Unit("updates") and grid.present.columns == {"trajectories": 4}


def test_rows_summary_and_speed_are_in_the_unit(probe, tmp_path, capsys):
    run = train(Player(), steps=8, run_dir=tmp_path / "run", **{**QUIET, "progress": None})
    assert [row["env_steps"] for row in run.metrics] == [128 * row["step"] for row in run.metrics]
    assert run.metrics[-1]["trajectories"] == 32
    assert run.summary["env_steps"] == 1024 and run.summary["steps"] == 8
    assert run.summary["unit"] == {"name": "environment steps", "per_step": 128}
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "jax seed 0: 1,024 environment steps (8 training steps)"
    assert re.search(
        r"1,024 environment steps \(8 training steps\), loss .*, ([\d,.]+) environment steps per second", lines[-1]
    )
    from twinax.runs.checkpoint import newest_meta

    kept = newest_meta(tmp_path / "run")
    assert kept is not None and run.summary["steps_per_second"] == pytest.approx(128 * kept["speed"], rel=0.5)


def test_env_steps_in_place_of_steps(probe, tmp_path):
    run = train(Player(), env_steps=1000, run_dir=tmp_path / "run", **QUIET)
    assert run.summary["steps"] == 8 and run.summary["plan"]["env_steps"] is None
    assert resume(tmp_path / "run", Player(), env_steps=1300, progress=False).summary["steps"] == 11
    assert resume(tmp_path / "run", Player(), steps=12, progress=False).summary["steps"] == 12
    with pytest.raises(TwinaxError, match="steps is 5 and env_steps is 100; both say how long the run is: give one"):
        train(Player(), steps=5, env_steps=100, progress=False)
    with pytest.raises(TwinaxError, match="takes no steps in an environment while it learns; give its steps instead"):
        train(ProbeProblem(), env_steps=100, progress=False)
    with pytest.raises(TwinaxError, match="env_steps is 0; it must be at least 1"):
        TrainOptions(env_steps=0)


def test_env_steps_on_the_command_line():
    small = ["experiment=ppo", "ppo.num_envs=8", "ppo.num_steps=16", "ppo.num_minibatches=2", "ppo.hidden=[8]"]
    config = conf.compose([*small, "trainer.env_steps=1000"])
    conf.build_problem(config)
    assert config.trainer.steps == 8 and config.trainer.env_steps is None
    with pytest.raises(TwinaxError, match=r"trainer\.steps=5 and trainer\.env_steps=9 both say how long"):
        conf.compose([*small, "trainer.steps=5", "trainer.env_steps=9"])


def test_the_axes_of_a_report_say_their_unit(probe, tmp_path):
    pytest.importorskip("matplotlib")
    train(Player(), steps=8, run_dir=tmp_path / "a", **QUIET)
    train(ProbeProblem(), steps=8, run_dir=tmp_path / "b", **QUIET)
    one, other = read_runs([tmp_path / "a", tmp_path / "b"])
    assert common_unit([one]) == Unit("environment steps", 128) and common_unit([one, other]) is None
    assert "env_steps" not in one.names() and "trajectories" not in one.names()
    page = write_report(tmp_path / "a").read_text()
    assert page.count(">environment steps</text>") > 2 and "Environment steps per second" in page
    assert ">steps</text>" not in page
    both = write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "both.html").read_text()
    assert ">steps</text>" in both and ">environment steps</text>" not in both
