"""Proximal policy optimisation as a problem: one step is one iteration of rollout, advantages and updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs import Control, Restarting
from twinax.envs.checking_control import check_world
from twinax.episode import MOST_STEPS, Episode
from twinax.errors import TwinaxError
from twinax.exportable import Exportable
from twinax.noise import Draw, below, numpy_draws
from twinax.optimizer import Optimizer
from twinax.parts import Compile, Judge, Present, Prove, Unit, Use
from twinax.ppo._judge import TITLES, Judging
from twinax.ppo._learning import join_halves, learn_passes, minibatch_rows
from twinax.ppo._losses import policy_loss, standardised, value_loss
from twinax.ppo._networks import policy_draw
from twinax.ppo._normaliser import RunningMoments
from twinax.ppo._options import Options
from twinax.ppo._playing import by_group, play_iteration, roll_out
from twinax.ppo._records import Carry, Rows
from twinax.ppo._rollout import begin, started
from twinax.problem import Inputs, Loss, Metrics, Problem, State, Terms
from twinax.recipe import remembered
from twinax.shapes import ShapeGenerator, blank

DIVIDED = ("playing", "pool", "running", "hooks", "waiting")
"""Parts of the carry that devices share out."""
ADAM = Optimizer(learning_rate=1e-3, eps=1e-5, clip_norm=0.5)
"""The optimizer where none is given, in Python and on the command line."""
MEMORY = {
    "networks": "the networks (ppo.hidden)",
    "carry": "the worlds (ppo.num_envs, ppo.pool)",
    "carry.hooks": "the discriminator's memory (amp.memory)",
    "draws": "a rollout (ppo.num_envs, ppo.num_steps)",
    "step": "a rollout in the networks (ppo.num_envs, ppo.num_steps, ppo.hidden, ppo.num_minibatches)",
    "evaluation": "an evaluation (ppo.episodes, ppo.evaluation_steps)",
}
"""What takes memory."""
FEW_STEPS = 2
"""Steps of each world from which parity shows a hook's loss something to learn."""


