"""Proximal policy optimisation as a problem: one step is one iteration of rollout, advantages and updates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs._check_control import check_world
from twinax.envs._control import Control, Restarting
from twinax.episode import MOST_STEPS, Episode
from twinax.errors import TwinaxError, UnknownName
from twinax.interval import half_width
from twinax.networks import frozen
from twinax.noise import Draw, below, numpy_draws
from twinax.optimizer import Moments as AdamMoments
from twinax.optimizer import Optimizer
from twinax.ppo._advantages import ADVANTAGES
from twinax.ppo._episodes import episode_draws, play_episodes, record_episodes
from twinax.ppo._hooks import Hooks
from twinax.ppo._losses import DEVIATIONS, policy_loss, standardised, value_loss
from twinax.ppo._networks import ActorCritic, make_networks, policy_draw, policy_kind, to_world
from twinax.ppo._normaliser import Moments, Scaling
from twinax.ppo._rollout import Playing, Rollout, Started, begin, entered, play, started
from twinax.problem import Loss, Metrics, Problem, State, Terms
from twinax.types import Array, Float

STANDARDISE = ("minibatch", "rollout", "none")
STATISTICS = ("after_learning", "before_learning")


@tree.record
class Rows:
    """Transitions that an update learns from: rows, or (time, world) before they are."""

    observation: Float[Array, "*rows observation"]
    """Normalised."""
    critic: Any
    """What the critic sees, normalised; None where that is the observation."""
    point: Array
    log_prob: Float[Array, "*rows"]
    value: Float[Array, "*rows"]
    advantage: Float[Array, "*rows"]
    target: Float[Array, "*rows"]
    noise: Any
    """Normal numbers for the estimated entropy of a squashed policy; otherwise None."""


@tree.record
class Carry:
    """What lives on between iterations."""

    playing: Playing
    pool: Started | None
    """Starts that ended worlds go on from."""
    observation: Moments | None
    critic: Moments | None
    returned: Moments | None
    """Of discounted returns, by whose deviation rewards are divided."""
    running: Any
    """Discounted return of each world so far."""
    score: Float[Array, ""]
    """Mean return of the episodes that ended last."""
    length: Float[Array, ""]
    hooks: Any
    """What hooks keep; None without hooks."""
    waiting: Rows | None = None
    """Of the iteration before, to be learned from in the next, where playing and learning go side by side."""


@tree.record
class Played:
    """What an iteration's playing gives."""

    carry: Carry
    rows: Rows
    recorded: Any
    """What hooks have taken down."""
    terms: Metrics


@tree.record
class Learned:
    """What an iteration's updates give."""

    networks: Any
    moments: AdamMoments
    terms: Metrics


