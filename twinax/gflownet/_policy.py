"""The networks of a GFlowNet: forward and backward policy, state flow, and log Z."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.envs import Environment
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet._heads import ManyHeads, head_names
from twinax.networks import (
    MLP,
    ActingLinear,
    Linear,
    NetworkFactory,
    NetworkSpec,
    acting,
    activation,
    factory_name,
    layer_results,
    make_own,
    perceptron,
)
from twinax.types import Array, Float

BACKWARD = ("learned", "uniform", "maxent", "tlm", "pessimistic")


@checked
@dataclass(frozen=True)
class PolicyOptions:
    """Shape of the networks."""

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers, from the first to the last."""
    activation: str = "relu"
    """Activation function between layers: relu, leaky_relu, tanh, gelu, gelu_tanh, elu or silu."""
    backward: str = "learned"
    """Backward policy: learned (by the objective), uniform over parents, maxent (uniform over the paths to a state,
    counted by learning where the world has no formula), tlm (learned by the likelihood of fresh trajectories), or
    pessimistic (learned by the likelihood of trajectories that the replay keeps). What is learned by a likelihood or by
    counting is held still for the objective."""
    shared: bool = True
    """Whether one network has all heads; otherwise forward policy, backward policy and flow have a network each."""

    def __post_init__(self):
        activation(self.activation)
        if self.backward not in BACKWARD:
            raise UnknownName("backward policy", self.backward, BACKWARD)
        if any(n < 1 for n in self.hidden):
            raise TwinaxError(f"policy.hidden is {list(self.hidden)}; every width must be at least 1")

    @property
    def keeps_actions(self) -> bool:
        """Whether the replay keeps how each object was made, from which the backward policy learns."""
        return self.backward == "pessimistic"


class Outputs(NamedTuple):
    """What the policy says about a batch of states; None where it has no such head."""

    forward_logits: Float[Array, "batch actions"]
    backward_logits: Any
    log_flow: Any


class Policy(eqx.Module):
    """One MLP whose outputs are forward logits, then backward logits, then log-flow."""

    layers: tuple[Linear | ActingLinear, ...]
    activation: str = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)

    def __call__(self, observation: Any) -> Outputs:
        return split_heads(perceptron(self.layers, self.activation, observation), self.sizes)

    def acting(self) -> Policy:
        """The same policy laid out for a rollout."""
        return Policy(acting(self.layers), self.activation, self.sizes)  # type: ignore[arg-type]

    def results(self, observation: Any) -> tuple[Array, ...]:
        """What each layer gives; the last are the heads, side by side."""
        return layer_results(self.layers, self.activation, observation)

    def known(self, observation: Any, results: tuple[Array, ...]) -> Outputs:
        """What it says where the `results` of its layers are known: in JAX only gradients are left to be worked out."""
        return split_heads(layer_results(self.layers, self.activation, observation, results)[-1], self.sizes)


class SeparatePolicy(eqx.Module):
    """A network for each head."""

    forward: MLP
    backward: MLP | None
    flow: MLP | None

    def __call__(self, observation: Any) -> Outputs:
        return Outputs(
            self.forward(observation),
            None if self.backward is None else self.backward(observation),
            None if self.flow is None else self.flow(observation)[..., 0],
        )

    def acting(self) -> SeparatePolicy:
        """The forward policy laid out for a rollout."""
        return SeparatePolicy(MLP(acting(self.forward.layers), self.forward.activation), None, None)  # type: ignore[arg-type]


class Headed(eqx.Module):
    """A network other than ours of layers, whose columns are forward logits, then backward logits, then log-flow."""

    network: Any
    sizes: tuple[int, int, int] = eqx.field(static=True)

    def __call__(self, observation: Any) -> Outputs:
        out = self.network(observation)
        return out if isinstance(out, Outputs) else split_heads(out, self.sizes)

    def acting(self) -> Headed:
        """The same laid out for a rollout, if the network knows how."""
        return Headed(self.network.acting(), self.sizes) if hasattr(self.network, "acting") else self

    @property
    def one_by_one(self) -> bool:
        """Whether it can read sequences token by token, with `start` and `step`, and all their prefixes at once."""
        return bool(getattr(self.network, "one_by_one", False))

    def start(self, rows: int, length: int) -> Any:
        """What `step` remembers before the first token: of `rows` sequences of at most `length` tokens."""
        return self.network.start(rows, length)

    def step(self, cache: Any, token: Any) -> tuple[Outputs, Any]:
        """What it says after one more token of each sequence, as of all it shows, and what it then remembers."""
        out, cache = self.network.step(cache, token)
        return split_heads(out, self.sizes), cache

    @property
    def row_by_row(self) -> bool:
        """Whether it reads each item by itself at first, with `row`, and then all of them, with `whole`."""
        return bool(getattr(self.network, "row_by_row", False))

    def row(self, features: Any) -> Any:
        """What stands for items, by their own features alone."""
        return self.network.row(features)

    def whole(self, seen: Any) -> Outputs:
        """What it says of states, where what stands for their items is in the place of features."""
        return split_heads(self.network.whole(seen), self.sizes)

    def prefixes(self, observation: Any) -> Outputs:
        """What it says of every prefix of whole sequences, from one pass: entry [:, t] is that of the first t + 1
        tokens."""
        return split_heads(self.network.prefixes(observation), self.sizes)


