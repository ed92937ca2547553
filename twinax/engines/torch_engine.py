"""The torch engine: eager PyTorch, as one would write it by hand."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import jax.tree_util as jtu
import numpy as np
import torch

from twinax import ops, tree
from twinax.engines._draw_blocks import DrawBlocks
from twinax.engines._engine import EVALUATION, Engine
from twinax.memory import is_mapped
from twinax.noise import generator_draws, numpy_draws
from twinax.optimizer import ALL, Moments, Optimizer
from twinax.platforms import torch_device
from twinax.problem import Loss, Metrics, Problem, State, logging
from twinax.train_options import TrainOptions

FUSED = ("cpu", "cuda", "mps")
"""Kinds of device for which PyTorch has a fused Adam."""


def to_tensors(values: Any, device: Any) -> Any:
    """Copies of NumPy leaves as tensors on a device; integers that PyTorch cannot index or add with become int64.

    A mapped array is not copied, unless the device has a memory of its own: it may be larger than the computer's.
    """

    def one(x):
        if is_mapped(x):
            return ops.like(x, torch.empty((), device=device))
        x = np.array(x)
        return torch.from_numpy(x.astype(np.int64) if x.dtype == np.uint32 else x).to(device)

    return jtu.tree_map(one, values)


def to_parameters(networks: Any, device: Any) -> Any:
    """Copies of NumPy leaves as parameters on a device."""
    return jtu.tree_map(lambda x: torch.nn.Parameter(torch.from_numpy(np.array(x, order="C")).to(device)), networks)


def to_arrays(values: Any) -> Any:
    """Copies of tensors, wherever they are, as NumPy leaves."""
    return jtu.tree_map(lambda x: x.detach().cpu().numpy().copy(), values)


class TorchUpdate:
    """The update primitive over `torch.optim`, and the way to and from `Moments`."""

    def __init__(self, recipe: Optimizer, networks: Any, moments: Moments, prepare: Callable[[Any], Any] | None = None):
        self.recipe, self.prepare = recipe, prepare or (lambda batch: batch)
        self.parameters = tree.named_leaves(networks)
        # One group for each rate: a fused step costs as much for a group as for a parameter.
        by_rate: dict[tuple[str, str], list[Any]] = {}
        for name, parameter in self.parameters.items():
            by_rate.setdefault((recipe.owner(name), recipe.setting(name)), []).append(parameter)
        rates = recipe.settings()
        groups = [{"params": parameters, "lr": float(rates[rate])} for (_, rate), parameters in by_rate.items()]
        self.owners, self.rates = ([key[k] for key in by_rate] for k in range(2))
        if recipe.name == "sgd":
            self.optimizer: torch.optim.Optimizer = torch.optim.SGD(groups)
        else:
            kind = torch.optim.AdamW if recipe.name == "adamw" else torch.optim.Adam
            betas = (recipe.beta1, recipe.beta2)
            fused = all(parameter.device.type in FUSED for parameter in self.parameters.values())
            self.optimizer = kind(groups, betas=betas, eps=recipe.eps, weight_decay=recipe.weight_decay, fused=fused)
        counts = moments.count if isinstance(moments.count, dict) else {ALL: moments.count}
        self.counts = {name: int(count) for name, count in counts.items()}
        self.base = [group["lr"] for group in self.optimizer.param_groups]
        self._load(moments)

    def take(self, settings: Mapping[str, Any]) -> None:
        """Go on with the step sizes in an engine's settings."""
        self.base = [float(settings[name]) for name in self.rates]
        for group, rate in zip(self.optimizer.param_groups, self.base, strict=True):
            group["lr"] = rate

    def _load(self, moments: Moments) -> None:
        if self.recipe.name == "sgd":
            return
        first, second = tree.named_leaves(moments.first), tree.named_leaves(moments.second)
        for name, parameter in self.parameters.items():
            device = parameter.device
            self.optimizer.state[parameter] = {
                # PyTorch keeps the count of an Adam that is not fused on the host.
                "step": torch.tensor(
                    float(self.counts[self.recipe.owner(name)]), device=device if device.type in FUSED else "cpu"
                ),
                "exp_avg": torch.from_numpy(np.array(first[name], order="C")).to(device),
                "exp_avg_sq": torch.from_numpy(np.array(second[name], order="C")).to(device),
            }

    def moments(self, like: Moments) -> Moments:
        """What the optimizer remembers, as NumPy arrays."""
        counts = {name: np.array(count, np.int32) for name, count in self.counts.items()}
        count = counts if self.recipe.separate else counts[ALL]
        if self.recipe.name == "sgd":
            return dataclasses.replace(like, count=count)
        memory = [self.optimizer.state[p] for p in self.parameters.values()]
        structure = jtu.tree_structure(like.first)
        first, second = (
            jtu.tree_unflatten(structure, to_arrays([m[key] for m in memory])) for key in ("exp_avg", "exp_avg_sq")
        )
        return Moments(count, first, second)

    def differentiate(self, value: torch.Tensor, still: tuple[str, ...] = ()) -> None:
        """Fresh gradients of a loss; 0 for a parameter that it does not reach, none for networks that are still.

        Without a gradient PyTorch would skip the parameter, weight decay included; JAX decays it.
        """
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        for name, parameter in self.parameters.items():
            if name.partition(".")[0] in still:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def apply(self) -> torch.Tensor:
        """Clip, step, and give the norm of the gradients before clipping."""
        moving = {name: p for name, p in self.parameters.items() if p.grad is not None}
        owned = self.recipe.owned({name: p.grad for name, p in moving.items()})
        norms = {}
        for owner, gradients in owned.items():
            norms[owner] = torch.nn.utils.get_total_norm(list(gradients.values()))
            if self.recipe.clip_norm:
                for name, gradient in self.recipe.clipped(gradients, norms[owner]).items():
                    self.parameters[name].grad = gradient
        if self.recipe.decay_steps:
            for group, rate, owner in zip(self.optimizer.param_groups, self.base, self.owners, strict=True):
                group["lr"] = rate * self.recipe.factor(self.counts[owner])
        self.optimizer.step()
        for owner in owned:
            self.counts[owner] += 1
        if self.recipe.name != "sgd" and not self.recipe.separate:
            # One count for all parameters: those that stood still count the step as well.
            for name in self.parameters.keys() - moving.keys():
                self.optimizer.state[self.parameters[name]]["step"].fill_(self.counts[ALL])
        return torch.linalg.vector_norm(torch.stack(list(norms.values()))) if self.recipe.separate else norms[ALL]

    def __call__(self, state: State, loss: Loss, batch: Any, still: tuple[str, ...] = ()) -> tuple[State, Metrics]:
        value, log = logging(loss)(state.networks, self.prepare(batch))
        self.differentiate(value, still)
        norm = self.apply()
        return state, {"loss": value.detach(), **log, "grad_norm": norm}


