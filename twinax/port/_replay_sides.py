"""One update of a recorded training in float64: what PyTorch makes of it, and what JAX does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinax.bridge import to_jax, to_numpy
from twinax.engines import QUICK_COMPILE
from twinax.errors import TwinaxError
from twinax.port._capture import Capture, wrapped
from twinax.port._evaluate import evaluate
from twinax.port._function import Function
from twinax.port._lines import line_of_error
from twinax.port._memory import Managed
from twinax.port._reference import as_doubles, graph_answer
from twinax.port._refusals import at
from twinax.port._shapes import flatten, leaf_names, unflatten
from twinax.port._updates import Target, Update, clipped, global_norm

HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
THEIRS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError)
"""What a loss raises that is given a batch which it is not made for."""


@dataclass
class Said:
    """What a side says of an update."""

    loss: float
    terms: dict[str, float]
    gradients: dict[str, np.ndarray]
    """By the parameters of the update's optimizer that it reaches."""
    buffers: dict[str, Any] = field(default_factory=dict)
    """What it leaves in them."""

    @property
    def norm(self) -> float:
        """Of all gradients together."""
        return float(np.sqrt(sum(float(np.sum(np.square(g))) for g in self.gradients.values())))


@dataclass(frozen=True)
class Batch:
    """A recorded batch, with the structure of the agent's own."""

    leaves: list[Any]
    """Arrays of NumPy, and what is no array."""
    names: tuple[str, ...]
    structure: Any

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name."""
        return {name: x for name, x in zip(self.names, self.leaves, strict=True) if isinstance(x, np.ndarray)}

    def tree(self, arrays: Mapping[str, Any]) -> Any:
        """The batch with these in place of its arrays."""
        return unflatten([arrays.get(name, x) for name, x in zip(self.names, self.leaves, strict=True)], self.structure)

    def tensors(self, wide: bool = False) -> Any:
        """The batch as PyTorch's loss takes it."""
        import torch

        made = {name: torch.from_numpy(np.array(x)) for name, x in self.arrays().items()}
        return self.tree({name: x.double() if wide and x.is_floating_point() else x for name, x in made.items()})

    def constants(self) -> tuple[Any, ...]:
        """What a program is compiled for."""
        return tuple(None if isinstance(x, np.ndarray) else x for x in self.leaves)


def batch_like(example: Any, arrays: Mapping[str, np.ndarray], constants: Mapping[str, Any], step: int) -> Batch:
    """A recorded batch in the structure of the agent's; refused where names differ."""
    names = leaf_names(example)
    if odd := sorted(set(names) ^ {*arrays, *constants}):
        where = "record" if odd[0] in arrays or odd[0] in constants else "agent"
        raise TwinaxError(
            f"the batch of step {step} does not fit the agent's: only that of the {where} has '{odd[0]}'; return the "
            "agent with a batch like those that were recorded"
        )
    return Batch([{**arrays, **constants}[name] for name in names], names, flatten(example)[1])


