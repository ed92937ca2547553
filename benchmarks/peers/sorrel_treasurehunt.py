"""Seconds of an epoch of the original treasure hunt (a peer: run in its own virtual environment).

usage: sorrel_treasurehunt.py CHECKOUT EPSILON EPOCHS
CHECKOUT: a clone of the Sorrel repository; the environment needs torch, numpy, omegaconf, pillow, matplotlib, ipython
and tensorboard

Prints a line when its memories are full; for every line on its standard input it runs EPOCHS epochs and prints the
seconds of one, collecting and training apart. Its own loop, world, agents, memories and networks, one-hot, in the
sizes of `benchmarks/treasurehunt.py`; no films and no log. Its code is written for Python 3.12: an older one reads the
headers of generic classes without their type parameters, which changes nothing that runs.
"""

import __future__

import importlib
import importlib.machinery
import json
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

AGENTS, TURNS, BATCH = 5, 50, 256


class OlderPython(importlib.machinery.SourceFileLoader):
    """Reads class headers without type parameters, and no quotes inside of an f-string's own."""

    def source_to_code(self, data, path, *, _optimize=-1):
        text = re.sub(r"^class .*:$", lambda found: re.sub(r"\[[^]]*\]", "", found[0]), data.decode(), flags=re.M)
        text = re.sub(r'strftime\("([^"]*)"\)', r"strftime('\1')", text)
        return compile(text, path, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)


def find_modules(checkout: str) -> None:
    """Make the clone importable, and leave nothing in it."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, checkout)
    if sys.version_info < (3, 12):
        hook = importlib.machinery.FileFinder.path_hook((OlderPython, [".py"]))

        def only_here(path):
            if not Path(path).is_relative_to(checkout):
                raise ImportError("not a folder of the clone")
            return hook(path)

        sys.path_hooks.insert(0, only_here)


def make_environment(epsilon: float, epochs: int):
    """The experiment of the clone's example in the sizes that are compared."""
    example = "sorrel.examples.treasurehunt"
    world = {"height": 10, "width": 10, "gem_value": 10, "food_value": 5, "bone_value": -10, "spawn_prob": 0.02}
    config = {
        "experiment": {"epochs": epochs - 1, "max_turns": TURNS, "record_period": 50},  # its loop runs one more
        "model": {"agent_vision_radius": 2, "observation_spec": "onehot", "num_agents": AGENTS},
        "world": world,
    }
    empty = importlib.import_module(f"{example}.entities").EmptyEntity()
    made = importlib.import_module(f"{example}.world").TreasurehuntWorld(config=config, default_entity=empty)
    environment = importlib.import_module(f"{example}.env").TreasurehuntEnv(made, config)
    for agent in environment.agents:
        agent.model.batch_size, agent.model.epsilon = BATCH, epsilon
    return environment


def main() -> None:
    checkout, epsilon, epochs = str(Path(sys.argv[1]).resolve()), float(sys.argv[2]), int(sys.argv[3])
    find_modules(checkout)
    environment = make_environment(epsilon, epochs)
    models = [agent.model for agent in environment.agents]
    training, full = 0.0, False

    def watched(train_step):
        def timed():
            nonlocal training
            if not full:
                return 0.0
            begin = time.perf_counter()
            loss = train_step()
            training += time.perf_counter() - begin
            return loss

        return timed

    for model in models:
        model.train_step = watched(model.train_step)

    def turn(folder: str) -> dict[str, float]:
        nonlocal training
        training, begin = 0.0, time.perf_counter()
        environment.run_experiment(animate=False, logging=False, output_dir=Path(folder))
        whole = time.perf_counter() - begin
        return {"epoch": whole / epochs, "collect": (whole - training) / epochs, "train": training / epochs}

    with tempfile.TemporaryDirectory() as folder:
        while any(len(model.memory) < model.memory.capacity for model in models):
            turn(folder)
        full = True
        turn(folder)
        local = models[0].qnetwork_local
        release = re.search(r'^version = "(.*)"', (Path(checkout) / "pyproject.toml").read_text(), re.M)
        facts = {
            "parameters": AGENTS * sum(p.numel() for p in local.parameters()),
            "sorrel": release[1] if release else "?",
            "python": ".".join(map(str, sys.version_info[:2])),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "threads": torch.get_num_threads(),
            "batch": models[0].batch_size,
            "memory": models[0].memory.capacity,
        }
        print(json.dumps(facts), flush=True)
        for _ in sys.stdin:
            print(json.dumps(turn(folder)), flush=True)


if __name__ == "__main__":
    main()
