"""Write report.html with curves, metrics and pictures of one run, or comparison.html of several side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from twinax import console

HELP = "make report.html of one run, or comparison.html of several"
_PLACES = (
    "where the report goes (default: report.html in the run; of several runs comparison.html in the directory that "
    "holds them all, or in the current one)"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="FILE", help=_PLACES)


def run(arguments: Namespace) -> int:
    from twinax import runs

    directories = [Path(name) for name in arguments.runs]
    path = runs.write_report(directories, Path(arguments.out) if arguments.out else None)
    console.facts({"written": path})
    return 0
