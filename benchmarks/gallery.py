"""Train each world of the gallery by its command, and draw what it found.

    python benchmarks/gallery.py --data DIR        # DIR has tfbind8.npz and qm9_small.npz; without it they are left out
    python benchmarks/gallery.py --only ising dag  # some of them
    python benchmarks/figures.py                   # puts commands, pictures and numbers into docs/gallery.md

A world runs in this process in jax mode, as its command would. A picture shows the best objects that the training
found as the world draws them, or else target and learned distribution as a map, or else learned against true
log-probabilities.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from figures import gallery_row
from PIL import Image

import twinax as tx
from twinax import conf, ops
from twinax.envs._canvas import captioned
from twinax.gflownet._metrics import exact_metrics

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"
IMAGES = ROOT / "docs" / "images"
SHOWN = 6
"""Best objects in a picture."""
WIDE, GAP = 760, 12
"""Pixels of a picture, at most, and between two objects in it."""
DOTS = 5000
"""Objects in a picture of log-probabilities, at most."""
TILE = 16_384
"""States that a policy looks at in one piece."""
FADES = "optimizer.decay_steps={0} optimizer.decay_to=0.01 trainer.steps={0}"

WORLDS = {
    "hypergrid": "env=hypergrid env.dim=2 env.side=20 proxy=deceptive trainer.batch_size=64 exploration.epsilon=0.1 "
    "optimizer.learning_rate=3e-3 " + FADES.format(5000),
    "sequences": "env=sequences env.length=4 env.alphabet=abcd env.order=variable proxy.beta=2 policy.network=mlp "
    "optimizer.learning_rate=3e-3 exploration.epsilon=0.1 " + FADES.format(2000),
    "bitseq": "env=bitseq env.bits=16 env.word=4 env.order=any proxy.beta=1 proxy.scale=1 proxy.count=6 "
    "policy.network=mlp policy.hidden=[128,128] optimizer.name=adam optimizer.weight_decay=0 "
    "optimizer.learning_rate=3e-3 optimizer.log_z_learning_rate=0.1 exploration.epsilon=0.05 trainer.batch_size=128 "
    "trainer.evaluate_every=0 " + FADES.format(4000),
    "tfbind8": "env=tfbind8 data=tfbind8.npz exploration.epsilon_steps=5000 trainer.batch_size=64 "
    "optimizer.learning_rate=2e-3 " + FADES.format(8000),
    "qm9": "env=qm9 data=qm9_small.npz exploration.epsilon_steps=5000 trainer.batch_size=64 "
    "optimizer.learning_rate=2e-3 " + FADES.format(8000),
    "dag": "env=dag env.num_nodes=4 env.num_samples=20 targets.every=0 optimizer.learning_rate=4e-3 "
    "exploration.epsilon=0.5 exploration.epsilon_steps=2000 objective.residual_loss=squared " + FADES.format(4000),
    "ising": "env=ising env.side=3 env.sigma=0.1 policy.hidden=[128,128] optimizer.learning_rate=2e-3 "
    "exploration.epsilon=0.1 " + FADES.format(4000),
    "couplings": "env=ising env.side=3 env.sigma=0.2 proxy=learned_couplings policy.hidden=[128,128] "
    "trainer.batch_size=128 optimizer.learning_rate=3e-3 optimizer.energy_learning_rate=5e-3 " + FADES.format(1500),
    "set": "env=set env.number=10 env.size=5 trainer.batch_size=64 " + FADES.format(1500),
    "bag": "env=bag env.letters=4 env.draws=9 trainer.batch_size=64 exploration.epsilon=0.3 "
    "optimizer.learning_rate=4e-3 " + FADES.format(4000),
    "perfect_tree": "env=perfect_tree env.depth=8 trainer.batch_size=64 optimizer.learning_rate=3e-3 "
    + FADES.format(2000),
    "rings": "env=rings env.nodes=4 env.directed=false proxy.other=1 trainer.batch_size=64 exploration.epsilon=0.1 "
    + FADES.format(3000),
    "phylo": "env=phylo env.taxa=6 env.sites=60 policy.network=mlp policy.hidden=[256,256] targets.rate=1 "
    "objective.residual_loss=squared exploration.epsilon=0.1 exploration.epsilon_steps=0 trainer.batch_size=64 "
    "optimizer.learning_rate=3e-3 " + FADES.format(6000),
    "molecules": "env=molecules env.length=2 proxy.beta=4 proxy.synthesis=1 exploration.epsilon=0.1 "
    "optimizer.learning_rate=3e-3 " + FADES.format(2000),
}
"""What `twinax train` is told, by world."""


def missing(name: str, data: Path | None) -> str | None:
    """Why a world cannot be shown here; None if it can."""
    files = [word.split("=", 1)[1] for word in WORLDS[name].split() if word.startswith("data=")]
    if lacking := [file for file in files if data is None or not (data / file).is_file()]:
        return f"{lacking[0]} is not in --data"
    return "RDKit is missing" if name == "molecules" and importlib.util.find_spec("rdkit") is None else None


def trained(name: str, data: Path | None) -> dict[str, Any]:
    """The row of a world, whose picture is written beside."""
    overrides = shlex.split(WORLDS[name])
    overrides = [f"data={data / word[5:]}" if data and word.startswith("data=") else word for word in overrides]
    config = conf.compose(overrides)
    problem: Any = conf.build_problem(config)
    begin = time.perf_counter()
    run = tx.train(problem, conf.train_options(config), progress=False)
    whole = time.perf_counter() - begin
    found = {key: value for key, value in run.summary.items() if isinstance(value, int | float)}
    what = picture(name, problem, run)
    keys = ("total_variation", "log_z_error", "test_pearson", "test_spearman", "modes_found")
    return {
        "name": name,
        "command": f"twinax train {WORLDS[name]}",
        "parameters": found["parameters"],
        "steps": found["steps"],
        "batch": problem.batch_size,
        "training_seconds": found["steps"] / found["steps_per_second"],
        "compile_seconds": found["compile_seconds"],
        "whole_seconds": whole,
        "objects": objects_of(problem),
        "modes": problem.env.num_modes,
        "shows": what,
        **{key: found[key] for key in keys if key in found},
    }


def objects_of(problem: Any) -> int | None:
    """Finished objects of a world that was enumerated."""
    return None if problem.graph is None else int(problem.graph.done.sum())


def picture(name: str, problem: Any, run: Any) -> str:
    """Write the picture of a run; says what it shows."""
    target = IMAGES / f"gallery_{name}.png"
    drawn = problem.present.drawings(run.state)
    if problem.learns_energy:
        found = problem.judge.pictures["couplings"]
        world = problem.world(run.networks.energy)
        measured = world.measures(world.observed(), np.ones(len(world.observed().done)))
        arrays = {name: measured[f"picture/couplings/{name}"] for name in found.labels}
        side_by_side([arrays["true"], arrays["learned"]], target, ("true couplings J", "learned"), "")
        return "true and learned couplings"
    if "best" in drawn:
        entry = drawn["best"]
        shown = list(entry.arrays)[:SHOWN]
        montage([entry.arrays[key] for key in shown], [entry.picture.labels[key] for key in shown], target)
        return "the best objects that were found"
    env, graph, policy = problem.env, problem.graph, run.networks.policy

    def probabilities(states: Any) -> Any:
        return ops.softmax(policy(env.observe(states)).forward_logits, env.forward_mask(states))

    learned = exact_metrics(graph, ops.map_rows(probabilities, graph.states, TILE))[1]
    maps = [env.picture(graph.states, each) for each in (graph.target_distribution, learned)]
    if maps[0] is not None:
        side_by_side(maps, target)
        return "the target, and what was learned"
    agreement(graph, learned, target)
    return "learned and true log-probability of each object"


def montage(images: list[np.ndarray], captions: list[str], target: Path) -> None:
    """Pictures of equal height in rows of as many, each with a line of words below."""
    height = min(max(image.shape[0] for image in images), 200)
    images = [
        np.asarray(Image.fromarray(one).resize((one.shape[1] * height // one.shape[0], height))) for one in images
    ]
    frames = [captioned(one[None], [words])[0] for one, words in zip(images, captions, strict=True)]
    fit = max(1, WIDE // (max(frame.shape[1] for frame in frames) + GAP))
    per_row = -(-len(frames) // -(-len(frames) // fit))
    rows = [frames[start : start + per_row] for start in range(0, len(frames), per_row)]
    widest = max(sum(frame.shape[1] + GAP for frame in row) for row in rows)
    sheet = np.full((sum(row[0].shape[0] for row in rows), widest, 3), 255, np.uint8)
    top = 0
    for row in rows:
        left = GAP // 2
        for frame in row:
            sheet[top : top + frame.shape[0], left : left + frame.shape[1]] = frame
            left += frame.shape[1] + GAP
        top += row[0].shape[0]
    save(Image.fromarray(sheet), target)


def side_by_side(
    maps: list[np.ndarray],
    target: Path,
    titles: tuple[str, str] = ("target", "learned"),
    label: str = "probability",
) -> None:
    """Target and learned distribution: two maps with one scale, or two curves where there is one axis."""
    if maps[0].shape[0] == 1:
        figure, axes = plt.subplots(figsize=(5.2, 2.6), layout="constrained")
        axes.plot(maps[0][0], color="0.6", linewidth=4, label="target")
        axes.plot(maps[1][0], color="#c0392b", linewidth=1.2, label="learned")
        axes.set(xlabel="object", ylabel="probability", ylim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    else:
        figure, both = plt.subplots(1, 2, figsize=(6.2, 3.0), layout="constrained")
        low, high = min(0.0, *(each.min() for each in maps)), max(each.max() for each in maps)
        # As in reports: of numbers with both signs 0 is the middle, and white.
        cmap, low, high = ("RdBu_r", -max(high, -low), max(high, -low)) if low < 0 else ("viridis", low, high)
        for axes, shown, title in zip(both, maps, titles, strict=True):
            drawn = axes.imshow(shown, vmin=low, vmax=high, cmap=cmap, origin="lower")
            axes.set_title(title, fontsize=10)
            axes.set(xticks=[], yticks=[])
        figure.colorbar(drawn, ax=both, shrink=0.85, label=label)
    finish(figure, target)


def agreement(graph: Any, learned: np.ndarray, target: Path) -> None:
    """Learned against true log-probability, a dot for each of at most `DOTS` objects; on the line they agree."""
    done = np.flatnonzero(graph.done)
    done = np.random.default_rng(0).permutation(done)[:DOTS]
    true, found = np.log(graph.target_distribution[done]), np.log(np.maximum(learned[done], np.finfo(float).tiny))
    figure, axes = plt.subplots(figsize=(3.6, 3.2), layout="constrained")
    ends = np.array([min(true.min(), found.min()), max(true.max(), found.max())])
    axes.plot(ends, ends, color="0.7", linewidth=1)
    axes.scatter(true, found, s=12, alpha=0.5 if len(done) < 1000 else 0.25, color="#285577", linewidths=0)
    axes.set(xlabel="log R - log Z", ylabel="learned log P")
    axes.locator_params(nbins=5)
    axes.spines[["top", "right"]].set_visible(False)
    finish(figure, target)


def finish(figure: Any, target: Path) -> None:
    figure.canvas.draw()
    save(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()), target)
    plt.close(figure)


def save(image: Image.Image, target: Path) -> None:
    """A file of few colours is small."""
    target.parent.mkdir(parents=True, exist_ok=True)
    image.quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="directory with tfbind8.npz and qm9_small.npz")
    parser.add_argument("--only", nargs="+", choices=list(WORLDS), default=list(WORLDS), metavar="WORLD")
    arguments = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        if why := missing(name, arguments.data):
            print(f"{name} is left out: {why}", flush=True)
            continue
        row = trained(name, arguments.data)
        (CACHE / f"gallery_{name}.json").write_text(json.dumps(row, indent=1))
        print(gallery_row(row), flush=True)


if __name__ == "__main__":
    main()
