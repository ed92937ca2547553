"""Objectives: against slow loops, in their limits, and at the exact solution, where every residual is zero."""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from pathlib import Path

import jax
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import ops
from twinax.envs import GridReward, Hypergrid, enumerate_states
from twinax.errors import TwinaxError, UnknownName
from twinax.gflownet import Networks, backward_rollout, forward_rollout, objectives, problem, score
from twinax.gflownet._visited import num_rows
from twinax.gflownet.objectives import OBJECTIVES, log_z_estimates, objective
from twinax.problem import Terms

sys.path.insert(0, str(Path(__file__).parent))
from slow_scores import slow_scores
from small_worlds import BitStrings, LeftToRight, backward_table, balanced, random_policy, tabular

WORLDS = {
    "grid": Hypergrid(2, 4, GridReward(0.1, 0.5, 2.0)),
    "cube": Hypergrid(3, 3),
    "bits": BitStrings(3),
    "left-to-right": LeftToRight(4),
}
NEEDS = frozenset({"log_flow", "log_z", "logit", "state_log_reward", "state_log_energy", "log_pf_stop", "log_inflow"})
FM = frozenset({"log_inflow"})
LOG_Z = np.array([0.5, 0.75])


def names_for(env):
    """Balances that a world can have: losses that the right policy brings to 0."""
    others = {
        "relative_trajectory_balance",
        "maximum_likelihood",
        *([] if env.stops else ["modified_detailed_balance"]),
    }
    return [name for name in OBJECTIVES if name not in others]


@functools.lru_cache
def trajectories_of(world: str, batch: int = 11, seed: int = 0):
    env = WORLDS[world]
    rng = np.random.default_rng(seed)
    draws = rng.random((env.max_steps, batch, env.num_actions)), rng.random((env.max_steps, batch))
    policy = random_policy(env)
    return forward_rollout(env, lambda seen: policy(seen).forward_logits, *draws)


@functools.lru_cache
def scores_of(world: str, kind: str = "learned"):
    env = WORLDS[world]
    return score(env, Networks(random_policy(env), LOG_Z), trajectories_of(world), kind, NEEDS)


# Slow loops, each written from its formula


def slow_trajectory_balance(entries):
    losses = []
    for e in entries:
        losses.append((LOG_Z.sum() + sum(e["log_pf"]) - sum(e["log_pb"]) - e["log_reward"]) ** 2)
    return sum(losses) / len(losses)


def flows(e):
    """log F of every state of a trajectory, R at the end."""
    return [*e["log_flow"], e["log_reward"]]


def slow_detailed_balance(entries):
    losses = []
    for e in entries:
        f = flows(e)
        for t in range(len(e["log_pf"])):
            losses.append((f[t] + e["log_pf"][t] - f[t + 1] - e["log_pb"][t]) ** 2)
    return sum(losses) / len(losses)


def slow_subtrajectory_balance(entries, decay=0.9):
    total = weights = 0.0
    for e in entries:
        f, n = flows(e), len(e["log_pf"])
        for i in range(n):
            for j in range(i + 1, n + 1):
                gain = sum(e["log_pf"][t] - e["log_pb"][t] for t in range(i, j))
                total += decay ** (j - i) * (f[i] - f[j] + gain) ** 2
                weights += decay ** (j - i)
    return total / weights


def slow_soft_dqn(entries):
    total = number = 0
    for e in entries:
        n = len(e["log_pf"])
        for t in range(n):
            value = e["log_reward"] if t == n - 1 else e["outflow"][t + 1]
            off = abs(e["logit"][t] - e["log_pb"][t] - value)
            total += (5 if t == n - 1 else 1) * (off**2 / 2 if off < 1 else off - 0.5)
            number += 1
    return total / number


def slow_flow_matching(entries, stops):
    losses = []
    for e in entries:
        n = len(e["log_pf"])
        for t in range(1, n):
            losses.append((e["inflow"][t - 1] - e["outflow"][t]) ** 2)
        last = e["logit"][-1] if stops else e["inflow"][-1]
        losses.append((last - e["log_reward"]) ** 2)
    return sum(losses) / len(losses)


