"""Training steps per second of gfnx on GFlowNet worlds (a peer: run in its own virtual environment).

usage: gfnx_worlds.py CLONE CASE BATCH STEPS [FILE]
CLONE: a clone of the gfnx repository, whose package on the index lacks worlds; CASE: tfbind8, qm9, bitseq, dag,
dag-own, ising, phylo or phylo-own; FILE: the table of values or the alignment of tfbind8, qm9 and phylo

The environment: Python 3.11 with jax==0.6.2 jaxlib==0.6.2 numpy==1.26.4 chex==0.1.90 equinox==0.13.8 flashbax==0.1.3
jraph==0.0.6.dev0 jax-tqdm==0.4.0 optax==0.2.8 networkx omegaconf matplotlib.

Prints a line when it is ready; for every line on its standard input it makes STEPS steps and prints the steps of a
second. Environments, rewards, rollouts and transitions are gfnx's own public functions, and so is the transformer of
bit sequences; losses follow its published baselines, which it does not offer for import, without their callbacks and
metrics. P_B is uniform. Steps run in a compiled loop, as in the baselines, or one by one, whichever is faster
here. Cases ending in -own have the network of gfnx's baseline, read out of the clone; otherwise the
network is written here to be that of twinax, layer by layer.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from pathlib import Path

clone, case, batch, steps = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
file = sys.argv[5] if len(sys.argv) > 5 else ""
sys.path[:0] = [str(Path(clone) / "src"), str(Path(__file__).resolve().parent.parent)]

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from measuring import rates, serve  # noqa: E402

if not hasattr(jax, "tree_map"):  # removed from JAX; gfnx still calls it
    jax.tree_map = jax.tree.map  # type: ignore[attr-defined]

import gfnx  # noqa: E402

world, own = case.removesuffix("-own"), case.endswith("-own")


# Worlds


def tabulated(kind):
    """A reward of gfnx that reads its values from our file: its own are pickles, one of which is not in the clone."""
    stored = np.load(file)
    values = stored["value"][np.argsort(stored["key"])].astype(np.float32)

    class FromFile(kind):
        def init(self, rng_key, dummy_state):
            scaled = jnp.clip(values, min=self.min_reward) ** self.reward_exponent
            return {"rewards": jnp.clip(scaled * self.reward_scale / scaled.max(), min=1e-30)}

    return FromFile()


def ising():
    """Neighbours on a torus of 9 x 9, with the coupling 0.1."""
    side, sigma = 9, 0.1
    coupling = np.zeros((side**2, side**2), np.float32)
    for place in range(side**2):
        x, y = divmod(place, side)
        for there in (((x + 1) % side) * side + y, x * side + (y + 1) % side):
            coupling[place, there] = coupling[there, place] = sigma
    env = gfnx.IsingEnvironment(gfnx.IsingRewardModule(), dim=side**2)
    params = env.init(jax.random.PRNGKey(1))
    return env, params.replace(reward_params=params.reward_params.replace(J=jnp.asarray(coupling)))


def dag():
    """Five nodes, the BGe score of data that twinax is given too."""
    from gfnx.reward.dag_likelihood import BGeScore
    from gfnx.reward.dag_prior import UniformDAGPrior

    i, j = np.arange(100)[:, None], np.arange(5)[None]
    data = np.sin(1 + i * (j + 1)) + (j > 0) / 2 * np.sin(1 + i * j)
    reward = gfnx.DAGRewardModule(prior=UniformDAGPrior(5), likelihood=BGeScore(jnp.asarray(data, jnp.float32)))
    env = gfnx.DAGEnvironment(reward, num_variables=5)
    return env, env.init(jax.random.PRNGKey(1))


def phylo():
    """The sequences of a FASTA file, in gfnx's own codes."""
    from gfnx.utils.phylogenetic_tree import CHARACTERS_MAPS

    codes = CHARACTERS_MAPS["DNA_WITH_GAP"]
    parts = [part.split("\n", 1)[1].replace("\n", "") for part in Path(file).read_text().split(">")[1:]]
    sequences = jnp.array([[codes[letter] for letter in part.strip().upper()] for part in parts], jnp.uint8)
    reward = gfnx.PhyloTreeRewardModule(num_nodes=len(parts), scale=4.0, C=0.0)
    env = gfnx.PhyloTreeEnvironment(reward, sequences=sequences)
    return env, env.init(jax.random.PRNGKey(1))


