"""A compiled training step around a person's own module: loss, gradients, clipping and update in one JAX program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge import ParameterSync, to_jax, to_torch
from twinax.errors import TwinaxError, require
from twinax.noise import key_draws
from twinax.port._batches import flags_of, to_arrays
from twinax.port._capture import Capture, unbound
from twinax.port._evaluate import evaluate
from twinax.port._function import Function
from twinax.port._memory import Managed
from twinax.port._profile import Profile, profile
from twinax.port._refusals import check_module
from twinax.port._shapes import aligned, signature_of, unflatten
from twinax.port._updates import Target, Update, clipped, global_norm

Info = dict[str, Any]


@dataclass
class Compiled:
    """A program for batches of one kind, and what it needs on the host."""

    run: Callable[..., Any]
    trained: tuple[tuple[str, ...], ...]
    """Of each update that takes part, the parameters that it moves."""
    scalars: list[str]
    """Names of the numbers in its first result, in order."""


class Step:
    """`step(batch)` does in JAX what `loss.backward(); optimizer.step()` does in PyTorch, and leaves the module's
    parameters new.

    `loss(module, batch)` gives a scalar, or that and a dict of tensors to look at. Instead of one loss there may be a
    list of `Update`, done in turn, each on what those before have left; `targets` follow afterwards. Optimizers are
    those of `torch.optim`: their groups, and what schedulers make of them, are read in every step. Their own memory is
    up to date whenever PyTorch asks for it (`state_dict`, `step`), so training can go on in PyTorch at any time. The
    module's parameters become views of one buffer. With `check`, the first batch of each kind proves every loss.

    >>> step = twinax.port.Step(agent, loss, torch.optim.Adam(agent.parameters(), 3e-4))  # doctest: +SKIP
    >>> info = step(batch)  # doctest: +SKIP
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[..., Any] | Sequence[Update],
        optimizer: Any = None,
        *,
        clip_norm: float = 0.0,
        clip_value: float = 0.0,
        targets: Iterable[Target] = (),
        seed: int = 0,
        check: bool = True,
    ):
        require("torch", "torch", "twinax.port")
        check_module(module)
        _check_precision(module)
        self.module = module
        updates = self.updates_of(loss, optimizer, clip_norm, clip_value)
        self.updates = tuple(replace(one, loss=unbound(one.loss, module)) for one in updates)
        self.targets = tuple(targets)
        self.seed = seed
        self.check = check
        self.steps = 0
        """Steps done."""
        self.managed = [Managed(update.optimizer, module) for update in self.updates]
        self._moved = _moved(module, self.managed, self.targets)
        self._sync = ParameterSync({name: p for name, p in module.named_parameters() if name in self._moved})
        self._functions: list[Function | None] = [None] * len(self.updates)
        self._programs: dict[Any, Compiled] = {}
        self._first: Any = None
        self.pull()
        for managed in self.managed:
            _serve(self, managed)

    def __call__(self, batch: Any) -> Info:
        """One step; what the losses gave, by name, as numbers."""
        self._check_unchanged()
        self._first = batch if self._first is None else self._first
        batch = aligned(batch, self._first)
        active = tuple(k for k, update in enumerate(self.updates) if (self.steps + 1) % update.every == 0)
        following = tuple(k for k, target in enumerate(self.targets) if (self.steps + 1) % target.every == 0)
        arrays, rebuild = to_arrays(batch)
        program = self._program(batch, rebuild, active, following)
        numbers = [self.managed[k].numbers(names) for k, names in zip(active, program.trained, strict=True)]
        scalars, extra, flat, state = program.run(
            self._state, arrays, numbers, np.uint32(self.seed), np.int32(self.steps * len(self.updates))
        )
        values = np.asarray(scalars)
        self._state = state
        if not values[0]:
            raise TwinaxError(self._not_finite(program, values))
        self._flat = flat
        self.push_parameters()
        self.steps += 1
        for k, names in zip(active, program.trained, strict=True):
            setattr(self.managed[k].optimizer, "_opt_called", True)  # noqa: B010  (a scheduler asks for it)
            for name in names:
                self.managed[k].counts[name] += 1
        return {**dict(zip(program.scalars[1:], values[1:].tolist(), strict=True)), **jax.tree.map(np.asarray, extra)}

    @staticmethod
    def updates_of(loss: Any, optimizer: Any, clip_norm: float = 0.0, clip_value: float = 0.0) -> tuple[Update, ...]:
        """What a loss and an optimizer, or a list of `Update`, come to."""
        return _updates(loss, optimizer, clip_norm, clip_value)

    # What the module and the step have of each other

    def numbers(self) -> dict[str, Any]:
        """Parameters, buffers and what optimizers remember, as JAX arrays by name."""
        return self._state

    def pull(self) -> None:
        """Take over the numbers that the module and its optimizers have now."""
        for managed in self.managed:
            managed.pull()
        self._state = {
            "parameters": {name: _taken(p) for name, p in self.module.named_parameters()},
            "buffers": {name: _taken(b) for name, b in self.module.named_buffers()},
            "memory": [managed.memory for managed in self.managed],
        }
        self._flat = None
        self._remember_versions()

    def push_parameters(self) -> None:
        """Give the module what the last step made, in one copy; every step does."""
        if self._flat is None:
            self._sync.push({name: self._state["parameters"][name] for name in self._sync.names})
        else:
            self._sync.push(self._flat)
        self._give_buffers()
        self._remember_versions()

    def push(self) -> None:
        """Give the module and its optimizers the step's numbers; after every step the module has them anyway."""
        self.push_parameters()
        for k in range(len(self.managed)):
            self._give_memory(k)

    def _give_buffers(self) -> None:
        import torch

        changed = self._changed_buffers
        if not changed:
            return
        named = dict(self.module.named_buffers())
        with torch.no_grad():
            for name in changed:
                named[name].copy_(to_torch(self._state["buffers"][name]))

    def _give_memory(self, k: int) -> None:
        self.managed[k].memory = self._state["memory"][k]
        self.managed[k].push()

    def _remember_versions(self) -> None:
        self._versions = {name: (id(p), p._version) for name, p in self.module.named_parameters()}
        self._buffer_versions = _versions_of_buffers(self.module)

    def _check_unchanged(self) -> None:
        for name, p in self.module.named_parameters():
            if self._versions.get(name) != (id(p), p._version):
                raise TwinaxError(
                    f"the module's parameter '{name}' was changed outside of the step; call step.pull() to go on from "
                    "the module's numbers, or step.push() to put the step's back"
                )
        for managed in self.managed:
            managed.check_groups()
        if self._buffer_versions != _versions_of_buffers(self.module):  # as sampling in training changes statistics
            self._state["buffers"] = {name: _taken(b) for name, b in self.module.named_buffers()}

    def copied(self) -> Any:
        """All that a step changes, as a copy for `restore`."""
        counts = [dict(managed.counts) for managed in self.managed]
        return jax.tree.map(jnp.array, self._state), counts, self.steps

    def restore(self, copied: Any) -> None:
        """Be again as at a copy."""
        state, counts, self.steps = copied
        self._state, self._flat = state, None
        for managed, count in zip(self.managed, counts, strict=True):
            managed.counts = dict(count)
        self.push()

    def profile(self, batch: Any, sample: Callable[[], Any] | None = None, turns: int = 20) -> Profile:
        """Where the time goes, by turns with PyTorch: phases, and what the whole loop gains if the sampler stays.

        `sample` is one turn of a person's sampler, as many calls as there are for one update.
        """
        return profile(self, batch, sample, turns)

    # Programs

    def function(self, k: int, batch: Any) -> Function:
        """The loss of an update as a function, proven when it is made."""
        found = self._functions[k]
        if found is None:
            found = self._functions[k] = Function(self.module, (batch,), self.updates[k].loss)
        return found

    @property
    def _changed_buffers(self) -> set[str]:
        return {name for one in self._functions if one is not None for name in one.changed}

    def _program(self, batch: Any, rebuild: Any, active: tuple[int, ...], following: tuple[int, ...]) -> Compiled:
        switches = tuple(self.managed[k].switches() for k in active)
        key = (signature_of(batch), flags_of(self.module), active, following, switches)
        if key not in self._programs:
            captures = {}
            for k in active:
                function = self.function(k, batch)
                captures[k] = function.capture((batch,))
                _check_scalar(self.updates[k], captures[k])
                if self.check:
                    function.check(batch).raise_if_different()
            self._programs[key] = self._compile(captures, following, rebuild)
        return self._programs[key]

    def _compile(self, captures: Mapping[int, Capture], following: tuple[int, ...], rebuild: Any) -> Compiled:
        frozen = {name for name, p in self.module.named_parameters() if not p.requires_grad}
        trained = {}
        for k, capture in captures.items():
            reached = capture.program.reached() - frozen
            trained[k] = tuple(name for name in self.managed[k].parameters if name in reached)
            if not trained[k]:
                raise TwinaxError(
                    f"the loss '{self.updates[k].title}' reaches no parameter of its optimizer: what it is made of was "
                    "detached, or is frozen"
                )
        rules = {k: {name: self.managed[k].rule(name) for name in names} for k, names in trained.items()}
        pairs = [(self.targets[k], self.targets[k].pairs(self._state["parameters"])) for k in following]
        single = len(self.updates) == 1
        labels: list[str] = []

        def run(state: Any, arrays: Any, numbers: Any, seed: Any, first: Any) -> Any:
            parameters, buffers = dict(state["parameters"]), dict(state["buffers"])
            memory = [dict(one) for one in state["memory"]]
            shown: dict[str, Any] = {}
            leaves, guarded = rebuild(arrays), []
            for place, (k, capture) in enumerate(captures.items()):
                draws = key_draws(capture.program.draws, seed, first + k)
                moved = {name: parameters[name] for name in trained[k]}

                def loss(moved: Any, capture=capture, draws=draws, parameters=parameters, buffers=buffers):
                    results, changed = evaluate(capture.program, {**parameters, **moved}, buffers, leaves, draws)
                    result = unflatten(results, capture.outputs)
                    value, aux = result if isinstance(result, tuple) else (result, {})
                    return value.reshape(()), (aux, changed)

                (value, (aux, changed)), gradients = jax.value_and_grad(loss, has_aux=True)(moved)
                norm = global_norm(gradients)
                guarded += [value, norm.astype(value.dtype)]
                update = self.updates[k]
                gradients = clipped(gradients, norm, update.clip_norm, update.clip_value)
                for row, name in enumerate(trained[k]):
                    p = parameters[name]
                    own = [jnp.asarray(x, p.dtype) for x in numbers[place][row]][: rules[k][name].width]
                    parameters[name], memory[k][name] = rules[k][name].update(p, gradients[name], memory[k][name], own)
                buffers.update(changed)
                names = (
                    ("loss", "grad_norm", "")
                    if single
                    else (update.title, f"{update.title}/grad_norm", f"{update.title}/")
                )
                shown |= {names[0]: value, names[1]: norm, **{names[2] + key: x for key, x in aux.items()}}
            for target, followers in pairs:
                for name, source in followers.items():
                    old, new = parameters[name], parameters[source]
                    parameters[name] = new if target.tau == 1 else old + target.tau * (new - old)
            scalars = {name: jnp.asarray(x) for name, x in shown.items() if jtu.all_leaves([x]) and jnp.ndim(x) == 0}
            fine = jnp.isfinite(jnp.stack(guarded)).all()
            made = {"parameters": parameters, "buffers": buffers, "memory": memory}
            kept = jax.tree.map(lambda new, old: new if new is old else jnp.where(fine, new, old), made, state)
            labels[:] = ["fine", *scalars]
            packed = jnp.stack([x.astype(guarded[0].dtype) for x in (fine, *scalars.values())])
            extra = {name: x for name, x in shown.items() if name not in scalars}
            flat = self._sync.ravel({name: kept["parameters"][name] for name in self._sync.names})
            return packed, extra, flat, kept

        return Compiled(jax.jit(run, donate_argnums=0), tuple(trained.values()), labels)

    def _not_finite(self, program: Compiled, values: np.ndarray) -> str:
        first = next(name for name, x in zip(program.scalars[1:], values[1:], strict=True) if not np.isfinite(x))
        value = values[program.scalars.index(first)]
        return (
            f"'{first}' is {value:g} in step {self.steps + 1}; the module and its optimizers are as they were before it"
        )

    # Files

    def save(self, path: str | Path) -> None:
        """Everything that the step needs to go on, in one safetensors file: parameters, buffers, what optimizers
        remember and are set to, and the number of steps."""
        from twinax.port._step_files import save_step

        save_step(self, Path(path))

    def load(self, path: str | Path) -> None:
        """Go on from a saved file; the module and its optimizers are then as they were."""
        from twinax.port._step_files import load_step

        load_step(self, Path(path))


