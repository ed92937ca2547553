"""A network as a `torch.nn.Module`, for everything PyTorch offers around one."""

from __future__ import annotations

from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import tree
from twinax.errors import require


def as_torch_module(network: Any):
    """An `nn.Module` with this network's weights (copied) and PyTorch's parameter names.

    It has `state_dict`, `.to`, hooks, and works with `torch.optim`. Leaves that are already
    `nn.Parameter` are taken as they are, so an engine's own networks can be wrapped without a copy.

    >>> module = as_torch_module(run.networks.policy)          # doctest: +SKIP
    >>> list(module.state_dict())                              # doctest: +SKIP
    ['layers.0.weight', 'layers.0.bias', ...]
    """
    require("torch", "torch", "as_torch_module")
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self._structure = jtu.tree_structure(network)
            self._names = []
            for name, leaf in tree.named_leaves(network).items():
                parameter = leaf
                if not isinstance(leaf, torch.nn.Parameter):
                    parameter = torch.nn.Parameter(torch.from_numpy(np.array(_to_numpy(leaf))))
                owner, _, last = name.rpartition(".")
                _child(self, owner).register_parameter(last or "value", parameter)
                self._names.append(name if owner or last else "value")

        def network(self) -> Any:
            """The tree with this module's parameters as leaves."""
            return jtu.tree_unflatten(self._structure, [self.get_parameter(n) for n in self._names])

        def forward(self, *args, **kwargs):
            return self.network()(*args, **kwargs)

    def _child(module, path: str):
        for part in path.split(".") if path else []:
            if part not in module._modules:
                module.add_module(part, torch.nn.Module())
            module = module._modules[part]
        return module

    Wrapped.__name__ = Wrapped.__qualname__ = type(network).__name__
    return Wrapped()


def _to_numpy(leaf: Any) -> np.ndarray:
    return leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else np.asarray(leaf)
