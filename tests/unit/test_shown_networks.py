"""Networks over tokens, graphs and items: against `torch.nn` and slow loops, turned and cut, one token at a time."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch
from shown_worlds import Arrows, Couples, GrowingBits, ShownBits
from small_worlds import BitStrings
from test_torch_layers import assert_close, shaken, weighted
from torch import nn

import twinax as tx
from twinax import bridge, conf, networks, ops
from twinax.envs import check_env
from twinax.errors import TwinaxError
from twinax.gflownet import PolicyOptions
from twinax.gflownet._policy import Headed, Policy, init_networks
from twinax.networks import Graph, GraphNetwork, Items, NetworkSpec, PairNetwork, PlaceHead, Tokens, TokenTransformer
from twinax.tree import named_leaves

pytestmark = pytest.mark.usefixtures("quick_compilation")
RNG = np.random.default_rng(5)
TOKENS = Tokens(RNG.integers(0, 4, (3, 6)).astype(np.int32), 6)
GROWING = Tokens(np.array([[5, 0, 3, 1, 4, 4], [5, 4, 4, 4, 4, 4], [5, 1, 1, 2, 0, 3]], np.int32), 6, empty=4)
GRAPH = Graph(RNG.normal(size=(3, 4, 5)), RNG.normal(size=(3, 4, 4, 2)))
ITEMS = Items(RNG.normal(size=(3, 5, 4)), np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 0, 0]], bool))
WORDS = {"forward": (5, 4)}
SMALL = {"width": 8, "heads": 2, "feedforward": 12}


def made(factory, seen, heads, shapes=None, seed=3):
    """A network in float64, away from biases of zero."""
    spec = NetworkSpec("policy", seen, heads, shapes or {})
    return shaken(factory(np.random.default_rng(seed), spec), seed)


def transformer(seen, heads, **options):
    shapes = WORDS if heads["forward"] == 20 else {}
    return lambda: (made(TokenTransformer(**options, **SMALL), seen, heads, shapes), seen)


NETS = {
    "places": transformer(TOKENS, {"forward": 20, "backward": 5, "flow": 1}),
    "sum": transformer(TOKENS, {"forward": 20}, logits="sum", places="learned"),
    "own": transformer(TOKENS, {"forward": 20, "flow": 1}, logits="own"),
    "mean": transformer(TOKENS, {"forward": 20, "backward": 2}, pooling="mean"),
    "last": transformer(GROWING, {"forward": 4, "flow": 1}, pooling="last"),
    "causal": transformer(GROWING, {"forward": 4, "flow": 1}, causal=True),
    "graph": lambda: (made(GraphNetwork(**SMALL), GRAPH, {"forward": 17, "backward": 16, "flow": 1}), GRAPH),
    "pairs": lambda: (made(PairNetwork(hidden=(7,), **SMALL), ITEMS, {"forward": 10, "backward": 5, "flow": 1}), ITEMS),
    "pairs and a stop": lambda: (made(PairNetwork(**SMALL), ITEMS, {"forward": 11, "more": 3}), ITEMS),
}
EACH = pytest.mark.parametrize("name", NETS)


class Theirs(nn.Module):
    """What a PyTorch user would write for a `TokenNet`."""

    def __init__(self, learned: bool, form: str, forward: int):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True)
        self.tokens, self.places = nn.Embedding(6, 8), nn.Embedding(6, 8) if learned else None
        self.body = nn.TransformerEncoder(layer, 3, nn.LayerNorm(8), enable_nested_tensor=False)
        self.heads = nn.ModuleDict()
        self.form, self.columns = form, forward

    def forward(self, seen):
        ids = torch.from_numpy(seen.ids)
        x = self.tokens(ids)
        if self.places is None:
            wave = np.zeros((6, 8))
            for place, i in np.ndindex(6, 4):
                angle = place / 10_000 ** (i / 4)
                wave[place, 2 * i : 2 * i + 2] = math.sin(angle), math.cos(angle)
            x = x + torch.from_numpy(wave)
        else:
            x = x + self.places.weight
        causal = self.form == "causal"
        mask = ~torch.ones(6, 6, dtype=torch.bool).tril() if causal else None
        x = self.body(x, mask=mask, is_causal=causal)
        if self.form in ("last", "causal"):
            pooled = x[range(3), [3, 0, 5]]
        else:
            pooled = x.mean(1)
        parts = []
        for name, head in self.heads.items():
            if name == "forward" and self.form in ("places", "sum", "own"):
                parts.append(self.by_place(head, x[:, 1:]))
            else:
                parts.append(head(pooled))
        return torch.cat(parts, -1)

    def by_place(self, head, x):
        if self.form == "own":
            rows = [x[:, p] @ head["word"].weight[p].T + head["word"].bias[p] for p in range(5)]
            return torch.cat(rows, -1)
        y = head["word"](x)
        return (y + head["place"](x) if self.form == "sum" else y).reshape(3, 20)


class Several(nn.Module):
    """A linear layer for each of several places."""

    def __init__(self, places, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(places, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(places, outputs))


def theirs(name: str, net) -> Theirs:
    module = Theirs(name == "sum", name, 20)
    for head in net.order:
        columns = {"flow": 1, "backward": 5 if name == "places" else 2}.get(head, 20 if name == "mean" else 4)
        layer: nn.Module = nn.Linear(8, columns)
        if head == "forward" and name in ("places", "sum", "own"):
            word = Several(5, 8, 4) if name == "own" else nn.Linear(8, 4)
            parts = {"word": word, "place": nn.Linear(8, 1)} if name == "sum" else {"word": word}
            layer = nn.ModuleDict(parts)
        # Set directly: `add_module` refuses the name forward.
        module.heads._modules[head] = layer
    module.double().load_state_dict(networks.as_torch_module(net).state_dict())
    return module


@pytest.mark.parametrize("name", ["places", "sum", "own", "mean", "last", "causal"])
def test_a_token_transformer_is_that_of_torch(name):
    net, seen = NETS[name]()
    module = theirs(name, net)
    assert sorted(module.state_dict()) == sorted(named_leaves(net))
    wanted = module(seen)
    assert_close(net(seen), wanted)
    order = dict(module.named_parameters())
    there = torch.autograd.grad(weighted(wanted), [order[key] for key in named_leaves(net)])
    leaves = jtu.tree_map(lambda x: torch.tensor(x, requires_grad=True), net)
    ours = leaves(ops.like(seen, leaves.tokens.weight))
    assert_close(torch.autograd.grad(weighted(ours), jtu.tree_leaves(leaves)), there)
    assert all(g.abs().max() > 0 for g in there)


@EACH
def test_frameworks_agree_on_values_and_gradients_and_on_acting(name, double_precision):
    net, seen = NETS[name]()
    wanted = net(seen)
    leaves = jtu.tree_map(lambda x: torch.tensor(x, requires_grad=True), net)
    in_torch = leaves(ops.like(seen, jtu.tree_leaves(leaves)[0]))
    assert_close(in_torch, wanted)
    there = torch.autograd.grad(weighted(in_torch), jtu.tree_leaves(leaves))
    there = [torch.zeros(()) if g is None else g for g in there]

    @jax.jit
    def both(net, seen):
        def loss(net):
            y = net(seen)
            return weighted(y), y

        (_, y), gradients = jax.value_and_grad(loss, has_aux=True)(net)
        return y, net.acting()(seen), gradients

    here, acted, gradients = both(*jtu.tree_map(jnp.asarray, (net, seen)))
    assert_close(here, wanted)
    assert_close(acted, wanted)
    assert_close(gradients, there)
    assert_close(net.acting()(seen), wanted)
    assert all(g.abs().max() > 0 for g in there)
    module = networks.as_torch_module(net)
    assert list(module.state_dict()) == list(named_leaves(net))
    assert_close(module(ops.like(seen, torch.zeros(()))), wanted)


def normed(norm, x):
    centred = x - x.mean()
    return centred / math.sqrt((centred**2).mean() + norm.eps) * norm.weight + norm.bias


def linear(layer, x):
    return layer.weight @ x + layer.bias


def attended(attention, rows, there):
    """Attention, one query and one head after the other, over those that are there."""
    width, heads = rows.shape[1], attention.heads
    q, k, v = np.split(rows @ attention.in_proj_weight.T + attention.in_proj_bias, 3, 1)
    out = np.zeros_like(rows)
    for i in range(len(rows)):
        for part in np.split(np.arange(width), heads):
            fits = [math.exp(q[i, part] @ k[j, part] / math.sqrt(len(part))) * there[j] for j in range(len(rows))]
            out[i, part] = sum(fit * v[j, part] for j, fit in enumerate(fits)) / sum(fits)
    return np.stack([linear(attention.out_proj, row) for row in out])


def encoded(layer, rows, there):
    rows = rows + attended(layer.self_attn, np.stack([normed(layer.norm1, row) for row in rows]), there)
    hidden = [np.maximum(linear(layer.linear1, normed(layer.norm2, row)), 0) for row in rows]
    return rows + np.stack([linear(layer.linear2, row) for row in hidden])


def test_a_graph_network_is_that_of_slow_loops():
    net, seen = NETS["graph"]()
    found = net(seen)
    for b in range(3):
        x = np.stack([linear(net.first, node) for node in seen.nodes[b]])
        for layer in net.layers:
            h, messages = [normed(layer.norm, row) for row in x], []
            for i in range(4):
                out = [sum(seen.edges[b, i, j, kind] * h[j] for j in range(4)) / 4 for kind in range(2)]
                into = [sum(seen.edges[b, j, i, kind] * h[j] for j in range(4)) / 4 for kind in range(2)]
                messages.append(linear(layer.messages, np.concatenate([*out, *into])))
            x = encoded(layer.attention, x + np.stack(messages), np.ones(4))
        x = np.stack([normed(net.norm, row) for row in x])
        whole, columns = x.mean(0), []
        for name in ("forward", "backward"):
            head = net.heads[name]
            for i, j in np.ndindex(4, 4):
                columns.append(linear(head.sender, x[i]) @ linear(head.receiver, x[j]) / math.sqrt(8))
            columns += list(linear(head.stop, whole)) if name == "forward" else []
        columns += list(linear(net.heads["flow"], whole))
        np.testing.assert_allclose(found[b], columns, atol=1e-12)


def test_a_pair_network_is_that_of_slow_loops():
    net, seen = NETS["pairs"]()
    found = net(seen)
    for b in range(3):
        rows = [linear(net.first[1], np.maximum(linear(net.first[0], row), 0)) for row in seen.features[b]]
        x, there = np.stack(rows), seen.present[b]
        for layer in net.body.layers:
            x = encoded(layer, x, there)
        x = np.stack([normed(net.body.norm, row) for row in x])
        head, columns = net.heads["forward"], np.zeros(10)
        for i in range(5):
            for j in range(i + 1, 5):
                pair = linear(head.linear2, np.maximum(linear(head.linear1, x[i] + x[j]), 0))
                columns[i * (2 * 5 - 1 - i) // 2 + j - i - 1] = pair[0]
        each = [linear(net.heads["backward"].layer, row)[0] for row in x]
        flow = linear(net.heads["flow"], x[there].mean(0))
        np.testing.assert_allclose(found[b], [*columns, *each, *flow], atol=1e-12)


def test_nodes_of_a_graph_have_no_order():
    net, seen = NETS["graph"]()
    order = np.array([2, 0, 3, 1])
    turned = net(Graph(seen.nodes[:, order], seen.edges[:, order][:, :, order]))
    edges, back, rest = np.split(net(seen), [17, 33], 1)
    for found, wanted in zip(np.split(turned, [17, 33], 1)[:2], (edges, back), strict=True):
        square = wanted[:, :16].reshape(3, 4, 4)[:, order][:, :, order]
        np.testing.assert_allclose(found[:, :16], square.reshape(3, 16), atol=1e-12)
    np.testing.assert_allclose(turned[:, [16, 33]], np.stack([edges[:, 16], rest[:, 0]], 1), atol=1e-12)


def test_items_have_no_order_and_who_is_absent_is_not_read():
    net, seen = NETS["pairs"]()
    order = np.array([3, 1, 4, 0, 2])
    one, other = np.triu_indices(5, 1)
    number = {pair: k for k, pair in enumerate(zip(one, other, strict=True))}
    moved = [number[tuple(sorted((order[i], order[j])))] for i, j in zip(one, other, strict=True)]
    wanted = net(seen)
    turned = net(Items(seen.features[:, order], seen.present[:, order]))
    columns = [*moved, *(10 + order), 15]
    np.testing.assert_allclose(turned, wanted[:, columns], atol=1e-12)
    other_rows = np.where(seen.present[..., None], seen.features, 9.0)
    changed = net(Items(other_rows, seen.present))
    both = seen.present[:, one] & seen.present[:, other]
    np.testing.assert_allclose(changed[:, :10][both], wanted[:, :10][both], atol=1e-12)
    np.testing.assert_allclose(changed[:, 15], wanted[:, 15], atol=1e-12)
    assert not np.allclose(changed[:, :10][~both], wanted[:, :10][~both])
    # What an MLP reads of them says as much.
    np.testing.assert_array_equal(networks.flat(Items(other_rows, seen.present)), networks.flat(seen))


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
def test_one_pass_and_one_token_at_a_time_say_what_each_prefix_says(kind, double_precision):
    net, _ = NETS["causal"]()
    convert = {"numpy": lambda x: x, "torch": bridge.to_torch, "jax": bridge.to_jax}[kind]
    net = convert(net)
    ids = RNG.integers(0, 4, (3, 6)).astype(np.int32)
    ids[:, 0] = 5
    every = net.prefixes(Tokens(convert(ids), 6, empty=4))
    acting = net.acting()
    whole, step = type(net).__call__, type(net).step
    if kind == "jax":
        whole, step = jax.jit(whole), jax.jit(step)
    cache = acting.start(3, 6)
    for t in range(6):
        prefix = Tokens(convert(np.where(np.arange(6) <= t, ids, 4).astype(np.int32)), 6, empty=4)
        wanted = whole(net, prefix)
        assert_close(every[:, t], wanted)
        out, cache = step(acting, cache, convert(ids[:, t]))
        assert_close(out, wanted)
        if t == 3:  # a batch that shrinks on the way
            keep = np.array([2, 0], np.int32)
            ids, every, cache = ids[keep], every[keep], cache.rows(convert(keep))
    np.testing.assert_allclose(np.asarray(cache.time), 6)


def test_a_network_that_sees_everything_has_no_prefixes():
    net, seen = NETS["places"]()
    for call in (lambda: net.prefixes(seen), lambda: net.start(3, 6)):
        with pytest.raises(TwinaxError, match="causal=True"):
            call()


WRONG = [
    (lambda: TokenTransformer(places="none"), "unknown TokenTransformer.places 'none'; known: learned, sinusoidal"),
    (lambda: TokenTransformer(causal=True, pooling="mean"), "take pooling=last"),
    (lambda: TokenTransformer(wide=3), "TokenTransformer has no argument 'wide'"),
    (lambda: made(TokenTransformer(width=9), TOKENS, {"flow": 1}), "a width of 9 cannot be shared by 8 heads"),
    (lambda: made(TokenTransformer(causal=True), TOKENS, {"flow": 1}), "name no empty token"),
    (lambda: made(TokenTransformer(), GRAPH, {"flow": 1}), "reads Tokens, but as policy it is shown a Graph"),
    (lambda: made(TokenTransformer(), TOKENS, {"forward": 14}, {"forward": (7, 2)}), "has 7 places, but the observ"),
    (lambda: made(GraphNetwork(), np.zeros((1, 3)), {"flow": 1}), "it is shown rows of 3 numbers"),
    (lambda: made(PairNetwork(), TOKENS, {"flow": 1}), "reads Items, but as policy it is shown a Tokens"),
    (lambda: GraphNetwork(layers=0), "has a size below 1"),
    (lambda: PairNetwork(hidden=(8, 0)), "has a size below 1"),
    (lambda: PlaceHead.init(RNG, 8, 5, 4, "each"), "unknown form of a PlaceHead 'each'; known: own, shared, sum"),
]


@pytest.mark.parametrize(("call", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_what_does_not_fit_is_one_sentence(call, sentence):
    with pytest.raises(TwinaxError, match=re.escape(sentence)):
        call()


# In a family


def first_networks(env, network=None, options=None):
    return init_networks(RNG, env, options or PolicyOptions(), True, None, network).policy


def test_a_world_has_a_network_of_its_own_and_a_person_takes_another():
    kinds = {ShownBits(3): "TokenNet", Arrows(3): "GraphNet", Couples(4): "PairNet"}
    for env, kind in kinds.items():
        policy = first_networks(env)
        assert isinstance(policy, Headed) and type(policy.network).__name__ == kind
        out = policy(env.observe(env.reset(2)))
        assert out.forward_logits.shape == (2, env.num_actions)
        assert out.backward_logits.shape == (2, env.num_backward_actions) and out.log_flow.shape == (2,)
        plain = first_networks(env, "mlp", PolicyOptions(hidden=(8,)))
        assert isinstance(plain, Policy) and plain.layers[0].weight.shape == (8, env.observation_size)
        check_env(env)
    assert isinstance(first_networks(BitStrings(3)), Policy)
    head = first_networks(ShownBits(3)).network.heads["forward"]
    assert isinstance(head, PlaceHead) and head.word.weight.shape == (2, 64)
    assert first_networks(ShownBits(3), TokenTransformer(width=16)).network.tokens.weight.shape == (3, 16)
    with pytest.raises(
        TwinaxError, match=r"TokenTransformer reads Tokens, but as policy it is shown rows of 9 numbers"
    ):
        first_networks(BitStrings(3), "transformer")
    with pytest.raises(
        TwinaxError, match="policy.hidden is an option of an MLP, but .* suits ShownBits is transformer"
    ):
        first_networks(ShownBits(3), None, PolicyOptions(hidden=(8,)))
    with pytest.raises(TwinaxError, match="unknown network 'gru'; known: graph"):
        first_networks(ShownBits(3), "gru")
    problem = tx.gflownet.problem(ShownBits(3), network="transformer")
    assert type(problem.init(0).networks.policy.network).__name__ == "TokenNet"


def test_a_policy_reads_one_token_at_a_time():
    env = GrowingBits(3)
    policy = first_networks(env, TokenTransformer(causal=True, **SMALL))
    assert policy.one_by_one and policy.acting().one_by_one
    assert not first_networks(env).one_by_one and not first_networks(ShownBits(3)).one_by_one
    states = [env.reset(2)]
    for action in (np.array([0, 1]), np.array([1, 1]), np.array([0, 0])):
        states.append(env.step(states[-1], action.astype(np.int32)))
    seen = env.observe(states[-1])
    every, cache = policy.prefixes(seen), policy.start(2, 4)
    for t, state in enumerate(states):
        wanted = policy(env.observe(state))
        out, cache = policy.step(cache, seen.ids[:, t])
        at_once = [None if x is None else x[:, t] for x in every]
        for mine, other, asked in zip(out, at_once, wanted, strict=True):
            if asked is not None:
                np.testing.assert_allclose(mine, asked, atol=1e-5)
                np.testing.assert_allclose(other, asked, atol=1e-5)


def test_the_configuration_names_networks():
    words = ["env=shown_worlds:ShownBits", "env.length=3", "trainer.batch_size=4"]

    def policy(*more):
        return conf.build_problem(conf.compose([*words, *more])).init(0).networks.policy

    assert type(policy().network).__name__ == "TokenNet"
    assert policy("policy.network_options={width: 16, layers: 1}").network.tokens.weight.shape == (3, 16)
    assert policy("policy.network=transformer").network.tokens.weight.shape == (3, 64)
    assert isinstance(policy("policy.network=mlp", "policy.hidden=[8]"), Policy)
    with pytest.raises(TwinaxError, match="TokenTransformer has no argument 'wide'"):
        policy("policy.network=transformer", "policy.network_options={wide: 16}")
    with pytest.raises(TwinaxError, match="GraphNetwork reads a Graph, but as policy it is shown a Tokens"):
        policy("policy.network=graph")


def test_few_kinds_of_tokens_are_written_out_and_many_are_looked_up():
    """An MLP says the same either way; which one is quicker depends on how many kinds there are."""
    ids = np.random.default_rng(0).integers(0, 5, (7, 4))
    few, many = Tokens(ids, 5), Tokens(ids, 40)
    assert not isinstance(networks.flat(few), networks.KHot) and isinstance(networks.flat(many), networks.KHot)
    np.testing.assert_array_equal(networks.flat(few), few.khot().dense("float32"))
    net = networks.MLP.init(np.random.default_rng(1), 20, (8,), 3)
    np.testing.assert_allclose(net(few.khot()), net(few), rtol=1e-5, atol=1e-6)
