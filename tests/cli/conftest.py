"""Commands run inside this process, in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TINY = ["env.dim=2", "env.side=3", "policy.hidden=[8]", "metrics.samples=16", "metrics.fifo=64", "trainer.batch_size=4"]


@dataclass(frozen=True)
class Outcome:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def twinax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`twinax(*words)` in this process, in an empty directory."""
    from twinax.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        capsys.readouterr()
        code = main(list(words))
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture
def tiny() -> list[str]:
    """Overrides for a problem that compiles and trains in a moment."""
    return list(TINY)


@pytest.fixture
def root() -> Path:
    """Where the project lies."""
    return ROOT


@pytest.fixture
def python(tmp_path: Path) -> Command:
    """`python(*words)` as a person types it, in a new process and an empty directory."""

    def run(*words: str, **changed: str | None) -> Outcome:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **changed}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={name: value for name, value in environment.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished tiny run; tests that change it must copy it first."""
    from twinax.cli import main

    path = tmp_path_factory.mktemp("runs") / "tiny"
    assert main(["train", "--quiet", *TINY, "trainer.steps=6", f"run.dir={path}"]) == 0
    return path
