"""Offline agents from the command line: data made or read, phases, resuming, one pretraining for two tasks."""

from __future__ import annotations

import json

import numpy as np
import pytest

from twinax.cli import main
from twinax.envs import PointMaze
from twinax.offline import collect_maze, save_ogbench

SMALL = [
    "experiment=offline",
    "agent.hidden=[8]",
    "task.walls=u",
    "task.episodes=4",
    "data.trajectories=4",
    "data.steps=30",
    "trainer.batch_size=8",
    "trainer.chunk=10",
    "trainer.mode=torch",  # nothing to compile
]


def run(*arguments):
    return main([*map(str, arguments)])


def test_a_run_pretrains_finetunes_and_goes_on_in_another_mode(tmp_path, capsys):
    where = tmp_path / "run"
    assert run("train", *SMALL, "agent=iql", "phases.pretrain_steps=10", "trainer.steps=20", f"run.dir={where}") == 0
    assert run("resume", where, "trainer.steps=30", "trainer.mode=jax") == 0
    rows = [json.loads(line) for line in (where / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 30 and {"success", "return", "critic.critic_loss"} <= {k for row in rows for k in row}
    assert {path.stem for path in (where / "weights").iterdir()} == {"actor", "critic", "value"}
    capsys.readouterr()
    assert run("eval", where) == 0
    assert "success" in capsys.readouterr().out
    assert run("report", where) == 0
    page = (where / "report.html").read_text()
    assert (
        ">Maze</h2>" in page and "step 30: paths of 4 evaluated episodes" in page and "Target and learned" not in page
    )
    assert (where / "plots" / "maze.png").exists() and not (where / "plots" / "pictures.png").exists()


def test_one_pretraining_serves_several_tasks(tmp_path, capsys):
    first = tmp_path / "first"
    settings = [*SMALL, "agent=hilp", "agent.latent_dim=4"]
    assert run("train", *settings, "phases.pretrain_steps=10", "trainer.steps=10", f"run.dir={first}") == 0
    for k, goal in enumerate(("[1.5,1.5]", "[1.5,3.5]")):
        where = tmp_path / f"task{k}"
        task = [f"task.goal={goal}", f"phases.pretrained={first}", "trainer.steps=20", f"run.dir={where}"]
        assert run("train", *settings, *task) == 0
        summary = json.loads((where / "summary.json").read_text())
        assert summary["steps"] == 20
    capsys.readouterr()
    wrong = [*SMALL, "agent=iql", f"phases.pretrained={first}", "trainer.steps=20"]
    assert run("train", *wrong, f"run.dir={tmp_path / 'x'}") != 0
    assert "is no run of the offline agent iql" in capsys.readouterr().err


def test_data_of_a_file_are_normalised_once_and_judged_by_a_task(tmp_path, capsys):
    path = tmp_path / "walks.npz"
    save_ogbench(collect_maze(PointMaze("u"), 4, 30), path)
    where = tmp_path / "run"
    settings = [
        *SMALL,
        "agent=crl_infonce",
        "agent.latent_dim=4",
        f"data={path}",
        "phases.pretrain_steps=4",
        "trainer.steps=8",
    ]
    assert run("train", *settings, f"data.validation={path}", f"run.dir={where}") == 0
    rows = [json.loads(line) for line in (where / "metrics.jsonl").read_text().splitlines()]
    assert any("validation.critic.contrastive_loss" in row for row in rows)


def test_a_run_from_a_mapped_file_is_the_run_from_memory(tmp_path):
    path = tmp_path / "walks.npz"
    save_ogbench(collect_maze(PointMaze("u"), 4, 30), path, compressed=True)
    losses = []
    for mapped in ("true", "false"):
        where = tmp_path / mapped
        settings = [
            f"data={path}",
            f"data.mapped={mapped}",
            "phases.pretrain_steps=4",
            "trainer.steps=8",
            f"run.dir={where}",
        ]
        assert run("train", *SMALL, "agent=iql", *settings) == 0
        losses.append(json.loads((where / "summary.json").read_text())["loss"])
        assert (tmp_path / "walks.npz.mapped").is_dir()
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["agent=dqn"], "unknown agent 'dqn'"),
        (["data=nowhere.npz"], "nowhere.npz"),
        (["task=gymnasium"], "task=gymnasium needs the id of an environment"),
        (["task=none"], "there are no data"),
        (["task.goal=[0.5,0.5]"], "in a wall"),
        (["task.goal=[1]"], "must be [x, y]"),
        (["data.normalise=most"], "unknown data.normalise 'most'"),
        (["agent.extraction=best"], "unknown extraction 'best'"),
        (["agent=mbpo_rebrac", "agent.buffer_size=3"], "it must hold them"),
        (["phases.pretrained=nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(overrides, sentence, tmp_path, capsys):
    assert run("train", *SMALL, *overrides, f"run.dir={tmp_path / 'run'}") != 0
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_rewards_that_are_not_numbers_are_named_by_row(tmp_path, capsys):
    rewards = np.zeros(6)
    rewards[4] = np.nan
    np.savez(
        tmp_path / "bad.npz",
        observations=np.zeros((6, 2)),
        next_observations=np.zeros((6, 2)),
        actions=np.zeros((6, 2)),
        terminals=[0, 0, 1, 0, 0, 1],
        rewards=rewards,
    )
    assert run("train", *SMALL, f"data={tmp_path / 'bad.npz'}", f"run.dir={tmp_path / 'run'}") != 0
    assert "rewards is nan at row 4" in capsys.readouterr().err


def test_data_in_another_box_are_trained_and_judged_in_it(tmp_path, capsys):
    pytest.importorskip("gymnasium")
    rng = np.random.default_rng(0)
    path = tmp_path / "pendulum.npz"
    np.savez(
        path,
        observations=rng.normal(size=(40, 3)),
        next_observations=rng.normal(size=(40, 3)),
        actions=np.full((40, 1), 1.5),
        rewards=np.zeros(40),
        terminals=np.zeros(40),
        timeouts=np.arange(40) % 20 == 19,
        infos=np.zeros(40),
    )
    settings = [*SMALL[:2], "agent=bc", f"data={path}", "task=gymnasium", "task.env=Pendulum-v1", "task.episodes=1"]
    settings += [
        "trainer.mode=torch",
        "trainer.batch_size=8",
        "phases.pretrain_steps=4",
        "trainer.steps=4",
        "trainer.chunk=4",
    ]
    assert run("train", *settings, f"run.dir={tmp_path / 'no'}") == 2
    said = capsys.readouterr().err
    assert "actions is 1.5 at row 0" in said and said.count("\n") == 1
    box = ["data.low=[-2]", "data.high=2"]
    assert run("train", *settings, *box, f"run.dir={tmp_path / 'run'}") == 0
    assert f"{path}: this array is not used: infos" in capsys.readouterr().err
    assert "return" in json.loads((tmp_path / "run" / "summary.json").read_text())
