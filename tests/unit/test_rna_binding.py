"""Strands that bind a target: published energies where ViennaRNA is installed, and rules with energies by hand."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from twinax.conf import build_problem, compose
from twinax.envs import RNABinding, check_env, enumerate_states
from twinax.errors import TwinaxError


def by_hand(calls: list):
    """Energies that count pairs of letters which bind, place by place, from the end of the target."""

    def duplexfold(target: str, strand: str):
        calls.append(strand)
        pairs = sum(one + other in ("AU", "UA", "CG", "GC") for one, other in zip(target[::-1], strand, strict=False))
        return types.SimpleNamespace(energy=1.5 - pairs)

    module = types.ModuleType("RNA")
    module.duplexfold = duplexfold  # type: ignore[attr-defined]
    return module


@pytest.fixture
def calls(monkeypatch):
    called: list[str] = []
    monkeypatch.setitem(sys.modules, "RNA", by_hand(called))
    return called


def states(env: RNABinding, *strands: str):
    return env.states_of([["UCGA".index(letter) for letter in strand] for strand in strands])


def test_strands_are_paid_for_their_energy(calls):
    env = RNABinding("AAAACCCC", length=3, order="append", exponent=2.0, height=10.0, least_value=0.01)
    # The complement has energy 1.5 - 8, three eighths of which are the norm.
    norm = (1.5 - 8) * 3 / 8
    paid = np.exp(env.log_reward(states(env, "GGG", "GGA", "AAA")))
    expected = [10 * max((1.5 - pairs) / norm, 0.01) ** 2 for pairs in (3, 2, 0)]
    np.testing.assert_allclose(paid, expected)
    assert env.text(env.objects(states(env, "GGA")), 0) == "GGA"


def test_each_strand_is_asked_for_once(calls):
    env = RNABinding("AAAACCCC", length=3, order="both")
    graph = enumerate_states(env)
    assert int(graph.done.sum()) == 64
    asked = [strand for strand in calls if len(strand) == 3]
    assert len(asked) == len(set(asked)) == 64
    check_env(env, quick=True)


def test_the_command_line_takes_a_target(calls):
    problem = build_problem(compose(["env=rna", "env.target=2", "env.exponent=40"]))
    assert problem.env == RNABinding("2", exponent=40.0)
    assert len({RNABinding(target).strand for target in "123"}) == 3
    assert all(len(RNABinding(target).strand) == 100 for target in "123")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"target": "4"}, "target is '4'"),
        ({"target": "ACGT"}, "letters A, C, G, U"),
        ({"target": "A"}, "does not bind its own complement"),
        ({"exponent": 0.0}, "exponent is 0.0"),
        ({"least_value": 0.0}, "least_value is 0.0"),
    ],
)
def test_what_cannot_be_is_one_sentence(calls, options, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        RNABinding(**options)


def test_without_vienna_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "RNA", None)
    with pytest.raises(TwinaxError, match=r"pip install 'twinax\[rna\]'"):
        RNABinding()


def test_the_published_energies():
    pytest.importorskip("RNA")
    binding = RNABinding("1").box.function.binding  # type: ignore[attr-defined]
    assert binding.norm == pytest.approx(-36.414, abs=1e-3)
    for strand, strength in (
        ("AUGGGCCGGACCCC", 0.543746911),
        ("GCCCCGCCGGAAUG", 0.650848575),
        ("A" * 14, -0.074147306),
    ):
        assert binding.strength(strand) == pytest.approx(strength, abs=1e-8)
    env = RNABinding("1", exponent=1.0, height=1.0)
    paid = np.exp(env.log_reward(states(env, "AUGGGCCGGACCCC", "A" * 14)))
    assert paid.tolist() == pytest.approx([0.543746911, 1e-3])
    # 24,000 strands had the mean .30242 +- .00072, and the published sum over all says .30213.
    rows = np.random.default_rng(0).integers(0, 4, (1000, 14))
    values = np.exp(env.log_reward(env.states_of(rows)))
    assert abs(values.mean() - 0.30213) < 4 * values.std() / np.sqrt(len(values))
