"""What PPO is told, in one record whose numbers are checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax.envs import Control, Restarting
from twinax.errors import TwinaxError, UnknownName
from twinax.networks import NetworkFactory
from twinax.optimizer import Optimizer
from twinax.ppo._advantages import ADVANTAGES
from twinax.ppo._hooks import Hooks
from twinax.ppo._losses import DEVIATIONS
from twinax.ppo._networks import ActorCritic, make_networks, policy_kind
from twinax.ppo._normaliser import RunningMoments, Scaling
from twinax.ranges import check_range

STANDARDISE = ("minibatch", "rollout", "none")
STATISTICS = ("after_learning", "before_learning")
CHOICES: dict[str, Any] = {
    "advantage": ADVANTAGES,
    "standardise": STANDARDISE,
    "advantage_deviation": DEVIATIONS,
    "observation_statistics": STATISTICS,
}
"""Settings that are names, and those that there are."""


@dataclass(frozen=True, eq=False)
class Options:
    """The fields of `PPO`."""

    world: Control
    optimizer: Optimizer
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic, from the first to the last."""
    activation: str = "tanh"
    """Activation function between layers: tanh, relu, leaky_relu, gelu, gelu_tanh, elu or silu."""
    policy: str = "auto"
    """Distribution of actions: categorical, gaussian (cut off at the world's bounds), tanh (stretched to the
    bounds), or auto (categorical or gaussian, by the world's actions)."""
    std: str = "free"
    """Standard deviation of a continuous policy: free (a learned vector) or state (given by the actor for each
    state)."""
    first_std: float = 1.0
    """Standard deviation at the beginning of a continuous policy with std=free, in the units of the actions."""
    shared: bool = False
    """Whether actor and critic share all but their last layer."""
    initial_weights: str = "orthogonal"
    """Initial weights: orthogonal (gain sqrt 2; 0.01 for the actor's last layer, 1 for the critic's) or
    lecun_uniform (all layers)."""
    num_envs: int = 64
    """Worlds that are played side by side."""
    num_steps: int = 128
    """Steps that each world is played in an iteration: the length of a rollout."""
    num_epochs: int = 4
    """Passes over the rollout of an iteration."""
    num_minibatches: int = 4
    """Minibatches of a pass over the rollout, each of which is one update."""
    groups: int = 1
    """Number of equal groups of worlds within which rows are shuffled, so that as many devices (or fewer) learn
    exactly alike."""
    gamma: float = 0.99
    """Discount of a reward for each step that it lies ahead."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation: 0 trusts the critic, 1 the rewards."""
    clip: float = 0.2
    """How far the ratio of new to old probabilities may leave 1 before the gain of an update is cut off."""
    value_clip: float = 0.2
    """How far a value may move from the one before the update, before its loss is cut off; 0 means any distance."""
    vf_coef: float = 0.5
    """Weight of the value's loss in the loss of an update."""
    ent_coef: float = 0.01
    """Weight of the policy's entropy in the loss of an update."""
    target_kl: float = 0.0
    """Estimated divergence of the policy at which the updates of an iteration end early; 0 means never."""
    advantage: str = "gae"
    """How advantages are estimated: gae, or as cleanrl, brax or rsl_rl read a rollout."""
    standardise: str = "minibatch"
    """Rows over which advantages are standardised: minibatch, rollout or none."""
    advantage_deviation: str = "sample"
    """Standard deviation by which advantages are divided: sample (N - 1) or population (N)."""
    normalise_observations: bool = False
    """Whether observations are normalised by their running mean and standard deviation."""
    observation_limit: float = 10.0
    """Size at which normalised observations are cut off, in standard deviations; 0 means nowhere."""
    observation_eps: float = 1e-8
    """Number that is added to the variance of observations; with 0 their standard deviation is kept between 1e-6 and
    1e6 instead."""
    observation_statistics: str = "after_learning"
    """When the statistics of observations take in a rollout: after_learning, or before_learning from it."""
    normalise_rewards: bool = True
    """Whether rewards are divided by the deviation of discounted returns: values of hundreds, as where every step pays,
    would drown the policy's gradient."""
    reward_scale: float = 1.0
    """Factor by which every reward is multiplied."""
    pool: int = 0
    """Starts that are kept for worlds that end, an eighth of them renewed in each iteration; 0 makes a new start for
    each end."""
    episodes: int = 20
    """Episodes that an evaluation plays."""
    evaluation_steps: int = 1000
    """Steps of an evaluated episode in a world without a time limit."""
    pipelined: bool = False
    """Whether an iteration learns from the rollout of the one before while the worlds play on: a policy lag of one."""
    network: NetworkFactory | None = None
    """What makes an actor and a critic of one's own, `(rng, spec) -> module`; None: MLPs as `hidden` says."""
    hooks: Hooks | None = None
    """What is built on top: another reward, and updates of its own."""
    film: bool = True
    """Whether a run ends with a film and figures of one episode."""

    def __post_init__(self):
        check_range(self, "at least 1", "num_envs", "num_steps", "num_epochs", "num_minibatches")
        check_range(self, "at least 1", "groups", "episodes", "evaluation_steps")
        check_range(self, "between 0 and 1", "gamma", "gae_lambda")
        check_range(self, "finite and above 0", "clip", "reward_scale")
        check_range(self, "finite and not negative", "value_clip", "vf_coef", "ent_coef", "target_kl")
        check_range(self, "finite and not negative", "observation_limit", "observation_eps")
        if any(width < 1 for width in self.hidden):
            raise TwinaxError(f"hidden is {list(self.hidden)}; every width must be at least 1")
        if self.pool < 0:
            raise TwinaxError(f"pool is {self.pool}; it must be at least 0 (a new start for each end)")
        if self.num_envs % self.groups:
            raise TwinaxError(f"{self.num_envs} worlds do not divide into groups={self.groups}; change one of them")
        rows = self.num_envs // self.groups * self.num_steps
        if rows % self.num_minibatches:
            raise TwinaxError(
                f"{rows} transitions a group ({self.num_envs // self.groups} worlds x {self.num_steps} steps) do not "
                f"divide into {self.num_minibatches} minibatches; change num_envs, num_steps or num_minibatches"
            )
        if self.pool and self.pool % (8 * self.groups):
            raise TwinaxError(f"a pool of {self.pool} starts does not divide by 8 x groups={self.groups}")
        if self.pool and isinstance(self.world, Restarting):
            raise TwinaxError(f"{self.world.name} restarts itself and has no use for a pool of {self.pool}: set pool=0")
        for label, known in CHOICES.items():
            if (value := getattr(self, label)) not in known:
                raise UnknownName(label, value, known)
        if self.pipelined and "numpy" not in self.world.frameworks:
            raise TwinaxError(
                f"pipelined=true plays a first rollout in NumPy before training begins, and {self.world.name} runs in "
                f"{' and '.join(self.world.frameworks)} only"
            )
        # The rest is checked where networks are made; layers of width 1 are made at once.
        self.networks(np.random.default_rng(0), (1,) * len(self.hidden))

    @property
    def squashed(self) -> bool:
        """Whether actions are the tanh of points."""
        return policy_kind(self.world.actions, self.policy) == "tanh"

    @property
    def scaling(self) -> Scaling:
        """How observations are normalised."""
        return Scaling(self.observation_limit, self.observation_eps)

    def normalised(self, moments: RunningMoments | None, x: Any) -> Any:
        """Observations by their statistics, if there are any."""
        return x if moments is None else moments.scaled(x, self.scaling)

    @property
    def longest(self) -> int:
        """Steps of an evaluated episode at most."""
        return self.world.time_limit or self.evaluation_steps

    @property
    def others(self) -> tuple[str, ...]:
        """Networks that PPO's own loss leaves alone."""
        return () if self.hooks is None else self.hooks.names

    def networks(self, rng: np.random.Generator, hidden: tuple[int, ...] | None = None) -> ActorCritic:
        """Fresh networks, by default with this problem's widths."""
        return make_networks(
            rng,
            self.world.observation_size,
            self.world.critic_size if self.world.privileged else self.world.observation_size,
            self.world.actions,
            hidden=self.hidden if hidden is None else hidden,
            activation=self.activation,
            kind=self.policy,
            std=self.std,
            first_std=self.first_std,
            shared=self.shared,
            initial_weights=self.initial_weights,
            network=self.network,
        )
