"""Runs that were started in Python go on from the command line, and as if nothing had been between."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax import tree
from twinax.errors import TwinaxError
from twinax.offline import collect_maze, label_maze
from twinax.runs import RunDirectory, checkpoint

MODULE = "python_run_worlds"
CODE = "import twinax as tx\nclass Wide(tx.envs.Hypergrid):\n    pass\n"
SMALL = {"policy": tx.gflownet.PolicyOptions(hidden=(8,)), "metrics": tx.gflownet.MetricOptions(samples=8, fifo=16)}


def gflownet(world=None, **changed):
    return tx.gflownet.problem(world or tx.envs.Hypergrid(2, 3), "detailed_balance", batch_size=4, **SMALL | changed)


def ppo():
    sizes = {"num_envs": 4, "num_steps": 4, "num_minibatches": 2, "hidden": (8,), "episodes": 2, "evaluation_steps": 4}
    return tx.ppo.problem(tx.envs.Pendulum(), film=False, normalise_observations=True, **sizes)


def offline():
    maze = tx.envs.PointMaze("u")
    data = label_maze(collect_maze(maze, trajectories=4, steps=25), maze, goal=(1.5, 1.5))
    return tx.offline.problem(tx.offline.agents.IQL(hidden=(8,), actor_freq=2), finetuning=data, batch_size=4)


FAMILIES = {"gflownet": gflownet, "ppo": ppo, "offline": offline}


@pytest.fixture(autouse=True)
def own_key(tmp_path_factory, monkeypatch):
    """A home of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def state_of(run: str, problem) -> dict[str, np.ndarray]:
    """Every array of the newest checkpoint."""
    state, _ = checkpoint.load(checkpoint.latest(Path(run)), like=problem.init(0))
    return tree.named_leaves(state)


@pytest.mark.parametrize(("family", "first", "then"), [
    ("gflownet", "torch", "jax"),
    ("ppo", "jax", "torch"),
    ("offline", "hybrid", "torch"),
])  # fmt: skip
def test_a_run_goes_on_in_any_mode_as_without_a_break(twinax, family, first, then):
    problem, chunk = FAMILIES[family](), {"chunk": 2, "progress": False}
    tx.train(problem, mode=then, steps=4, run_dir="whole", **chunk)
    tx.train(problem, mode=then, steps=2, run_dir="same", **chunk)
    tx.train(problem, mode=first, steps=2, run_dir="other", **chunk)
    done = twinax("resume", "same", "--quiet", "trainer.steps=4")
    assert done.code == 0, done.err
    done = twinax("resume", "other", "trainer.steps=4", f"trainer.mode={then}")
    assert done.code == 0 and f"mode        {then}, float32" in done.out, done.err
    whole, same, other = (state_of(name, problem) for name in ("whole", "same", "other"))
    for name, leaf in whole.items():
        np.testing.assert_array_equal(same[name], leaf, err_msg=name)
        np.testing.assert_allclose(np.float64(other[name]), np.float64(leaf), rtol=2e-3, atol=2e-4, err_msg=name)
    losses = {name: [row["loss"] for row in RunDirectory(Path(name)).read_metrics()] for name in ("whole", "same")}
    assert losses["same"] == losses["whole"] and len(losses["same"]) == 4


@pytest.fixture
def begun(twinax):
    """A run of two steps."""
    tx.train(gflownet(), mode="torch", steps=2, run_dir="run", progress=False)
    return Path("run")


def test_python_builds_the_problem_again_as_well(begun):
    run = tx.resume(begun, steps=3, mode="hybrid", progress=False)
    assert run.summary["steps"] == 3 and run.summary["mode"] == "hybrid"
    assert tx.load(begun).step == 3


