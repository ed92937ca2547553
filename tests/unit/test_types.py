"""Array annotations hold: beartype checks each of them while every family trains in every mode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# The check makes eager steps a hundred times slower, so the families with the most of them run with the slow tests.
SLOW = ("gflownet", "iqn", "ppo")
FAMILIES = [
    pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in ("biped", "gflownet", "iqn", "offline", "ppo")
]


@pytest.mark.parametrize("family", FAMILIES)
def test_annotations_hold_while_training(family):
    script = Path(__file__).with_name("typed_runs.py")
    done = subprocess.run([sys.executable, str(script), family], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "checked"
