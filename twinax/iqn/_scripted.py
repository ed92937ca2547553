"""An epoch for a person among players that do not learn."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinax.envs import World
from twinax.iqn._epoch import play
from twinax.iqn._players import Players
from twinax.noise import Draw, numpy_draws


def scripted_epoch(world: World, rules: Sequence[str], seed: int) -> Callable[..., Any]:
    """`epoch(hand=..., watch=...)` plays one in which the agents follow these rules; see `play`."""
    seats = [Players(1, rule) for rule in rules]

    def choose(k: int, window: Any, turn: Any) -> Any:
        return seats[k].choose(world, window[:, -1], turn["player"][k])

    turns = {**world.turn_draws(1), "player": Draw((world.num_agents, 1))}
    turns = {key: dataclasses.replace(draw, shape=(world.turns, *draw.shape)) for key, draw in turns.items()}
    reset = numpy_draws(world.reset_draws(1), seed, 0, stream=1)
    history = [np.zeros((1, 0, world.view_cells), np.uint8)] * world.num_agents
    return functools.partial(play, world, choose, history, reset, numpy_draws(turns, seed, 0))
