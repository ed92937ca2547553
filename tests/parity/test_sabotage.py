"""A check that cannot fail proves nothing: one engine is broken on purpose, and the report must say where and why."""

from __future__ import annotations

import dataclasses

import pytest

from twinax import ops, parity
from twinax.engines import torch_engine
from twinax.gflownet import objectives
from twinax.problem import Terms


@pytest.fixture
def sabotage(monkeypatch):
    """Replace an objective by one that is changed in one framework only."""

    def apply(name, framework, change):
        honest = objectives.OBJECTIVES[name].__call__

        def broken(self, scores):
            loss, terms = honest(self, scores)
            return change(scores, loss, terms) if ops.framework(scores.log_pf) == framework else (loss, terms)

        monkeypatch.setattr(objectives.OBJECTIVES[name], "__call__", broken)

    return apply


def test_a_factor_of_two_in_jax(small, sabotage):
    sabotage("trajectory_balance", "jax", lambda s, loss, terms: (2 * loss, terms))
    report = parity.check(small("trajectory_balance"), ("torch", "jax"), steps=2)
    first = report.first_difference
    assert (first.rung, first.item, first.side, first.against) == ("values", "loss", "jax", "torch")
    assert "factor of two" in report.hint and "NumPy reference agrees with torch" in report.hint
    assert not any(row.rung == "training" for row in report.rows)
    with pytest.raises(parity.Different, match=r"'loss' of jax differs from torch.*Likely cause: .*factor of two"):
        report.raise_if_different()


def test_a_mean_over_padding_in_jax(small, sabotage):
    """The padded residuals are 0, so only the divisor is wrong."""

    def change(s, loss, terms):
        share = ops.mean(ops.where(s.valid, 1.0, 0.0))
        return share * loss, Terms({name: share * part for name, part in terms.parts.items()})

    sabotage("detailed_balance", "jax", change)
    report = parity.check(small("detailed_balance"), ("torch", "hybrid"), steps=2)
    assert (report.first_difference.rung, report.first_difference.item) == ("values", "terminal_loss")
    assert "mask" in report.hint and "rows in use" in report.hint


def test_padding_that_counts_in_jax(small, sabotage):
    """The value moves with the padded length in no simple ratio."""

    def change(s, loss, terms):
        more = ops.mean(ops.square(ops.where(s.valid, s.log_pf, 0.3)))
        return loss + more, Terms({**terms.parts, "inner_loss": terms.parts["inner_loss"] + more})

    sabotage("detailed_balance", "jax", change)
    # The longest trajectory of this seed's first batch has 5 of the 7 possible steps.
    report = parity.check(small("detailed_balance"), ("torch", "jax"), steps=2, seed=1)
    assert (report.first_difference.rung, report.first_difference.item) == ("values", "inner_loss")
    assert "padding of the time axis" in report.hint and "mask" in report.hint


def test_a_term_that_is_not_differentiated_in_torch(small, sabotage):
    sabotage(
        "detailed_balance",
        "torch",
        lambda s, loss, terms: (
            loss - terms.parts["terminal_loss"] + ops.stop_gradient(terms.parts["terminal_loss"]),
            Terms({**terms.parts, "terminal_loss": ops.stop_gradient(terms.parts["terminal_loss"])}),
        ),
    )
    report = parity.check(small("detailed_balance"), ("torch", "jax"), steps=2)
    assert all(row.ok for row in report.rows if row.rung == "values")
    first = report.first_difference
    assert first.rung == "gradients" and first.item.startswith("terminal_loss d policy.layers.")
    assert "gradient of 'terminal_loss' is exactly 0 in torch" in report.hint


def test_a_term_counted_but_not_differentiated(small, sabotage):
    """What an entropy bonus once was in five published agents: logged right, with no effect on training."""

    def change(s, loss, terms):
        part = terms.parts["terminal_loss"]
        return loss - part + ops.stop_gradient(part), terms

    sabotage("detailed_balance", "jax", change)
    report = parity.check(small("detailed_balance"), ("torch", "jax"), steps=2)
    first = report.first_difference
    assert (first.rung, first.item, first.side) == ("gradients", "sum of the parts", "jax")
    assert "the loss differentiates 'terminal_loss' 0 times" in first.describe()
    assert "counted but not differentiated" in report.hint and "'terminal_loss'" in report.hint


def test_other_optimizer_settings_in_torch(small, monkeypatch):
    honest = torch_engine.TorchUpdate.__init__

    def broken(self, recipe, networks, moments, *rest):
        honest(self, dataclasses.replace(recipe, beta2=0.99), networks, moments, *rest)

    monkeypatch.setattr(torch_engine.TorchUpdate, "__init__", broken)
    report = parity.check(small("trajectory_balance"), ("torch", "jax"), steps=2)
    assert report.first_difference.rung == "optimizer"
    assert "optimizer's settings" in report.hint
    wrong = {row.side for row in report.rows if not row.ok}
    assert wrong == {"jax", "numpy"}  # the reference itself is the one that is wrong


def test_other_actions_in_torch(small, monkeypatch):
    import torch

    def always_stop(x):
        return torch.full(x.shape[:-1], x.shape[-1] - 1, dtype=torch.int32)

    monkeypatch.setattr("twinax.ops._torch.argmax", always_stop)
    report = parity.check(small("trajectory_balance"), ("torch", "jax"), steps=2)
    assert report.first_difference.rung == "collect"
    assert any(row.item == "batch.length" and not row.ok for row in report.rows)
    assert "equal draws gave different samples" in report.hint


def test_parameters_that_are_not_synchronised(small, monkeypatch):
    from twinax.bridge import ParameterSync

    monkeypatch.setattr(ParameterSync, "push", lambda self, source: None)
    report = parity.check(small("trajectory_balance"), ("torch", "hybrid"), steps=60)
    first = report.first_difference
    assert first.rung == "training" and first.note.startswith("first at step ")
    assert int(first.note.split()[-1]) > 1
    assert "not synchronised" in report.hint


def test_a_run_that_breaks_in_one_mode(small, monkeypatch):
    from twinax.engines import NonFinite
    from twinax.engines.jax_engine import JaxEngine

    def broken(self, steps):
        raise NonFinite(7, "log_z", float("inf"))

    monkeypatch.setattr(JaxEngine, "_run", broken)
    report = parity.check(small("trajectory_balance"), ("torch", "jax"), steps=2)
    assert (report.first_difference.rung, report.first_difference.item) == ("training", "log_z")
    assert "at step 7" in report.first_difference.describe()
