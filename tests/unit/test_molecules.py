"""Molecules as strings of blocks: rules, RDKit's properties, pictures, distances, and sentences."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest

import twinax as tx
from twinax.envs import Molecules, Properties, check_env, enumerate_states
from twinax.envs._molecules import QM9_SMALL
from twinax.errors import TwinaxError

ASPIRIN, BENZENE = "CC(=O)Oc1ccccc1C(=O)O", "c1ccccc1"
NAMED = ("C", "O", "N", "CF", "C=O", "C=C", "C#C", "c1ccccc1", "C1CCCCC1", "C1CCNC1", "CCC")
needs_rdkit = pytest.mark.skipif(importlib.util.find_spec("rdkit") is None, reason="RDKit is not installed")


def test_strings_of_eleven_blocks():
    env = Molecules()
    assert env.num_letters == 11 and env.num_actions == 22 and env.max_steps == 5
    assert env.num_states == sum(11**k for k in range(6)) and env.default_network
    state = env.reset(1)
    for action in (7, 11 + 3, 1):  # benzene, CF behind, O in front
        state = env.step(state, np.array([action]))
    assert env.text(env.objects(state), 0) == "Oc1ccc(cc1)C(F)"
    assert Molecules(blocks=QM9_SMALL) == env and hash(Molecules()) == hash(env)


def test_wrong_options_are_one_sentence():
    wrong = {
        "unknown list of blocks 'qm8'": {"blocks": ("qm8",)},
        "the block 'C N' is no piece": {"blocks": ("C N", "C")},
        "the block C stands more than once": {"blocks": ("C", "C")},
        "unknown order": {"order": "sideways"},
    }
    for sentence, options in wrong.items():
        with pytest.raises(TwinaxError, match=sentence):
            Molecules(**options)
    for sentence, options in {
        "qed is -1": {"qed": -1.0},
        "least is 0": {"least": 0.0},
        "window must end above": {"log_p_from": 4.0},
    }.items():
        with pytest.raises(TwinaxError, match=sentence):
            Properties(**options)
    grid = tx.envs.Hypergrid(2, 3, reward=Properties())
    with pytest.raises(TwinaxError, match="Hypergrid has none; give it to tx.envs.Molecules"):
        grid.log_reward(grid.reset(1))


def test_without_rdkit_the_command_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    env = Molecules()
    with pytest.raises(TwinaxError, match=r"pip install 'twinax\[molecules\]'"):
        env.log_reward(env.states_of([[0, 1, 2, 3, 4]]))


@needs_rdkit
def test_published_properties():
    alone = {"qed": 0.0, "beta": 1.0}

    def paid(smiles, **options):
        return math.exp(Properties(**{**alone, **options}).log_reward_of(smiles))

    assert paid(ASPIRIN, qed=1.0) == pytest.approx(0.550122, abs=5e-7)
    assert paid(BENZENE, qed=1.0) == pytest.approx(0.442628, abs=5e-7)
    assert 10 - 9 * paid(ASPIRIN, synthesis=1.0) == pytest.approx(1.580040, abs=5e-6)
    assert 10 - 9 * paid(BENZENE, synthesis=1.0) == pytest.approx(1.0, abs=1e-6)
    # logP 1.3101 and 1.6866, measured by how far a window lies above them
    for smiles, value in ((ASPIRIN, 1.3101), (BENZENE, 1.6866)):
        assert paid(smiles, log_p=1.0) == 1
        outside = paid(smiles, log_p=1.0, log_p_from=3.0)
        assert 3 - math.sqrt(-2 * math.log(outside)) == pytest.approx(value, abs=5e-5)
    assert paid(ASPIRIN, weight=1.0) == pytest.approx(math.exp(-((180.159 - 300) ** 2) / 5000), rel=1e-4)
    product = paid(ASPIRIN, qed=2.0, synthesis=1.0, beta=3.0)
    assert product == pytest.approx((0.550122**2 * (10 - 1.580040) / 9) ** 3, rel=1e-5)


@needs_rdkit
def test_blocks_are_those_of_the_task_and_every_string_is_a_molecule():
    from rdkit import Chem

    assert [Chem.CanonSmiles(block) for block in QM9_SMALL] == [Chem.CanonSmiles(block) for block in NAMED]
    env = Molecules(length=2)
    graph = enumerate_states(env)
    assert graph.done.sum() == 121 and np.isfinite(graph.log_reward[graph.done]).all()
    best = int(graph.log_reward.argmax())
    direct = Properties().log_reward_of(env.text(env.objects(graph.states), best))
    assert graph.log_reward[best] == pytest.approx(direct)


@needs_rdkit
def test_rules_hold_in_all_frameworks():
    report = check_env(Molecules(length=2, blocks=("C", "O", "C(=O)")))
    assert report.enumerated and report.frameworks == ("numpy", "jax", "torch")
    check_env(Molecules(), quick=True)


@needs_rdkit
def test_another_reward_by_with_reward_knows_the_blocks():
    bell = Properties(qed=0.0, weight=1.0, beta=1.0)
    env = Molecules().with_reward(bell)
    state = env.states_of([[7] * 5, [0] * 5])
    expected = [bell.log_reward_of("c1ccc(cc1)" * 5), bell.log_reward_of("CCCCC")]
    np.testing.assert_allclose(env.log_reward(state), expected)
    assert expected[1] == pytest.approx(-((72.151 - 300) ** 2) / 5000, rel=1e-4)


@needs_rdkit
def test_distances_are_of_fingerprints():
    env = Molecules(length=3)
    letters = np.array(
        [[7, 0, 1], [1, 0, 7], [0, 0, 0], [7, 0, 2]]
    )  # the first two are one molecule, read from its ends
    distance = env.distance(letters, letters)
    np.testing.assert_allclose(distance, distance.T)
    assert distance[0, 1] == 0 and 0 < distance[0, 3] < distance[0, 2] < 1


@needs_rdkit
def test_a_string_that_rdkit_refuses_is_one_sentence():
    for blocks, said in ((("C", "F"), "Explicit valence for atom"), (("C", "C1CC"), "cannot be read|cannot read")):
        env = Molecules(length=3, blocks=blocks)
        with pytest.raises(TwinaxError, match=said) as error:
            env.log_reward(env.states_of([[0, 1, 0]]))
        assert "C" + blocks[1] + "C" in str(error.value) and "\n" not in str(error.value)


@needs_rdkit
def test_molecules_are_drawn():
    env = Molecules()
    drawn = env.draw(env.states_of([[7, 3, 0, 1, 8]]).letters, 0)
    assert drawn is not None and drawn.dtype == np.uint8 and drawn.shape == (240, 240, 3) and drawn.std() > 5
