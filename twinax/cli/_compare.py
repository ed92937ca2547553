"""Measure engines against each other, each in a process of its own, after proving that they agree."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinax import console
from twinax.cli import _child, _settings

if TYPE_CHECKING:
    from twinax.problem import Problem

HELP = "measure modes side by side; no ratio without parity"

PARITY_STEPS = 20
"""Training steps of the proof before a measurement, unless the problem can be followed for fewer."""


add_arguments = _settings.add_overrides


def run(arguments: Namespace) -> int:
    from twinax import conf

    config = conf.compose(arguments.overrides)
    problem = conf.build_problem(config)  # mistakes are told here, once, and not by every child
    directory = _settings.choose_directory(config, "compare")
    result = compare(config, problem, arguments.overrides, directory)
    print_result(result)
    console.facts({"written": _settings.write_json(directory / "compare.json", result)})
    return 0 if result["parity"] is not False else 1


def compare(config: Any, problem: Problem, overrides: list[str], directory: Path) -> dict[str, Any]:
    """Parity, then each mode's measurement, then ratios if they may be given."""
    section, modes = config.compare, config.compare.modes
    parity: bool | None = None
    if len(modes) > 1:
        _say(f"checking parity of {', '.join(modes)}")
        listed = f"[{','.join(modes)}]"
        steps = f"parity.steps={section.parity_steps or min(PARITY_STEPS, problem.prove.steps)}"
        parity = _child.succeeds("parity", *overrides, f"parity.modes={listed}", steps, f"run.dir={directory}")
    rows = []
    for mode in modes:
        _say(f"measuring {mode}: {section.repeats} x {section.steps} steps")
        measured = _child.result(f"mode {mode}", "_measure", *overrides, f"trainer.mode={mode}")
        rows.append({**measured, **spread(measured["steps_per_second"])})
    return {
        "problem": _settings.sentence(config),
        "dtype": config.trainer.dtype,
        "parity": parity,
        "modes": rows,
        **ratios(rows, parity),
    }


def spread(rates: list[float]) -> dict[str, float]:
    """Median and interquartile range of the timed chunks."""
    import statistics

    quarters = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else [rates[0]] * 3
    return {"median": statistics.median(rates), "lower": quarters[0], "upper": quarters[2]}


def ratios(rows: list[dict[str, Any]], parity: bool | None) -> dict[str, Any]:
    """Speeds relative to the first mode, or why there are none; and the hybrid mode's ceiling."""
    counts = {row["parameters"] for row in rows}
    reason = None
    if parity is False:
        reason = "no ratio: the engines differ, see the parity table above"
    elif len(counts) > 1:
        reason = f"no ratio: the modes have different numbers of parameters, {sorted(counts)}"
    elif len(rows) > 1:
        first = rows[0]["median"]
        relative = {row["mode"]: row["median"] / first for row in rows}
        return {"ratios": relative, "reference": rows[0]["mode"], "ceiling": ceiling(rows)}
    return {"ratios": None, "reason": reason}


def ceiling(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """What hybrid can gain over torch at most, and what its own phases predict and its total gave.

    Amdahl's law: sampling stays in PyTorch, so torch's step over torch's sampling bounds the gain.
    """
    profiles = {row["mode"]: row["profile"] for row in rows}
    if "torch" not in profiles or "hybrid" not in profiles:
        return None
    torch, hybrid = (sum(profiles[mode].values()) for mode in ("torch", "hybrid"))
    medians = {row["mode"]: row["median"] for row in rows}
    return {
        "at_most": torch / profiles["torch"]["sample"],
        "from_phases": torch / hybrid,
        "measured": medians["hybrid"] / medians["torch"],
    }


def print_result(result: dict[str, Any]) -> None:
    """The comparison as two tables."""
    rows, ratio = result["modes"], result["ratios"] or {}
    console.facts(
        {
            "problem": result["problem"],
            "dtype": result["dtype"],
            "parity": {True: "passed", False: "FAILED", None: "not checked (one mode)"}[result["parity"]],
            "versions": ", ".join(f"{name} {rows[0]['versions'].get(name)}" for name in ("python", "jax", "torch")),
        }
    )
    console.table(
        "speed",
        ("mode", f"{rows[0]['unit']}/s", "middle half", "x", "compile s", "first step s", "parameters", "threads"),
        [
            (
                row["mode"],
                row["median"],
                f"{row['lower']:.4g} - {row['upper']:.4g}",
                f"{ratio[row['mode']]:.2f}" if row["mode"] in ratio else "-",
                row["compile_seconds"],
                row["first_step_seconds"],
                row["parameters"],
                row["threads"],
            )
            for row in rows
        ],
    )
    phases = list(dict.fromkeys(name for row in rows for name in row["profile"]))
    console.table(
        "milliseconds per step by phase",
        ("mode", *phases, "sum", "measured"),
        [
            (
                row["mode"],
                *(1e3 * row["profile"][name] if name in row["profile"] else None for name in phases),
                1e3 * sum(row["profile"].values()),
                1e3 * row["per_step"] / row["median"],
            )
            for row in rows
        ],
    )
    if result.get("ceiling"):
        hybrid = result["ceiling"]
        print(
            f"hybrid: sampling stays in PyTorch, so at most {hybrid['at_most']:.2f} x torch; its phases give "
            f"{hybrid['from_phases']:.2f} x, measured {hybrid['measured']:.2f} x"
        )
    if result.get("reason"):
        print(result["reason"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
