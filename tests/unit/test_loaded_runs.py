"""Runs as objects: every family, however it was started, does what its own evaluation does."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import twinax as tx
from twinax import tree
from twinax.engines import make_engine
from twinax.errors import TwinaxError
from twinax.iqn import Learners, ReplayOptions
from twinax.noise import numpy_draws
from twinax.offline import collect_maze, label_maze
from twinax.offline._judge import Judging
from twinax.offline._tasks import MazeTask
from twinax.ppo._networks import policy_draw, to_world

MAZE = tx.envs.PointMaze("u")
CONVERT = {"jax": jnp.asarray, "torch": lambda x: torch.from_numpy(np.array(x))}


def gflownet(**changed):
    small = {"policy": tx.gflownet.PolicyOptions(hidden=(8,)), "metrics": tx.gflownet.MetricOptions(samples=8, fifo=64)}
    return tx.gflownet.problem(tx.envs.Hypergrid(2, 4), "detailed_balance", batch_size=4, **small | changed)


def ppo(world=None, **changed):
    sizes = {"num_envs": 4, "num_steps": 4, "num_minibatches": 2, "hidden": (8,), "episodes": 2, "evaluation_steps": 4}
    return tx.ppo.problem(world or tx.envs.Pendulum(), film=False, normalise_observations=True, **sizes | changed)


def agents(**changed):
    replay = ReplayOptions(buffer_size=16, frame_stack=2)
    group = Learners(
        count=2, width=8, num_quantiles=4, num_act_quantiles=4, num_cosines=8, batch_size=4, replay=replay, **changed
    )
    world = tx.envs.TreasureHunt(num_agents=2, turns=6, height=8, width=8)
    return tx.iqn.problem(world, {"iqn": group}, evaluation_num_envs=1, film=False)


def offline(agent=None):
    data = label_maze(collect_maze(MAZE, trajectories=4, steps=25), MAZE, goal=(1.5, 1.5))
    task = MazeTask(MAZE, (1.5, 1.5), episodes=2)
    return tx.offline.problem(agent or tx.offline.agents.IQL(hidden=(8,)), finetuning=data, batch_size=4, task=task)


FAMILIES = {"gflownet": gflownet, "ppo": ppo, "agents": agents, "offline": offline}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run of a family in a mode, trained when it is first asked for."""
    root, known = tmp_path_factory.mktemp("runs"), {}

    def get(family: str, mode: str):
        if (family, mode) not in known:
            path = root / f"{family}-{mode}"
            tx.train(FAMILIES[family](), mode=mode, steps=3, chunk=3, run_dir=path, progress=False)
            known[family, mode] = path
        return known[family, mode]

    return get


both_modes = pytest.mark.parametrize("mode", ["jax", "torch"])


@both_modes
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_started_in_python_is_loaded_whole(trained, family, mode):
    run = tx.load(trained(family, mode))
    assert type(run.problem) is type(FAMILIES[family]()) and run.config is None
    assert run.step == 3 and run.options.mode == mode and run.metrics[-1]["step"] == 3
    given = tx.load(trained(family, mode), problem=FAMILIES[family]())
    for name, leaf in tree.named_leaves(given.networks).items():
        np.testing.assert_array_equal(leaf, tree.named_leaves(run.networks)[name])
    # The last evaluation of the training, made again: the same problem, the same draws.
    again, logged = run.evaluate(seed=0), run.metrics[-1]
    assert again.seeds == (0,) and again.step == 3 and again.mode == mode
    for name, value in again.items():
        assert np.allclose(value, logged[name], rtol=1e-6, equal_nan=True), name


@both_modes
def test_a_gflownet_samples_what_its_evaluation_samples(trained, mode, monkeypatch):
    run, seen = tx.load(trained("gflownet", mode)), {}
    kind, own = type(run.problem), type(run.problem).judge.fget
    spied = property(lambda self: dataclasses.replace(own(self), summarise=lambda found: seen.update(found) or {}))
    monkeypatch.setattr(kind, "judge", spied)
    engine = make_engine(run.problem, mode=mode)
    fresh = {"seed": np.array(5, np.uint32), "step": np.array(0, np.int32)}
    engine.load(dataclasses.replace(run.state, **fresh))
    engine.evaluate()
    objects = run.sample(8, seed=5)
    np.testing.assert_array_equal(objects.states.position, np.asarray(seen["fresh"].position))
    assert objects.states.done.all() and len(objects) == 8
    assert objects.texts[0] == str(objects.states.position[0].tolist())
    wanted = run.problem.env.log_reward(objects.states)
    np.testing.assert_allclose(objects.log_rewards, wanted)


