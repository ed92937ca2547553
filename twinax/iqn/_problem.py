"""Agents in a world as a problem: one step is one epoch, then a train step for each learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops, tree
from twinax.arguments import checked
from twinax.envs import World
from twinax.errors import TwinaxError
from twinax.iqn._epoch import Epoch, play
from twinax.iqn._judge import TITLES, Judging
from twinax.iqn._learner import Learners
from twinax.iqn._players import Players, random_action
from twinax.iqn._replay import Batch, Replay, reprioritise, sample
from twinax.iqn._use import Using
from twinax.networks import ema, frozen
from twinax.noise import Draw, below
from twinax.optimizer import Optimizer
from twinax.parts import Compile, Judge, Present, Prove, Unit, Use
from twinax.problem import Inputs, Metrics, Problem, State, Terms
from twinax.ranges import check_counts, check_range
from twinax.recipe import remembered
from twinax.shapes import shapes_of

Group = Learners | Players
MEMORY = {
    "networks": "the networks (model.width, replay.frame_stack, world.radius)",
    "carry": "the replay (replay.buffer_size, preset.num_envs, world.radius)",
    "draws": "the random numbers of an epoch (world.height, world.width, world.turns, preset.num_envs, "
    "replay.buffer_size)",
    "step": "an epoch and its batches (trainer.batch_size, model.num_quantiles, model.width, preset.num_envs)",
    "evaluation": "an evaluation (evaluation.num_envs, world.height, world.width, world.turns)",
}
"""What takes memory."""


@tree.record
class Lesson:
    """What all learners learn from in one train step, by the name of their group."""

    batches: dict[str, Batch]
    draws: dict[str, dict[str, Any]]
    """Quantile fractions and noise."""
    targets: dict[str, Any]
    """Target networks."""
    ready: Any
    """Whether every learner had enough to draw from."""


@dataclass(frozen=True, eq=False)
class Agents(Problem):
    """See `problem`, which fills in the defaults."""

    world: World
    groups: dict[str, Group]
    optimizer: Optimizer
    num_envs: int = 1
    """Worlds that are played at once."""
    gradient_steps: int = 1
    """Train steps of every learner after an epoch."""
    parallel: bool = True
    """All agents of a group in one batched computation, or one after the other."""
    evaluation_num_envs: int = 16
    """Worlds that an evaluation plays, for each way of acting."""
    evaluation_epsilon: float = 0.05
    """Probability of a random action in the second way of acting."""
    film: bool = True
    """Whether an evaluation shows one world turn by turn."""

    def __post_init__(self):
        have = sum(group.count for group in self.groups.values())
        if have != self.world.num_agents:
            raise TwinaxError(
                f"the groups have {have} agents, but the world has {self.world.num_agents}; give both one number"
            )
        if not self.learners:
            raise TwinaxError("no group of agents learns; give at least one group of Learners")
        check_counts(self, ("num_envs", "gradient_steps", "evaluation_num_envs"))
        check_range(self, "between 0 and 1", "evaluation_epsilon")
        for name in self.groups:
            # The name is a part of the names of arrays and of draws.
            if not name.isidentifier():
                raise TwinaxError(f"a group of agents is named '{name}'; use letters, digits and underscores")
        for group in self.learners.values():
            group.check(self.world, self.num_envs)

    @property
    def learners(self) -> dict[str, Learners]:
        """The groups that learn."""
        return {name: group for name, group in self.groups.items() if isinstance(group, Learners)}

    @property
    def seats(self) -> list[tuple[str, int]]:
        """Group and place in it of each agent, in the order of their turns."""
        return [(name, k) for name, group in self.groups.items() for k in range(group.count)]

    def init(self, seed: int) -> State:
        rng = np.random.default_rng(seed)
        networks, replay = {}, {}
        for name, group in self.learners.items():
            each = [group.init(rng, self.world) for _ in range(group.count)]
            networks[name] = tree.map_leaves(lambda *leaves: np.stack(leaves), *each)
            replay[name] = Replay.empty(group.replay, group.count, self.num_envs, self.world.view_cells)
        return State(
            networks=networks,
            targets=tree.map_leaves(np.copy, networks),
            carry=replay,
            optimizer=self.optimizer.init(networks),
            step=np.zeros((), np.int32),
            seed=np.array(seed, np.uint32),
        )

    # Draws: one flat set of names, taken apart again where they are used

    def draws(self) -> Mapping[str, Draw]:
        draws = self.play_draws(self.num_envs)
        for name, group in self.learners.items():
            network = shapes_of(lambda rng, group=group: group.init(rng, self.world))
            train = group.train_draws(network, self.num_envs, self.gradient_steps)
            draws |= {f"train/{name}/{key}": draw for key, draw in train.items()}
        return draws

    def play_draws(self, worlds: int) -> dict[str, Draw]:
        """The random arrays of one epoch in so many worlds."""
        draws = {f"reset/{key}": draw for key, draw in self.world.reset_draws(worlds).items()}
        for key, draw in self.world.turn_draws(worlds).items():
            draws[f"turn/{key}"] = dataclasses.replace(draw, shape=(self.world.turns, *draw.shape))
        for name, group in self.groups.items():
            draws |= {f"turn/{name}/{key}": draw for key, draw in group.act_draws(self.world, worlds).items()}
        return draws

    def inputs(self) -> Inputs:
        return Inputs(
            {
                f"epsilon/{name}": np.array([group.epsilon, 1 - group.epsilon_decay, group.epsilon_min], np.float32)
                for name, group in self.learners.items()
            }
        )

    def epsilons(self, step: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The probability of a random action in each group, after `step` epochs."""

        def one(start, keep, least):
            power = ops.exp(ops.cast(step, start) * ops.log(ops.maximum(keep, ops.full((), 1e-30, keep))))
            return ops.maximum(start * power, least)

        return {name: one(*settings[f"epsilon/{name}"]) for name in self.learners}

    # Playing

    def play(
        self, networks: dict[str, Any], history: dict[str, Any], draws: Mapping[str, Any], epsilon: dict[str, Any], **kw
    ) -> Epoch:
        """One epoch in all worlds; history by group as `Replay.history` gives it."""
        networks, world = frozen(networks), self.world
        some = next(iter(draws.values()))
        codebook = ops.cast(ops.like(world.codebook, some), some)
        single = {name: network.acting() for name, network in self.members(networks).items()}

        def choose(agent: int, window: Any, turn: Mapping[str, Any]):
            name, k = self.seats[agent]
            group, own = self.groups[name], below(turn, name)
            if isinstance(group, Players):
                return group.choose(world, window[:, -1], own["random"][k])
            explores = own["explore"][k] < epsilon[name]
            anywhere = random_action(world, window, own["random"][k])

            def value():
                taus = own["taus"][k] if "taus" in own else None
                return ops.argmax(group.values(single[f"{name}_{k}"], window, codebook, taus))

            # Where everyone explores the networks are not asked.
            best = ops.cond(ops.any(~explores), value, lambda: anywhere)
            return ops.where(explores, anywhere, best)

        def choose_all(windows: list[Any], turn: Mapping[str, Any]):
            chosen, first = [], 0
            for name, group in self.groups.items():
                mine = windows[first : first + group.count]
                if isinstance(group, Players) or not self.parallel:
                    chosen += [choose(first + k, window, turn) for k, window in enumerate(mine)]
                else:
                    chosen += self._choose_together(
                        group, networks[name], mine, below(turn, name), epsilon[name], codebook
                    )
                first += group.count
            return chosen

        histories = [history[name][k] if name in history else self._blank(draws) for name, k in self.seats]
        turns = {key.removeprefix("turn/"): value for key, value in draws.items() if key.startswith("turn/")}
        epoch = play(world, choose, histories, below(draws, "reset"), turns, choose_all=choose_all, **kw)
        return dataclasses.replace(epoch, rewards=ops.cast(epoch.rewards, some))

    def _choose_together(self, group: Learners, networks: Any, windows: list[Any], own, epsilon, codebook) -> list[Any]:
        """What `choose` does for each agent of a group, in one batched computation."""
        explores = own["explore"] < epsilon
        anywhere = random_action(self.world, None, own["random"])

        def value():
            def one(network, window, taus):
                return ops.argmax(group.values(network, window, codebook, taus))

            taus = own["taus"] if "taus" in own else own["explore"]
            return ops.members(one, networks, ops.stack(windows), taus)

        best = ops.cond(ops.any(~explores), value, lambda: anywhere)
        actions = ops.where(explores, anywhere, best)
        return [actions[k] for k in range(group.count)]

    def _blank(self, draws: Mapping[str, Any]) -> Any:
        """History of an agent that remembers nothing."""
        some = next(value for key, value in draws.items() if key.startswith("turn/") and key.endswith("/random"))
        return ops.zeros((some.shape[2], 0, self.world.view_cells), some, "uint8")

    def remember(self, state: State, draws: Mapping[str, Any], inputs: Inputs) -> tuple[Any, Epoch]:
        """Play an epoch and store it: the replays after it, and what happened."""
        replays = state.carry
        history = {name: replays[name].history(group.replay) for name, group in self.learners.items()}
        epoch = self.play(state.networks, history, draws, self.epsilons(state.step, inputs.settings))
        after, first = {}, 0
        for name, group in self.groups.items():
            mine = slice(first, first + group.count)
            if isinstance(group, Learners):
                parts = (epoch.views[:, mine], epoch.actions[:, mine], epoch.rewards[:, mine])
                after[name] = replays[name].add_episode(group.replay, *parts)
            first += group.count
        return after, epoch

    # Learning

    def lesson(self, replays: dict[str, Any], targets: Any, draws: Mapping[str, Any]) -> Lesson:
        """What one train step learns from; `draws` are those of this step, by group and name."""
        batches, own, ready = {}, {}, None
        for name, group in self.learners.items():
            mine = below(draws, name)
            batches[name], enough = sample(replays[name], group.replay, mine["pick"], group.batch_size)
            own[name] = {key: value for key, value in mine.items() if key != "pick"}
            ready = enough if ready is None else ready & enough
        return Lesson(batches, own, targets, ready)

    def collect(self, state: State, draws, inputs: Inputs) -> tuple[Any, Lesson]:
        replays, _ = self.remember(state, draws, inputs)
        first = {key: value[0] for key, value in below(draws, "train").items()}
        return replays, self.lesson(replays, state.targets, first)

    def loss(self, networks, batch: Lesson, size: int | None = None) -> tuple[Any, Terms]:
        losses, values, errors = [], [], {}
        for name, group in self.learners.items():
            weights = batch.batches[name].weights
            codebook = ops.cast(ops.like(self.world.codebook, weights), weights)

            def one(network, target, lesson, draws, group=group, codebook=codebook):
                return group.loss(network, target, lesson, codebook, draws)

            rest = (batch.targets[name], batch.batches[name], batch.draws[name])
            each, parts = ops.member_losses(one, networks[name], *rest, parallel=self.parallel, work=group.work)
            losses.append(ops.sum(each))
            values.append(ops.mean(parts["value"]))
            errors[name] = parts["errors"]
        parts = {f"loss_{name}": loss for name, loss in zip(self.learners, losses, strict=True)}
        prioritised = any(group.replay.alpha for group in self.learners.values())
        rows = {f"errors/{name}": error for name, error in errors.items()} if prioritised else {}
        return sum(losses), Terms(parts, {"value": sum(values) / len(values)}, rows)

    def step(self, state: State, draws, inputs: Inputs, update) -> tuple[State, Metrics]:
        epsilon = self.epsilons(state.step, inputs.settings)
        state = dataclasses.replace(state, targets=self._synchronised(state))
        replays, epoch = self.remember(state, draws, inputs)
        state = dataclasses.replace(state, carry=replays)

        def learn(state: State, own):
            lesson = self.lesson(state.carry, state.targets, own)

            def train():
                new, terms = update(state, self.loss, lesson)
                errors = {key: terms.pop(key) for key in list(terms) if key.startswith("errors/")}
                return (new.networks, new.optimizer, self._followed(new), self._weighed(new, lesson, errors)), terms

            def skip():
                return (state.networks, state.optimizer, state.targets, state.carry), self._no_terms(epoch.rewards)

            (networks, moments, targets, carry), terms = ops.cond(lesson.ready, train, skip)
            state_after = dataclasses.replace(state, networks=networks, optimizer=moments, targets=targets, carry=carry)
            return state_after, {**terms, "trained": ops.cast(lesson.ready, epoch.rewards)}

        state, terms = ops.scan(learn, state, below(draws, "train"))
        terms = {name: ops.mean(value) for name, value in terms.items()}
        terms |= {"score": ops.sum(epoch.score)}
        terms |= {f"epsilon_{name}": value for name, value in epsilon.items()}
        return state, terms

    def _synchronised(self, state: State) -> dict[str, Any]:
        """Targets at the start of an epoch: copies of the networks where it is time for it."""

        def one(name, group):
            if not group.target_network_frequency:
                return state.targets[name]
            now = ops.cast(state.step, "int32") % group.target_network_frequency == 0
            return ops.cond(
                now, lambda: ema(state.targets[name], state.networks[name], 1.0), lambda: state.targets[name]
            )

        return {name: one(name, group) for name, group in self.learners.items()}

    def _followed(self, state: State) -> dict[str, Any]:
        return {
            name: ema(state.targets[name], state.networks[name], group.tau) for name, group in self.learners.items()
        }

    def _weighed(self, state: State, lesson: Lesson, errors: dict[str, Any]) -> dict[str, Any]:
        """Replays with new priorities."""
        return {
            name: reprioritise(
                state.carry[name], group.replay, lesson.batches[name].index, errors.get(f"errors/{name}")
            )
            for name, group in self.learners.items()
        }

    def _no_terms(self, like: Any) -> Metrics:
        names = ["loss", *(f"loss_{name}" for name in self.learners), "value", "grad_norm"]
        return {name: ops.zeros((), like) for name in names}

    # What others read

    @property
    def compile(self) -> Compile:
        return Compile(memory=MEMORY)

    @property
    def judge(self) -> Judge:
        judging = Judging(self)
        functions = {"measure": judging.measure, "summarise": judging.summarise}
        return Judge(judging.draws, **functions, best=("score_greedy",), titles=TITLES)

    @property
    def prove(self) -> Prove:
        # An epoch is a hundred turns of every agent, and a train step of each.
        waiting = [group.waiting(self.world, self.num_envs) for group in self.learners.values()]
        return Prove(steps=5, warm_up=max(waiting))

    @property
    def present(self) -> Present:
        # A step of a world is one turn of all of its agents.
        unit = Unit("environment steps", self.num_envs * self.world.turns, "env_steps")
        return Present(unit=unit, describe=self._describe, members=self.members)

    @property
    def use(self) -> Use:
        using = Using(self)
        return Use(act=using.act, act_options=("agent",), observation=using.shape, export=using.export, play=using.play)

    def members(self, networks: Any) -> dict[str, Any]:
        """Each agent's network."""
        return {
            f"{name}_{k}": tree.map_leaves(lambda x, k=k: x[k], networks[name])
            for name, k in self.seats
            if name in networks
        }

    def _describe(self) -> dict[str, Any]:
        return {"world": repr(self.world), "groups": {name: repr(group) for name, group in self.groups.items()}}


