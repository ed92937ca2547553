"""Ctrl-C: the chunk ends, the run is saved, the way on is told; and output that nobody reads any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def test_interrupted_training_can_be_resumed(twinax, tiny, root, tmp_path):
    command = [sys.executable, "-m", "twinax.cli", "train", *tiny, "trainer.steps=1_000_000", "run.dir=run"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        log, deadline = tmp_path / "run/metrics.jsonl", time.monotonic() + 120
        while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "twinax resume run" in err
    step = int(err.split("stopped at step ")[1].split(" ")[0])
    done = twinax("resume", "run", f"trainer.steps={step + 1}", "--quiet")
    assert done.code == 0, done.err
    assert Path("run/summary.json").read_text().count('"finished"') == 1


def test_interrupted_before_training(twinax, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("twinax.conf.compose", interrupted)
    done = twinax("train", "env=grid")
    assert (done.code, done.err) == (130, "interrupted\n")


@pytest.mark.parametrize("words", ["--help", "list keys"])
def test_a_closed_pipe_is_no_defect(root, tmp_path, words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "twinax.cli", *words.split(" ")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