@pytest.mark.parametrize(("words", "part"), [
    (["env.dim=3"], "'env.dim=3' cannot change here: the run run was started from Python"),
    (["objective=tb"], "'objective=tb' cannot change here"),
    (["trainer.batch_size=3"], "'trainer.batch_size=3' cannot change here"),
    (["parity.steps=3"], "'parity.steps=3' cannot change here"),
    (["seed=3"], "'seed=3' cannot change in an existing run"),
    (["trainer.stepps=3"], "did you mean 'trainer.steps'?"),
    (["trainer.steps=many"], "trainer.steps=many does not fit: it must be a whole number"),
    (["trainer.steps"], "is not an override; write key=value"),
    (["trainer.steps=3", "trainer.env_steps=3"], "both say how long the run is"),
    (["trainer.env_steps=30"], "takes no steps in an environment"),
    (["trainer.mode=fast"], "unknown trainer.mode 'fast'"),
    (["trainer.steps=2"], "nothing is left to do"),
    (["trainer.dtype=float64"], "cannot go on with dtype=float64"),
    (["logger=paper"], "unknown logger 'paper'"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_one_sentence(twinax, begun, words, part):
    before = sorted((path, path.stat().st_mtime_ns) for path in begun.rglob("*"))
    done = twinax("resume", "run", *words)
    assert done.code == 2 and done.err.count("\n") == 1 and part in done.err, done.err
    assert sorted((path, path.stat().st_mtime_ns) for path in begun.rglob("*")) == before


def test_settings_of_the_trainer_are_read_as_everywhere(twinax, begun):
    assert twinax("resume", "run", "--quiet", "num_train_steps=3", "trainer.mode=legacy", "logger=tb").code == 0
    assert tx.load("run").step == 3 and any((begun / "tensorboard").iterdir())
    assert twinax("resume", "run", "--quiet", "trainer.steps=4", "trainer.noise=native").code == 0


def test_what_cannot_be_built_again_says_what_to_do(twinax):
    tx.train(gflownet(reward=lambda cells: 1.0 + cells.sum(1)), mode="torch", steps=1, run_dir="run", progress=False)
    done = twinax("resume", "run", "trainer.steps=2")
    assert done.code == 2 and done.err.count("\n") == 1
    assert "its reward is " in done.err and done.err.endswith("twinax.resume('run', problem=...)\n")
    with pytest.raises(TwinaxError, match=r"twinax.resume\('run', problem=...\)"):
        tx.resume("run", steps=2)


def test_code_that_has_gone_says_what_to_do(twinax, tmp_path, monkeypatch):
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    problem = gflownet(__import__(MODULE).Wide(2, 3))
    tx.train(problem, mode="torch", steps=1, run_dir="run", progress=False)
    assert twinax("resume", "run", "--quiet", "trainer.steps=2").code == 0
    (tmp_path / f"{MODULE}.py").unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    del sys.modules[MODULE]
    done = twinax("resume", "run", "trainer.steps=3")
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert f"there is no module '{MODULE}'" in done.err and "twinax.resume('run', problem=...)" in done.err
    assert tx.resume("run", problem, steps=3, progress=False).summary["steps"] == 3


def test_a_strangers_python_run_is_not_built(twinax, tmp_path, monkeypatch):
    (tmp_path / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    tx.train(gflownet(__import__(MODULE).Wide(2, 3)), mode="torch", steps=1, run_dir="run", progress=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    del sys.modules[MODULE]
    done = twinax("resume", "run", "trainer.steps=2")
    assert done.code == 2 and "--trust" in done.err and MODULE not in sys.modules
    assert twinax("resume", "run", "--quiet", "--trust", "trainer.steps=2").code == 0


def test_a_run_of_the_command_line_is_continued_there(trained):
    with pytest.raises(TwinaxError, match=r"started from a configuration.*`twinax resume .*problem=...\)"):
        tx.resume(trained, steps=9)


def test_a_python_run_with_notes_of_its_own_is_still_built_by_its_call(twinax):
    tx.train(gflownet(), mode="torch", steps=1, run_dir="run", progress=False, config={"who": "me"})
    assert twinax("resume", "run", "--quiet", "trainer.steps=2").code == 0
    assert RunDirectory(Path("run")).read_config() == {"who": "me"}
