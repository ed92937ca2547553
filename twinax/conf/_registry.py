"""What an experiment tells the configuration, and where experiments are found.

Each module in `twinax.conf.experiments` holds one `EXPERIMENT`; its file name is the experiment's name. Adding a family
is adding a file, or an entry point of another package.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from twinax.errors import TwinaxError, UnknownName
from twinax.registry import Registry, is_code

DEFAULT, PLAYED = "gflownet", "treasurehunt"
"""The experiment when none is named, and whose worlds people walk in then."""


@dataclass(frozen=True)
class Preset:
    """A group choice that also sets defaults of other sections; explicit overrides still win."""

    sections: Mapping[str, Any]
    """Section name to its values: a section dataclass, or a dict of the fields to change."""
    choose: Mapping[str, str] = field(default_factory=dict)
    """Choices it makes in other groups, such as {"proxy": "uniform"}."""


@dataclass(frozen=True)
class Group:
    """A section that is chosen by name: `objective=detailed_balance`."""

    default: str
    """The choice when nobody says anything."""
    choices: Mapping[str, Any]
    """Choice to its section dataclass (with its values), or to a `Preset`."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Other spellings of a choice."""
    open: Callable[[str], Any] | None = None
    """From `package.module:Name` to a choice, where the group takes anybody's code."""
    registry: Registry[Any] | None = None
    """Where installed packages add names of such code."""

    def resolve(self, group: str, name: str) -> str:
        """The choice's own name, which for code of others is `package.module:Name`; unknown ones list the known."""
        written = name.strip("'\"")
        code = self.installed.get(written, written)
        if self.open is not None and is_code(code):
            return code
        plain = written.lower().replace("-", "_")
        own = self.aliases.get(plain, plain)
        if own not in self.choices:
            # Who writes a path or a module means code.
            own_code = ["package.module:Name"] if self.open is not None and set(written) & set("./:") else []
            raise UnknownName(group, name, [*self.choices, *self.installed, *own_code])
        return own

    @property
    def installed(self) -> Mapping[str, str]:
        """Names that installed packages add, to their code."""
        return {} if self.registry is None else self.registry.installed


@dataclass(frozen=True)
class Experiment:
    """One family of problems as the configuration sees it."""

    name: str
    """Its name in experiment=NAME and in run directories."""
    summary: str
    """One line for `twinax list`."""
    schema: type
    """The root dataclass, a subclass of `Root`."""
    groups: Mapping[str, Group]
    """Groups by section name, in merging order: a later group's preset wins over an earlier one's."""
    build: Callable[[Any], Any]
    """From the root dataclass to a Problem."""
    settle: Callable[[Any], None] = lambda config: None
    """Changes composed defaults, before anybody's own values: what the preset of one choice sets and another choice
    has no use for."""
    untrained: Callable[[Any, Callable[[str], None] | None], Any] | None = None
    """The same for a policy that is only used, where that needs less than training; see `conf.build_untrained`."""
    train: Callable[[Any], Callable[..., Any] | None] = lambda config: None
    """From the root dataclass to a way of training other than by an engine, if it asks for one:
    `(problem, steps, seed, run_dir, config, progress, sinks) -> Run`."""
    play: Callable[[Any, int, int], tuple[Any, Callable[..., Any]]] | None = None
    """(root dataclass, a person's agent, seed) -> (world, epoch): a world to walk in without a trained run; see
    `twinax.parts.Use.play`."""
    key_aliases: Mapping[str, str | Callable[[str], list[str]]] = field(default_factory=dict)
    """Older key to the present key, or to a function from the value to whole overrides."""
    hints: Mapping[str, str] = field(default_factory=dict)
    """Keys that people know from elsewhere, to a sentence on what to write here."""
    named_by: tuple[str, ...] = ("env", "objective")
    """Sections whose `name` goes into the default run directory."""

    uses: tuple[str, ...] = ()
    """What its trained runs can do: sample, top_k, act, export, play (see `twinax.parts.Use`)."""
    own_keys: frozenset[str] = frozenset()
    """Keys of the options that choices have themselves, which are never taken for older names of others."""

    def opened(self, choices: Mapping[str, str]) -> Experiment:
        """The same for choices by group, also those that somebody's code makes; their own options are no aliases."""
        groups, keys = dict(self.groups), set(self.own_keys)
        for name, choice in choices.items():
            group = groups[name]
            if group.open is not None and choice not in group.choices:
                groups[name] = group = replace(group, choices={**group.choices, choice: group.open(choice)})
            section = group.choices.get(choice)
            node = section.sections.get(name) if isinstance(section, Preset) else section
            keys |= {f"{name}.{option.name}" for option in fields(node)} if is_dataclass(node) else set()
        return replace(self, groups=groups, own_keys=frozenset(keys))


@functools.cache
def _experiments() -> Registry[Experiment]:
    package = importlib.import_module("twinax.conf.experiments")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_")
    return Registry("experiment", {name: f"twinax.conf.experiments.{name}:EXPERIMENT" for name in names})


def experiment_names() -> tuple[str, ...]:
    """Every experiment, ours and those that installed packages add, without importing them."""
    return (*_experiments(), *_experiments().installed)


def find_experiment(name: str) -> Experiment:
    """The experiment of that name, or of `package.module:NAME`, which is then its name."""
    code = _experiments().installed.get(name, name)
    experiment = _experiments().find(name)
    if not isinstance(experiment, Experiment):
        raise TwinaxError(f"experiment={name} is a {type(experiment).__name__}; name a twinax.conf.Experiment")
    return replace(experiment, name=code) if is_code(code) else experiment
