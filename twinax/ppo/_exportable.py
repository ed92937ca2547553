"""PPO's policy for elsewhere: everything from the observation to the action, normaliser and bounds included."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.envs import Box
from twinax.errors import TwinaxError
from twinax.exportable import Exportable, Step, activation, box_steps, perceptron
from twinax.networks import MLP
from twinax.ppo._policy import Policy


def exportable(policy: Policy) -> Exportable:
    """The likeliest action, in steps."""
    actions, exact = policy.world.actions, policy.in_double()
    largest = 0.0
    if isinstance(actions, Box):
        bounds = np.abs([actions.low, actions.high])
        largest = float(bounds[np.isfinite(bounds)].max(initial=0.0))
    values = exact.points if policy.discrete else exact.act
    return Exportable(
        steps=(*_normaliser(policy), *_layers(policy), *_action(policy)),
        shape=(policy.inputs,),
        values=lambda x: values(x.astype(np.float64)),
        act=policy.act,
        observations=lambda rows: observations(policy, rows),
        discrete=policy.discrete,
        outputs=policy.outputs,
        largest=largest,
        description=describe(policy),
        assets=tuple(policy.world.assets()),
    )


def _normaliser(policy: Policy) -> list[Step]:
    """clip((x - mean) / sqrt(variance + eps), -limit, limit), without the clip where there is no limit"""
    if policy.moments is None:
        return []
    deviation = policy.scaling.deviation(policy.moments.variance.astype(np.float64))
    steps = [Step("normalise", "normaliser", {"mean": policy.moments.mean, "deviation": deviation})]
    if policy.scaling.limit:
        steps.append(Step("limit", "normaliser.cut", {"limit": np.array(policy.scaling.limit)}))
    return steps


def _layers(policy: Policy) -> list[Step]:
    """From the normalised observation to a point: a shared trunk first, and no deviations at the end."""
    trunk, actor = policy.agent.trunk, policy.agent.actor
    if not isinstance(actor, MLP):
        raise TwinaxError(
            f"the actor is a network of your own ({type(actor).__name__}), which cannot be written for elsewhere: "
            "perceptrons (twinax.networks.MLP) can; run it with twinax.load(run).act"
        )
    steps = [] if trunk is None else [*perceptron("trunk", trunk), activation("trunk", trunk.activation)]
    # With std=state the actor's last layer also gives the deviations, which a likeliest action does not need.
    return [*steps, *perceptron("actor", actor, outputs=None if actor.final and actor.norms else policy.outputs)]


def _action(policy: Policy) -> list[Step]:
    """As `to_world`."""
    actions = policy.world.actions
    if not isinstance(actions, Box):
        return [Step("argmax", "choice")]
    if policy.agent.kind == "tanh":
        return [activation("squashed", "tanh"), *box_steps(actions.low, actions.high, stretched=True)]
    return box_steps(actions.low, actions.high, stretched=False)


def observations(policy: Policy, rows: int) -> np.ndarray:
    """Random ones as wide as those of training; a tenth of them far beyond, where cutting off shows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, policy.inputs))
    x[: rows // 10] *= 20.0
    if policy.moments is not None:
        x = policy.moments.mean + x * policy.scaling.deviation(policy.moments.variance)
    return x.astype(np.float32)


def describe(policy: Policy) -> dict[str, Any]:
    """What a policy sees and does."""
    world, actions = policy.world, policy.world.actions
    manual = dict(world.manual())
    names = manual.pop("actions", None)
    places = np.cumsum([0, *world.layout.values()]).tolist()
    parts = [
        {"name": name, "first": first, "size": size}
        for first, (name, size) in zip(places, world.layout.items(), strict=False)
    ]
    output: dict[str, Any] = {"name": "action", "type": "int64", "choices": policy.outputs}
    if isinstance(actions, Box):
        output = {"name": "action", "type": "float32", "size": actions.size, "low": actions.low, "high": actions.high}
        output["squashed"] = policy.agent.kind == "tanh"
    # How the normaliser inside divides and cuts off; None where it does not.
    scaling = {"inside": True, "eps": policy.scaling.eps, "clip": policy.scaling.limit or None}
    seen = {"name": "observation", "type": "float32", "shape": [policy.inputs], "size": policy.inputs, "layout": parts}
    return {
        "world": world.name,
        "input": seen,
        "output": output if names is None else {**output, "names": names},
        "normaliser": None if policy.moments is None else scaling,
        **manual,
    }
