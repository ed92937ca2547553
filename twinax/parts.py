"""What a problem may say besides its mathematics, in five records, each read by one layer only.

Fields are values and plain functions, so a family fills in what it has and leaves the rest:

>>> Compile(sizes=(64, 128), count=len).sizes
(64, 128)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinax.episode import Episode
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.objects import Objects


def _same(batch: Any) -> Any:
    return batch


def _accept(*_: Any) -> None:
    """Refuse nothing."""


def _empty(*_: Any) -> dict[str, Any]:
    return {}


def _whole(carry: Any, devices: int) -> Any:
    raise TwinaxError(f"this problem cannot be shared out over {devices} devices; use trainer.devices=1")


@dataclass(frozen=True)
class Compile:
    """For engines: what makes a step cheaper or lets it be shared out. None of it changes a number."""

    sizes: tuple[int, ...] = ()
    """Static sizes for the ragged part of a batch, ascending; empty when nothing is ragged."""
    count: Callable[[Any], Any] = len
    """How many rows of a batch's ragged part are in use."""
    prepare: Callable[[Any], Any] = _same
    """What a loss needs of a batch and no parameter enters; worked out once, outside of differentiation."""
    alternatives: Callable[[Any], tuple[Any, Any, Any] | None] = lambda batch: None
    """(condition, batch where it holds, batch where not), if data decides what a prepared batch's loss consists of.
    Only one of the two losses is computed, and the optimizer's step stands once, after the choice."""
    halves: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]] | None = None
    """Two parts of a step that need nothing of each other, and what joins them: (one(state, draws, inputs),
    other(state, draws, inputs, update), join(state, result of one, result of other, draws, inputs, update) -> (state,
    terms)). One after the other they are `step`; an engine may run the two at the same time."""
    divided: Callable[[Any, int], Any] = _whole
    """From a carry and a number of devices to a tree like the carry: True for arrays whose leading axis the devices
    share out, False for the others. Everything else of a state is the same on all devices. Rules then see their part of
    such arrays and of draws with a `divided` axis, and take means with `ops.across_shards`."""
    updates: int = 1
    """Updates of one step."""
    memory: Mapping[str, str] = field(default_factory=dict)
    """What takes memory, in words with the settings that make it smaller, for the sentence that refuses a problem that
    does not fit. By name: an array of the state or a part of it (networks.log_z, carry), draws, step, evaluation or
    data."""
    check: Callable[[str, int, int], None] = _accept
    """Refuses, in a sentence, a mode, a number of seeds or of devices that cannot carry the problem."""
    watch: Callable[[Mapping[str, Any]], None] = _accept
    """Refuses, in a sentence, to go on after a chunk with these logs, if that would make no sense."""


@dataclass(frozen=True)
class Title:
    """How a metric is shown."""

    title: str
    """Its name in words."""
    meaning: str = ""
    """One short sentence under its curve."""
    tile: bool = False
    """Whether its last value stands at the top of a report."""


@dataclass(frozen=True)
class Picture:
    """How a report draws arrays of an evaluation. `Judge.summarise` calls them picture/NAME/ARRAY, with the name that
    the picture has in `Judge.pictures`; those of the name "" are picture/ARRAY. There are three kinds:

    maps    arrays of one or two axes, side by side on one scale; with `difference` the first of two minus the second
    paths   `paths` (number, points, 2) of x and y, y downwards, nan beyond a path's end. There may also be `walls` of
            cells (rows, columns), the `goal` (x, y, radius), `successes`, 1 or 0 for each path, and `values` (rows,
            columns) over the whole of the walls
    images  arrays (height, width, 3) of uint8 as they are, side by side, each under its label

    >>> Picture("Where it went", "paths", captions={"paths": "ten episodes, from their starts (dots)"}).kind
    'paths'
    """

    title: str
    """Its heading."""
    kind: str = "maps"
    labels: Mapping[str, str] = field(default_factory=dict)
    """What the arrays are called, by their names and in the order of their panels; of `paths` also those that `reached`
    their goal and those that `missed` it."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """What is seen of an array, by its name; said below if the array is there."""
    difference: tuple[str, str] | None = None


@dataclass(frozen=True)
class Drawn:
    """A picture with its arrays, by their own names."""

    picture: Picture
    arrays: Mapping[str, Any]


@dataclass(frozen=True)
class Judge:
    """For evaluations: what is measured of a state, and what comes of it."""

    draws: Callable[[], Mapping[str, Draw]] = _empty
    """The random arrays that one evaluation needs."""
    tables: Callable[[], dict[str, Any]] = _empty
    """Constant NumPy arrays that `measure` reads; given as arguments, so that they are not compiled in."""
    measure: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] = _empty
    """(state, draws, tables) -> arrays: the part that runs in the engine's framework."""
    summarise: Callable[[Mapping[str, Any]], dict[str, Any]] = _empty
    """From measured NumPy arrays to named metrics: floats, or arrays for pictures."""
    best: tuple[str, ...] = ()
    """Metrics whose largest value so far, and its step, are part of a run's summary."""
    titles: Mapping[str, Title] = field(default_factory=dict)
    """Names in words and meanings of metrics and terms, in the order of a report."""
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    """How the arrays of `summarise` are drawn, by the name of the picture; what none of them names is drawn as maps."""
    own_seeds: str = ""
    """A sentence on what is seeded otherwise than by draws, and so the same in every evaluation."""


