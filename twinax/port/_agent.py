"""What a person gives the command line: a module, and with a loss what trains it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinax.errors import TwinaxError, UnknownName
from twinax.port._updates import Target, Update
from twinax.registry import import_code


@dataclass(frozen=True)
class Agent:
    """What `twinax port FILE.py:make` calls `make` for.

    >>> def make():
    ...     agent = MyAgent()
    ...     return tx.port.Agent(agent, batch, loss, torch.optim.Adam(agent.parameters()))
    """

    module: Any
    batch: Any
    """One batch, or the input of a module without a loss; several inputs are a tuple."""
    loss: Callable[..., Any] | Sequence[Update] | None = None
    """`loss(module, batch)`, or a list of `Update`."""
    optimizer: Any = None
    targets: Sequence[Target] = ()
    sample: Callable[[], Any] | None = None
    """One turn of the sampler, as much as there is for one update; its time gives the ceiling."""
    clip_norm: float = 0.0
    jax_loss: Callable[..., Any] | Mapping[str, Callable[..., Any]] | None = None
    """A JAX port of one's own that `replay` judges, `loss(params, batch)`; of several updates a dict by their names."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the module alone is called with."""
        return self.batch if isinstance(self.batch, tuple) and self.loss is None else (self.batch,)


def make_agent(name: str) -> Agent:
    """What `FILE.py:make` or `package.module:make` makes, called without arguments."""
    make = named_function(name, "agent")
    made = make() if callable(make) else make
    if isinstance(made, Agent):
        return made
    if isinstance(made, tuple) and len(made) >= 2:
        return Agent(made[0], made[1] if len(made) == 2 else tuple(made[1:]))
    raise TwinaxError(
        f"{name} gave a {type(made).__name__}; return a twinax.port.Agent, or a tuple of the module and its inputs"
    )


def named_function(name: str, what: str) -> Any:
    """What `FILE.py:name` or `package.module:name` is."""
    place, _, attribute = name.rpartition(":")
    if not place:
        raise TwinaxError(f"'{name}' names no function; write the file and the function, as agent.py:make")
    return _in_file(Path(place), attribute) if place.endswith(".py") else import_code(name, what)


def _in_file(path: Path, attribute: str) -> Any:
    if not path.is_file():
        raise TwinaxError(f"there is no file {path}; write the file and the function, as agent.py:make")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    if (folder := str(path.resolve().parent)) not in sys.path:
        sys.path.insert(0, folder)  # its neighbours are imported as in a script
    spec.loader.exec_module(module)
    if not hasattr(module, attribute):
        known = [name for name, x in vars(module).items() if callable(x) and not name.startswith("_")]
        raise UnknownName(f"function in {path}", attribute, known)
    return getattr(module, attribute)
