"""Worlds for Brax, and what Brax has trained for us."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.envs import Box, Control, Restarting
from twinax.errors import TwinaxError, require
from twinax.networks import MLP, Linear
from twinax.ppo import ActorCritic, RunningMoments

WATCHED, SEEN = "privileged_state", "state"


def brax_env(world: Control) -> Any:
    """A world as Brax's `Env`: one world, pure, with the same arrays in and out.

    Physics on the host is called once for all worlds over which Brax maps a step.
    """
    require("brax", "brax", "training by Brax")
    if not isinstance(world.actions, Box):
        raise TwinaxError(f"Brax's PPO acts in boxes, but {world.name} has {world.actions}")
    if isinstance(world, Restarting):
        raise TwinaxError(f"Brax maps and restarts worlds itself, and {world.name} keeps its state hidden on the host")
    import jax
    import jax.numpy as jnp
    from brax.envs.base import Env, State

    low, high = np.array(world.actions.low), np.array(world.actions.high)

    def drawn(spec, key) -> dict[str, Any]:
        """For one world, with the axis of worlds that its rules expect."""
        draws = {}
        for name, draw in spec.items():
            key, own = jax.random.split(key)
            if draw.kind == "integers":
                draws[name] = jax.random.randint(own, draw.shape, 0, draw.high)
            elif draw.kind == "normal":
                draws[name] = jax.random.normal(own, draw.shape)
            else:
                draws[name] = jax.random.uniform(own, draw.shape, minval=1e-7)
        return draws

    def alone(tree):
        return jax.tree.map(lambda x: x[0], tree)

    def observed(state):
        seen = world.observe(state)[0]
        return {SEEN: seen, WATCHED: world.observe_critic(state)[0]} if world.privileged else seen

    class World(Env):
        """See `brax_env`."""

        @property
        def observation_size(self):
            if world.privileged:
                return {SEEN: (world.observation_size,), WATCHED: (world.critic_size,)}
            return world.observation_size

        @property
        def action_size(self) -> int:
            return len(low)

        @property
        def backend(self) -> str:
            return "mjx"

        def reset(self, rng):
            rng, own = jax.random.split(rng)
            state = world.reset(drawn(world.reset_draws(1), own))
            zero = jnp.zeros(())
            step = jax.eval_shape(lambda: world.step(state, jnp.zeros((1, len(low))), drawn(world.step_draws(1), own)))
            # Every entry is there from the beginning, in its later type: Brax carries them through a loop.
            metrics = {name: jnp.zeros((), value.dtype) for name, value in step.terms.items()}
            return State(alone(state), observed(state), zero, zero, metrics, {"rng": rng})

        def step(self, state: Any, action: Any):
            rng, own = jax.random.split(state.info["rng"])
            before = jax.tree.map(lambda x: x[None], state.pipeline_state)
            stretched = low + (jnp.clip(action, -1, 1) + 1) * 0.5 * (high - low)
            moved = world.step(before, stretched[None].astype(jnp.float32), drawn(world.step_draws(1), own))
            return state.replace(
                pipeline_state=alone(moved.state),
                obs=observed(moved.state),
                reward=moved.reward[0],
                done=moved.terminated[0].astype(jnp.float32),
                # Wrappers keep entries of their own among these.
                metrics={**state.metrics, **alone(moved.terms)},
                info={**state.info, "rng": rng},
            )

    return World()


def read_brax(
    params: Any, privileged: bool, activation: str = "silu"
) -> tuple[ActorCritic, RunningMoments, RunningMoments | None]:
    """Brax's (normaliser, policy, value) as networks and moments of this library; NumPy leaves.

    Parameters do not tell the activation that they were trained with.
    """
    normaliser, policy, value = params
    networks = ActorCritic(None, _mlp(policy, activation), _mlp(value, activation), None, "tanh")
    return (
        networks,
        _moments(normaliser, SEEN if privileged else None),
        (_moments(normaliser, WATCHED) if privileged else None),
    )


def _mlp(params: Any, activation: str) -> MLP:
    """Flax's dense layers hidden_0, hidden_1, ... by PyTorch's names and layout."""
    layers = params["params"]
    layers = layers.get("MLP_0", layers)
    names = sorted(layers, key=lambda name: int(name.rpartition("_")[2]))
    return MLP(
        tuple(
            Linear(np.ascontiguousarray(np.asarray(layers[n]["kernel"]).T), np.asarray(layers[n]["bias"]))
            for n in names
        ),
        activation,
    )


def _moments(normaliser: Any, key: str | None) -> RunningMoments:
    mean, std = (getattr(normaliser, part) for part in ("mean", "std"))
    if key is not None:
        mean, std = mean[key], std[key]
    count = normaliser.count
    number = count.to_numpy() if hasattr(count, "to_numpy") else np.asarray(count)
    return RunningMoments(np.asarray(mean), np.square(np.asarray(std)), np.asarray(number, np.float32).reshape(()))
