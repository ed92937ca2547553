"""Train the treasure hunt's default preset with three seeds in jax and torch mode, and draw both learning curves.

    python benchmarks/plot_treasurehunt.py            # about twenty minutes, nearly all of it PyTorch's
    python benchmarks/plot_treasurehunt.py --modes jax

Finished runs in runs/treasurehunt-learning are not trained again. The two modes receive the same draws, but in single
precision they part after some epochs: the question is whether one curve lies within the other's confidence band.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

from twinax.cli import main as twinax
from twinax.runs.curves import Series, read_runs

ROOT = Path(__file__).resolve().parent.parent
SEEDS = (0, 1, 2)
LAST = 50
"""Epochs at the end over which scores are compared."""


def train(mode: str, runs: Path) -> list[Path]:
    """One run for each seed."""
    places = [runs / f"{mode}-{seed}" for seed in SEEDS]
    for seed, place in zip(SEEDS, places, strict=True):
        if not (place / "metrics.csv").exists():
            settings = ["experiment=treasurehunt", f"trainer.mode={mode}", f"seed={seed}", f"run.dir={place}"]
            if code := twinax(["train", *settings, "trainer.log_every=1", "evaluation.film=false"]):
                raise SystemExit(code)
    return places


def smooth(values: np.ndarray, width: int = 10) -> np.ndarray:
    """Means of consecutive epochs."""
    count = len(values) // width * width
    return values[:count].reshape(-1, width, *values.shape[1:]).mean(1)


def read(places: list[Path]) -> tuple[Series, float, list[float]]:
    """The training scores with a column for each seed, what random agents score, and the seconds of each run."""
    records = read_runs(places)
    found = [record.series("score") for record in records]
    scores = np.concatenate([series.values for series in found if series is not None], 1)
    chance = np.mean([record.summary["score_random"] for record in records])
    first = found[0]
    assert first is not None
    series = Series(smooth(first.steps), smooth(first.seconds), smooth(scores))
    return series, float(chance), [record.summary["seconds"] for record in records]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", default=["jax", "torch"])
    parser.add_argument("--runs", type=Path, default=Path("runs/treasurehunt-learning"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "treasurehunt_learning.png")
    arguments = parser.parse_args()
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    chance = 0.0
    for mode in arguments.modes:
        series, chance, seconds = read(train(mode, arguments.runs))
        (line,) = axes.plot(series.steps, series.mean, label=f"{mode}: {np.mean(seconds):.0f} s a run")
        axes.fill_between(series.steps, *series.interval, color=line.get_color(), alpha=0.2, linewidth=0)
        last = series.values[-LAST // 10 :].mean(0)
        print(f"{mode}: last {LAST} epochs {np.round(last, 1)}, random {chance:.1f}, seconds {np.round(seconds)}")
    axes.axhline(chance, color="black", linewidth=0.8, linestyle="--", label="random agents")
    axes.set(title="treasure hunt: score of five agents, three seeds, 95 % band", xlabel="epochs", ylabel="score")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    arguments.out.parent.mkdir(exist_ok=True)
    figure.savefig(arguments.out, dpi=110)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
