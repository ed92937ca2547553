"""Rows that many states show are read once: the same numbers and gradients as where each state is read by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import torch

from twinax import bridge, parity
from twinax.envs import PhylogeneticTree
from twinax.envs import _made_rows as made_rows
from twinax.gflownet import (
    LocalSearchOptions,
    MetricOptions,
    PolicyOptions,
    ReplayOptions,
    TargetOptions,
    forward_rollout,
    problem,
    score,
)
from twinax.gflownet._reading import Reader, rows_read
from twinax.gflownet._undoing import undo
from twinax.networks import Items, NetworkSpec, PairNetwork, SharedItems
from twinax.tree import map_leaves, named_leaves

PAIRS = PairNetwork(width=8, layers=2, heads=2, feedforward=8, hidden=(6,))
NEEDS = frozenset({"log_flow", "log_z", "state_log_energy", "state_log_reward", "log_outflow", "logit"})
COLUMNS = pytest.mark.parametrize("columns", ["telling", "all"])


class Plain(PhylogeneticTree):
    """The same world, which does not say that its rows are made once."""

    made_rows = None  # type: ignore[assignment]


def small(kind=PhylogeneticTree, columns="telling", objective="forward_looking", network=PAIRS, **more):
    env = kind(taxa=6, sites=30, columns=columns)
    return problem(env, objective, batch_size=4, network=network, metrics=MetricOptions(fifo=12, samples=8), **more)


def walked(made):
    """Float64 networks and trajectories in NumPy."""
    networks, rng = made.init(0).networks, np.random.default_rng(1)
    networks = map_leaves(lambda x: x.astype(np.float64), networks)
    draws = {name: rng.random(draw.shape) for name, draw in made.draws().items()}
    return (
        networks,
        draws,
        forward_rollout(made.env, Reader.of(made.env, networks.policy), draws["action"], draws["explore"]),
    )


@pytest.fixture(params=[False, True], ids=["together", "in crowds"])
def in_crowds(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(made_rows, "LEAST_CROWDED", 0)


@COLUMNS
def test_a_rollout_that_reads_new_rows_alone_is_that_of_whole_observations(columns, in_crowds):
    made = small(columns=columns)
    networks, draws, walks = walked(made)
    assert rows_read(made.env, networks.policy) is not None and rows_read(small(Plain).env, networks.policy) is None
    whole = forward_rollout(
        made.env, lambda seen: networks.policy(seen).forward_logits, draws["action"], draws["explore"]
    )
    np.testing.assert_array_equal(walks.actions, whole.actions)
    reader, plain = Reader.of(made.env, networks.policy), Reader(made.env, lambda seen: networks.policy(seen)[0])
    memory = reader.start(made.env.reset(4), made.env.max_steps)
    for t in range(6):
        state = map_leaves(lambda x, t=t: x[t], walks.states)
        logits, memory = reader.step(memory, state, t)
        mask = made.env.forward_mask(state)
        np.testing.assert_allclose(logits[mask], plain.step((), state, t)[0][mask], rtol=1e-12, atol=1e-13)


@COLUMNS
@pytest.mark.parametrize("way", ["forwards", "backwards", "in a size"])
@pytest.mark.parametrize("network", [PAIRS, "mlp"], ids=["pairs", "mlp"])
def test_scores_are_those_of_each_state_by_itself(columns, way, network, in_crowds):
    made, plain = (small(kind, columns, network=network) for kind in (PhylogeneticTree, Plain))
    networks, draws, walks = walked(made)
    if way == "backwards":
        walks = undo(made.env, networks, "learned", walks.last, draws["action"][:, :, :1])
    networks = dataclasses.replace(networks, log_z=np.ones(1))
    size = walks.actions.size + 40 if way == "in a size" else None
    found, wanted = (score(one.env, networks, walks, "learned", NEEDS, size) for one in (made, plain))
    for name in ("log_pf", "log_pb", "log_reward", *(NEEDS - {"log_z"})):
        one, other = getattr(found, name), getattr(wanted, name)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=name)
        assert np.abs(other).sum() > 0


@pytest.mark.parametrize(("kind", "columns"), [("torch", "all"), ("jax", "telling")])
def test_gradients_are_those_of_each_state_by_itself(kind, columns, in_crowds, quick_compilation):
    convert = {"torch": bridge.to_torch, "jax": bridge.to_jax}[kind]
    with jax.enable_x64(True):
        found = []
        for world in (PhylogeneticTree, Plain):
            made = small(world, columns, policy=PolicyOptions(backward="learned"))
            networks, _, walks = walked(made)
            networks, walks = convert(networks), convert(walks)
            if kind == "jax":
                loss = jax.jit(jax.grad(lambda n, w, made=made: made.loss(n, w)[0], allow_int=True))
                found.append(loss(networks, walks))
                continue
            leaves = {name: x.requires_grad_() for name, x in named_leaves(networks).items()}
            gradients = torch.autograd.grad(made.loss(networks, walks)[0], list(leaves.values()))
            found.append(dict(zip(leaves, gradients, strict=True)))
        first, second = (named_leaves(one) for one in found)
        for name, gradient in first.items():
            np.testing.assert_allclose(gradient, second[name], rtol=1e-10, atol=1e-12, err_msg=name)
        assert sum(np.abs(np.asarray(x)).sum() > 0 for x in second.values()) > 10


@COLUMNS
def test_trees_grow_merge_by_merge_as_they_are_worked_out_at_once(columns):
    made = small(columns=columns)
    env: Any = made.env
    rows = env.made_rows
    _, _, walks = walked(made)
    known = rows.known(env.reset(4))
    for t in range(1, 6):
        state = map_leaves(lambda x, t=t: x[t], walks.states)
        known, number = rows.grown(known, state)
        whole, there = rows.known(state), state.size > 0
        for name in ("sets", "changes", "size"):
            np.testing.assert_array_equal(getattr(known, name)[there], getattr(whole, name)[there], err_msg=name)
        assert (state.size[np.arange(4), number] > 1).all()
        # Looked up among what is known of the ends, it is what the state alone says.
        bound = env.knowing(rows.known(walks.last), np.arange(4))
        np.testing.assert_array_equal(bound.changes(state), env.changes(state))
        np.testing.assert_array_equal(bound.observe(state).features, env.observe(state).features)
        shown = rows.shown(rows.known(walks.last), state, np.arange(4, dtype=np.int32)).items()
        np.testing.assert_array_equal(shown.features[state.root], env.observe(state).features[state.root])


def test_a_network_reads_shared_items_as_items_in_crowds_or_not():
    rng = np.random.default_rng(2)
    present = rng.random((5, 4)) < 0.5
    present[:, 2] = True
    present[3:, 1:] = [False, True, False]
    rows, index = rng.normal(size=(7, 3)), rng.integers(0, 7, (5, 4)).astype(np.int32)
    spec = NetworkSpec("policy", Items(rows[index][:1], present[:1]), {"forward": 6, "backward": 4, "flow": 1})
    net = map_leaves(lambda x: x.astype(np.float64), PAIRS(rng, spec))
    wanted = net(Items(rows[index], present))
    one, other = np.triu_indices(4, 1)
    seen = np.concatenate([present[:, one] & present[:, other], present, np.ones((5, 1), bool)], 1)
    for crowds in ((), ((5, 4),), ((3, 4), (2, 2)), ((2, 4), (1, 4), (2, 2))):
        found = net(SharedItems(rows, index, present, crowds))
        np.testing.assert_allclose(found[seen], wanted[seen], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("objective", "more"),
    [
        ("forward_looking", {"targets": TargetOptions(rate=0.1)}),
        pytest.param(
            "detailed_balance",
            {"replay": ReplayOptions(size=40, batch_size=2), "local_search": LocalSearchOptions(rounds=1, steps=2)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_modes_agree(objective, more, quick_compilation, monkeypatch):
    monkeypatch.setattr(made_rows, "LEAST_CROWDED", 0)
    parity.check(small(objective=objective, **more), steps=2).raise_if_different()