class TorchEngine(Engine):
    """Everything in eager PyTorch."""

    mode = "torch"

    def __init__(self, problem: Problem, options: TrainOptions):
        super().__init__(problem, options)
        self.device = torch_device(options.device)
        """Where every tensor of the run is."""
        self._state: Any = None
        self._update: Any = None
        self._like: Any = None

    def _load(self, state: State) -> None:
        self._like = state.optimizer
        networks = to_parameters(state.networks, self.device)
        self._update = TorchUpdate(self.problem.optimizer, networks, state.optimizer, self.problem.compile.prepare)
        self._state = State(
            networks=networks,
            targets=to_tensors(state.targets, self.device),
            carry=to_tensors(state.carry, self.device),
            optimizer=state.optimizer,
            step=to_tensors(np.array(state.step, np.int32), self.device),
            seed=int(state.seed),
        )

    def state(self) -> State:
        s = self._state
        return State(
            networks=to_arrays(s.networks),
            targets=to_arrays(s.targets),
            carry=to_arrays(s.carry),
            optimizer=self._update.moments(self._like),
            step=np.array(int(s.step), np.int32),
            seed=np.array(s.seed, np.uint32),
        )

    @property
    def step(self) -> int:
        return int(self._state.step)

    @cached_property
    def _blocks(self) -> DrawBlocks:
        return DrawBlocks(self.problem.draws(), self.compiler_options)

    def _draws(self, step: int) -> dict[str, torch.Tensor]:
        if self.options.noise == "native":
            generator = torch.Generator(self.device).manual_seed((self._state.seed << 32) + step)
            draws = generator_draws(self.problem.draws(), generator)
        else:
            draws = {k: torch.from_numpy(v).to(self.device) for k, v in self._blocks.at(self._state.seed, step).items()}
        return self._floats(draws)

    def _floats(self, draws: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        dtype = getattr(torch, self.dtype)
        return {k: v.to(dtype) if v.is_floating_point() else v for k, v in draws.items()}

    def _run(self, steps: int) -> dict[str, np.ndarray]:
        inputs = self._inputs()
        self._update.take(self.settings)
        logs: dict[str, list[float]] = {}
        for _ in range(steps):
            state, terms = self.problem.step(self._state, self._draws(int(self._state.step)), inputs, self._update)
            self._state = dataclasses.replace(state, step=state.step + 1)
            for name, value in terms.items():
                logs.setdefault(name, []).append(float(value))
        return {name: np.array(values, self.dtype) for name, values in logs.items()}

    @torch.no_grad()
    def _measure(self, tables: dict[str, Any]) -> Mapping[str, Any]:
        judge = self.problem.judge
        draws = numpy_draws(judge.draws(), self._state.seed, int(self._state.step), EVALUATION)
        measured = judge.measure(self._state, self._floats(to_tensors(draws, self.device)), tables)
        return to_arrays(measured)

    def _converted(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return to_tensors(arrays, self.device)

    def _phases(self, repeats: int) -> dict[str, float]:
        kept, inputs = self.state(), self._inputs()

        def laps(k: int) -> Iterator[None]:
            _, batch = self.problem.collect(self._state, self._draws(int(self._state.step) + k), inputs)
            yield
            value, _ = self.problem.loss(self._state.networks, self.problem.compile.prepare(batch))
            yield
            self._update.differentiate(value)
            yield
            self._update.apply()
            yield

        times = seconds_of_laps(laps, repeats)
        self._load(kept)
        return dict(zip(("sample", "loss", "backward", "optimizer"), times, strict=True))


def seconds_of_laps(laps: Callable[[int], Iterator[None]], repeats: int) -> list[float]:
    """Mean seconds of each part of what is done again and again, from yield to yield; the first three times warm up."""
    times = []
    for k in range(repeats + 3):
        marks = [time.perf_counter(), *(time.perf_counter() for _ in laps(k))]
        times.append(np.diff(marks))
    return np.mean(times[3:], 0).tolist()
