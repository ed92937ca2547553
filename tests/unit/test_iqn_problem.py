"""Agents in a world as a problem: what is acted on and stored, when it learns, one compilation, wrong options."""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np
import pytest

from twinax import conf, networks, parity, tree
from twinax.engines import make_engine
from twinax.envs import TreasureHunt
from twinax.envs.world import decode
from twinax.errors import TwinaxError
from twinax.iqn import Learners, Players, ReplayOptions, problem
from twinax.optimizer import Optimizer

# An agent of this radius sees the whole map from everywhere, so equal views are equal maps.
WORLD = TreasureHunt(height=5, width=6, num_agents=5, turns=8, radius=4, spawn_prob=0.1, turn_rule="simultaneous")
CHUNK = 4


def mixed(**options):
    """Two groups that learn in their own ways, between players that do not; every number differs."""
    groups = {
        "iqn": Learners(
            count=2,
            width=8,
            num_quantiles=3,
            num_act_quantiles=4,
            num_cosines=4,
            batch_size=12,
            epsilon=0.3,
            epsilon_decay=0.1,
            learning_rate=1e-2,
            target_network_frequency=5,
            replay=ReplayOptions(buffer_size=30, frame_stack=2, alpha=0.5),
        ),
        "seeker": Players(rule="seeker"),
        "qr": Learners(
            count=1,
            variant="qr",
            width=6,
            num_quantiles=3,
            dueling=False,
            noisy=False,
            batch_size=20,
            epsilon=0.1,
            learning_rate=1e-3,
            tau=0.1,
            target_network_frequency=0,
            replay=ReplayOptions(buffer_size=24, frame_stack=3, n_step=2, clear_gap=False),
        ),
        "random": Players(),
    }
    options = {"num_envs": 2, "evaluation_num_envs": 2, **options}
    return problem(options.pop("world", WORLD), groups, **options)


def small(world=None, count=2, **options):
    """One group; PyTorch or NumPy only."""
    learner: dict[str, Any] = {
        "width": 6,
        "num_quantiles": 2,
        "num_act_quantiles": 2,
        "num_cosines": 3,
        "batch_size": 8,
    }
    replay: dict[str, Any] = {"buffer_size": 30, "frame_stack": 2, "n_step": 1}
    for name in list(options):
        if name in ReplayOptions.__dataclass_fields__:
            replay[name] = options.pop(name)
        elif name in Learners.__dataclass_fields__:
            learner[name] = options.pop(name)
    world = world or TreasureHunt(height=5, width=5, num_agents=count, turns=8, radius=1, spawn_prob=0.1)
    return problem(world, {"iqn": Learners(count=count, replay=ReplayOptions(**replay), **learner)}, **options)


def assert_same(a, b, **tolerance):
    """Equal trees: bit for bit, or within a tolerance."""
    ours, theirs = tree.named_leaves(a), tree.named_leaves(b)
    assert list(ours) == list(theirs)
    for name, x in ours.items():
        assert np.asarray(x).dtype == np.asarray(theirs[name]).dtype, name
        if tolerance:
            np.testing.assert_allclose(x, theirs[name], err_msg=name, **tolerance)
        else:
            np.testing.assert_array_equal(x, theirs[name], err_msg=name)


# One program for all agents


def pair(**options):
    """Two prioritised learners and a player, in a small program."""
    groups = {**mixed().groups, "random": Players()}
    groups = {name: groups[name] for name in ("iqn", "random")}
    return problem(dataclasses.replace(WORLD, num_agents=3), groups, num_envs=2, **options)


@functools.cache
def compiled(parallel):
    """One engine for all tests, so that it is compiled once; in 64 bits."""
    return make_engine(pair(parallel=parallel), mode="jax", dtype="float64", chunk=CHUNK)


