"""A sweep: one training for each combination of settings, each a run of its own in the sweep's directory.

sweep.json          the settings of every task, written before the first begins
origin.json         shows this user that sweep.json is theirs, only where it may name code of other packages
sweep.csv           a row for each task: settings, status, metrics
000/, 001/, ...     the runs
logs/000.log        what the command of a task printed
slurm/              scripts and logs of SLURM jobs, where there are any
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError
from twinax.interval import half_width
from twinax.runs import checkpoint, files, metrics_csv, origin, plain
from twinax.runs.directory import RunDirectory
from twinax.runs.summary import NO_RESULTS


@dataclass(frozen=True)
class Task:
    """One training of a sweep."""

    sweep: str
    """The sweep's directory."""
    name: str
    """Its number, which names its run."""
    overrides: tuple[str, ...]
    """Its settings, `run.dir` left out."""
    trust: bool = field(default=False, compare=False)
    """Whether code of other packages that its run names may run: the sweep began that run itself, or was told so."""

    @property
    def run(self) -> Path:
        return Path(self.sweep) / self.name

    @property
    def log(self) -> Path:
        return Path(self.sweep) / "logs" / f"{self.name}.log"

    @property
    def setting(self) -> dict[str, str]:
        """Its settings by key."""
        return {key: value for key, _, value in (text.partition("=") for text in self.overrides)}

    def summary(self) -> dict[str, Any]:
        """The run's summary; empty before there is one."""
        return RunDirectory(self.run).read_summary() if self.run.is_dir() else {}

    def status(self) -> str:
        """waiting, begun, or what the run itself says: running, interrupted, diverged, failed, finished."""
        return self.summary().get("status") or ("begun" if checkpoint.steps(self.run) else "waiting")

    def command(self) -> list[str]:
        """The words after `twinax` that begin it or go on with it; none when it has ended."""
        if self.status() == "finished":
            return []
        if checkpoint.steps(self.run):
            return ["resume", str(self.run), *(["--trust"] if self.trust else [])]
        return ["train", *self.overrides, _quoted("run.dir", str(self.run))]


def _quoted(key: str, value: str) -> str:
    """An override whose value may have any character."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{escaped}'"


def make(directory: Path, combinations: Sequence[Sequence[str]]) -> list[Task]:
    """The tasks of a new sweep, or of the same one begun before."""
    tasks = [Task(str(directory), f"{number:03d}", tuple(overrides)) for number, overrides in enumerate(combinations)]
    path = directory / "sweep.json"
    if path.exists():
        if read(directory) != tasks:
            raise TwinaxError(
                f"{directory} holds a sweep with other settings; go on with it by `twinax sweep run.dir={directory}` "
                "or choose another run.dir"
            )
        return tasks
    RunDirectory(directory).refuse_if_used()
    stored = {"format": 1, "tasks": [{"name": task.name, "overrides": list(task.overrides)} for task in tasks]}
    with files.writing("the sweep", path):
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        files.replace_file(path, plain.dumps(stored, indent=2) + "\n")
    origin.vouch(path, any(":" in override for task in tasks for override in task.overrides))
    return [replace(task, trust=True) for task in tasks]


def read(directory: Path) -> list[Task]:
    """The tasks of a sweep that was begun, which may be somebody else's."""
    path = directory / "sweep.json"
    if not path.exists():
        raise TwinaxError(f"{directory} holds no sweep to go on with; give settings with several values, as seed=0,1,2")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        tasks = [Task(str(directory), one["name"], tuple(one["overrides"])) for one in stored["tasks"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TwinaxError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not tasks:
        raise TwinaxError(f"{path} has no tasks; begin another sweep in another run.dir")
    for number, task in enumerate(tasks):
        # A name is a place below the sweep and nowhere else, and settings are words of a command.
        if task.name != f"{number:03d}" or not all(isinstance(x, str) and "=" in x[1:] for x in task.overrides):
            raise TwinaxError(f"{path} cannot be read: task {number} is not as a sweep writes it")
        if any(override.startswith("-") for override in task.overrides):
            raise TwinaxError(f"{path} cannot be read: task {number} has an option among its settings")
    return tasks


def varied(tasks: Sequence[Task]) -> list[str]:
    """The keys whose value differs between tasks, in the order of their appearance."""
    names = dict.fromkeys(key for task in tasks for key in task.setting)
    return [name for name in names if len({task.setting.get(name) for task in tasks}) > 1]


def write_table(directory: Path, tasks: Sequence[Task]) -> Path:
    """Write sweep.csv: a row for each task, with means over the seeds that it trained at once."""
    rows = []
    for task in tasks:
        chosen = {name: task.setting.get(name, "") for name in varied(tasks)}
        means = {name: float(np.mean(list(seeds.values()))) for name, seeds in _results(task.summary()).items()}
        rows.append({"task": task.name, **chosen, "status": task.status(), **means})
    path = directory / "sweep.csv"
    with files.writing("the table", path):
        files.replace_file(path, metrics_csv.table(rows))
    return path


@dataclass(frozen=True)
class Group:
    """What tasks that differ only in their seed gave together."""

    setting: tuple[str, ...]
    """The values of the varied keys, the seed left out."""
    tasks: int
    """How many have ended."""
    seeds: int
    """How many seeds those trained."""
    results: dict[str, tuple[float, float]]
    """Mean over seeds, and half the width of its 95 % confidence interval (not a number with one seed)."""


def group(tasks: Sequence[Task]) -> list[Group]:
    """Means over seeds, a group for each other setting, in the order of the tasks."""
    keys = [name for name in varied(tasks) if name != "seed"]
    members: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for task in tasks:
        summaries = members.setdefault(tuple(task.setting.get(name, "") for name in keys), [])
        if task.status() == "finished":
            summaries.append(task.summary())
    return [
        Group(
            setting,
            len(summaries),
            len({seed for one in summaries for seed in _seeds(one)}),
            _means(map(_results, summaries)),
        )
        for setting, summaries in members.items()
    ]


def _seeds(summary: Mapping[str, Any]) -> range:
    """The seeds that a task trained at once."""
    first = summary.get("seed", 0)
    return range(first, first + summary.get("seeds", 1))


def _results(summary: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Each result by seed; one number of a whole task, such as its speed, stands at the task's first seed."""
    seeds = _seeds(summary)
    results: dict[str, dict[int, float]] = {}
    for name, value in summary.items():
        if name == "loss":  # of several seeds their mean
            value = summary.get("loss_per_seed", value)
        several: list[Any] = value if isinstance(value, list) and len(value) == len(seeds) else [value]
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in several)
        if numbers and name not in {*NO_RESULTS, *(summary.get("counts") or ())}:
            results[name] = dict(zip(seeds, map(float, several), strict=False))
    return results


def _means(of_tasks: Iterable[Mapping[str, Mapping[int, float]]]) -> dict[str, tuple[float, float]]:
    of_tasks = list(of_tasks)
    names = [name for name in (of_tasks[0] if of_tasks else ()) if all(name in one for one in of_tasks)]
    results = {}
    for name in names:
        # By seed, so that one that two tasks share counts once.
        values = np.array(list({seed: value for one in of_tasks for seed, value in one[name].items()}.values()))
        results[name] = (float(values.mean()), float(half_width(values)))
    return results
