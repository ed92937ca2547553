"""One episode of a policy, step by step on the host, for people to look at."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from twinax import tree
from twinax.envs import Control
from twinax.episode import Episode
from twinax.noise import below, numpy_draws
from twinax.ppo._episodes import episode_draws
from twinax.ppo._policy import Policy


def play_one(problem: Any, state: Any, seed: int, longest: int) -> Episode:
    """The likeliest actions from a fresh start, until the world ends or for so many steps."""
    policy, world = Policy.of(problem, state), problem.world.on_host()
    step, observe, put = _rules(world)
    draws = numpy_draws(episode_draws(world, 1, longest), seed, 0)
    now, each_step = world.reset(put(below(draws, "reset"))), below(draws, "step")
    states, rewards, terms = [], [], []
    ended = f"still going after {longest} steps"
    for t in range(1, longest + 1):
        action = policy.act(np.asarray(observe(now), np.float32))
        own = {name: value[t - 1] for name, value in each_step.items()}
        moved = step(now, put(action.astype(np.int32) if policy.discrete else action), put(own))
        now = moved.state
        states.append(tree.map_leaves(np.asarray, now))
        rewards.append(float(moved.reward[0]))
        terms.append({name: float(value[0]) for name, value in moved.terms.items()})
        if bool(moved.terminated[0]) or (moved.truncated is not None and bool(moved.truncated[0])):
            ended = f"ended after {t} steps"
            break
    whole = tree.map_leaves(lambda *each: np.concatenate(each), *states)
    parts = {name: np.array([row[name] for row in terms]) for name in terms[0]}
    view = world.view(whole)
    if view.frames is None and not view.drawn:
        view = dataclasses.replace(view, drawn=f"{world.name} has no pictures of its own")
    return Episode(world.seconds, np.array(rewards), _of_reward(parts), ended, view)


def _of_reward(terms: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Parts of the reward, by their short names. A world that also tells other numbers marks its parts by `reward_`."""
    marked = {name.removeprefix("reward_"): x for name, x in terms.items() if name.startswith("reward_")}
    return marked or terms


def _rules(world: Control) -> tuple[Any, Any, Any]:
    """A world's step and observation, and how arrays become those that they take."""
    if "numpy" in world.frameworks:
        return world.step, world.observe, lambda x: x
    import jax
    import jax.numpy as jnp

    return jax.jit(world.step), jax.jit(world.observe), lambda x: tree.map_leaves(jnp.asarray, x)
