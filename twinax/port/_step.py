"""A compiled training step around a person's own module: loss, gradients, clipping and update in one JAX program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge import ParameterSync, to_jax, to_numpy, to_torch
from twinax.errors import TwinaxError, require
from twinax.port._batches import key_of, rebuilt, to_arrays
from twinax.port._blocks import Block, blocks_of
from twinax.port._capture import Capture, unbound
from twinax.port._function import Function
from twinax.port._memory import Managed
from twinax.port._products import quick_gradients
from twinax.port._profile import Profile, profile
from twinax.port._refusals import check_module
from twinax.port._shapes import aligned
from twinax.port._step_program import StepProgram
from twinax.port._updates import Target, Update
from twinax.port._watch import Watch

Info = dict[str, Any]


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
        if not 0 <= seed < 2**32:
            raise TwinaxError(f"the seed is {seed}; it must be at least 0 and below {2**32}")
        self.seed = seed
        self.check = check
        self.steps = 0
        """Steps done."""
        self.managed = [Managed(update.optimizer, module) for update in self.updates]
        self._blocks = blocks_of(module, self.managed, self.targets)
        self._functions: list[Function | None] = [None] * len(self.updates)
        self._programs: dict[Any, StepProgram] = {}
        self._proven: list[Capture] = []
        self._watch = Watch(module)
        self._first: Any = None
        self.pull()
        for managed in self.managed:
            _serve(self, managed)

    def __call__(self, batch: Any) -> Info:
        """One step; what the losses gave, by name, as numbers."""
        self._check_unchanged()
        self._first = batch if self._first is None else self._first
        batch = aligned(batch, self._first)
        active = tuple([k for k, update in enumerate(self.updates) if (self.steps + 1) % update.every == 0])
        following = tuple([k for k, target in enumerate(self.targets) if (self.steps + 1) % target.every == 0])
        program = self._program(batch, active, following)
        numbers = {
            k: {b: self.managed[k].numbers(part) for b, part in parts.items()} for k, parts in program.trained.items()
        }
        changed = {name: self._buffers[name] for name in program.changed}
        scalars, extra, made = program.run(
            {**self._moving, "buffers": changed},
            {"parameters": self._fixed, "buffers": {name: self._buffers[name] for name in program.kept}},
            to_arrays(batch),
            numbers,
            np.uint32(self.seed),
            np.uint32(self.steps * len(self.updates)),
        )
        # At once: what was given up for it is gone, whatever interrupts the rest.
        self._buffers |= made.pop("buffers")
        self._moving = made
        values = np.asarray(scalars).tolist()
        if not values[0]:
            raise TwinaxError(self._not_finite(program, values))
        self._give_parameters(program.changed)
        self.steps += 1
        for k, parts in program.trained.items():
            managed = self.managed[k]
            setattr(managed.optimizer, "_opt_called", True)  # noqa: B010  (a scheduler asks for it)
            for part in parts.values():
                managed.count(part)
        info = dict(zip(program.scalars, values[1:], strict=True))
        return {**info, **jax.tree.map(np.asarray, extra)} if extra else info

    @staticmethod
    def updates_of(loss: Any, optimizer: Any, clip_norm: float = 0.0, clip_value: float = 0.0) -> tuple[Update, ...]:
        """What a loss and an optimizer, or a list of `Update`, come to."""
        return _updates(loss, optimizer, clip_norm, clip_value)

    # What the module and the step have of each other

    def numbers(self) -> dict[str, Any]:
        """Parameters, buffers and what optimizers remember, as arrays by name: copies."""
        parameters = dict(self._fixed)
        for block, flat in zip(self._blocks, self._moving["blocks"], strict=True):
            parameters |= block.split(np.array(flat))
        memory = [self._memory_by_name(k) for k in range(len(self.managed))]
        return {"parameters": parameters, "buffers": jax.tree.map(np.array, self._buffers), "memory": memory}

    def pull(self) -> None:
        """Take over the numbers that the module and its optimizers have now."""
        own = dict(self.module.named_parameters())
        self._syncs = [ParameterSync({name: own[name] for name in block.names}) for block in self._blocks]
        named = {name: _taken(p) for name, p in own.items()}
        moved = {name for block in self._blocks for name in block.names}
        self._fixed = {name: x for name, x in named.items() if name not in moved}
        self._buffers = {name: _taken(b) for name, b in self.module.named_buffers()}
        self._moving: dict[str, Any] = {"blocks": [jnp.array(block.join(named)) for block in self._blocks]}
        self._moving["memory"] = [self._pulled(k) for k in range(len(self.managed))]
        self._watch.remember()

    def push_parameters(self) -> None:
        """Give the module what the last step made, a copy for each block; every step does."""
        self._give_parameters(self._buffers)

    def push(self) -> None:
        """Give the module and its optimizers the step's numbers; after every step the module has them anyway."""
        self.push_parameters()
        for k in range(len(self.managed)):
            self._give_memory(k)

    def _give_parameters(self, buffers: Iterable[str]) -> None:
        for sync, flat in zip(self._syncs, self._moving["blocks"], strict=True):
            sync.push(flat)
        if buffers:
            import torch

            named = dict(self.module.named_buffers())
            with torch.no_grad():
                for name in buffers:
                    named[name].copy_(to_torch(self._buffers[name]))
        self._watch.remember_numbers()

    def _memory_by_name(self, k: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {name: {} for name in self.managed[k].parameters}
        for b, held in self._moving["memory"][k].items():
            for key, flat in held.items():
                for name, x in self._blocks[b].split(np.array(flat)).items():
                    found[name][key] = x
        return found

    def _give_memory(self, k: int) -> None:
        self.managed[k].memory = self._memory_by_name(k)
        self.managed[k].push()

    def _pulled(self, k: int) -> dict[int, dict[str, Any]]:
        """What an optimizer remembers now, by block."""
        memory = self.managed[k].pull()
        own = {b: block for b, block in enumerate(self._blocks) if k in block.optimizers}
        return {
            b: {key: jnp.array(block.join({n: memory[n][key] for n in block.names})) for key in memory[block.names[0]]}
            for b, block in own.items()
        }

    def _check_unchanged(self) -> None:
        """Refuse to go on if what the step trains is no longer what it made; what it only reads is read anew."""
        for managed in self.managed:
            managed.check_groups()
        named = dict(self.module.named_parameters()) if (changed := self._watch.changed()) or self._fixed else {}
        changed = [name for name in changed if name not in self._fixed or name not in named]
        for sync, flat in zip(self._syncs, self._moving["blocks"], strict=True):
            changed += [name] if (name := sync.changed(flat)) is not None else []
        if changed:
            raise TwinaxError(
                f"the module's parameter '{changed[0]}' was changed outside of the step; call step.pull() to go on "
                "from the module's numbers, or step.push() to put the step's back"
            )
        for name, kept in self._fixed.items():
            if not _equal(named[name], kept):
                self._fixed[name] = _taken(named[name])
        for name, buffer in self.module.named_buffers():
            if not _equal(buffer, self._buffers[name]):
                self._buffers[name] = _taken(buffer)
        if named:
            self._watch.remember()

    def copied(self) -> Any:
        """All that a step changes, as a copy for `restore`."""
        counts = [dict(managed.counts) for managed in self.managed]
        return jax.tree.map(np.array, (self._moving, self._buffers)), counts, self.steps

    def restore(self, copied: Any) -> None:
        """Be again as at a copy."""
        arrays, counts, self.steps = copied
        self._moving, self._buffers = jax.tree.map(jnp.array, arrays)
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

    def _idle(self) -> frozenset[Any]:
        """Attributes of the module that were seen to make no difference to any loss."""
        found = [one.idle for one in self._functions if one is not None]
        return frozenset.intersection(*found) if found else frozenset()

    def _program(self, batch: Any, active: tuple[int, ...], following: tuple[int, ...]) -> StepProgram:
        switches = tuple([self.managed[k].switches() for k in active])
        key = (key_of(batch), self._watch.flags(self._idle()), active, following, switches)
        found = self._programs.get(key)
        if found is None or not found.is_current():
            captures = {k: self.function(k, batch).capture((batch,)) for k in active}
            # Where only attributes changed that make no difference, it is the program of before.
            same = (key[0], *((k, id(one)) for k, one in captures.items()), active, following, switches)
            found = self._programs.get(same)
            if found is None or not found.is_current():
                for k, capture in captures.items():
                    _check_scalar(self.updates[k], capture)
                    if self.check and capture not in self._proven:
                        with quick_gradients():  # what the program differentiates by
                            self.function(k, batch).check(batch).raise_if_different()
                        self._proven.append(capture)
                found = self._programs[same] = self._compile(captures, following, batch)
            self._programs[key[0], self._watch.flags(self._idle()), active, following, switches] = found
        self._adopt(active)
        return found

    def _adopt(self, active: Iterable[int]) -> None:
        """Arrays that an optimizer remembers since it was set otherwise, such as with momentum, begin with zeros."""
        for k in active:
            for b, held in self._moving["memory"][k].items():
                if set(self.managed[k].rule(self._blocks[b].names[0]).memory) - set(held):
                    self._give_memory(k)
                    self._moving["memory"][k] = self._pulled(k)
                    break

    def _compile(self, captures: Mapping[int, Capture], following: tuple[int, ...], batch: Any) -> StepProgram:
        frozen = {name for name, p in self.module.named_parameters() if not p.requires_grad}
        trained = {}
        for k, capture in captures.items():
            trained[k] = _parts(self._blocks, k, capture.program.reached() - frozen)
            if not trained[k]:
                raise TwinaxError(
                    f"the loss '{self.updates[k].title}' reaches no parameter of its optimizer: what it is made of was "
                    "detached, or is frozen"
                )
        rules = {k: {b: self.managed[k].rule(part[0]) for b, part in parts.items()} for k, parts in trained.items()}
        named = dict(self.module.named_parameters())
        pairs = [(self.targets[k], self.targets[k].pairs(named)) for k in following]
        return StepProgram(self.updates, self._blocks, captures, trained, rules, pairs, rebuilt(batch))

    def _not_finite(self, program: StepProgram, values: Sequence[float]) -> str:
        wrong = [(name, x) for name, x in zip(program.scalars, values[1:], strict=True) if not isfinite(x)]
        name, value = next((one for one in wrong if one[0] in program.guarded), ("the gradient", float("nan")))
        return (
            f"'{name}' is {value:g} in step {self.steps + 1}; the module and its optimizers are as they were before it"
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
    owners = [id(one.optimizer) for one in updates]
    if len(set(owners)) < len(owners):
        raise TwinaxError("two updates share one optimizer; give each its own, or add their losses up in one")
    titles = [one.title for one in updates]
    if twice := next((title for title in titles if titles.count(title) > 1), None):
        raise TwinaxError(f"two updates are called '{twice}'; give each a name of its own")
    return updates


def _parts(blocks: Sequence[Block], k: int, reached: Collection[str]) -> dict[int, tuple[str, ...]]:
    """Of each block of an optimizer, what its loss reaches."""
    own = {b: tuple(name for name in block.names if name in reached) for b, block in enumerate(blocks)}
    return {b: part for b, part in own.items() if part and k in blocks[b].optimizers}


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


def _equal(tensor: Any, kept: Any) -> bool:
    """Whether a tensor has the numbers that are kept of it."""
    return np.array_equal(to_numpy(tensor.detach()), np.asarray(kept), equal_nan=tensor.is_floating_point())


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
            one._moving["memory"][k] = one._pulled(k)

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
