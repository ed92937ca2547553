"""Train the offline agents in the maze with three seeds, and draw how often each reaches the goal.

    python benchmarks/plot_offline.py                 # about half an hour on two cores
    python benchmarks/plot_offline.py --agents iql,bc

Finished runs in runs/offline-learning are not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

from twinax.cli import main as twinax
from twinax.runs.curves import read_runs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "baselines" / "offline"))
from main import SETTINGS  # noqa: E402 - a script, beside which there is no package

SEEDS = (0, 1, 2)
MORE = ["task.episodes=200", "trainer.evaluate_every=1000"]


def train(name: str, runs: Path) -> list[Path]:
    """One run for each seed."""
    places = [runs / f"{name}-{seed}" for seed in SEEDS]
    for seed, place in zip(SEEDS, places, strict=True):
        if not (place / "metrics.csv").exists():
            settings = ["experiment=offline", f"agent={name}", *SETTINGS[name], *MORE]
            if code := twinax(["train", *settings, f"seed={seed}", f"run.dir={place}"]):
                raise SystemExit(code)
    return places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default=",".join(SETTINGS))
    parser.add_argument("--runs", default=str(ROOT / "runs" / "offline-learning"))
    parser.add_argument("--out", default=str(ROOT / "docs" / "images" / "offline_learning.png"))
    arguments = parser.parse_args()
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    found = {}
    for name in arguments.agents.split(","):
        records = read_runs(train(name, Path(arguments.runs)))
        curves = [record.series("success") for record in records]
        steps = next(curve.steps for curve in curves if curve is not None)
        values = np.concatenate([curve.values for curve in curves if curve is not None], 1)
        mean, low, high = values.mean(1), values.min(1), values.max(1)
        (line,) = axis.plot(steps, mean, label=name)
        axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        seconds = [record.summary["seconds"] for record in records]
        found[name] = {"success": values[-1].tolist(), "seconds": seconds}
        last = ", ".join(f"{value:.2f}" for value in values[-1])
        print(f"{name:12s} success {last}   {min(seconds):.0f} to {max(seconds):.0f} s", flush=True)
    axis.set(xlabel="update", ylabel="episodes that reach the goal", ylim=(0, 1))
    axis.axvline(2000, color="0.6", linewidth=0.8, linestyle=":")
    note = "finetuning begins\n(infom: at 12,000)"
    axis.annotate(note, (2000, 0.92), xytext=(4, 0), textcoords="offset points", color="0.4", fontsize=8)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    Path(arguments.out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=130)
    cache = ROOT / ".cache" / "benchmarks"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "offline_learning.json").write_text(json.dumps(found, indent=1))
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
