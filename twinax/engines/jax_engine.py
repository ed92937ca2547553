"""The jax engine: sampling, loss, update and metrics in one XLA program per chunk."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from twinax import ops
from twinax.engines._devices import AXIS, Devices, whole
from twinax.engines._engine import EVALUATION, Engine
from twinax.engines._hosts import num_processes, together
from twinax.engines._side_by_side import SideBySide
from twinax.engines.optax_update import apply_update
from twinax.noise import key_draws, shard_draws
from twinax.optimizer import Optimizer
from twinax.platforms import jax_device
from twinax.problem import Loss, Metrics, Problem, State, Update, logging
from twinax.train_options import TrainOptions

SEEDS = "seeds"


def widened(draws: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Draws in the run's dtype; integers stay as they are."""
    return {k: v.astype(dtype) if jnp.issubdtype(v.dtype, jnp.floating) else v for k, v in draws.items()}


def gradients(
    problem: Problem, loss: Callable[..., tuple[Any, Any]], networks: Any, batch: Any
) -> tuple[tuple[Any, Any], Any]:
    """((loss, what comes with it), gradients), with the ragged part of the batch in the smallest size that holds it.

    The choice of size, or between alternatives, stands outside the differentiation: inside, every branch would have to
    hand out residuals for all the others. It stands before the optimizer: a conditional that gives out networks and
    moments would copy them all.
    """

    rules = problem.compile
    batch = rules.prepare(batch)

    def at_size(size: int | None, batch: Any = batch):
        function = loss if size is None else lambda *args: loss(*args, size=size)
        return jax.value_and_grad(function, has_aux=True)(networks, batch)

    if (choice := rules.alternatives(batch)) is not None:
        condition, one, other = choice
        return ops.cond(condition, lambda: at_size(None, one), lambda: at_size(None, other))
    if not rules.sizes:
        return at_size(None)
    return ops.switch_size(rules.count(batch), rules.sizes, at_size)


def make_update(problem: Problem, settings: Mapping[str, Any] | None = None) -> Update:
    """The update primitive: differentiate a loss and apply the problem's optimizer, with the step sizes in `settings`
    where they may have changed."""
    return updating(problem.optimizer, lambda *given: gradients(problem, *given), settings)


def updating(
    optimizer: Optimizer,
    differentiate: Callable[..., tuple[tuple[Any, Metrics], Any]],
    settings: Mapping[str, Any] | None = None,
) -> Update:
    """An update primitive from a way to differentiate: (loss, networks, batch) -> ((value, log), gradients)."""

    def update(state: State, loss: Loss, batch: Any, still: tuple[str, ...] = ()) -> tuple[State, Metrics]:
        if still:
            return partial_update(update, state, loss, batch, still)
        (value, log), grads = ops.across_shards(differentiate(logging(loss), state.networks, batch))
        networks, moments, norm = apply_update(optimizer, state.networks, grads, state.optimizer, settings)
        state = dataclasses.replace(state, networks=networks, optimizer=moments)
        return state, {"loss": value, **log, "grad_norm": norm}

    return update


def partial_update(update: Update, state: State, loss: Loss, batch: Any, still: tuple[str, ...]):
    """The update with some networks left as they are."""

    def moving(by_name: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in by_name.items() if name not in still}

    whole, moments = state.networks, state.optimizer
    kept = {name: whole[name] for name in still}
    part = dataclasses.replace(state, networks=moving(whole), optimizer=moments.only(moving(whole)))
    part, terms = update(part, lambda networks, *rest, **kw: loss({**kept, **networks}, *rest, **kw), batch)
    merged = moments.merged(part.optimizer)
    return dataclasses.replace(part, networks={**whole, **part.networks}, optimizer=merged), terms