@dataclass(frozen=True)
class Prove:
    """What has to hold before a training, and what parity needs to know."""

    check: Callable[[str], None] = _accept
    """Refuses, in a sentence, what cannot be trained in a mode; called before every training, so it is done at once."""
    steps: int = 20
    """Steps over which parity follows whole runs: as long as rounding cannot decide what happens in the world."""
    warm_up: int = 0
    """Steps before the first that learns, such as those that fill a replay."""
    other_losses: Callable[[Any, Mapping[str, Any], Any], Mapping[str, tuple[Any, Any]]] = _empty
    """(state, draws, inputs) -> losses of a step besides `loss`, by name, each with a batch that it learns from."""


@dataclass(frozen=True)
class Table:
    """What a family wants a report to list."""

    columns: tuple[str, ...]
    rows: list[tuple[str | float, ...]]


@dataclass(frozen=True)
class Unit:
    """What people count while a problem is trained.

    >>> Unit("environment steps", 1024, "env_steps").told(10)
    '10,240 environment steps (10 training steps)'
    """

    name: str = "steps"
    """In words, as axes and reports say it."""
    per_step: int = 1
    """How many of them one step has."""
    column: str = ""
    """Its name in the log; empty where it is the step itself."""

    def told(self, steps: int) -> str:
        """So many steps in words."""
        own = f"{steps * self.per_step:,} {self.name}"
        return own if self.per_step == 1 else f"{own} ({steps:,} training steps)"


@dataclass(frozen=True)
class Present:
    """For people: what runs keep and show. Engines never read it."""

    unit: Unit = Unit()
    """What progress, speeds and axes are counted in."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Other things that a step has a fixed number of, such as trajectories, by their name in the log."""
    describe: Callable[[], dict[str, Any]] = _empty
    """Plain facts for a run's summary and report."""
    members: Callable[[Any], dict[str, Any]] = lambda networks: {"networks": networks}
    """The networks of one state that get a file of weights each, by name."""
    show: Callable[[Any, int], Episode | None] | None = None
    """(state of one seed with NumPy leaves, seed) -> one episode for a film and figures. Asked for at the end of a run
    and by `twinax eval --film`, so it may take seconds."""
    film: bool = False
    """Whether a run ends with a film and figures of one episode."""
    sources: tuple[Path, ...] = field(default=())
    """Files that a person gave and that a run keeps, so that it can be built again; a setting names the first."""
    tables: Callable[[Any], dict[str, Table]] = _empty
    """(state of one seed with NumPy leaves) -> tables for a report by their headings; asked for when a run ends."""
    drawings: Callable[[Any], Mapping[str, Drawn]] = _empty
    """(state of one seed with NumPy leaves) -> pictures for a report by names of their own, which take too long to draw
    for every evaluation; asked for when a run ends."""
    not_saved: str = ""
    """What a checkpoint cannot hold and how a run goes on without it, as a sentence for who resumes it."""

    @property
    def columns(self) -> dict[str, int]:
        """All that is counted beside steps, by its name in the log, with its number in one step."""
        own = {self.unit.column: self.unit.per_step} if self.unit.column else {}
        return {**own, **self.counts}


@dataclass(frozen=True)
class Use:
    """For those who use what was trained: each is None where a family has no such thing. A state has NumPy leaves and
    is that of one seed."""

    sample: Callable[[Any, int, int], Objects] | None = None
    """(state, number, seed) -> that many fresh objects."""
    top_k: Callable[[Any, int], Objects] | None = None
    """(state, k) -> the best distinct objects that were found, the best first."""
    act: Callable[..., Any] | None = None
    """(state, rows of observations, seed, **options) -> rows of actions; the likeliest ones where the seed is None."""
    act_options: tuple[str, ...] = ()
    """What `act` and `export` can be told besides, such as which of several agents acts."""
    observation: tuple[int, ...] = ()
    """The shape of one observation."""
    export: Callable[..., Any] | None = None
    """(state, **options) -> a `twinax.exportable.Exportable`."""
    play: Callable[[Any, int], tuple[Any, Callable[..., Any]]] | None = None
    """(state, seed) -> a world that a person can walk in, and an epoch in it that takes `hand` and `watch`."""

    @property
    def names(self) -> tuple[str, ...]:
        """What there is."""
        return tuple(name for name in ("sample", "top_k", "act", "export", "play") if getattr(self, name) is not None)