def split_heads(out: Array, sizes: tuple[int, int, int]) -> Outputs:
    """Columns as heads; None where there is no such head."""
    forward, backward, flow = sizes
    return Outputs(
        out[..., :forward],
        out[..., forward : forward + backward] if backward else None,
        out[..., forward + backward] if flow else None,
    )


class Networks(eqx.Module):
    """All trainable parameters. log Z is the sum of `log_z`; None where the objective has no use for it."""

    policy: Callable[[Any], Outputs] | ManyHeads
    """`Policy`, `SeparatePolicy`, or a network of one's own as `Headed`; as `ManyHeads` with several forward heads."""
    log_z: Array | None
    energy: dict[str, Array] | None = None
    """What the reward learns from data, such as couplings, by the names of the world's constants; None for a reward
    that is given."""
    novelty: Any = None
    """What learns to foretell a fixed network, so that it fails on what is new; None without intrinsic rewards."""


def init_networks(
    rng: np.random.Generator,
    env: Environment,
    options: PolicyOptions,
    flow: bool,
    log_z: np.ndarray | None,
    network: NetworkFactory | None = None,
    heads: int = 1,
) -> Networks:
    """Fresh networks with NumPy leaves: what `network` makes or names, by default what suits the world."""
    if network is None:
        network = env.default_network
        if network != "mlp" and (given := _of_layers(options)):
            raise TwinaxError(
                f"policy.{given} is an option of an MLP, but the network that suits {type(env).__name__} is {network}; "
                f"ask for an MLP with policy.network=mlp, network='mlp' in Python, or leave policy.{given} out"
            )
    backward = 0 if is_fixed(env, options.backward) else env.num_backward_actions
    sizes = (heads * env.num_actions, backward, int(flow))

    def whole(policy: Any) -> Networks:
        return Networks(policy if heads == 1 else ManyHeads(policy, heads), log_z)

    if network != "mlp":
        return whole(make_headed(rng, env, network, sizes, heads))

    def mlp(outputs: int) -> MLP:
        return MLP.init(rng, env.observation_size, options.hidden, outputs, options.activation)

    if options.shared:
        trunk = mlp(sum(sizes))
        return whole(Policy(trunk.layers, trunk.activation, sizes))
    forward, back, state_flow = (mlp(n) if n else None for n in sizes)
    assert forward is not None
    return whole(SeparatePolicy(forward, back, state_flow))


def _of_layers(options: PolicyOptions) -> str | None:
    """The first option that somebody gave and that is of our layers alone."""
    plain = PolicyOptions()
    names = ("hidden", "activation", "shared")
    return next((name for name in names if getattr(options, name) != getattr(plain, name)), None)


def make_headed(
    rng: np.random.Generator, env: Environment, network: NetworkFactory, sizes: tuple[int, int, int], number: int = 1
) -> Headed:
    """A network by its name or of one's own, tried once: what it gives for the source has to be what was asked for."""
    forward = head_names(number)
    heads = {**dict.fromkeys(forward, env.num_actions), "backward": sizes[1], "flow": sizes[2]}
    shapes = dict.fromkeys(forward, env.action_shape) if len(env.action_shape) > 1 else {}
    spec = NetworkSpec("policy", env.observe(env.reset(1)), heads, shapes)
    made, out = make_own(network, rng, spec, Outputs)
    if isinstance(out, Outputs):
        shapes = {"forward_logits": (1, sizes[0]), "backward_logits": (1, sizes[1]), "log_flow": (1,)}
        for (head, shape), size in zip(shapes.items(), sizes, strict=True):
            given = getattr(out, head)
            if size and (given is None or tuple(given.shape) != shape):
                answer = "nothing" if given is None else f"shape {tuple(given.shape)}"
                raise TwinaxError(
                    f"the network {factory_name(network)} gives {answer} for {head} of one state; it must be {shape}"
                )
    return Headed(made, sizes)


def asks_of_ends(env: Environment, backward: str, needs: frozenset[str]) -> bool:
    """Whether a loss asks a network about finished states: their flow is the reward, so only where P_B is learned, or
    where the flows into states are."""
    return not env.stops and (not is_fixed(env, backward) or "log_inflow" in needs)


def counts_paths(env: Environment, kind: str) -> bool:
    """Whether the backward logits learn the numbers of paths to the parents, which this world does not know."""
    return kind == "maxent" and env.log_paths_ratio(env.reset(1)) is None


def is_fixed(env: Environment, kind: str) -> bool:
    """Whether this backward policy asks no network."""
    return kind == "uniform" or (kind == "maxent" and not counts_paths(env, kind))


def backward_log_probs(env: Environment, kind: str, states: Any, logits: Any, reference: Array) -> Array:
    """log P_B over backward actions, for any of the kinds."""
    mask = env.backward_mask(states)
    if kind == "uniform":
        logits = ops.zeros(mask.shape, reference)
    elif is_fixed(env, kind):
        logits = ops.cast(env.log_paths_ratio(states), reference)
    return ops.log_softmax(logits, mask)
