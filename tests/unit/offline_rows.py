"""Small datasets whose rows tell where they are from."""

from __future__ import annotations

import numpy as np

from twinax.offline import Dataset


def trajectories(lengths, width=3, image=None, seed=0):
    """For each trajectory its states (one more than steps), actions and rewards; no two states are alike."""
    rng = np.random.default_rng(seed)
    found, number = [], 0
    for steps in lengths:
        ids = number + np.arange(steps + 1)
        number += steps + 1
        if image:
            states = rng.integers(0, 256, (steps + 1, *image)).astype(np.uint8)
        else:
            states = ids[:, None] + np.arange(width) / 10
        found.append(
            {
                "states": states.astype(np.uint8 if image else np.float32),
                "actions": rng.uniform(-0.9, 0.9, (steps, 2)).astype(np.float32),
                "rewards": rng.normal(size=steps).astype(np.float32),
            }
        )
    return found


def regular(parts, **more):
    """Each row with its next observation."""
    return Dataset(
        observations=np.concatenate([p["states"][:-1] for p in parts]),
        next_observations=np.concatenate([p["states"][1:] for p in parts]),
        actions=np.concatenate([p["actions"] for p in parts]),
        rewards=np.concatenate([p["rewards"] for p in parts]),
        terminals=np.concatenate([np.arange(len(p["actions"])) == len(p["actions"]) - 1 for p in parts]),
        **more,
    )


def compact(parts, **more):
    """Each trajectory with a row for its final state."""

    def longer(x):
        return np.concatenate([x, x[-1:] * 0 + 0.5])

    last = [np.arange(len(p["states"])) == len(p["states"]) - 1 for p in parts]
    return Dataset(
        observations=np.concatenate([p["states"] for p in parts]),
        actions=np.concatenate([longer(p["actions"]) for p in parts]),
        rewards=np.concatenate([longer(p["rewards"]) for p in parts]),
        terminals=np.concatenate(last),
        valids=~np.concatenate(last),
        **more,
    )
