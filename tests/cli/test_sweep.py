"""`twinax sweep`: every combination is a run of its own, ends, goes on and is counted, wherever it runs."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from twinax.cli import _child, _places, main
from twinax.cli._places import Wanted
from twinax.errors import TwinaxError
from twinax.runs import sweeps

SMALL = ["env=grid", "env.dim=2", "env.side=4", "policy.hidden=[8]", "trainer.batch_size=4", "trainer.mode=jax"]
SMALL += ["trainer.steps=20", "trainer.checkpoint_every=10"]


def test_combinations_run_and_are_tabulated(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, "objective=tb,db", "seed=3", "--at-once", "2", f"run.dir={tmp_path / 'all'}"]
    assert main(["sweep", *words]) == 0
    said = capsys.readouterr().out
    assert "2 finished" in said and "2 of 2" in said
    rows = list(csv.DictReader((tmp_path / "all" / "sweep.csv").read_text().splitlines()))
    assert [row["objective"] for row in rows] == ["tb", "db"]
    assert all(row["status"] == "finished" and float(row["loss"]) >= 0 for row in rows)
    assert (tmp_path / "all" / "001" / "summary.json").exists()
    assert "report all/000 all/001" in said and str(tmp_path) not in said  # paths as one writes them here
    # Said again it finds nothing to do; other settings are another sweep.
    assert main(["sweep", *words]) == 0
    assert "2, 0 to do" in capsys.readouterr().out
    assert main(["sweep", *SMALL, "seed=0,1,2", f"run.dir={tmp_path / 'all'}"]) == 2
    assert "holds a sweep with other settings" in capsys.readouterr().err


def ended(task, **results):
    task.run.mkdir()
    (task.run / "summary.json").write_text(json.dumps({"status": "finished", **results}))


def test_groups_are_means_over_seeds(tmp_path):
    tasks = sweeps.make(tmp_path / "s", [[f"x={x}", f"seed={seed}"] for x in (1, 2) for seed in (0, 1, 2)])
    for task, value in zip(tasks, [1.0, 2.0, 3.0, 5.0, 5.0, 5.0], strict=True):
        ended(task, score=value, seed=int(task.setting["seed"]))
    first, second = sweeps.group(tasks)
    assert first.setting == ("1",) and first.tasks == first.seeds == 3 and set(first.results) == {"score"}
    # t(0.975, 2) = 4.3027; s = 1, n = 3
    assert first.results["score"] == pytest.approx((2.0, 4.302653 / 3**0.5), rel=1e-6)
    assert second.results["score"] == pytest.approx((5.0, 0.0))


def test_seeds_of_a_task_are_a_sample_each(tmp_path):
    tasks = sweeps.make(tmp_path / "s", [["seeds=2", f"seed={seed}"] for seed in (0, 1)])
    # Seed 1 is trained by both tasks, and counts once.
    ended(tasks[0], score=[1.0, 2.0], loss=0.5, loss_per_seed=[0.0, 1.0], speed=10, bad=[1.0, None], seed=0, seeds=2)
    ended(tasks[1], score=[2.0, 3.0], loss=1.5, loss_per_seed=[1.0, 2.0], speed=20, bad=[1.0, 1.0], seed=1, seeds=2)
    [found] = sweeps.group(tasks)
    assert (found.tasks, found.seeds, set(found.results)) == (2, 3, {"score", "loss", "speed"})
    assert found.results["score"] == pytest.approx((2.0, 4.302653 / 3**0.5), rel=1e-6)
    assert found.results["loss"] == pytest.approx((1.0, 4.302653 / 3**0.5), rel=1e-6)
    assert found.results["speed"][0] == 15
    rows = list(csv.DictReader(sweeps.write_table(tmp_path / "s", tasks).read_text().splitlines()))
    assert [(row["score"], row["loss"], row["speed"]) for row in rows] == [
        ("1.5", "0.5", "10.0"),
        ("2.5", "1.5", "20.0"),
    ]


def test_a_sweep_of_several_seeds_at_once_shows_what_was_evaluated(tmp_path, capsys):
    words = [*SMALL, "seeds=2", "metrics.samples=16", "optimizer.learning_rate=1e-3,1e-2", f"run.dir={tmp_path / 's'}"]
    assert main(["sweep", *words]) == 0
    summary = json.loads((tmp_path / "s" / "001" / "summary.json").read_text())
    rows = list(csv.DictReader((tmp_path / "s" / "sweep.csv").read_text().splitlines()))
    assert len(summary["elbo"]) == 2 and float(rows[1]["elbo"]) == pytest.approx(sum(summary["elbo"]) / 2)
    assert "elbo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--on", "moon", "seed=0,1"], "moon"),
        (["--at-once", "0", "seed=0,1"], "--at-once is 0"),
        (["--on", "slurm", "seed=0,1"], "no SLURM here"),
        (["--slurm", "gpu", "seed=0,1"], "is not KEY=VALUE"),
        (["env.side=1,4"], "side"),
        (["experiment=ppo", "ppo.activation=tanh,sine"], "unknown activation 'sine'"),
        (["experiment=ppo", "env=pendulum", "ppo.first_std=1,0"], "first_std is 0.0"),
        (["experiment=biped", "amp=scripted", "amp.hidden=[8],[0]"], "hidden is [0]"),
        (["experiment=offline", "agent.hidden=[8],[0]"], "hidden is [0]"),
        (["seeds=2", "trainer.mode=jax,torch"], "seeds=2"),
        ([], "seed=0,1,2"),
        (["--status"], "run.dir=DIR"),
    ],
)
def test_mistakes_are_one_sentence(words, sentence, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not list(tmp_path.rglob("checkpoints"))


def test_a_failed_task_does_not_end_the_others(tmp_path, capsys):
    # The last combination composes, and its training fails: the directory of its run is a file.
    home = tmp_path / "s"
    sweeps.make(home, [[*SMALL, f"seed={seed}"] for seed in (0, 1)])
    (home / "000").write_text("in the way")
    assert main(["sweep", f"run.dir={home}"]) == 1
    said = capsys.readouterr().out
    assert "is a file" in said and "1 of 2 tasks failed" in said and "1 finished" in said


def ends_with(monkeypatch, code, first="pass"):
    """Tasks are processes that say `begun` and end with a code; below 0 by that signal."""
    end = f"os.kill(os.getpid(), {-code}); time.sleep(60)" if code < 0 else f"sys.exit({code})"
    script = f"import os, sys, time; print('begun', flush=True); {first}; {end}"
    monkeypatch.setattr(_child, "command", lambda *_: [sys.executable, "-S", "-c", script])


@pytest.mark.parametrize(
    ("code", "times"),
    [(-signal.SIGKILL, 3), (-signal.SIGTERM, 3), (143, 3), (130, 1), (-signal.SIGINT, 1), (1, 1), (0, 1)],
)
def test_what_is_killed_is_begun_again_and_what_is_stopped_or_fails_is_not(code, times, tmp_path, monkeypatch):
    [task] = sweeps.make(tmp_path / "s", [SMALL])
    ends_with(monkeypatch, code)
    error = _places.carry_out(task, str(tmp_path), tries=3)
    assert bool(error) == bool(code) and task.log.read_text().count("begun") == times


def test_a_sweep_that_is_stopped_begins_nothing_again(tmp_path, monkeypatch):
    tasks = sweeps.make(tmp_path / "s", [[*SMALL, f"seed={seed}"] for seed in (0, 1)])
    ends_with(monkeypatch, 143, first="time.sleep(0.3)")

    def ctrl_c(_):
        while not (tasks[0].log.exists() and tasks[0].log.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(_places, "as_completed", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        list(_places.local(tasks, Wanted(tries=3)))
    assert tasks[0].log.read_text().count("begun") == 1 and not tasks[1].log.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_a_sweep_end_it(number, tmp_path):
    words = [*SMALL, "trainer.steps=1_000_000", "seed=0,1", f"run.dir={tmp_path / 's'}"]
    sweep = subprocess.Popen(_child.command("sweep", *words), env=_child.environment(), start_new_session=True)
    try:
        task = sweeps.Task(str(tmp_path / "s"), "000", ())
        while not [step for step in _steps(task) if step]:
            time.sleep(0.05)
        os.kill(sweep.pid, number)  # the sweep alone, which passes it on
        assert sweep.wait(timeout=60) == 130
        assert task.status() == "interrupted"
        assert not task.log.with_name("001.log").exists() and task.log.read_text().count("stopped at step") == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_task_goes_on_from_its_checkpoint(number, tmp_path):
    overrides = [*SMALL, "trainer.steps=6000", "trainer.chunk=50", "trainer.checkpoint_every=50"]
    [task] = sweeps.make(tmp_path / "s", [overrides])
    code = "import sys; from pathlib import Path; from twinax.cli import _places; from twinax.runs import sweeps\n"
    code += "print(repr(_places.carry_out(sweeps.read(Path(sys.argv[1]))[0], sys.argv[2], tries=2)))"
    words = [sys.executable, "-c", code, task.sweep, str(tmp_path)]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    while not [step for step in _steps(task) if step]:
        time.sleep(0.05)
    for child in Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split():
        os.kill(int(child), number)
    assert task.status() != "finished" and task.command()[0] == "resume"
    assert started.communicate()[0].strip() == "''"
    assert task.status() == "finished" and task.command() == []


def _steps(task):
    from twinax.runs import checkpoint

    return checkpoint.steps(task.run)


def test_a_local_ray_cluster(tmp_path):
    pytest.importorskip("ray")
    home = tmp_path / "ray"
    # In a process of its own: Ray leaves sockets open.
    words = ["sweep", "--on", "ray", "--at-once", "2", *SMALL, "seed=0,1", f"run.dir={home}"]
    done = _child.start(*words, capture=True)
    assert done.returncode == 0 and "2 finished" in done.stdout, done.stderr
    # One run for each task, equal to the same training without Ray.
    assert main(["train", "--quiet", *SMALL, "seed=1", f"run.dir={tmp_path / 'alone'}"]) == 0
    one, other = (json.loads((path / "summary.json").read_text()) for path in (home / "001", tmp_path / "alone"))
    assert one["loss"] == other["loss"]


@pytest.mark.slow
def test_submitit_carries_tasks(tmp_path):
    pytest.importorskip("submitit")
    tasks = sweeps.make(tmp_path / "jobs", [[*SMALL, f"seed={seed}"] for seed in (0, 1)])
    ended = dict(_places.submitted(tasks, Wanted(), "local"))
    assert ended == dict.fromkeys(tasks, "") and {task.status() for task in tasks} == {"finished"}


def test_slurm_is_asked_for_what_was_wanted(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("srun", "sbatch"):
        # It keeps the script, and says that the queue is closed.
        text = f"""\
            #!/bin/sh
            [ {name} = sbatch ] && cp "$1" {tmp_path}/script.sh
            echo closed >&2; exit 1
        """
        (place / name).write_text(textwrap.dedent(text))
        (place / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    tasks = sweeps.make(tmp_path / "s", [[*SMALL, f"seed={seed}"] for seed in (0, 1)])
    options = {"timeout_min": 60, "slurm_partition": "gpu"}
    with pytest.raises(TwinaxError, match="closed"):
        list(_places.slurm(tasks, Wanted(at_once=1, cpus=3, gpus=1, slurm=options)))
    script = (tmp_path / "script.sh").read_text()
    for line in ("partition=gpu", "time=60", "cpus-per-task=3", "gpus-per-node=1", "array=0-1%1"):
        assert f"#SBATCH --{line}" in script, script
