"""Parameters from JAX to PyTorch each step, through one flat buffer."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import flatten, is_tensor, numpy_to_tensor, tensor_to_numpy
from twinax.bridge._exchange import to_jax
from twinax.errors import TwinaxError, require


class ParameterSync:
    """Makes the tensors of a tree views of one flat buffer, so that JAX's numbers reach them without PyTorch.

    A tree is copied leaf by leaf into NumPy views of the buffer; a vector made by `ravel` inside the
    compiled step is one copy, which is best for many leaves and for an accelerator. Give it a tree of
    tensors or a `torch.nn.Module`; JAX trees are matched by leaf name, in any order.

    >>> sync = ParameterSync(module)  # doctest: +SKIP
    >>> sync.push(jax_networks)  # doctest: +SKIP
    """

    def __init__(self, parameters: Any):
        require("torch", "torch", "ParameterSync")
        import torch

        if isinstance(parameters, torch.nn.Module):
            parameters = dict(parameters.named_parameters())
        names, tensors, self._structure = flatten(parameters)
        _check(names, tensors)
        self.names: tuple[str, ...] = tuple(names)
        self.shapes: tuple[tuple[int, ...], ...] = tuple(tuple(t.shape) for t in tensors)
        self._bounds = np.cumsum([0, *(t.numel() for t in tensors)]).tolist()
        self.flat = torch.cat([t.detach().reshape(-1) for t in tensors])
        for tensor, start, stop in zip(tensors, self._bounds, self._bounds[1:], strict=False):
            tensor.data = self.flat[start:stop].view(tensor.shape)
        self._tensors = tensors
        self._addresses = [t.data_ptr() for t in tensors]
        self._host = tensor_to_numpy(self.flat)  # the buffer itself on the CPU, else a copy to fill and send
        self._views = [
            self._host[a:b].reshape(shape)
            for shape, a, b in zip(self.shapes, self._bounds, self._bounds[1:], strict=False)
        ]
        self._orders: dict[Any, list[int]] = {}
        self._split = jax.jit(self.unravel)

    @property
    def size(self) -> int:
        """How many numbers the buffer holds."""
        return self._bounds[-1]

    def ravel(self, tree: Any) -> jax.Array:
        """A JAX tree as one vector in the buffer's order; meant for use inside a compiled step."""
        return jnp.concatenate([leaf.reshape(-1) for leaf in self._ordered(tree)])

    def unravel(self, flat: jax.Array) -> Any:
        """A vector in the buffer's order as a tree like the one given at the start."""
        parts = zip(self.shapes, self._bounds, self._bounds[1:], strict=False)
        return jtu.tree_unflatten(self._structure, [flat[a:b].reshape(shape) for shape, a, b in parts])

    def push(self, source: Any) -> None:
        """Copy JAX parameters (a tree, or the vector of `ravel`) into the PyTorch tensors."""
        import torch

        if getattr(source, "shape", None) == (self.size,):
            values, targets = [source], [self._host]
        else:
            values, targets = self._ordered(source), self._views
        other = next((value.dtype for value in values if value.dtype != self._host.dtype), None)
        if other is not None:
            raise TwinaxError(f"JAX parameters are {other} but the PyTorch tensors {self._host.dtype}")
        for name, tensor, address in zip(self.names, self._tensors, self._addresses, strict=True):
            if tensor.data_ptr() != address:
                raise TwinaxError(
                    f"'{name}' was moved away from the flat buffer (by .to(), .half() or a new .data); "
                    "create the ParameterSync afterwards"
                )
        for target, value in zip(targets, values, strict=True):
            np.copyto(target, _viewed(value), casting="no")
        if self.flat.device.type != "cpu":
            self.flat.copy_(numpy_to_tensor(self._host))
        # The copy goes behind autograd's back: with this, backward through an older graph raises
        # instead of using the new numbers.
        torch.autograd.graph.increment_version(self._tensors)

    def changed(self, vector: Any) -> str | None:
        """The first parameter whose memory is elsewhere, or whose numbers are not those of a vector of `ravel`, however
        they were written; None if all are."""
        for name, tensor, address in zip(self.names, self._tensors, self._addresses, strict=True):
            if tensor.data_ptr() != address:
                return name
        if self.flat.device.type != "cpu":
            self._host = tensor_to_numpy(self.flat)
        bits = f"u{self._host.dtype.itemsize}"
        different = self._host.view(bits) != _viewed(vector).view(bits)
        if not different.any():
            return None
        place = int(different.argmax())
        return next(name for name, stop in zip(self.names, self._bounds[1:], strict=True) if place < stop)

    def pull(self) -> Any:
        """The PyTorch tensors' present values as a JAX tree like the one given at the start."""
        return self._split(to_jax(self.flat))

    def _ordered(self, tree: Any) -> list[Any]:
        """The leaves of a JAX tree in the buffer's order, their shapes checked."""
        leaves, structure = jtu.tree_flatten(tree)
        if structure not in self._orders:
            self._orders[structure] = self._order(tree)
        leaves = [leaves[i] for i in self._orders[structure]]
        for name, leaf, shape in zip(self.names, leaves, self.shapes, strict=True):
            if leaf.shape != shape:
                raise TwinaxError(f"'{name}' has shape {leaf.shape} in JAX but {shape} in PyTorch")
        return leaves

    def _order(self, tree: Any) -> list[int]:
        names, _, _ = flatten(tree)
        place = {name: i for i, name in enumerate(names)}
        missing = [name for name in self.names if name not in place]
        extra = [name for name in names if name not in set(self.names)]
        if missing or extra:
            raise TwinaxError(
                f"the JAX parameters do not fit: missing {missing[:5] or 'none'}, unexpected {extra[:5] or 'none'}"
            )
        return [place[name] for name in self.names]


def _viewed(value: Any) -> np.ndarray:
    """Numbers that are on the CPU by now. JAX keeps the view that `np.asarray` makes, and then cannot give the array's
    memory to what comes after it; one over DLPack, which has no dtype for bfloat16, ends with the copy."""
    if isinstance(value, jax.Array) and value.dtype in (np.float32, np.float64) and value.devices() <= _host_devices():
        ready: Any = value.block_until_ready()
        return np.from_dlpack(ready)
    return np.asarray(value)


@functools.cache
def _host_devices() -> set[Any]:
    return set(jax.devices("cpu"))


def _check(names: list[str], tensors: list[Any]) -> None:
    if not tensors:
        raise TwinaxError("ParameterSync got a tree without tensors")
    seen: dict[int, str] = {}
    for name, tensor in zip(names, tensors, strict=True):
        if not is_tensor(tensor):
            raise TwinaxError(f"ParameterSync needs PyTorch tensors, but '{name}' is a {type(tensor).__name__}")
        if id(tensor) in seen:
            raise TwinaxError(f"'{seen[id(tensor)]}' and '{name}' are the same tensor; give each its own")
        seen[id(tensor)] = name
        if not tensor.is_floating_point():
            raise TwinaxError(f"'{name}' is {tensor.dtype}; only floating-point parameters are synchronised")
        if (tensor.dtype, tensor.device) != (tensors[0].dtype, tensors[0].device):
            raise TwinaxError(
                f"'{names[0]}' is {tensors[0].dtype} on {tensors[0].device} but '{name}' is {tensor.dtype} on "
                f"{tensor.device}; one flat buffer needs one dtype and device"
            )