class TorchSide:
    """PyTorch's own training, on a copy of the agent in float64."""

    def __init__(self, agent: Any, updates: Sequence[Update], targets: Sequence[Target]):
        self.updates, self.targets = updates, targets
        self.module, self.optimizers = copy.deepcopy((agent.module, [update.optimizer for update in updates]))
        self.module.double()
        for optimizer in self.optimizers:
            for name in HOOKS if optimizer is not None else ():
                getattr(optimizer, name).clear()  # such as those of a recorder
        self.names = {id(p): name for name, p in self.module.named_parameters()}
        self.parameters = dict(self.module.named_parameters())

    def load(self, arrays: Mapping[str, Mapping[str, np.ndarray]], kinds: Sequence[str]) -> None:
        """Take over recorded numbers."""
        import torch

        named = {"parameters": self.parameters, "buffers": dict(self.module.named_buffers())}
        with torch.no_grad():
            for kind in kinds:
                for name, array in arrays.get(kind, {}).items():
                    named[kind][name].copy_(torch.from_numpy(np.array(array)))

    def load_memory(self, memory: Mapping[str, np.ndarray]) -> None:
        """Take over what the recorded optimizers remembered."""
        import torch

        for k, optimizer in enumerate(self.optimizers):
            if optimizer is None:
                continue
            optimizer.state.clear()
            for path, array in memory.items():
                place, _, rest = path.partition("/")
                name, _, key = rest.rpartition("/")
                if int(place) == k:
                    tensor = torch.from_numpy(np.array(array))
                    tensor = tensor.double() if tensor.ndim and tensor.is_floating_point() else tensor
                    optimizer.state[self.parameters[name]][key] = tensor

    def trained(self, k: int) -> list[str]:
        """The parameters of an update's optimizer, or all that are trained."""
        optimizer = self.optimizers[k]
        if optimizer is None:
            return [name for name, p in self.parameters.items() if p.requires_grad]
        return [self.names[id(p)] for group in optimizer.param_groups for p in group["params"] if p.requires_grad]

    def numbers(self) -> dict[str, np.ndarray]:
        """Copies of the parameters."""
        return {name: p.detach().numpy().copy() for name, p in self.parameters.items()}

    def buffers(self) -> dict[str, np.ndarray]:
        """Copies of the buffers."""
        return {name: b.detach().numpy().copy() for name, b in self.module.named_buffers()}

    def ask(self, k: int, batch: Batch, step: int, capture: Capture | None, draws: Mapping[str, Any]) -> Said:
        """Loss, terms and gradients, which are left where the optimizer looks for them; of a random loss those of the
        captured graph, which alone can be given draws."""
        names = self.trained(k)
        for p in self.parameters.values():
            p.grad = None
        try:
            if capture is not None and capture.program.draws:
                result, found = self._of_graph(batch, capture, draws)
                for name in names:
                    p = self.parameters[name]
                    p.grad = found.get(name)
            else:
                with as_doubles():
                    result = self.updates[k].loss(self.module, batch.tensors(wide=True))
                    value = result[0] if isinstance(result, tuple) else result
                    value.reshape(()).backward()
        except THEIRS as error:
            raise TwinaxError(
                f"the loss '{self.updates[k].title}' cannot be computed on the batch of step {step} of the record: "
                f"{' '.join(str(error).split())[:300]}{at(line_of_error(error))}"
            ) from error
        value, terms = result if isinstance(result, tuple) else (result, {})
        grads = {name: self.parameters[name].grad for name in names}
        gradients = {name: g.detach().numpy().copy() for name, g in grads.items() if g is not None}
        return Said(float(value.detach()), scalars(terms), gradients)

    def _of_graph(self, batch: Batch, capture: Capture, draws: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        import torch

        def weigh(outputs: list[Any]) -> list[Any]:
            return [np.ones(()) if k == 0 else None for k in range(len(outputs))]

        answer = graph_answer(capture, SimpleNamespace(module=self.module), (batch.tensors(),), weigh, draws, wide=True)
        self.load({"buffers": answer.buffers}, ("buffers",))
        reached = capture.program.reached()
        gradients = {name: torch.from_numpy(answer.gradients[name]) for name in reached if name in answer.gradients}
        return unflatten([torch.as_tensor(x) for x in answer.outputs], capture.outputs), gradients

    def advance(self, k: int, rates: Sequence[float]) -> float:
        """What PyTorch's optimizer does with the gradients; their norm as it used them."""
        import torch

        optimizer, update = self.optimizers[k], self.updates[k]
        set_rates(optimizer, rates)
        own = [self.parameters[name] for name in self.trained(k)]
        if update.clip_norm:
            torch.nn.utils.clip_grad_norm_(own, update.clip_norm)
        if update.clip_value:
            torch.nn.utils.clip_grad_value_(own, update.clip_value)
        used = float(np.sqrt(sum(float(p.grad.square().sum()) for p in own if p.grad is not None)))
        optimizer.step()
        return used

    def follow(self, step: int) -> None:
        """What targets do after a step."""
        import torch

        with torch.no_grad():
            for target in self.targets:
                if step % target.every == 0:
                    for name, source in target.pairs(self.parameters).items():
                        self.parameters[name].lerp_(self.parameters[source], target.tau)

    def loss_of(self, k: int, batch: Batch) -> Callable[[Any, Any], Any]:
        """The loss as a function of trained parameters and the batch's arrays, for a comparison."""
        import torch

        whole = wrapped(self.module, self.updates[k].loss)
        fixed = {f"module.{name}": p.detach() for name, p in self.parameters.items()}

        def loss(networks: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
            held = {f"module.{name}": b.clone() for name, b in self.module.named_buffers()}
            given = {**fixed, **held, **{f"module.{name}": p for name, p in networks.items()}}
            with as_doubles():
                result = torch.func.functional_call(whole, given, (batch.tree(arrays),))
            return only_scalars(result)

        return loss


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
        self.managed = [
            None if optimizer is None else Managed(optimizer, torch_side.module) for optimizer in torch_side.optimizers
        ]
        self.memory = [{} if one is None else one.memory for one in self.managed]

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
        arrays = to_jax(batch_arrays(batch), narrow="allow")
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

    def advance(self, k: int, said: Said, reached: Sequence[str]) -> None:
        """The update in JAX, with the rules of `torch.optim`."""
        managed, update = self.managed[k], self.updates[k]
        assert managed is not None
        gradients = {name: jnp.asarray(said.gradients[name]) for name in reached if name in said.gradients}
        gradients = clipped(gradients, global_norm(gradients), update.clip_norm, update.clip_value)
        numbers = managed.numbers(list(gradients))
        for row, (name, g) in enumerate(gradients.items()):
            rule, p = managed.rule(name), self.parameters[name]
            own = [jnp.asarray(x, p.dtype) for x in numbers[row]][: rule.width]
            self.parameters[name], self.memory[k][name] = rule.update(p, g, self.memory[k][name], own)
            managed.counts[name] += 1
        self.buffers = {**self.buffers, **said.buffers}

    def follow(self, step: int) -> None:
        """What targets do after a step."""
        for target in self.targets:
            if step % target.every == 0:
                for name, source in target.pairs(self.parameters).items():
                    old, new = self.parameters[name], self.parameters[source]
                    self.parameters[name] = old + target.tau * (new - old)


def set_rates(optimizer: Any, rates: Sequence[float]) -> None:
    """Give an optimizer the learning rates that were recorded."""
    for group, rate in zip(optimizer.param_groups, rates, strict=False):
        group["lr"] = rate


def batch_arrays(batch: Batch) -> dict[str, np.ndarray]:
    """The arrays of a batch, floats as doubles."""
    return {
        name: x.astype(np.float64) if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else x
        for name, x in batch.arrays().items()
    }


def only_scalars(result: Any) -> tuple[Any, dict[str, Any]]:
    """A loss and those of its terms that are numbers, of any framework."""
    value, terms = result if isinstance(result, tuple) else (result, {})
    kept = {name: x for name, x in dict(terms).items() if int(np.prod(np.shape(x))) == 1 and np.ndim(x) < 2}
    return value.reshape(()), {name: x.reshape(()) if hasattr(x, "reshape") else x for name, x in kept.items()}


def scalars(terms: Mapping[str, Any]) -> dict[str, float]:
    """The terms that are numbers."""
    plain = {name: to_numpy(x.detach()) if hasattr(x, "detach") else x for name, x in dict(terms).items()}
    return {name: float(np.reshape(x, ())) for name, x in plain.items() if np.size(x) == 1}
