"""The package of docs/own_work.md, logged to Weights & Biases offline, by a command in another directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from test_docs import ROOT, TINY_OWN, blocks

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]


def test_ones_own_work_is_logged_to_weights_and_biases(tmp_path):
    for block in blocks(ROOT / "docs" / "own_work.md"):
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    own = ["env=mypkg.worlds:Bits", "proxy=mypkg.rewards:Proxy", "policy.network=mypkg.nets:Attention", *TINY_OWN]
    sizes = ["trainer.steps=4", "trainer.mode=torch", "logger=wandb", "run.dir=run"]
    command = [sys.executable, "-m", "twinax.cli", "train", "--quiet", *own, *sizes]
    places = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "PYTHONPATH": str(ROOT)}
    # Other tests of this process leave variables behind, by which its runs would be found.
    env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")} | places
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("run/wandb/offline-run-*/*.wandb")), done.stderr