def _updates(loss: Any, optimizer: Any, clip_norm: float = 0.0, clip_value: float = 0.0) -> tuple[Update, ...]:
    if callable(loss):
        if optimizer is None:
            raise TwinaxError("a step needs an optimizer, such as torch.optim.Adam(module.parameters())")
        return (Update(loss, optimizer, clip_norm=clip_norm, clip_value=clip_value),)
    updates = tuple(loss)
    if not updates or not all(isinstance(one, Update) for one in updates):
        raise TwinaxError("a step takes a loss function and an optimizer, or a list of twinax.port.Update")
    if optimizer is not None or clip_norm or clip_value:
        raise TwinaxError("each Update has its own optimizer and clipping; give them there")
    titles = [one.title for one in updates]
    if twice := next((title for title in titles if titles.count(title) > 1), None):
        raise TwinaxError(f"two updates are called '{twice}'; give each a name of its own")
    return updates


def _moved(module: Any, managed: Iterable[Managed], targets: Iterable[Target]) -> set[str]:
    """Parameters that a step may change."""
    found = {name for one in managed for name in one.parameters}
    return found | {name for target in targets for name in target.pairs(dict(module.named_parameters()))}


def _check_precision(module: Any) -> None:
    """Refuse parameters that a step cannot hold in one buffer, or JAX not at all."""
    import torch

    kinds = {name: p.dtype for name, p in module.named_parameters()}
    for name, dtype in kinds.items():
        if dtype not in (torch.float32, torch.float64):
            raise TwinaxError(
                f"the parameter '{name}' is {str(dtype)[6:]}; a step trains float32 or float64, so call module.float()"
            )
        first, other = next(iter(kinds.items()))
        if dtype != other:
            raise TwinaxError(
                f"the parameter '{first}' is {str(other)[6:]} but '{name}' {str(dtype)[6:]}; a step has one precision, "
                "so call module.float()"
            )
        if dtype == torch.float64 and not jax.config.read("jax_enable_x64"):
            raise TwinaxError(
                f"the parameter '{name}' is float64, which JAX has switched off; call "
                "jax.config.update('jax_enable_x64', True) first, or module.float()"
            )


