"""Every command, run for real on a tiny problem."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from twinax import console


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def losses(path: Path) -> np.ndarray:
    return np.array([row["loss"] for row in rows(path)])


def test_train_says_what_it_does_and_keeps_the_run(twinax, tmp_path, tiny):
    done = twinax("train", *tiny, "trainer.steps=3", "trainer.log_every=1")
    assert done.code == 0, done.err
    before, _, after = done.out.partition("after 3 updates")
    assert after, done.out
    for word in ("problem", "mode", "parameters", "device", "threads", "run "):
        assert word in before
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.endswith("-gflownet-hypergrid-trajectory_balance-jax-seed0")
    assert f"twinax report runs/{run.name}" in done.out
    assert [row["step"] for row in rows(run)] == [1, 2, 3]
    assert {"config.yaml", "summary.json", "checkpoints", "metrics.jsonl"} <= {path.name for path in run.iterdir()}
    assert "total_variation" in done.out
    again = twinax("train", "--quiet", *tiny, "trainer.steps=1")
    assert f"{run.name}-2" in again.out
    assert again.err == ""


def test_loggers_by_name_and_by_code_go_on_with_the_run(twinax, tiny, tmp_path, monkeypatch):
    """Of anybody's own the options of the run keep the name, and a resume finds it again."""
    (tmp_path / "my_logs.py").write_text(
        "from twinax.runs import Sink\n\n\ndef note(text):\n    with open('notes', 'a') as file:\n"
        "        file.write(text)\n\n\nclass Notes(Sink):\n"
        "    def start(self, start):\n        note(f'{start.id} {start.unit}\\n')\n"
        "        return start.id or 'mine'\n\n"
        "    def rows(self, rows):\n        note(''.join(f'{row[\"step\"]} ' for row in rows))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ["trainer.log_every=1", "run.dir=here", "logger=[tensorboard,my_logs:Notes]"]
    done = twinax("train", "--quiet", *tiny, "trainer.steps=2", *options)
    assert done.code == 0, done.err
    assert twinax("resume", "here", "--quiet", "trainer.steps=3").code == 0
    assert (tmp_path / "notes").read_text() == "None updates\n1 2 mine updates\n3 "
    assert len(list((tmp_path / "here" / "tensorboard").glob("events*"))) == 2


def test_settings_may_stand_around_options(twinax, tiny):
    assert twinax("train", "trainer.steps=1", "--quiet", *tiny, "run.dir=here").code == 0
    assert Path("here/summary.json").exists()


def test_several_values_train_several_runs(twinax, tmp_path, tiny):
    done = twinax("train", "--quiet", *tiny, "trainer.steps=1", "seed=3,4", "run.dir=both")
    assert done.code == 0, done.err
    seeds = [json.loads((tmp_path / "both" / name / "summary.json").read_text())["seed"] for name in "01"]
    assert seeds == [3, 4]
    assert "twinax report both/0 both/1" in done.out


def test_several_seeds_at_once(twinax, tiny):
    done = twinax("train", "--quiet", *tiny, "trainer.steps=2", "seeds=3", "run.dir=three")
    assert done.code == 0, done.err
    assert "±" in done.out
    assert len(rows(Path("three"))[-1]["loss_per_seed"]) == 3


def test_resume_continues_and_may_change_the_mode(twinax, trained, tiny):
    shutil.copytree(trained, "copy")
    done = twinax("resume", "copy", "trainer.steps=9", "trainer.mode=torch", "--quiet")
    assert done.code == 0, done.err
    assert [row["step"] for row in rows(Path("copy"))] == list(range(1, 10))
    summary = json.loads(Path("copy/summary.json").read_text())
    assert (summary["mode"], summary["steps"]) == ("torch", 9)
    straight = twinax("train", "--quiet", *tiny, "trainer.steps=9", "run.dir=straight")
    assert straight.code == 0
    np.testing.assert_allclose(losses(Path("copy")), losses(Path("straight")), rtol=1e-4)


def test_eval_uses_fresh_draws(twinax, trained):
    shutil.copytree(trained, "copy")
    found = []
    for seed in ("1", "1", "2"):
        assert twinax("eval", "copy", "--seed", seed).code == 0
        found.append(json.loads(Path("copy/eval.json").read_text()))
    assert found[0] == found[1]
    assert found[0]["step"] == 6
    assert found[0]["metrics"]["elbo"] != found[2]["metrics"]["elbo"]
    assert found[0]["metrics"]["total_variation"] == found[2]["metrics"]["total_variation"]  # exact: no draws
    chosen = {twinax("eval", "copy").out.splitlines()[0] for _ in range(2)}
    assert len(chosen) == 2


def test_report_of_two_runs(twinax, trained):
    shutil.copytree(trained, "one")
    shutil.copytree(trained, "two")
    done = twinax("report", "one", "two", "--out", "both.html")
    assert done.code == 0, done.err
    assert "both.html" in done.out
    assert "<html" in Path("both.html").read_text()[:400]
    done = twinax("report", "one", "two")
    assert done.code == 0 and "comparison.html" in done.out, done.err
    assert Path("comparison.html").exists() and not Path("one/report.html").exists()


def test_list_shows_choices_and_runs(twinax, trained):
    shown = twinax("list")
    assert shown.code == 0
    for word in ("experiment=gflownet", "env=grid", "objective=detailed_balance", "vargrad", "trainer.mode=torch"):
        assert word in shown.out
    assert "no runs in ./runs" in shown.out
    shutil.copytree(trained, "runs/copy")
    assert "runs/copy" in twinax("list", "runs").out
    keys = twinax("list", "keys").out
    assert "optimizer.log_z_learning_rate" in keys and "Step size of the parameters of log Z." in keys


def test_list_keys_of_what_settings_choose(twinax):
    def listed(*settings):
        done = twinax("list", "keys", *settings)
        assert done.code == 0, done.err
        lines = (line.split(maxsplit=2) for line in done.out.splitlines())
        return {line[0]: line[1:] for line in lines if len(line) > 1 and "." in line[0]}

    every, one = listed("experiment=offline"), listed("experiment=offline", "agent=hiql", "agent.gamma=0.9")
    assert "agent.kl_weight" in every and "agent.kl_weight" not in one
    assert one["agent.gamma"][0] == "0.9" and one["agent.alpha"][0] == "3.0"  # HIQL's own, not the first agent's
    assert "env=cartpole" in twinax("list", "choices", "experiment=ppo").out
    assert "was given keys and runs" in twinax("list", "keys", "runs").err


def test_what_is_said_at_the_start_is_what_one_writes(twinax, tiny):
    done = twinax("train", *tiny, "trainer.steps=1", "seeds=2", "run.dir=here")
    assert done.code == 0, done.err
    assert "env=hypergrid (dim 2, side 3), objective=trajectory_balance, proxy=easy (" in done.out
    assert "1 threads" not in done.out
    assert "seeds 0 to 1" in done.err


def test_a_path_in_a_table_stays_in_one_piece(capsys):
    name = "runs/2026-11-18-treasurehunt-treasurehunt_items-default-jax-seed0"
    console.table("runs", ("run", "result"), [(name, "total variation 0.19564 ± 0.23 " * 4)])
    assert name in capsys.readouterr().out


STRANGER = """
'''Greets somebody, from another package.'''
from twinax import console

HELP = "greet somebody"

def add_arguments(parser):
    parser.add_argument("name")

def run(arguments):
    console.facts({"hello": arguments.name})
    return 3
"""


def test_an_installed_package_adds_a_command(python, tmp_path, root):
    """As pip would leave it: a module, and the entry points of its distribution."""
    site, place = tmp_path / "site", {"PYTHONPATH": f"{root}{os.pathsep}{tmp_path / 'site'}"}
    (site / "greeting-1.0.dist-info").mkdir(parents=True)
    (site / "greeting-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    points = "[twinax.commands]\ngreet = greeting\ntrain = greeting\nempty = collections:Counter\n"
    (site / "greeting-1.0.dist-info" / "entry_points.txt").write_text(points)
    (site / "greeting.py").write_text(STRANGER)

    def twinax(*words):
        return python("-m", "twinax.cli", *words, **place)

    done = twinax("greet", "Ada")
    assert (done.code, done.out) == (3, "hello  Ada\n"), done.err
    assert "Greets somebody, from another package." in twinax("greet", "--help").out
    assert "greeting" not in twinax("train", "--help").out, "ours keep their names"
    lacking, unknown = twinax("empty"), twinax("gret")
    assert lacking.code == 2 and "the command 'empty' is collections:Counter" in lacking.err
    assert unknown.code == 2 and "Did you mean 'greet'?" in unknown.err


def test_only_some_files_are_looked_at(twinax):
    Path("notes.txt").write_text("nothing to examine")
    done = twinax("doctor", "notes.txt")
    assert done.code == 2 and "doctor cannot look at 'notes.txt': it knows files that end in .xml" in done.err


def test_doctor(twinax, monkeypatch):
    shown = twinax("doctor")
    assert shown.code == 0
    for word in ("jaxlib", "compilation cache", "threads", "GFLOP/s", "pip install 'twinax[torch]'"):
        assert word in shown.out
    assert "built for CPU, sees cpu (cpu); for NVIDIA's devices pip install 'jax[cuda12]'" in shown.out
    assert re.search(r"^torch +\S+, built for .*, sees cpu.*; pip install --force-reinstall torch", shown.out, re.M)
    monkeypatch.setenv("TWINAX_CACHE", "off")
    assert "off (TWINAX_CACHE=off)" in twinax("doctor", "--quick").out


def test_compilation_cache_is_filled_and_can_be_off(python, tmp_path):
    code = "from twinax.cli import _cache; _cache.enable(); import jax; print(jax.jit(lambda x: x + 1)(1.0))"
    clean = {name: None for name in os.environ if name.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))}
    clean["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert python("-c", code, TWINAX_CACHE="off", **clean).out == "2.0\n"
    assert not (tmp_path / "cache").exists()
    assert python("-c", code, **clean).code == 0
    assert list((tmp_path / "cache" / "twinax" / "xla").glob("jit__lambda*"))
    assert python("-c", code, **clean).err == "", "reading from the cache must not warn"


def test_the_seed_commands_as_written(python, twinax, tmp_path, root):
    """The same seed in two modes: equal losses at every step, from a first loss of about (37.5 - 2.2)^2."""
    words = "env=grid trainer.mode={} seed=42 gflownet.optimizer.n_train_steps=10"
    script = python(str(root / "train.py"), *words.format("jax").split())
    assert script.code == 0, script.err
    command = twinax("train", *words.format("legacy").split())
    assert command.code == 0, command.err
    torch, jax = (losses(next((tmp_path / "runs").glob(f"*-{mode}-seed42"))) for mode in ("torch", "jax"))
    assert len(jax) == 10
    np.testing.assert_allclose(torch, jax, rtol=1e-5)
    assert 1.15e3 < jax[0] < 1.35e3


@pytest.mark.parametrize("name", ["db_hypergrid", "tb_hypergrid"])
def test_baselines_run_from_anywhere(tmp_path, monkeypatch, root, name):
    small = ["environment.dim=2", "environment.side=4", "policy.hidden=[8]", "metrics.samples=16"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [f"{name}.py", "num_train_steps=1_0", "logging.tqdm_print_rate=5", *small])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(root / "baselines" / f"{name}.py"), run_name="__main__")
    (run,) = (tmp_path / "runs").iterdir()
    assert [row["step"] for row in rows(run)] == [1, 5, 10]


@pytest.mark.slow
def test_the_walkthrough_command_as_written(python, tmp_path, root):
    done = python(str(root / "baselines/db_hypergrid.py"), "num_train_steps=1_000", "logging.tqdm_print_rate=100")
    assert done.code == 0, done.err
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "summary.json").read_text())["total_variation"] < 0.5