@pytest.fixture
def compilations(caplog):
    """Names of the programs that JAX compiled since the last call."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):

        def since():
            found = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling ")]
            caplog.clear()
            return found

        yield since


def test_all_agents_are_compiled_once(compilations, double_precision):
    engine = compiled(True)
    engine.start(0)
    engine.run(CHUNK)
    assert any("_chunk" in line for line in compilations()), "the first run must be seen to compile"
    first = engine.compile_seconds
    plain = engine.run(2 * CHUNK + 1)["epsilon_iqn"]
    engine.settings |= {"epsilon/iqn": np.array([1.0, 0.5, 0.25])}
    changed = engine.run(1)
    engine.settings |= engine.problem.inputs().settings
    engine.load(engine.state())
    engine.run(3)
    assert compilations() == [] and engine.compile_seconds == first > 0
    np.testing.assert_allclose(plain, [0.3 * 0.9**k for k in range(CHUNK, 3 * CHUNK + 1)], rtol=1e-6)
    assert changed["epsilon_iqn"] == [0.25]


def test_parallel_agents_are_sequential_ones(double_precision):
    """Over whole epochs under the simultaneous rule: actions, rewards and views bit for bit, training by rounding."""
    ends = {}
    for parallel in (True, False):
        engine = compiled(parallel)
        engine.start(3)
        engine.run(1)
        one = engine.state()
        logs = engine.run(2 * CHUNK)
        ends[parallel] = (one.carry, engine.state(), logs)
    (ours, end, logs), (theirs, other_end, other_logs) = ends[True], ends[False]
    for kind in ("views", "actions", "rewards", "done", "real"):
        np.testing.assert_array_equal(getattr(ours["iqn"], kind), getattr(theirs["iqn"], kind))
        np.testing.assert_array_equal(getattr(end.carry["iqn"], kind), getattr(other_end.carry["iqn"], kind))
    assert_same(end, other_end, rtol=1e-12, atol=1e-12)
    assert_same(logs, other_logs, rtol=1e-12, atol=1e-12)
    assert (logs["trained"] == 1).all() and np.ptp(logs["loss_iqn"]) > 0


def test_a_loaded_state_goes_on_bit_for_bit(double_precision):
    """Replay, priorities and targets are part of the state."""
    engine = compiled(True)
    engine.start(5)
    engine.run(6)
    middle = engine.state()
    logs = engine.run(5)
    end = engine.state()
    engine.start(8)
    engine.run(2)
    engine.load(middle)
    assert_same(engine.state(), middle)
    assert_same(engine.run(5), logs)
    assert_same(engine.state(), end)
    fresh = engine.problem.init(5)
    assert jtu.tree_structure(end) == jtu.tree_structure(fresh)
    # The same state goes on in PyTorch.
    torch = make_engine(pair(), mode="torch", dtype="float64", chunk=CHUNK)
    torch.load(middle)
    other = torch.run(5)
    assert set(other) == set(logs)
    for name, values in logs.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-9, atol=1e-9, err_msg=name)
    assert_same(torch.state(), end, rtol=1e-9, atol=1e-9)
    kept = torch.state()
    copy = jtu.tree_map(np.array, kept)
    torch.run(1)
    assert_same(kept, copy)  # the ring is written in place, but not in what was handed out
    torch.load(kept)
    torch.run(1)
    assert_same(kept, copy)


# What is acted on, and what is stored


def wide(values):
    return jtu.tree_map(lambda x: np.array(x, np.float64) if np.asarray(x).dtype.kind == "f" else np.array(x), values)


def played(made, steps, seed=0, state=None):
    """Epochs in NumPy, without training: the state and what happened in the last of them."""
    state = wide(made.init(seed)) if state is None else state
    epoch: Any = None
    draws: Any = None
    for _ in range(steps):
        rng = np.random.default_rng((seed, int(state.step)))
        draws = {name: rng.random(draw.shape) for name, draw in made.draws().items()}
        carry, epoch = made.remember(state, draws, wide(made.inputs()))
        state = dataclasses.replace(state, carry=carry, step=state.step + 1)
    return state, epoch, draws


def greedy(group, network, windows, codebook, taus):
    """Actions for rows of windows, one row at a time."""
    chosen = []
    for k, window in enumerate(windows):
        x = decode(window[None], codebook)
        values = network.mean(network(x, None if taus is None else taus[k : k + 1]))
        chosen.append(int(np.argmax(values[0])))
    return chosen


@pytest.mark.parametrize("rule", ["sequential", "simultaneous"])
def test_agents_act_on_the_windows_that_are_stored(rule):
    """Actions worked out again from the ring's own windows, after it went round: greedy, or the drawn random one."""
    made = mixed(world=dataclasses.replace(WORLD, turn_rule=rule))
    state, epoch, draws = played(made, 7)
    epsilons = made.epsilons(state.step - 1, made.inputs().settings)
    codebook = made.world.codebook.astype(np.float64)
    explored, first = [], {"iqn": 0, "qr": 3}
    for name, group in made.learners.items():
        ring, options = state.carry[name], group.replay
        slots = (int(ring.head) - made.world.turns + np.arange(made.world.turns)) % options.buffer_size
        for k in range(group.count):
            network = jtu.tree_map(lambda x, k=k: x[k], state.networks[name])
            for w in range(2):
                np.testing.assert_array_equal(ring.views[k, w, slots], epoch.views[:, first[name] + k, w])
                np.testing.assert_array_equal(ring.rewards[k, w, slots], epoch.rewards[:, first[name] + k, w])
                own = {key: draws[f"turn/{name}/{key}"][:, k, w] for key in ("explore", "random")}
                taus = draws["turn/iqn/taus"][:, k, w] if name == "iqn" else None
                window = ring.views[k, w][
                    (slots[:, None] + np.arange(1 - options.frame_stack, 1)) % options.buffer_size
                ]
                best = greedy(group, network, window, codebook, taus)
                anywhere = np.floor(4 * own["random"]).astype(int)
                explores = own["explore"] < epsilons[name]
                wanted = np.where(explores, anywhere, best)
                np.testing.assert_array_equal(ring.actions[k, w, slots], wanted)
                explored.append(explores.mean())
    assert 0 < np.mean(explored) < 0.5