def plain(env):
    return env, env.init(jax.random.PRNGKey(1))


WORLDS = {
    "tfbind8": lambda: plain(gfnx.TFBind8Environment(tabulated(gfnx.TFBind8RewardModule))),
    "qm9": lambda: plain(gfnx.QM9SmallEnvironment(tabulated(gfnx.QM9SmallRewardModule))),
    "bitseq": lambda: plain(gfnx.BitseqEnvironment(gfnx.BitseqRewardModule(120, 8, 60, 3.0), n=120, k=8)),
    "ising": ising,
    "dag": dag,
    "phylo": phylo,
}
env, env_params = WORLDS[world]()
actions = env.action_space.n


# Networks: of one observation, to logits and perhaps a flow


class OneHot(eqx.Module):
    """An MLP of one-hot tokens, with the one that begins a string; those beyond the vocabulary are zeros."""

    body: eqx.nn.MLP
    low: int
    vocabulary: int

    def __call__(self, seen):
        return self.body(jax.nn.one_hot(seen - self.low, self.vocabulary).reshape(-1)), 0.0


class PlaceLogits(eqx.Module):
    """gfnx's encoder, with the logits of each place."""

    body: eqx.Module
    head: eqx.nn.Linear

    def __call__(self, seen):
        x = self.body(seen, jnp.arange(seen.shape[0]))["layers_out"][-1]
        return jax.vmap(self.head)(x[1:]).reshape(-1), 0.0


class Attending(eqx.Module):
    """A layer of attention and a perceptron, norms first."""

    norms: list
    attention: eqx.nn.MultiheadAttention
    linears: list

    def __init__(self, width, heads, hidden, key):
        keys = jax.random.split(key, 3)
        self.norms = [eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)]
        biases = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(heads, width, key=keys[0], **biases)
        self.linears = [eqx.nn.Linear(width, hidden, key=keys[1]), eqx.nn.Linear(hidden, width, key=keys[2])]

    def __call__(self, x, mask=None):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask)
        y = jax.nn.relu(jax.vmap(self.linears[0])(jax.vmap(self.norms[1])(x)))
        return x + jax.vmap(self.linears[1])(y)


class Edges(eqx.Module):
    """Messages along edges in both directions, then attention; a logit for each edge and for stopping."""

    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    messages: eqx.nn.Linear
    layer: Attending
    last: eqx.nn.LayerNorm
    sender: eqx.nn.Linear
    receiver: eqx.nn.Linear
    stop: eqx.nn.Linear

    def __init__(self, nodes, width, heads, key):
        keys = jax.random.split(key, 6)
        self.first = eqx.nn.Linear(nodes, width, key=keys[0])
        self.norm, self.last = eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width)
        self.messages = eqx.nn.Linear(2 * width, width, key=keys[1])
        self.layer = Attending(width, heads, width, keys[2])
        self.sender, self.receiver = (eqx.nn.Linear(width, width, key=key) for key in keys[3:5])
        self.stop = eqx.nn.Linear(width, 1, key=keys[5])

    def __call__(self, adjacency):
        edges = adjacency.astype(jnp.float32) / adjacency.shape[0]
        x = jax.vmap(self.first)(jnp.eye(adjacency.shape[0]))
        y = jax.vmap(self.norm)(x)
        x = x + jax.vmap(self.messages)(jnp.concatenate([edges @ y, edges.T @ y], -1))
        x = jax.vmap(self.last)(self.layer(x))
        logits = jax.vmap(self.sender)(x) @ jax.vmap(self.receiver)(x).T / np.sqrt(x.shape[-1])
        return jnp.concatenate([logits.reshape(-1), self.stop(x.mean(0))]), 0.0


