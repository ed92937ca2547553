"""A model of the reward, which agents that pretrain without rewards learn when finetuning begins."""

from __future__ import annotations

from twinax.offline._agent import Nets
from twinax.offline._losses import regression
from twinax.problem import Terms


def reward(nets: Nets, batch, draws):
    """Rewards as a function of the state that they belong to."""
    states = batch.get("reward_observations", batch["observations"])
    loss = regression(nets.online["reward"](states), batch["rewards"])
    return loss, Terms({"reward_loss": loss})
