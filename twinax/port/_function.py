"""A PyTorch module, or a loss over one, as a pure JAX function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from twinax.bridge import to_jax
from twinax.errors import TwinaxError, require
from twinax.noise import key_draws
from twinax.parity import Report
from twinax.port._capture import Capture, capture, unbound
from twinax.port._evaluate import evaluate
from twinax.port._refusals import check_module
from twinax.port._shapes import aligned, any_rows, as_tensors, flatten, has_rows, signature_of, unflatten
from twinax.port._watch import differing, flags_of

MANY = 5
"""Captures from which on a person is told that shapes keep changing."""


def function(
    module: Any,
    *example: Any,
    loss: Callable[..., Any] | None = None,
    dynamic: bool = False,
    check: bool = True,
) -> Function:
    """What a `torch.nn.Module` computes, as a pure JAX function of its parameters and inputs, proven equal.

    With `loss`, what `loss(module, *example)` computes; a method of a module (`policy.evaluate_actions`) instead of the
    module is what that computes. The example's arrays are tensors or NumPy arrays in any nesting
    of tuples, lists and dicts; Python numbers in it stay as they are. Other shapes are captured when they are met.
    With `dynamic` one capture serves every size of the first axis, if all arrays have it and the graph allows it.
    The proof (`check`) compares values and gradients with PyTorch's in float64 and in the module's own precision.

    >>> policy = twinax.port.function(module, torch.zeros(32, 8))  # doctest: +SKIP
    >>> jax.jit(policy)(policy.params, observations)  # doctest: +SKIP
    """
    require("torch", "torch", "twinax.port")
    made = Function(module, example, loss, dynamic)
    if check:
        made.check().raise_if_different()
    return made


class Function:
    """A captured module or loss; `params` and `buffers` are its arrays by `state_dict`'s names."""

    def __init__(
        self, module: Any, example: tuple[Any, ...], loss: Callable[..., Any] | None = None, dynamic: bool = False
    ):
        method: Any = module.__func__ if loss is None and inspect.ismethod(module) else None
        module = module if method is None else module.__self__
        check_module(module)
        self.module = module
        self.loss = loss
        self.call = method if loss is None else unbound(loss, module, len(example))
        """What is called with the module and the inputs; None for the module itself."""
        self.dynamic = dynamic
        """Whether a capture is to serve every size of the first axis; False once a graph has not allowed it."""
        self._captures: dict[Any, Capture] = {}
        self.idle: frozenset[Any] = frozenset()
        """Attributes of the module that were seen to make no difference."""
        self.example = as_tensors(example)
        """What it was made with, as tensors."""
        first = self.capture(self.example)
        self.draws = first.program.draws
        """Random arrays that a call reads, by name; empty where nothing is random."""

    @property
    def params(self) -> dict[str, Any]:
        """The module's parameters of now, as JAX arrays by `state_dict`'s names."""
        return {name: to_jax(tensor.detach()) for name, tensor in self.module.named_parameters()}

    @property
    def buffers(self) -> dict[str, Any]:
        """The module's buffers of now, such as running statistics."""
        return {name: to_jax(tensor, narrow="allow") for name, tensor in self.module.named_buffers()}

    def __call__(
        self,
        params: Mapping[str, Any],
        *inputs: Any,
        buffers: Mapping[str, Any] | None = None,
        draws: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the module returns, with JAX arrays in place of tensors; in float64 where the parameters are."""
        return self.with_buffers(params, *inputs, buffers=buffers, draws=draws)[0]

    def with_buffers(
        self,
        params: Mapping[str, Any],
        *inputs: Any,
        buffers: Mapping[str, Any] | None = None,
        draws: Mapping[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """What the module returns, and its buffers afterwards."""
        inputs = aligned(inputs, self.example)
        one = self.capture(inputs)
        program = one.program
        buffers = dict(self.buffers if buffers is None else buffers)
        self._check_names(program, params, buffers, draws)
        leaves, _ = flatten(inputs)
        arrays = [_array(leaf) for leaf in leaves]
        results, changed = evaluate(program, params, buffers, arrays, draws or {}, wide=_is_wide(params))
        return unflatten(results, one.outputs), {**buffers, **changed}

    def draw(self, seed: Any, step: Any = 0) -> dict[str, Any]:
        """The random arrays of a call, a function of seed and step as everywhere in twinax.

        >>> policy(policy.params, observations, draws=policy.draw(seed=0, step=7))  # doctest: +SKIP
        """
        return key_draws(self.draws, seed, step)

    def check(self, *inputs: Any, tolerance: float = 1e-9) -> Report:
        """Compare values and gradients with PyTorch's, on these inputs or the example, and on random ones like them."""
        from twinax.port._proof import prove

        return prove(self, as_tensors(inputs) if inputs else self.example, tolerance)

    def operators(self) -> dict[str, int]:
        """How often each operator is called, the most frequent first."""
        return self.capture(self.example).program.operators()

    def capture(self, inputs: tuple[Any, ...]) -> Capture:
        """The program for inputs of these shapes and the module's switches of now, captured when they are first met."""
        flags = flags_of(self.module, self.idle)
        rows = self.dynamic and has_rows(inputs)
        key = signature_of(inputs, rows=not rows), flags
        if key in self._captures:
            return self._captures[key]
        example = self.example if not self._captures else _like(self.example, inputs)
        if rows:
            made = capture(self.module, example, self.call, any_rows(example))
            if made.any_rows:
                return self._keep(*key, made)
            self.dynamic = False
        return self._keep(signature_of(inputs), flags, capture(self.module, example, self.call))

    def _keep(self, signature: Any, flags: Any, made: Capture) -> Capture:
        """Keep a capture; one that came out as another did shows which attributes of the module do not matter."""
        for (other, before), old in self._captures.items():
            if other == signature and old.program.equals(made.program):
                self.idle |= differing(before, flags)
                made, flags = old, flags_of(self.module, self.idle)
                break
        self._captures[signature, flags] = made
        if len({id(one) for one in self._captures.values()}) == MANY:
            _tell()
        return made

    @property
    def changed(self) -> frozenset[str]:
        """Buffers that a call changes."""
        return frozenset(name for one in self._captures.values() for name in one.program.changed)

    def _check_names(self, program: Any, params: Any, buffers: Any, draws: Any) -> None:
        missing = [name for name in program.parameters.values() if name not in params]
        missing += [name for name in program.buffers.values() if name not in buffers]
        if missing:
            raise TwinaxError(f"the parameters lack '{missing[0]}'; give what function.params has, by the same names")
        undrawn = [name for name in program.draws if name not in (draws or {})]
        if undrawn:
            raise TwinaxError(
                f"this function is random ({', '.join(undrawn)}); give draws=function.draw(seed, step), or call "
                "module.eval() before porting it where dropout is to be off"
            )


def _is_wide(params: Mapping[str, Any]) -> bool:
    """Whether parameters are doubles: what a module makes itself, such as zeros, are doubles then, too."""
    return any(np.dtype(p.dtype) == np.float64 for p in params.values())


def _array(leaf: Any) -> Any:
    return (
        to_jax(leaf, narrow="allow")
        if hasattr(leaf, "detach")
        else jnp.asarray(leaf)
        if isinstance(leaf, np.ndarray)
        else leaf
    )


def _tell() -> None:
    import warnings

    warnings.warn(
        f"inputs came in {MANY} different shapes, each of which is captured and compiled anew; pad them to a "
        "few sizes, or give numbers that change as tensors",
        stacklevel=4,
    )


def _like(example: Any, inputs: Any) -> Any:
    """Tensors for a capture with these inputs, in the dtypes of the example; of traced arrays only shapes are known."""
    import torch

    leaves, structure = flatten(inputs)
    before, expected = flatten(example)
    if structure != expected:
        shown, wanted = (" ".join(str(one).split()) for one in (structure, expected))
        raise TwinaxError(f"inputs are arranged as {shown}, but those of the example as {wanted}")

    def one(leaf: Any, old: Any) -> Any:
        if not hasattr(leaf, "shape"):
            return leaf
        dtype = old.dtype if hasattr(old, "dtype") else None
        if isinstance(leaf, Tracer):
            return torch.zeros(tuple(leaf.shape), dtype=dtype)
        return as_tensors(leaf).to(dtype)

    return unflatten([one(leaf, old) for leaf, old in zip(leaves, before, strict=True)], structure)
