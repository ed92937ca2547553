"""Sinks: what they are told, once each, also over a resume, and what their errors cost."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from twinax import engines
from twinax.errors import MissingExtra, TwinaxError
from twinax.runs import CallbackFailed, Sink, TensorBoard, resume, train
from twinax.runs.sinks import images, make_sinks, scalars

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

QUIET = {"progress": False, "log_every": 5, "evaluate_every": 20, "checkpoint_every": 10}


class Filming(ProbeEngine):
    def evaluate(self):
        frames = np.zeros((2, 8, 8, 3), np.uint8)
        frames[1] = 255
        return {**super().evaluate(), "film/greedy": frames}


class Paper(Sink):
    """Writes down what it is told; `fails` says at which call of what it raises."""

    def __init__(self, fails=()):
        self.told, self.fails = [], dict(fails)

    def _note(self, kind, *facts):
        self.told.append((kind, *facts))
        if self.fails.get(kind) == sum(one[0] == kind for one in self.told):
            raise ConnectionError("the network\nis gone")

    def start(self, start):
        self._note("start", start.step, start.id, start.unit)
        return start.id or "abc-1"

    def rows(self, rows):
        self._note("rows", *(row["step"] for row in rows))

    def pictures(self, step, pictures):
        self._note("pictures", step, *sorted(pictures))

    def films(self, step, films):
        self._note("films", step, *(path.name for path in films.values()))

    def end(self, status, summary):
        self._note("end", status, summary["steps"])

    @property
    def steps(self):
        return [step for kind, *steps in self.told if kind == "rows" for step in steps]

    def kinds(self, kind):
        return [facts for found, *facts in self.told if found == kind]


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", Filming)


def fail_at_25(run, step, metrics):
    if step == 25:
        raise ValueError("here")


def test_a_sink_gets_rows_pictures_films_and_both_ends(tmp_path):
    paper, rows = Paper(), []
    run = train(ProbeProblem(), steps=30, run_dir=tmp_path / "run", sinks=[paper, rows.extend], **QUIET)
    assert paper.told[0] == ("start", 0, None, "steps") and paper.told[-1] == ("end", "finished", 30)
    assert paper.steps == [row["step"] for row in run.metrics] and rows == run.metrics
    assert paper.kinds("pictures") == [[20, "learned", "target"], [30, "learned", "target"]]
    assert paper.kinds("films") == [[20, "greedy-0000000020.gif"], [30, "greedy-0000000030.gif"]]
    assert json.loads((tmp_path / "run" / "sinks.json").read_text())["Paper"] == {"id": "abc-1", "failed_after": None}


def test_over_a_resume_it_is_the_same_run_and_no_row_comes_twice(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    class Mortal(Paper):
        pass

    first, dies = Paper(), Mortal()
    real = Mortal.rows

    def rows(self, rows):
        real(self, rows)
        if rows[-1]["step"] >= 25:
            raise Killed  # after rows that no checkpoint holds: they are trained again

    monkeypatch.setattr(Mortal, "rows", rows)
    with pytest.raises(Killed):
        train(ProbeProblem(), steps=40, chunk=5, run_dir=tmp_path / "run", sinks=[first, dies], **QUIET)
    assert first.steps[-1] == 25
    later = Paper()
    run = resume(tmp_path / "run", ProbeProblem(), sinks=[later], progress=False)
    assert later.told[0] == ("start", 20, "abc-1", "steps")
    assert first.steps + later.steps == [row["step"] for row in run.metrics] == [1, 5, 10, 15, 20, 25, 30, 35, 40]
    assert [step for step, *_ in first.kinds("pictures") + later.kinds("pictures")] == [20, 40]


def test_a_sink_that_joins_late_gets_the_rows_before(tmp_path):
    train(ProbeProblem(), steps=20, run_dir=tmp_path / "run", **QUIET)
    paper = Paper()
    run = resume(tmp_path / "run", ProbeProblem(), steps=30, sinks=[paper], progress=False)
    assert paper.steps == [row["step"] for row in run.metrics]


@pytest.mark.parametrize("kind", ["start", "rows", "pictures", "films", "end"])
def test_a_sink_that_fails_costs_one_sentence_and_not_the_run(tmp_path, capsys, kind):
    paper, other = Paper({kind: 1 if kind != "rows" else 3}), Paper()
    other.__class__ = type("Other", (Paper,), {})
    options = {**QUIET, "progress": None}
    run = train(ProbeProblem(), steps=40, chunk=5, run_dir=tmp_path / "run", sinks=[paper, other], **options)
    assert run.summary["status"] == "finished" and other.steps == [row["step"] for row in run.metrics]
    lines = [line for line in capsys.readouterr().err.splitlines() if "sink" in line]
    assert len(lines) == 1 and "the sink Paper" in lines[0] and "ConnectionError: the network is gone" in lines[0]
    assert len(paper.kinds(kind)) == (3 if kind == "rows" else 1), "it is not asked again"
    if kind == "start":
        assert paper.told == [("start", 0, None, "steps")]
    if kind != "end":
        assert run.summary["notes"] == lines


def test_what_a_sink_missed_it_gets_when_the_run_goes_on(tmp_path):
    paper = Paper({"rows": 3})
    train(ProbeProblem(), steps=20, chunk=5, run_dir=tmp_path / "run", sinks=[paper], **QUIET)
    assert (
        paper.steps[-1] == 10
        and json.loads((tmp_path / "run" / "sinks.json").read_text())["Paper"]["failed_after"] == 5
    )
    again = Paper()
    run = resume(tmp_path / "run", ProbeProblem(), steps=30, sinks=[again], progress=False)
    assert again.steps == [row["step"] for row in run.metrics if row["step"] > 5]
    assert json.loads((tmp_path / "run" / "sinks.json").read_text())["Paper"]["failed_after"] is None


def test_a_run_that_fails_ends_for_its_sinks_too():
    paper = Paper()
    with pytest.raises(CallbackFailed):
        train(ProbeProblem(), steps=40, sinks=[paper], callbacks=[fail_at_25], **QUIET)
    assert paper.told[-1] == ("end", "failed", 25) and paper.steps[-1] == 25


@pytest.mark.parametrize("text", ["", "[]", "{", '{"Paper": 3}', '{"Paper": {"id": "a b\\n", "failed_after": -1}}'])
def test_a_record_of_sinks_that_somebody_broke_is_no_harm(tmp_path, text):
    train(ProbeProblem(), steps=10, run_dir=tmp_path / "run", sinks=[Paper()], **QUIET)
    (tmp_path / "run" / "sinks.json").write_text(text)
    paper = Paper()
    resume(tmp_path / "run", ProbeProblem(), steps=20, sinks=[paper], progress=False)
    assert paper.told[0][:3] == ("start", 10, None) and paper.steps[-1] == 20


def test_what_is_no_sink_is_refused(tmp_path):
    for wrong in (Paper, 3):
        with pytest.raises(TwinaxError, match=r"a sink is an object of a class that follows twinax\.runs\.Sink"):
            train(ProbeProblem(), steps=1, sinks=[wrong], progress=False)
    with pytest.raises(TwinaxError, match="unknown logger 'paper'"):
        train(ProbeProblem(), steps=1, logger=("paper",), progress=False)


def test_a_sink_of_ones_own_by_name(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from twinax.runs import Sink\nclass Mine(Sink):\n    pass\n"
        "class Other(Sink):\n    def __init__(self, x):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(make_sinks(["mine:Mine"])[0]).__name__ == "Mine"
    with pytest.raises(TwinaxError, match="cannot be made without arguments"):
        make_sinks(["mine:Other"])


def test_pictures_as_pixels():
    made = images({"target": np.array([[0.0, 1.0], [2.0, np.nan]]), "text": np.array(["x"]), "line": np.arange(3)})
    assert made["target"].shape == (256, 256, 3) and made["line"].shape == (85, 255, 3) and "text" not in made
    assert made["target"][-1, 0, 0] == 0 and made["target"][0, 0, 0] == 255 and made["target"][-1, -1, 0] == 127


def test_scalars_leave_out_what_cannot_be_shown():
    row = {"step": 1, "loss": float("nan"), "kl": None, "tv": [0.5, None], "name": "x", "n": 3}
    assert scalars(row) == [("tv/0", 0.5), ("n", 3.0)]


def events(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(directory), size_guidance={"images": 0, "scalars": 0})
    found.Reload()
    return found


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_has_rows_pictures_and_films_once(tmp_path):
    with pytest.raises(CallbackFailed):
        train(
            ProbeProblem(), steps=40, run_dir=tmp_path / "run", logger=("tensorboard",), callbacks=[fail_at_25], **QUIET
        )
    run = resume(tmp_path / "run", ProbeProblem(), progress=False)
    found = events(tmp_path / "run" / "tensorboard")
    assert [event.step for event in found.Scalars("loss")] == [row["step"] for row in run.metrics]
    assert [event.value for event in found.Scalars("loss")] == pytest.approx([row["loss"] for row in run.metrics])
    assert [event.step for event in found.Images("target")] == [20, 40]
    assert [event.encoded_image_string[:4] for event in found.Images("greedy")] == [b"GIF8", b"GIF8"]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_without_a_directory_says_so(capsys):
    run = train(ProbeProblem(), steps=5, sinks=[TensorBoard()])
    assert run.summary["status"] == "finished" and "give a run_dir" in run.summary["notes"][0]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow", "trackio"])
def test_a_missing_package_is_told_before_the_training(tmp_path, monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=rf"pip install 'twinax\[{name}\]'"):
        train(ProbeProblem(), steps=5, logger=(name,), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
