"""Evaluate a run's newest whole checkpoint with fresh draws; prints a table and writes eval.json into the run.

With --film one episode is filmed as well, into films/, with figures of its reward and of a robot's gait in plots/."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from twinax.cli import _console, _settings
from twinax.errors import TwinaxError

HELP = "evaluate a run's newest checkpoint with fresh draws"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("--seed", type=int, help="root of the evaluation's draws (default: a new one each time)")
    parser.add_argument("--film", action="store_true", help="film one episode, with figures of its reward and gait")
    _settings.add_trust(parser)
    _settings.add_overrides(parser)


def run(found: Namespace) -> int:
    from twinax import conf, engines, runs
    from twinax.runs import checkpoint, episodes, films, pictures

    directory = Path(found.run)
    stored = runs.RunDirectory(directory)
    config = conf.restore_run(directory, found.overrides, found.trust)
    trainer = config.trainer
    left_out: list[str] = []
    problem = conf.build_untrained(config, left_out.append)
    for sentence in left_out:
        warn(sentence)
    film = problem.present.show if found.film else None
    if found.film and film is None:
        raise TwinaxError(f"experiment={config.experiment} has no episode that could be filmed; leave --film out")
    engine = engines.make_engine(problem, conf.train_options(config, devices=1))
    engine.start(config.seed)
    # What is left out of the problem is in the checkpoint all the same.
    state, meta = checkpoint.load(checkpoint.latest(directory, refused=warn), like=engine.state(), part=bool(left_out))
    seed = fresh_seed(found.seed)
    engine.load(_with_seed(state, seed))
    metrics = dict(engine.evaluate())
    scores = {name: x for name, x in metrics.items() if not name.startswith((pictures.PREFIX, films.PREFIX))}
    facts = {"step": meta["step"], "mode": trainer.mode, "seed": seed, "metrics": scores}
    path = _settings.write_json(directory / "eval.json", facts)
    title = f"step {meta['step']:,}, draws from seed {seed}"
    _console.table(title, ("metric", "value"), _console.metric_rows(scores))
    shown = films.select(metrics)
    films.save(stored.films, {f"eval-{name}": film for name, film in shown.items()}, int(meta["step"]))
    written: dict[str, Any] = {"written": path, **({"films": stored.films} if shown else {})}
    if film is not None:
        episode = film(_first_seed(engine.state(), config.seeds), seed)
        assert episode is not None
        files = episodes.save(stored, episode, int(meta["step"]), "eval-episode")
        written |= {"episode": f"{episode.ended}, return {episode.reward.sum():.5g}", "film": episode.view.drawn}
        written |= {file.name: file for file in files}
    _console.facts(written)
    return 0


def _first_seed(state: Any, seeds: int) -> Any:
    from twinax import tree

    return state if seeds == 1 else tree.map_leaves(lambda x: x[0], state)


def fresh_seed(given: int | None) -> int:
    """The root of draws that was asked for, or a new one."""
    if given is None:
        import secrets

        return secrets.randbits(31)
    if not 0 <= given < 2**31:
        raise TwinaxError(f"--seed is {given}; it must be at least 0 and below {2**31}")
    return given


def _with_seed(state: Any, seed: int) -> Any:
    """The state with another root of its noise; several seeds stay apart."""
    import dataclasses

    import numpy as np

    old = np.asarray(state.seed)
    return dataclasses.replace(state, seed=(seed + np.arange(old.size)).reshape(old.shape).astype(old.dtype))


def warn(sentence: str) -> None:
    """A sentence on standard error."""
    import sys

    print(f"warning: {sentence}", file=sys.stderr)
