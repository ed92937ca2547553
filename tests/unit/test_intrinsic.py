"""Rewards for what is new: by hand, at scale 0, in flows that solve them, and through runs that end and go on."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import twinax as tx
from twinax import parity, tree
from twinax.engines import make_engine
from twinax.envs import Environment, GridReward, GridState, Hypergrid, enumerate_states
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import (
    Exploration,
    LocalSearchOptions,
    MetricOptions,
    PolicyOptions,
    ReplayOptions,
    Scores,
    TargetOptions,
    objectives,
    problem,
)
from twinax.gflownet._intrinsic import rewarded
from twinax.noise import numpy_draws

sys.path.insert(0, str(Path(__file__).parent))
from slow_scores import replay, slow_scores
from small_worlds import BitStrings

GRID = Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0))
WORLDS = {"ragged": GRID, "fixed length": BitStrings(4)}
FIELDS = {"intrinsic": 0.3, "intrinsic_widths": (6, 5, 4)}


def small(env: Any = GRID, objective="trajectory_balance", batch_size=5, explore=None, **options):
    return problem(
        env,
        objective,
        batch_size=batch_size,
        policy=options.pop("policy", PolicyOptions(hidden=(8,))),
        metrics=MetricOptions(fifo=60, samples=32),
        exploration=Exploration(**(FIELDS if explore is None else explore)),
        **options,
    )


def collected(made, seed=0):
    state = made.init(seed)
    return state, made.collect(state, numpy_draws(made.draws(), seed, 0), made.inputs())[1]


def foretold(layers, x):
    """A perceptron by hand."""
    for layer in layers[:-1]:
        x = np.maximum(layer.weight @ x + layer.bias, 0)
    return layers[-1].weight @ x + layers[-1].bias


def distance(state, env, one) -> float:
    """|f(s) - g(s)| of one state."""
    seen = env.observe(one)
    x = np.asarray(seen if isinstance(seen, np.ndarray) else seen.dense("float32"))[0].astype(np.float64)
    return float(
        np.linalg.norm(foretold(state.networks.novelty.layers, x) - foretold(state.targets["novelty"].layers, x))
    )


class Pairs(Hypergrid):
    """Shows what only a network of one's own reads."""

    observation_size = Environment.observation_size

    def observe(self, state):
        return {"place": state.position, "again": state.position}


# By hand


@pytest.mark.parametrize("world", WORLDS)
def test_a_finished_object_is_worth_more_by_how_new_it_is(world):
    env = WORLDS[world]
    made = small(env)
    state, batch = collected(made)
    losses, new = [], []
    policy = state.networks.policy
    for b, one in enumerate(slow_scores(env, with_flow(policy), batch, "learned")):
        new.append(distance(state, env, replay(env, batch, b)[-1]))
        log_reward = np.log(np.exp(one["log_reward"]) + 0.3 * new[-1])
        losses.append((state.networks.log_z.sum() + sum(one["log_pf"]) - sum(one["log_pb"]) - log_reward) ** 2)
    loss, terms = made.loss(state.networks, batch)
    np.testing.assert_allclose(terms.parts["objective_loss"], np.mean(losses), rtol=1e-4)
    np.testing.assert_allclose(terms.parts["novelty_loss"], np.mean(np.square(new)), rtol=1e-4)
    np.testing.assert_allclose(terms.shown["intrinsic_reward"], 0.3 * np.mean(new), rtol=1e-4)
    np.testing.assert_allclose(loss, sum(terms.parts.values()), rtol=1e-6)
    np.testing.assert_allclose(terms.shown["log_reward"], env.log_reward(batch.last).mean(), rtol=1e-6)
    assert np.ptp(new) > 0.01


def with_flow(policy):
    def told(seen):
        out = policy(seen)
        return out if out.log_flow is not None else out._replace(log_flow=np.zeros(1))

    return told


