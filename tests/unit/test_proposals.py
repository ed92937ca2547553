"""Proposals leave R / Z as it is: by the exact transition matrix on worlds of a few objects."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.tree_util as jtu
import numpy as np
import pytest

from twinax.envs import Environment, Hypergrid, Spins, enumerate_states
from twinax.errors import UnknownName
from twinax.gflownet._proposals import accept_log_ratio, accepted, log_acceptance

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

REWARDS = np.array([0.0625, 0.125, 0.1875, 0.625])


@dataclass(frozen=True)
class Walk:
    """A path of a world from a state to an object: what a `Scores` of one trajectory says."""

    log_reward: Any
    log_pf: Any
    log_pb: Any


@dataclass(frozen=True)
class Four:
    """Rewards of the four strings of two bits."""

    def log_reward(self, env, state):
        from twinax import ops

        number = ops.sum(ops.cast(state.bits > 0, "int32") * ops.like(np.array([2, 1]), state.bits), -1)
        return ops.take(ops.like(np.log(REWARDS), state.bits), ops.cast(number, "int32"))


def policies(graph, env: Environment, seed: int):
    """Random log P_F and log P_B of each edge of an enumeration."""
    rng = np.random.default_rng(seed)
    forward, back = rng.normal(size=len(graph.source)) * 1.5, rng.normal(size=len(graph.source)) * 1.5
    total = np.full(len(graph.done), -np.inf)
    np.logaddexp.at(total, graph.source, forward)
    into = np.full(len(graph.done), -np.inf)
    np.logaddexp.at(into, graph.target, back)
    return forward - total[graph.source], back - into[graph.target]


def walks(graph, log_pf, log_pb, start: int) -> list[tuple[int, Walk]]:
    """Every path from a state to an object, with the object."""
    if graph.done[start]:
        return [(start, Walk(graph.log_reward[start : start + 1], np.zeros((0, 1)), np.zeros((0, 1))))]
    found = []
    for edge in np.flatnonzero(graph.source == start):
        for end, rest in walks(graph, log_pf, log_pb, graph.target[edge]):
            pf = np.concatenate([log_pf[[edge]][:, None], rest.log_pf])
            pb = np.concatenate([log_pb[[edge]][:, None], rest.log_pb])
            found.append((end, Walk(rest.log_reward, pf, pb)))
    return found


def transition_matrix(env: Environment, back: int | None, ratio, rule: str = "metropolis", seed: int = 3):
    """The exact matrix of the chain over objects, and R / Z.

    From an object go back so many steps (None: to the source) in every way, and forward in every way.
    """
    graph = enumerate_states(env)
    log_pf, log_pb = policies(graph, env, seed)
    objects = np.flatnonzero(graph.done)
    place = {int(state): k for k, state in enumerate(objects)}
    matrix = np.zeros((len(objects), len(objects)))
    for state in range(len(graph.done)):
        ways = walks(graph, log_pf, log_pb, state)
        if state and back is None:
            continue
        for here, old in ways:
            for there, new in ways:
                if back is not None and not len(old.log_pf) == len(new.log_pf) == back:
                    continue
                proposed = old.log_pb.sum() + new.log_pf.sum()
                accept = np.exp(log_acceptance(ratio(old, new), rule))[0]
                matrix[place[int(here)], place[int(there)]] += np.exp(proposed) * accept
    matrix += np.diag(1 - matrix.sum(1))
    return matrix, np.exp(graph.log_reward[objects] - graph.log_z)


def inverted(old: Walk, new: Walk):
    """All probabilities with the wrong sign, as two libraries have it."""
    return 2 * (new.log_reward - old.log_reward) - accept_log_ratio(old, new)


STRINGS = BitStrings(2).with_reward(Four())


@pytest.mark.parametrize("rule", ["metropolis", "barker"])
@pytest.mark.parametrize("back", [1, 2])
def test_the_target_is_invariant(back, rule):
    matrix, target = transition_matrix(STRINGS, back, accept_log_ratio, rule)
    assert (matrix > -1e-15).all() and matrix.sum(1) == pytest.approx(1.0)
    assert sorted(target) == pytest.approx(sorted(REWARDS))
    np.testing.assert_allclose(target @ matrix, target, atol=1e-14)
    # Each pair balances, which is more.
    np.testing.assert_allclose(target[:, None] * matrix, (target[:, None] * matrix).T, atol=1e-14)
    assert (matrix[~np.eye(4, dtype=bool)] > 0).sum() >= 8, "a chain that never moves would pass"


@pytest.mark.parametrize("back", [1, 2])
def test_the_inverted_sign_has_another_law(back):
    matrix, target = transition_matrix(STRINGS, back, inverted)
    assert np.abs(target @ matrix - target).max() > 0.01
    stationary = np.linalg.matrix_power(matrix, 4096)[0]
    assert 0.5 * np.abs(stationary - target).sum() > 0.1


def test_spins_and_longer_ways():
    env = Spins.of(np.array([[0, 0.4, -0.3], [0.4, 0, 0.2], [-0.3, 0.2, 0]]), np.array([0.5, -0.2, 0.1]))
    for back in (1, 2, 3):
        matrix, target = transition_matrix(env, back, accept_log_ratio)
        np.testing.assert_allclose(target @ matrix, target, atol=1e-14)


def test_ways_of_unequal_length_have_to_go_back_to_the_source():
    grid = Hypergrid(2, 2)
    matrix, target = transition_matrix(grid, None, accept_log_ratio)
    np.testing.assert_allclose(target @ matrix, target, atol=1e-14)
    wrong, _ = transition_matrix(grid, None, inverted)
    assert np.abs(target @ wrong - target).max() > 0.001


def test_what_two_trajectories_share_cancels():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2, 2, 5))
    parts = [Walk(rng.normal(size=5), rng.normal(size=(3, 5)), rng.normal(size=(3, 5))) for _ in range(2)]
    whole = [
        Walk(w.log_reward, np.concatenate([shared[0], w.log_pf]), np.concatenate([shared[1], w.log_pb])) for w in parts
    ]
    np.testing.assert_allclose(accept_log_ratio(*parts), accept_log_ratio(*whole), atol=1e-13)


def test_every_framework_agrees():
    import jax.numpy as jnp
    import torch

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((5,), (3, 5), (3, 5)) * 2]
    wanted = accept_log_ratio(Walk(*arrays[:3]), Walk(*arrays[3:]))
    uniform = np.linspace(0.1, 0.9, 5, dtype=np.float32)
    for convert in (jnp.asarray, torch.from_numpy):
        made = jtu.tree_map(convert, arrays)
        ratio = accept_log_ratio(Walk(*made[:3]), Walk(*made[3:]))
        np.testing.assert_allclose(np.asarray(ratio), wanted, rtol=1e-5)
        for rule in ("metropolis", "barker"):
            np.testing.assert_array_equal(
                np.asarray(accepted(ratio, convert(uniform), rule)), accepted(wanted, uniform, rule)
            )


def test_an_unknown_rule_is_refused():
    with pytest.raises(UnknownName, match="metropolis"):
        log_acceptance(np.zeros(1), "always")
