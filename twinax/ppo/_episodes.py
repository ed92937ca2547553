"""Whole episodes of a fixed policy, for evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from twinax import ops
from twinax.envs import Control, Moved, Restarting
from twinax.noise import Draw, below
from twinax.ppo._rollout import started


def episode_draws(world: Control, episodes: int, steps: int) -> dict[str, Draw]:
    """What `play_episodes` needs."""
    draws = {f"reset/{name}": draw for name, draw in world.reset_draws(episodes).items()}
    for name, draw in world.step_draws(episodes).items():
        draws[f"step/{name}"] = dataclasses.replace(draw, shape=(steps, *draw.shape))
    return draws


def _stepping(world: Control, act: Callable[[Any], Any], draws: Mapping[str, Any]) -> Callable[..., Moved]:
    """(state, observation, time) -> one step of a policy everywhere, with the draws of that time."""
    each_step = below(draws, "step")

    def step(state, observation, t) -> Moved:
        return world.step(state, act(observation), {name: ops.take(value, t) for name, value in each_step.items()})

    return step


def _onward(world: Control, moved: Moved) -> tuple[Any, Any]:
    """The states to go on from, and where an episode does."""
    if isinstance(world, Restarting):
        return moved.onward, ~(moved.terminated | moved.truncated)
    return moved.state, ~moved.terminated


def play_episodes(world: Control, act: Callable[[Any], Any], draws: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """One episode in each world, until all have ended or for `steps` steps: returns, lengths and means of terms.

    `survived` is 1 where an episode came to no end of its own: time ran out, here or by the world's own limit.
    """
    first = started(world, below(draws, "reset"))
    blank = ops.zeros((first.observation.shape[0],), first.observation)
    step = _stepping(world, act, draws)

    def one(carry):
        state, observation, alive, lost, returns, lengths, sums, t = carry
        moved = step(state, observation, t)
        counted = ops.cast(alive, returns)
        sums = {name: sums.get(name, blank) + counted * value for name, value in moved.terms.items()}
        after, going = _onward(world, moved)
        return (
            after,
            world.observe(after),
            alive & going,
            lost | (alive & moved.terminated),
            returns + counted * moved.reward,
            lengths + counted,
            sums,
            t + 1,
        )

    begin = ops.zeros((), blank, "int32")
    names: Any = ()
    if ops.framework(blank) == "jax":  # a compiled loop is told beforehand what it adds up
        import jax

        names = jax.eval_shape(lambda: step(first.state, first.observation, begin).terms)
    sums = dict.fromkeys(names, blank)
    start = (first.state, first.observation, blank == 0, blank > 0, blank, blank, sums, begin)

    def goes_on(carry):
        return ops.any(carry[2]) & (carry[-1] < steps)

    *_, lost, returns, lengths, sums, _ = ops.while_loop(goes_on, one, start)
    terms = {name: value / ops.maximum(lengths, ops.full((), 1.0, lengths)) for name, value in sums.items()}
    return {"returns": returns, "lengths": lengths, "terms": terms, "survived": ops.cast(~lost, returns)}


def record_episodes(
    world: Control, act: Callable[[Any], Any], draws: Mapping[str, Any], steps: int, record: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    """What is recorded of the first steps of episodes, time first, and which of it is from before an end."""
    first = started(world, below(draws, "reset"))
    step = _stepping(world, act, draws)
    times = ops.arange(steps, first.observation)

    def one(carry, t):
        state, observation, alive = carry
        moved = step(state, observation, t)
        after, going = _onward(world, moved)
        going = alive & going
        return (after, world.observe(after), going), (record(state, moved.state), going)

    alive = ops.zeros((first.observation.shape[0],), first.observation) == 0
    _, (recorded, going) = ops.scan(one, (first.state, first.observation, alive), times)
    return {"values": recorded, "alive": going}
