"""Trained offline agents against what theory says of them: occupancies in closed form, latents that rank states by
distance, and representations that do not collapse."""

from __future__ import annotations

import numpy as np
import pytest

from twinax.engines import make_engine
from twinax.envs import PointMaze
from twinax.offline import Dataset, collect_maze, from_arrays, label_maze, problem
from twinax.offline.agents import HILP, DinoReBRAC, ForwardBackward, InFOM
from twinax.optimizer import Optimizer

LATENT = 2


def trained(agent, data, pretrain_steps, finetune_steps=0, seed=0, rate=2e-3):
    """The state after some steps of each phase."""
    subject = problem(
        agent,
        data,
        data if finetune_steps else None,
        pretrain_steps=pretrain_steps,
        batch_size=256,
        optimizer=Optimizer(learning_rate=rate),
    )
    engine = make_engine(subject, mode="jax", chunk=500)
    engine.start(seed)
    engine.run(pretrain_steps + finetune_steps)
    return engine.state()


def small_infom(discount):
    return InFOM(hidden=(64, 64), latent_dim=LATENT, gamma=discount, tau=0.02, kl_weight=1.0, expectile=0.5)


def chain(states, aims):
    """Trajectories on a line, (trajectories, steps + 1), each with one action; the reward is the state."""
    steps = states.shape[1] - 1
    ends = np.zeros((len(states), steps), bool)
    ends[:, -1] = True
    return from_arrays(
        {
            "observations": states[:, :-1].reshape(-1, 1),
            "next_observations": states[:, 1:].reshape(-1, 1),
            "actions": np.repeat(aims, steps)[:, None],
            "terminals": ends.reshape(-1),
            "rewards": states[:, :-1].reshape(-1),
        }
    )


def ways(agent, networks, data, places=300, each=20, seed=1):
    """Where generated states lie on the way from a state to its action, (places, each), and those places."""
    rng = np.random.default_rng(seed)
    start, aim = rng.uniform(-0.8, 0.8, (2, 4 * places))
    far = np.abs(aim - start) > 0.5
    start, aim = (x[far][:places, None].astype(np.float32) for x in (start, aim))
    low, high = data.observation_range()
    noise, z = (rng.standard_normal((each, places, width), np.float32) for width in (1, LATENT))
    found = agent.flow(networks["field"], noise, {"observation_min": low, "observation_max": high}, start, aim, z)
    return ((found - start) / (aim - start))[..., 0].T, start, aim


@pytest.mark.slow
def test_infom_generates_the_two_states_of_a_chain_that_jumps():
    # From s the chain jumps to a and rests there: of the states that follow, 1 - discount are s and the others are a.
    discount, rng = 0.6, np.random.default_rng(0)
    start, aim = rng.uniform(-0.9, 0.9, (2, 4000)).astype(np.float32)
    data = chain(np.stack([start, aim, aim], 1), aim)
    agent = small_infom(discount)
    networks = trained(agent, data, 5000, 1500).networks
    way, start, aim = ways(agent, networks, data)
    assert way.mean() == pytest.approx(discount, abs=0.05)
    assert (way < 0.5).mean() == pytest.approx(1 - discount, abs=0.05)
    # There are two of them, and little between.
    assert (np.minimum(np.abs(way), np.abs(way - 1)) < 0.2).mean() > 0.8
    # Q is the sum of discounted rewards, s + discount a + discount^2 a + ...
    q = networks["critic"](start, aim).mean(0)
    want = (start + discount / (1 - discount) * aim)[:, 0]
    assert np.abs(q - want).mean() < 0.15 and np.corrcoef(q, want)[0, 1] > 0.97


@pytest.mark.slow
def test_infom_generates_the_even_spread_of_a_chain_that_slows_down():
    # s' - a = discount (s - a): the states that follow lie evenly between s and a, with the quantile p at p of the way
    # (in steps of 1 - discount) and the mean at discount / (1 + discount).
    discount, rng = 0.9, np.random.default_rng(0)
    start, aim = rng.uniform(-0.9, 0.9, (2, 400, 1)).astype(np.float32)
    states = aim + (start - aim) * discount ** np.arange(26)
    data = chain(states.astype(np.float32), aim[:, 0])
    agent = small_infom(discount)
    networks = trained(agent, data, 6000).networks
    way, _, _ = ways(agent, networks, data)
    assert way.mean() == pytest.approx(discount / (1 + discount), abs=0.05)
    # The ends are less exact than the middle: the loss bootstraps along the straight line from noise to a generated
    # state, which is not the path that the flow takes, and the spread comes out somewhat narrow (0.75 for 0.9).
    for part, tolerance in ((0.1, 0.2), (0.25, 0.12), (0.5, 0.08), (0.75, 0.15), (0.9, 0.2)):
        assert np.quantile(way, part) == pytest.approx(part, abs=tolerance), part


