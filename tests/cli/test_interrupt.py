"""Ctrl-C: the chunk ends, the run is saved, the way on is told; and output that nobody reads any more."""

from __future__ import annotations

import gc
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_inside_a_callback_of_the_collector_is_not_lost(twinax, monkeypatch, number, code):
    """JAX has such a callback, and what is raised in it is dropped."""

    def interrupted(phase, info):
        gc.callbacks.remove(interrupted)
        signal.raise_signal(number)
        sum(range(10))  # here it is raised

    def compose(*_):
        gc.callbacks.append(interrupted)
        gc.collect()
        time.sleep(5)
        raise AssertionError("the interrupt was lost")

    monkeypatch.setattr("twinax.conf.compose", compose)
    done = twinax("train", "env=grid")
    assert done.code == code
    assert done.err == {130: "interrupted\n", 143: "terminated\n"}[code]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "as it was"


def test_an_interrupt_that_became_another_error_is_an_interrupt(twinax, monkeypatch):
    def compose(*_):
        try:
            signal.raise_signal(signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt as error:
            raise ImportError("a library could not be loaded") from error

    monkeypatch.setattr("twinax.conf.compose", compose)
    done = twinax("train", "env=grid")
    assert (done.code, done.err) == (130, "interrupted\n")


def test_an_interrupt_during_an_import_that_catches_everything(python, tmp_path):
    raised = "import signal, time\ntry:\n    signal.raise_signal(signal.SIGINT)\n    time.sleep(5)\nexcept: pass\n"
    (tmp_path / "careless.py").write_text(raised)
    code = "import sys, twinax.conf, twinax.cli\ntwinax.conf.compose = lambda *_: __import__('careless')\n"
    done = python("-c", code + "sys.path.insert(0, '.'); sys.exit(twinax.cli.main(['train', 'env=grid']))")
    assert (done.code, done.err) == (130, "interrupted\n")


@pytest.mark.slow
def test_an_interrupt_at_any_moment_of_the_start(tiny, root, tmp_path):
    command = [sys.executable, "-m", "twinax.cli", "train", *tiny, "trainer.steps=1_000_000_000"]
    for number in range(12):
        words = [*command, f"run.dir={number}"]
        environment = {**os.environ, "PYTHONPATH": str(root)}
        process = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(0.3 + 0.3 * number)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 130, (number, err)
        assert "Traceback" not in err and "ignored" not in err


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