@pytest.mark.parametrize("targets", [None, TargetOptions(rate=0.5)], ids=["plain", "targets"])
@pytest.mark.parametrize("world", WORLDS)
def test_edges_bring_their_rewards_into_the_flow(world, targets):
    env = WORLDS[world]
    made = small(env, "detailed_balance", explore={**FIELDS, "intrinsic_form": "edge"}, targets=targets)
    state, batch = collected(made)
    rng = np.random.default_rng(0)
    if targets:
        slower = jtu.tree_map(lambda x: x + rng.normal(0, 0.3, x.shape), state.targets["target"])
        state = dataclasses.replace(state, targets={**state.targets, "target": slower})
        batch = dataclasses.replace(batch, given=dataclasses.replace(batch.given, targets=state.targets))
    later = (state.targets["target"] if targets else state.networks).policy
    losses, new = [], []
    flows = slow_scores(env, later, batch, "learned")
    for b, one in enumerate(slow_scores(env, state.networks.policy, batch, "learned")):
        walk = replay(env, batch, b)
        following = [*flows[b]["log_flow"][1:], one["log_reward"]]
        for t in range(len(one["log_pf"])):
            new.append(distance(state, env, walk[t + 1]))
            flow = np.exp(following[t] + one["log_pb"][t]) + 0.3 * new[-1]
            losses.append((one["log_flow"][t] + one["log_pf"][t] - np.log(flow)) ** 2)
    parts = made.loss(state.networks, batch)[1].parts
    np.testing.assert_allclose(parts["terminal_loss"] + parts["inner_loss"], np.mean(losses), rtol=1e-4)
    np.testing.assert_allclose(parts["novelty_loss"], np.mean(np.square(new)), rtol=1e-4)


def test_where_every_state_may_be_the_last_each_is_worth_more():
    made = small(objective="modified_detailed_balance", targets=TargetOptions(rate=0.5))
    state, batch = collected(made, seed=1)
    losses = []
    for b, one in enumerate(slow_scores(GRID, with_flow(state.networks.policy), batch, "learned")):
        walk = replay(GRID, batch, b)
        worth = [
            np.exp(reward) + 0.3 * distance(state, GRID, s) for reward, s in zip(one["reward"], walk, strict=False)
        ]
        flows = np.log(worth) - one["stop"]
        for t in range(len(flows) - 1):
            losses.append((flows[t] + one["log_pf"][t] - flows[t + 1] - one["log_pb"][t]) ** 2)
    np.testing.assert_allclose(made.loss(state.networks, batch)[1].parts["objective_loss"], np.mean(losses), rtol=1e-4)


@pytest.mark.parametrize("objective", ["detailed_balance", "subtrajectory_balance"])
def test_the_flow_with_rewards_of_edges_solves_the_balance(objective):
    """F(s) = sum over s' of F(s') P_B(s | s') + r(s'), from the ends to the source, and P_F in proportion."""
    graph, rng = enumerate_states(GRID), np.random.default_rng(0)
    number = len(graph.done)
    novelty = rng.random(number)
    reward = 0.4 * np.sqrt(novelty)
    # Any backward policy will do: weights of the edges into each state.
    weight = rng.random(len(graph.source)) + 0.1
    into = np.zeros(number)
    np.add.at(into, graph.target, weight)
    back = weight / into[graph.target]
    flow = np.where(graph.done, np.exp(graph.log_reward), 0.0)
    edge = np.zeros(len(back))
    for k in reversed(range(len(back))):  # edges are in the order of levels
        edge[k] = flow[graph.target[k]] * back[k] + reward[graph.target[k]]
        flow[graph.source[k]] += edge[k]
    made = small(objective=objective)
    batch = collected(made, seed=3)[1]
    place = {(s, a): k for k, (s, a) in enumerate(zip(graph.source, graph.action, strict=True))}
    times, size = batch.actions.shape
    fields = {name: np.zeros((times, size)) for name in ("log_pf", "log_pb", "log_flow", "novelty")}
    valid = np.arange(times)[:, None] < batch.length
    log_reward = np.zeros(size)
    for b in range(size):
        here = 0
        for t in range(batch.length[b]):
            k = place[here, batch.actions[t, b]]
            fields["log_pf"][t, b] = np.log(edge[k] / flow[here])
            fields["log_pb"][t, b], fields["log_flow"][t, b] = np.log(back[k]), np.log(flow[here])
            here = graph.target[k]
            fields["novelty"][t, b] = novelty[here]
        log_reward[b] = graph.log_reward[here]
    scores = Scores(log_reward=log_reward, valid=valid, **fields)
    loss = objectives.objective(objective)
    assert loss(rewarded(scores, "edge", 0.4))[0] < 1e-20
    assert loss(rewarded(scores, "edge", 0.3))[0] > 1e-4 < loss(scores)[0]


