"""One update of a recorded training in float64: what JAX does, by the captured loss or one that was written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge import to_jax
from twinax.engines import QUICK_COMPILE
from twinax.errors import TwinaxError
from twinax.port._capture import Capture
from twinax.port._evaluate import evaluate
from twinax.port._function import Function
from twinax.port._memory import Managed
from twinax.port._replay_batch import Batch, Said, only_scalars
from twinax.port._replay_torch import TorchSide
from twinax.port._shapes import flatten, unflatten
from twinax.port._updates import Target, Update, clipped, global_norm


class JaxSide:
    """The same in JAX: of the captured loss, or of one that was written by hand."""

    def __init__(self, agent: Any, updates: Sequence[Update], targets: Sequence[Target], against: Sequence[Any]):
        self._agent, self.updates, self.targets, self._against = agent, updates, targets, against
        self.functions: list[Function | None] = [None] * len(updates)
        self.managed: list[Managed | None] = []
        self.parameters: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        self.memory: list[dict[str, Any]] = []
        self._programs: dict[Any, Any] = {}

    def load(self, torch_side: TorchSide) -> None:
        """Begin where PyTorch begins."""
        self.parameters = to_jax(torch_side.numbers())
        self.managed = [self._managed(k, torch_side) for k in range(len(self.updates))]
        self.memory = [{} if one is None else one.memory for one in self.managed]

    def _managed(self, k: int, torch_side: TorchSide) -> Managed | None:
        """The optimizer's rules; None where there are none, which only a loss by hand can do without."""
        optimizer = torch_side.optimizers[k]
        try:
            return None if optimizer is None else Managed(optimizer, torch_side.module)
        except TwinaxError:
            if self._against[k] is None:
                raise
            return None

    def numbers(self) -> dict[str, np.ndarray]:
        """The parameters."""
        return {name: np.asarray(x) for name, x in self.parameters.items()}

    def capture(self, k: int, batch: Batch) -> Capture | None:
        """The captured loss of an update; None where one was written by hand."""
        if self._against[k] is not None:
            return None
        found = self.functions[k]
        tensors = batch.tensors()
        if found is None:
            found = self.functions[k] = Function(self._agent.module, (tensors,), self.updates[k].loss)
        return found.capture((tensors,))

    def ask(
        self, k: int, batch: Batch, capture: Capture | None, draws: Mapping[str, Any], trained: Sequence[str]
    ) -> Said:
        """Loss, terms and gradients by those of the trained parameters that the update's optimizer has."""
        program = self._program(k, batch, capture)
        moved = {name: self.parameters[name] for name in trained}
        arrays = to_jax(batch.doubles(), narrow="allow")
        (value, (terms, changed)), gradients = program(moved, self.parameters, self.buffers, arrays, dict(draws))
        reached = set(trained) if capture is None else capture.program.reached()
        return Said(
            float(value),
            {name: float(x) for name, x in terms.items()},
            {name: np.asarray(g) for name, g in gradients.items() if name in reached},
            dict(changed),
        )

    def _program(self, k: int, batch: Batch, capture: Capture | None) -> Any:
        key = (k, id(capture), batch.constants())
        if key not in self._programs:
            loss = self.loss_of(k, batch, capture)

            def whole(moved: Any, parameters: Any, buffers: Any, arrays: Any, draws: Any) -> Any:
                return loss({**parameters, **moved}, buffers, arrays, draws)

            self._programs[key] = jax.jit(jax.value_and_grad(whole, has_aux=True), compiler_options=QUICK_COMPILE)
        return self._programs[key]

    def loss_of(self, k: int, batch: Batch, capture: Capture | None) -> Callable[..., Any]:
        """(parameters, buffers, arrays, draws) -> (loss, (scalar terms, changed buffers))."""
        against = self._against[k]

        def loss(parameters: Any, buffers: Any, arrays: Any, draws: Any) -> Any:
            if capture is None:
                result, changed = against({**buffers, **parameters}, batch.tree(arrays)), {}
            else:
                leaves, _ = flatten(batch.tree(arrays))
                results, changed = evaluate(capture.program, parameters, buffers, leaves, draws, wide=True)
                result = unflatten(results, capture.outputs)
            value, terms = only_scalars(result)
            return jnp.asarray(value, float).reshape(()), (terms, changed)

        return loss

    def advance(self, k: int, said: Said, reached: Sequence[str], torch_side: TorchSide) -> bool:
        """The update in JAX with the rules of `torch.optim`; without one, False and PyTorch's parameters."""
        self.buffers = {**self.buffers, **said.buffers}
        managed = self.managed[k]
        if managed is None:
            self.parameters = to_jax(torch_side.numbers())
            return False
        gradients = {name: said.gradients[name] for name in reached if name in said.gradients}
        names = tuple(gradients)
        held = [{name: tree[name] for name in names} for tree in (self.parameters, self.memory[k])]
        run = self._update(k, managed, names)
        moved, memory = run(*held, gradients, np.stack([managed.numbers([name]) for name in names]))
        self.parameters = {**self.parameters, **moved}
        self.memory[k] = {**self.memory[k], **memory}
        for name in names:
            managed.counts[name] += 1
        return True

    def _update(self, k: int, managed: Managed, names: tuple[str, ...]) -> Any:
        key = ("update", k, names, managed.switches())
        if key not in self._programs:
            rules, update = {name: managed.rule(name) for name in names}, self.updates[k]

            def run(parameters: Any, memory: Any, gradients: Any, numbers: Any) -> Any:
                parameters, memory = dict(parameters), dict(memory)
                norm = global_norm(gradients)
                gradients = {
                    name: clipped(g, norm, update.clip_norm, update.clip_value) for name, g in gradients.items()
                }
                for row, name in enumerate(names):
                    own = [numbers[row, place] for place in range(rules[name].width)]
                    made = rules[name].update(parameters[name], gradients[name], memory[name], own)
                    parameters[name], memory[name] = made
                return parameters, memory

            self._programs[key] = jax.jit(run, compiler_options=QUICK_COMPILE)
        return self._programs[key]

    def follow(self, step: int) -> None:
        """What targets do after a step."""
        for target in self.targets:
            if step % target.every == 0:
                for name, source in target.pairs(self.parameters).items():
                    old, new = self.parameters[name], self.parameters[source]
                    self.parameters[name] = old + target.tau * (new - old)