@remembered
@checked
def problem(
    world: World,
    groups: Mapping[str, Group] | None = None,
    *,
    num_envs: int = 1,
    gradient_steps: int = 1,
    optimizer: Optimizer | None = None,
    parallel: bool = True,
    evaluation_num_envs: int = 16,
    evaluation_epsilon: float = 0.05,
    film: bool = True,
) -> Agents:
    """Agents in a world; without `groups` all of them learn by implicit quantiles.

    >>> from twinax.envs import TreasureHunt
    >>> problem(TreasureHunt(num_agents=2)).seats
    [('iqn', 0), ('iqn', 1)]
    """
    named: dict[str, Group] = dict(groups) if groups is not None else {"iqn": Learners(count=world.num_agents)}
    rates = {name: group.learning_rate for name, group in named.items() if isinstance(group, Learners)}
    optimizer = optimizer or Optimizer(clip_norm=1.0)
    if optimizer.rates or optimizer.learning_rate != Optimizer.learning_rate:
        raise TwinaxError(
            f"the optimizer has the step size {optimizer.learning_rate} and rates {optimizer.rates}, but each group of "
            "learners has its own; set Learners(learning_rate=...)"
        )
    return Agents(
        world=world,
        groups=named,
        optimizer=dataclasses.replace(optimizer, rates=rates, clip_by="member"),
        num_envs=num_envs,
        gradient_steps=gradient_steps,
        parallel=parallel,
        evaluation_num_envs=evaluation_num_envs,
        evaluation_epsilon=evaluation_epsilon,
        film=film,
    )
