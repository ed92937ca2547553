"""An offline agent for elsewhere: from an observation as the world gives it to its likeliest action."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from twinax import tree
from twinax.exportable import OBSERVATION, ROWS, Exportable, Step, activation, box_steps, linear, perceptron
from twinax.networks import MLP, Encoded
from twinax.offline._agent import Link
from twinax.offline._encoder_steps import encoder_steps
from twinax.offline._judge import Judging
from twinax.offline.networks import Actor, Value
from twinax.problem import State

if TYPE_CHECKING:
    from twinax.offline._problem import Offline


IMAGES = 32
"""On how many images a policy is compared: each takes a thousand times what a vector takes."""


def exportable(problem: Offline, state: State, given: Any) -> Exportable:
    """The agent as it is evaluated; what it is told besides, a goal or a latent, is a constant inside."""
    agent, widths, box = problem.agent, problem.widths, problem.box
    exact = tree.map_leaves(lambda x: np.asarray(x, np.float64), state.networks)
    told = None if given is None else np.asarray(given, np.float64)
    steps = _normaliser(problem)
    seen = steps[-1].name if steps else OBSERVATION
    before: tuple[str, int] | None = None
    for link in agent.chain(exact, told):
        made, width = _link(link, (seen, widths.shape[-1]), before)
        steps += made
        before = made[-1].name, width
    ones = np.ones(widths.action)
    steps.append(Step("clamp", "within", {"low": -ones, "high": ones}))
    if box is not None:
        steps += box_steps(*box, stretched=True)
    low, high = (np.broadcast_to(np.asarray(side, float), ones.shape) for side in box or (-1.0, 1.0))
    form = {"name": "observation", "type": "float32", "shape": list(widths.shape)}
    form |= {"range": [0, 255]} if widths.images else {"size": widths.shape[0]}
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
        rows=IMAGES if widths.images else ROWS,
        description={
            "agent": agent.name,
            "task": repr(problem.task),
            "input": form,
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


def _link(link: Link, seen: tuple[str, int], before: tuple[str, int] | None) -> tuple[list[Step], int]:
    """The steps of a link and the width of its answer; `seen` and `before` are names of steps with their widths."""
    name, network, told, steps = link.name, link.network, link.told, []
    source, width = seen if before is None or link.sees else before
    if isinstance(network, Encoded):
        steps = encoder_steps(f"{name}.encoder", network.encoder)
        steps[0] = dataclasses.replace(steps[0], reads=(source,))
        source, width = steps[-1].name, network.encoder.width
        if told is not None and network.goal_encoder is not None:
            told = network.goal_encoder(told[None])[0]
        name, network = f"{name}.net", network.net
    if link.sees and before is not None:
        steps.append(Step("concat", f"{link.name}.inputs", reads=(source, before[0])))
        source, width = steps[-1].name, width + before[1]
    body = _network(name, network, width, told)
    steps += [dataclasses.replace(body[0], reads=(source,)), *body[1:]]
    outputs = _outputs(network)
    if link.on_sphere:
        steps.append(Step("sphere", f"{link.name}.sphere", options={"least": link.on_sphere, "width": outputs}))
    return steps, outputs


def _outputs(network: Any) -> int:
    """The width of what a network gives."""
    network = network.body if isinstance(network, Value) else network
    if isinstance(network, MLP):
        return len(network.layers[-1].weight)
    return len(network.mean.weight) if isinstance(network, Actor) else network.width


def _network(name: str, network: Any, inputs: int, told: Any) -> list[Step]:
    """A network as steps; all but its first `inputs` columns are what it is told, or noise, which is 0."""
    if isinstance(network, Value):
        return _network(name, network.body, inputs, told)
    if isinstance(network, MLP):
        return perceptron(name, network, inputs, told)
    if isinstance(network, Actor):
        steps = [*perceptron(f"{name}.trunk", network.trunk, inputs, told), linear(f"{name}.mean", network.mean)]
        return [*steps, activation(f"{name}.squashed", "tanh")] if network.squashed else steps
    return encoder_steps(name, network)


def observations(problem: Offline, rows: int) -> np.ndarray:
    """Those of the data, with noise of their size; a tenth of them far beyond."""
    data = problem.datasets[problem.phases[-1]]
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.integers(0, len(data.observations), rows))
    x = np.asarray(data.observations[chosen], np.float64)
    x = x if data.normaliser is None else np.asarray(data.normaliser.undo(x))
    noise = rng.normal(size=x.shape) * (x.std(0) + 1e-3)
    noise[: rows // 10] *= 20.0
    x = np.concatenate([x + noise] * (problem.widths.shape[-1] // x.shape[-1]), -1)  # stacked frames that stand still
    return (np.clip(x, 0, 255) if problem.widths.images else x).astype(np.float32)
