"""Adam's memory across frameworks.

| twinax.optimizer.Moments | torch.optim.Adam state | optax.ScaleByAdamState |
| ------------------------ | ---------------------- | ---------------------- |
| count                    | step                   | count                  |
| first                    | exp_avg                | mu                     |
| second                   | exp_avg_sq             | nu                     |
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from twinax.bridge._arrays import flatten, numpy_to_tensor, tensor_to_numpy
from twinax.errors import TwinaxError
from twinax.optimizer import Moments


def moments_from_torch(optimizer: Any, tree: Any) -> Moments:
    """The moments of a `torch.optim.Adam` or `AdamW` as NumPy trees like `tree`, its tree of parameters.

    >>> moments = moments_from_torch(optimizer, networks)  # doctest: +SKIP
    """
    names, parameters = _managed(optimizer, tree)
    states = [optimizer.state.get(p, {}) for p in parameters]
    counts = {name: int(state.get("step", 0)) for name, state in zip(names, states, strict=True)}
    if len(set(counts.values())) > 1:
        (low, few), (high, many) = (pick(counts.items(), key=lambda item: item[1]) for pick in (min, max))
        raise TwinaxError(
            f"'{low}' has had {few} updates but '{high}' {many}; one count cannot hold both "
            "(a parameter without a gradient is skipped by PyTorch)"
        )
    if any("max_exp_avg_sq" in state for state in states):
        raise TwinaxError("the optimizer was made with amsgrad=True, whose third moment has no counterpart here")

    def collect(key: str) -> Any:
        values = [
            np.array(tensor_to_numpy(state[key])) if key in state else np.zeros_like(tensor_to_numpy(p))
            for p, state in zip(parameters, states, strict=True)
        ]
        return jtu.tree_unflatten(jtu.tree_structure(tree), values)

    count = np.asarray(max(counts.values(), default=0), np.int32)
    return Moments(count=count, first=collect("exp_avg"), second=collect("exp_avg_sq"))


def load_moments_into_torch(optimizer: Any, tree: Any, moments: Moments) -> None:
    """Put moments (of any framework) into a `torch.optim.Adam` or `AdamW` over the parameters in `tree`.

    >>> load_moments_into_torch(optimizer, networks, moments)  # doctest: +SKIP
    """
    import torch

    names, parameters = _managed(optimizer, tree)
    amsgrad = any(group["amsgrad"] for group in optimizer.param_groups)
    if amsgrad:
        raise TwinaxError("the optimizer was made with amsgrad=True, whose third moment has no counterpart here")
    loaded = []
    for key, values in (("exp_avg", moments.first), ("exp_avg_sq", moments.second)):
        moment_names, leaves, _ = flatten(values)
        if moment_names != names:
            raise TwinaxError(f"the moments are of {moment_names[:5]}... but the parameters are {names[:5]}...")
        for name, leaf, parameter in zip(names, leaves, parameters, strict=True):
            if tuple(leaf.shape) != tuple(parameter.shape):
                raise TwinaxError(
                    f"{key} of '{name}' has shape {tuple(leaf.shape)} but the parameter {tuple(parameter.shape)}"
                )
        loaded.append(leaves)
    # With an optimizer for each network the count is a dict by network.
    counts = moments.count if isinstance(moments.count, dict) else None
    for name, parameter, first, second in zip(names, parameters, *loaded, strict=True):
        count: Any = moments.count if counts is None else counts[name.partition(".")[0]]
        group = next(g for g in optimizer.param_groups if any(p is parameter for p in g["params"]))
        # PyTorch keeps the count on the CPU unless the kernel itself reads it.
        device = parameter.device if group["fused"] or group["capturable"] else "cpu"
        optimizer.state[parameter] = {
            "step": torch.tensor(float(count), dtype=torch.float32, device=device),
            "exp_avg": _like(first, parameter),
            "exp_avg_sq": _like(second, parameter),
        }


def moments_from_optax(state: Any) -> Moments:
    """The moments in an Optax state, found inside chains and, one group each, `multi_transform`.

    >>> moments = moments_from_optax(optax.adam(1e-3).init(networks))  # doctest: +SKIP
    """
    import optax

    parts = [x for x in jtu.tree_leaves(state, is_leaf=_is_adam) if _is_adam(x)]
    if not parts:
        raise TwinaxError("this Optax state holds no Adam moments (optax.ScaleByAdamState)")
    counts = {int(part.count) for part in parts}
    if len(counts) > 1:
        raise TwinaxError(
            f"the groups of this Optax state have had {sorted(counts)} updates; one count cannot hold both"
        )

    def first_present(*values: Any) -> Any:
        present = [v for v in values if not isinstance(v, optax.MaskedNode)]
        if len(present) != 1:
            raise TwinaxError(
                f"{len(present)} groups of this Optax state hold moments of one parameter; there must be one"
            )
        return present[0]

    def merge(trees: list[Any]) -> Any:
        return jtu.tree_map(first_present, *trees, is_leaf=_is_masked)

    return Moments(
        count=parts[0].count, first=merge([part.mu for part in parts]), second=merge([part.nu for part in parts])
    )


def optax_from_moments(moments: Moments, like: Any) -> Any:
    """The Optax state `like` (from `optimizer.init`) with these moments; schedules count on from there.

    >>> state = optax_from_moments(moments, optax.adam(1e-3).init(networks))  # doctest: +SKIP
    """
    import optax

    def fill(old: Any, new: Any) -> Any:
        def one(a: Any, b: Any) -> Any:
            if _is_masked(a):
                return a
            if tuple(a.shape) != tuple(b.shape):
                raise TwinaxError(f"a moment has shape {tuple(b.shape)} but its parameter {tuple(a.shape)}")
            return jnp.array(np.asarray(b), dtype=a.dtype)

        return jtu.tree_map(one, old, new, is_leaf=_is_masked)

    counts = {int(count) for count in jtu.tree_leaves(moments.count)}
    if len(counts) > 1:
        raise TwinaxError(f"networks of these moments have had {sorted(counts)} updates; one Optax state has one count")
    count = jnp.array(counts.pop(), jnp.int32)

    def replace(part: Any) -> Any:
        if _is_adam(part):
            return part._replace(count=count, mu=fill(part.mu, moments.first), nu=fill(part.nu, moments.second))
        if isinstance(part, optax.ScaleByScheduleState):
            return part._replace(count=count)
        return part

    parts = jtu.tree_leaves(like, is_leaf=_is_adam)
    if not any(_is_adam(part) for part in parts):
        raise TwinaxError("this Optax state holds no Adam moments (optax.ScaleByAdamState)")
    return jtu.tree_map(replace, like, is_leaf=lambda x: _is_adam(x) or isinstance(x, optax.ScaleByScheduleState))


def _is_adam(part: Any) -> bool:
    import optax

    return isinstance(part, optax.ScaleByAdamState)


def _is_masked(part: Any) -> bool:
    import optax

    return isinstance(part, optax.MaskedNode)


def _managed(optimizer: Any, tree: Any) -> tuple[list[str], list[Any]]:
    """Names and parameters of the tree, all of them known to this Adam."""
    import torch

    if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        raise TwinaxError(f"moments are those of torch.optim.Adam or AdamW, not of {type(optimizer).__name__}")
    names, parameters, _ = flatten(tree)
    known = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in zip(names, parameters, strict=True):
        if id(parameter) not in known:
            raise TwinaxError(f"the optimizer does not train '{name}'; give it the parameters of this tree")
    return names, parameters


def _like(leaf: Any, parameter: Any) -> Any:
    """A copy of a moment with its parameter's dtype and device."""
    array = np.array(np.asarray(leaf) if isinstance(leaf, (np.ndarray, jax.Array)) else tensor_to_numpy(leaf))
    return numpy_to_tensor(array).to(dtype=parameter.dtype, device=parameter.device)
