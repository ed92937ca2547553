"""ReBRAC on imagined steps (after Janner et al., 2019): a model of the world is pretrained, and then rolled out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from twinax import ops, ring
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.offline._agent import Loss, Nets, Sizes
from twinax.offline._losses import regression
from twinax.offline.agents.rebrac import ReBRAC
from twinax.offline.agents.reward import reward
from twinax.offline.networks import Value
from twinax.problem import Terms

IMAGINED = ("observations", "actions", "next_observations", "next_actions", "rewards")


@dataclass(frozen=True, eq=False)
class MBPOReBRAC(ReBRAC):
    """Every finetuning step rolls the model out from rows of the batch; critic and actor learn from such rows.

    As released, the memory of imagined rows is smaller than a batch and is never read: with `faithful` the agent is
    ReBRAC with two models beside it.
    """

    num_model_rollouts: int = 256
    """Rows of each batch from which the model is rolled out."""
    num_model_rollout_steps: int = 1
    """Steps of a rollout; each goes on from where the last one led."""
    buffer_size: int = 25_600
    """Imagined rows that are kept; old ones are dropped first."""

    name: ClassVar[str] = "mbpo_rebrac"
    encodes: ClassVar[bool] = False
    trained: ClassVar[dict[str, tuple[str, ...]]] = {
        "pretrain": ("transition", "actor"),
        "finetune": ("transition", "reward", "critic", "actor"),
    }

    def __post_init__(self):
        super().__post_init__()
        rows = self.num_model_rollouts * self.num_model_rollout_steps
        if self.buffer_size < rows:
            raise TwinaxError(
                f"buffer_size is {self.buffer_size}, but one step imagines {rows} rows "
                "(num_model_rollouts x num_model_rollout_steps); it must hold them"
            )

    def networks(self, rng, sizes: Sizes) -> dict[str, Any]:
        d, a = sizes.observation, sizes.action
        return {
            **super().networks(rng, sizes),
            "transition": Value.init(rng, d + a, self.hidden, d, norm=self.value_layer_norm),
            "reward": Value.init(rng, d, self.hidden, norm=self.value_layer_norm),
        }

    def losses(self, phase: str) -> dict[str, Loss]:
        models: dict[str, Loss] = {"transition": transition}
        return {**models, **({} if phase == "pretrain" else {"reward": reward}), **super().losses(phase)}

    def draws(self, phase: str, sizes: Sizes) -> dict[str, Draw]:
        found = super().draws(phase, sizes)
        if phase == "finetune" and not self.faithful:
            rows = min(self.num_model_rollouts, sizes.batch)
            found["rollout"] = Draw((self.num_model_rollout_steps + 1, rows, sizes.action), "normal")
            found["recall"] = Draw((sizes.batch,))
        return found

    def critic(self, nets: Nets, batch, draws):
        return super().critic(nets, batch.get("imagined", batch), draws)

    def actor(self, nets: Nets, batch, draws):
        return super().actor(nets, batch.get("imagined", batch), draws)

    # The memory of imagined rows: a ring

    def memory(self, sizes: Sizes) -> dict[str, np.ndarray]:
        if self.faithful:
            return {}
        widths = {"actions": (sizes.action,), "next_actions": (sizes.action,), "rewards": ()}
        rows = {
            name: np.zeros((self.buffer_size, *widths.get(name, (sizes.observation,))), np.float32) for name in IMAGINED
        }
        return {**rows, "written": np.zeros((), np.int32)}

    def imagine(self, networks, memory, batch, draws):
        if not memory:
            return memory
        rows = draws["rollout"].shape[1]
        state, found = batch["observations"][:rows], []
        action = self.act(networks, state, None, draws["rollout"][0], 1.0)
        for step in range(self.num_model_rollout_steps):
            then = state + networks["transition"](state, action)
            following = self.act(networks, then, None, draws["rollout"][step + 1], 1.0)
            # Rewards belong to the state that the data's rewards belong to.
            gained = networks["reward"](then if "reward_observations" in batch else state)
            found.append((state, action, then, following, gained))
            state, action = then, following
        count = rows * self.num_model_rollout_steps
        place = ring.places(memory["written"], count, self.buffer_size)
        new = dict(zip(IMAGINED, (ops.concat(parts) for parts in zip(*found, strict=True)), strict=True))
        kept = {name: ops.set_at(memory[name], place, ops.stop_gradient(new[name])) for name in IMAGINED}
        return {**kept, "written": ring.counted(memory["written"], count, self.buffer_size)}

    def recalled(self, memory, batch, draws):
        if not memory:
            return batch
        held = ops.cast(ring.held(memory["written"], self.buffer_size), draws["recall"])
        rows = ops.minimum(ops.cast(draws["recall"] * held, "int32"), ops.cast(held - 1, "int32"))
        imagined = {name: ops.take(memory[name], rows) for name in IMAGINED}
        ones = ops.full(imagined["rewards"].shape, 1.0, imagined["rewards"])
        return {**batch, "imagined": {**imagined, "masks": ones, "next_action_masks": ones}}


def transition(nets: Nets, batch, draws):
    """The step that a state takes, as a function of the state and the action."""
    change = batch["next_observations"] - batch["observations"]
    loss = regression(nets.online["transition"](batch["observations"], batch["actions"]), change)
    return loss, Terms({"transition_loss": loss}, {"obs_res": ops.mean(change)})
