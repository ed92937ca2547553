"""Calls from Python with other names or types than there are: one sentence each, in every family."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import twinax
from twinax.arguments import fits
from twinax.errors import TwinaxError
from twinax.offline import agents

# Untyped, as for people who run no checker: every call here is wrong.
tx: Any = twinax
IQL: Any = agents.IQL
AGENTS: dict[str, Any] = {**agents.AGENTS}
GRID = tx.envs.Hypergrid(dim=2, side=4)
CART = tx.envs.CartPole()
HUNT = tx.envs.TreasureHunt()


def gym():
    return gymnasium.make("CartPole-v1")


def gflownet(**options):
    return tx.gflownet.problem(GRID, **options)


WRONG = {
    # names
    "gflownet.problem has no argument 'hidden': write policy=PolicyOptions(hidden=...)": lambda: gflownet(hidden=64),
    "gflownet.problem has no argument 'lr': write optimizer=Optimizer(learning_rate=...)": lambda: gflownet(lr=1),
    "PPO has no argument 'lr': write optimizer=Optimizer(learning_rate=...)": lambda: tx.ppo.problem(CART, lr=1),
    "PPO has no argument 'worlds': 'num_envs' is what it is": lambda: tx.ppo.problem(CART, worlds=3),
    "iqn.problem has no argument 'lr': write groups={'name': Learners(": lambda: tx.iqn.problem(HUNT, lr=1),
    "offline.problem has no argument 'lr': write optimizer=Optimizer(": lambda: tx.offline.problem(IQL(), lr=1),
    "Optimizer has no argument 'lr': 'learning_rate' is what": lambda: tx.Optimizer(lr=1),
    "TrainOptions has no argument 'step': 'steps' may be meant": lambda: tx.train(gflownet(), step=10),
    "it takes env, objective, reward, batch_size, policy": lambda: gflownet(nonsense=1),
    "there is no run directory runs/first": lambda: tx.resume("runs/first"),
    "train needs problem": lambda: tx.train(),
    "ppo.problem needs world": lambda: tx.ppo.problem(),
    "gflownet.problem cannot be called so (too many positional": lambda: tx.gflownet.problem(GRID, "tb", 16),
    # things of other libraries, and of other places here
    "env is a TimeLimit of gymnasium; it must be a twinax Environment (such as": lambda: tx.gflownet.problem(gym()),
    "world is a TimeLimit of gymnasium; it must be a twinax Control": lambda: tx.ppo.problem(gym()),
    "tx.envs.GymnasiumWorld('CartPole-v1')": lambda: tx.ppo.problem("CartPole-v1"),
    "world is a TimeLimit of gymnasium; it must be a twinax World": lambda: tx.iqn.problem(gym()),
    "env is the class Hypergrid, not one of its objects": lambda: tx.gflownet.problem(tx.envs.Hypergrid),
    "problem is 'hypergrid'; it must be a twinax Problem": lambda: tx.train("hypergrid"),
    "engines.make_engine: problem is 'jax'; it must be a twinax Problem": lambda: tx.engines.make_engine("jax", GRID),
    "parity.check: problem is a Hypergrid of twinax": lambda: tx.parity.check(GRID),
    "pretraining is 'x.npz'; it must be a twinax Dataset (read one": lambda: tx.offline.problem(IQL(), "x.npz"),
    "pretraining is {'observations'": lambda: tx.offline.problem(IQL(), {"observations": np.ones(3)}),
    "agent is 'iql'; it must be a twinax Agent": lambda: tx.offline.problem("iql"),
    "policy is {'hidden': (64,)}; it must be a twinax PolicyOptions": lambda: gflownet(policy={"hidden": (64,)}),
    "optimizer is 'adam'; it must be a twinax Optimizer": lambda: gflownet(optimizer="adam"),
    "optimizer is 'sgd'; it must be a twinax Optimizer": lambda: tx.ppo.problem(CART, optimizer="sgd"),
    # types
    "PolicyOptions: hidden is 64; it must be a tuple of several, each a whole number, such as (64, 64)": lambda: (
        tx.gflownet.PolicyOptions(hidden=64)
    ),
    "PPO: hidden is 64": lambda: tx.ppo.problem(CART, hidden=64),
    "IQL: hidden is 64": lambda: IQL(hidden=64),
    "Learners: width is '64'; it must be a whole number": lambda: tx.iqn.Learners(width="64"),
    "batch_size is '4'; it must be a whole number": lambda: gflownet(batch_size="4"),
    "log_z is 0.0; it must be a tuple": lambda: gflownet(log_z=0.0),
    "gamma is '0.9'; it must be a number": lambda: tx.ppo.problem(CART, gamma="0.9"),
    "mode is None; it must be text": lambda: tx.train(gflownet(), mode=None),
    "steps is '10'; it must be a whole number": lambda: tx.train(gflownet(), steps="10"),
    "steps is 1000.0; it must be a whole number": lambda: tx.train(gflownet(), steps=1e3),
    "steps is True; it must be a whole number": lambda: tx.train(gflownet(), steps=True),
    "seed is -1; it must be at least 0": lambda: tx.train(gflownet(), seed=-1),
    "seed is 1.5; it must be a whole number": lambda: tx.train(gflownet(), seed=1.5),
    "run_dir is 3; it must be a path or text or None": lambda: tx.train(gflownet(), run_dir=3),
    "Hypergrid: dim is '4'; it must be a whole number": lambda: tx.envs.Hypergrid(dim="4"),
    "TreasureHunt: num_agents is '2'": lambda: tx.envs.TreasureHunt(num_agents="2"),
    "rates is {'log_z': 'x'}; it must be a dictionary": lambda: tx.Optimizer(rates={"log_z": "x"}),
}


@pytest.mark.parametrize(("part", "call"), WRONG.items(), ids=list(WRONG))
def test_wrong_calls_are_one_sentence(unchecked, part, call):
    with pytest.raises(TwinaxError) as told:
        call()
    assert part in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_checks_its_options(unchecked, name):
    with pytest.raises(TwinaxError, match="batch_norm"):
        AGENTS[name](batch_norm=3)
    with pytest.raises(TwinaxError, match="gamma is 'x'; it must be a number"):
        AGENTS[name](gamma="x")


def test_what_means_the_same_is_taken(unchecked):
    assert tx.ppo.problem(CART, hidden=[8, 8]).hidden == (8, 8)
    assert tx.Optimizer(learning_rate=np.float32(0.5), decay_steps=np.int64(3)).decay_steps == 3
    assert tx.Optimizer(learning_rate=1).learning_rate == 1


def test_annotations_that_are_not_known_here_pass():
    assert fits(np.ones(3), np.ndarray) and fits("x", "whatever")
    assert fits(None, int | None) and not fits(None, int)
    assert fits((1, "a"), tuple[int, str]) and not fits((1, 2, 3), tuple[int, int])