def slow_subtrajectory_balance_within(entries, decay=0.9):
    """Each trajectory on its own, then their mean: the weighting of the paper."""
    return sum(slow_subtrajectory_balance([e], decay) for e in entries) / len(entries)


def slow_flow_matching_within(entries, stops):
    return sum(slow_flow_matching([e], stops) for e in entries) / len(entries)


def slow_flow_matching_separate(entries, stops):
    inner, ends = [], []
    for e in entries:
        for t in range(1, len(e["log_pf"])):
            inner.append((e["inflow"][t - 1] - e["outflow"][t]) ** 2)
        ends.append(((e["logit"][-1] if stops else e["inflow"][-1]) - e["log_reward"]) ** 2)
    return (sum(inner) / len(inner) if inner else 0.0) + sum(ends) / len(ends)


def slow_forward_looking(entries):
    losses = []
    for e in entries:
        n = len(e["log_pf"])
        inner = [*e["log_flow"], 0.0]
        reward = [*e["reward"], e["log_reward"]]
        for t in range(n):
            gain = e["log_pf"][t] - e["log_pb"][t]
            losses.append((inner[t] - inner[t + 1] + gain + reward[t] - reward[t + 1]) ** 2)
    return sum(losses) / len(losses)


def slow_modified_detailed_balance(entries):
    losses = []
    for e in entries:
        for t in range(len(e["log_pf"]) - 1):
            left = e["reward"][t] + e["log_pf"][t] + e["stop"][t + 1]
            right = e["reward"][t + 1] + e["log_pb"][t] + e["stop"][t]
            losses.append((left - right) ** 2)
    return sum(losses) / len(losses)


def slow_log_partition_variance(entries):
    estimates = [e["log_reward"] + sum(e["log_pb"]) - sum(e["log_pf"]) for e in entries]
    middle = sum(estimates) / len(estimates)
    return sum((z - middle) ** 2 for z in estimates) / len(estimates)


@pytest.mark.parametrize("kind", ["learned", "uniform"])
@pytest.mark.parametrize("world", WORLDS)
def test_objectives_are_those_of_slow_loops(world, kind):
    env = WORLDS[world]
    entries = slow_scores(env, random_policy(env), trajectories_of(world), kind)
    for name in names_for(env):
        slow = globals()[f"slow_{name}"]
        wanted = slow(entries, env.stops) if name == "flow_matching" else slow(entries)
        loss, terms = OBJECTIVES[name]()(scores_of(world, kind))
        assert loss == pytest.approx(wanted, rel=1e-6), name
        assert np.shape(loss) == () and all(np.shape(term) == () for term in terms.log().values())


@pytest.mark.parametrize("decay", [0.3, 1.0, 1.7])
def test_subtrajectory_balance_of_any_decay(decay):
    entries = slow_scores(WORLDS["grid"], random_policy(WORLDS["grid"]), trajectories_of("grid"), "learned")
    loss, _ = objectives.subtrajectory_balance(scores_of("grid"), decay)
    assert loss == pytest.approx(slow_subtrajectory_balance(entries, decay), rel=1e-6)


@pytest.mark.parametrize("decay", [0.3, 0.9, 1.0, 1.7, 50.0])
@pytest.mark.parametrize("world", ["grid", "cube", "bits"])
def test_subtrajectory_balance_over_each_trajectory(world, decay):
    entries = slow_scores(WORLDS[world], random_policy(WORLDS[world]), trajectories_of(world), "learned")
    loss, _ = objectives.subtrajectory_balance(scores_of(world), decay, "trajectory")
    assert loss == pytest.approx(slow_subtrajectory_balance_within(entries, decay), rel=1e-6)
    if world != "bits":  # where all trajectories are equally long, it is the same
        assert loss != pytest.approx(slow_subtrajectory_balance(entries, decay), rel=1e-3)


@pytest.mark.parametrize("world", WORLDS)
def test_flow_matching_over_each_trajectory_and_by_kind_of_state(world):
    env = WORLDS[world]
    entries = slow_scores(env, random_policy(env), trajectories_of(world), "learned")
    slow = {"trajectory": slow_flow_matching_within, "separate": slow_flow_matching_separate}
    for normalise, wanted in slow.items():
        loss, _ = objectives.flow_matching(scores_of(world), normalise)
        assert loss == pytest.approx(wanted(entries, env.stops), rel=1e-6)


