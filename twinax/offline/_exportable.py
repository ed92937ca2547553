"""An offline agent for elsewhere: from an observation as the world gives it to its likeliest action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twinax import tree
from twinax.errors import TwinaxError
from twinax.exportable import Exportable, Step, activation, box_steps, linear, perceptron
from twinax.networks import MLP
from twinax.offline._judge import Judging
from twinax.offline.networks import Actor, Encoded, Value
from twinax.problem import State

if TYPE_CHECKING:
    from twinax.offline._problem import Offline


def exportable(problem: Offline, state: State, given: Any) -> Exportable:
    """The agent as it is evaluated; what it is told besides, a goal or a latent, is a constant inside."""
    agent, widths, box = problem.agent, problem.widths, problem.box
    if agent.encoder:
        raise TwinaxError(
            f"{agent.name} sees images by encoder={agent.encoder}, whose convolutions are not exported yet"
        )
    width, steps = widths.shape[0], _normaliser(problem)
    for name, network, told in agent.chain(state.networks, given):
        steps += _network(name, network, width, told)
        width = next(len(step.arrays["bias"]) for step in reversed(steps) if step.kind == "linear")
    ones = np.ones(widths.action)
    steps.append(Step("clamp", "within", {"low": -ones, "high": ones}))
    if box is not None:
        steps += box_steps(*box, stretched=True)
    low, high = (np.broadcast_to(np.asarray(side, float), ones.shape) for side in box or (-1.0, 1.0))
    exact = tree.map_leaves(lambda x: np.asarray(x, np.float64), state.networks)
    told = None if given is None else np.asarray(given, np.float64)
    seen = {"name": "observation", "type": "float32", "shape": list(widths.shape), "size": widths.shape[0]}
    output = {"name": "action", "type": "float32", "size": widths.action, "low": low.tolist(), "high": high.tolist()}
    return Exportable(
        steps=tuple(steps),
        shape=widths.shape,
        values=lambda x: Judging(problem).acting(exact, told)(x.astype(np.float64)),
        act=lambda x: np.asarray(Judging(problem).acting(state.networks, given)(x)),
        observations=lambda rows: observations(problem, rows),
        discrete=False,
        outputs=widths.action,
        largest=float(np.abs([low, high]).max()),
        description={
            "agent": agent.name,
            "task": repr(problem.task),
            "input": seen,
            "output": output,
            "told": None if given is None else {agent.actor_sees: np.asarray(given).tolist()},
        },
    )


def _normaliser(problem: Offline) -> list[Step]:
    normaliser = problem.normaliser
    if normaliser is None or normaliser.kind == "none":
        return []
    deviation = 1 / np.asarray(normaliser.scale, np.float64)
    return [Step("normalise", "normaliser", {"mean": np.asarray(normaliser.shift), "deviation": deviation})]


def _network(name: str, network: Any, inputs: int, told: Any) -> list[Step]:
    """A network as steps; all but its first `inputs` columns are what it is told, or noise, which is 0."""
    if isinstance(network, Value):
        return _network(name, network.body, inputs, told)
    if isinstance(network, MLP):
        return perceptron(name, network, inputs, told)
    if isinstance(network, Actor):
        steps = [*perceptron(f"{name}.trunk", network.trunk, inputs, told), linear(f"{name}.mean", network.mean)]
        return [*steps, activation(f"{name}.squashed", "tanh")] if network.squashed else steps
    kind = "an encoder" if isinstance(network, Encoded) else f"a {type(network).__name__}"
    raise TwinaxError(f"{name} is {kind}, which cannot be exported; linear layers, norms and activations can")


def observations(problem: Offline, rows: int) -> np.ndarray:
    """Those of the data, with noise of their size; a tenth of them far beyond."""
    data = problem.datasets[problem.phases[-1]]
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.integers(0, len(data.observations), rows))
    x = np.asarray(data.observations[chosen], np.float64)
    x = x if data.normaliser is None else np.asarray(data.normaliser.undo(x))
    noise = rng.normal(size=x.shape) * (x.std(0) + 1e-3)
    noise[: rows // 10] *= 20.0
    return (x + noise).astype(np.float32)
