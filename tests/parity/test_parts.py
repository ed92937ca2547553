"""The parts of every family's loss: they add up, they are learned, and an engine that is wrong in one of them is found
and the part is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import small_problems as tiny

from twinax import offline, ops, parity
from twinax.errors import TwinaxError
from twinax.gflownet import objectives
from twinax.parity._check import _Ladder
from twinax.parity._precision import precision
from twinax.problem import Terms, logging

pytestmark = pytest.mark.usefixtures("quick_compilation")

QUICK = ("rebrac", "hilp", "fb_repr")
"""Offline agents that are looked at in every run of the tests; between them they have every kind of part."""
CASES = {
    **{f"gflownet {name}": lambda name=name: tiny.gflownet(name) for name in objectives.OBJECTIVES},
    "iqn": tiny.agents_of_two_kinds,
    "ppo": tiny.balancing,
    "ppo squashed": tiny.squashed,
    "ppo amp": tiny.with_style,
    **{f"offline {name}": lambda name=name: tiny.agent(name) for name in offline.AGENTS},
}
SLOW = {f"offline {name}" for name in offline.AGENTS if name not in QUICK}


def detached(loss, parts, name):
    return loss - parts[name] + ops.stop_gradient(parts[name]), {**parts, name: ops.stop_gradient(parts[name])}


def doubled(loss, parts, name):
    return loss + parts[name], {**parts, name: 2 * parts[name]}


def dropped(loss, parts, name):
    return loss - parts[name], {key: part for key, part in parts.items() if key != name}


def detached_in_the_loss(loss, parts, name):
    return detached(loss, parts, name)[0], parts


def doubled_in_the_loss(loss, parts, name):
    return doubled(loss, parts, name)[0], parts


def dropped_from_the_loss(loss, parts, name):
    return dropped(loss, parts, name)[0], parts


WAYS = (detached, doubled, dropped, detached_in_the_loss, doubled_in_the_loss, dropped_from_the_loss)


class Subject:
    """A problem up to its loss: JAX as it is, PyTorch with a loss that a test may break."""

    def __init__(self, problem):
        self.problem, self.honest, self.change = problem, problem.loss, None
        object.__setattr__(problem, "loss", self.broken(problem.loss, ""))
        if getattr(problem, "hooks", None) is not None:
            found = problem.hooks.losses

            def losses(*given):
                return {name: (self.stable(name, loss), batch) for name, (loss, batch) in found(*given).items()}

            object.__setattr__(problem, "hooks", dataclasses.replace(problem.hooks, losses=losses))
        self.kept = {}
        self.ladder = _Ladder(problem, ("jax", "torch"), 1, 0, 1e-9, "float64")
        assert all(row.ok for row in self.ladder.collect())

    def stable(self, name, loss):
        """One function for each loss, so that what JAX has compiled is used again."""
        return self.kept.setdefault(name, self.broken(loss, f"{name}."))

    def broken(self, loss, prefix):
        def function(networks, batch, size=None):
            value, terms = loss(networks, batch, size)
            name = None if self.change is None else self.change[0].removeprefix(prefix)
            if self.change is None or name not in {**terms.parts, "loss": value}:
                return value, terms
            if ops.framework(value) != "torch" or not self.change[0].startswith(prefix):
                return value, terms
            if name == "loss":
                return self.change[1](value, {"loss": value}, "loss")[0], terms
            value, parts = self.change[1](value, terms.parts, name)
            return value, Terms(parts, terms.shown, terms.arrays)

        return function

    def rows(self, change=None):
        self.change = change
        return list(self.ladder.loss())


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_parts_add_up_are_learned_and_are_named_when_one_is_wrong(name):
    with precision("float64"):
        subject = Subject(CASES[name]())
        rows = subject.rows()
        assert all(row.ok for row in rows), next(row.describe() for row in rows if not row.ok)
        assert not any(row.note for row in rows), "a part that nothing is learned from"
        sums = {(row.rung, row.side, row.against) for row in rows if row.item == "sum of the parts"}
        gradients = {row.item.split(" d ")[0] for row in rows if row.rung == "gradients"} - {"sum of the parts"}
        whole = {part for part in gradients if part.split(".")[-1] == "loss"}
        parts = gradients - whole
        sides = ("jax", "torch", "numpy")
        if parts:
            expected = {("values", side) for side in sides} | {("gradients", side) for side in sides[:2]}
            assert {found[:2] for found in sums} == expected
        for part in sorted(parts) or ["loss"]:
            for way in WAYS if parts else (detached, doubled):
                first = next((row for row in subject.rows((part, way)) if not row.ok), None)
                assert first is not None, f"{part} {way.__name__} is not found"
                text = f"{first.item} {first.note}"
                assert part in text and "torch" in (first.side, first.against), (part, way.__name__, first.describe())


def test_a_part_that_nobody_learns_from_is_said(monkeypatch):
    """Detached everywhere, all sides agree; but its value moves, and its gradient does not follow."""
    made = tiny.balancing()
    honest = made.loss

    def loss(networks, batch, size=None):
        value, terms = honest(networks, batch, size)
        value, parts = detached(value, terms.parts, "entropy_loss")
        return value, Terms(parts, terms.shown)

    object.__setattr__(made, "loss", loss)
    report = parity.check(made, ("torch", "jax"), steps=1).raise_if_different()
    assert len(report.notes) == 1 and "'entropy_loss': it reaches no parameter" in report.notes[0]
    assert "note: 'entropy_loss': it reaches no parameter" in str(report)


def test_a_part_without_weight_is_a_constant():
    made = dataclasses.replace(tiny.balancing(), ent_coef=0.0)
    assert not parity.check(made, ("torch", "jax"), steps=1).raise_if_different().notes


def test_terms_have_names_of_their_own():
    with pytest.raises(TwinaxError, match="two terms of a loss are called 'entropy'"):
        Terms({"entropy": np.zeros(())}, {"entropy": np.zeros(())})
    with pytest.raises(TwinaxError, match="two terms of a loss are called 'grad_norm'"):
        Terms(shown={"grad_norm": np.zeros(())})


def test_a_loss_with_a_dict_is_told_what_to_return():
    with pytest.raises(TwinaxError, match=r"returned \(float, dict\); return \(scalar, twinax.Terms\(parts, shown\)\)"):
        logging(lambda networks, batch: (0.0, {"a": 1.0}))(None, None)


# One owner of the optimizer's state


SEPARATE = {
    "gflownet": lambda **o: tiny.gflownet("trajectory_balance", clip_norm=0.1, **o),
    "iqn": tiny.agents_of_two_kinds,
    "ppo amp": tiny.with_style,
    "offline": lambda **o: tiny.agent("rebrac", clip_norm=0.1, **o),
}


@pytest.mark.parametrize("name", SEPARATE)
def test_networks_with_optimizers_of_their_own_are_proven(name):
    steps = 4
    made = SEPARATE[name](separate=True)
    report = parity.check(made, steps=steps).raise_if_different()
    counts = {row.item for row in report.rows if row.item.startswith("optimizer.count.")}
    assert len(counts) > 1 and {row.rung for row in report.rows} >= {"optimizer", "training"}


def test_the_discriminator_is_proven_as_well():
    report = parity.check(tiny.with_style(), ("torch", "jax"), steps=1).raise_if_different()
    items = {row.item for row in report.rows}
    assert {"discriminator.style_loss", "discriminator.style_penalty_loss", "policy_loss", "entropy_loss"} <= items
    assert any(item.startswith("discriminator.style_penalty_loss d discriminator.layers.") for item in items)