def test_flow_matching_of_trajectories_that_stop_at_once():
    s = scores_of("grid")
    first = np.zeros_like(s.valid)
    first[0] = True
    short = dataclasses.replace(s, valid=first)
    for normalise in ("batch", "trajectory", "separate"):
        loss, _ = objectives.flow_matching(short, normalise)
        assert loss == pytest.approx(np.mean((s.log_final_flow[0] - s.log_reward) ** 2), rel=1e-9)


@pytest.mark.parametrize("decay", [1e-300, 1e300])
def test_extreme_decays_over_each_trajectory(decay):
    s, length = scores_of("grid"), trajectories_of("grid").length
    loss, _ = objectives.subtrajectory_balance(s, decay, "trajectory")
    if decay > 1:  # whole trajectories, all of them: trajectory balance
        residual = s.log_flow[0, 0] + (s.log_pf - s.log_pb).sum(0) - s.log_reward
        assert loss == pytest.approx((residual**2).mean(), rel=1e-9)
    else:  # transitions, each trajectory's mean
        flow = np.where(s.terminal, s.log_reward[None], np.concatenate([s.log_flow[1:], s.log_flow[:1]]))
        square = np.where(s.valid, (s.log_flow + s.log_pf - flow - s.log_pb) ** 2, 0.0)
        assert loss == pytest.approx((square.sum(0) / length).mean(), rel=1e-9)


def test_terms_make_up_the_loss():
    for world, env in WORLDS.items():
        s = scores_of(world)
        for name in ("detailed_balance", "forward_looking", "flow_matching"):
            loss, terms = OBJECTIVES[name]()(s)
            assert set(terms.parts) == {"terminal_loss", "inner_loss"} and not terms.shown
            assert loss == pytest.approx(sum(terms.parts.values()), rel=1e-12), (env, name)


# In every framework


@pytest.mark.parametrize("world", ["grid", "bits"])
def test_losses_and_gradients_are_equal_in_every_framework(world, double_precision):
    env, batch = WORLDS[world], trajectories_of(world)
    policy, size = random_policy(env), int(num_rows(env, batch)) + 5
    tables = (policy.forward, policy.backward, policy.log_flow, LOG_Z)

    def losses(tables, batch, size=None):
        networks = Networks(type(policy)(*tables[:3], ops.like(policy.place, tables[0]), policy.base), tables[3])
        s = score(env, networks, batch, "learned", NEEDS, size)
        found = [OBJECTIVES[name]()(s)[0] for name in names_for(env)]
        found += [objectives.subtrajectory_balance(s, decay, "trajectory")[0] for decay in (0.7, 1.4)]
        found += [objectives.flow_matching(s, way)[0] for way in ("trajectory", "separate")]
        return ops.stack(found)

    wanted = losses(tables, batch)
    in_torch = [torch.tensor(x, requires_grad=True) for x in tables]
    got = losses(in_torch, jtu.tree_map(torch.from_numpy, batch))
    np.testing.assert_allclose(got.detach(), wanted, rtol=1e-12)
    # One gradient of a random mixture: a difference in any objective shows in it.
    weights = np.random.default_rng(0).normal(size=len(wanted))

    def mixture(tables, batch):
        values = losses(tables, batch, size)
        return ops.sum(values * ops.like(weights, values)), values

    (_, values), grads = jax.jit(jax.value_and_grad(mixture, has_aux=True))(tables, batch)
    np.testing.assert_allclose(values, wanted, rtol=1e-12)
    (got * torch.from_numpy(weights)).sum().backward()
    for a, b in zip(in_torch, grads, strict=True):
        np.testing.assert_allclose(a.grad, b, rtol=1e-9, atol=1e-12)


# Limits


@pytest.mark.parametrize("world", WORLDS)
def test_subtrajectory_balance_of_short_pieces_is_detailed_balance(world):
    s = scores_of(world)
    loss, _ = objectives.subtrajectory_balance(s, 1e-12)
    assert loss == pytest.approx(objectives.detailed_balance(s)[0], rel=1e-9)