def test_samples_are_those_of_their_seed_and_come_in_any_number(trained, monkeypatch):
    from twinax.gflownet import _use

    run = tx.load(trained("gflownet", "torch"))
    monkeypatch.setattr(_use, "AT_ONCE", 8)
    some = run.sample(19, seed=1)
    assert len(some) == 19 and some.texts == run.sample(19, seed=1).texts != run.sample(19, seed=2).texts
    # Each part has draws of its own.
    assert some.texts[:8] != some.texts[8:16]


def test_the_best_objects_are_distinct_sorted_and_those_of_the_metric(trained):
    run = tx.load(trained("gflownet", "torch"))
    best = run.top_k(10)
    assert len(set(best.texts)) == len(best) > 1
    assert (np.diff(best.log_rewards) <= 0).all()
    assert np.exp(best.log_rewards).mean() == pytest.approx(run.metrics[-1]["top_k_reward"])


@both_modes
@pytest.mark.parametrize("world", [tx.envs.Pendulum(), tx.envs.CartPole()])
def test_ppo_acts_as_its_engine_does(mode, world, tmp_path):
    run = tx.load(tx.train(ppo(world), mode=mode, steps=2, run_dir=tmp_path / "run", progress=False).dir)
    convert = CONVERT[mode]
    agent, moments = tree.map_leaves(convert, (run.networks["agent"], run.state.carry.observation))
    x = np.random.default_rng(0).normal(size=(6, world.observation_size)).astype(np.float32)
    draw = numpy_draws({"policy": policy_draw(world.actions, 6)}, 7, 0, stream=1)["policy"]
    for noise, given in ((None, {"deterministic": True}), (convert(draw), {"seed": 7})):
        with torch.no_grad():
            point = agent.policy(run.problem.normalised(moments, convert(x))).point(noise)
            wanted = np.asarray(to_world(world.actions, point, run.problem.squashed))
        np.testing.assert_allclose(run.act(x, **given), wanted, atol=1e-5)
        np.testing.assert_allclose(run.act(x[0], deterministic=True), run.act(x, deterministic=True)[0], rtol=1e-5)
    assert not np.array_equal(run.act(np.tile(x, (20, 1)), seed=1), run.act(np.tile(x, (20, 1)), seed=2))


@both_modes
def test_agents_act_as_their_engine_does(trained, mode):
    run, convert = tx.load(trained("agents", mode)), CONVERT[mode]
    problem, group = run.problem, run.problem.learners["iqn"]
    world = problem.world
    views = np.random.default_rng(0).integers(0, len(world.codebook), (5, 2, world.view_cells)).astype(np.uint8)
    taus = numpy_draws({"taus": tx.noise.Draw((5, 4))}, 7, 0, stream=1)["taus"]
    even = np.broadcast_to((np.arange(4) + 0.5) / 4, (5, 4)).astype(np.float32)
    for agent in (0, 1):
        network = tree.map_leaves(convert, problem.members(run.networks)[f"iqn_{agent}"])
        for fractions, given in ((taus, {"seed": 7}), (even, {"deterministic": True})):
            with torch.no_grad():
                values = group.values(network, convert(views), convert(world.codebook), convert(fractions))
            action = run.act(views, agent=agent, **given)
            np.testing.assert_array_equal(action, np.asarray(values).argmax(-1))
            assert run.act(views[0], agent=agent, deterministic=True).shape == ()
    with pytest.raises(TwinaxError, match="agent is 2, but there are 2; it must be between 0 and 1"):
        run.act(views, agent=2)


@both_modes
def test_offline_agents_act_as_their_engine_does(trained, mode):
    run, convert = tx.load(trained("offline", mode)), CONVERT[mode]
    networks = tree.map_leaves(convert, run.networks)
    x = np.random.default_rng(0).uniform(0, 3, (6, *run.problem.widths.shape)).astype(np.float32)
    noise = numpy_draws({"noise": tx.noise.Draw((6, 2), "normal")}, 7, 0, stream=1)["noise"]
    for drawn, given in ((None, {"deterministic": True}), (convert(noise), {"seed": 7})):
        with torch.no_grad():
            wanted = Judging(run.problem).acting(networks, None, drawn)(convert(x))
        np.testing.assert_allclose(run.act(x, **given), np.asarray(wanted), atol=1e-5)


