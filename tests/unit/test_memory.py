"""What a problem needs of memory is found from shapes, and refused in a sentence before anything is made."""

from __future__ import annotations

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinax as tx
from twinax import iqn, ppo, tree
from twinax.engines import _memory, make_engine
from twinax.envs import CartPole, Hypergrid, PointMaze, TreasureHunt
from twinax.errors import TwinaxError
from twinax.gflownet import MetricOptions, PolicyOptions
from twinax.networks import MLP, Linear
from twinax.noise import Draw
from twinax.offline import agents, collect_maze, label_maze
from twinax.offline import problem as offline_problem
from twinax.optimizer import Optimizer
from twinax.problem import Problem, State, Terms
from twinax.shapes import ShapeGenerator, blank, shapes_of
from twinax.train_options import TrainOptions

OPTIONS = TrainOptions()


def gflownet(hidden=(16, 16), batch_size=4, **metrics):
    options = {"policy": PolicyOptions(hidden=hidden), "metrics": MetricOptions(**{"fifo": 32, **metrics})}
    return tx.gflownet.problem(Hypergrid(dim=2, side=4), "subtrajectory_balance", batch_size=batch_size, **options)


def treasure_hunt(**replay):
    world = TreasureHunt(num_agents=2, turns=8, height=5, width=5)
    learners = iqn.Learners(count=2, width=8, batch_size=4, replay=iqn.ReplayOptions(**{"buffer_size": 32, **replay}))
    return iqn.problem(world, {"iqn": learners})


def offline(agent=None):
    maze = PointMaze("u")
    data = label_maze(collect_maze(maze, trajectories=4, steps=20), maze, goal=(1.5, 1.5))
    agent = agent or agents.IQL(hidden=(8, 8))
    return offline_problem(agent, data, data, pretrain_steps=2, batch_size=4)


def cart_pole(**settings):
    return ppo.problem(CartPole(), **{"num_envs": 8, "num_steps": 4, "num_minibatches": 2, **settings})


def shapes_in(arrays):
    return {
        name: (tuple(np.shape(x)), np.asarray(x).dtype if np.ndim(x) == 0 else x.dtype) for name, x in arrays.items()
    }


@pytest.mark.parametrize("make", [gflownet, treasure_hunt, offline])
def test_a_state_without_memory_has_the_shapes_of_one_with(make):
    problem = make()
    assert shapes_in(_memory.find_shapes(problem)) == shapes_in(tree.named_leaves(problem.init(3)))


def test_ppo_has_the_shapes_of_its_networks_and_a_stand_in_for_its_worlds():
    problem = cart_pole(pool=8)
    found, real = shapes_in(_memory.find_shapes(problem)), shapes_in(tree.named_leaves(problem.init(3)))
    worlds = ("carry.playing", "carry.pool")
    assert {name: x for name, x in real.items() if not name.startswith(worlds)} == {
        name: x for name, x in found.items() if not name.startswith(worlds)
    }
    assert found["carry.playing"][0] == (8, 4)


HUGE = {
    "networks of a GFlowNet": (lambda: gflownet(hidden=(10**8,)), r"is the networks \(policy.hidden, env\)"),
    "a store": (lambda: gflownet(fifo=10**11), r"is the store of samples \(metrics.fifo, env\)"),
    "a store that no computer has": (lambda: gflownet(fifo=10**15), r"is the store of samples \(metrics.fifo, env\)"),
    "a batch": (lambda: gflownet(batch_size=10**10, fifo=10**10), r"\(trainer.batch_size"),
    "an evaluation": (lambda: gflownet(samples=10**12), r"is an evaluation \(metrics.samples, metrics.test_"),
    "networks of PPO": (lambda: cart_pole(hidden=(10**6, 10**6)), r"is the networks \(ppo.hidden\)"),
    "a rollout": (lambda: cart_pole(num_envs=10**10), r"is a rollout \(ppo.num_envs, ppo.num_steps\)"),
    "a replay": (lambda: treasure_hunt(buffer_size=2 * 10**9), r"replay.buffer_size"),
    "networks of agents": (lambda: offline(agents.IQL(hidden=(10**6, 10**6))), r"is the networks \(agent.hidden\)"),
}


@pytest.mark.parametrize("mode", ["jax", "torch"])
@pytest.mark.parametrize("what", HUGE)
def test_what_does_not_fit_is_refused_at_once(what, mode):
    make, words = HUGE[what]
    problem = make()
    began = time.perf_counter()
    with pytest.raises(TwinaxError, match=r"needs about .* GB of memory and .* GB are free; most of it") as caught:
        make_engine(problem, mode=mode)
    assert time.perf_counter() - began < 20  # an offline agent's losses are traced on the way; nothing large is made
    with pytest.raises(TwinaxError, match=words):
        raise caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changed", [{"seeds": 10**8}, {"chunk": 10**13}])
def test_options_count_as_well(changed):
    with pytest.raises(TwinaxError, match="GB of memory"):
        make_engine(gflownet(), **changed)


