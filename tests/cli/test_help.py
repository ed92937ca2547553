"""First contact: help is quick, complete, and loads nothing heavy."""

from __future__ import annotations

import sys
import time

import pytest

from twinax.cli._main import COMMANDS


def test_help_comes_at_once(python):
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        shown = python("-m", "twinax.cli", "--help")
        times.append(time.perf_counter() - begin)
    assert shown.code == 0
    assert all(name in shown.out for name in COMMANDS)
    assert min(times) < 0.7, f"--help took {min(times):.2f} s"


def test_help_loads_no_framework(python):
    code = (
        "import sys; from twinax.cli import main; main(['train', '--help']); "
        "print([m for m in ('jax', 'torch', 'hydra', 'rich', 'numpy') if m in sys.modules])"
    )
    assert python("-c", code).out.strip().endswith("[]")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(twinax, name):
    shown = twinax(name, "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"usage: twinax {name}")
    assert "_measure" not in shown.out


def test_no_command_shows_help(twinax):
    shown = twinax()
    assert shown.code == 0
    assert "commands:" in shown.out


def test_version(twinax):
    assert twinax("--version").out.strip() == f"twinax {sys.modules['twinax'].__version__}"