def test_seats_are_the_order_of_turns():
    made = mixed()
    assert made.seats == [("iqn", 0), ("iqn", 1), ("seeker", 0), ("qr", 0), ("random", 0)]
    _, epoch, draws = played(made, 1)
    np.testing.assert_array_equal(epoch.actions[:, 4], np.floor(4 * draws["turn/random/random"][:, 0]))
    # The seeker goes for gems; in a world this small it finds more of them than chance does.
    scores = np.mean([played(made, 1, seed)[1].score for seed in range(12)], 0)
    assert scores[2] > scores[4] + 10


def test_epsilon_falls_to_its_floor():
    made = small(epsilon=0.8, epsilon_decay=0.25, epsilon_min=0.2)
    found = [float(made.epsilons(np.int32(step), made.inputs().settings)["iqn"]) for step in range(8)]
    np.testing.assert_allclose(found, [max(0.8 * 0.75**step, 0.2) for step in range(8)], rtol=1e-5)
    made = small(epsilon=0.5, epsilon_decay=1.0)
    assert [float(made.epsilons(np.int32(step), made.inputs().settings)["iqn"]) for step in range(3)] == pytest.approx(
        [0.5, 0, 0]
    )
    made = small(epsilon=0.0)
    assert float(made.epsilons(np.int32(9), made.inputs().settings)["iqn"]) == 0


# Learning


def engine_of(made, seed=0):
    engine = make_engine(made, mode="torch", dtype="float64", chunk=5)
    engine.start(seed)
    return engine


