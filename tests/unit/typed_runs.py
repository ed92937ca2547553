"""Trains small problems of each family with every array annotation checked; run in a process of its own.

The check wraps a function inside a function anew at each call, which makes eager training slow:
too slow for the whole suite, so these runs visit the annotated functions instead.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from jaxtyping import TypeCheckError, install_import_hook

from twinax.noise import numpy_draws

PACKAGES = ["twinax.envs", "twinax.gflownet", "twinax.iqn", "twinax.networks", "twinax.offline", "twinax.ppo"]

with install_import_hook(PACKAGES, "beartype.beartype"):
    from twinax import gflownet, iqn, offline, ppo
    from twinax.engines import make_engine
    from twinax.envs import (
        Acrobot,
        CartPole,
        Cleanup,
        GridReward,
        Hypergrid,
        Ising,
        LearnedCouplings,
        Pendulum,
        PointMaze,
        TreasureHunt,
    )
    from twinax.envs.biped import ROBOTS, VARIED, make_biped, mirror_motion
    from twinax.gflownet._exploration import sample_actions


class Uncounted(Hypergrid):
    """Nobody has told its numbers of paths."""

    def log_paths_ratio(self, state):  # type: ignore[override]
        return None


def hypergrids():
    """Every objective, with the backward policies in turn."""
    backward = ["learned", "uniform", "maxent"]
    for i, name in enumerate(gflownet.objectives.OBJECTIVES):
        env = Hypergrid(dim=2, side=4, reward=GridReward.easy())
        policy = gflownet.PolicyOptions(hidden=(8,), backward=backward[i % 3])
        data = gflownet.ReplayOptions(size=20, batch_size=3 if gflownet.objectives.OBJECTIVES[name].of_data else 0)
        yield name, gflownet.problem(env, name, batch_size=4, policy=policy, replay=data)
    replay = gflownet.ReplayOptions(size=20, batch_size=3, priority="rank", min_distance=1, start=5)
    search = gflownet.LocalSearchOptions(rounds=1, steps=2, accept="metropolis")
    policy = gflownet.PolicyOptions(hidden=(8,), backward="tlm")
    yield (
        "replay and local search",
        gflownet.problem(env, batch_size=4, policy=policy, replay=replay, local_search=search),
    )
    replay = gflownet.ReplayOptions(size=20, batch_size=3, priority="loss", start=5)
    policy = gflownet.PolicyOptions(hidden=(8,), backward="pessimistic")
    yield "trajectories of the replay", gflownet.problem(env, batch_size=4, policy=policy, replay=replay)
    policy = gflownet.PolicyOptions(hidden=(8,))
    for name, form in (("detailed_balance", "edge"), ("flow_matching", "trajectory")):
        explore = gflownet.Exploration(thompson_heads=3, intrinsic=0.1, intrinsic_form=form, intrinsic_widths=(8, 4))
        more = {"policy": policy, "exploration": explore, "replay": replay}
        yield f"heads and intrinsic rewards, {form}", gflownet.problem(env, name, batch_size=4, **more)
    policy = gflownet.PolicyOptions(hidden=(8,), backward="maxent")
    yield "numbers of paths", gflownet.problem(Uncounted(dim=2, side=4), batch_size=4, policy=policy)
    spins = Ising(2).with_reward(LearnedCouplings(samples=9))
    energy = gflownet.EnergyOptions(batch_size=3, steps=2, rounds=2, l1=0.1, retrace=True)
    yield "learned couplings", gflownet.problem(spins, batch_size=4, policy=policy, energy=energy)


def hunts():
    """Every variant of the networks, both turn rules, both worlds, and players that do not learn."""
    small = {"height": 5, "width": 6, "turns": 6}
    replay = iqn.ReplayOptions(buffer_size=32, frame_stack=2, alpha=0.5)
    for name, world in {
        "iqn": TreasureHunt(num_agents=3, **small),
        "qr": TreasureHunt(num_agents=3, variant="gem_food_bone", turn_rule="simultaneous", **small),
        "c51": Cleanup(num_agents=3, **{**small, "height": 9}),
    }.items():
        learners = iqn.Learners(count=2, variant=name, width=8, batch_size=4, replay=replay)
        other = iqn.Players(1, "seeker" if name == "iqn" else "random")
        yield name, iqn.problem(world, {name: learners, "other": other}, num_envs=2, evaluation_num_envs=2)


def walks():
    """Agents that between them use every loss, network and sampler."""
    maze = PointMaze("u", max_steps=5)
    data = offline.label_maze(offline.collect_maze(maze, 3, 12), maze, (1.5, 1.5)).normalised("normal")
    task = offline.MazeTask(maze, (1.5, 1.5), episodes=2)
    for name in ("iql", "mbpo_rebrac", "td_infonce", "fb_repr", "hilp", "infom", "hiql"):
        options = {} if name in ("iql", "mbpo_rebrac") else {"width": 4}
        agent = offline.agent(name)(hidden=(6,), **options)
        yield name, offline.problem(agent, data, data, pretrain_steps=1, batch_size=4, task=task)


def agents_in_worlds():
    """Every kind of policy and advantage, with pools, groups, both normalisers, and playing while learning."""
    small: dict = {
        "hidden": (8, 8),
        "num_envs": 4,
        "num_steps": 6,
        "num_epochs": 1,
        "num_minibatches": 2,
        "episodes": 2,
    }
    yield "cartpole", ppo.problem(CartPole(time_limit=4), normalise_observations=True, target_kl=0.01, **small)
    yield "acrobot", ppo.problem(Acrobot(time_limit=4), advantage="cleanrl", shared=True, pipelined=True, **small)
    world = Pendulum(time_limit=4)
    pooled: dict = {"pool": 16, "groups": 2, "normalise_rewards": True, **small}
    yield "pendulum", ppo.problem(world, policy="tanh", std="state", advantage="brax", **pooled)
    yield "pendulum, gaussian", ppo.problem(world, standardise="rollout", advantage="rsl_rl", **small)


FAMILIES = {"gflownet": (hypergrids, ("torch", "hybrid", "jax")), "iqn": (hunts, ("torch", "hybrid", "jax"))}
# Eager PyTorch visits every function that JAX would trace.
FAMILIES["offline"] = (walks, ("torch",))
FAMILIES["ppo"] = (agents_in_worlds, ("torch",))


def legs() -> None:
    """Steps of every robot, in NumPy and PyTorch."""
    for name in ROBOTS:
        world = make_biped("stand", robot=name, history=2, ranges=VARIED, threads=1)
        draws = numpy_draws({**world.reset_draws(3), **world.step_draws(3)}, 0, 0)
        for convert in (np.asarray, torch.tensor):
            given = {key: convert(value) for key, value in draws.items()}
            moved = world.step(world.reset(given), given["joints"], given)
            world.observe_critic(moved.state)
            mirror_motion(world.body, moved.state.qpos, moved.state.qvel)
        print("biped", name)


def train(family: str) -> None:
    """A few steps in each mode, and an evaluation."""
    problems, modes = FAMILIES[family]
    for name, problem in problems():
        for mode in modes:
            engine = make_engine(problem, mode=mode, chunk=3)
            engine.start(0)
            engine.run(3)
            engine.evaluate()
            print(family, name, mode)


def main(family: str) -> None:
    """Visit a family; then see that a wrong array is refused."""
    legs() if family == "biped" else train(family)
    zeros = np.zeros((4, 3), np.float32)
    try:
        sample_actions(zeros, mask=zeros, uniform=zeros, explore=zeros[:, 0], epsilon=0.0, temperature=1.0)
    except TypeCheckError:
        print("checked")


if __name__ == "__main__":
    main(sys.argv[1])
