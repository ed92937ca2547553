"""One update of a recorded training in float64: what PyTorch makes of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from twinax.bridge import to_numpy, to_torch
from twinax.errors import TwinaxError
from twinax.port._capture import Capture, wrapped
from twinax.port._lines import line_of_error
from twinax.port._reference import as_doubles, graph_answer
from twinax.port._refusals import at
from twinax.port._replay_batch import Batch, Said, only_scalars
from twinax.port._shapes import unflatten
from twinax.port._updates import Target, Update

HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
THEIRS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError)
"""What a loss raises that is given a batch which it is not made for."""


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
                    named[kind][name].copy_(to_torch(np.array(array)))

    def load_memory(self, memory: Mapping[str, np.ndarray]) -> None:
        """Take over what the recorded optimizers remembered."""
        for k, optimizer in enumerate(self.optimizers):
            if optimizer is None:
                continue
            optimizer.state.clear()
            for path, array in memory.items():
                place, _, rest = path.partition("/")
                name, _, key = rest.rpartition("/")
                if int(place) == k:
                    tensor = to_torch(np.array(array))
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


def set_rates(optimizer: Any, rates: Sequence[float]) -> None:
    """Give an optimizer the learning rates that were recorded."""
    for group, rate in zip(optimizer.param_groups, rates, strict=False):
        group["lr"] = rate


def scalars(terms: Mapping[str, Any]) -> dict[str, float]:
    """The terms that are numbers."""
    plain = {name: to_numpy(x.detach()) if hasattr(x, "detach") else x for name, x in dict(terms).items()}
    return {name: float(np.reshape(x, ())) for name, x in plain.items() if np.size(x) == 1}
