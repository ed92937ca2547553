"""summary.json: what a run did, in one flat object."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

from twinax.errors import TwinaxError
from twinax.platforms import device_label
from twinax.runs.metrics import Row
from twinax.runs.pictures import PREFIX
from twinax.runs.plain import plain
from twinax.runs.versions import versions
from twinax.train_options import TrainOptions

NO_RESULTS = ("steps", "seconds", "seed", "seeds", "threads", "parameters", "loss_per_seed", "unit", "counts", "titles")
"""Numbers of a summary that say nothing of what was learned."""


def summarize(
    plan: TrainOptions,
    status: str,
    done: int,
    row: Row | None,
    metrics: Mapping[str, Any],
    timing: Mapping[str, float],
    facts: Mapping[str, Any],
    command: str,
) -> dict[str, Any]:
    """The summary of a run after `done` steps.

    `row` is the last logged one, `metrics` the last evaluation's, `timing` has seconds and speeds, `facts` are the
    engine's and the problem's.
    """
    scores = {name: plain(value) for name, value in metrics.items() if not name.startswith(PREFIX)}
    last = {name: row[name] for name in ("loss", "loss_mean", "loss_per_seed") if name in row} if row else {}
    return {
        **scores,
        **last,
        "status": status,
        "steps": done,
        **timing,
        "mode": plan.mode,
        **facts,
        "seed": plan.seed,
        "seeds": plan.seeds,
        "dtype": plan.dtype,
        "device": device_label(plan.mode, plan.device),
        "threads": threads(plan.mode),
        "versions": versions(),
        "command": command,
        "plan": plan.as_dict(),
    }


_KINDS: dict[str, tuple[type | UnionType, str]] = {
    "status": (str, "a word"),
    "mode": (str, "a name"),
    "dtype": (str, "a name"),
    "device": (str, "a name"),
    "command": (str, "a text"),
    "problem": (dict, "an object"),
    "versions": (dict, "an object"),
    "plan": (dict, "an object"),
    "tables": (dict, "an object"),
    "unit": (dict, "an object"),
    "counts": (dict, "an object"),
    "titles": (dict, "an object"),
    "steps": (int, "a whole number"),
    "seed": (int, "a whole number"),
    "seeds": (int, "a whole number"),
    "threads": (int, "a whole number"),
    "parameters": (int, "a whole number"),
    "seconds": (int | float, "a number"),
    "steps_per_second": (int | float, "a number"),
    "compile_seconds": (int | float, "a number"),
}
"""What each of a summary's own entries is."""


def checked(summary: dict[str, Any], path: Path) -> dict[str, Any]:
    """A summary that was read from a file, if each of its entries is what it must be; otherwise a `TwinaxError`."""
    for name, (kind, wanted) in _KINDS.items():
        value = summary.get(name)
        fits = value is None or isinstance(value, kind) and not isinstance(value, bool)
        if not fits or isinstance(value, int | float) and value < 0:
            raise TwinaxError(
                f"{path} has the {name} {str(value)[:80]!r}, which is not {wanted}; delete it to go on without it"
            )
    return summary


def best(rows: Iterable[Row], names: Iterable[str]) -> dict[str, Any]:
    """The largest value of some metrics, and the first step that had it.

    >>> best([{"step": 1, "score": 2.0}, {"step": 2}, {"step": 3, "score": 5.0}], ["score"])
    {'best_score': 5.0, 'best_score_step': 3}
    """
    entries: dict[str, Any] = {}
    for name in names:
        scored = [row for row in rows if isinstance(row.get(name), int | float)]
        if scored:
            row = max(scored, key=lambda row: row[name])  # the first of equal ones
            entries |= {f"best_{name}": row[name], f"best_{name}_step": row["step"]}
    return entries


def threads(mode: str) -> int:
    """Threads that the engine may use: PyTorch's own number, or the processors this process may run on."""
    torch = sys.modules.get("torch")
    if mode != "jax" and torch is not None:
        return int(torch.get_num_threads())
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def command_line(plan: TrainOptions, configured: bool, call: str = "train(problem") -> str:
    """The command that started this process, or the Python call when there was no configuration."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else ""
    if not configured or program in ("", "-c", "-m"):
        return (
            f"twinax.{call}, mode={plan.mode!r}, steps={plan.steps}, seed={plan.seed}, "
            f"seeds={plan.seeds}, dtype={plan.dtype!r}, noise={plan.noise!r}, device={plan.device!r})"
        )
    if program == "__main__.py":
        words = ["twinax"] if "twinax" in Path(sys.argv[0]).parts else ["python", sys.argv[0]]
    elif program.endswith(".py"):
        words = ["python", program]
    else:
        words = [program]
    return shlex.join(words + sys.argv[1:])
