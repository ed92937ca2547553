"""From overrides to one typed configuration, with one sentence for each thing that can be wrong.

Hydra's grammar reads the overrides and Hydra composes the groups; values are then set on the typed
tree, so that a wrong one is reported with its own key. Nothing is written anywhere.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinax.conf import _aliases, _keys
from twinax.conf._registry import DEFAULT, Experiment, Preset, find_experiment
from twinax.conf._sections import check
from twinax.errors import TwinaxError, UnknownName
from twinax.registry import is_code

_LARGEST = 2**63
"""Where whole numbers end that arrays can hold; larger ones do not even become floats."""


def compose(overrides: Sequence[str] = ()) -> Any:
    """The root dataclass of the chosen experiment; of two equal keys the later wins.

    >>> compose(["env=grid", "trainer.mode=legacy"]).trainer.mode
    'torch'
    """
    experiment, (_, rest) = opened_experiment(overrides), _choose_experiment(overrides)
    choices, values = sort_overrides(rest, experiment)
    config = _compose_groups(experiment, choices)
    experiment.settle(config)
    return _finish(set_values(config, values, experiment))


def opened_experiment(overrides: Sequence[str] = ()) -> Experiment:
    """The experiment that settings choose, with the choices that somebody's code makes for them."""
    experiment, rest = _choose_experiment(overrides)
    return experiment.opened(_named_choices(rest, experiment))


def documented(overrides: Sequence[str]) -> list[tuple[str, str, Any, str]]:
    """(section, key, value, sentence) for every key that a run with these settings has.

    >>> [value for _, key, value, _ in documented(["env=grid", "env.side=5"]) if key == "env.side"]
    [5]
    """
    experiment, config = opened_experiment(overrides), compose(overrides)
    chosen = {
        name: replace(group, default=getattr(config, name).name) for name, group in experiment.groups.items()
    }  # a key of several choices has the sentence of the one that is chosen
    missing = object()
    rows = []
    for section, key, _, sentence in _keys.documentation(replace(experiment, groups=chosen)):
        value = functools.reduce(lambda node, name: getattr(node, name, missing), key.split("."), config)
        if value is not missing:
            rows.append((section, key, value, sentence))
    return rows


def restore_run(run: Path | str, overrides: Sequence[str] = (), trust: bool = False) -> Any:
    """The configuration that a run was started with, with values changed.

    A run that names code of other packages (`package.module:Name`) is refused before anything of it is imported, unless
    this user made it on this machine, or `trust` says that its code may run.

    >>> restore_run("runs/first", ["trainer.steps=2000"])                   # doctest: +SKIP
    """
    from twinax.runs import RunDirectory, origin

    directory = RunDirectory(Path(run))
    stored = directory.read_config()
    if not trust:
        origin.require_trust(directory.config_path, origin.named_code(stored))
    return restore(stored, overrides, str(directory.config_path), trust=True)


