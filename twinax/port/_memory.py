"""What an optimizer remembers: out of `torch.optim`, into arrays by the parameters' names, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from twinax.bridge import to_jax, to_torch
from twinax.errors import TwinaxError
from twinax.port._optimizers import Rule, rule_of, static_part


class Managed:
    """One optimizer over parameters of a module, by their names in `state_dict`."""

    def __init__(self, optimizer: Any, module: Any):
        import torch

        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TwinaxError(f"the optimizer is a {type(optimizer).__name__}; give one of torch.optim")
        self.optimizer = optimizer
        known = {id(p): name for name, p in module.named_parameters()}
        self.parameters: dict[str, Any] = {}
        self._groups: dict[str, int] = {}
        for place, group in enumerate(optimizer.param_groups):
            for p in group["params"]:
                if id(p) not in known:
                    raise TwinaxError(
                        f"the optimizer trains a parameter of shape {tuple(p.shape)} that is not one of the module's; "
                        "give one module that holds all that is trained, such as a torch.nn.ModuleDict"
                    )
                self.parameters[known[id(p)]] = p
                self._groups[known[id(p)]] = place
        self.counts = dict.fromkeys(self.parameters, 0)
        """Updates of each parameter so far."""
        self._rules: dict[Any, Rule] = {}
        self.pull()

    def check_groups(self) -> None:
        """Refuse parameters that the optimizer has been given since."""
        if sum(len(group["params"]) for group in self.optimizer.param_groups) != len(self.parameters):
            raise TwinaxError(
                "the optimizer has other parameters than when the step was made (add_param_group); make a new step"
            )

    def group(self, name: str) -> dict[str, Any]:
        """The settings of now for a parameter."""
        return self.optimizer.param_groups[self._groups[name]]

    def place(self, name: str) -> int:
        """Which group a parameter is in."""
        return self._groups[name]

    def switches(self) -> tuple[Any, ...]:
        """What of the settings a program is compiled for."""
        return tuple(static_part(group) for group in self.optimizer.param_groups)

    def rule(self, name: str) -> Rule:
        """How a parameter is updated."""
        group = self.group(name)
        key = static_part(group)
        if key not in self._rules:
            self._rules[key] = rule_of(self.optimizer, group)
        return self._rules[key]

    def numbers(self, names: Sequence[str]) -> np.ndarray:
        """What the rule of parameters of one group reads in this step: once, or a row for each if some of them had
        more updates than others."""
        counts = [self.counts[name] for name in names]
        rule, group = self.rule(names[0]), self.group(names[0])
        if counts.count(counts[0]) == len(counts):
            return np.array(rule.numbers(group, counts[0]))
        return np.array([rule.numbers(group, count) for count in counts])

    def count(self, names: Sequence[str]) -> None:
        """These parameters were updated once more."""
        counts = self.counts
        for name in names:
            counts[name] += 1

    def pull(self) -> dict[str, dict[str, Any]]:
        """Take over what PyTorch's optimizer remembers."""
        self.memory: dict[str, dict[str, Any]] = {}
        for name, p in self.parameters.items():
            state, rule = self.optimizer.state.get(p, {}), self.rule(name)
            held = {key: state.get(key) for key in rule.memory}
            self.memory[name] = {
                key: jnp.zeros(tuple(p.shape), to_jax(p.detach()).dtype) if value is None else to_jax(value.detach())
                for key, value in held.items()
            }
            begun = any(value is not None for value in held.values())
            self.counts[name] = int(state["step"]) if "step" in state else int(begun)
        return self.memory

    def push(self) -> None:
        """Give PyTorch's optimizer what is remembered, so that it could go on."""
        import torch

        for name, p in self.parameters.items():
            if not self.counts[name]:
                continue
            rule, group = self.rule(name), self.group(name)
            state = {key: to_torch(value).to(p.dtype).clone() for key, value in self.memory[name].items()}
            if rule.counted:
                device = p.device if group.get("fused") or group.get("capturable") else "cpu"
                state["step"] = torch.tensor(float(self.counts[name]), dtype=torch.float32, device=device)
            self.optimizer.state[p] = state
