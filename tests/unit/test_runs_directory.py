"""The run directory, its lock, its log and its small files."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from twinax.errors import TwinaxError
from twinax.runs import checkpoint, files, metrics, pictures
from twinax.runs.directory import RunDirectory
from twinax.runs.plain import dumps, plain

HOLD = """
import sys, time
from pathlib import Path
from twinax.runs import lock
with lock.locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


class Colour(Enum):
    red = "red"


def test_a_new_directory_is_made_with_its_parents(tmp_path):
    directory = RunDirectory(tmp_path / "a" / "b")
    directory.create()
    assert directory.path.is_dir()
    directory.create()  # empty: fine


def test_a_used_directory_is_refused(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(TwinaxError, match=f"twinax resume {tmp_path}.*new run.dir"):
        RunDirectory(tmp_path).create()


def test_a_training_that_left_nothing_may_be_started_again(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    (tmp_path / "config.yaml").write_text("a: 1")
    (tmp_path / "checkpoints" / ".tmp-0000000000").mkdir(parents=True)
    (tmp_path / "parity.json").write_text("{}")
    RunDirectory(tmp_path).create()


def test_a_directory_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(TwinaxError, match=r"'thesis.tex'.*choose a new run.dir"):
        RunDirectory(tmp_path).create()


def test_a_file_and_a_path_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TwinaxError, match="is a file, not a directory"):
        RunDirectory(tmp_path / "file").create()
    with pytest.raises(TwinaxError, match="Not a directory; choose a run.dir whose parents"):
        RunDirectory(tmp_path / "file" / "run").create()


def test_a_read_only_disk(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(TwinaxError, match="Read-only file system; choose a run.dir on a disk that can be written"):
        RunDirectory(tmp_path / "run").create()


def test_config_comes_back(tmp_path):
    config = {"seed": 1, "rate": 1e-3, "far": float("inf"), "list": (1, 2), "path": Path("x"), "colour": Colour.red}
    directory = RunDirectory(tmp_path)
    directory.write_config(config)
    assert directory.read_config() == config | {"list": [1, 2], "path": "x", "colour": "red"}


def test_config_of_hydra_comes_back(tmp_path):
    from omegaconf import OmegaConf

    directory = RunDirectory(tmp_path)
    with pytest.raises(TwinaxError, match="a.b=.*perhaps a secret"):
        directory.write_config(OmegaConf.create({"a": {"b": "${oc.env:HOME}"}}))
    directory.write_config(OmegaConf.create({"a": {"b": 2}, "c": "${a.b}"}))
    assert directory.read_config() == {"a": {"b": 2}, "c": 2}


def test_missing_and_broken_files_are_named(tmp_path):
    directory = RunDirectory(tmp_path)
    with pytest.raises(TwinaxError, match=r"no config.yaml.*twinax.resume\("):
        directory.read_config()
    directory.config_path.write_text("a: [1")
    with pytest.raises(TwinaxError, match="config.yaml cannot be read"):
        directory.read_config()
    directory.config_path.write_text("hello")
    with pytest.raises(TwinaxError, match="holds a str"):
        directory.read_config()
    assert directory.read_summary() == {} and directory.read_metrics() == []
    directory.summary_path.write_text("{")
    with pytest.raises(TwinaxError, match="summary.json cannot be read"):
        directory.read_summary()
    with pytest.raises(TwinaxError, match="there is no run directory"):
        RunDirectory(tmp_path / "absent").read_summary()


def test_a_full_disk_keeps_the_old_summary(tmp_path, monkeypatch):
    directory = RunDirectory(tmp_path)
    directory.write_summary({"loss": 1.0})

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TwinaxError, match="summary.*No space left on device; the checkpoints are intact"):
        directory.write_summary({"loss": 2.0})
    assert directory.read_summary() == {"loss": 1.0} and os.listdir(tmp_path) == ["summary.json"]


def test_trim_drops_later_steps_and_half_a_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    whole = "".join(json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in (1, 10, 20))
    path.write_text(whole + '{"step": 30, "loss": 0.1}\n{"step": 40, "los')
    assert [row["step"] for row in metrics.read(path)] == [1, 10, 20, 30]
    assert [row["step"] for row in metrics.trim(path, 20)] == [1, 10, 20]
    assert path.read_text() == whole
    # A whole object without its line end is a half-written line too: the next row would be glued to it.
    path.write_text(whole + '{"step": 20}')
    metrics.trim(path, 20)
    assert path.read_text() == whole
    assert metrics.trim(tmp_path / "absent", 5) == []


def test_every_write_leaves_whole_lines(tmp_path):
    file = metrics.MetricsFile(tmp_path / "metrics.jsonl")
    file.write([{"step": 1, "loss": float("nan"), "terms": np.array([1.0, np.inf])}])
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "loss": null, "terms": [1.0, null]}\n'
    file.close()
    with pytest.raises(TwinaxError, match="cannot write the log"):
        metrics.MetricsFile(tmp_path / "absent" / "metrics.jsonl")


