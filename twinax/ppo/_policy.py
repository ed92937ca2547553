"""A trained policy alone: from an observation to the action that it likes best."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinax import tree
from twinax.envs._control import Control, Discrete
from twinax.errors import TwinaxError
from twinax.ppo._networks import ActorCritic, to_world
from twinax.ppo._normaliser import Moments, Scaling
from twinax.ppo._problem import PPO
from twinax.problem import State


class Layer(NamedTuple):
    """A linear layer of a policy, and the activation after it."""

    name: str
    weight: np.ndarray
    """out x in"""
    bias: np.ndarray
    activation: str | None


@dataclass(frozen=True, eq=False)
class Policy:
    """The actor, the statistics of observations and the bounds of actions: NumPy arrays in float32.

    >>> policy = Policy.of(problem, run.state)                              # doctest: +SKIP
    >>> policy.act(observation)                                             # doctest: +SKIP
    """

    agent: ActorCritic
    moments: Moments | None
    world: Control
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Where it comes from: run, step, seed, configuration."""
    scaling: Scaling = Scaling()
    """How observations are normalised by the moments."""

    @classmethod
    def of(cls, problem: PPO, state: State | Mapping[str, Any], **facts: Any) -> Policy:
        """The policy of a state of one seed, from any engine."""
        if not isinstance(problem, PPO):
            raise TwinaxError(f"a policy is that of a PPO problem, not of a {type(problem).__name__}")
        parts = state if isinstance(state, Mapping) else {"networks": state.networks, "carry": state.carry}
        carry = parts["carry"]
        moments = carry["observation"] if isinstance(carry, Mapping) else carry.observation
        agent, moments = tree.map_leaves(_single, (parts["networks"]["agent"], moments))
        bad = [name for name, leaf in tree.named_leaves((agent, moments)).items() if not np.isfinite(leaf).all()]
        if bad:
            raise TwinaxError(f"the policy is not finite: {len(bad)} of its arrays hold NaN or infinity")
        return cls(agent, moments, problem.world, facts, problem.scaling)

    @property
    def discrete(self) -> bool:
        """Whether an action is an index."""
        return isinstance(self.world.actions, Discrete)

    @property
    def inputs(self) -> int:
        """Numbers of an observation."""
        return self.world.observation_size

    @property
    def outputs(self) -> int:
        """Choices, or entries of an action."""
        actions = self.world.actions
        return actions.n if isinstance(actions, Discrete) else actions.size

    def layers(self) -> list[Layer]:
        """From the normalised observation to a point: a shared trunk first, and no deviations at the end."""
        found: list[Layer] = []
        for name, net in (("trunk", self.agent.trunk), ("actor", self.agent.actor)):
            if net is None:
                continue
            for k, layer in enumerate(net.layers):
                last = k == len(net.layers) - 1
                act = None if last and name == "actor" else net.activation
                found.append(Layer(f"{name}.layers.{k}", np.asarray(layer.weight), np.asarray(layer.bias), act))
        end = found[-1]
        # With std=state the actor's last layer also gives the deviations, which a deterministic action does not need.
        found[-1] = end._replace(weight=end.weight[: self.outputs], bias=end.bias[: self.outputs])
        return found

    def points(self, observation: np.ndarray) -> np.ndarray:
        """What the actor says, before it becomes an action: logits or means, by the library's own networks."""
        policy = self.policy(observation)
        return policy.logits if self.discrete else policy.mean

    def policy(self, observation: np.ndarray) -> Any:
        """The distribution of actions, by the library's own networks."""
        return self.agent.policy(
            observation if self.moments is None else self.moments.scaled(observation, self.scaling)
        )

    def act(self, observation: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """Actions for rows of observations: the likeliest, or by random numbers as `policy_draw` asks for them."""
        point = self.policy(observation).point(noise)
        return point if self.discrete else to_world(self.world.actions, point, self.agent.kind == "tanh")

    def in_double(self) -> Policy:
        """The same numbers in float64: what an exported policy is measured against."""
        agent, moments = tree.map_leaves(lambda x: x.astype(np.float64), (self.agent, self.moments))
        return dataclasses.replace(self, agent=agent, moments=moments)


def read_policy(run: Path | str, seed: int | None = None, trust: bool = False) -> Policy:
    """The policy in a run's newest whole checkpoint; of several seeds the one asked for, else the first.

    With `trust`, code of other packages that somebody else's run names may run.

    >>> read_policy("runs/walk").act(observation)                           # doctest: +SKIP
    """
    from twinax import conf
    from twinax.runs import RunDirectory, checkpoint, sources

    stored = RunDirectory(Path(run))
    stored.must_exist()
    if not stored.config_path.exists():
        raise TwinaxError(
            f"the run {stored.path} has no config.yaml, so its problem is not known here; "
            "in Python use twinax.ppo.Policy.of(problem, run.state)"
        )
    config = conf.restore_run(stored.path, trust=trust)
    problem = conf.build_untrained(config)
    if not isinstance(problem, PPO):
        raise TwinaxError(f"the run {stored.path} is of experiment={config.experiment}; only PPO has such a policy")
    if not checkpoint.steps(stored.path):
        raise TwinaxError(f"the run {stored.path} has no checkpoint, so there is no policy in it yet")
    place = _seed_place(config, seed)
    like = _like(problem, config.seeds, config.trainer.dtype)
    found, meta = checkpoint.load(checkpoint.latest(stored.path), like=like, part=True)
    if config.seeds > 1:
        found = tree.map_leaves(lambda x: x[place], found)
    facts = {"run": stored.path.name, "step": int(meta["step"]), "seed": config.seed + place}
    settings = json.loads(json.dumps(conf.as_dict(config), default=str))
    settings.pop("run", None)  # where the run lies is nobody else's business, nor where its files do
    for file in problem.present.sources:
        settings = sources.renamed(settings, file, file.name)
    return Policy.of(problem, found, **facts, config=settings)


def _seed_place(config: Any, seed: int | None) -> int:
    place = 0 if seed is None else seed - config.seed
    if not 0 <= place < config.seeds:
        last = config.seed + config.seeds - 1
        raise TwinaxError(f"there is no seed {seed} in this run; it has seeds {config.seed} to {last}")
    return place


def _like(problem: PPO, seeds: int, dtype: str) -> dict[str, Any]:
    """The part of a state that a policy needs, in the shape that a checkpoint has it."""
    agent = problem.networks(np.random.default_rng(0))
    moments = Moments.empty(problem.world.observation_size) if problem.normalise_observations else None
    like = {"networks": {"agent": agent}, "carry": {"observation": moments}}
    leading = (seeds,) if seeds > 1 else ()
    return tree.map_leaves(lambda x: np.zeros((*leading, *x.shape), dtype), like)


def _single(x: Any) -> np.ndarray:
    x = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
    return x.astype(np.float32)
