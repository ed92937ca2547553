"""Where rows go, and what a person sees."""

from __future__ import annotations

import io
import sys

from twinax.parts import Unit
from twinax.runs.logger import Logger
from twinax.runs.metrics import MetricsFile, read
from twinax.runs.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_rows_go_to_memory_and_file(tmp_path):
    logger = Logger(MetricsFile(tmp_path / "metrics.jsonl"), rows=[{"step": 0, "loss": 2.0}])
    logger.write([{"step": 1, "loss": 1.0}])
    logger.write([])
    logger.sync()
    logger.close()
    assert read(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 1.0}]
    assert [row["step"] for row in logger.rows] == [0, 1]


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


def test_progress_counts_in_the_unit_of_the_family(capsys, monkeypatch):
    unit = Unit("environment steps", 128, "env_steps")
    with Progress("jax", 10, show=True, unit=unit):
        pass
    assert capsys.readouterr().err == "jax: 1,280 environment steps (10 training steps)\n"
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    with Progress("jax", 10, unit=unit) as progress:
        progress.update(5, 0.5, 10.0)
        progress.say("x")
    assert "640/1,280 environment steps" in sys.stderr.getvalue() and "1,280/s" in sys.stderr.getvalue()