def test_lock_refuses_the_second_and_outlives_nobody(tmp_path):
    directory = RunDirectory(tmp_path)
    with directory.lock():
        with pytest.raises(TwinaxError, match=f"being trained by process {os.getpid()} on"):
            with directory.lock():
                pass
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(TwinaxError, match=f"process {other.pid}"):
            with directory.lock():
                pass
        other.kill()
    assert (tmp_path / ".lock").exists()  # stale: its process is dead
    with directory.lock():
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


def test_replace_file_is_whole_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.replace_file(path, "old")

    def broken(*_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="broken"):
        files.replace_file(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_pictures_come_back(tmp_path):
    path = tmp_path / "plots" / "pictures.safetensors"
    found = pictures.select({"picture/target": np.eye(3).T[:, ::-1], "loss": 1.0})
    pictures.save(path, found, step=7)
    loaded, _, step = pictures.load(path)
    assert step == 7 and list(loaded) == ["target"]
    np.testing.assert_array_equal(loaded["target"], np.eye(3)[:, ::-1])
    path.write_bytes(b"hello")
    with pytest.raises(TwinaxError, match="delete it"):
        pictures.load(path)
    assert pictures.load(tmp_path / "absent") == ({}, {}, 0)
    pictures.save(tmp_path / "none" / "x", {}, 1)
    assert not (tmp_path / "none").exists()


def test_plain_values():
    assert plain({1: np.float32("nan"), "a": (np.int64(1), Colour.red, Path("x"), None, True)}) == {
        "1": None,
        "a": [1, "red", "x", None, True],
    }
    assert dumps(float("-inf")) == "null"


def lines(*steps):
    return [json.dumps({"step": step, "loss": 1 / step, "seconds": float(step)}) + "\n" for step in steps]


DAMAGED = {
    "1 damaged": lambda rows: [*rows[:3], '{"step": 4, "lo\n', *rows[4:]],
    "1 doubled": lambda rows: [*rows[:3], rows[2], *rows[3:]],
    "1 out of order": lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]],
    "2 missing": lambda rows: [*rows[:3], *rows[5:]],
    "2 damaged and 1 missing": lambda rows: [*rows[:3], "{}\n", "\n", *rows[6:]],
    "1 too many": lambda rows: [*rows[:3], '{"step": 0}\n', *rows[3:]],
    "values were changed": lambda rows: [*rows[:3], rows[3].replace("0.25", "0.52"), *rows[4:]],
    "10 missing": lambda rows: [],
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_log_is_said_and_the_old_one_kept(tmp_path, what):
    path, rows = tmp_path / "metrics.jsonl", lines(*range(1, 11))
    file = metrics.MetricsFile(path)
    file.write([json.loads(row) for row in rows])
    account = file.account()
    file.close()
    assert metrics.read(path, account, 10) == metrics.trim(path, 10, account) == [json.loads(row) for row in rows]
    path.write_text("".join(DAMAGED[what](rows)) + '{"step": 11, "loss": 1.0}\n{"ste')
    told = []
    found = metrics.read(path, account, 10, told.append)
    assert len(told) == 1 and what in told[0] and "rows left are used" in told[0]
    steps = [row["step"] for row in found]
    assert steps == sorted(set(steps)) and steps[-1] == 11
    old = path.read_text()
    kept = metrics.trim(path, 10, account, told.append)
    assert kept == found[:-1] and what in told[1] and "the old file is metrics.jsonl.damaged" in told[1]
    assert (tmp_path / "metrics.jsonl.damaged").read_text() == old
    assert metrics.read(path) == kept  # and no warning
    if kept == [json.loads(row) for row in rows]:
        assert metrics.read(path, account, 10) == kept  # doubled and out of order: nothing was lost
        return
    with pytest.warns(UserWarning, match="is not as the run wrote it"):
        metrics.read(path, account, 10)
    metrics.trim(path, 10, account, told.append)
    assert (tmp_path / "metrics.jsonl.damaged-2").exists()