def test_nothing_is_learned_before_there_is_a_batch():
    made = small(batch_size=20)
    engine = engine_of(made)
    before = engine.state()
    logs = engine.run(2)
    assert logs["trained"].tolist() == [0, 0] and logs["loss"].tolist() == [0, 0]
    assert_same(engine.state().networks, before.networks)
    assert_same(engine.state().targets, before.targets)
    assert int(engine.state().optimizer.count) == 0
    logs = engine.run(2)
    assert logs["trained"].tolist() == [1, 1] and (logs["loss"] > 0).all() and (logs["grad_norm"] > 0).all()
    assert int(engine.state().optimizer.count) == 2
    moved = tree.named_leaves(jtu.tree_map(lambda a, b: np.abs(a - b).max(), engine.state().networks, before.networks))
    assert all(value > 0 for value in moved.values())
    rewards = engine.state().carry["iqn"].rewards
    assert logs["score"][-1] == pytest.approx(newest(engine, rewards).sum())


def newest(engine, values):
    """Values of the last epoch in the ring of the group iqn."""
    ring, turns = engine.state().carry["iqn"], engine.problem.world.turns
    return values[:, :, (int(ring.head) - turns + np.arange(turns)) % values.shape[2]]


def test_warm_up_is_enough():
    for options in (
        {"batch_size": 20},
        {"batch_size": 16, "gradient_steps": 2},
        {"store_done": False, "batch_size": 16},
    ):
        engine = engine_of(small(**options))
        logs = engine.run(engine.problem.prove.warm_up + 1)
        assert logs["trained"][-1] == 1 and logs["trained"][0] == 0


def test_targets_follow_and_are_copied():
    rate = 0.25
    engine = engine_of(small(tau=rate, target_network_frequency=4, learning_rate=1e-2))
    engine.run(1)
    for step in range(1, 9):
        before = engine.state()
        engine.run(1)
        after = engine.state()
        start = before.networks if step % 4 == 0 else before.targets
        wanted = jtu.tree_map(lambda t, o: (1 - rate) * t + rate * o, start, after.networks)
        assert_same(after.targets, wanted, rtol=1e-12, atol=1e-14)
    assert np.abs(after.targets["iqn"].feature.weight - after.networks["iqn"].feature.weight).max() > 1e-4
    still = engine_of(small(tau=0.0, target_network_frequency=0))
    first = still.state()
    still.run(3)
    assert_same(still.state().targets, first.targets)


def test_groups_have_their_own_step_sizes():
    groups = {
        "fast": Learners(count=1, width=6, batch_size=8, learning_rate=1e-2, replay=ReplayOptions(buffer_size=30)),
        "still": Learners(count=1, width=6, batch_size=8, learning_rate=0.0, replay=ReplayOptions(buffer_size=30)),
    }
    world = TreasureHunt(height=5, width=5, num_agents=2, turns=8, radius=1)
    engine = engine_of(problem(world, groups, optimizer=Optimizer(beta1=0.8)))
    before = engine.state().networks
    engine.run(3)
    after = engine.state().networks
    assert_same(after["still"], before["still"])
    moved = np.abs(after["fast"].feature.weight - before["fast"].feature.weight).max()
    assert 1e-3 < moved < 0.05


def test_agents_learn_apart():
    """What one agent learns does not depend on the others' networks, nor on how large their gradients are."""
    made = small(count=3, epsilon=1.0, epsilon_decay=0.0, target_network_frequency=0)
    engine = engine_of(made)
    engine.run(1)
    state = engine.state()

    def louder(x):
        x = x.copy()
        x[1:] *= 3.0
        return x

    changed = dataclasses.replace(state, networks=jtu.tree_map(louder, state.networks))
    ends = []
    for start in (state, changed):
        engine.load(start)
        engine.run(3)  # everyone acts at random, so the world goes on alike
        ends.append(engine.state())
    own = [jtu.tree_map(lambda x: x[0], (end.networks, end.targets)) for end in ends]
    assert_same(own[0], own[1], rtol=1e-12, atol=1e-14)
    others = [end.networks["iqn"].feature.bias[1:] for end in ends]
    assert np.abs(others[0] - others[1]).max() > 1e-3


