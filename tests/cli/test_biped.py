"""The robot as a new user meets it: every level trains, is evaluated, goes on and is exported."""

from __future__ import annotations

import json

import pytest
from own_robot import write_robot

from twinax.cli import _child, main

pytest.importorskip("mujoco")

SMALL = ["ppo.num_envs=8", "ppo.num_steps=8", "ppo.num_minibatches=2", "ppo.num_epochs=1", "ppo.hidden=[8,8]"]
SMALL += ["ppo.episodes=2", "ppo.film=false", "task.time_limit=10", "trainer.steps=4", "trainer.chunk=2"]


def twinax(*words: str):
    """A command in a process of its own: devices are made before JAX begins."""
    return _child.start(*words, capture=True)


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_every_level_trains_and_is_exported(tmp_path, level):
    run = tmp_path / f"level{level}"
    pool = [] if level == 2 else ["ppo.pool=16"]
    done = twinax("train", "experiment=biped", "task=stand", f"level={level}", *SMALL, *pool, f"run.dir={run}")
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
    words = [*(word for word in SMALL if "film" not in word), "ppo.pool=16"]
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
        (["ppo.num_envs=0"], "at least 1"),
        (["ppo.num_minibatches=7"], "do not divide"),
        (["level=5"], "level"),
        (["amp=file"], "amp.file=FILE"),
        (["level=2", "amp=scripted"], "closed program"),
        (["level=2", "ppo.pool=16"], "cannot do ppo.pool=16"),
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


@pytest.fixture(scope="module")
def styled(tmp_path_factory):
    """A run with style from a file, and the file."""
    from twinax.envs.biped import make_biped, scripted_gait

    path = tmp_path_factory.mktemp("styled")
    scripted_gait(make_biped("walk", robot="planar"), seconds=2.0).save(path / "gait.npz")
    words = ["task=walk", "task.robot=planar", "amp=file", f"amp.file={path / 'gait.npz'}", "amp.hidden=[8]"]
    words += ["amp.batch=8", "amp.memory=16", "amp.kept=8", "amp.updates=1", "trainer.mode=torch", "trainer.steps=1"]
    assert main(["train", "--quiet", "experiment=biped", *SMALL, "ppo.pool=16", *words, f"run.dir={path / 'run'}"]) == 0
    return path / "run", path / "gait.npz"


def test_a_style_is_judged_also_at_speeds_that_are_not_its_own(styled, capsys):
    """Nothing is trained, so nothing is pulled apart."""
    run, _ = styled
    assert main(["eval", str(run), "task.command_ahead=[0.5,0.5]"]) == 0
    assert "gait_distance" in json.loads((run / "eval.json").read_text())["metrics"]
    assert capsys.readouterr().err == ""
    assert main(["resume", str(run), "trainer.steps=2", "task.command_ahead=[0.5,0.5]"]) == 2
    assert "style and task would pull apart" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "cannot be read: No such file"), (b"?", "is not a file of reference motion")]
)
def test_a_policy_needs_no_reference(styled, tmp_path, capsys, content, sentence):
    run, file = styled
    aside = file.rename(tmp_path / "aside.npz")
    try:
        if content is not None:
            file.write_bytes(content)
        assert main(["export", str(run), str(tmp_path / "policy.onnx")]) == 0
        assert capsys.readouterr().err == ""
        assert main(["eval", str(run)]) == 0
        said = capsys.readouterr().err
        assert said.startswith("warning: gait_distance is left out") and sentence in said and said.count("\n") == 1
        found = json.loads((run / "eval.json").read_text())["metrics"]
        assert "gait_distance" not in found and "episode_return" in found
        assert main(["resume", str(run), "trainer.steps=2"]) != 0
        assert sentence in capsys.readouterr().err
    finally:
        aside.rename(file)


def test_a_refusal_of_brax_leaves_no_run_behind(tmp_path, capsys):
    pytest.importorskip("brax")
    words = ["ppo.num_envs=6", "ppo.num_steps=8", "ppo.num_minibatches=4", f"run.dir={tmp_path / 'run'}"]
    assert main(["train", "experiment=biped", "level=2", *words]) == 2
    said = capsys.readouterr().err
    assert "6 worlds do not divide into 4" in said and said.count("\n") == 1
    assert not (tmp_path / "run").exists()