def test_an_agent_goes_to_the_goal_that_it_is_told(tmp_path):
    problem = offline(tx.offline.agents.GCBC(hidden=(8,)))
    run = tx.load(tx.train(problem, mode="torch", steps=2, run_dir=tmp_path / "run", progress=False).dir)
    x = np.zeros(run.problem.widths.shape)
    act = partial(run.act, x, deterministic=True)
    np.testing.assert_array_equal(act(), act(goal=run.problem.task.goal))
    assert not np.array_equal(act(), act(goal=run.problem.task.goal + 2))
    with pytest.raises(TwinaxError, match="act of a Offline has no option 'agent'; it takes goal"):
        act(agent=1)


def test_a_run_of_the_command_line_and_one_of_its_seeds(tmp_path):
    from twinax.cli import main

    words = [
        "env.dim=2",
        "env.side=3",
        "policy.hidden=[8]",
        "metrics.samples=8",
        "metrics.fifo=64",
        "seeds=2",
        "seed=5",
    ]
    path = tmp_path / "run"
    assert main(["train", "--quiet", *words, "trainer.batch_size=4", "trainer.steps=3", f"run.dir={path}"]) == 0
    first, second = tx.load(path), tx.load(path, seed=6)
    assert first.config["env"]["dim"] == 2 and first.facts["seed"] == 5 and second.facts["seed"] == 6
    assert first.sample(64).texts != second.sample(64).texts
    found = first.evaluate(seed=8)
    assert found.seeds == (8, 9) and found.told == "draws from seeds 8 to 9, one for each seed of the run"
    assert found["elbo"].shape == (2,) and "picture/target" in found.shown
    with pytest.raises(TwinaxError, match="there is no seed 7 in this run; it has seeds 5 to 6"):
        tx.load(path, seed=7)


def test_metrics_are_rows_and_a_frame(trained):
    run = tx.load(trained("gflownet", "torch"))
    assert run.metrics.column("loss")[-1] == (3, run.metrics[-1]["loss"])
    frame = run.metrics.frame()
    assert frame.index.tolist() == [1, 2, 3] and frame.loc[3, "loss"] == run.metrics[-1]["loss"]


def test_what_a_family_cannot_do_is_said_with_the_family_that_can(trained):
    run = tx.load(trained("ppo", "torch"))
    with pytest.raises(TwinaxError, match="is of a PPO, which has no sample; it has act.*runs of experiment=gflownet$"):
        run.sample(3)
    with pytest.raises(TwinaxError, match="GFlowNet, which has no act; it has sample, top_k, evaluate; act is for"):
        tx.load(trained("gflownet", "torch")).act(np.zeros(3))


def test_wrong_questions_are_one_sentence(trained):
    run = tx.load(trained("ppo", "torch"))
    with pytest.raises(TwinaxError, match=r"of shape \(4,\); .* needs numbers of shape \(3,\), or \(batch, 3\)"):
        run.act(np.zeros(4))
    with pytest.raises(TwinaxError, match="the seed is -1; it must be a whole number, at least 0"):
        run.act(np.zeros(3), seed=-1)
    with pytest.raises(TwinaxError, match="number is 0; it must be a whole number of at least 1"):
        tx.load(trained("gflownet", "torch")).sample(0)


def test_each_experiment_says_what_its_runs_can_do():
    from twinax import conf

    small = {"offline": ["data.trajectories=4", "data.steps=25", "trainer.batch_size=4"]}
    for name in conf.experiment_names():
        experiment = conf.find_experiment(name)
        problem = conf.build_problem(conf.compose([f"experiment={name}", *small.get(name, ())]))
        assert experiment.uses == problem.use.names, name


def test_the_reason_of_a_stop_stays_when_tables_are_written_later(tmp_path):
    grid = tx.gflownet.problem(
        tx.envs.Hypergrid(2, 3),
        batch_size=4,
        policy=tx.gflownet.PolicyOptions(hidden=(8,)),
        metrics=tx.gflownet.MetricOptions(samples=8, fifo=16),
    )

    def stop(run, step, metrics):
        if step == 5:
            run.stop("enough")

    tx.train(grid, mode="torch", steps=20, run_dir=tmp_path / "run", callbacks=[stop], log_every=5, progress=False)
    kept = tx.load(tmp_path / "run").summary
    assert kept["stopped"] == "enough" and kept["tables"]