def test_a_step_is_traced_where_it_may_be_too_large(monkeypatch):
    problem = gflownet(hidden=(256, 256), batch_size=256)
    shapes = _memory.find_shapes(problem)
    known = sum(_memory.known_bytes(problem, OPTIONS, shapes).values())
    traced = _memory.traced_bytes(problem, OPTIONS)
    # Six steps of 256 trajectories: a row keeps what goes in and out of two layers of 256, for the way back as well.
    assert 256 * 6 * 2 * 256 * 4 < traced < 10 * 256 * 6 * 2 * 256 * 4
    monkeypatch.setattr(_memory, "traced_bytes", lambda *given: traced)
    _memory.check_memory(problem, OPTIONS, known + 1.01 * traced)
    words = r"is a batch in the networks \(trainer.batch_size, replay.batch_size, policy.hidden, env\)"
    with pytest.raises(TwinaxError, match=words):
        _memory.check_memory(problem, OPTIONS, known + 0.9 * traced)


def test_the_most_that_is_alive_at_once():
    def program(x):
        y = jnp.sin(x)  # 4 kB
        z = jnp.cos(y) + 1  # y is gone when the sum is made
        return jax.lax.fori_loop(0, 3, lambda _, w: w * 2, z).sum()

    jaxpr = jax.make_jaxpr(program)(jax.ShapeDtypeStruct((1000,), np.float32)).jaxpr
    assert 8_000 <= _memory.peak_bytes(jaxpr) <= 12_100


class Ring(Problem):
    """A stranger's problem: a network, and a ring that nobody of ours knows."""

    optimizer = Optimizer()

    def __init__(self, slots: int, width: int = 4, needs_a_number: bool = False):
        self.slots, self.width, self.needs_a_number = slots, width, needs_a_number

    def init(self, seed):
        networks = {"net": Linear.init(np.random.default_rng(seed), 3, self.width)}
        root = int(seed) if self.needs_a_number else 0
        carry = {"ring": np.zeros((self.slots, 3), np.float32), "root": np.array(root)}
        moments = self.optimizer.init(networks)
        return State(networks, None, carry, moments, np.zeros((), np.int32), np.array(seed, np.uint32))

    def draws(self):
        return {"x": Draw((2, 3))}

    def collect(self, state, draws, inputs):
        return state.carry, draws["x"]

    def loss(self, networks, batch, size=None):
        return tx.ops.mean(tx.ops.square(networks["net"](batch))), Terms()


def test_a_strangers_problem_is_told_which_of_its_arrays_is_large(monkeypatch):
    with pytest.raises(
        TwinaxError, match="is what is carried from step to step; its largest array is 1000000000000 x 3"
    ):
        make_engine(Ring(10**12))
    with pytest.raises(TwinaxError, match=r"largest array, networks.net.weight, is 1000000000000 x 3"):
        make_engine(Ring(4, 10**12))
    assert tx.train(Ring(4), steps=2, progress=False).state.step == 2
    monkeypatch.setattr(_memory, "available_memory", lambda: 1e9)
    with pytest.raises(TwinaxError, match=r"is what is carried .*; its largest array, carry.ring, is 100000000 x 3"):
        make_engine(Ring(10**8))


def test_an_init_that_needs_numbers_is_not_in_the_way():
    problem = Ring(4, needs_a_number=True)
    assert set(_memory.find_shapes(problem)) == {"networks"}
    assert _memory.find_shapes(problem)["networks"].shape == (16,)
    assert tx.train(problem, steps=2, progress=False).state.step == 2


def test_memory_is_refused_with_both_numbers():
    words = {"a": "one", "b": "the other"}
    _memory.refuse_if_larger({"a": 1e9}, 2e9, words)
    with pytest.raises(TwinaxError, match=r"4\.0 GB of memory and 2\.0 GB are free; most of it, 3\.0 GB, is the other"):
        _memory.refuse_if_larger({"a": 1e9, "b": 3e9}, 2e9, words)


def test_what_is_computed_from_blank_arrays_is_blank():
    rng = ShapeGenerator()
    x = rng.normal(size=(10**6, 10**6))
    for y in (x * 2 + 1, np.stack([x, x]), np.zeros_like(x), x.astype(np.float32), np.copy(x), np.where(x > 0, x, 0)):
        assert y.shape[-2:] == (10**6, 10**6) and y.strides == (0,) * y.ndim
    q, r = np.linalg.qr(rng.normal(size=(10**6, 8)))
    assert q.shape == (10**6, 8) and r.shape == (8, 8) and np.diag(r).shape == (8,)
    assert (x @ rng.random((10**6, 3))).shape == (10**6, 3) and np.concatenate([x, x]).shape == (2 * 10**6, 10**6)
    assert isinstance(rng.integers(5), np.integer) and float(rng.random()) < 1
    assert blank((3,), np.int32).sum() == 0


def test_networks_of_ones_own_are_counted():
    def wide(rng, spec):
        return MLP.init(rng, spec.observation.size if not hasattr(spec.observation, "indices") else 8, (10**7,), 10**6)

    problem = gflownet()
    problem = dataclasses.replace(problem, network=lambda rng, spec: eqx.nn.Lambda(wide(rng, spec)))
    with pytest.raises(TwinaxError, match="is the networks"):
        make_engine(problem)


def test_who_draws_again_until_it_fits_comes_to_an_end():
    def cut(rng):
        z = rng.normal(size=(10**6, 10**6))
        while (far := np.abs(z) > 2).any():
            z[far] = rng.normal(size=int(far.sum()))
        return z

    assert shapes_of(cut).shape == (10**6, 10**6)
