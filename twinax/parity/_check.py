"""Proof that the modes of one problem agree: a ladder from structure to whole training runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

import numpy as np

from twinax import tree
from twinax.arguments import checked
from twinax.engines import MODES, QUICK_COMPILE, DrawBlocks, Engine, NonFinite, make_engine, mode_name, one_torch_thread
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import as_torch_module, num_parameters
from twinax.parity._counts import counts_of
from twinax.parity._difference import FLOOR, WEIGHTS_FLOOR, compare
from twinax.parity._differentiate import Values
from twinax.parity._hints import Evidence, likely_cause
from twinax.parity._loss_rungs import compare_gradients, compare_values
from twinax.parity._optimizers import INJECTED, injected_updates
from twinax.parity._precision import precision
from twinax.parity._probes import moved_networks, padding_probe, transpose_probe
from twinax.parity._report import Report, Row
from twinax.parity._sides import Side, make_sides, widened
from twinax.problem import Loss, Problem

Progress = Callable[[str, str], None]
"""Is told what is looked at next, and in which mode."""
_DEVICES = {"torch": "cpu", "hybrid": "cpu", "jax": "auto"}
"""A proof is about formulas: in PyTorch it stays on the CPU, which has float64 everywhere."""
ROUNDING = "equal in float64 and not in float32: rounding, which grows with the number of steps. Nothing is wrong."


@checked
def check(
    problem: Problem,
    modes: Sequence[str] = MODES,
    steps: int | None = None,
    seed: int = 0,
    tolerance: float = 1e-9,
    dtype: str = "float64",
    progress: Progress | None = None,
) -> Report:
    """Run a problem in several modes with the same draws, and compare everything on the way.

    The rungs: `structure` (parameter count, names, shapes, dtypes), `collect` (samples from equal draws), `values` (the
    loss and each term, also against NumPy, and that the parts add up to the loss), `gradients` (of the loss and of each
    part, by parameter), `optimizer` (equal injected gradients), `training` (loss and terms at each step; parameters,
    moments and carried state at the end). The climb ends at the first rung that differs. The first mode is the
    reference. Without `steps`, training goes on for `problem.prove.steps`. `progress` is told what is looked at next,
    and in which mode. JAX's 64-bit setting is left as it was.

    >>> check(problem).raise_if_different()  # doctest: +SKIP
    """
    names = tuple(dict.fromkeys(mode_name(mode) for mode in modes))
    if len(names) < 2:
        raise TwinaxError(f"parity of {list(names)}: a comparison needs at least two modes of {', '.join(MODES)}")
    steps = problem.prove.steps if steps is None else steps
    if steps < 1:
        raise TwinaxError(f"parity over {steps} steps; it must be at least 1")
    if dtype not in ("float32", "float64"):
        raise UnknownName("dtype", dtype, ("float32", "float64"))
    for name in names:
        problem.prove.check(name)
    with precision(dtype), one_torch_thread():
        ladder = _Ladder(problem, names, steps, seed, tolerance, dtype, progress)
        rows = tuple(ladder.climb())
        report = Report(rows, names, tolerance, dtype, num_parameters(ladder.state.networks), steps=steps)
        first = report.first_difference
        if first is None:
            return report
        hint = likely_cause(first, ladder.evidence)
    if dtype == "float32" and check(problem, names, steps, seed).ok:
        hint = ROUNDING
    return replace(report, hint=hint)


@dataclass
class _Ladder:
    problem: Problem
    modes: tuple[str, ...]
    steps: int
    seed: int
    tolerance: float
    dtype: str
    progress: Progress | None = None

    def __post_init__(self):
        self.engines: dict[str, Engine] = {
            # One chunk, so that the jax mode compiles one program of the right length.
            mode: make_engine(self.problem, mode=mode, dtype=self.dtype, chunk=self.steps, device=_DEVICES[mode])
            for mode in self.modes
        }
        if self.steps <= self.problem.prove.steps:
            for engine in self.engines.values():
                engine.compiler_options = QUICK_COMPILE
        self.sides: dict[str, Side] = make_sides(self.modes, self.problem)
        self.state = self._first_state()
        self.batches: dict[str, Any] = {}
        self.evidence = Evidence({}, {})

    def _first_state(self) -> Any:
        """A fresh state, or one that the reference has trained until there is something to learn from."""
        state = widened(self.problem.init(self.seed), self.dtype)
        if not (warm_up := self.problem.prove.warm_up):
            return state
        engine = self.engines[self.reference]
        self.say(f"{warm_up} steps until there is something to learn from", self.reference)
        engine.load(state)
        engine.run(warm_up)
        return engine.state()

    def say(self, what: str, mode: str) -> None:
        if self.progress is not None:
            self.progress(what, mode)

    @property
    def reference(self) -> str:
        return self.modes[0]

    def climb(self) -> Iterator[Row]:
        """Rung by rung: what stands on a rung that differs would differ as well, and tell nothing new."""
        for rung in (self.structure, self.collect, self.loss, self.optimizer, self.training):
            rows = list(rung())
            yield from rows
            if not all(row.ok for row in rows):
                return

    def compare(self, rung: str, arrays: dict[str, dict[str, Any]], floor: float = FLOOR) -> Iterator[Row]:
        """Every mode's named arrays against the reference's."""
        for mode, ours in arrays.items():
            if mode != self.reference:
                yield from compare(
                    rung, mode, self.reference, ours, arrays[self.reference], self.tolerance, floor=floor
                )

    def structure(self) -> Iterator[Row]:
        """Rung 1: what an engine holds after loading is what it was given."""
        want = tree.named_leaves(self.state.networks)
        for mode, engine in self.engines.items():
            self.say("structure", mode)
            engine.load(self.state)
            have = tree.named_leaves(engine.state().networks)
            if mode == "torch":  # by the names that PyTorch itself will show
                module = as_torch_module(engine.state().networks)
                have = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
            yield _equal("parameters", mode, engine.num_parameters, num_parameters(self.state.networks))
            yield _equal("names", mode, sorted(have), sorted(want))
            yield _equal("dtypes", mode, {x.dtype.name for x in have.values()}, {self.dtype})
            yield from compare("structure", mode, "problem", have, want, 0.0)

    def _inputs(self) -> tuple[Any, Any]:
        """The draws of the step to come, and what else it reads."""
        blocks = DrawBlocks(self.problem.draws(), self.engines[self.reference].compiler_options)
        draws = widened(blocks.at(self.seed, int(self.state.step)), self.dtype)
        return draws, widened(self.problem.inputs(), self.dtype)

    def collect(self) -> Iterator[Row]:
        """Rung 2: equal draws, equal samples."""
        draws, inputs = self._inputs()
        arrays, sampled = {}, {}
        for mode, side in self.sides.items():
            # Modes that sample in one framework call one function with one input.
            if side.samples_in not in sampled:
                self.say("samples", mode)
                sampled[side.samples_in] = side.collect(self.state, draws, inputs)
            carry, self.batches[mode] = sampled[side.samples_in]
            arrays[mode] = tree.named_leaves({"batch": self.batches[mode], "carry": carry})
        yield from self.compare("collect", arrays)

    def loss(self) -> Iterator[Row]:
        """Rungs 3 and 4: each term's value, that the parts add up to the loss, and the gradient of each part by each
        parameter; then the same of the other losses of a step."""
        rows = list(self._one_loss("", None, self.batches))
        yield from rows
        if not all(row.ok for row in rows):
            return
        given = (_copied(self.state), *self._inputs())
        for name, (loss, batch) in self.problem.prove.other_losses(*given).items():
            yield from self._one_loss(f"{name}.", loss, dict.fromkeys(self.sides, batch))

    def _one_loss(self, prefix: str, loss: Loss | None, batches: dict[str, Any]) -> Iterator[Row]:
        networks, results = self.state.networks, {}
        for mode, side in self.sides.items():
            self.say(f"{prefix}values and gradients", mode)
            results[mode] = side.differentiate(networks, batches[mode], loss=loss).named(prefix)

        def values_of(mode: str, nets: Any) -> Values:
            values = self.sides[mode].values(nets, batches[mode], loss)
            return {prefix + name: value for name, value in values.items()}

        values = {mode: one.values for mode, one in results.items()}
        gradients = {mode: one.gradients for mode, one in results.items() if one.gradients}
        rules = self.problem.compile
        rows = int(rules.count(batches["numpy"])) if rules.sizes and loss is None else None
        probes = [transpose_probe(values_of, networks, values)]
        if loss is None:
            probes.insert(0, padding_probe(self.sides, networks, batches, values))
        self.evidence = Evidence(values, gradients, counts_of(tuple(batches.values()), rows), tuple(probes))
        yield from compare_values(results, self.reference, self.tolerance, self.dtype)
        yield from compare_gradients(
            results, self.reference, self.tolerance, lambda: values_of(self.reference, moved_networks(networks))
        )

    def optimizer(self) -> Iterator[Row]:
        """Rung 5: equal gradients, injected."""
        recipe, networks = self.problem.optimizer, self.state.networks
        frameworks = {side.differentiates_in for side in self.sides.values()}
        updates = {}
        for name in frameworks:
            self.say(f"{INJECTED} optimizer steps", name)
            updates[name] = injected_updates(name, recipe, networks, INJECTED, self.seed)
        yield from self.compare(
            "optimizer", {mode: updates[side.differentiates_in] for mode, side in self.sides.items()}
        )

    def training(self) -> Iterator[Row]:
        """Rung 6: whole runs."""
        arrays: dict[str, dict[str, Any]] = {}
        weights: dict[str, dict[str, Any]] = {}
        for mode, engine in self.engines.items():
            self.say(f"{self.steps} training step{'s' * (self.steps > 1)}", mode)
            engine.load(self.state)
            try:
                logs = engine.run(self.steps)
            except NonFinite as error:
                yield Row("training", error.term, mode, self.reference, nan, inf, None, False, str(error))
                continue
            after = engine.state()
            arrays[mode] = {f"{name} at each step": values for name, values in logs.items()}
            weights[mode] = tree.named_leaves({"networks": after.networks, "targets": after.targets})
            kept = {"optimizer": after.optimizer, "carry": after.carry, "step": after.step, "seed": after.seed}
            arrays[mode] |= tree.named_leaves(kept)
        if self.reference in arrays:
            yield from (_first_step(row, arrays, self.tolerance) for row in self.compare("training", arrays))
            yield from self.compare("training", weights, WEIGHTS_FLOOR)


def _copied(state: Any) -> Any:
    """NumPy's own copy: rings are written in place."""
    return tree.map_leaves(lambda x: np.array(x), state)


def _equal(item: str, mode: str, have: Any, want: Any) -> Row:
    ok = have == want
    note = "" if ok else f"{have} against {want}"
    return Row("structure", item, mode, "problem", 0.0 if ok else nan, 0.0 if ok else inf, None, ok, note)


def _first_step(row: Row, arrays: dict[str, dict[str, Any]], tolerance: float) -> Row:
    """For a difference in a log, say from which step on it is there."""
    if row.ok or not row.index or not row.item.endswith("at each step"):
        return row
    a, b = arrays[row.against][row.item], arrays[row.side][row.item]
    gap = abs(a - b).reshape(len(a), -1).max(1)
    scale = row.absolute / row.relative
    first = int((gap > tolerance * scale).argmax())
    return replace(row, note=f"first at step {first + 1}")