@pytest.mark.parametrize(
    "line",
    ['{"step": true}', '{"step": -1}', '{"step": 1e3}', '{"step": 99999999999}', '{"step": 4, "loss": NaN}', "[4]",
     '{"step": 4, "seconds": "long"}', '{"step": 4, "loss": 1e999}', '{"step": 4, "step": 5}', "[" * 9999],
)  # fmt: skip
def test_lines_that_no_run_writes_are_damaged(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join([*lines(1, 2), line + "\n", *lines(7)]))
    told = []
    assert [row["step"] for row in metrics.read(path, tell=told.append)] == [1, 2, 7] and "1 damaged" in told[0]


def test_a_changed_configuration_is_refused(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_config({"seed": 1, "batch": 16})
    text = directory.config_path.read_text()
    directory.config_path.write_text(text.replace("16", "17"))
    with pytest.raises(TwinaxError, match="config.yaml was changed after it was written.*delete its first line"):
        directory.read_config()
    directory.config_path.write_text(text.replace("16", "17").split("\n", 1)[1])
    assert directory.read_config() == {"seed": 1, "batch": 17}


@pytest.mark.parametrize(
    "text", ["a: &a [*a]\n", "a: &a [1]\nb: [*a, *a]\n", "a: 2001-99-99\n", "[" * 9999, "? [1]\n: 2\n"]
)
def test_odd_configurations_are_sentences(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(TwinaxError, match="config.yaml (cannot be read|holds a)"):
        RunDirectory(tmp_path).read_config()


def test_the_configuration_of_another_run_is_refused(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.write_config({"seed": 1, "env": {"name": "grid", "side": 3}, "run": {"name": "a"}})
    checkpoint.save(
        checkpoint.place(tmp_path, 1), {"weight": np.ones(1)}, {"step": 1, "config": directory.read_config()}
    )
    directory.write_config({"seed": 1, "env": {"name": "grid", "side": 3}, "run": {"name": "b"}})
    assert directory.read_config()["run"]["name"] == "b"  # what a resumed run may change
    directory.write_config({"seed": 2, "env": {"name": "grid", "side": 3}})
    with pytest.raises(TwinaxError, match="has seed=2, the newest checkpoint was trained with seed=1"):
        directory.read_config()
    directory.write_config({"seed": 1, "env": {"name": "sequence"}})
    with pytest.raises(TwinaxError, match="has env.name=sequence, .* with env.name=grid"):
        directory.read_config()


def test_a_changed_summary_is_refused(tmp_path):
    directory = RunDirectory(tmp_path)
    plan = {"steps": 9, "seed": 1}
    checkpoint.save(checkpoint.place(tmp_path, 1), {"weight": np.ones(1)}, {"step": 1, "plan": plan})
    directory.write_summary({"loss": 1.0, "seed": 2})
    with pytest.raises(TwinaxError, match="is not the summary of this run: it has seed=2, .* with seed=1"):
        directory.read_summary()
    directory.write_summary({"loss": 1.0, "seeds": 1})
    directory.summary_path.write_text(directory.summary_path.read_text().replace("1.0", "0.1"))
    with pytest.raises(TwinaxError, match="summary.json cannot be read: it was changed after it was written"):
        directory.read_summary()


ODD = [
    ("seeds", "two"), ("seeds", [2]), ("seeds", -1), ("steps", 1.5), ("problem", "grid"), ("versions", ["jax"]),
    ("command", {"a": 1}), ("seconds", "long"), ("plan", 3), ("status", 4), ("threads", True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), ODD)
def test_odd_values_in_a_summary_are_sentences(tmp_path, name, value):
    directory = RunDirectory(tmp_path)
    directory.write_summary({name: value})
    with pytest.raises(TwinaxError, match=f"summary.json has the {name} "):
        directory.read_summary()


def test_changed_pictures_are_refused(tmp_path):
    path = tmp_path / "plots" / "pictures.safetensors"
    for _ in range(5):
        pictures.save(path, {"target": np.eye(3), "learned": np.eye(3).T}, step=7)
        content = path.read_bytes()
        pictures.save(path, {"learned": np.eye(3).T, "target": np.eye(3)}, step=7)
        assert path.read_bytes() == content
    path.write_bytes(content[:-1] + b"\1")
    with pytest.raises(TwinaxError, match="it was changed after it was written"):
        pictures.load(path)