class Pairs(eqx.Module):
    """Attention over the trees that are there; a logit for each pair, and a flow from all of them."""

    first: list
    layers: list
    norm: eqx.nn.LayerNorm
    judge: list
    flow: eqx.nn.Linear

    def __init__(self, features, sizes, width, layers, heads, hidden, key):
        keys = jax.random.split(key, 4)
        every = [features, *sizes, width]
        self.first = [
            eqx.nn.Linear(a, b, key=key)
            for a, b, key in zip(every[:-1], every[1:], jax.random.split(keys[0], len(every) - 1), strict=True)
        ]
        self.layers = [Attending(width, heads, hidden, key) for key in jax.random.split(keys[1], layers)]
        self.norm = eqx.nn.LayerNorm(width)
        one, two, self.flow = (
            eqx.nn.Linear(a, b, key=key)
            for a, b, key in zip((width, hidden, width), (hidden, 1, 1), jax.random.split(keys[2], 3), strict=True)
        )
        self.judge = [one, two]

    def __call__(self, seen):
        there = jnp.any(seen, axis=(1, 2))
        x = seen.reshape(seen.shape[0], -1).astype(jnp.float32)
        for layer in self.first[:-1]:
            x = jax.nn.relu(jax.vmap(layer)(x))
        x = jax.vmap(self.first[-1])(x)
        mask = jnp.broadcast_to(there, (x.shape[0], x.shape[0]))
        for layer in self.layers:
            x = layer(x, mask)
        x = jax.vmap(self.norm)(x)
        one, other = jnp.triu_indices(x.shape[0], k=1)
        logits = jax.vmap(lambda pair: self.judge[1](jax.nn.relu(self.judge[0](pair))))(x[one] + x[other])
        whole = (x * there[:, None]).sum(0) / there.sum()
        return logits[:, 0], self.flow(whole)[0]


class Theirs(eqx.Module):
    """The network of a baseline of gfnx."""

    body: eqx.Module
    batched: bool

    def __call__(self, seen):
        out = self.body(seen[None] if self.batched else seen)
        out = jax.tree.map(lambda x: x[0], out) if self.batched else out
        return out["forward_logits"], out.get("log_flow", 0.0)


