"""The training steps that `port.py` measures: modules, losses and batches, written as people write them in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from twinax.port import Target, Update

BATCHES = 4
"""Different batches, given in turn."""


@dataclass
class Case:
    """A training step."""

    module: nn.Module
    updates: list[Update]
    batches: list[Any]
    targets: tuple[Target, ...] = ()
    own: Callable[[Any, Any], Any] | None = None
    """A library's own loss of module and raw batch, where it is not what is compiled."""
    convert: Callable[[Any], Any] = staticmethod(lambda raw: raw)
    """From a raw batch to what the losses read, part of every step."""


def layers(*widths: int, between: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers, with something between them."""
    made: list[nn.Module] = []
    for k, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        made += [nn.Linear(inputs, outputs), *([between()] if k < len(widths) - 2 else [])]
    return nn.Sequential(*made)


def adam(parameters: Any, rate: float, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, rate, fused=True, **more)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


# PPO: a minibatch of CleanRL's ppo.py


class ActorCritic(nn.Module):
    """Two networks of 64x64 with tanh, as in CleanRL."""

    def __init__(self, observations: int = 4, actions: int = 2, width: int = 64):
        super().__init__()
        self.critic = layers(observations, width, width, 1, between=nn.Tanh)
        self.actor = layers(observations, width, width, actions, between=nn.Tanh)
        for part, gain in ((self.critic, 1.0), (self.actor, 0.01)):
            for k, layer in enumerate(part):
                if isinstance(layer, nn.Linear):
                    nn.init.orthogonal_(layer.weight, gain if k == len(part) - 1 else 2**0.5)
                    nn.init.zeros_(layer.bias)

    def act(self, observation):
        """Action, its log probability and the value."""
        choice = torch.distributions.Categorical(logits=self.actor(observation))
        action = choice.sample()
        return action, choice.log_prob(action), self.critic(observation).flatten()


def ppo_loss(agent, batch):
    choice = torch.distributions.Categorical(logits=agent.actor(batch["observation"]))
    log_ratio = choice.log_prob(batch["action"]) - batch["log_prob"]
    ratio, advantage = log_ratio.exp(), batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 0.8, 1.2)).mean()
    value = agent.critic(batch["observation"]).flatten()
    clipped = batch["value"] + torch.clamp(value - batch["value"], -0.2, 0.2)
    error = torch.max((value - batch["return"]) ** 2, (clipped - batch["return"]) ** 2)
    entropy = choice.entropy().mean()
    return policy - 0.01 * entropy + 0.5 * 0.5 * error.mean(), {
        "entropy": entropy,
        "kl": ((ratio - 1) - log_ratio).mean(),
    }


def ppo() -> Case:
    agent, size = ActorCritic(), 512
    kinds = ("log_prob", "advantage", "return", "value")
    batches = [
        {"observation": normal(size, 4), "action": torch.randint(2, (size,)), **{kind: normal(size) for kind in kinds}}
        for _ in range(BATCHES)
    ]
    for batch in batches:
        batch["log_prob"] = -batch["log_prob"].abs()
    return Case(agent, [Update(ppo_loss, adam(agent.parameters(), 2.5e-4, eps=1e-5), clip_norm=0.5)], batches)


# SAC: CleanRL's sac_continuous_action.py, all three losses


class SoftActor(nn.Module):
    """A Gaussian behind tanh."""

    def __init__(self, observations: int, actions: int, scale: float = 1.0):
        super().__init__()
        self.body, self.scale = layers(observations, 256, 256), scale
        self.mean, self.log_std = nn.Linear(256, actions), nn.Linear(256, actions)

    def forward(self, observation):
        """An action and its log probability."""
        x = F.relu(self.body(observation))
        log_std = -5 + 0.5 * (2 + 5) * (torch.tanh(self.log_std(x)) + 1)
        choice = torch.distributions.Normal(self.mean(x), log_std.exp())
        raw = choice.rsample()
        squashed = torch.tanh(raw)
        log_prob = choice.log_prob(raw) - torch.log(self.scale * (1 - squashed**2) + 1e-6)
        return squashed * self.scale, log_prob.sum(1, keepdim=True)


class SoftAgent(nn.Module):
    """Actor, twin critics, their targets and the temperature."""

    def __init__(self, observations: int = 17, actions: int = 6, scale: float = 1.0):
        super().__init__()
        self.actor, self.aim = SoftActor(observations, actions, scale), -float(actions)
        self.critics, self.targets = (
            nn.ModuleList([layers(observations + actions, 256, 256, 1) for _ in range(2)]) for _ in range(2)
        )
        self.targets.load_state_dict(self.critics.state_dict())
        self.targets.requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(1))

    def values(self, critics, observation, action):
        """What both critics say."""
        both = torch.cat([observation, action], 1)
        return [critic(both) for critic in critics]


def critic_loss(agent, batch):
    with torch.no_grad():
        action, log_prob = agent.actor(batch["next"])
        least = torch.min(*agent.values(agent.targets, batch["next"], action)) - agent.log_alpha.exp() * log_prob
        aim = batch["reward"] + (1 - batch["done"]) * 0.99 * least
    return sum(F.mse_loss(one, aim) for one in agent.values(agent.critics, batch["observation"], batch["action"]))


def actor_loss(agent, batch):
    action, log_prob = agent.actor(batch["observation"])
    least = torch.min(*agent.values(agent.critics, batch["observation"], action))
    return (agent.log_alpha.exp().detach() * log_prob - least).mean()


def alpha_loss(agent, batch):
    with torch.no_grad():
        _, log_prob = agent.actor(batch["observation"])
    return (-agent.log_alpha.exp() * (log_prob + agent.aim)).mean()


def sac_parts(agent: SoftAgent) -> tuple[list[Update], tuple[Target, ...]]:
    """Losses and targets of an agent."""
    updates = [
        Update(critic_loss, adam(agent.critics.parameters(), 1e-3)),
        Update(actor_loss, adam(agent.actor.parameters(), 3e-4)),
        Update(alpha_loss, adam([agent.log_alpha], 1e-3)),
    ]
    return updates, (Target("targets", "critics", tau=0.005),)


def sac() -> Case:
    agent, size = SoftAgent(), 256
    updates, targets = sac_parts(agent)
    batches = [
        {
            "observation": normal(size, 17),
            "next": normal(size, 17),
            "action": torch.rand(size, 6) * 2 - 1,
            "reward": normal(size, 1),
            "done": torch.zeros(size, 1),
        }
        for _ in range(BATCHES)
    ]
    return Case(agent, updates, batches, targets)


# DQN: the network of Nature's paper on images


class Images(nn.Module):
    """Values of actions from four grey images."""

    def __init__(self, actions: int = 6):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU()),
            *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions)),
        )

    def forward(self, images):
        """Values by action."""
        return self.body(images / 255.0)


def dqn_loss(agent, batch):
    with torch.no_grad():
        best = agent["target"](batch["next"]).amax(1)
        aim = batch["reward"] + 0.99 * best * (1 - batch["done"])
    value = agent["network"](batch["images"]).gather(1, batch["action"][:, None]).squeeze(1)
    return F.smooth_l1_loss(value, aim)


def dqn() -> Case:
    agent, size = nn.ModuleDict({"network": Images(), "target": Images()}), 32
    agent["target"].requires_grad_(False)
    batches = [
        {
            **{name: torch.randint(256, (size, 4, 84, 84), dtype=torch.uint8) for name in ("images", "next")},
            "action": torch.randint(6, (size,)),
            "reward": normal(size),
            "done": torch.zeros(size),
        }
        for _ in range(BATCHES)
    ]
    return Case(agent, [Update(dqn_loss, adam(agent["network"].parameters(), 1e-4))], batches)


# A transformer on tokens, and wide layers


class Tokens(nn.Module):
    """Three layers of width 64 that tell the next token."""

    def __init__(self, kinds: int = 32, length: int = 16, width: int = 64):
        super().__init__()
        self.embedding, self.places = nn.Embedding(kinds, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(width, kinds)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens):
        """Logits of the next token."""
        return self.head(self.body(self.embedding(tokens) + self.places, mask=self.mask, is_causal=True))


def token_loss(module, batch):
    return F.cross_entropy(module(batch["tokens"]).flatten(0, 1), batch["next"].flatten())


def transformer() -> Case:
    module = Tokens()
    batches = [{name: torch.randint(32, (16, 16)) for name in ("tokens", "next")} for _ in range(BATCHES)]
    return Case(module, [Update(token_loss, torch.optim.AdamW(module.parameters(), 3e-4, fused=True))], batches)


def square_loss(module, batch):
    return F.mse_loss(module(batch["x"]), batch["y"])


def wide() -> Case:
    module = layers(*[1024] * 5)
    batches = [{"x": normal(1024, 1024), "y": normal(1024, 1024)} for _ in range(BATCHES)]
    return Case(module, [Update(square_loss, adam(module.parameters(), 1e-4))], batches)


# Trajectory balance of torchgfn


def torchgfn() -> Case:
    """torchgfn's own modules, and trajectories of its own sampler; its own loss, and one over fixed numbers of rows."""
    from gfn.estimators import DiscretePolicyEstimator
    from gfn.gflownet import TBGFlowNet
    from gfn.gym import HyperGrid
    from gfn.preprocessors import KHotPreprocessor
    from gfn.samplers import Sampler
    from gfn.utils.modules import MLP

    presets = {"R0": 1e-3, "R1": 0.5, "R2": 2.0}
    env = HyperGrid(
        ndim=4, height=20, reward_fn_str="original", reward_fn_kwargs=presets, device=torch.device("cpu"), debug=False
    )
    coder = KHotPreprocessor(height=20, ndim=4)
    forward = MLP(input_dim=coder.output_dim, output_dim=env.n_actions, hidden_dim=256, n_hidden_layers=2)
    backward = MLP(input_dim=coder.output_dim, output_dim=env.n_actions - 1, trunk=forward.trunk)
    pf = DiscretePolicyEstimator(forward, env.n_actions, preprocessor=coder, is_backward=False)
    pb = DiscretePolicyEstimator(backward, env.n_actions, preprocessor=coder, is_backward=True)
    model = TBGFlowNet(pf=pf, pb=pb)
    # The steps are small, so that trajectories stay those of the policy.
    rates = [
        {"params": list(model.pf_pb_parameters()), "lr": 1e-6},
        {"params": list(model.logz_parameters()), "lr": 1e-4},
    ]
    sampler = Sampler(estimator=pf)
    trajectories = [
        sampler.sample_trajectories(env, n=16, save_logprobs=False, save_estimator_outputs=False, epsilon=0.0)
        for _ in range(BATCHES)
    ]

    def convert(one: Any) -> dict[str, torch.Tensor]:
        """States with an action, whichever trajectory they are of, filled up with rows that do not count."""
        states, actions = one.states, one.actions.tensor[..., 0]
        real = ~one.actions.is_dummy
        place = torch.nonzero(real)
        time, path = place[:, 0], place[:, 1]
        action = actions[time, path]
        before, after = states.tensor[time, path], states.tensor[time + 1, path]
        leaves = action == env.n_actions - 1
        batch = {
            "before": before,
            "after": torch.where(leaves[:, None], before, after),
            "action": action,
            "forward_mask": states.forward_masks[time, path],
            "backward_mask": states.backward_masks[time + 1, path] | leaves[:, None],
            "back": torch.where(leaves, 0, action),
            "inside": (~leaves).float(),
            "real": torch.ones(len(place)),
            "path": path,
        }
        missing = -len(place) % 64
        batch = {key: F.pad(x, (*[0] * (2 * x.ndim - 1), missing)) for key, x in batch.items()}
        for key in ("forward_mask", "backward_mask"):
            batch[key][len(place) :] = True
        return {**batch, "log_reward": one.log_rewards}

    def log_prob(estimator: Any, states: Any, mask: Any, action: Any) -> Any:
        logits = estimator.module(F.one_hot(states, 20).float().flatten(1)).masked_fill(~mask, -torch.inf)
        return logits.log_softmax(-1).gather(1, action[:, None])[:, 0]

    def balance(model: Any, batch: Any) -> Any:
        log_pf = log_prob(model.pf, batch["before"], batch["forward_mask"], batch["action"]) * batch["real"]
        log_pb = log_prob(model.pb, batch["after"], batch["backward_mask"], batch["back"]) * batch["inside"]
        total = torch.zeros_like(batch["log_reward"]).index_add(0, batch["path"], log_pf - log_pb)
        return 0.5 * ((model.logZ + total - batch["log_reward"]) ** 2).mean()

    def own(model: Any, one: Any) -> Any:
        return model.loss(env, one, recalculate_all_logprobs=True)

    optimizer = torch.optim.Adam(rates, fused=True)
    return Case(model, [Update(balance, optimizer)], trajectories, own=own, convert=convert)


CASES: dict[str, tuple[Callable[[], Case], float]] = {
    "ppo": (ppo, 5.0),
    "sac": (sac, 2.0),
    "dqn": (dqn, 1.3),
    "torchgfn": (torchgfn, 3.0),
    "transformer": (transformer, 2.0),
    "wide": (wide, 0.95),
}
"""By name: what makes it, and how many times as fast as eager PyTorch its step is meant to be."""


def eager(case: Case, losses: list[Callable[..., Any]] | None = None) -> Callable[[Any], None]:
    """One training step in PyTorch, as people write it."""
    named = dict(case.module.named_parameters())
    following = [(target.tau, target.pairs(named)) for target in case.targets]
    convert = case.convert
    if losses is None and case.own is not None:
        losses, convert = [case.own], lambda raw: raw
    losses = losses or [update.loss for update in case.updates]

    def step(raw: Any) -> None:
        batch = convert(raw)
        for update, loss in zip(case.updates, losses, strict=True):
            result = loss(case.module, batch)
            value = result[0] if isinstance(result, tuple) else result
            update.optimizer.zero_grad()
            value.backward()
            if update.clip_norm:
                own = [p for group in update.optimizer.param_groups for p in group["params"]]
                nn.utils.clip_grad_norm_(own, update.clip_norm, foreach=True)
            update.optimizer.step()
        with torch.no_grad():
            for tau, pairs in following:
                torch._foreach_lerp_([named[name] for name in pairs], [named[name] for name in pairs.values()], tau)

    return step


def make(name: str) -> Case:
    """A case, the same in every process."""
    torch.manual_seed(0)
    np.random.seed(0)
    return CASES[name][0]()