@checked
@dataclass(frozen=True, eq=False)
class PPO(Options, Problem):
    """See `problem`, which fills in the defaults."""

    def init(self, seed: int) -> State:
        world = self.world
        rng = np.random.default_rng(seed)
        networks = {"agent": self.networks(rng)}
        if self.hooks is not None:
            networks |= self.hooks.networks(rng)
        playing, pool = self._first_worlds(seed)
        zero = np.zeros((), np.float32)
        carry = Carry(
            playing=playing,
            pool=pool,
            observation=RunningMoments.empty(world.observation_size) if self.normalise_observations else None,
            critic=RunningMoments.empty(world.critic_size)
            if self.normalise_observations and world.privileged
            else None,
            returned=RunningMoments.empty() if self.normalise_rewards else None,
            running=np.zeros(self.num_envs, np.float32) if self.normalise_rewards else None,
            score=zero,
            length=zero.copy(),
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
        return self._primed(state) if self.pipelined and not isinstance(seed, ShapeGenerator) else state

    def _first_worlds(self, seed: int) -> tuple[Any, Any]:
        """Worlds that begin, and the pool of starts."""
        world = self.world
        if isinstance(seed, ShapeGenerator):  # a simulator gives no shapes without numbers: what it shows stands for it
            return blank((self.num_envs, world.observation_size)), blank((self.pool, world.observation_size))
        # Beyond every step that draws for training will reach.
        playing = begin(world, numpy_draws(world.reset_draws(self.num_envs), seed, 2**31 - 1))
        if not self.pool:
            return playing, None
        return playing, started(world, numpy_draws(world.reset_draws(self.pool), seed, 2**31 - 2))

    def _primed(self, state: State) -> State:
        """With a first rollout that waits to be learned from."""
        draws = numpy_draws(self.draws(), int(state.seed), 2**31 - 3)
        return dataclasses.replace(state, carry=play_iteration(self, state, draws).carry)

    def draws(self) -> Mapping[str, Draw]:
        draws = {"play/policy": policy_draw(self.world.actions, self.num_steps, self.num_envs)}
        draws |= self._each_step("step", self.world.step_draws(self.num_envs))
        if self.pool:
            draws["play/pick"] = Draw((self.num_steps, self.num_envs))
        elif not isinstance(self.world, Restarting):
            draws |= self._each_step("reset", self.world.reset_draws(self.num_envs))
        rows = self.num_envs // self.groups * self.num_steps
        draws["order"] = Draw((self.num_epochs, self.groups, rows))
        if self.squashed:
            draws["entropy"] = policy_draw(self.world.actions, self.num_steps, self.num_envs)
        if self.hooks is not None:
            draws |= {f"hooks/{name}": draw for name, draw in self.hooks.draws(self.groups).items()}
        draws = {name: dataclasses.replace(draw, divided=1) for name, draw in draws.items()}
        if self.pool:
            for name, draw in self.world.reset_draws(self.pool // 8).items():
                draws[f"pool/{name}"] = dataclasses.replace(draw, divided=0)
        if isinstance(self.world, Restarting):
            for name, draw in self.world.reset_draws(self.num_envs).items():
                draws[f"enter/{name}"] = dataclasses.replace(draw, divided=0)
        return draws

    def _each_step(self, prefix: str, draws: Mapping[str, Draw]) -> dict[str, Draw]:
        return {
            f"play/{prefix}/{name}": dataclasses.replace(draw, shape=(self.num_steps, *draw.shape))
            for name, draw in draws.items()
        }

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
            "value_loss": self.vf_coef * error,
            "entropy_loss": -self.ent_coef * entropy,
        }
        total = gain + parts["value_loss"] + parts["entropy_loss"]
        return total, Terms(parts, {"value_error": error, "entropy": entropy, **shown})

    def collect(self, state: State, draws, inputs: Inputs) -> tuple[Carry, Rows]:
        """The first minibatch of an iteration."""
        played = play_iteration(self, state, draws)
        first = minibatch_rows(self, draws["order"][0])[0]
        return played.carry, tree.map_leaves(lambda x: ops.take(x, first), played.rows)

    def step(self, state: State, draws, inputs: Inputs, update) -> tuple[State, Metrics]:
        played = play_iteration(self, state, draws)
        rows = state.carry.waiting if self.pipelined else played.rows
        return join_halves(self, state, played, learn_passes(self, state, rows, draws, update), draws, update)

    # What others read

    @property
    def compile(self) -> Compile:
        return Compile(
            halves=self._halves() if self.pipelined else None,
            divided=self._divided,
            updates=self.num_epochs * self.num_minibatches,
            check=self._check_mode,
            watch=self.world.watch,
            memory=MEMORY,
        )

    @property
    def judge(self) -> Judge:
        judging = Judging(self)
        functions = {"measure": judging.measure, "summarise": judging.summarise}
        return Judge(judging.draws, **functions, best=("episode_return",), titles=TITLES)

    @property
    def prove(self) -> Prove:
        # Two iterations are thousands of steps of a world, in each of which a rounded sum may already tip an action.
        return Prove(check=lambda mode: check_world(self.world), steps=2, other_losses=self._other_losses)

    @property
    def present(self) -> Present:
        hidden = isinstance(self.world, Restarting)
        lost = f"the state of {self.world.name} is hidden and was not saved: its {self.num_envs} episodes start anew"
        return Present(
            unit=Unit("environment steps", self.num_envs * self.num_steps, "env_steps"),
            describe=self._describe,
            show=self._show,
            film=self.film,
            sources=self.world.sources(),
            not_saved=lost if hidden else "",
        )

    @property
    def use(self) -> Use:
        return Use(act=self._act, observation=(self.world.observation_size,), export=self._export)

    def _act(self, state: State, observations: Any, seed: int | None) -> Any:
        from twinax.ppo._policy import Policy

        noise = None
        if seed is not None:
            draw = policy_draw(self.world.actions, len(observations))
            noise = numpy_draws({"policy": draw}, seed, 0, stream=1)["policy"]
        return Policy.of(self, state).act(observations, noise)

    def _export(self, state: State) -> Exportable:
        from twinax.ppo._exportable import exportable
        from twinax.ppo._policy import Policy

        return exportable(Policy.of(self, state))

    def _halves(self) -> tuple[Any, Any, Any]:
        return (
            lambda state, draws, inputs: play_iteration(self, state, draws),
            lambda state, draws, inputs, update: learn_passes(self, state, state.carry.waiting, draws, update),
            lambda state, played, learned, draws, inputs, update: join_halves(
                self, state, played, learned, draws, update
            ),
        )

    def _divided(self, carry: Carry, devices: int) -> Carry:
        if self.groups % devices:
            raise TwinaxError(
                f"groups={self.groups} cannot be shared out over {devices} devices; set ppo.groups={devices} or a "
                "multiple of it"
            )
        shared = tree.map_leaves(lambda _: False, carry)
        parts = {name: tree.map_leaves(lambda _: True, getattr(carry, name)) for name in DIVIDED}
        return dataclasses.replace(shared, **parts)

    def _check_mode(self, mode: str, seeds: int, devices: int) -> None:
        world, framework = self.world, "jax" if mode == "jax" else "torch"
        if framework not in world.frameworks:
            can = " and ".join(world.frameworks)
            raise TwinaxError(f"{world.name} runs in {can} only, and trainer.mode={mode} plays in {framework}")
        if isinstance(world, Restarting) and seeds > 1:
            raise TwinaxError(
                f"{world.name} keeps its state hidden on the host, once, so {seeds} seeds cannot share it; train them "
                "one after the other (seed=0,1,2)"
            )

    def _other_losses(self, state: State, draws, inputs: Inputs) -> dict[str, tuple[Loss, Any]]:
        """Those of hooks, after an iteration of few steps: a discriminator learns as much from them."""
        if self.hooks is None:
            return {}
        few = {name: draw[:FEW_STEPS] if name.startswith("play/") else draw for name, draw in draws.items()}
        carry, happened = roll_out(self, state, few)
        recorded = tree.map_leaves(partial(by_group, self), happened.recorded)
        return self.hooks.losses(carry.hooks, recorded, below(draws, "hooks"))

    def _show(self, state: State, seed: int) -> Episode | None:
        from twinax.ppo._show import play_one

        return play_one(self, state, seed, min(self.longest, MOST_STEPS))

    def _describe(self) -> dict[str, Any]:
        return {
            "world": self.world.name,
            "steps an iteration": self.num_envs * self.num_steps,
            "updates an iteration": self.num_epochs * self.num_minibatches,
        }


@remembered
@checked
def problem(world: Control, *, optimizer: Optimizer | None = None, **settings: Any) -> PPO:
    """PPO in a world; settings are the fields of `PPO`, and what is not given is as on the command line.

    >>> from twinax.envs import CartPole
    >>> problem(CartPole(), num_envs=8).num_steps
    128
    """
    return PPO(world, optimizer or ADAM, **settings)
