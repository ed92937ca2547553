"""An operator of the table against PyTorch's own: values, dtypes and gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from twinax.port._dtypes import to_jax_dtype
from twinax.port._evaluate import run_node
from twinax.port._program import Node

TOLERANCE = 1e-12


@contextlib.contextmanager
def doubles() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def check_operator(
    name: str, *arguments: Any, gradients: bool = True, tolerance: float = TOLERANCE, **options: Any
) -> None:
    """`aten.add.Tensor` on these arguments gives in JAX what it gives in PyTorch, and the same gradients.

    Arrays are NumPy's or tensors, at any depth of lists; float arrays are differentiated by, under random weights of
    every float result. Dtypes in options are PyTorch's.
    """
    with doubles():
        packet, overload = name.split(".")[1:]
        target = getattr(getattr(torch.ops.aten, packet), overload)
        leaves: list[torch.Tensor] = []

        def tensors(x: Any) -> Any:
            if isinstance(x, (np.ndarray, np.generic, torch.Tensor)):
                tensor = (x if isinstance(x, torch.Tensor) else torch.from_numpy(np.array(x))).detach().clone()
                tensor.requires_grad_(gradients and tensor.is_floating_point())
                leaves.append(tensor)
                return tensor
            return type(x)(map(tensors, x)) if isinstance(x, (list, tuple)) else x

        given = tensors(list(arguments))
        theirs = target(*given, **options)
        several = isinstance(theirs, (list, tuple))
        theirs = list(theirs) if several else [theirs]
        dtypes = tuple(str(x.dtype).removeprefix("torch.") for x in theirs)
        node = Node("node", name, (), {}, dtypes, None)
        plain = {k: to_jax_dtype(str(v)[6:]) if isinstance(v, torch.dtype) else v for k, v in options.items()}

        def ours(arrays: list[Any]) -> list[Any]:
            waiting = iter(arrays)

            def filled(x: Any) -> Any:
                if isinstance(x, torch.Tensor):
                    return next(waiting)
                return tuple(map(filled, x)) if isinstance(x, (list, tuple)) else x

            found = run_node(node, [filled(x) for x in given], plain)
            return list(found) if several else [found]

        arrays = [jnp.asarray(leaf.detach().numpy()) for leaf in leaves]
        found = jax.jit(ours)(arrays)  # one compilation, where eager JAX would compile each step
        assert len(found) == len(theirs)
        for a, b in zip(found, theirs, strict=True):
            assert tuple(a.shape) == tuple(b.shape), (a.shape, b.shape)
            assert a.dtype.name == str(b.dtype).removeprefix("torch."), (a.dtype, b.dtype)
            np.testing.assert_allclose(np.asarray(a), b.detach().numpy(), rtol=tolerance, atol=tolerance)
        floats = [k for k, leaf in enumerate(leaves) if leaf.requires_grad]
        outputs = [k for k, x in enumerate(theirs) if x.requires_grad]
        if not floats or not outputs:
            return
        rng = np.random.default_rng(0)
        weights = [rng.normal(size=tuple(theirs[k].shape)) for k in outputs]
        total = sum((theirs[k] * torch.from_numpy(np.asarray(w))).sum() for k, w in zip(outputs, weights, strict=True))
        expected = torch.autograd.grad(total, [leaves[k] for k in floats], allow_unused=True)

        def scalar(chosen: list[Any]) -> Any:
            whole = list(arrays)
            for k, x in zip(floats, chosen, strict=True):
                whole[k] = x
            results = ours(whole)
            return sum((results[k] * w).sum() for k, w in zip(outputs, weights, strict=True))

        got = jax.jit(jax.grad(scalar))([arrays[k] for k in floats])
        for a, b in zip(got, expected, strict=True):
            b = np.zeros(a.shape) if b is None else b.numpy(force=True)
            np.testing.assert_allclose(np.asarray(a), b, rtol=tolerance, atol=tolerance)