class JaxEngine(Engine):
    """Everything in JAX, in one program for all seeds and devices."""

    mode = "jax"

    def __init__(self, problem: Problem, options: TrainOptions):
        super().__init__(problem, options)
        devices, seeds = options.devices, options.seeds
        self.device = jax_device(options.device) if devices == 1 else None
        """Where arrays are put, and so where programs run; None is where JAX likes them best, or on several devices."""
        self._devices = Devices(devices, options.device) if devices > 1 else None
        self.processes = num_processes()
        self._state: Any = None
        self._program: Any = jax.jit(self._chunk, donate_argnums=0)
        self._compiled: Any = None
        # Seeds and devices have their halves one after the other, within their common program.
        self._beside: SideBySide | None = None
        if devices == seeds == 1 and problem.compile.halves is not None:
            self._beside = SideBySide(problem, self._draws, lambda inputs: make_update(problem, inputs.settings))
        self._evaluation = jax.jit(self._evaluate_all)

    def _load(self, state: State) -> None:
        if self._devices is None:
            self._state = jax.tree.map(self.placed, state)
        else:
            self._state = self._devices.spread(state, self._divided(state))

    def placed(self, x: Any) -> jax.Array:
        """A copy of an array on the engine's device."""
        return jnp.array(x, device=self.device)

    def _divided(self, state: State) -> State:
        """Which arrays of a state the devices share out."""
        assert self._devices is not None
        nothing = jax.tree.map(lambda _: False, state)
        return dataclasses.replace(nothing, carry=self.problem.compile.divided(state.carry, self._devices.number))

    def state(self) -> State:
        with together(self.processes):
            return jax.tree.map(whole, self._state)

    @property
    def step(self) -> int:
        return int(np.max(whole(self._state.step)))

    # Training

    def _one_step(self, state: State, inputs) -> tuple[State, Metrics]:
        update = make_update(self.problem, inputs.settings)
        state, terms = self.problem.step(state, self._draws(state), inputs, update)
        return dataclasses.replace(state, step=state.step + 1), terms

    def _draws(self, state: State) -> dict[str, Any]:
        if self._devices is None:
            return widened(key_draws(self.problem.draws(), state.seed, state.step), self.dtype)
        index, number = lax.axis_index(AXIS), self._devices.number
        return widened(shard_draws(self.problem.draws(), state.seed, state.step, index, number), self.dtype)

    def _over_seeds(self, function):
        """The function itself, or mapped over a leading seed axis that loops know by name."""
        if self.seeds == 1:
            return function

        def mapped(state, *rest):
            with ops.seed_axis(SEEDS):
                return jax.vmap(function, in_axes=(0, *[None] * len(rest)), axis_name=SEEDS)(state, *rest)

        return mapped

    def _chunk(self, state: State, inputs, steps):
        if self._devices is None:
            return self._loop(state, inputs, steps)
        return self._devices.run(self._loop, state, self._divided(state), inputs, steps)

    def _loop(self, state: State, inputs, steps):
        # As a function of its own it is traced once: for the shapes of its logs, and then for the loop.
        step = jax.jit(self._over_seeds(self._one_step))
        blank = jax.tree.map(
            lambda x: jnp.zeros((self.chunk, *x.shape), x.dtype), jax.eval_shape(step, state, inputs)[1]
        )

        def body(i, carry):
            state, logs = carry
            state, terms = step(state, inputs)
            return state, jax.tree.map(lambda log, x: log.at[i].set(x), logs, terms)

        # A trip count that is data: any number of steps up to the chunk is the same program.
        return lax.fori_loop(0, steps, body, (state, blank))

    def _run(self, steps: int) -> dict[str, np.ndarray]:
        inputs = self._inputs()
        if self._beside is not None:
            return self._run_beside(self._beside, steps, inputs)
        self.compile(self._state, inputs)
        with together(self.processes):
            self._state, logs = self.advance(self._state, inputs, steps)
        return logs

    def compile(self, state: State, inputs: Any) -> None:
        """Compile the program of a chunk, once."""
        if self._compiled is not None:
            return
        begin = time.perf_counter()
        if self._devices is not None:
            self._program = self._devices.compiled(self._chunk, self._divided(state))
        self._compiled = self._program.lower(state, inputs, jnp.asarray(1, jnp.int32)).compile(self.compiler_options)
        self.compile_seconds = time.perf_counter() - begin

    def advance(self, state: State, inputs: Any, steps: int) -> tuple[State, dict[str, np.ndarray]]:
        """The state after some steps of the compiled program, and its logs; the state that is given is used up."""
        state, logs = self._compiled(state, inputs, jnp.asarray(steps, jnp.int32))
        return state, {name: whole(values)[:steps] for name, values in logs.items()}

    def _run_beside(self, beside: SideBySide, steps: int, inputs: Any) -> dict[str, np.ndarray]:
        if not self.compile_seconds:
            self.compile_seconds = beside.compile(self._state, inputs, self.compiler_options)
        logs = []
        for _ in range(steps):
            self._state, terms = beside.step(self._state, inputs)
            logs.append(terms)
        return {name: np.stack([whole(row[name]) for row in logs]) for name in logs[0]}

    # Evaluation

    def evaluate_one(self, state: State, tables):
        """What an evaluation measures of one seed."""
        judge = self.problem.judge
        draws = widened(key_draws(judge.draws(), state.seed, state.step, EVALUATION), self.dtype)
        return judge.measure(state, draws, tables)

    def _evaluate_all(self, state: State, tables):
        return self._over_seeds(self.evaluate_one)(state, tables)

    def _converted(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return jax.tree.map(lambda x: jnp.asarray(x, device=self.device), arrays)

    def _here(self) -> State:
        """The state on one device of this process."""
        return self._state if self._devices is None else jax.tree.map(self.placed, self.state())

    def _measure(self, tables: dict[str, Any]) -> Mapping[str, Any]:
        return jax.tree.map(whole, self._evaluation(self._here(), tables))

    def _phases(self, repeats: int) -> dict[str, float]:
        state = self._here() if self.seeds == 1 else jax.tree.map(lambda x: x[0], self._state)
        return self.phases(state, self._inputs(), repeats)

    def phases(self, one: State, inputs: Any, repeats: int) -> dict[str, float]:
        """Seconds by phase from a state of one seed."""
        problem = self.problem

        def sample(state: State):
            draws = widened(key_draws(problem.draws(), state.seed, state.step), self.dtype)
            return problem.collect(state, draws, inputs)

        def optimize(state: State, grads):
            return apply_update(problem.optimizer, state.networks, grads, state.optimizer)

        sample_program, optimize_program = jax.jit(sample), jax.jit(optimize)
        _, batch = sample_program(one)
        times = {"sample": seconds_per_call(sample_program, one, repeats=repeats)}
        loss, both, grads = time_gradients(problem, one.networks, batch, repeats)
        times |= {"loss": loss, "backward": max(both - loss, 0.0)}
        return times | {"optimizer": seconds_per_call(optimize_program, one, grads, repeats=repeats)}


def time_gradients(problem: Problem, networks: Any, batch: Any, repeats: int) -> tuple[float, float, Any]:
    """Seconds of the loss alone, seconds of loss and gradients together, and the gradients."""

    rules = problem.compile

    def loss(networks, batch):
        batch = rules.prepare(batch)
        if not rules.sizes:
            return problem.loss(networks, batch)
        return ops.switch_size(rules.count(batch), rules.sizes, lambda size: problem.loss(networks, batch, size=size))

    def differentiate(networks, batch):
        return gradients(problem, problem.loss, networks, batch)

    loss_program, gradient_program = jax.jit(loss), jax.jit(differentiate)
    _, grads = gradient_program(networks, batch)
    alone = seconds_per_call(loss_program, networks, batch, repeats=repeats)
    return alone, seconds_per_call(gradient_program, networks, batch, repeats=repeats), grads


def seconds_per_call(program, *arguments: Any, repeats: int) -> float:
    """Median time of a compiled call, warmed up and waited for, less what an empty call with these arguments costs.

    Inside the training loop a phase is not a call of its own, so the cost of calling is left out.
    """
    empty = jax.jit(lambda *_: jnp.zeros(()), keep_unused=True)
    return max(_median_seconds(program, arguments, repeats) - _median_seconds(empty, arguments, repeats), 0.0)


def _median_seconds(program, arguments: tuple[Any, ...], repeats: int) -> float:
    jax.block_until_ready(program(*arguments))
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        times.append(time.perf_counter() - begin)
    return float(np.median(times))