def restore(
    stored: Mapping[str, Any], overrides: Sequence[str] = (), source: str = "config.yaml", trust: bool = False
) -> Any:
    """The configuration that these plain values say, with some of them changed; `restore_run` reads those of a run.

    Values that take theirs from elsewhere (`${...}`) are refused, and without `trust` those that name code.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from twinax.runs import origin

    for key, value in origin.leaves(stored):
        if _is_interpolated(value):
            raise TwinaxError(f"{source} has {key}={value}; a stored configuration holds plain values, never ${{...}}")
        _refuse_size(key, value, source)
    if not trust and (named := origin.named_code(stored)):
        raise origin.untrusted(source, named, "nothing shows who wrote it")
    experiment = find_experiment(str(stored.get("experiment", DEFAULT)))
    choices, values = sort_overrides(overrides, experiment)
    if choices:
        name, choice = next(iter(choices.items()))
        raise TwinaxError(f"{name}={choice} cannot change in an existing run: start a new one with `twinax train`")
    chosen: dict[str, str] = {}
    for name, group in experiment.groups.items():
        section = stored.get(name)
        if not isinstance(section, dict) or "name" not in section:
            raise TwinaxError(f"{source} has no {name}.name, so it is not the configuration of a {experiment.name} run")
        chosen[name] = group.resolve(name, str(section["name"]))
    experiment = experiment.opened(chosen)
    try:
        merged = OmegaConf.merge(_compose_groups(experiment, chosen), dict(stored))
    except OmegaConfBaseException as error:
        raise TwinaxError(f"{source} does not fit this version: {_first_line(error)}") from error
    return _finish(set_values(merged, values, experiment))


def split_commas(overrides: Sequence[str]) -> list[list[str]]:
    """Every combination of comma-separated values: `seed=1,2` gives two lists of overrides."""
    parsed = [_parse(text) for text in overrides]
    axes = [
        [f"{item.get_key_element()}={value}" for value in item.sweep_string_iterator()]
        if item.is_sweep_override()
        else [text]
        for text, item in zip(overrides, parsed, strict=True)
    ]
    return [list(combination) for combination in itertools.product(*axes)]


def _choose_experiment(overrides: Sequence[str]) -> tuple[Experiment, list[str]]:
    chosen = [text.partition("=")[2] for text in overrides if text.startswith("experiment=")]
    rest = [text for text in overrides if not text.startswith("experiment=")]
    return find_experiment(chosen[-1] if chosen else DEFAULT), rest


def _named_choices(overrides: Sequence[str], experiment: Experiment) -> dict[str, str]:
    """Choices that overrides make, by group."""
    choices = {}
    for text in _aliases.rewrite(overrides, experiment):
        key, _, value = text.partition("=")
        group = key.removesuffix(".name")
        if group not in experiment.groups:
            continue
        try:
            choice = experiment.groups[group].resolve(group, value)
        except UnknownName as error:
            if key == group or group not in choices:
                raise
            raise TwinaxError(
                f"'{text}' would choose another {group} than {choices[group]}: {group}.name says which one it is, and "
                "sets no field of that name; call the field otherwise to set it"
            ) from error
        choices[group] = choice
    return choices


def sort_overrides(overrides: Sequence[str], experiment: Experiment) -> tuple[dict[str, str], dict[str, Any]]:
    """Group choices by group, and values by key, both under present names."""
    choices: dict[str, str] = {}
    values: dict[str, Any] = {}
    known = _keys.known_keys(experiment)
    unknown: list[str] = []
    for text in overrides:
        _refuse_interpolation(text)
    for text in _aliases.rewrite(overrides, experiment):
        override = _parse(text)
        key = override.key_or_group
        if override.is_sweep_override():
            raise TwinaxError(f"'{text}' names several values, and this command takes one; a list is written [1,2]")
        if override.is_delete():
            raise TwinaxError(f"'{text}' would remove a key; every key is needed, so set it to a value instead")
        value = override.value()
        group = key.removesuffix(".name")
        if group in experiment.groups:
            choices[group] = experiment.groups[group].resolve(group, str(value))
        elif key in known:
            values[key] = value
        elif any(name.startswith(f"{key}.") for name in known):
            raise TwinaxError(f"'{key}' is a section, not a value; set one of its keys, such as {_example(key, known)}")
        else:
            unknown.append(key)
    if unknown:  # said when all choices are known, since they have the keys that may have been meant
        raise _keys.unknown_key(unknown[0], experiment, choices)
    return choices, values


def _refuse_interpolation(text: str) -> None:
    """Values are written into the run, so none is taken from the environment or from elsewhere without being seen."""
    if "$" in text and (_is_interpolated(text) or any(_is_interpolated(x) for x in _texts(_parse(text).value()))):
        raise TwinaxError(f"'{text}' takes its value from elsewhere by ${{...}}; write the value itself")


def _refuse_size(key: str, value: Any, source: str = "") -> None:
    if isinstance(value, int) and abs(value) >= _LARGEST:
        where = f"in {source} " if source else ""
        raise TwinaxError(f"{where}{key} has {value.bit_length()} bits; a whole number here has at most 63")


def _is_interpolated(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value as Hydra's grammar gives it, without the escapes."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from (str(key), *_texts(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)


def _example(section: str, known: dict[str, Any]) -> str:
    return next(f"{name}={value}" for name, value in known.items() if name.startswith(f"{section}."))


def _parse(text: str):
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, _ = text.partition("=")
    if not equals:
        raise TwinaxError(f"'{text}' is not an override; write key=value, such as trainer.steps=100")
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise TwinaxError(
            f"the value in '{text}' cannot be read ({_first_line(error)}); "
            f"text with odd characters is quoted twice: {key}='\"...\"'"
        ) from error


def _compose_groups(experiment: Experiment, choices: dict[str, str]):
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    _store(experiment.name)
    for group, choice in choices.items():
        if is_code(choice):
            _store_choice(experiment.name, group, choice, experiment.groups[group].choices[choice])
    # Group names carry the experiment's name, so that two families may both have an `env`.
    own = _stored_name(experiment.name)
    overrides = [f"{own}/{group}={_stored_name(choice)}" for group, choice in choices.items()]
    # Hydra allows one application per process; one that calls us gets its own back.
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize(version_base="1.3", config_path=None):
            return _opened(hydra.compose(f"twinax-{own}", overrides=overrides))
    except HydraException as error:  # a preset sets a key that another choice does not have
        chosen = " and ".join(f"{group}={choice}" for group, choice in choices.items())
        reason = str(error.__cause__ or error).strip().splitlines()[0]
        raise TwinaxError(f"{chosen} do not go together: {reason}; leave one of them out") from error
    finally:
        GlobalHydra.instance().hydra = outer


def _opened(config):
    """The same, where the keys of a value that is a dictionary are the person's own."""
    from omegaconf import DictConfig, OmegaConf

    for section in config.values():
        names = (
            [name for name in section if not OmegaConf.is_missing(section, name)]
            if isinstance(section, DictConfig)
            else []
        )
        for value in (section[name] for name in names):
            if isinstance(value, DictConfig) and OmegaConf.get_type(value) is dict:
                OmegaConf.set_struct(value, False)
    return config


