"""Reports as people and programs read them, and JAX's precision afterwards."""

from __future__ import annotations

import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console

from twinax import parity
from twinax.parity._difference import compare, difference
from twinax.parity._precision import precision
from twinax.parity._report import Report


def rows(ours, theirs, tolerance=1e-9):
    return tuple(compare("values", "jax", "torch", ours, theirs, tolerance))


@pytest.fixture
def failed():
    theirs = {"a": np.zeros(3), "b": np.arange(6.0).reshape(2, 3), "c": np.ones(2), "d": np.ones(2)}
    wrong = theirs["b"].copy()
    wrong[1, 1] += 0.5
    found = rows({"a": np.zeros(3), "b": wrong, "c": np.ones(4)}, theirs)
    return Report(found, ("torch", "jax"), 1e-9, "float64", 11, "a moth in the relay.")


def test_a_difference_has_its_size_and_place(failed):
    assert [row.ok for row in failed.rows] == [True, False, False, False]
    first = failed.first_difference
    assert (first.item, first.absolute, first.relative, first.index) == ("b", 0.5, 0.1, (1, 1))
    assert "shape (4,) against (2,)" in failed.rows[2].note and "jax has no 'd'" in failed.rows[3].note


def test_small_numbers_are_judged_by_their_own_size():
    a = np.array([1e-2, 2e-2])
    assert not difference("values", "x", "jax", "torch", a * (1 + 1e-7), a, 1e-9).ok
    assert difference("values", "x", "jax", "torch", a * (1 + 1e-11), a, 1e-9).ok
    noise = np.array([1e-15, 0.0])
    assert difference("values", "x", "jax", "torch", noise, 0 * noise, 1e-9).ok


def test_infinities_agree_only_with_themselves():
    a = np.array([np.inf, 1.0])
    assert difference("values", "x", "jax", "torch", a, a, 1e-9).ok
    assert not difference("values", "x", "jax", "torch", -a, a, 1e-9).ok


def test_text_names_the_difference_and_the_cause(failed):
    text = str(failed)
    assert text.startswith("parity FAILED") and "'b' of jax differs from torch by 0.5" in text and "at [1, 1]" in text
    assert "likely cause: a moth in the relay." in text
    with pytest.raises(parity.Different, match="a moth in the relay") as caught:
        failed.raise_if_different()
    assert caught.value.report is failed and "\n" not in str(caught.value)


def test_a_report_without_differences():
    report = Report(rows({"a": np.ones(2)}, {"a": np.ones(2)}), ("torch", "jax"), 1e-9, "float64", 2)
    assert report.ok and report.first_difference is None and report.raise_if_different() is report
    assert str(report).startswith("parity ok: torch, jax agree: 1 comparisons of 2 parameters")


def test_json_is_complete_and_strict(failed):
    facts = json.loads(failed.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert facts["ok"] is False and facts["hint"] == failed.hint and len(facts["rows"]) == 4
    assert facts["first_difference"]["item"] == "b" and facts["rows"][2]["relative"] == "inf"


def test_the_table_is_rendered(failed):
    shown = io.StringIO()
    rich.console.Console(width=100, file=shown).print(failed.table())
    text = shown.getvalue()
    assert "values" in text and "'b' of jax differs" in text and "a moth in the relay" in text


@pytest.mark.parametrize("before", [False, True])
def test_precision_is_put_back(before):
    jax.config.update("jax_enable_x64", before)
    for dtype in ("float64", "float32"):
        with precision(dtype):
            jax.config.update("jax_enable_x64", True)  # as an engine for float64 does
            assert jnp.zeros(1, float).dtype == dtype
        assert jax.config.read("jax_enable_x64") is before
        with pytest.raises(RuntimeError), precision(dtype):
            raise RuntimeError
        assert jax.config.read("jax_enable_x64") is before


def test_precision_inside_a_context_does_not_leak():
    with jax.enable_x64(True), precision("float64"):
        jax.config.update("jax_enable_x64", True)
    assert jax.config.read("jax_enable_x64") is False


def test_a_check_leaves_single_precision(small):
    assert jax.config.read("jax_enable_x64") is False
    report = parity.check(small("trajectory_balance"), ("torch", "hybrid"), steps=1)
    assert report.ok and report.dtype == "float64"
    assert jax.config.read("jax_enable_x64") is False and jnp.zeros(1, float).dtype == "float32"
