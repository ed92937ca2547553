"""The 95 % interval of a mean against a table of Student's t, and that every place which shows one uses it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import twinax
from twinax.envs import CartPole
from twinax.interval import half_width
from twinax.offline._tasks import judged
from twinax.ppo import problem

T = {2: 12.7062, 3: 4.3027, 5: 2.7764, 11: 2.2281, 31: 2.0423, 121: 1.9799}
"""t(0.975, n - 1) from a table, by n."""


@pytest.mark.parametrize("number", T)
def test_by_a_table_of_students_t(number):
    values = np.random.default_rng(number).normal(3, 2, number)
    deviation = np.sqrt(sum((x - values.mean()) ** 2 for x in values) / (number - 1))
    assert half_width(values) == pytest.approx(T[number] * deviation / np.sqrt(number), rel=1e-4)


def test_over_the_last_axis():
    rows = np.array([[0.0, 2.0], [1.0, 1.0]])
    np.testing.assert_allclose(half_width(rows), [12.7062 * np.sqrt(2) / np.sqrt(2), 0], rtol=1e-4)


def test_one_value_has_no_interval():
    assert np.isnan(half_width([4.0])) and np.isnan(half_width(np.ones((3, 1)))).all()


def episodes(*returns: float) -> dict:
    each = np.array(returns)
    return {"returns": each, "lengths": each, "survived": each * 0, "terms": {}, "successes": each}


@pytest.mark.parametrize(
    ("judge", "name"),
    [(problem(CartPole()).judge.summarise, "episode_return"), (judged, "return"), (judged, "success")],
)
def test_evaluations_have_it(judge, name):
    found = judge(episodes(1.0, 2.0))
    assert found[f"{name}_ci"] == pytest.approx(12.7062 * np.sqrt(0.5) / np.sqrt(2), rel=1e-4)
    # Of a single episode there is none, and a width of 0 would be a claim.
    assert f"{name}_ci" not in judge(episodes(1.0)) and name in judge(episodes(1.0))


def test_there_is_no_other_formula():
    root = Path(twinax.__file__).parents[1]
    files = [path for folder in ("twinax", "benchmarks", "baselines") for path in (root / folder).rglob("*.py")]
    written = {
        path.relative_to(root).as_posix()
        for path in files
        if re.search(r"\b1\.96\b|stdtrit|\bt\.ppf\b", path.read_text())
    }
    assert written == {"twinax/interval.py"}