def _versions_of_buffers(module: Any) -> list[Any]:
    """Of running statistics only the count of batches has one, but it is there."""
    return [(id(b), b._version) for b in module.buffers()]


def _taken(tensor: Any) -> Any:
    return jnp.array(to_jax(tensor.detach(), narrow="allow"))


def _serve(step: Step, managed: Managed) -> None:
    """Before PyTorch reads or uses the optimizer's memory, it is given the step's; what it loads is taken over."""
    weak, k = weakref.ref(step), step.managed.index(managed)

    def give(*_: Any) -> None:
        one = weak()
        if one is not None:
            one._give_memory(k)

    def take(*_: Any) -> None:
        one = weak()
        if one is not None:
            one.managed[k].pull()
            one._state["memory"][k] = one.managed[k].memory

    managed.optimizer.register_state_dict_pre_hook(give)
    managed.optimizer.register_step_pre_hook(give)
    managed.optimizer.register_step_post_hook(take)
    managed.optimizer.register_load_state_dict_post_hook(take)


def _check_scalar(update: Update, capture: Capture) -> None:
    shape, whole = capture.shapes[0] if capture.shapes else None, capture.outputs
    parts = whole.children() if whole.type is tuple else [whole]
    fits = parts[0].is_leaf() and (len(parts) == 1 or (len(parts) == 2 and issubclass(parts[1].type or int, Mapping)))
    if not fits:
        given = "a tuple" if whole.type is tuple else f"a {whole.type.__name__}"
    elif shape is None:
        given = "no tensor"
    elif int(np.prod(shape)) != 1:
        given = f"a tensor of shape {tuple(shape)}"
    else:
        given = next((f"the text '{x}'" for x in capture.program.results if isinstance(x, str)), None)
    if given is not None:
        raise TwinaxError(
            f"the loss '{update.title}' gives {given}; it must be a scalar, such as its mean, or a scalar and a dict "
            "of tensors to look at"
        )
