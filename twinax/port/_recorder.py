"""Keeps what a person's training does, step by step, so that it can be played again against JAX."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinax.bridge.weight_files import write_arrays
from twinax.errors import TwinaxError, require
from twinax.port._record import LINES, STEPS, Header, Record, Recorded, append_line, digest_of, write_header
from twinax.port._recorder_order import ORDER, Order
from twinax.port._recorder_reads import (
    ONE,
    described,
    leaves_of,
    memory_of,
    norms_of,
    number_of,
    optimizers_of,
    rates_of,
    said_of,
)
from twinax.port._step import Step


class Recorder:
    """Keeps batches, losses, terms, gradient norms and learning rates of a training, and where a replay may begin.

    In a loop of one's own there is one line to add, between `loss.backward()` and `optimizer.step()`, before clipping:

    >>> recorder = twinax.port.Recorder("record", module, optimizer)  # doctest: +SKIP
    >>> recorder.step(batch, loss=loss, terms={"entropy": entropy})  # doctest: +SKIP

    Several losses in turn have their optimizers by name, `{"critic_loss": ..., "actor_loss": ...}`, and
    `recorder.step(..., update="critic_loss")`. For a `port.Step`, `Recorder("record", step)` takes the steps:
    `info = recorder.step(batch)`. One of `every` steps is recorded, and `most` in all. Parameters, buffers and what
    optimizers remember are kept at the first recorded step, then once in `keep` recorded steps, and wherever steps
    between are not recorded: a replay begins anew there, so the rounding of float32 does not grow further. Without an
    optimizer every recorded step has its parameters. `close()`, or the end of a `with` block, keeps the last ones. A
    directory that has a record of the same module already is gone on with.

    What is replayed exactly is a loss that is a function of the module and the batch, also of noise that the batch
    brings. Of a loss that draws numbers itself (dropout, sampling) PyTorch's draws are not kept: its replay compares
    PyTorch and JAX on draws of our own, and both with the record only where a `port.Step` made the steps.
    """

    def __init__(
        self,
        directory: str | Path,
        module: Any,
        optimizer: Any = None,
        *,
        every: int = 1,
        most: int = 200,
        keep: int = 20,
    ):
        require("torch", "torch", "twinax.port")
        for name, value in (("every", every), ("most", most), ("keep", keep)):
            if value < 1:
                raise TwinaxError(f"{name} is {value}; it must be at least 1")
        self.directory = Path(directory)
        self._taker = module if isinstance(module, Step) else None
        self.module = module.module if isinstance(module, Step) else module
        self.optimizers = optimizers_of(self._taker, optimizer)
        self.every, self.most, self.keep = every, most, keep
        self._names = {id(p): name for name, p in self.module.named_parameters()}
        self._begin()
        self._order = Order()
        self._pending: dict[str, Recorded] = {}
        self._in_step: list[str] = []
        self._batch: tuple[Any, Recorded] | None = None
        self._chosen = self._start = self._follows = False
        self._since = 0
        self._open: int | None = None
        self._versions: dict[str, Any] = {}
        if self._taker is None:
            for name, one in self.optimizers.items():
                one.register_step_pre_hook(lambda *_, name=name: self._before_use(name))
                one.register_step_post_hook(lambda *_, name=name: self._after_use(name))

    @property
    def full(self) -> bool:
        """Whether as many steps are recorded as there may be."""
        return self.recorded >= self.most

    def step(
        self, batch: Any, *, loss: Any = None, terms: Mapping[str, Any] | None = None, update: str | None = None
    ) -> Any:
        """Record an update whose gradients are there and not yet used; of a `port.Step`, take the step and return what
        it returns."""
        if self._taker is not None:
            if loss is not None or terms or update:
                raise TwinaxError("a port.Step computes its losses itself; call recorder.step(batch) alone")
            return self._take(self._taker, batch)
        if loss is None:
            raise TwinaxError(f"recorder.step was given no loss; {ORDER}")
        name = self._update_name(update)
        if not self._enter(name):
            return None
        norms = norms_of(self._gradients(name))
        line = Recorded(
            self.steps,
            name,
            number_of("the loss", loss),
            {key: number_of(f"the term '{key}'", value) for key, value in (terms or {}).items()},
            math.hypot(*norms.values()),
            norms,
            rates=rates_of(self.optimizers.get(name)),
        )
        line = self._written(line, batch)
        if name in self.optimizers:
            self._pending[name] = line
        else:
            append_line(self.directory, line)
        return None

    def close(self) -> None:
        """Keep the parameters of now, as those after the last recorded step."""
        self._end()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # Which steps are recorded

    def _begin(self) -> None:
        """A new record, or the old one without the half line that a kill has left."""
        header = self._header()
        self.steps = self.recorded = 0
        if not (self.directory / "record.json").exists():
            (self.directory / STEPS).mkdir(parents=True, exist_ok=True)
            write_header(self.directory, header)
            return
        old = Record(self.directory)
        if old.header.parameters != header.parameters or list(old.header.optimizers) != list(header.optimizers):
            raise TwinaxError(
                f"{self.directory} holds the record of another module or of other optimizers; name another directory"
            )
        if (path := self.directory / LINES).exists():
            with path.open("r+b") as file:
                file.truncate(old.whole)
        self.steps, self.recorded = max((line.step for line in old.lines), default=0), len(old.steps)

    def _update_name(self, update: str | None) -> str:
        names = list(self.optimizers) or [update or ONE]
        if update is None and len(names) > 1:
            raise TwinaxError(f"there are several updates; say which this is: update='{names[0]}' or '{names[1]}'")
        name = names[0] if update is None else update
        if name not in names:
            raise TwinaxError(f"there is no update '{name}'; the recorder has optimizers for {', '.join(names)}")
        return name

    def _enter(self, name: str) -> bool:
        """Whether an update belongs to a step that is recorded; one that comes again begins the next step."""
        skipped = self._order.enter(name, self._pending)
        if skipped:
            self._pending.clear()
            self._open = None
        if self._in_step and name not in self._in_step:
            self._in_step.append(name)
            self._start = False
        else:
            self._in_step, self._batch = [name], None
            self._choose(self.steps + 1)
        return self._chosen

    def _choose(self, step: int) -> None:
        self.steps = step
        self._chosen = not self.full and (step - 1) % self.every == 0
        self._follows = self._open == step - 1
        self._start = self._chosen and not (self._follows and self._since < self.keep)
        if not self._chosen:
            self._end()
            return
        self._since = 1 if self._start else self._since + 1
        self._open = step if self.optimizers else None
        self.recorded += 1

    def _end(self) -> None:
        """Write the parameters after the last recorded step."""
        if self._open is None or self._pending:
            return
        line = Recorded(self._open, ONE, 0.0, {}, None, end=True)
        arrays = {f"parameters/{name}": p.detach() for name, p in self.module.named_parameters()}
        append_line(self.directory, self._filed(line, f"{self._open:08d}.end.safetensors", arrays))
        self._open = None

    # The gradients of an update

    def _gradients(self, name: str) -> dict[str, Any]:
        """Gradients by name, which nothing has used yet."""
        found = {self._names[id(p)]: p.grad for p in self._trained(name) if p.grad is not None}
        if not found:
            raise TwinaxError(f"no parameter of '{name}' has a gradient in step {self.steps}; {ORDER}")
        if self._order.used_already(name, found):
            raise TwinaxError(
                f"the gradients of '{name}' in step {self.steps} are those that optimizer.step() has used already; "
                f"{ORDER}"
            )
        return found

    def _trained(self, name: str) -> list[Any]:
        if name in self.optimizers:
            return [p for group in self.optimizers[name].param_groups for p in group["params"]]
        return list(self.module.parameters())

    def _before_use(self, name: str) -> None:
        if name in self._pending:
            norms = norms_of({str(k): p.grad for k, p in enumerate(self._trained(name)) if p.grad is not None})
            self._pending[name] = replace(self._pending[name], used_norm=math.hypot(*norms.values()))

    def _after_use(self, name: str) -> None:
        self._order.use(name, [p.grad for p in self._trained(name) if p.grad is not None])
        if name in self._pending:
            append_line(self.directory, self._pending.pop(name))

    # Steps of port.Step

    def _take(self, taker: Step, batch: Any) -> Any:
        if taker.steps != self.steps:
            self._open = None
        before = self.recorded, self._since, self._open
        self._choose(taker.steps + 1)
        line = Recorded(self.steps, ONE, 0.0, {}, None)
        if self._chosen:
            self._batch = None
            if self._start:
                taker.push()  # so that optimizers remember what the step does
            line = self._written(line, batch)
        done = taker.steps
        try:
            info = taker(batch)
        except TwinaxError:  # such as of a loss that is not finite: nothing was done
            self.steps -= 1
            if self._chosen:
                self.recorded, self._since, self._open = before
            raise
        for k, (name, optimizer) in enumerate(self.optimizers.items() if self._chosen else ()):
            if (found := said_of(info, name, len(self.optimizers) == 1)) is None:
                continue
            value, norm, terms = found
            append_line(
                self.directory,
                replace(
                    line,
                    update=name,
                    loss=value,
                    terms=terms,
                    grad_norm=norm,
                    rates=rates_of(optimizer),
                    seed=taker.seed,
                    draws=done * len(self.optimizers) + k,
                ),
            )
            line = replace(line, start=False)
        return info

    # Files

    def _written(self, line: Recorded, batch: Any) -> Recorded:
        """Write the arrays that belong to an update."""
        if self._batch is not None and self._batch[0] is batch:
            first = self._batch[1]
            return replace(line, file=first.file, digest=first.digest, constants=first.constants)
        arrays, constants = leaves_of(batch)
        arrays |= {f"buffers/{name}": b.detach() for name, b in self._changed_buffers()}
        if self._start:
            arrays |= {f"parameters/{name}": p.detach() for name, p in self.module.named_parameters()}
            for k, optimizer in enumerate(self.optimizers.values()):
                arrays |= {f"memory/{k}/{name}": x for name, x in memory_of(optimizer, self._names).items()}
        more = "" if self._batch is None else f".{self._in_step.index(line.update) + 1}"
        name = f"{self.steps:08d}{more}.safetensors"
        line = self._filed(replace(line, start=self._start, follows=self._follows, constants=constants), name, arrays)
        if self._batch is None:
            self._batch = batch, line
        return line

    def _filed(self, line: Recorded, name: str, arrays: Mapping[str, Any]) -> Recorded:
        path = self.directory / STEPS / name
        write_arrays(path, arrays, {"format": "pt"}, f"step {line.step} of the record")
        return replace(line, file=f"{STEPS}/{name}", digest=digest_of(path))

    def _changed_buffers(self) -> list[tuple[str, Any]]:
        """All buffers where a replay begins, else those that were written to since they were last kept."""
        named = dict(self.module.named_buffers())
        versions = {name: (id(b), b._version) for name, b in named.items()}
        before = {} if self._start else self._versions
        self._versions = versions
        return [(name, named[name]) for name, version in versions.items() if before.get(name) != version]

    def _header(self) -> Header:
        from twinax import __version__

        parameters = dict(self.module.named_parameters())
        if not parameters:
            raise TwinaxError(f"the {type(self.module).__name__} has no parameters, so there is no training to record")
        optimizers = {name: described(name, one, self._names) for name, one in self.optimizers.items()}
        return Header(
            {name: list(p.shape) for name, p in parameters.items()},
            str(next(iter(parameters.values())).dtype).removeprefix("torch."),
            bool(self.module.training),
            optimizers,
            self.every,
            __version__,
        )
