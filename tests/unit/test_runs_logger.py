"""Where rows go, and what a person sees."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest

from twinax.errors import MissingExtra
from twinax.runs.logger import Logger, scalars, tensorboard_sink
from twinax.runs.metrics import MetricsFile, read
from twinax.runs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_rows_go_to_memory_file_and_sinks(tmp_path):
    seen = []
    logger = Logger(MetricsFile(tmp_path / "metrics.jsonl"), [seen.extend], rows=[{"step": 0, "loss": 2.0}])
    logger.write([{"step": 1, "loss": 1.0}])
    logger.write([])
    logger.sync()
    logger.close()
    assert seen == read(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 1.0}]
    assert [row["step"] for row in logger.rows] == [0, 1]


def test_scalars_leave_out_what_tensorboard_cannot_show():
    row = {"step": 1, "loss": float("nan"), "kl": None, "tv": [0.5, None], "name": "x", "n": 3}
    assert scalars(row) == [("tv/0", 0.5), ("n", 3.0)]


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_events_can_be_read_back(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    with tensorboard_sink(tmp_path) as sink:
        sink([{"step": 1, "loss": 0.5, "tv": [0.1, 0.2]}, {"step": 20, "loss": 0.25}])
    events = [event for path in tmp_path.iterdir() for event in EventFileLoader(str(path)).Load()]
    found = {(value.tag, event.step) for event in events for value in event.summary.value}
    assert found == {("loss", 1), ("tv/0", 1), ("tv/1", 1), ("loss", 20)}


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_forgets_steps_after_the_resume(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard_sink(tmp_path) as sink:
        sink([{"step": step, "loss": 1.0} for step in (1, 2, 3, 4)])
    with tensorboard_sink(tmp_path / "again", first_step=2) as sink:
        sink([{"step": step, "loss": 2.0} for step in (3, 4)])
    first, second = next(tmp_path.glob("events*")), next((tmp_path / "again").glob("events*"))
    second.rename(tmp_path / (first.name + ".later"))
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    found = [(event.step, event.value) for event in accumulator.Scalars("loss")]
    assert found == [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]


def test_missing_tensorboard_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'twinax\[tensorboard\]'"):
        with tensorboard_sink(tmp_path):
            pass


def test_two_lines_without_a_terminal(capsys):
    with Progress("jax", 1000, done=10) as progress:
        progress.update(500, 0.5, 100.0)
        progress.say("done")
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.splitlines() == ["jax: 1,000 steps, from step 10", "done"]


def test_silence_when_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress("jax", 1000, show=False) as progress:
        progress.update(500, 0.5, 100.0)
        progress.say("done")
    assert sys.stderr.getvalue() == ""


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with Progress("jax", 1000) as progress:
        progress.update(500, 0.1234567, 1234.5)
        progress.say("[a line] above")
    shown = sys.stderr.getvalue()
    assert "500/1,000" in shown and "loss 0.1235" in shown and "1,234/s" in shown and "[a line] above" in shown
