"""Evaluate a run's newest whole checkpoint with fresh draws; prints a table and writes eval.json into the run.

With --film one episode is filmed as well, into films/, with figures of its reward and of what its world tracks, in
plots/."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from twinax import console
from twinax.cli import _settings
from twinax.errors import TwinaxError

HELP = "evaluate a run's newest checkpoint with fresh draws"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--seed", type=int, help="root of the evaluation's draws (default: a new one each time)")
    parser.add_argument("--film", action="store_true", help="film one episode, with figures of what happens in it")
    _settings.add_trust(parser)
    _settings.add_overrides(parser)


def run(arguments: Namespace) -> int:
    from twinax import deploy
    from twinax.runs import RunDirectory, episodes, films

    seed = deploy.fresh_seed(arguments.seed)
    loaded = deploy.load(arguments.run, overrides=arguments.overrides, trust=arguments.trust)
    stored = RunDirectory(loaded.dir)
    film = loaded.problem.present.show if arguments.film else None
    if arguments.film and film is None:
        raise TwinaxError(f"{loaded.name} has no episode that could be filmed; leave --film out")
    scores = loaded.evaluate(seed)
    facts = {"step": scores.step, "mode": scores.mode, "seeds": list(scores.seeds), "metrics": dict(scores)}
    if scores.own_seeds:
        facts["own_seeds"] = scores.own_seeds
    path = _settings.write_json(loaded.dir / "eval.json", facts)
    console.table(f"step {scores.step:,}, {scores.told}", ("metric", "value"), console.metric_rows(scores))
    shown = films.select(scores.shown)
    films.save(stored.films, {f"eval-{name}": film for name, film in shown.items()}, scores.step)
    written: dict[str, Any] = {"written": path, **({"films": stored.films} if shown else {})}
    if scores.own_seeds:
        written["seeds"] = scores.own_seeds
    if film is not None:
        episode = film(loaded.state, seed)
        assert episode is not None
        files = episodes.save(stored, episode, scores.step, "eval-episode")
        written |= {"episode": f"{episode.ended}, return {episode.reward.sum():.5g}", "film": episode.view.drawn}
        written |= {file.name: file for file in files}
    console.facts(written)
    return 0