@pytest.mark.parametrize("world", ["bits", "left-to-right"])
def test_subtrajectory_balance_of_whole_trajectories_is_trajectory_balance(world):
    # Every trajectory of these worlds has the same length.
    s = scores_of(world)
    loss, _ = objectives.subtrajectory_balance(s, 1e12)
    start = s.log_flow[0, 0]
    with_flow = type(s)(s.log_pf, s.log_pb, s.log_reward, s.valid, log_z=start)
    assert loss == pytest.approx(objectives.trajectory_balance(with_flow)[0], rel=1e-9)


def test_subtrajectory_balance_of_long_pieces_keeps_the_longest_trajectories():
    s, length = scores_of("grid"), trajectories_of("grid").length
    longest = np.flatnonzero(length == length.max())
    loss, _ = objectives.subtrajectory_balance(s, 1e12)
    residual = s.log_flow[0, 0] + (s.log_pf - s.log_pb).sum(0) - s.log_reward
    assert loss == pytest.approx((residual[longest] ** 2).mean(), rel=1e-9)


@pytest.mark.parametrize("decay", [1e-300, 1e300])
def test_extreme_decays_stay_finite(decay):
    loss, _ = objectives.subtrajectory_balance(scores_of("grid"), decay)
    assert np.isfinite(loss)


def torch_scores(world, log_z):
    """Scores whose gradients by the forward table can be taken."""
    env, policy = WORLDS[world], random_policy(WORLDS[world])
    tables = [torch.tensor(x, requires_grad=True) for x in (policy.forward, policy.backward, policy.log_flow)]
    networks = Networks(type(policy)(*tables, torch.from_numpy(policy.place), policy.base), log_z)
    batch = jtu.tree_map(torch.from_numpy, trajectories_of(world))
    return tables, score(env, networks, batch, "learned", NEEDS)


