"""Write report.html with curves, metrics and pictures of one run, or of several side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from twinax.cli import _console

HELP = "make report.html of one run or several"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="FILE", help="where the report goes (default: report.html in the run)")


def run(found: Namespace) -> int:
    from twinax import runs

    directories = [Path(name) for name in found.runs]
    path = runs.write_report(directories, Path(found.out) if found.out else None)
    _console.facts({"written": path})
    return 0
