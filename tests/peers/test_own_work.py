"""The package of docs/own_work.md, logged to Weights & Biases offline."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from twinax.cli import main

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from test_docs import ROOT, TINY_OWN, blocks

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("default")]


def test_ones_own_work_is_logged_to_weights_and_biases(tmp_path, monkeypatch):
    for block in blocks(ROOT / "docs" / "own_work.md"):
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    own = ["env=mypkg.worlds:Bits", "proxy=mypkg.rewards:Proxy", "policy.network=mypkg.nets:Attention", *TINY_OWN]
    sizes = ["trainer.steps=4", "trainer.mode=torch", "logger=wandb", "run.dir=run"]
    assert main(["train", "--quiet", *own, *sizes]) == 0
    assert list(tmp_path.glob("run/wandb/offline-run-*/*.wandb"))
