"""Train every combination of settings, each a run of its own: on this machine, on a Ray cluster, on SLURM.

twinax sweep experiment=ppo env=cartpole,acrobot seed=0,1,2 run.dir=runs/sweep
twinax sweep run.dir=runs/sweep                                 # go on with what has not ended
twinax sweep run.dir=runs/sweep --status                        # what there is so far, also while it runs
twinax sweep --on ray --address auto --cpus 2 seed=0,1,2,3      # a Ray cluster; without --address one of this machine
twinax sweep --on slurm --minutes 60 --slurm partition=gpu --gpus 1 seed=0,1,2,3
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinax import console
from twinax.cli import _settings
from twinax.errors import TwinaxError, UnknownName

if TYPE_CHECKING:
    from twinax.runs.sweeps import Task

HELP = "train many settings and seeds: here, on Ray, on SLURM"

_SHOWN = 6
"""Most results that the table shows; the rest is in sweep.csv."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--on", default="local", metavar="PLACE", help="local (default), ray or slurm")
    parser.add_argument("--at-once", type=int, metavar="N", help="most tasks at one time (local: 1)")
    parser.add_argument("--cpus", type=int, default=1, metavar="N", help="processors of a task (ray, slurm; default 1)")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="accelerators of a task (ray, slurm)")
    parser.add_argument("--tries", type=int, default=3, metavar="N", help="begin a killed task so often (default 3)")
    parser.add_argument("--address", help="of a Ray cluster, or auto; without it one is started here")
    parser.add_argument("--minutes", type=int, metavar="N", help="longest time of a SLURM job")
    parser.add_argument(
        "--slurm", action="append", default=[], metavar="KEY=VALUE", help="another option of sbatch, such as partition"
    )
    parser.add_argument("--status", action="store_true", help="show what there is so far and start nothing")
    _settings.add_trust(parser)
    _settings.add_overrides(parser)


def run(arguments: Namespace) -> int:
    from twinax.cli._places import PLACES
    from twinax.runs import sweeps

    if arguments.on not in PLACES:
        raise UnknownName("place", arguments.on, PLACES)
    wanted = read_wanted(arguments)
    directory, overrides = split_directory(arguments.overrides)
    if arguments.status or not overrides:
        tasks = trusted(sweeps.read(must_be_given(directory)), arguments.trust or arguments.status)
    else:
        tasks = begin(directory, overrides)
    home = Path(tasks[0].sweep)
    if arguments.status:
        print_state(home, tasks)
        return 0
    left = [task for task in tasks if task.status() != "finished"]
    console.facts({"sweep": near(home), "tasks": f"{len(tasks)}, {len(left)} to do, on {arguments.on}"})
    errors = 0
    for number, (task, error) in enumerate(PLACES[arguments.on](left, wanted) if left else (), 1):
        errors += bool(error)
        print(f"{number} of {len(left)}: {task.name} {' '.join(task.overrides)}: {error or 'done'}", flush=True)
    print_state(home, tasks)
    if errors:
        print(f"{errors} of {len(left)} tasks failed; go on with: twinax sweep run.dir={near(home)}")
    return 1 if errors else 0


def trusted(tasks: list[Task], trust: bool) -> list[Task]:
    """The tasks of a sweep that was begun, unless it is somebody else's and names code of other packages."""
    import dataclasses

    from twinax import conf
    from twinax.runs import origin

    if trust:
        return [dataclasses.replace(task, trust=True) for task in tasks]
    named: dict[str, str] = {}
    for task in tasks:
        if any(":" in override for override in task.overrides):
            named |= origin.named_code(conf.as_dict(conf.compose(task.overrides)))
    origin.require_trust(Path(tasks[0].sweep) / "sweep.json", named)
    return tasks


def begin(directory: Path | None, overrides: Sequence[str]) -> list[Task]:
    """The tasks of new settings; all are tried first, so that a mistake in the last is told before the first begins."""
    from twinax import conf
    from twinax.runs import sweeps

    combinations = conf.split_commas(overrides)
    configs = [conf.compose(one) for one in combinations]
    for config in configs:
        options = conf.train_options(config)
        conf.build_problem(config).compile.check(options.mode, options.seeds, options.devices)
    home = directory or _settings.choose_directory(configs[0], "sweep")
    return sweeps.make(home.resolve(), combinations)


def split_directory(overrides: Sequence[str]) -> tuple[Path | None, list[str]]:
    """`run.dir`, which is the sweep's here, and the other settings."""
    named = [text.partition("=")[2].strip("'\"") for text in overrides if text.startswith("run.dir=")]
    rest = [text for text in overrides if not text.startswith("run.dir=")]
    return (Path(named[-1]).resolve() if named else None), rest


def must_be_given(directory: Path | None) -> Path:
    if directory is None:
        raise TwinaxError(
            "a sweep needs settings with several values, such as seed=0,1,2, or run.dir=DIR to go on with"
        )
    return directory


def read_wanted(arguments: Namespace) -> Any:
    """What each task may use."""
    from twinax.cli._places import Wanted

    for name, least in (("at_once", 1), ("cpus", 1), ("gpus", 0), ("tries", 1), ("minutes", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise TwinaxError(f"--{name.replace('_', '-')} is {value}; it must be at least {least}")
    options: dict[str, Any] = {"timeout_min": arguments.minutes} if arguments.minutes else {}
    for text in arguments.slurm:
        key, equals, value = text.partition("=")
        if not equals:
            raise TwinaxError(f"--slurm {text} is not KEY=VALUE, such as partition=gpu")
        options[f"slurm_{key.replace('-', '_')}"] = int(value) if value.isdigit() else value
    return Wanted(arguments.at_once, arguments.cpus, arguments.gpus, arguments.tries, arguments.address, options)


def print_state(home: Path, tasks: Sequence[Task]) -> None:
    """How many have ended, means over seeds, and where the rest is."""
    from collections import Counter

    from twinax.runs import sweeps

    counts = Counter(task.status() for task in tasks)
    groups = sweeps.group(tasks)
    keys = [name for name in sweeps.varied(tasks) if name != "seed"]
    names = list(dict.fromkeys(name for one in groups for name in one.results))[:_SHOWN]
    console.table(
        "means over seeds of the runs that ended, with half of the 95 % confidence interval",
        (*keys, "runs", "seeds", *(name.replace("_", " ") for name in names)),
        [(*one.setting, one.tasks, one.seeds, *(show(one.results.get(name)) for name in names)) for one in groups],
        numbers_from=len(keys),
    )
    runs = " ".join(str(near(task.run)) for task in tasks if task.summary())
    console.facts(
        {
            "status": ", ".join(f"{number} {status}" for status, number in counts.items()),
            "written": near(sweeps.write_table(home, tasks)),
            **({"next": f"twinax report {runs}"} if runs else {}),
        }
    )


def near(path: Path) -> Path:
    """A path as one writes it here: tasks know theirs from the root, since other machines run them."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def show(result: tuple[float, float] | None) -> str:
    """A mean and what it may be wrong by."""
    if result is None:
        return "-"
    mean, half = result
    return console.show(mean) if half != half else f"{console.show(mean)} ± {half:.2g}"
