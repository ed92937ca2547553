"""What people write in a call, checked against its annotations: one sentence instead of a TypeError from deep inside.

`checked` goes on the calls that people make: the functions that build problems and train them, and the dataclasses of
their options. Arrays are left alone; the library's own records are never checked, because they are made in every step.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import functools
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from twinax.errors import TwinaxError

T = TypeVar("T")

_ELSEWHERE = {
    "lr": ("learning_rate",),
    "step_size": ("learning_rate",),
    "max_grad_norm": ("clip_norm",),
    "num_envs": ("worlds", "batch_size"),
    "n_envs": ("num_envs", "worlds", "batch_size"),
    "worlds": ("num_envs",),
    "num_steps": ("steps",),
    "n_steps": ("num_steps", "steps"),
    "steps": ("num_steps",),
    "total_timesteps": ("steps",),
    "hidden_size": ("hidden",),
    "hidden_sizes": ("hidden",),
    "hidden_dim": ("hidden",),
    "net_arch": ("hidden",),
    "n_epochs": ("num_epochs",),
    "epochs": ("num_epochs",),
    "update_epochs": ("num_epochs",),
    "minibatches": ("num_minibatches",),
    "discount": ("gamma",),
    "target_rate": ("tau",),
    "polyak": ("tau",),
    "target_update_interval": ("target_network_frequency",),
    "sync_every": ("target_network_frequency",),
    "sync_freq": ("target_network_frequency",),
    "memory": ("buffer_size",),
    "memory_size": ("buffer_size",),
    "capacity": ("buffer_size",),
    "frames": ("frame_stack",),
    "n_frames": ("frame_stack",),
    "train_steps": ("gradient_steps",),
    "evaluation_worlds": ("evaluation_num_envs",),
    "quantiles": ("num_quantiles",),
    "n_quantiles": ("num_quantiles",),
    "act_quantiles": ("num_act_quantiles",),
    "cosines": ("num_cosines",),
    "atoms": ("num_atoms",),
    "n_atoms": ("num_atoms",),
    "low": ("v_min",),
    "high": ("v_max",),
    "copies": ("num_envs",),
    "actor_norm": ("actor_layer_norm",),
    "value_norm": ("value_layer_norm",),
    "hidden_dims": ("hidden",),
    "width": ("latent_dim",),
    "trace": ("gae_lambda",),
    "entropy_weight": ("ent_coef",),
    "value_weight": ("vf_coef",),
    "clip_range": ("clip",),
    "loss": ("objective",),
    "env": ("world",),
    "world": ("env",),
}
"""Names of other libraries, to those of this one."""
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): "None",
}


def checked(target: T) -> T:
    """A function, or a dataclass, that refuses arguments of other names or types in one sentence.

    >>> from twinax import Optimizer
    >>> Optimizer(lr=0.1)                                                   # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    TwinaxError: Optimizer has no argument 'lr': 'learning_rate' is what it is called here; it takes ...
    """
    if isinstance(target, type):
        target.__init__ = _wrapped(target.__init__, target.__name__, target, skip=1)  # type: ignore[misc]
        return target
    function: Any = target
    module = str(function.__module__).removeprefix("twinax.").partition(".")[0]
    name = function.__name__ if module == "runs" else f"{module}.{function.__name__}"
    return _wrapped(function, name, function, skip=0)


def _wrapped(function: Any, name: str, annotated: Any, skip: int) -> Any:
    signature = inspect.signature(function)
    if skip:
        signature = signature.replace(parameters=list(signature.parameters.values())[skip:])
    hints: dict[str, Any] = {}

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if not hints:
            hints.update(_hints(annotated, signature))
        try:
            bound = signature.bind(*args[skip:], **given)
        except TypeError as error:
            raise TwinaxError(_wrong_call(name, signature, hints, args[skip:], given, error)) from None
        for key, value in bound.arguments.items():
            if signature.parameters[key].kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
                continue
            if not fits(value, hints.get(key, Any)):
                raise TwinaxError(f"{name}: {key} is {_shown(value)}; it must be {_words(hints[key])}")
            if isinstance(value, list) and _has(hints.get(key), (tuple,)):
                bound.arguments[key] = tuple(value)
        return function(*args[:skip], *bound.args, **bound.kwargs)

    return call


def _hints(annotated: Any, signature: inspect.Signature) -> dict[str, Any]:
    """Types by argument; what is only known to a type checker is not checked."""
    try:
        return typing.get_type_hints(annotated) or {"": Any}
    except NameError:
        pass
    hints: dict[str, Any] = {"": Any}
    modules = [inspect.getmodule(one) for one in getattr(annotated, "__mro__", (annotated,))]
    scopes = [vars(module) for module in modules if module is not None]
    for key, parameter in signature.parameters.items():
        for scope in scopes:
            try:
                kind = parameter.annotation
                hints[key] = eval(kind, scope) if isinstance(kind, str) else kind
                break
            except (NameError, TypeError):
                continue
    return hints


def fits(value: Any, kind: Any) -> bool:
    """Whether a value may stand where an annotation says `kind`; what is not known here may.

    >>> fits(3, float), fits("3", float), fits([8, 8], tuple[int, ...]), fits(64, tuple[int, ...])
    (True, False, True, False)
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is tuple:
        return _fits_tuple(value, inner)
    if origin in (list, collections.abc.Sequence):
        several = isinstance(value, collections.abc.Sequence) and not isinstance(value, str | bytes)
        return several and all(fits(one, inner[0]) for one in value)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, Mapping) and all(fits(one, inner[1]) for one in value.values())
    if origin is collections.abc.Callable:
        return callable(value)
    if kind is None or kind is type(None):
        return value is None
    if not isinstance(kind, type):
        return True
    return _fits_type(value, kind)


