"""Symbolic links in a run that came from somebody else: none that leaves the run is followed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from twinax import engines
from twinax.errors import TwinaxError
from twinax.runs import RunDirectory, checkpoint, files, films, metrics, pictures, plots, resume, train, write_report

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", ProbeEngine)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, target, **_: draw(target))


def draw(target):
    target.write("<svg></svg>") if hasattr(target, "write") else Path(target).write_bytes(b"")


@pytest.fixture
def run(tmp_path):
    train(ProbeProblem(), steps=20, checkpoint_every=10, evaluate_every=10, run_dir=tmp_path / "run", progress=False,
          config={"seed": 0})  # fmt: skip
    return tmp_path / "run"


@pytest.fixture
def outside(tmp_path):
    """Files of the user, which stay as they are."""
    place = tmp_path / "home"
    (place / "folder" / "deep").mkdir(parents=True)
    (place / "folder" / "0000000005").mkdir()
    (place / "folder" / ".tmp-old").mkdir()
    for name in ("secret", "folder/deep/file", "folder/.tmp-old/file"):
        (place / name).write_text("the user's own")
    before = tree(place)
    yield place
    assert tree(place) == before


def tree(place):
    return {path: path.read_bytes() if path.is_file() else None for path in place.rglob("*")}


FILES = [
    ".lock", "config.yaml", "metrics.jsonl", "metrics.csv", "summary.json", "report.html", ".tmp-summary.json",
    ".tmp-config.yaml", "plots/.tmp-pictures.safetensors", "plots/pictures.safetensors", "plots/loss.png",
    "weights/networks.safetensors", "checkpoints/0000000020/meta.json", "checkpoints/0000000020/state.safetensors",
    "checkpoints/0000000030", "checkpoints/.tmp-0000000030", "checkpoints/.old-0000000030", "films/x-0000000001.gif",
    "plots/episode-frames.png", "sources/own.xml", "parity.json", "sinks.json",
]  # fmt: skip
FOLDERS = ["checkpoints", "weights", "plots", "films", "tensorboard", "sources", "checkpoints/0000000020"]


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
@pytest.mark.parametrize("command", ["resume", "report"])
def test_a_link_that_leaves_the_run_is_refused_and_nothing_is_written(run, outside, name, command):
    place = run / name
    place.parent.mkdir(exist_ok=True)
    if os.path.lexists(place):
        files.remove(place)
    place.symlink_to(outside / ("folder" if name in FOLDERS else "secret"))
    with pytest.raises(TwinaxError, match="outside of .*delete the link"):
        resume(run, ProbeProblem(), steps=30, progress=False) if command == "resume" else write_report(run)
    assert place.is_symlink()


@pytest.mark.parametrize("name", ["", "checkpoints", "summary.json", "metrics.jsonl"])
def test_links_that_stay_are_followed(run, name):
    """The run itself may lie behind a link, and a part of it elsewhere in the run."""
    place = run / name
    kept = place.with_name("big-disk")
    place.rename(kept)
    place.symlink_to(kept.name)
    resume(run, ProbeProblem(), steps=30, progress=False)
    assert RunDirectory(run).read_summary()["steps"] == 30 and RunDirectory(run).read_metrics()[-1]["step"] == 30
    assert checkpoint.steps(run)[-1] == 30
    write_report(run)


def test_a_persons_own_links_beside_the_runs_files_do_not_matter(run, outside):
    (run / "notes").symlink_to(outside / "folder")
    resume(run, ProbeProblem(), steps=30, progress=False)
    write_report(run)


def test_each_write_refuses_by_itself(run, outside):
    """Not only the look at the whole run before it."""
    for folder in ("plots", "films", "weights", "checkpoints"):
        files.remove(run / folder)
        (run / folder).symlink_to(outside / "folder")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(outside / "secret")
    directory, frames = RunDirectory(run), np.zeros((1, 4, 4, 3), np.uint8)
    calls = [
        lambda: pictures.save(directory.pictures_path, {"target": np.eye(2)}, 1),
        lambda: films.save(directory.films, {"greedy": frames}, 1),
        lambda: plots.draw("loss", lambda figure: None, (1, 1), directory.plots),
        lambda: directory.write_weights({"net": {"weight": np.zeros(2)}}),
        lambda: checkpoint.save(checkpoint.place(run, 40), {"weight": np.zeros(2)}, {"step": 40}),
        lambda: checkpoint.latest(run),
        lambda: checkpoint.set_aside(checkpoint.place(run, 5)),
        lambda: metrics.MetricsFile(directory.metrics_path),
        lambda: metrics.trim(directory.metrics_path, 5),
        lambda: metrics.read(directory.metrics_path),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(TwinaxError, match="outside of"):
            call()
            pytest.fail(f"call {number} went through")


def test_names_that_climb_out_of_the_run_are_refused(run, outside):
    (run / "sources").mkdir()
    (run / "config.yaml").write_text("robot: sources/../../home/secret\n")
    with pytest.raises(TwinaxError, match="outside of"):
        RunDirectory(run).read_config()
    (run / "config.yaml").write_text("seed: 0\n")
    (run / "sources.json").write_text(json.dumps({"../home/secret": "0"}))
    with pytest.raises(TwinaxError, match="outside of"):
        RunDirectory(run).read_config()


def test_a_training_does_not_begin_behind_a_link(tmp_path, outside):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metrics.jsonl").symlink_to(outside / "absent")
    with pytest.raises(TwinaxError, match="outside of"):
        train(ProbeProblem(), steps=3, run_dir=tmp_path / "new", progress=False)


def test_pipes_are_not_waited_for(run):
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    for call in (lambda: write_report(run), lambda: resume(run, ProbeProblem(), steps=30, progress=False)):
        with pytest.raises(TwinaxError, match="not a regular file"):
            call()
