"""The robot as a new user meets it: every level trains, is evaluated, goes on and is exported."""

from __future__ import annotations

import json

import pytest
from own_robot import write_robot

from twinax.cli import _child, main

pytest.importorskip("mujoco")

SMALL = ["ppo.worlds=8", "ppo.steps=8", "ppo.minibatches=2", "ppo.epochs=1", "ppo.hidden=[8,8]", "ppo.pool=16"]
SMALL += ["ppo.episodes=2", "ppo.film=false", "task.time_limit=10", "trainer.steps=4", "trainer.chunk=2"]


def twinax(*words: str):
    """A command in a process of its own: devices are made before JAX begins."""
    return _child.start(*words, capture=True)


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_level_trains_and_is_exported(tmp_path, level):
    run = tmp_path / f"level{level}"
    done = twinax("train", "experiment=biped", "task=stand", f"level={level}", *SMALL, f"run.dir={run}")
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["steps"] == 4 and summary["episode_length"] > 0
    assert twinax("eval", str(run)).returncode == 0
    done = twinax("export", str(run), str(tmp_path / f"policy{level}.onnx"))
    assert done.returncode == 0, done.stderr
    # A run of any level goes on at the heart of level 3.
    done = twinax("resume", str(run), "trainer.steps=6", "trainer.mode=jax", "trainer.devices=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_robot_is_filmed_and_reported(tmp_path):
    run = tmp_path / "run"
    words = [word for word in SMALL if "film" not in word]
    assert twinax("train", "experiment=biped", "task=walk", *words, f"run.dir={run}").returncode == 0
    done = twinax("eval", str(run), "--film")
    assert done.returncode == 0, done.stderr
    assert list((run / "films").glob("eval-episode-*.gif"))
    assert twinax("report", str(run)).returncode == 0
    assert list((run / "plots").glob("*reward*.png")) and (run / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_a_robot_of_ones_own_stays_with_its_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_robot(tmp_path)
    words = [word for word in SMALL if "trainer" not in word]
    words += ["trainer.steps=2", "trainer.chunk=2", "trainer.mode=torch", "task.threads=1", "ranges.friction=[0.5,1]"]
    assert main(["train", "experiment=biped", "task.robot=duck.xml", *words, "run.dir=run"]) == 0, capsys.readouterr()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 2
    # From another folder, after the file has gone.
    (tmp_path / "duck.xml").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["eval", "../run"]) == 0, capsys.readouterr()
    assert main(["resume", "../run", "trainer.steps=3", "--quiet"]) == 0, capsys.readouterr()
    assert main(["eval", "../run"]) == 0, capsys.readouterr()
    assert main(["export", "../run", "policy.onnx"]) == 0, capsys.readouterr()
    spec = json.loads((tmp_path / "elsewhere" / "policy.json").read_text())
    assert spec["robot"]["mjcf"] == spec["run"]["config"]["task"]["robot"] == "duck.xml"
    assert (tmp_path / "elsewhere" / "duck.xml").is_file() and str(tmp_path) not in json.dumps(spec)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["task.robot=nowhere.xml"], "nowhere.xml"),
        (["ppo.worlds=0"], "at least 1"),
        (["ppo.minibatches=7"], "do not divide"),
        (["level=5"], "level"),
        (["amp=file"], "amp.file=FILE"),
        (["level=2", "amp=scripted"], "closed program"),
        (["task.runner=gpu"], "runner"),
        (["task.command_ahead=[0.1]"], "command_ahead needs two numbers, lowest and highest, but was given 1"),
        (["task.command_ahead=[0.1,0.2,0.3]"], "but was given 3"),
        (["ranges.friction=[0.1]"], "friction needs two numbers"),
    ],
)
def test_mistakes_are_one_sentence(words, sentence, capsys):
    assert main(["train", "experiment=biped", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