# Scale


FORMS = [
    (name, form)
    for name, kind in objectives.OBJECTIVES.items()
    for form in ("trajectory", *(["edge"] if kind.rewards_edges else []))
    if not kind.of_data
]
QUICK = [
    ("trajectory_balance", "trajectory"),
    ("detailed_balance", "edge"),
    ("modified_detailed_balance", "trajectory"),
]


@pytest.mark.parametrize(
    ("objective", "form"),
    [one if one in QUICK else pytest.param(*one, marks=pytest.mark.slow) for one in FORMS],
)
def test_at_scale_0_the_rest_learns_as_without(objective, form):
    options: dict[str, Any] = {}
    if objectives.OBJECTIVES[objective].reads_target:
        options["targets"] = TargetOptions(rate=0.5)
    made = small(objective=objective, explore={**FIELDS, "intrinsic_form": form}, **options)
    plain = small(objective=objective, explore={}, **options)
    state, batch = collected(made)
    zero = dataclasses.replace(batch.given, intrinsic=np.float32(0.0))
    networks, batch = jtu.tree_map(jnp.asarray, (state.networks, dataclasses.replace(batch, given=zero)))

    def gradient(made, networks, batch):
        return tree.named_leaves(jax.jit(jax.grad(lambda x: made.loss(x, batch)[0]))(networks))

    without = {name: slower for name, slower in batch.given.targets.items() if name != "novelty"}
    given = dataclasses.replace(batch.given, targets=without, intrinsic=None)
    found = gradient(made, networks, batch)
    wanted = gradient(plain, dataclasses.replace(networks, novelty=None), dataclasses.replace(batch, given=given))
    assert any(np.abs(leaf).max() > 1e-3 for leaf in wanted.values())
    for name, leaf in wanted.items():
        np.testing.assert_allclose(found[name], leaf, rtol=1e-5, atol=1e-7, err_msg=name)
    own = [np.abs(leaf).max() for name, leaf in found.items() if name.startswith("novelty")]
    assert len(own) == 6 and max(own) > 1e-3, "what tells the new from the known goes on learning"


def test_the_scale_goes_to_0_and_is_a_setting_that_compiles_nothing_anew():
    made = small(explore={**FIELDS, "intrinsic_steps": 8})
    state = made.init(0)
    for step, wanted in ((0, 0.3), (2, 0.225), (8, 0.0), (50, 0.0)):
        state = dataclasses.replace(state, step=np.array(step, np.int32))
        batch = made.collect(state, numpy_draws(made.draws(), 0, step), made.inputs())[1]
        np.testing.assert_allclose(batch.given.intrinsic, wanted, rtol=1e-6)
    engine = make_engine(made, mode="torch")
    assert engine.settings["intrinsic"].tolist() == pytest.approx([0.3, 0.0, 8.0])
    engine.start(0)
    logs = engine.run(10)["intrinsic_reward"]
    assert logs[0] > logs[6] > 0 == logs[8] == logs[9]
    assert "intrinsic" not in small(explore={}).inputs().settings


def test_what_was_seen_often_is_no_longer_new():
    """The network that is foretold stands still; the other learns of what it is shown, and of nothing else."""
    made = small(explore={"intrinsic": 0.1, "intrinsic_widths": (32, 16)}, batch_size=16)
    engine = make_engine(made, mode="torch")
    engine.start(0)
    before = engine.state()
    engine.run(300)
    after = engine.state()
    for name, leaf in tree.named_leaves(before.targets["novelty"]).items():
        np.testing.assert_array_equal(leaf, tree.named_leaves(after.targets["novelty"])[name])
    cells = GridState(np.indices((4, 4)).reshape(2, -1).T.astype(np.int32), np.ones(16, bool))
    seen = np.array([(after.carry.objects.position == cell).all(1).sum() for cell in cells.position])
    ratio = []
    for cell in range(16):
        one = GridState(cells.position[cell : cell + 1], cells.done[:1])
        ratio.append(distance(after, GRID, one) / distance(before, GRID, one))
    assert np.max(np.array(ratio)[seen > 5]) < 0.3