@checked
@dataclass(frozen=True, eq=False)
class PPO(Problem):
    """See `problem`, which fills in the defaults."""

    world: Control
    optimizer: Optimizer
    hidden: tuple[int, ...] = (64, 64)
    """Widths of hidden layers."""
    activation: str = "tanh"
    """Between layers."""
    policy: str = "auto"
    """categorical, gaussian (limited by the world), tanh (stretched to the bounds), or auto."""
    std: str = "free"
    """Deviation of a continuous policy: free (a vector) or state (given by the actor)."""
    first_std: float = 1.0
    """Deviation of a policy with std=free at the beginning."""
    shared: bool = False
    """Whether actor and critic share all but their last layer."""
    initial_weights: str = "orthogonal"
    """orthogonal (gain sqrt 2; 0.01 for the actor's last layer, 1 for the critic's) or lecun_uniform (all layers)."""
    worlds: int = 64
    """Worlds side by side."""
    steps: int = 128
    """Steps of each world in an iteration."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 4
    """Updates in a pass."""
    groups: int = 1
    """Worlds are shuffled within this many equal groups, so that as many devices (or fewer) learn exactly alike."""
    gamma: float = 0.99
    """Discount."""
    trace: float = 0.95
    """Lambda of the advantages."""
    clip: float = 0.2
    """How far the ratio of probabilities may leave 1."""
    value_clip: float = 0.2
    """How far a value may move from the old one; 0 for any distance."""
    value_weight: float = 0.5
    """Weight of the value's loss."""
    entropy_weight: float = 0.01
    """Weight of the entropy."""
    target_kl: float = 0.0
    """Updates of an iteration end when the estimated divergence exceeds this; 0 for never."""
    advantage: str = "gae"
    """gae, or cleanrl, brax, rsl_rl as those libraries read a rollout."""
    standardise: str = "minibatch"
    """Over what advantages are standardised: minibatch, rollout or none."""
    advantage_deviation: str = "sample"
    """By which deviation advantages are divided: sample (N - 1) or population (N)."""
    normalise_observations: bool = False
    """Whether observations are divided by their deviation, after their mean is taken off."""
    observation_limit: float = 10.0
    """Where normalised observations are cut off; 0 for nowhere."""
    observation_eps: float = 1e-8
    """Added to the variance of observations; with 0 their deviation is kept between 1e-6 and 1e6 instead."""
    observation_statistics: str = "after_learning"
    """When the statistics of observations take in a rollout: after_learning, or before_learning from it."""
    normalise_rewards: bool = True
    """Whether rewards are divided by the deviation of discounted returns: values of hundreds, as where every step pays,
    would drown the policy's gradient."""
    reward_scale: float = 1.0
    """Factor of rewards."""
    pool: int = 0
    """Starts kept for worlds that end, an eighth of them renewed in each iteration; 0: a new one for each end."""
    episodes: int = 20
    """Episodes of an evaluation."""
    evaluation_steps: int = 1000
    """Length of an evaluated episode in a world without a time limit."""
    pipelined: bool = False
    """Whether an iteration learns from the rollout of the one before while the worlds play on: a policy lag of one."""
    hooks: Hooks | None = None
    """What is built on top: another reward, and updates of its own."""
    film: bool = True
    """Whether a run ends with a film and figures of one episode."""

    best: tuple[str, ...] = field(default=("episode_return",), init=False)
    parity_steps = 2
    """Thousands of steps of a world, in each of which a rounded sum may already tip an action."""

    def __post_init__(self):
        for label in ("worlds", "steps", "epochs", "minibatches", "groups", "episodes", "evaluation_steps"):
            if (value := getattr(self, label)) < 1:
                raise TwinaxError(f"{label} is {value}; it must be at least 1")
        for label in ("gamma", "trace"):
            if not 0 <= (value := getattr(self, label)) <= 1:
                raise TwinaxError(f"{label} is {value}; it must be between 0 and 1")
        for label in ("clip", "reward_scale"):
            if not 0 < (value := getattr(self, label)) < math.inf:
                raise TwinaxError(f"{label} is {value}; it must be finite and above 0")
        kept = ("value_clip", "value_weight", "entropy_weight", "target_kl", "observation_limit", "observation_eps")
        for label in kept:
            if not 0 <= (value := getattr(self, label)) < math.inf:
                raise TwinaxError(f"{label} is {value}; it must be finite and not negative")
        if any(width < 1 for width in self.hidden):
            raise TwinaxError(f"hidden is {list(self.hidden)}; every width must be at least 1")
        if self.pool < 0:
            raise TwinaxError(f"pool is {self.pool}; it must be at least 0 (a new start for each end)")
        if self.worlds % self.groups:
            raise TwinaxError(f"{self.worlds} worlds do not divide into groups={self.groups}; change one of them")
        rows = self.worlds // self.groups * self.steps
        if rows % self.minibatches:
            raise TwinaxError(
                f"{rows} transitions a group ({self.worlds // self.groups} worlds x {self.steps} steps) do not divide "
                f"into {self.minibatches} minibatches; change worlds, steps or minibatches"
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
    def updates(self) -> int:  # type: ignore[override]
        return self.epochs * self.minibatches

    @property
    def squashed(self) -> bool:
        """Whether actions are the tanh of points."""
        return policy_kind(self.world.actions, self.policy) == "tanh"

    def check_mode(self, mode: str, seeds: int = 1, devices: int = 1) -> None:
        world, framework = self.world, "jax" if mode == "jax" else "torch"
        if framework not in world.frameworks:
            can = " and ".join(world.frameworks)
            raise TwinaxError(f"{world.name} runs in {can} only, and trainer.mode={mode} plays in {framework}")
        if isinstance(world, Restarting) and seeds > 1:
            raise TwinaxError(
                f"{world.name} keeps its state hidden on the host, once, so {seeds} seeds cannot share it; train them "
                "one after the other (seed=0,1,2)"
            )

    def check(self, mode: str) -> None:
        check_world(self.world)

    @property
    def not_saved(self) -> str:  # type: ignore[override]
        if not isinstance(self.world, Restarting):
            return ""
        return f"the state of {self.world.name} is hidden and was not saved: its {self.worlds} episodes start anew"

    def init(self, seed: int) -> State:
        world = self.world
        rng = np.random.default_rng(seed)
        networks = {"agent": self.networks(rng)}
        if self.hooks is not None:
            networks |= self.hooks.networks(rng)
        # Beyond every step that draws for training will reach.
        first = numpy_draws(world.reset_draws(self.worlds), seed, 2**31 - 1)
        pool = numpy_draws(world.reset_draws(self.pool), seed, 2**31 - 2) if self.pool else None
        blank = np.zeros((), np.float32)
        carry = Carry(
            playing=begin(world, first),
            pool=None if pool is None else started(world, pool),
            observation=Moments.empty(world.observation_size) if self.normalise_observations else None,
            critic=Moments.empty(world.critic_size) if self.normalise_observations and world.privileged else None,
            returned=Moments.empty() if self.normalise_rewards else None,
            running=np.zeros(self.worlds, np.float32) if self.normalise_rewards else None,
            score=blank,
            length=blank.copy(),
            hooks=None if self.hooks is None else self.hooks.carry(self.groups),
        )
        state = State(
            networks=networks,
            targets=None,
            carry=carry,
            optimizer=self.optimizer.init(networks),
            step=np.zeros((), np.int32),
            seed=np.array(seed, np.uint32),
        )
        return self._primed(state) if self.pipelined else state

    def _primed(self, state: State) -> State:
        """With a first rollout that waits to be learned from."""
        draws = numpy_draws(self.draws(), int(state.seed), 2**31 - 3)
        return dataclasses.replace(state, carry=self.played(state, draws).carry)

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
        )

    def draws(self) -> Mapping[str, Draw]:
        found = {"play/policy": policy_draw(self.world.actions, self.steps, self.worlds)}
        found |= self._each_step("step", self.world.step_draws(self.worlds))
        if self.pool:
            found["play/pick"] = Draw((self.steps, self.worlds))
        elif not isinstance(self.world, Restarting):
            found |= self._each_step("reset", self.world.reset_draws(self.worlds))
        rows = self.worlds // self.groups * self.steps
        found["order"] = Draw((self.epochs, self.groups, rows))
        if self.squashed:
            found["entropy"] = policy_draw(self.world.actions, self.steps, self.worlds)
        if self.hooks is not None:
            found |= {f"hooks/{name}": draw for name, draw in self.hooks.draws(self.groups).items()}
        found = {name: dataclasses.replace(draw, divided=1) for name, draw in found.items()}
        if self.pool:
            for name, draw in self.world.reset_draws(self.pool // 8).items():
                found[f"pool/{name}"] = dataclasses.replace(draw, divided=0)
        if isinstance(self.world, Restarting):
            for name, draw in self.world.reset_draws(self.worlds).items():
                found[f"enter/{name}"] = dataclasses.replace(draw, divided=0)
        return found

    def _each_step(self, prefix: str, draws: Mapping[str, Draw]) -> dict[str, Draw]:
        return {
            f"play/{prefix}/{name}": dataclasses.replace(draw, shape=(self.steps, *draw.shape))
            for name, draw in draws.items()
        }

    def divided(self, carry: Carry, devices: int) -> Carry:
        if self.groups % devices:
            raise TwinaxError(
                f"groups={self.groups} cannot be shared out over {devices} devices; set ppo.groups={devices} or a "
                "multiple of it"
            )
        shared = tree.map_leaves(lambda _: False, carry)
        parts = {name: tree.map_leaves(lambda _: True, getattr(carry, name)) for name in DIVIDED}
        return dataclasses.replace(shared, **parts)

    # Rollout

    def rollout(self, state: State, draws: Mapping[str, Any]) -> tuple[Carry, Rollout]:
        """Play on with the policy as it is; statistics stay as they are."""
        carry, agent = state.carry, frozen(state.networks["agent"]).acting()
        own = below(draws, "play")
        if carry.pool is not None:
            own["pick"] = self._picks(own["pick"], carry.pool.observation.shape[0])

        def choose(observation, noise):
            policy = agent.policy(self._normalised(carry.observation, observation))
            point = policy.point(noise)
            return point, policy.log_prob_at(point), to_world(self.world.actions, point, self.squashed)

        if isinstance(self.world, Restarting):
            playing, lost = entered(self.world, carry.playing, below(draws, "enter"))
            running = None if carry.running is None else carry.running * ops.cast(~lost, carry.running)
            carry = dataclasses.replace(carry, playing=playing, running=running)
        record = None if self.hooks is None else self.hooks.record
        playing, happened = play(self.world, choose, carry.playing, own, carry.pool, record)
        return dataclasses.replace(carry, playing=playing), happened

    def _picks(self, uniform: Any, pool: int) -> Any:
        """Places in the pool; each group of worlds has its own part of it."""
        groups = self.groups // ops.num_shards()
        part = pool // groups
        place = ops.cast(ops.minimum(uniform * part, ops.full((), part - 1, uniform)), "int32")
        first = ops.arange(uniform.shape[1], uniform) // (uniform.shape[1] // groups) * part
        return place + first

    @property
    def scaling(self) -> Scaling:
        """How observations are normalised."""
        return Scaling(self.observation_limit, self.observation_eps)

    def _normalised(self, moments: Moments | None, x: Any) -> Any:
        return x if moments is None else moments.scaled(x, self.scaling)

    # Learning

    def rows(self, networks: Any, carry: Carry, happened: Rollout, draws: Mapping[str, Any]) -> Rows:
        """Advantages and targets of a rollout, as rows: groups of worlds first."""
        agent = frozen(networks["agent"])
        see, watch = carry.observation, carry.critic if self.world.privileged else carry.observation
        observation = self._normalised(see, happened.observation)
        critic = self._normalised(watch, happened.critic) if self.world.privileged else None
        value = agent.value(observation if critic is None else critic)
        last = happened.next_observation if critic is None else happened.next_critic

        def all_next():
            return agent.value(self._normalised(watch, last))

        def only_last():
            end = agent.value(self._normalised(watch, last[-1]))
            return ops.concat([value[1:], end[None]])

        # Only a truncated step asks for the value of an observation that no later step has.
        next_value = ops.cond(ops.any(happened.truncated), all_next, only_last)
        reward = self.reward_scale * self._reward(networks, happened)[0]
        if carry.returned is not None:
            reward = ops.clip(reward / ops.sqrt(carry.returned.variance + 1e-8), -10.0, 10.0)
        advantage, target = ADVANTAGES[self.advantage](
            reward, value, next_value, happened.terminated, happened.truncated, self.gamma, self.trace
        )
        noise = draws["entropy"] if self.squashed else None
        whole = Rows(observation, critic, happened.point, happened.log_prob, value, advantage, target, noise)
        rows = tree.map_leaves(self._grouped, whole)
        if self.standardise == "rollout":
            rows = dataclasses.replace(rows, advantage=standardised(rows.advantage, self.advantage_deviation))
        return rows

    def _reward(self, networks: Any, happened: Rollout) -> tuple[Any, Metrics]:
        """The world's, or what a hook makes of it."""
        if self.hooks is None:
            return happened.reward, {}
        return self.hooks.reward(frozen(networks), happened.recorded, happened.reward)

    def _grouped(self, x: Any) -> Any:
        """(time, world, ...) as rows: the first group of worlds, then the next."""
        groups = self.groups // ops.num_shards()
        x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
        return ops.move_axis(x, 1, 0).reshape(-1, *x.shape[3:])

    def minibatch_rows(self, uniform: Float[Array, "group rows"]) -> Any:
        """Indices of the rows of each minibatch of a pass: equally many from every group."""
        groups, rows = uniform.shape
        order = ops.shuffled(uniform) + ops.arange(groups, uniform)[:, None] * rows
        parts = order.reshape(groups, self.minibatches, rows // self.minibatches)
        return ops.move_axis(parts, 1, 0).reshape(self.minibatches, -1)

    def loss(self, networks, batch: Rows, size: int | None = None) -> tuple[Any, Terms]:
        agent = networks["agent"]
        policy = agent.policy(batch.observation)
        advantage = batch.advantage
        if self.standardise == "minibatch":
            advantage = standardised(advantage, self.advantage_deviation)
        gain, shown = policy_loss(policy.log_prob_at(batch.point) - batch.log_prob, advantage, self.clip)
        value = agent.value(batch.observation if batch.critic is None else batch.critic)
        error = value_loss(value, batch.value, batch.target, self.value_clip)
        entropy = ops.mean(policy.entropy(batch.noise))
        parts = {
            "policy_loss": gain,
            "value_loss": self.value_weight * error,
            "entropy_loss": -self.entropy_weight * entropy,
        }
        total = gain + parts["value_loss"] + parts["entropy_loss"]
        return total, Terms(parts, {"value_error": error, "entropy": entropy, **shown})

    def other_losses(self, state: State, draws, settings) -> dict[str, tuple[Loss, Any]]:
        """Those of hooks, as after the iteration."""
        if self.hooks is None:
            return {}
        played = self.played(state, draws)
        recorded = tree.map_leaves(self._grouped, played.recorded)
        return self.hooks.losses(played.carry.hooks, recorded, below(draws, "hooks"))

    def collect(self, state: State, draws, settings) -> tuple[Carry, Rows]:
        """The first minibatch of an iteration."""
        played = self.played(state, draws)
        first = self.minibatch_rows(draws["order"][0])[0]
        return played.carry, tree.map_leaves(lambda x: ops.take(x, first), played.rows)

    def step(self, state: State, draws, settings, update) -> tuple[State, Metrics]:
        played = self.played(state, draws)
        rows = state.carry.waiting if self.pipelined else played.rows
        return self.joined(state, played, self.learned(state, rows, draws, update), draws, update)

    def halves(self):
        if not self.pipelined:
            return None
        return (
            lambda state, draws, settings: self.played(state, draws),
            lambda state, draws, settings, update: self.learned(state, state.carry.waiting, draws, update),
            lambda state, played, learned, draws, settings, update: self.joined(state, played, learned, draws, update),
        )

    def played(self, state: State, draws) -> Played:
        """A rollout, what is to be learned from it, and what it leaves behind."""
        before, happened = self.rollout(state, draws)
        carry = self._after(state.networks, before, happened, draws, state.step)
        if self.observation_statistics == "before_learning":
            # The log-probabilities stay those of the policy that played, which saw by the old statistics.
            before = dataclasses.replace(before, observation=carry.observation, critic=carry.critic)
        rows = self.rows(state.networks, before, happened, draws)
        if self.pipelined:
            carry = dataclasses.replace(carry, waiting=rows)
        shown = {**happened.terms, "truncated": ops.cast(happened.truncated, rows.value)}
        if self.hooks is not None:
            shown |= self._reward(state.networks, happened)[1]
        terms = {name: ops.across_shards(ops.mean(value)) for name, value in shown.items()}
        terms |= {"train_return": carry.score, "train_length": carry.length}
        return Played(carry, rows, happened.recorded, terms)

    def learned(self, state: State, rows: Rows, draws, update) -> Learned:
        """All passes over some rows."""
        picked = ops.concat([self.minibatch_rows(uniform) for uniform in draws["order"]])
        spread = ops.across_shards(ops.mean(ops.square(rows.target - ops.across_shards(ops.mean(rows.target)))))
        missed = ops.across_shards(ops.mean(ops.square(rows.target - rows.value)))

        def learn(known, index):
            networks, moments, stopped = known
            before = dataclasses.replace(state, networks=networks, optimizer=moments)
            batch = tree.map_leaves(lambda x: ops.take(x, index), rows)

            def go():
                after, terms = update(before, self.loss, batch, still=self._others)
                return (after.networks, after.optimizer), {**terms, "updates": ops.full((), 1.0, rows.value)}

            if not self.target_kl:
                (networks, moments), terms = go()
                return (networks, moments, stopped), terms

            def stay():
                blank = ops.zeros((), rows.value)
                return (networks, moments), dict.fromkeys((*TERMS, "updates"), blank)

            (networks, moments), terms = ops.cond(~stopped, go, stay, each=True)
            return (networks, moments, stopped | (terms["approx_kl"] > self.target_kl)), terms

        never = ops.zeros((), rows.value, "bool")
        (networks, moments, _), terms = ops.scan(learn, (state.networks, state.optimizer, never), picked)
        done = ops.sum(terms.pop("updates"))
        means = {name: ops.sum(value) / done for name, value in terms.items()}
        means |= {"updates": done, "explained_variance": 1.0 - missed / (spread + 1e-8)}
        if self.pipelined:
            # How far the policy has moved since it played what it learns from: before its first update.
            means |= {"policy_lag": ops.full((), 1.0, rows.value), "lag_kl": terms["approx_kl"][0]}
        return Learned(networks, moments, means)

    def joined(self, state: State, played: Played, learned: Learned, draws, update) -> tuple[State, Metrics]:
        """The state after an iteration, hooks' own updates included."""
        terms = {**learned.terms, **played.terms}
        after = dataclasses.replace(state, networks=learned.networks, optimizer=learned.moments, carry=played.carry)
        if self.hooks is None:
            return after, terms
        recorded = tree.map_leaves(self._grouped, played.recorded)
        after, kept, more = self.hooks.update(after, played.carry.hooks, recorded, below(draws, "hooks"), update)
        return dataclasses.replace(after, carry=dataclasses.replace(played.carry, hooks=kept)), {**terms, **more}

    @property
    def _others(self) -> tuple[str, ...]:
        """Networks that PPO's own loss leaves alone."""
        return () if self.hooks is None else self.hooks.names

    def _after(self, networks: Any, carry: Carry, happened: Rollout, draws: Mapping[str, Any], step: Any) -> Carry:
        """Statistics and starts for the next iteration."""

        def flat(x):
            return x.reshape(-1, *x.shape[2:])

        changes: dict[str, Any] = {}
        if carry.observation is not None:
            changes["observation"] = carry.observation.with_rows(flat(happened.observation))
        if carry.critic is not None:
            changes["critic"] = carry.critic.with_rows(flat(happened.critic))
        if carry.returned is not None:

            def discounted(running, now):
                reward, ended = now
                running = self.gamma * running + reward
                return running * (1.0 - ops.cast(ended, reward)), running

            reward = self.reward_scale * self._reward(networks, happened)[0]
            running, each = ops.scan(discounted, carry.running, (reward, happened.ended))
            changes |= {"running": running, "returned": carry.returned.with_rows(flat(each))}
        if carry.pool is not None:
            changes["pool"] = self._renewed(carry.pool, below(draws, "pool"), step)
        ended = ops.cast(happened.ended, happened.reward)
        number = ops.across_shards(ops.sum(ended))
        some = ops.maximum(number, ops.full((), 1e-9, number))
        for name, values in (("score", happened.total), ("length", ops.cast(happened.length, ended))):
            mean = ops.across_shards(ops.sum(values * ended)) / some
            changes[name] = ops.where(number > 0, mean, getattr(carry, name))
        return dataclasses.replace(carry, **changes)

    def _renewed(self, pool: Started, draws: Mapping[str, Any], step: Any) -> Started:
        """The pool with an eighth of each group's starts made anew, in turn."""
        fresh = started(self.world, draws)
        groups, turn = self.groups // ops.num_shards(), ops.cast(step, "int32") % 8

        def one(old, new):
            part, size = old.shape[0] // groups, new.shape[0] // groups
            for g in range(groups):
                old = ops.write_rows(old, turn * size + g * part, new[g * size : (g + 1) * size])
            return old

        return tree.map_leaves(one, pool, fresh)

    # Evaluation

    def evaluation_draws(self) -> Mapping[str, Draw]:
        found = episode_draws(self.world, self.episodes, self._longest)
        if self.hooks is not None:
            found |= {f"walk/{name}": draw for name, draw in episode_draws(self.world, self.episodes, SHOWN).items()}
        return found

    @property
    def _longest(self) -> int:
        return self.world.time_limit or self.evaluation_steps

    def measure(self, state: State, draws, tables) -> Metrics:
        agent, moments = frozen(state.networks["agent"]).acting(), state.carry.observation

        def act(observation):
            point = agent.policy(self._normalised(moments, observation)).point()
            return to_world(self.world.actions, point, self.squashed)

        world = self.world.apart() if isinstance(self.world, Restarting) else self.world
        found = play_episodes(world, act, draws, self._longest)
        if self.hooks is not None:
            found["recorded"] = record_episodes(world, act, below(draws, "walk"), SHOWN, self.hooks.record)
        return found

    def evaluate(self, measured: Mapping[str, Any]) -> Metrics:
        if isinstance(self.world, Restarting):
            self.world.apart().watch({})
        returns, lengths = np.asarray(measured["returns"], float), np.asarray(measured["lengths"], float)
        found = {"episode_return": returns.mean(), "episode_length": lengths.mean()}
        if len(returns) > 1:
            found["episode_return_ci"] = half_width(returns)
        found["episode_survived"] = np.mean(measured["survived"])
        found |= {f"episode_{name}": np.mean(value) for name, value in measured["terms"].items()}
        if self.hooks is not None:
            found |= self.hooks.evaluate(measured["recorded"])
        return {name: float(value) for name, value in found.items()}

    def show(self, state: State, seed: int) -> Episode | None:
        from twinax.ppo._show import play_one

        return play_one(self, state, seed, min(self._longest, MOST_STEPS))

    def watch(self, logs: Mapping[str, np.ndarray]) -> None:
        self.world.watch(logs)

    def sources(self) -> tuple[Path, ...]:
        return self.world.sources()

    def describe(self) -> dict[str, Any]:
        return {
            "world": self.world.name,
            "steps an iteration": self.worlds * self.steps,
            "updates an iteration": self.updates,
        }


CHOICES: dict[str, Any] = {
    "advantage": ADVANTAGES,
    "standardise": STANDARDISE,
    "advantage_deviation": DEVIATIONS,
    "observation_statistics": STATISTICS,
}
"""Settings that are names, and those that there are."""
DIVIDED = ("playing", "pool", "running", "hooks", "waiting")
"""Parts of the carry that devices share out."""
SHOWN = 150
"""Steps that are recorded for hooks in an evaluation."""
PARTS = ("policy_loss", "value_loss", "entropy_loss")
"""What the loss adds up, weights included."""
TERMS = ("loss", *PARTS, "value_error", "entropy", "approx_kl", "clip_fraction", "grad_norm")
"""What an update shows."""
ADAM = Optimizer(learning_rate=1e-3, eps=1e-5, clip_norm=0.5)
"""The optimizer where none is given, in Python and on the command line."""


@checked
def problem(world: Control, *, optimizer: Optimizer | None = None, **settings: Any) -> PPO:
    """PPO in a world; settings are the fields of `PPO`, and what is not given is as on the command line.

    >>> from twinax.envs import CartPole
    >>> problem(CartPole(), worlds=8).steps
    128
    """
    return PPO(world, optimizer or ADAM, **settings)