@pytest.mark.parametrize("world", ["grid", "bits"])
def test_variance_has_the_gradient_of_trajectory_balance_at_the_mean(world):
    tables, s = torch_scores(world, torch.zeros(1, dtype=torch.float64))
    variance = torch.autograd.grad(objectives.log_partition_variance(s)[0], tables[:2])
    middle = log_z_estimates(s).mean().detach()
    tables, s = torch_scores(world, middle[None])
    balance = torch.autograd.grad(objectives.trajectory_balance(s)[0], tables[:2])
    for a, b in zip(variance, balance, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert a.abs().sum() > 0


def test_short_pieces_have_the_gradient_of_detailed_balance():
    tables, s = torch_scores("grid", torch.zeros(1, dtype=torch.float64))
    pieces = torch.autograd.grad(objectives.subtrajectory_balance(s, 1e-12)[0], tables, retain_graph=True)
    steps = torch.autograd.grad(objectives.detailed_balance(s)[0], tables)
    for a, b in zip(pieces, steps, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# The exact solution


def solution(env, kind):
    """Networks of the exact flows for a backward policy, and those of flow matching and forward-looking flows."""
    logits, log_pb = backward_table(env, kind)
    flow = balanced(env, log_pb)
    graph = enumerate_states(env)
    # Any constant may be added to the logits of a row.
    shift = np.random.default_rng(4).normal(size=(len(graph.done), 1))
    policy = tabular(env, flow.forward + shift, logits, flow.state)
    edges = flow.forward.copy()
    edges[graph.source, graph.action] = flow.edge
    reward = np.asarray(env.log_reward(graph.states), np.float64)
    return {
        "": Networks(policy, np.array([flow.state[0] - 1.0, 1.0])),
        "flow_matching": Networks(tabular(env, edges, logits, flow.state), None),
        "soft_dqn": Networks(tabular(env, edges, logits, flow.state), None),
        "forward_looking": Networks(tabular(env, flow.forward, logits, flow.state - reward), None),
    }, flow


def two_ways(env, networks, batch=40):
    """Trajectories sampled forwards from the policy, and backwards from every object."""
    rng = np.random.default_rng(0)
    draws = rng.random((env.max_steps, batch, env.num_actions)), rng.random((env.max_steps, batch))
    yield forward_rollout(env, lambda seen: networks.policy(seen).forward_logits, *draws, epsilon=0.5)
    graph = enumerate_states(env)
    final = jtu.tree_map(lambda x: x[graph.done], graph.states)
    uniform = rng.random((env.max_steps, int(graph.done.sum()), env.num_backward_actions))
    yield backward_rollout(env, lambda state: networks.policy(env.observe(state)).backward_logits, final, uniform)


@pytest.mark.parametrize("kind", ["uniform", "learned", "maxent"])
@pytest.mark.parametrize("world", WORLDS)
def test_every_residual_is_zero_at_the_exact_solution(world, kind):
    env = WORLDS[world]
    solved, flow = solution(env, kind)
    assert flow.state[0] == pytest.approx(enumerate_states(env).log_z, rel=1e-12)
    for batch in two_ways(env, solved[""]):
        for name in names_for(env):
            networks = solved.get(name, solved[""])
            needs = OBJECTIVES[name]().needs
            s = score(env, networks, batch, kind, needs)
            loss, terms = OBJECTIVES[name]()(s)
            assert loss < 1e-10, name
            assert all(part < 1e-10 for part in terms.parts.values())
        for decay in (0.1, 3.0):
            for way in ("batch", "trajectory"):
                s = score(env, solved[""], batch, kind, NEEDS)
                assert objectives.subtrajectory_balance(s, decay, way)[0] < 1e-10
        for way in ("trajectory", "separate"):
            assert objectives.flow_matching(score(env, solved["flow_matching"], batch, kind, FM), way)[0] < 1e-10
        # Each trajectory on its own tells log Z.
        s = score(env, solved[""], batch, kind)
        np.testing.assert_allclose(log_z_estimates(s), flow.state[0], rtol=1e-6)


@pytest.mark.parametrize("world", ["grid", "bits"])
def test_every_residual_sees_a_wrong_flow(world):
    """The counterpart: the same networks with one reward, probability or flow off are not a solution."""
    env = WORLDS[world]
    solved, flow = solution(env, "learned")
    rng = np.random.default_rng(5)
    for name in names_for(env):
        networks = solved.get(name, solved[""])
        policy = networks.policy
        off = type(policy)(
            policy.forward + 0.3 * rng.normal(size=policy.forward.shape),
            policy.backward,
            policy.log_flow,
            policy.place,
            policy.base,
        )
        for batch in two_ways(env, networks):
            loss, _ = OBJECTIVES[name]()(
                score(env, Networks(off, networks.log_z), batch, "learned", NEEDS - no_z(networks))
            )
            assert loss > 1e-3, name


def no_z(networks):
    return frozenset({"log_z"}) if networks.log_z is None else frozenset()


# Names and bounds


def test_unknown_objectives_list_the_known_ones():
    with pytest.raises(UnknownName) as error:
        objective("trajectory_ballance")
    for name in OBJECTIVES:
        assert name in str(error.value)
    assert "Did you mean 'trajectory_balance'?" in str(error.value)
    with pytest.raises(UnknownName, match="unknown objective 'ppo'"):
        problem(WORLDS["grid"], "ppo")


def test_aliases_name_objectives():
    for alias, name in objectives.ALIASES.items():
        assert objective(alias) == OBJECTIVES[name]()
        assert alias not in OBJECTIVES
    assert problem(WORLDS["grid"], "db").objective.name == "detailed_balance"


def test_needs_are_fields_of_scores():
    fields = set(scores_of("grid").__dataclass_fields__)
    for entry in OBJECTIVES.values():
        assert entry().needs <= fields


@pytest.mark.parametrize("decay", [0.0, -1.0, math.inf, math.nan])
def test_bad_decays(decay):
    with pytest.raises(TwinaxError, match="must be above 0 and finite"):
        objectives.SubtrajectoryBalance(decay=decay)


def test_options_that_an_objective_does_not_have():
    with pytest.raises(UnknownName, match="unknown way to normalise subtrajectory_balance 'separate'; known: batch"):
        objectives.SubtrajectoryBalance(normalise="separate")
    with pytest.raises(UnknownName, match="unknown way to normalise flow_matching 'x'; known: batch, separate"):
        objectives.FlowMatching(normalise="x")
    with pytest.raises(TwinaxError, match="SubtrajectoryBalance has no argument 'lambda_': it takes"):
        objectives.SubtrajectoryBalance(lambda_=0.5)
    with pytest.raises(TwinaxError, match="the decay .* must be a number|decay is 'half'"):
        objectives.SubtrajectoryBalance(decay="half")


def test_an_objective_of_ones_own_is_given_as_it_is():
    @dataclasses.dataclass(frozen=True)
    class Twice(objectives.DetailedBalance):
        factor: float = 2.0

        def __call__(self, s):
            loss, terms = super().__call__(s)
            return self.factor * loss, Terms({name: self.factor * part for name, part in terms.parts.items()})

    batch, networks = trajectories_of("grid"), Networks(random_policy(WORLDS["grid"]), None)
    plain, own = problem(WORLDS["grid"], "db"), problem(WORLDS["grid"], Twice(3.0))
    assert own.objective.name == "Twice" and own.present.describe()["objective"] == "Twice"
    assert own.loss(networks, batch)[0] == pytest.approx(3 * plain.loss(networks, batch)[0], rel=1e-9)

    class Wrong(Twice):
        needs = frozenset({"log_flows"})

    with pytest.raises(UnknownName, match="unknown field of Scores 'log_flows'.* Did you mean 'log_flow'"):
        problem(WORLDS["grid"], Wrong())


def test_the_loss_of_a_problem_is_normalised_as_it_says():
    batch = trajectories_of("grid")
    networks = Networks(random_policy(WORLDS["grid"]), None)
    for name, way in (("subtb", "trajectory"), ("fm", "trajectory"), ("fm", "separate")):
        chosen = dataclasses.replace(objective(name), normalise=way)
        loss, _ = problem(WORLDS["grid"], chosen).loss(networks, batch)
        wanted = chosen(scores_of("grid"))[0]
        assert loss == pytest.approx(wanted, rel=1e-6)
        assert loss != pytest.approx(problem(WORLDS["grid"], name).loss(networks, batch)[0], rel=1e-3)


def test_objectives_that_a_world_cannot_have():
    with pytest.raises(
        TwinaxError, match="modified_detailed_balance needs an environment in which every state can stop"
    ):
        problem(BitStrings(3), "modified_detailed_balance")
    with pytest.raises(TwinaxError, match="log_z is empty"):
        problem(WORLDS["grid"], "trajectory_balance", log_z=())


WEIGHTS = np.array([1, 3, 1, 2, 1, 1, 4, 1, 2, 1, 1])
AVERAGED = {
    "subtrajectory_balance": [{"normalise": "trajectory"}],
    "flow_matching": [{"normalise": "trajectory"}, {"normalise": "separate"}],
    "detailed_balance": [{"terminal_weight": 3.0}],
    "soft_dqn": [{"dueling": True}],
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_trajectory_counts_as_often_as_its_weight_says(name):
    s = scores_of("grid")
    s = dataclasses.replace(s, prior=dataclasses.replace(s, log_pf=0.7 * s.log_pf))

    def repeated(one):
        arrays = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
        named = {key: x for key, x in arrays.items() if key != "prior" and x is not None and np.ndim(x)}
        return dataclasses.replace(one, **{key: np.repeat(x, WEIGHTS, -1) for key, x in named.items()})

    again = dataclasses.replace(repeated(s), prior=repeated(s.prior))
    for options in ({}, *AVERAGED.get(name, [])):
        made = OBJECTIVES.find(name)(**options)
        (loss, terms), (wanted, parts) = (made(x) for x in (dataclasses.replace(s, weight=WEIGHTS), again))
        np.testing.assert_allclose(loss, wanted, rtol=1e-6)
        assert abs(wanted - made(s)[0]) > 1e-3 * abs(wanted), "or the test shows nothing"
        for part, value in parts.parts.items():
            np.testing.assert_allclose(terms.parts[part], value, rtol=1e-6)
        np.testing.assert_allclose(made.log_z(dataclasses.replace(s, weight=WEIGHTS)), made.log_z(again), rtol=1e-6)
