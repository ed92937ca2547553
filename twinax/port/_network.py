"""A person's `nn.Module` as a network of any problem: one module, trained in every mode."""

from __future__ import annotations

import contextlib
import copy
import hashlib
from typing import Any

import equinox as eqx
import jax.tree_util as jtu
import numpy as np

from twinax import ops
from twinax.bridge import to_torch
from twinax.errors import TwinaxError, require
from twinax.networks import Graph, Items, KHot, NetworkSpec, Tokens
from twinax.port._function import Function, function
from twinax.port._reference import as_doubles
from twinax.port._shapes import flatten, unflatten
from twinax.port._watch import flags_of


def network(module: Any, *example: Any, check: bool = True) -> NetworkFactory:
    """A PyTorch module as a network that `problem(..., network=...)` accepts, in all three modes.

    `module` is an `nn.Module`, whose weights are where training begins with every seed, or a function from the
    `NetworkSpec` to a fresh one, which is then called under a seed of its own. It is given rows of numbers, tokens as
    integers, or the arrays of a graph or of items one after the other, and returns an array with the columns of all
    heads side by side. An `example` may be given to prove it at once; otherwise the problem shows it one.

    >>> tx.gflownet.problem(env, network=tx.port.network(lambda spec: MyPolicy(spec.outputs)))  # doctest: +SKIP
    """
    require("torch", "torch", "twinax.port.network")
    made = NetworkFactory(module, check)
    if example:
        function(made.fresh(None, 0), *example, check=check)
    return made


class NetworkFactory:
    """What `network` gives: `(rng, spec) -> module`. Modules of one kind share what was captured of their code."""

    def __init__(self, module: Any, check: bool):
        self._module, self._check = module, check
        self._functions: dict[Any, Function] = {}
        self.__name__ = getattr(module, "__name__", type(module).__name__)

    def __call__(self, rng: np.random.Generator, spec: NetworkSpec) -> Ported:
        module = self.fresh(spec, _seed(rng))
        inputs = as_inputs(spec.observation)
        shapes = tuple((name, tuple(p.shape)) for name, p in module.named_parameters())
        key = (spec.role, shapes, tuple(x.shape[1:] for x in inputs), tuple(spec.heads.items()), flags_of(module))
        if key not in self._functions:
            made = Function(module, tuple(_rows(x) for x in inputs), dynamic=True)
            refuse_state(made)
            if self._check:
                made.check().raise_if_different()
            self._functions[key] = made
        arrays = {name: p.detach().numpy().copy() for name, p in module.named_parameters()}
        trained = {name: arrays.pop(name) for name, p in module.named_parameters() if p.requires_grad}
        buffers = {name: b.detach().numpy().copy() for name, b in module.named_buffers()}
        return Ported(trained, self._functions[key], Held(arrays, buffers))

    def fresh(self, spec: NetworkSpec | None, seed: int) -> Any:
        """A module of its own."""
        import torch

        if isinstance(self._module, torch.nn.Module):
            return copy.deepcopy(self._module)
        if not callable(self._module):
            raise TwinaxError(
                f"a network is an nn.Module or a function that makes one, but this is a {type(self._module).__name__}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = self._module(spec)
        if not isinstance(made, torch.nn.Module):
            raise TwinaxError(f"{self.__name__} made a {type(made).__name__}; it must make an nn.Module")
        return made


class Held:
    """What of a module is not trained: frozen parameters, and buffers. Equal where the contents are."""

    def __init__(self, frozen: dict[str, np.ndarray], buffers: dict[str, np.ndarray]):
        self.frozen, self.buffers = frozen, buffers
        digest = hashlib.sha256()
        for name, array in (*frozen.items(), *buffers.items()):
            digest.update(f"{name} {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
        self._digest = digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self._digest == other._digest

    def __hash__(self) -> int:
        return hash(self._digest)


class Ported(eqx.Module):
    """A module's parameters by name, and what is done with them: in JAX by the captured graph, elsewhere by PyTorch."""

    parameters: dict[str, Any]
    function: Function = eqx.field(static=True)
    held: Held = eqx.field(static=True)

    def __call__(self, observation: Any) -> Any:
        inputs = as_inputs(observation)
        framework = ops.framework(next(iter(self.parameters.values())))
        if framework == "jax":
            return self.function({**self.parameters, **self.held.frozen}, *inputs, buffers=self.held.buffers)
        if framework == "torch":
            return self._in_torch(self.parameters, inputs)
        return self._in_numpy(inputs)

    def module(self) -> Any:
        """The person's own module, a copy, with these weights."""
        import torch

        made = copy.deepcopy(self.function.module)
        with torch.no_grad():
            for name, p in made.named_parameters():
                p.copy_(to_torch({**self.parameters, **self.held.frozen}[name]))
            for name, b in made.named_buffers():
                b.copy_(to_torch(self.held.buffers[name]))
        return made

    def _in_torch(self, parameters: Any, inputs: Any) -> Any:
        import torch

        module = self.function.module
        dtype = next(iter(parameters.values())).dtype
        device = next(iter(parameters.values())).device
        held = {**self.held.frozen, **self.held.buffers}
        rest = {name: _as(_tensor(x), dtype).to(device) for name, x in held.items()}
        # Code that asks for float32, as `x.float()` does, gets doubles where the weights are: a proof needs them.
        with as_doubles() if dtype == torch.float64 else contextlib.nullcontext():
            return torch.func.functional_call(module, {**parameters, **rest}, tuple(_as(x, dtype) for x in inputs))

    def _in_numpy(self, inputs: Any) -> Any:
        import torch

        with torch.no_grad():
            parameters = {name: _tensor(x) for name, x in self.parameters.items()}
            found = self._in_torch(parameters, tuple(map(_tensor, inputs)))
        leaves, structure = flatten(found)
        return unflatten([x.numpy() for x in leaves], structure)


def as_inputs(observation: Any) -> tuple[Any, ...]:
    """What is observed, as the arrays that a module is called with."""
    if isinstance(observation, KHot):
        return (observation.dense("float32"),)
    if isinstance(observation, Tokens):
        return (observation.ids,)
    if isinstance(observation, (Graph, Items)):
        return tuple(jtu.tree_leaves(observation))
    return (observation,)


def refuse_state(made: Function) -> None:
    """A network is a function of its weights alone."""
    program = made.capture(made.example).program
    if program.draws:
        raise TwinaxError(
            f"the network is random ({', '.join(program.draws)}), as dropout in training is; call module.eval() on it"
        )
    if program.changed:
        raise TwinaxError(
            f"the network changes '{next(iter(program.changed))}' when it is called, as BatchNorm in training does; "
            "call module.eval() on it"
        )


def _rows(x: Any) -> Any:
    return np.repeat(np.asarray(x), 4, 0)


def _tensor(x: Any) -> Any:
    import torch

    return torch.from_numpy(np.require(x, requirements=["C", "W"]))


def _as(x: Any, dtype: Any) -> Any:
    return x.to(dtype) if x.is_floating_point() else x


def _seed(rng: Any) -> int:
    """A seed of a generator's; of one without numbers, which is asked for shapes alone, any."""
    drawn = np.asarray(rng.integers(0, 2**31 - 1, 1)).reshape(-1)
    return int(drawn[0])