def _fits_type(value: Any, kind: type) -> bool:
    import numpy as np

    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if kind is str or kind is Path or kind.__module__.partition(".")[0] == "twinax":
        return isinstance(value, kind)
    return True


def _fits_tuple(value: Any, inner: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple | list):
        return False
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(fits(one, inner[0]) for one in value)
    return len(value) == len(inner) and all(map(fits, value, inner))


def _has(kind: Any, origins: tuple[Any, ...]) -> bool:
    return typing.get_origin(kind) in origins or any(_has(one, origins) for one in typing.get_args(kind))


def _wrong_call(name: str, signature: inspect.Signature, hints: Mapping[str, Any], args: Any, given: Any, error: Any):
    """Which names are unknown, missing or too many."""
    known = [key for key, one in signature.parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    unknown = [key for key in given if key not in known]
    takes = f"it takes {', '.join(known)}"
    if unknown and len(known) == len(signature.parameters):
        return f"{name} has no argument '{unknown[0]}': {_hint(unknown[0], known, hints)}{takes}"
    needed = [key for key in known[len(args) :] if key not in given]
    needed = [key for key in needed if signature.parameters[key].default is inspect.Parameter.empty]
    if needed:
        return f"{name} needs {needed[0]}, {_words(hints.get(needed[0], Any))}; {takes}"
    return f"{name} cannot be called so ({error}); {takes}"


def _hint(name: str, known: list[str], hints: Mapping[str, Any]) -> str:
    """What somebody who wrote this name wants here."""
    meant = (name, *_ELSEWHERE.get(name, ()))
    for key in (key for key in meant if key in known):
        return f"'{key}' is what it is called here; "
    for key in known:
        for options in _kinds(hints.get(key, Any)):
            if not dataclasses.is_dataclass(options):
                continue
            fields = {field.name for field in dataclasses.fields(options)}
            for field in (field for field in meant if field in fields):
                made = f"{getattr(options, '__name__', options)}({field}=...)"
                several = _has(hints[key], (dict, collections.abc.Mapping))
                return f"write {key}={{'name': {made}}}; " if several else f"write {key}={made}; "
    close = difflib.get_close_matches(name, known, n=1)
    return f"'{close[0]}' may be meant; " if close else ""


def _kinds(kind: Any) -> Iterator[Any]:
    inner = typing.get_args(kind)
    if not inner:
        yield kind
    for one in inner:
        yield from _kinds(one)


def _shown(value: Any) -> str:
    kind = type(value)
    if isinstance(value, type):
        return f"the class {value.__name__}, not one of its objects"
    if inspect.isroutine(value):
        return f"the function {getattr(value, '__name__', '')}"
    if isinstance(value, str | int | float | bool | list | tuple | dict | None):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return f"a {kind.__name__} of {kind.__module__.partition('.')[0]}"


def _words(kind: Any) -> str:
    """An annotation in words."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in inner))
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        example = {int: "(64, 64)", float: "(0.5, 1.0)", str: '("a", "b")'}.get(inner[0])
        return f"a tuple of several, each {_words(inner[0])}" + (f", such as {example}" if example else "")
    if origin is tuple:
        return f"a tuple of {len(inner)}: {', '.join(map(_words, inner))}"
    if origin in (list, collections.abc.Sequence):
        return f"a list whose entries are each {_words(inner[0])}"
    if origin in (dict, collections.abc.Mapping):
        return f"a dictionary whose values are each {_words(inner[1])}"
    if origin is collections.abc.Callable:
        return "a function"
    if kind in _WORDS:
        return _WORDS[kind]
    if kind is Any or not isinstance(kind, type):
        return "a value"
    way = getattr(kind, "_made_by", "")
    return f"a twinax {kind.__name__}" + (f" ({way})" if way else "")
