"""The parser, the dispatch to a command, and errors as one sentence.

Nothing here or at the top of a command's module may import JAX, PyTorch or Hydra: help must come at once.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from twinax import __version__, commands
from twinax.cli import (
    _cache,
    _compare,
    _demo,
    _doctor,
    _eval,
    _export,
    _launch,
    _list,
    _measure,
    _parity,
    _play,
    _port,
    _report,
    _resume,
    _sweep,
    _train,
)
from twinax.cli._errors import STOPPED, describe
from twinax.errors import TwinaxError, UnknownName

COMMANDS: dict[str, Any] = {
    "train": _train,
    "resume": _resume,
    "eval": _eval,
    "export": _export,
    "play": _play,
    "parity": _parity,
    "port": _port,
    "compare": _compare,
    "report": _report,
    "launch": _launch,
    "sweep": _sweep,
    "list": _list,
    "doctor": _doctor,
    "demo": _demo,
    **commands.COMMANDS,
}
HIDDEN: dict[str, Any] = {"_measure": _measure}

EXAMPLES = """\
examples:
  twinax train env=grid trainer.mode=jax trainer.steps=1000
  twinax resume runs/DIR trainer.steps=2000 trainer.mode=torch
  twinax parity env=grid objective=db parity.steps=100
  twinax compare env.dim=2 env.side=8 compare.modes=[torch,jax]

Settings are written key=value; `twinax list` shows the choices and `twinax list keys` every key.
Exit codes: 0 done, 1 failed (or engines differ), 2 bad input, 130 interrupted.
TWINAX_DEBUG=1 shows tracebacks, TWINAX_CACHE=off keeps no compiled programs on disk."""


class Parser(ArgumentParser):
    """An argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise TwinaxError(f"{message}; see `{self.prog} --help`")


def parser(others: Mapping[str, Any] | None = None) -> ArgumentParser:
    """The whole command line, with `others` of installed packages."""
    top = Parser(
        prog="twinax",
        description="One definition of a learning problem, on PyTorch and on JAX, with proof that they agree.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"twinax {__version__}")
    parsers = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, command in {**COMMANDS, **HIDDEN, **(others or {})}.items():
        shown = {"help": command.HELP} if name in COMMANDS else {}
        one = parsers.add_parser(
            name, description=command.__doc__, formatter_class=RawDescriptionHelpFormatter, **shown
        )
        command.add_arguments(one)
        one.set_defaults(called=command)
    return top


def parse(argv: Sequence[str]) -> Namespace:
    """The command and its arguments; settings may stand before, between and after options."""
    others = {}
    if argv and not argv[0].startswith("-") and argv[0] not in {**COMMANDS, **HIDDEN}:
        # Looked for only now: to ask what is installed takes longer than help may.
        if argv[0] not in (installed := commands.COMMANDS.installed):
            raise UnknownName("command", argv[0], [*COMMANDS, *installed])
        others[argv[0]] = commands.find_command(argv[0])
    arguments, rest = parser(others).parse_known_args(argv)
    for word in rest:
        if word.startswith("-") or not hasattr(arguments, "overrides"):
            raise TwinaxError(f"unexpected argument '{word}'; see `twinax {arguments.command or ''} --help`")
        arguments.overrides.append(word)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, with one sentence for what a person can mend."""
    words = sys.argv[1:] if argv is None else list(argv)
    debug = os.environ.get("TWINAX_DEBUG", "") not in ("", "0")
    try:
        code = run(words)
        sys.stdout.flush()  # here, where a reader that has gone is still an error that we know
        return code
    except (Exception, KeyboardInterrupt) as error:  # a stranger's world or network may raise anything
        sentence, code = describe(error)
        if sentence is None or debug:
            raise
        sentence = shortened(sentence)
        print(f"error: {sentence}" if code not in STOPPED else sentence, file=sys.stderr)
        return code


def shortened(sentence: str, most: int = 1200) -> str:
    """A sentence that quotes somebody's very long value, without most of that."""
    half = most // 2
    return sentence if len(sentence) <= most else f"{sentence[:half]} ... {sentence[-half:]}"


def run(words: Sequence[str]) -> int:
    """Run a command; errors are raised."""
    try:
        arguments = parse(words)
    except SystemExit as done:  # argparse after --help or --version
        return int(done.code or 0)
    if arguments.command is None:
        parser().print_help()
        return 0
    _cache.enable()
    # Code of one's own is named as package.module:Name; last, so that it hides nothing that is installed.
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    return arguments.called.run(arguments)
