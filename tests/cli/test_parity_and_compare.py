"""Proof before speed: parity's exit codes, and no ratio without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinax.cli import _child, _compare


def test_parity_passes(twinax, tiny):
    done = twinax("parity", *tiny, "parity.steps=3", "objective=db", "parity.modes=[torch,jax]", "run.dir=here")
    assert done.code == 0, done.err
    assert "torch, jax agree over 3 training steps" in done.out
    assert json.loads(Path("here/parity.json").read_text())["ok"] is True


def test_parity_fails_with_exit_1_and_names_the_first_difference(twinax, tiny):
    """No two engines agree to 1e-30."""
    overrides = ["parity.steps=2", "parity.modes=[torch,jax]", "parity.tolerance=1e-30", "run.dir=here"]
    done = twinax("parity", *tiny, *overrides)
    assert done.code == 1
    assert "differs from torch" in done.out and "likely cause" in done.out
    written = json.loads(Path("here/parity.json").read_text())
    assert written["ok"] is False
    assert written["first_difference"]["item"] in done.out


@pytest.mark.parametrize(
    "words", ["ppo", "ppo env=pendulum compat=brax", pytest.param("biped ppo.pool=8", marks=pytest.mark.slow)]
)
def test_parity_of_ppo_as_a_new_user_asks_for_it(twinax, words):
    """Small sizes, and nothing said of steps or tolerances."""
    small = ["ppo.num_envs=4", "ppo.num_steps=8", "ppo.hidden=[8]", "parity.modes=[torch,jax]", "run.dir=here"]
    done = twinax("parity", *f"experiment={words}".split(), *small)
    assert done.code == 0, done.out + done.err
    assert "agree over 2 training steps" in done.out


def test_measure_prints_json_on_its_last_line(twinax, tiny):
    done = twinax("_measure", *tiny, "compare.steps=2", "compare.repeats=3", "compare.warm_up=1")
    assert done.code == 0, done.err
    measured = json.loads(done.out.splitlines()[-1])
    assert len(measured["steps_per_second"]) == 3
    assert measured["steps_per_second"] == [2 / seconds for seconds in measured["seconds"]]
    assert measured["parameters"] > 0 and measured["compile_seconds"] > 0
    assert measured["first_step_seconds"] > measured["compile_seconds"]
    assert {"sample", "optimizer"} <= set(measured["profile"])


def row(mode: str, median: float, parameters: int = 10) -> dict:
    """A measurement as `_measure` gives it."""
    phases = {"torch": {"sample": 0.06, "loss": 0.04}, "hybrid": {"sample": 0.06, "sync": 0.02}}
    return {
        "mode": mode,
        "unit": "updates",
        "per_step": 1,
        "steps_per_second": [median, median * 0.9, median * 1.2],
        "parameters": parameters,
        "profile": phases.get(mode, {"sample": 0.001}),
        "compile_seconds": 1.0,
        "first_step_seconds": 2.0,
        "threads": 1,
        "versions": {"python": "3", "jax": "0", "torch": "2"},
    }


@pytest.fixture
def measured(monkeypatch):
    """Stand-ins for the children: set what parity says and what each mode measures."""
    speeds = {"torch": row("torch", 10), "hybrid": row("hybrid", 12), "jax": row("jax", 100)}
    asked: list[tuple[str, ...]] = []
    answers = {"parity": True, "speeds": speeds, "asked": asked}

    def succeeds(*words):
        asked.append(words)
        return answers["parity"]

    def result(what, *words):
        asked.append(words)
        return speeds[words[-1].removeprefix("trainer.mode=")]

    monkeypatch.setattr(_child, "succeeds", succeeds)
    monkeypatch.setattr(_child, "result", result)
    return answers


def test_compare_gives_ratios_after_parity(twinax, tiny, measured):
    done = twinax("compare", *tiny, "run.dir=here")
    assert done.code == 0, done.err
    result = json.loads(Path("here/compare.json").read_text())
    assert result["ratios"] == {"torch": 1.0, "hybrid": 1.2, "jax": 10.0}
    assert result["ceiling"]["at_most"] == pytest.approx(0.1 / 0.06)
    assert result["ceiling"]["from_phases"] == pytest.approx(0.1 / 0.08)
    assert result["modes"][0]["median"] == 10 and result["modes"][0]["lower"] < 10 < result["modes"][0]["upper"]
    assert measured["asked"][0][0] == "parity", "parity comes first"
    assert "10.00" in done.out and "at most 1.67 x torch" in done.out


@pytest.mark.parametrize(
    "words, steps",
    [
        ([], 20),
        (["compare.parity_steps=7"], 7),
        (["experiment=ppo"], 2),
        (["experiment=ppo", "compare.parity_steps=7"], 7),
    ],
)
def test_compare_follows_a_problem_as_far_as_it_can_be_followed(twinax, measured, words, steps):
    assert twinax("compare", *words, "run.dir=here").code == 0
    assert f"parity.steps={steps}" in measured["asked"][0]


def test_compare_gives_no_ratio_when_parity_fails(twinax, tiny, measured):
    measured["parity"] = False
    done = twinax("compare", *tiny, "run.dir=here")
    assert done.code == 1
    assert "no ratio: the engines differ" in done.out
    assert "10.00" not in done.out
    assert json.loads(Path("here/compare.json").read_text())["ratios"] is None


def test_compare_gives_no_ratio_for_different_networks(twinax, tiny, measured):
    measured["speeds"]["jax"] = row("jax", 100, parameters=11)
    done = twinax("compare", *tiny, "run.dir=here")
    assert "no ratio: the modes have different numbers of parameters, [10, 11]" in done.out
    assert "10.00" not in done.out


def test_compare_of_one_mode_needs_no_parity(twinax, tiny, measured):
    done = twinax("compare", *tiny, "compare.modes=[jax]", "run.dir=here")
    assert done.code == 0
    assert [words[0] for words in measured["asked"]] == ["_measure"]
    assert "not checked" in done.out


def test_a_child_that_fails_is_told_in_one_sentence(twinax):
    from twinax.errors import TwinaxError

    with pytest.raises(TwinaxError, match="^mode jax failed: env.side is -3; it must be at least 2$"):
        _child.result("mode jax", "_measure", "env.side=-3")


def test_spread_is_the_middle_half():
    assert _compare.spread([1.0, 2.0, 3.0, 4.0, 5.0]) == {"median": 3.0, "lower": 2.0, "upper": 4.0}
    assert _compare.spread([7.0]) == {"median": 7.0, "lower": 7.0, "upper": 7.0}


@pytest.mark.slow
def test_compare_for_real(twinax, tiny):
    done = twinax("compare", *tiny, "compare.steps=5", "compare.repeats=3", "compare.parity_steps=2", "run.dir=here")
    assert done.code == 0, done.err
    result = json.loads(Path("here/compare.json").read_text())
    assert result["parity"] is True
    assert list(result["ratios"]) == ["torch", "hybrid", "jax"]
    assert json.loads(Path("here/parity.json").read_text())["ok"] is True


@pytest.mark.slow
def test_demo(twinax, tiny):
    words = ["demo", *tiny, "trainer.steps=5", "compare.steps=5", "compare.repeats=1", "compare.parity_steps=2"]
    for _ in range(2):  # a second demo replaces the first
        done = twinax(*words)
        assert done.code == 0, done.err
    assert {"parity.json", "compare.json", "report.html", "torch", "hybrid", "jax"} <= {
        path.name for path in Path("runs/demo").iterdir()
    }