def test_several_train_steps_are_several_updates():
    engine = engine_of(small(gradient_steps=3, alpha=0.7))
    logs = engine.run(3)
    assert int(engine.state().optimizer.count) == 9 and logs["loss"].shape == (3,)
    priority = engine.state().carry["iqn"].priority
    assert len(np.unique(priority.round(6))) > 10, "priorities follow the errors"


@pytest.mark.parametrize("variant", ["iqn", "qr", "c51"])
def test_a_world_whose_values_are_known(variant):
    """One cell, two turns, every move into a wall: -1 at the second turn, -1 - gamma at the first.

    Only the number of blank frames tells the turns apart; a bootstrap past the end would give -2.
    """
    world = TreasureHunt(height=3, width=3, num_agents=1, turns=2, radius=1, spawn_prob=0.0)
    learner = {"variant": variant, "width": 8, "num_atoms": 5, "v_min": -2.0, "v_max": 0.0, "noisy": False}
    made = small(world, 1, **learner, gamma=0.5, batch_size=16, num_envs=8, learning_rate=1e-2, tau=0.2)
    engine = engine_of(made)
    engine.run(200)
    state = engine.state()
    network = jtu.tree_map(lambda x: x[0], state.networks["iqn"])
    frame = newest(engine, state.carry["iqn"].views)[0, 0, :1]
    for history, value in ((np.zeros_like(frame), -1.5), (frame, -1.0)):
        x = decode(np.concatenate([history, frame])[None], world.codebook.astype(np.float64))
        output = network(x, np.array([[0.1, 0.3, 0.5, 0.7, 0.9]]))
        np.testing.assert_allclose(network.mean(output), value, atol=0.1)


# Evaluation


def test_evaluation_changes_nothing_and_tells_the_ways_of_acting_apart():
    engine = engine_of(small(evaluation_num_envs=8, film=False))
    engine.run(2)
    before = engine.state()
    metrics = engine.evaluate()
    assert_same(engine.state(), before)
    assert set(metrics) == {"score_greedy", "score_epsilon", "score_random", "score_agent_0", "score_agent_1"}
    assert metrics["score_agent_0"] + metrics["score_agent_1"] == pytest.approx(metrics["score_greedy"])
    assert len({metrics[f"score_{way}"] for way in ("greedy", "epsilon", "random")}) > 1
    assert engine.evaluate() == metrics


# Wrong options