@functools.cache
def _store(name: str) -> None:
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    experiment = find_experiment(name)
    OmegaConf.register_new_resolver("times", lambda a, b: float(a) * float(b), replace=True)
    store, own = ConfigStore.instance(), _stored_name(name)
    # Hydra copies all that is stored whenever it composes, two thirds of its time; what it reads, it copies once more.
    store.__deepcopy__ = lambda memo: store  # pyright: ignore[reportAttributeAccessIssue]
    store.store(name=f"twinax-{own}-schema", node=experiment.schema)
    groups: list[Any] = [{f"{own}/{group}": entry.default} for group, entry in experiment.groups.items()]
    store.store(
        name=f"twinax-{own}", node={"defaults": [f"twinax-{own}-schema", "_self_", *groups], "experiment": name}
    )
    for group, entry in experiment.groups.items():
        for choice, node in entry.choices.items():
            _store_choice(name, group, choice, node)


def _store_choice(name: str, group: str, choice: str, node: Any) -> None:
    from hydra.core.config_store import ConfigStore

    package, stored, own = group, node, _stored_name(name)
    if isinstance(node, Preset):
        others = [{f"override /{own}/{other}": wanted} for other, wanted in node.choose.items()]
        package, stored = "_global_", {"defaults": ["_self_", *others], **node.sections}
    path = {"group": f"{own}/{group}", "name": _stored_name(choice)}
    ConfigStore.instance().store(**path, node=stored, package=package, provider="twinax")


def _stored_name(choice: str) -> str:
    """A choice's name in Hydra's store, which has no colons."""
    return re.sub(r"\W", "_", choice) if is_code(choice) else choice


def set_values(config, values: dict[str, Any], experiment: Experiment):
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException, ValidationError

    given = [key for key in ("trainer.steps", "trainer.env_steps") if values.get(key) is not None]
    if len(given) > 1:
        told = " and ".join(f"{key}={values[key]}" for key in given)
        raise TwinaxError(f"{told} both say how long the run is; give one of them")
    if given == ["trainer.steps"]:
        config.trainer.env_steps = None  # of two that were given at different times the later holds
    for key, value in values.items():
        _refuse_size(key, value)
        try:
            OmegaConf.update(config, key, value)
        except (ConfigKeyError, AttributeError) as error:
            raise _keys.unknown_key(key, experiment) from error
        except ValidationError as error:
            wanted = _wanted(_keys.known_keys(experiment)[key], _first_line(error))
            raise TwinaxError(f"{key}={_show(value)} does not fit: it must be {wanted}") from error
        except OmegaConfBaseException as error:
            raise TwinaxError(f"{key}={_show(value)} cannot be set: {_first_line(error)}") from error
    return config


def _wanted(default: Any, message: str) -> str:
    """What a key takes, in words; the message names the type where the default does not."""
    words = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "text"}
    named = next((word for name, word in words.items() if name in message), None)
    if isinstance(default, list):
        return f"a list such as {default}"
    if isinstance(default, dict):
        return "a dictionary such as {name: 1.5}"
    return named or {bool: "true or false", int: "a whole number", float: "a number"}.get(type(default), "text")


def _show(value: Any) -> str:
    return "null" if value is None else str(value)


def _finish(config) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if missing := OmegaConf.missing_keys(config):
        key = sorted(missing)[0]
        raise TwinaxError(f"{key} has no value, and nothing stands in for it; give one with {key}=VALUE")
    try:
        return check(OmegaConf.to_object(config))  # type: ignore[arg-type]
    except OmegaConfBaseException as error:
        raise TwinaxError(f"the configuration cannot be resolved: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
