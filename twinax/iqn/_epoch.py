"""One epoch of a world: every agent looks, chooses and acts, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinax import ops, tree
from twinax.envs import World
from twinax.types import Array, Float, Int

Choose = Callable[[int, Any, Mapping[str, Any]], Any]
"""(agent, its last frames (worlds, frames, view), the turn's draws) -> actions (worlds,)."""


@tree.record
class Epoch:
    """What happened, turns first."""

    views: Int[Array, "turns agents worlds view"]
    """Codes that agents saw before they acted."""
    actions: Int[Array, "turns agents worlds"]
    rewards: Float[Array, "turns agents worlds"]
    pictures: Any
    """The first world at the start of each turn: codes (turns, height, width), and the padded cell of each agent
    (turns, agents); None unless asked for."""

    @property
    def score(self) -> Float[Array, " agents"]:
        """Each agent's total reward, mean over worlds."""
        return ops.mean(ops.sum(self.rewards, 0), -1)


def play(
    world: World,
    choose: Choose,
    history: Sequence[Int[Array, "worlds _ view"]],
    reset_draws: Mapping[str, Any],
    turn_draws: Mapping[str, Any],
    pictures: bool = False,
    choose_all: Callable[[list[Any], Mapping[str, Any]], list[Any]] | None = None,
    hand: Callable[[int, Any], Any] | None = None,
    watch: Callable[[Any, list[Any]], None] | None = None,
) -> Epoch:
    """Play an epoch. `history` has the frames before the first for each agent; `turn_draws` have turns first.

    Under the simultaneous rule `choose_all` may take all agents' frames at once. Two hooks are for arrays that are
    computed at once (NumPy, PyTorch): `hand(agent, state)` gives an agent's actions, or None if it chooses itself;
    `watch(state, rewards)` is told of every turn when it is over.
    """
    agents = range(world.num_agents)

    def look(state, past, agent):
        view = ops.cast(world.view(state, agent), "uint8")
        return view, ops.concat([past, view[:, None]], 1)

    def by_hand(state, agent):
        return None if hand is None else hand(agent, state)

    def turn(carry, draws):
        state, past = carry
        state = world.begin_turn(state, draws)
        shown = (world.picture(state)[0], ops.stack([world.place(state, k)[0] for k in agents])) if pictures else ()
        if world.turn_rule == "simultaneous":
            seen = [look(state, past[k], k) for k in agents]
            windows = [window for _, window in seen]
            if choose_all is not None:
                actions = choose_all(windows, draws)
            else:
                actions = [choose(k, windows[k], draws) for k in agents]
            given = [by_hand(state, k) for k in agents]
            actions = [own if other is None else other for own, other in zip(actions, given, strict=True)]
            state, rewards = world.act_together(state, actions)
        else:
            seen, actions, rewards = [], [], []
            for k in agents:
                seen.append(look(state, past[k], k))
                given = by_hand(state, k)
                actions.append(choose(k, seen[k][1], draws) if given is None else given)
                state, reward = world.act(state, k, actions[k])
                rewards.append(reward)
        if watch is not None:
            watch(state, rewards)
        past = tuple(window[:, 1:] for _, window in seen)
        stacked = (ops.stack([view for view, _ in seen]), ops.stack(actions), ops.stack(rewards))
        return (state, past), (*stacked, *shown)

    carry = (world.reset(reset_draws), tuple(history))
    _, (views, actions, rewards, *shown) = ops.scan(turn, carry, turn_draws)
    return Epoch(views, actions, rewards, tuple(shown) if pictures else None)
