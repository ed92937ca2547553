"""Train the robot to stand, to walk and to walk with style; print what docs/biped.md tells of it and draw pictures.

    python benchmarks/plot_biped.py                   # half an hour on two cores
    python benchmarks/plot_biped.py --only walk       # one of stand, walk, style

Finished runs in runs/biped-learning are not trained again. Both runs of `style` learn with a discriminator that
watches; in one of them what it says is worth nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

from twinax.cli import main as twinax
from twinax.runs.curves import read_runs

ROOT = Path(__file__).resolve().parent.parent
AT_ONE_SPEED = ["task.command_ahead=[0.2,0.2]", "task.command_zero=0", "task.time_limit=500"]
"""Ten seconds at a commanded 0.2 m/s."""
STYLES = {"with style": "amp.style=1.0", "without": "amp.style=0"}
PANELS = {
    "episode_return": "return of the task",
    "episode_reward_velocity": "reward for the commanded velocity",
    "episode_reward_feet_phase": "reward for the rhythm of the feet",
    "episode_velocity_ahead": "velocity ahead, m/s",
    "gait_distance": "distance from the reference",
}


def trained(place: Path, *words: str):
    """The record of a run, which is trained if it is not there."""
    if not (place / "summary.json").exists() and (code := twinax(["train", *words, f"run.dir={place}"])):
        raise SystemExit(code)
    [record] = read_runs([place])
    return record


def evaluated(place: Path, *words: str) -> dict[str, float]:
    """What `twinax eval` says of a run."""
    if code := twinax(["eval", str(place), "--seed", "1", *words]):
        raise SystemExit(code)
    return json.loads((place / "eval.json").read_text())["metrics"]


def lines(axes, records: dict, metrics: list[str]) -> None:
    """One panel for each metric, one line for each record; the numbers are printed."""
    for name, record in records.items():
        for axis, metric in zip(axes, metrics, strict=True):
            curve = record.series(metric)
            axis.plot(curve.steps, curve.mean, marker="o", markersize=3, label=name)
            axis.set(xlabel="iteration", title=PANELS[metric])
            axis.spines[["top", "right"]].set_visible(False)
            print(f"{name:12s} {metric:24s} " + " ".join(f"{value:.3f}" for value in curve.mean))
        print(f"{name:12s} {record.summary['seconds']:.0f} s")
    for axis in axes:  # when all lines are there: a limit set before would cut off the later ones
        axis.set_ylim(bottom=min(0, *(line.get_ydata().min() for line in axis.lines)))


def stand(runs: Path, pictures: Path) -> None:
    """Three seeds under pushes, beside a robot that holds its home pose."""
    from twinax.envs.biped import make_biped
    from twinax.noise import numpy_draws

    world, worlds = make_biped("stand"), 256
    state = world.reset(numpy_draws(world.reset_draws(worlds), 0, 0))
    home, up = np.zeros((worlds, world.actions.size), np.float32), np.ones(worlds, bool)
    for step in range(500):
        moved = world.step(state, home, numpy_draws(world.step_draws(worlds), 0, step + 1))
        state, up = moved.state, up & ~moved.terminated
    print(f"home pose    up after 500 steps: {up.mean():.0%} of {worlds} robots")
    for seed in range(3):
        place = runs / f"stand-{seed}"
        record = trained(place, "experiment=biped", "task=stand", f"seed={seed}", "ppo.film=false")
        found = evaluated(place, "task.time_limit=500", "ppo.episodes=256")
        survived = found["episode_survived"]
        print(f"stand seed {seed} {record.summary['seconds']:.0f} s, up after 500 steps: {survived:.1%} of 256 robots")


def walk(runs: Path, pictures: Path) -> None:
    """The documented walk: its curve, its judgement at one speed, its strip and its gait."""
    place = runs / "walk"
    record = trained(place, "experiment=biped", "task=walk", "trainer.steps=400", "trainer.evaluate_every=40")
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    lines(axes, {"walk": record}, ["episode_return", "episode_reward_velocity", "episode_reward_feet_phase"])
    figure.savefig(pictures / "biped_learning.png", dpi=130)
    found = evaluated(place, "--film", *AT_ONE_SPEED)
    length, velocity = found["episode_length"], found["episode_velocity_ahead"]
    print(f"walk at 0.2 m/s: {length:.1f} of 500 steps, {velocity:.3f} m/s ahead in the mean")
    for kind, picture in {"frames": "biped_walk.png", "tracks": "biped_gait.png"}.items():
        shutil.copy(place / "plots" / f"eval-episode-{kind}.png", pictures / picture)


def style(runs: Path, pictures: Path) -> None:
    """The walk with the reward of a discriminator, and without."""
    words = ["experiment=biped", "task=walk", "amp=scripted", "ppo.film=false", "trainer.steps=250"]
    words.append("trainer.evaluate_every=50")
    records = {name: trained(runs / name.replace(" ", "-"), *words, setting) for name, setting in STYLES.items()}
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    lines(axes, records, ["episode_return", "episode_velocity_ahead", "gait_distance"])
    axes[2].legend(frameon=False, loc="lower left")
    figure.savefig(pictures / "biped_style.png", dpi=130)


def main() -> None:
    parts = {"stand": stand, "walk": walk, "style": style}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(parts))
    parser.add_argument("--runs", default=str(ROOT / "runs" / "biped-learning"))
    parser.add_argument("--out", default=str(ROOT / "docs" / "images"), help="where pictures go")
    arguments = parser.parse_args()
    for name, part in parts.items():
        if arguments.only in (None, name):
            part(Path(arguments.runs), Path(arguments.out))


if __name__ == "__main__":
    main()
