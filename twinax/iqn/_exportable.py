"""A trained agent for elsewhere: from the frames that it has seen to the action with the largest expected return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twinax import ops, tree
from twinax.errors import TwinaxError
from twinax.exportable import Exportable, Step, activation, linear, perceptron
from twinax.iqn._network import Categorical, QuantileNetwork
from twinax.networks import MLP, Linear
from twinax.problem import State

if TYPE_CHECKING:
    from twinax.iqn._use import Using


def exportable(using: Using, state: State, agent: int = 0) -> Exportable:
    """The greedy agent, at evenly spaced quantiles: nothing is random, so their embedding is a constant."""
    world, (group, name) = using.problem.world, using.find(agent)
    network = using.problem.members(state.networks)[name].acting()
    inside = isinstance(network, QuantileNetwork)
    steps = [
        Step("codebook", "codebook", {"table": np.asarray(world.codebook)}),
        *_feature(network.feature),
        activation("feature", "relu"),
    ]
    if inside:
        fractions = using.fractions(group, 1, None)[0].astype(np.float64)
        angles = fractions[:, None] * (np.arange(network.cosine.weight.shape[1]) + 1)
        factors = np.maximum(_double(network.cosine)(np.cos(np.pi * angles)), 0)
        steps.append(Step("quantiles", "quantiles", {"factors": factors}))
    for layer in ("hidden", "advantage"):
        made = linear(layer, getattr(network, layer))
        steps.append(Step(made.kind, made.name, made.arrays, {"inside": inside}))
        if layer == "hidden":
            steps.append(activation("hidden", "relu"))
    if isinstance(network, Categorical):
        steps += [Step("split", "atoms", options={"numbers": network.atoms})]
        steps += [Step("expectation", "returns", {"support": np.asarray(network.support(), np.float64)})]
    else:
        if not inside:
            steps += [Step("split", "numbers", options={"numbers": group.num_quantiles})]
        steps += [Step("mean", "returns")]
    exact = tree.map_leaves(lambda x: np.asarray(x, np.float64), state.networks)
    frames, cells = using.shape

    def values(state_networks, views):
        return using.values(state_networks, views, using.fractions(group, len(views), None), agent)

    def observations(rows: int) -> np.ndarray:
        # Codes as they are shown; where the frames are full of one of them no layer is spared.
        return np.random.default_rng(0).integers(0, len(world.codebook), (rows, frames, cells))

    seen = {"name": "observation", "type": "int64", "shape": [frames, cells], "codes": list(world.names)}
    return Exportable(
        steps=(*steps, Step("argmax", "choice")),
        shape=(frames, cells),
        values=lambda views: values(exact, views),
        act=lambda views: ops.argmax(values(state.networks, views)),
        observations=observations,
        discrete=True,
        outputs=world.num_actions,
        largest=0.0,
        description={
            "world": repr(world),
            "agent": name,
            "input": seen,
            "output": {"name": "action", "type": "int64", "choices": world.num_actions, "names": list(world.actions)},
        },
    )


def _feature(layer: Any) -> list[Step]:
    """The first layer, or a perceptron in its place."""
    if isinstance(layer, Linear):
        return [linear("feature", layer)]
    if isinstance(layer, MLP):
        return perceptron("feature", layer)
    raise TwinaxError(
        f"the agent begins with a network of your own ({type(layer).__name__}), which cannot be written for elsewhere: "
        "perceptrons (twinax.networks.MLP) can; run it with twinax.load(run).act"
    )


def _double(layer):
    return tree.map_leaves(lambda x: np.asarray(x, np.float64), layer)