def wrong(learner=None, replay=None, groups=None, world=None, **options):
    world = TreasureHunt(**{"height": 5, "width": 5, "num_agents": 2, "turns": 8, "radius": 1, **(world or {})})
    ring = ReplayOptions(**{"buffer_size": 30, "frame_stack": 2, **(replay or {})})
    learners = Learners(**{"count": 2, "width": 4, "batch_size": 8, "replay": ring, **(learner or {})})
    return problem(world, {"iqn": learners} if groups is None else groups, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"world": {"num_agents": 0}}, "num_agents is 0"),
        ({"world": {"num_agents": 10}}, "10 agents do not fit on 9 free cells"),
        ({"world": {"radius": 5}}, "the radius of vision is 5, but the world is 5 x 5"),
        ({"world": {"spawn_prob": 1.01}}, "spawn_prob is 1.01; it must be between 0 and 1"),
        ({"world": {"num_agents": 3}}, "the groups have 2 agents, but the world has 3; give both one number"),
        ({"groups": {}}, "the groups have 0 agents, but the world has 2"),
        ({"groups": {"random": Players(2)}}, "no group of agents learns"),
        ({"replay": {"buffer_size": 8}}, "buffer_size is 8, but an epoch fills 9 slots; make it larger"),
        ({"learner": {"batch_size": 28}}, "a batch of 28 is larger than the"),
        ({"learner": {"batch_size": 0}}, "batch_size is 0"),
        ({"learner": {"count": 0}}, "count is 0"),
        ({"learner": {"width": 0}}, "width is 0"),
        ({"learner": {"num_quantiles": 0}}, "num_quantiles is 0"),
        ({"learner": {"num_act_quantiles": 0}}, "num_act_quantiles is 0"),
        ({"learner": {"num_cosines": 0}}, "num_cosines is 0"),
        ({"learner": {"variant": "dqn"}}, "unknown variant 'dqn'; known: c51, iqn, qr"),
        ({"learner": {"reduction": "max"}}, "unknown reduction 'max'; known: mean, sum"),
        ({"learner": {"epsilon": 1.5}}, "epsilon is 1.5; it must be between 0 and 1"),
        ({"learner": {"epsilon": float("nan")}}, "epsilon is nan"),
        ({"learner": {"epsilon_decay": -0.1}}, "epsilon_decay is -0.1"),
        ({"learner": {"epsilon_min": 2.0}}, "epsilon_min is 2.0"),
        ({"learner": {"tau": 1.2}}, "tau is 1.2"),
        ({"learner": {"target_network_frequency": -1}}, "target_network_frequency is -1"),
        ({"learner": {"kappa": 0.0}}, "kappa is 0.0; it must be above 0"),
        ({"learner": {"learning_rate": -1.0}}, "the step size 'iqn' is -1.0"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"gradient_steps": 0}, "gradient_steps is 0"),
        ({"evaluation_num_envs": 0}, "evaluation_num_envs is 0"),
        ({"evaluation_epsilon": -0.1}, "evaluation_epsilon is -0.1; it must be between 0 and 1"),
        ({"learner": {"variant": "c51", "v_min": 3.0, "v_max": 3.0}}, "a support has 51 atoms from 3.0 to 3.0"),
        ({"learner": {"variant": "c51", "num_atoms": 1}}, "a support has 1 atoms"),
        ({"learner": {"width": 8.5}}, "width is 8.5; it must be a whole number"),
        ({"learner": {"batch_size": "8"}}, "batch_size is '8'; it must be a whole number"),
        ({"learner": {"epsilon": None}}, "epsilon is None; it must be a number"),
        ({"learner": {"learning_rate": "fast"}}, "learning_rate is 'fast'; it must be a number"),
        ({"learner": {"kappa": 1e39}}, "kappa is 1e+39; it must be finite, also in single precision"),
        (
            {"learner": {"replay": {"buffer_size": 30}}},
            "replay is {'buffer_size': 30}; it must be a twinax ReplayOptions",
        ),
        ({"world": {"height": 5.5}}, "height is 5.5; it must be a whole number"),
        ({"world": {"turns": None}}, "turns is None; it must be a whole number"),
        ({"world": {"gem_value": 1e39}}, "gem_value is 1e+39; it must be finite, also in single precision"),
        ({"replay": {"n_step": 10**7}}, "n_step is 10000000, but buffer_size is 30; make n_step at most the 8"),
        (
            {"learner": {"target_network_frequency": 10**11}},
            "target_network_frequency is 100000000000; it must be at most 2147483647",
        ),
        ({"num_envs": 1.5}, "num_envs is 1.5; it must be a whole number"),
        ({"groups": [Learners(count=2)]}, "iqn.problem: groups is [Learners("),
        ({"groups": {"iqn": "learners"}}, "iqn.problem: groups is {'iqn': 'learners'}; it must be a dictionary"),
        ({"optimizer": Optimizer(learning_rate=0.5)}, "the optimizer has the step size 0.5 and rates {}, but each"),
        ({"optimizer": Optimizer(rates={"iqn": 0.1})}, "set Learners(learning_rate=...)"),
        ({"groups": {"a.b": Learners(count=2)}}, "a group of agents is named 'a.b'; use letters, digits"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(TwinaxError) as caught:
        wrong(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("world", ["treasurehunt", None, object()])
def test_agents_play_in_worlds_only(world):
    with pytest.raises(TwinaxError, match=r"iqn.problem: world is .*; it must be a twinax World"):
        problem(world)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["players.random=3", "players.seeker=2"], "players.random=3 and players.seeker=2 leave none of the world's 5"),
        (["use_jax=1"], "use_jax is '1'; give true or false, or trainer.mode itself"),
    ],
)
def test_wrong_words_of_the_command_line(words, sentence):
    with pytest.raises(TwinaxError, match=re.escape(sentence)):
        conf.build_problem(conf.compose(["experiment=treasurehunt", *words]))


