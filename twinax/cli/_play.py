"""Walk one agent of a world by keyboard, among agents of a trained run or among random and seeking players.

With RUN the other agents are those of the run's newest checkpoint, and act without exploring. Without it
players.seeker=N of the others walk to the nearest thing of value and the rest act at random, in the world that settings
such as world=cleanup choose. Keys: w a s d or the arrows to walk, c and z for further actions, q to quit; others are
ignored. Keys may also come from a pipe: printf 'ddssq' | twinax play world=cleanup
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from twinax import console
from twinax.cli import _board, _keyboard, _settings
from twinax.errors import TwinaxError

HELP = "walk an agent through a world by keyboard"


class _Quit(Exception):
    """The person has had enough."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's directory (default: players that do not learn)")
    parser.add_argument("--agent", type=int, default=0, metavar="K", help="which agent is yours, from 0 (default 0)")
    parser.add_argument("--seed", type=int, help="root of all draws (default: a new one each time)")
    _settings.add_trust(parser)
    _settings.add_overrides(parser)


def words(arguments: Namespace) -> tuple[str | None, list[str]]:
    """The run's directory, if one was given, and the settings: RUN may be left out, so the parser cannot tell."""
    given = [word for word in (arguments.run, *arguments.overrides) if word is not None]
    settings = [word for word in given if "=" in word]
    runs = [word for word in given if "=" not in word]
    if len(runs) > 1:
        raise TwinaxError(f"unexpected argument '{runs[1]}'; one run is played at a time")
    if not runs and not any(word.startswith("experiment=") for word in settings):
        from twinax import conf

        settings.insert(0, f"experiment={conf.PLAYED}")
    return runs[0] if runs else None, settings


def run(arguments: Namespace) -> int:
    directory, overrides = words(arguments)
    from twinax.deploy import fresh_seed

    seed = fresh_seed(arguments.seed)
    if directory is None:
        world, epoch = _scripted(overrides, arguments.agent, seed)
    else:
        world, epoch = _trained(directory, overrides, seed, arguments.trust)
    _check_agent(arguments.agent, world)
    console.console()  # what draws is imported before the terminal is changed
    with _keyboard.keys() as read:
        game = Game(world, arguments.agent, read)
        try:
            epoch(hand=game.hand, watch=game.watch)
        except _Quit:
            pass
    game.draw()
    console.facts({"score": f"{game.scores[arguments.agent]:g}", "turns": game.turn, "seed": seed})
    return 0


class Game:
    """What a person sees of an epoch, and does in it."""

    def __init__(self, world: Any, agent: int, read: Callable[[], str]):
        self.world, self.agent, self.read = world, agent, read
        self.actions = _keyboard.bindings(world.actions)
        self.scores = [0.0] * world.num_agents
        self.turn = 0
        self.state: Any = None
        self.live = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()

    def hand(self, agent: int, state: Any) -> Any:
        """The person's next action, for its own agent only."""
        import numpy as np

        if agent != self.agent:
            return None
        self.state = state
        if self.live:
            self.draw()
        while (key := self.read()) not in self.actions:
            if key in ("", _keyboard.QUIT):
                raise _Quit
        return np.array([self.actions[key]], np.int32)

    def watch(self, state: Any, rewards: list[Any]) -> None:
        """Count what a turn has brought."""
        self.state, self.turn = state, self.turn + 1
        self.scores = [score + float(reward[0]) for score, reward in zip(self.scores, rewards, strict=True)]

    def draw(self) -> None:
        """Turn, map, scores and keys."""
        from rich.text import Text

        out, world = console.console(), self.world
        if self.live:
            out.clear()
        out.print(Text(f"turn {self.turn} of {world.turns}   score {self.scores[self.agent]:g}", "bold"))
        out.print(_board.board(world, self.state, self.agent), end="")
        others = [f"{k}: {score:g}" for k, score in enumerate(self.scores) if k != self.agent]
        if others:
            out.print(Text(f"scores of the others   {'   '.join(others)}"))
        out.print(_board.legend(world))
        named = {key: world.actions[action] for key, action in self.actions.items() if len(key) == 1}
        out.print(Text("   ".join(f"{key} {name}" for key, name in named.items()) + "   q quit", "dim"))


Epoch = Callable[..., Any]
"""Plays an epoch with `hand` and `watch`."""


def _trained(directory: str, overrides: list[str], seed: int, trust: bool) -> tuple[Any, Epoch]:
    """The world of a run, and an epoch with its agents."""
    from twinax import deploy

    return deploy.load(directory, overrides=overrides, trust=trust).play(seed)


def _scripted(overrides: list[str], agent: int, seed: int) -> tuple[Any, Epoch]:
    """The world of a configuration, and an epoch with players that do not learn."""
    from twinax import conf

    config = conf.compose(overrides)
    play = conf.find_experiment(config.experiment).play
    if play is None:
        raise TwinaxError(
            f"experiment={config.experiment} has no world to walk in; play one of experiment={conf.PLAYED}"
        )
    return play(config, agent, seed)


def _check_agent(agent: int, world: Any) -> None:
    if not 0 <= agent < world.num_agents:
        raise TwinaxError(
            f"--agent is {agent}, but the world has {world.num_agents} agents; it must be between 0 and "
            f"{world.num_agents - 1}"
        )