def baseline(name):
    """A script of gfnx's repository as a module, with stand-ins for what it imports to log and to read settings."""
    for missing in ("hydra", "utils", "utils.checkpoint", "utils.logger", "jax_tqdm"):
        if missing not in sys.modules:
            stand_in = types.ModuleType(missing)
            stand_in.main = lambda **_: lambda function: function
            stand_in.Writer = stand_in.save_checkpoint = stand_in.loop_tqdm = lambda *_, **__: None
            sys.modules[missing] = stand_in
    found = importlib.util.spec_from_file_location(name, Path(clone) / "baselines" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def network(key):
    mlp = functools.partial(eqx.nn.MLP, out_size=actions, key=key)
    if world == "tfbind8":
        return OneHot(mlp(9 * 6, width_size=256, depth=2), 0, 6)
    if world == "qm9":
        return OneHot(mlp(6 * 13, width_size=256, depth=2), 0, 13)
    if world == "ising":
        return OneHot(mlp(81 * 3, width_size=256, depth=4), -1, 3)
    if world == "bitseq":
        sizes = {"embedding_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_layers": 3, "num_heads": 8}
        tokens = {"vocab_size": env.ntoken, "max_length": env.max_length + 1, "pad_id": env.pad_token}
        body = gfnx.networks.Encoder(**sizes, **tokens, dropout_rate=0.0, key=key)
        return PlaceLogits(body, eqx.nn.Linear(64, 256, key=key))
    if case == "dag":
        return Edges(5, 128, 4, key)
    if case == "dag-own":
        return Theirs(baseline("mdb_dag").GNNPolicy(5, 1, 1, 128, 4, env.backward_action_space.n, key), True)
    taxa, sites = env.sequences.shape
    if case == "phylo":
        return Pairs(5 * sites, (256, 256, 128), 32, 6, 8, 128, key)
    policy = baseline("fldb_phylo").TransformerPolicy(
        taxa,
        actions,
        env.backward_action_space.n,
        False,
        {"in_size": 5 * sites, "embedding_size": 128, "embedding_width": 256, "embedding_depth": 2},
        {
            "hidden_size": 32,
            "intermediate_size": 128,
            "num_heads": 8,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
            "num_layers": 6,
        },
        {"width_size": 256, "depth": 3},
        key=key,
    )
    return Theirs(policy, False)


model = network(jax.random.PRNGKey(0))
# What no gradient moves, such as codes of places, is no weight.
fixed = {"pe", "pos_embeddings"}
movable = jax.tree_util.tree_map_with_path(
    lambda path, x: eqx.is_inexact_array(x) and not fixed & {getattr(part, "name", "") for part in path}, model
)
weights, rest = eqx.partition(model, movable)


def outputs(weights, seen):
    """Logits and flows of a batch of observations."""
    module = eqx.combine(weights, rest)
    if isinstance(module, Theirs) and module.batched:
        out = module.body(seen)
        return out["forward_logits"], None
    return jax.vmap(module)(seen)


# Losses, after gfnx's baselines


def log_prob(logits, invalid, action):
    masked = jax.nn.log_softmax(gfnx.utils.mask_logits(logits, invalid), axis=-1)
    return jnp.take_along_axis(masked, action[..., None], -1)[..., 0]


def trajectory_balance(params, targets, data):
    logits, _ = jax.vmap(lambda seen: outputs(params["network"], seen))(data.obs)
    invalid = jax.vmap(env.get_invalid_mask, (1, None), 1)(data.state, env_params)
    log_pf = jnp.where(data.pad, 0.0, log_prob(logits, invalid, data.action)).sum(1)
    before, after = (jax.tree.map(lambda x, cut=cut: x[:, cut], data.state) for cut in (slice(-1), slice(1, None)))
    undo = jax.vmap(env.get_backward_action, (1, 1, 1, None), 1)(before, data.action[:, :-1], after, env_params)
    undo_invalid = jax.vmap(env.get_invalid_backward_mask, (1, None), 1)(after, env_params)
    log_pb = log_prob(jnp.zeros(undo_invalid.shape), undo_invalid, undo)
    gained = jnp.where(data.pad[:, :-1], 0.0, log_pb + data.log_gfn_reward[:, :-1]).sum(1)
    return ((params["log_z"] + log_pf - gained) ** 2).mean()


def modified_detailed_balance(params, targets, data):
    moves = gfnx.utils.split_traj_to_transitions(data)
    here, _ = outputs(params["network"], moves.obs)
    there, _ = outputs(targets, moves.next_obs)
    masks = [env.get_invalid_mask(state, env_params) for state in (moves.state, moves.next_state)]
    stop = jnp.full(moves.action.shape, actions - 1)
    log_pf, stop_here = (log_prob(here, masks[0], action) for action in (moves.action, stop))
    stop_there = log_prob(there, masks[1], stop)
    undo = env.get_backward_action(moves.state, moves.action, moves.next_state, env_params)
    undo_invalid = env.get_invalid_backward_mask(moves.next_state, env_params)
    log_pb = log_prob(jnp.zeros(undo_invalid.shape), undo_invalid, undo)
    gain = env.reward_module.delta_score(moves.state, moves.action, moves.next_state, env_params)
    off = moves.done | moves.pad
    residual = jnp.where(off, 0.0, log_pf + stop_there - stop_here - log_pb - gain)
    return optax.huber_loss(residual).sum() / jnp.logical_not(off).sum()


def forward_looking(params, targets, data):
    moves = gfnx.utils.split_traj_to_transitions(data)
    logits, flow = outputs(params["network"], moves.obs)
    _, later = outputs(targets, moves.next_obs)
    log_pf = log_prob(logits, env.get_invalid_mask(moves.state, env_params), moves.action)
    undo = env.get_backward_action(moves.state, moves.action, moves.next_state, env_params)
    undo_invalid = env.get_invalid_backward_mask(moves.next_state, env_params)
    log_pb = log_prob(jnp.zeros(undo_invalid.shape), undo_invalid, undo)
    target = log_pb + jnp.where(moves.done, 0.0, later) + env.reward_module.delta_score(moves.next_state)
    residual = jnp.where(moves.pad, 0.0, log_pf + flow - jax.lax.stop_gradient(target))
    return optax.huber_loss(residual).sum() / jnp.logical_not(moves.pad).sum()


LOSSES = {"dag": modified_detailed_balance, "phylo": forward_looking}
loss = LOSSES.get(world, trajectory_balance)
params = {"network": weights, "log_z": jnp.array(0.0)}
labels = {"network": jax.tree.map(lambda _: "network", weights), "log_z": "log_z"}
if world == "bitseq":
    body = optax.adamw(1e-3, weight_decay=1e-5)
else:
    body = optax.adam({"dag": 1e-4, "phylo": 3e-4, "ising": 1e-3}.get(world, 5e-4))
optimizer = optax.multi_transform({"network": body, "log_z": optax.adam(0.05)}, labels)


def policy(key, observation, weights):
    return outputs(weights, observation)[0], {}


def step(number, carry):
    key, params, memory, targets = carry
    key, use = jax.random.split(key)
    data, _ = gfnx.utils.forward_rollout(
        rng_key=use, num_envs=batch, policy_fn=policy, policy_params=params["network"], env=env, env_params=env_params
    )
    gradient = jax.grad(loss)(params, targets, data)
    updates, memory = optimizer.update(gradient, memory, params)
    params = optax.apply_updates(params, updates)
    if world == "dag":
        now = number % 1000 == 999
        targets = jax.tree.map(lambda new, old: jnp.where(now, new, old), params["network"], targets)
    if world == "phylo":
        targets = optax.incremental_update(params["network"], targets, 0.005)
    return key, params, memory, targets


@functools.partial(jax.jit, static_argnums=1)
def in_a_loop(carry, number):
    return jax.lax.fori_loop(0, number, step, carry)


one_step = jax.jit(step)


def one_by_one(carry, number):
    for k in range(number):
        carry = one_step(k, carry)
    return carry


carry = (jax.random.PRNGKey(2), params, optimizer.init(params), weights if world in LOSSES else None)
by_way = {}
# Baselines train in a compiled loop; where products are wide, XLA's loops can be slower than the same steps one by one.
for way in (one_by_one, in_a_loop):
    jax.block_until_ready(way(carry, steps))
    by_way[way] = rates(lambda way=way: jax.block_until_ready(way(carry, steps)), steps)["rate"]
best = max(by_way, key=lambda way: by_way[way])

count = sum(x.size for x in jax.tree.leaves(weights)) + (loss is trajectory_balance)
rates_by_way = {way.__name__: rate for way, rate in by_way.items()}
facts = {"parameters": int(count), "way": best.__name__, "rates_by_way": rates_by_way, "jax": jax.__version__}
# Every turn starts from fresh weights: on the way some steps of bit sequences take fifteen times as much processor time
# as others, in the same program, so turns that went on from one another would not be comparable.
serve(facts, lambda: rates(lambda: jax.block_until_ready(best(carry, steps)), steps))
assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(best(carry, 1)[1])), "weights are no longer finite"