def test_names_of_the_original_are_understood():
    words = ["use_jax=False", "model.observation_spec=onehot", "model.n_frames=2"]
    config = conf.compose(["experiment=treasurehunt", *words])
    assert (config.trainer.mode, config.world.observation, config.replay.frame_stack) == ("torch", "one_hot", 2)
    config = conf.compose(["experiment=treasurehunt", "model.use_jax=True", "model.observation_spec=rgb"])
    assert (config.trainer.mode, config.world.observation) == ("jax", "rgb")


RINGS = [
    {},
    {"frame_stack": 1},
    {"frame_stack": 4},
    {"buffer_size": 27},
    {"buffer_size": 11, "frame_stack": 4},
    {"buffer_size": 17, "n_step": 3},
]


@pytest.mark.parametrize(
    "habits",
    [
        {},
        {"store_done": False},
        {"store_done": False, "returns": False, "n_step": 2},
        {"store_done": False, "returns": False, "clear_gap": False, "ring": False},
        {"n_step": 2, "ring": False},
    ],
)
@pytest.mark.parametrize("ring", RINGS)
def test_steps_that_can_be_drawn_are_counted(ring, habits):
    options = {"buffer_size": 30, "frame_stack": 2, "n_step": 1, **ring, **habits}
    for epochs in range(1, 9):
        made = small(batch_size=1, **options)
        replay, rules = played(made, epochs)[0].carry["iqn"], made.learners["iqn"].replay
        assert set(replay.eligible(rules).sum((1, 2))) == {rules.available(made.world.turns, epochs)}
    with pytest.raises(TwinaxError, match="a batch of .* is larger than the"):
        small(batch_size=rules.available(made.world.turns, 8) + 1, **options)


@pytest.mark.parametrize(("batch_size", "wanted"), [(1, 0), (8, 0), (9, 1), (16, 1), (17, 2)])
def test_learning_starts_when_a_batch_can_be_drawn(batch_size, wanted):
    made = small(batch_size=batch_size)
    engine = make_engine(made, mode="torch")
    engine.start(0)
    assert made.prove.warm_up == wanted
    np.testing.assert_array_equal(engine.run(4)["trained"], np.arange(4) >= wanted)


def test_learning_starts_with_the_original():
    """Its memory counts an epoch of 50 turns as 51 slots, and needs 256 of the 6 fewer windows: after six epochs."""
    made = conf.build_problem(conf.compose(["experiment=treasurehunt", "preset=sorrel"]))
    assert made.prove.warm_up == 5
    assert [made.learners["iqn"].replay.available(50, epochs) for epochs in (5, 6, 100)] == [249, 300, 1018]


def residual(rng, spec):
    return networks.ResidualMLP.init(rng, spec.observation.shape[-1], 4, 1, spec.outputs)


@pytest.mark.parametrize("variant", ["iqn", "qr", "c51"])
def test_features_of_ones_own(variant):
    replay = ReplayOptions(buffer_size=30, frame_stack=2)
    group = Learners(2, variant, 6, 3, 2, 4, batch_size=4, network=residual, replay=replay)
    world = TreasureHunt(height=5, width=5, num_agents=2, turns=8, radius=1, spawn_prob=0.2)
    subject = problem(world, {"own": group}, gradient_steps=2, film=False)
    assert isinstance(subject.init(0).networks["own"].feature, networks.ResidualMLP)
    parity.check(subject, modes=("torch", "hybrid"), steps=2).raise_if_different()
    narrow = dataclasses.replace(group, network=lambda rng, spec: networks.Linear.init(rng, spec.observation.size, 5))
    with pytest.raises(TwinaxError, match="as features it needs 6 columns: 6 features"):
        narrow.init(np.random.default_rng(0), world)
