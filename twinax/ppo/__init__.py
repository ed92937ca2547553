"""Proximal policy optimisation: rollout, advantages, losses and update as parts of their own."""

from twinax.ppo._advantages import ADVANTAGES, brax, cleanrl, gae, rsl_rl
from twinax.ppo._amp import LABELS, AmpOptions, amp, discriminator_loss
from twinax.ppo._hooks import Hooks
from twinax.ppo._losses import policy_loss, standardised, value_loss
from twinax.ppo._networks import ActorCritic, make_networks, to_world
from twinax.ppo._normaliser import RunningMoments, Scaling
from twinax.ppo._policy import Policy
from twinax.ppo._problem import ADAM, PPO, problem
from twinax.ppo._rollout import Playing, Rollout, Started, advance, begin, entered, play

__all__ = [
    "ADAM",
    "ADVANTAGES",
    "LABELS",
    "PPO",
    "ActorCritic",
    "AmpOptions",
    "Hooks",
    "Playing",
    "Policy",
    "Rollout",
    "RunningMoments",
    "RunningMoments",
    "Scaling",
    "Started",
    "advance",
    "amp",
    "begin",
    "brax",
    "cleanrl",
    "discriminator_loss",
    "entered",
    "gae",
    "make_networks",
    "play",
    "policy_loss",
    "problem",
    "rsl_rl",
    "standardised",
    "to_world",
    "value_loss",
]
