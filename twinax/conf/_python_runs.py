"""Settings of a run that was started in Python: those of the trainer, since the call that made its problem has the
others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from twinax.conf import _aliases, _keys
from twinax.conf._compose import set_values, sort_overrides
from twinax.conf._registry import Experiment
from twinax.conf._sections import ROOTS, BatchSection, Root
from twinax.errors import TwinaxError
from twinax.runs import checkpoint
from twinax.runs.sinks import LOGGERS
from twinax.train_options import TrainOptions


@dataclasses.dataclass
class _Batched(Root):
    trainer: BatchSection = dataclasses.field(default_factory=BatchSection)


_ANY = Experiment("any", "What every experiment has.", _Batched, {}, build=lambda config: None)
_FIELDS = {field.name if field.name in ROOTS else f"trainer.{field.name}" for field in dataclasses.fields(TrainOptions)}
_FREE = _FIELDS - {"seed", "seeds"}
"""Keys that may change in a run."""


def stored_options(run: Path | str, overrides: Sequence[str] = ()) -> TrainOptions:
    """How a run was trained, by its newest checkpoint, with settings of the trainer changed.

    >>> stored_options("runs/python", ["trainer.mode=torch"]).mode          # doctest: +SKIP
    'torch'
    """
    from omegaconf import OmegaConf

    known = _keys.known_keys(_ANY)
    for text in _aliases.rewrite(overrides, _ANY):
        key, equals, _ = text.partition("=")
        # A misspelt setting of the trainer is told so below, with the closest one.
        if equals and key not in _FREE and (key in known or not key.startswith("trainer.")):
            raise TwinaxError(
                f"'{text}' cannot change here: the run {run} was started from Python, and its problem is as that call "
                "made it; settings of the trainer can change, such as trainer.mode=torch"
            )
    _, values = sort_overrides(overrides, _ANY)
    config = set_values(OmegaConf.structured(Root), values, _ANY)
    changed = {key.removeprefix("trainer."): OmegaConf.select(config, key) for key in values}
    if "logger" in changed:
        changed["logger"] = tuple(LOGGERS.resolve(name) for name in changed["logger"])
    meta = checkpoint.newest_meta(Path(run)) or {}
    return TrainOptions.stored(meta.get("plan") or {}, **changed)
