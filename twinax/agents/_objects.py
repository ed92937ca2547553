"""The agents outside of a training run: an object for PyTorch, a pure function for JAX. The mathematics is the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.tree_util as jtu
import numpy as np

from twinax.bridge import load_state_dict, state_dict
from twinax.errors import TwinaxError, require
from twinax.networks import ema, frozen
from twinax.noise import Draw, generator_draws
from twinax.offline import Agent, Sizes
from twinax.offline.learning import Lesson, first_state, learned, total_loss
from twinax.optimizer import Optimizer
from twinax.problem import Metrics, State, Terms

ADAM = Optimizer(learning_rate=3e-4)
FINETUNES = "finetunes"
"""Of a state's carry: an entry without arrays, so that a compiled update knows its phase when it is traced. In a
dictionary of tensors: whether it is so."""


class TorchAgent:
    """An agent as a PyTorch object.

    >>> agent = TorchAgent(IQL(), Sizes(observation=17, action=6))                       # doctest: +SKIP
    >>> agent.update(batch)["bc.bc_loss"]; agent.begin_finetuning()                      # doctest: +SKIP
    >>> agent.update(batch)["critic.critic_loss"]; agent.sample_actions(observations)    # doctest: +SKIP

    Parameters, batches and draws are on `device`: cpu, cuda, cuda:1 or mps. It pretrains until `begin_finetuning` is
    called, which also takes the place of pretraining where there is none.
    """

    def __init__(self, agent: Agent, sizes: Sizes, seed: int = 0, optimizer: Optimizer = ADAM, device: str = "cpu"):
        require("torch", "torch", "an agent as a PyTorch object")
        import torch

        from twinax.engines.torch_engine import TorchUpdate, to_parameters, to_tensors
        from twinax.platforms import torch_device

        self.agent, self.sizes = agent, sizes
        start = first_state(agent, sizes, optimizer, seed)
        place = torch_device(device)
        self.networks = to_parameters(start.networks, place)
        """The networks: trees of parameters."""
        self.targets = to_tensors(start.targets, place)
        self.memory = to_tensors(agent.memory(sizes), place)
        self.latent: Any = None
        """What the actor is told of the task, once `begin_finetuning` inferred it."""
        self.steps = 0
        self.phase = "pretrain"
        """Of the next update."""
        self._optimizer = TorchUpdate(optimizer, self.networks, start.optimizer)
        self._generator = torch.Generator(place).manual_seed(seed)

    def update(self, batch: Mapping[str, Any], draws: Mapping[str, Any] | None = None) -> Metrics:
        """One update from a batch of tensors; the loss and its terms as numbers.

        `draws` are the random arrays that `agent.draws(phase, sizes)` names; by default they come from the seed.
        """
        phase = self.phase
        _refuse_missing(batch, self.agent, phase)
        rows = dict(batch)
        draws = draws or generator_draws(self.agent.draws(phase, self.sizes), self._generator)
        if phase == "finetune":
            if self.latent is not None:
                rows["latents"] = self.latent.expand(len(rows["actions"]), -1)
            self.memory = self.agent.imagine(frozen(self.networks), self.memory, rows, draws)
            rows = dict(self.agent.recalled(self.memory, rows, draws))
        full = phase == "pretrain" or (self.steps + 1) % self.agent.actor_freq == 0
        state = State(self.networks, self.targets, None, None, None, None)  # pyright: ignore[reportArgumentType]
        lesson = Lesson({phase: rows}, {phase: dict(draws)}, self.targets, full=full)
        state, terms = learned(state, self.agent, self._loss, lesson, phase, self._optimizer)
        self.targets, self.steps = state.targets, self.steps + 1
        return {name: float(value) for name, value in terms.items()}

    def _loss(self, networks, lesson: Lesson) -> tuple[Any, Terms]:
        return total_loss(self.agent, networks, lesson)

    def begin_finetuning(self, labelled: Mapping[str, Any] | None = None) -> None:
        """The next updates finetune: targets start anew, and the latent of a task is inferred from labelled rows where
        the actor is told one."""
        targets, latent = entered(self.agent, self.networks, self.targets, labelled)
        self.targets, self.phase = targets, "finetune"
        self.latent = self.latent if latent is None else latent

    def sample_actions(self, observations: Any, temperature: float = 0.0, given: Any = None) -> Any:
        """Actions in [-1, 1] for one observation or for rows of them; temperature 0 is the mode.

        `given` is a goal or a latent for an actor that sees one; by default the latent that was inferred.
        """
        import torch

        one = observations.ndim == len(self.sizes.shape)
        rows = observations[None] if one else observations
        given = self.latent if given is None else given
        if given is not None and given.ndim == (len(self.sizes.shape) if self.agent.actor_sees == "goal" else 1):
            given = given.expand(len(rows), *given.shape)
        spec = {"noise": Draw((len(rows), self.sizes.action), "normal")}
        noise = generator_draws(spec, self._generator)["noise"].to(jtu.tree_leaves(self.networks)[0].dtype)
        with torch.no_grad():
            actions = self.agent.act(self.networks, rows, given, noise, temperature)
        return actions[0] if one else actions

    def state_dict(self) -> dict[str, Any]:
        """Networks and targets by name, the latent of the task, and whether it finetunes."""
        import torch

        both = {"networks": self.networks, "targets": self.targets}
        tensors = {name: value.detach().clone() for name, value in state_dict(both).items()}
        tensors[FINETUNES] = torch.tensor(self.phase == "finetune", device="cpu")
        return tensors if self.latent is None else {**tensors, "latent": self.latent.clone()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """What `state_dict` gave, into the parameters that the optimizer knows."""
        import torch

        arrays = {name: value for name, value in saved.items() if name not in ("latent", FINETUNES)}
        loaded = load_state_dict({"networks": self.networks, "targets": self.targets}, arrays)
        with torch.no_grad():
            jtu.tree_map(lambda own, new: own.copy_(new), self.networks, loaded["networks"])
        self.targets = jtu.tree_map(lambda x: x.detach().clone(), loaded["targets"])
        self.latent = saved.get("latent", self.latent)
        if FINETUNES in saved:
            self.phase = "finetune" if bool(saved[FINETUNES]) else "pretrain"


class JaxAgent(NamedTuple):
    """An agent as a first state and pure functions of states."""

    state: State
    """It pretrains."""
    update: Callable[..., tuple[State, Metrics]]
    """`update(state, batch, draws=None, full=True)` gives the next state and the terms. `full` says whether the losses
    take part that finetuning has only at every `actor_freq`-th step."""
    begin_finetuning: Callable[..., State]
    """`begin_finetuning(state, labelled=None)` gives a state that finetunes, whether it pretrained or not."""


def jax_agent(agent: Agent, sizes: Sizes, seed: int = 0, optimizer: Optimizer = ADAM) -> JaxAgent:
    """A first state, a pure function to compile that updates it, and the step from pretraining to finetuning.

    >>> state, update, begin_finetuning = jax_agent(IQL(), Sizes(observation=17, action=6))   # doctest: +SKIP
    >>> update = jax.jit(update, static_argnames="full")                                      # doctest: +SKIP
    >>> state, terms = update(state, batch, draws)                                            # doctest: +SKIP
    >>> state, terms = update(begin_finetuning(state), batch, draws)                          # doctest: +SKIP

    Which phase an update belongs to is known by the state, so that no finetuning begins with the targets of before.
    """
    import jax
    import jax.numpy as jnp

    from twinax.engines.jax_engine import updating

    primitive = updating(optimizer, lambda loss, *given: jax.value_and_grad(loss, has_aux=True)(*given))

    def loss(networks, lesson: Lesson) -> tuple[Any, Terms]:
        return total_loss(agent, networks, lesson)

    def update(state: State, batch, draws=None, full: bool = True):
        phase = "finetune" if FINETUNES in state.carry else "pretrain"
        _refuse_missing(batch, agent, phase)
        draws = draws or {}
        rows, carry = dict(batch), dict(state.carry)
        if phase == "finetune":
            if "latent" in carry:
                rows["latents"] = jnp.broadcast_to(carry["latent"], (len(rows["actions"]), *carry["latent"].shape))
            if carry.get("memory"):
                carry["memory"] = agent.imagine(frozen(state.networks), carry["memory"], rows, draws)
                rows = dict(agent.recalled(carry["memory"], rows, draws))
        lesson = Lesson({phase: rows}, {phase: dict(draws)}, state.targets, full=full or phase == "pretrain")
        state, terms = learned(state, agent, loss, lesson, phase, primitive)
        return dataclasses.replace(state, carry=carry, step=state.step + 1), terms

    def begin_finetuning(state: State, labelled: Mapping[str, Any] | None = None) -> State:
        targets, latent = entered(agent, state.networks, state.targets, labelled)
        carry = {**state.carry, FINETUNES: (), **({} if latent is None else {"latent": latent})}
        return dataclasses.replace(state, targets=targets, carry=carry)

    start = first_state(agent, sizes, optimizer, seed)
    memory = agent.memory(sizes)
    start = dataclasses.replace(start, carry={"memory": memory} if memory else {})
    return JaxAgent(jtu.tree_map(lambda x: jnp.asarray(np.asarray(x)), start), update, begin_finetuning)


def entered(agent: Agent, networks: Any, targets: Mapping[str, Any], labelled: Any) -> tuple[dict[str, Any], Any]:
    """Targets as finetuning begins with them, and the latent of the task; None for an actor that is told none."""
    fixed = frozen(networks)
    new_targets = {**targets, **{name: ema(targets[name], fixed[name], 1.0) for name in agent.reset_targets()}}
    if agent.actor_sees != "latent":
        return new_targets, None
    if labelled is None:
        raise TwinaxError(f"{agent.name} infers a latent when finetuning begins; give it labelled rows")
    return new_targets, agent.infer(fixed, labelled)


def _refuse_missing(batch: Mapping[str, Any], agent: Agent, phase: str) -> None:
    needed = ["observations", "actions"]
    if phase == "finetune" and agent.actor_sees != "goal" and agent.name != "bc":
        needed += ["next_observations", "rewards", "masks"]
    if "next_actions" in agent.needs:
        needed.append("next_actions")
    if "goals" in agent.needs:
        needed += ["value_goals", "actor_goals"]
    for name in needed:
        if name not in batch:
            raise TwinaxError(f"the batch has no '{name}', which {agent.name} needs; it has {', '.join(sorted(batch))}")
