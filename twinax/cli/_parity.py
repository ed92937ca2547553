"""Prove that engines agree: values, gradients of each part and optimizer steps, in float64, on the same draws."""

from __future__ import annotations

import json
from argparse import Namespace

from twinax import console
from twinax.cli import _progress, _settings

HELP = "check that engines agree; exit 1 and the likely cause if not"


add_arguments = _settings.add_overrides


def run(arguments: Namespace) -> int:
    from twinax import conf, parity

    config = conf.compose(arguments.overrides)
    problem = conf.build_problem(config)
    section = config.parity
    with _progress.line("parity") as say:
        report = parity.check(
            problem, section.modes, section.steps, config.seed, section.tolerance, progress=lambda *now: say(now)
        )
    path = _settings.choose_directory(config, "parity") / "parity.json"
    _settings.write_json(path, json.loads(report.to_json()))
    console.facts({"problem": _settings.sentence(config)})
    console.console().print(report.table())
    console.facts({"written": path})
    return 0 if report.ok else 1