# Engines and runs


CASES = {
    "edges and heads": {
        "objective": "detailed_balance",
        "explore": {**FIELDS, "intrinsic_steps": 4, "intrinsic_form": "edge", "thompson_heads": 3},
        "replay": ReplayOptions(size=40, batch_size=3),
    },
    "objects, by loss": {
        "env": BitStrings(3),
        "explore": {**FIELDS, "intrinsic_steps": 4},
        "replay": ReplayOptions(size=60, batch_size=3, priority="loss", updates=2),
        "local_search": LocalSearchOptions(rounds=1, steps=2, accept="metropolis"),
    },
    "where every state may be the last": {
        "objective": "modified_detailed_balance",
        "targets": TargetOptions(rate=0.1, ema=0.5),
        "policy": PolicyOptions(hidden=(8,), backward="tlm"),
    },
}


@pytest.mark.parametrize(
    "case", ["edges and heads", *(pytest.param(case, marks=pytest.mark.slow) for case in list(CASES)[1:])]
)
def test_modes_agree(case):
    report = parity.check(small(**CASES[case]), steps=6, seed=1).raise_if_different()
    assert any(row.item.startswith("networks.novelty") for row in report.rows)
    assert any("novelty_loss" in row.item for row in report.rows)


RESUMED = [
    ("torch", "torch"),
    *(pytest.param(*pair, marks=pytest.mark.slow) for pair in [("jax", "jax"), ("hybrid", "hybrid"), ("torch", "jax")]),
]


@pytest.mark.parametrize(("first", "second"), RESUMED)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, first, second):
    made = small(**CASES["edges and heads"])
    options = {"evaluate_every": 0, "log_every": 1, "progress": False, "seed": 3}
    tx.train(made, steps=5, run_dir=tmp_path / "run", mode=first, **options)
    resumed = tree.named_leaves(tx.resume(tmp_path / "run", steps=12, mode=second, progress=False).state)
    whole = tree.named_leaves(tx.train(made, steps=12, mode=first, **options).state)
    for part in ("networks.novelty", "targets.novelty", "networks.policy.network", "optimizer.first.novelty"):
        assert any(name.startswith(part) for name in resumed), part
    for name, leaf in whole.items():
        if first == second:
            np.testing.assert_array_equal(leaf, resumed[name], err_msg=name)
        else:
            np.testing.assert_allclose(leaf, resumed[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_what_cannot_be_is_said_in_a_sentence():
    with pytest.raises(TwinaxError, match=r"exploration.intrinsic is -0.1; it must be finite and not negative"):
        Exploration(intrinsic=-0.1)
    with pytest.raises(TwinaxError, match="exploration.intrinsic_steps is -5"):
        Exploration(intrinsic_steps=-5)
    with pytest.raises(UnknownName, match="form of intrinsic rewards 'edges'"):
        Exploration(intrinsic_form="edges")
    for widths in ((), (8, 0)):
        with pytest.raises(TwinaxError, match="intrinsic_widths is"):
            Exploration(intrinsic_widths=widths)
    with pytest.raises(TwinaxError, match="maximum_likelihood imitates objects and reads none; leave it out"):
        small(objective="mle", replay=ReplayOptions(size=40, batch_size=2))
    with pytest.raises(TwinaxError, match="trajectory_balance learns no flow of states that it could enter"):
        small(explore={**FIELDS, "intrinsic_form": "edge"})
    with pytest.raises(TwinaxError, match="tells what is new by perceptrons, but what Pairs shows is no flat row"):
        small(Pairs(2, 4))


def test_without_it_nothing_of_it_is_there():
    state = small(explore={}).init(0)
    assert state.networks.novelty is None and state.targets is None
    with_it = small().init(0)
    for name, leaf in tree.named_leaves(state.networks).items():
        np.testing.assert_array_equal(leaf, tree.named_leaves(with_it.networks)[name])
