"""Train the robot to walk with and without style, and draw its return, speed and distance from the reference gait.

    python benchmarks/plot_biped.py                   # about ten minutes on two cores

Finished runs in runs/biped-learning are not trained again. Both learn with a discriminator that watches; in one of them
what it says is worth nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from twinax.cli import main as twinax
from twinax.runs.curves import read_runs

ROOT = Path(__file__).resolve().parent.parent
COMMON = ["experiment=biped", "task=walk", "amp=scripted", "ppo.film=false", "trainer.steps=250"]
RUNS = {"with style": "amp.style=1.0", "without": "amp.style=0"}
PANELS = {
    "episode_return": "return of the task",
    "episode_velocity_ahead": "velocity ahead, m/s",
    "gait_distance": "distance from the reference",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=str(ROOT / "runs" / "biped-learning"))
    parser.add_argument("--out", default=str(ROOT / "docs" / "images" / "biped_style.png"))
    arguments = parser.parse_args()
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    for name, setting in RUNS.items():
        place = Path(arguments.runs) / name.replace(" ", "-")
        if not (place / "metrics.csv").exists():
            words = [*COMMON, setting, "trainer.evaluate_every=50", f"run.dir={place}"]
            if code := twinax(["train", *words]):
                raise SystemExit(code)
        [record] = read_runs([place])
        for axis, (metric, label) in zip(axes, PANELS.items(), strict=True):
            curve = record.series(metric)
            assert curve is not None
            axis.plot(curve.steps, curve.mean, marker="o", markersize=3, label=name)
            axis.set(xlabel="iteration", title=label)
            print(f"{name:12s} {metric:24s} " + " ".join(f"{value:.3f}" for value in curve.mean))
        print(f"{name:12s} {record.summary['seconds']:.0f} s")
    axes[0].set_ylim(bottom=0)
    axes[2].set_ylim(bottom=0)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].legend(frameon=False)
    Path(arguments.out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=130)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
