"""A network as a `torch.nn.Module`, for everything PyTorch offers around one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import tree
from twinax.errors import require


def as_torch_module(network: Any, call: Callable[..., Any] | None = None):
    """An `nn.Module` with this network's weights (copied) and PyTorch's parameter names.

    It has `state_dict`, `.to`, hooks, and works with `torch.optim`. Tensors stay on their device, arrays of other
    frameworks come to the CPU. Leaves that are already
    `nn.Parameter` are taken as they are, so an engine's own networks can be wrapped without a copy. What it does when
    it is called is `call(network, *inputs)`, by default `network(*inputs)`.

    >>> module = as_torch_module(run.networks.policy)          # doctest: +SKIP
    >>> list(module.state_dict())                              # doctest: +SKIP
    ['layers.0.weight', 'layers.0.bias', ...]
    """
    require("torch", "torch", "as_torch_module")
    import torch

    structure = jtu.tree_structure(network)
    leaves = tree.named_leaves(network)
    paths = [name.split(".") if name else ["value"] for name in leaves]

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for path, leaf in zip(paths, leaves.values(), strict=True):
                parameter = leaf
                if not isinstance(leaf, torch.nn.Parameter):
                    device = leaf.device if isinstance(leaf, torch.Tensor) else "cpu"
                    parameter = torch.nn.Parameter(torch.from_numpy(np.array(_to_numpy(leaf))).to(device))
                owner: torch.nn.Module = self
                for part in path[:-1]:
                    # Set directly: `add_module` refuses names such as `forward`, which a policy has.
                    owner = owner._modules.setdefault(part, torch.nn.Module())  # type: ignore[assignment]
                owner.register_parameter(path[-1], parameter)

        def network(self) -> Any:
            """The tree with this module's parameters as leaves."""
            parameters = []
            for path in paths:
                owner: Any = self
                for part in path[:-1]:
                    owner = owner._modules[part]
                parameters.append(owner._parameters[path[-1]])
            return jtu.tree_unflatten(structure, parameters)

        def forward(self, *args, **kwargs):
            network = self.network()
            return network(*args, **kwargs) if call is None else call(network, *args, **kwargs)

    Wrapped.__name__ = Wrapped.__qualname__ = type(network).__name__
    return Wrapped()


def _to_numpy(leaf: Any) -> np.ndarray:
    return leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else np.asarray(leaf)
