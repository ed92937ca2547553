"""Measure one mode for `twinax compare`: one JSON object on the last line."""

from __future__ import annotations

import json
import time
from argparse import Namespace

from twinax.cli import _settings

HELP = "measure one mode (used by compare)"


add_arguments = _settings.add_overrides


def run(arguments: Namespace) -> int:
    from twinax import conf, engines
    from twinax.platforms import device_label
    from twinax.runs import plain
    from twinax.runs.summary import threads
    from twinax.runs.versions import versions

    config = conf.compose(arguments.overrides)
    trainer, section = config.trainer, config.compare
    problem = conf.build_problem(config)
    unit = problem.present.unit
    begin = time.perf_counter()
    engine = engines.make_engine(problem, conf.train_options(config))
    engine.start(config.seed)
    engine.run(1)
    first = time.perf_counter() - begin
    if section.warm_up:
        engine.run(section.warm_up)
    seconds = []
    for _ in range(section.repeats):
        begin = time.perf_counter()
        engine.run(section.steps)  # returns NumPy arrays, so the device has finished
        seconds.append(time.perf_counter() - begin)
    measured = {
        "mode": trainer.mode,
        "steps": section.steps,
        "seconds": seconds,
        "steps_per_second": [section.steps * unit.per_step / value for value in seconds],
        "unit": unit.name,
        "per_step": unit.per_step,
        "first_step_seconds": first,
        "compile_seconds": engine.compile_seconds,
        "parameters": engine.num_parameters,
        "profile": engine.profile(),
        "threads": threads(trainer.mode),
        "device": device_label(trainer.mode, trainer.device),
        "versions": versions(),
    }
    print(json.dumps(plain.plain(measured)), flush=True)
    return 0