# Latents in a maze that is one corridor, bent like a U

GOAL = (1.5, 1.5)


def way_to_goal(places):
    """Length of the way along the corridor from places (x, y) to the goal at its end."""
    x, y = places[:, 0], places[:, 1]
    along = np.where(y < 2, x, np.where(y < 3, y + 2, 9 - x))
    return np.abs(along - GOAL[0])


@pytest.fixture(scope="module")
def walks() -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Normalised walks with the goal's rewards, 1 there and 0 elsewhere; rows, and their lengths of way."""
    maze = PointMaze("u")
    raw = label_maze(collect_maze(maze, 40, 250), maze, GOAL, positive=True)
    return raw.normalised("normal"), raw.drawable, way_to_goal(raw.observations)


def rank_correlation(a, b):
    first, second = (np.argsort(np.argsort(x)).astype(float) for x in (a, b))
    return np.corrcoef(first, second)[0, 1]


@pytest.mark.slow
def test_forward_backward_ranks_states_by_the_way_to_the_goal(walks):
    data, rows, way = walks
    agent = ForwardBackward(hidden=(64, 64), latent_dim=16, gamma=0.95, tau=0.02, alpha_repr=1.0)
    networks = trained(agent, data, 3000, rate=1e-3).networks
    s = data.observations[rows]
    latent = agent.infer(networks, {"observations": s, "rewards": data.rewards[rows]})
    z = np.broadcast_to(latent, (len(s), 16))
    action = np.clip(networks["actor"](s, z).mode, -1, 1)
    value = np.sum(networks["forward"](s, z, action) * z, -1).min(0)
    # Over seeds it is 0.5 to 0.7.
    assert rank_correlation(value, -way[rows]) > 0.4


@pytest.mark.slow
def test_hilp_ranks_states_by_the_way_to_the_goal(walks):
    # Three numbers for each state: random ones would not do (rank 0.7, and a twentieth of the rewards' variance).
    data, rows, way = walks
    agent = HILP(hidden=(64, 64), latent_dim=3, gamma=0.95, tau=0.02, alpha=1.0)
    networks = trained(agent, data, 2000, rate=1e-3).networks
    s, then = data.observations[rows], data.observations[rows + 1]
    # HILP's rewards are ways along a direction: here each step is paid for the way that it saves.
    rewards = way[rows] - way[rows + 1]
    batch = {"observations": s, "next_observations": then, "rewards": rewards}
    latent = agent.infer(networks, batch)
    assert rank_correlation(agent.features(networks, s) @ latent, -way[rows]) > 0.95
    assert np.corrcoef(agent.task_features(networks, batch) @ latent, rewards)[0, 1] ** 2 > 0.4
    # The value of a goal is -1 for each step, discounted; a step is a quarter of a cell at most.
    value = networks["metric"](s, np.broadcast_to(s[way[rows].argmin()], s.shape)).mean(0)
    want = -(1 - 0.95 ** (way[rows] / 0.25)) / (1 - 0.95)
    assert rank_correlation(value, want) > 0.95 and np.abs(value - want).mean() < 1


# Representations


def used(logits):
    """Entropy of the mean distribution, and what a state tells of its own (mutual information), in nats."""
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    whole, own = p.mean(0), -(p * np.log(p + 1e-12)).sum(1).mean()
    entropy = -(whole * np.log(whole + 1e-12)).sum()
    return entropy, entropy - own


@pytest.mark.slow
def test_dino_does_not_collapse(walks):
    # Collapsed, all states would have one representation (nothing told) or one entry would take all (no entropy).
    data, rows, _ = walks
    for faithful in (False, True):
        agent = DinoReBRAC(hidden=(64,), latent_dim=16, tau=0.01, faithful=faithful)
        state = trained(agent, data, 1500, rate=1e-3)
        teacher = state.targets["encoder"](data.observations[rows])
        centre = 0.0 if faithful else teacher.mean(0)
        entropy, told = used((teacher - centre) / agent.target_repr_temp)
        spread = teacher.std(0).mean()
        print(f"faithful={faithful}: entropy {entropy:.2f} of {np.log(16):.2f}, told {told:.2f}, spread {spread:.2f}")
        if not faithful:  # what the released version makes of its first weights is shown, not judged
            assert entropy > 2.2 and told > 0.8 and spread > 0.1
