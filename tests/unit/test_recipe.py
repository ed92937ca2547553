"""How things were made, as plain data: whole, without pickle, and only by names that were meant for it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import twinax as tx
from twinax.errors import TwinaxError
from twinax.recipe import NoRecipe, made_by, named_modules, rebuild, recipe_of
from twinax.runs import RunDirectory, origin

MODULE = "somebodys_worlds"
CODE = """
from dataclasses import dataclass
from pathlib import Path
import twinax as tx
Path("imported").touch()

@dataclass(frozen=True)
class Wide(tx.envs.Hypergrid):
    extra: tuple = ((1, 2), (3,))

def reward(cells):
    return 1.0 + cells.sum(1)
"""
SMALL: dict = {
    "batch_size": 4,
    "policy": tx.gflownet.PolicyOptions(hidden=(8,)),
    "metrics": tx.gflownet.MetricOptions(samples=4, fifo=16),
}


@pytest.fixture
def somebody(tmp_path, monkeypatch):
    """A package of somebody else, whose import leaves a file behind."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{MODULE}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield __import__(MODULE)
    sys.modules.pop(MODULE, None)


def test_values_come_back_as_they_were():
    values = [None, True, 3, 2.5, float("inf"), "text", [1, (2, "a")], {"a": (1,)}, Path("a/b"), np.float32(0.5)]
    text = yaml.safe_dump(recipe_of(values))
    again = rebuild(yaml.safe_load(text))
    assert again == values and type(again[-1]) is float and type(again[6][1]) is tuple


def test_a_problem_is_made_again_by_its_call(somebody):
    env = somebody.Wide(2, 4)
    problem = tx.gflownet.problem(env, "subtrajectory_balance", reward=somebody.reward, **SMALL)
    recipe = made_by(problem)
    assert recipe["call"] == "twinax.gflownet:problem" and recipe["with"]["reward"] == {"code": f"{MODULE}:reward"}
    again = rebuild(yaml.safe_load(yaml.safe_dump(recipe)))
    assert made_by(again) == recipe and again.env.extra == ((1, 2), (3,))
    state = env.reset(3)
    np.testing.assert_array_equal(again.env.log_reward(state), problem.env.log_reward(state))
    assert set(named_modules(recipe).values()) == {MODULE}


def test_data_know_how_they_were_made_as_long_as_nobody_changed_them(tmp_path):
    from twinax.offline import agents, collect_maze, label_maze, problem

    maze = tx.envs.PointMaze("u")
    data = label_maze(collect_maze(maze, trajectories=2, steps=20), maze, goal=(1.5, 1.5))
    again = rebuild(made_by(problem(agents.BC(hidden=(4,)), data, batch_size=2, pretrain_steps=3)))
    np.testing.assert_array_equal(again.datasets["pretrain"].actions, data.actions)
    changed = problem(agents.BC(hidden=(4,)), data.first(10), batch_size=2, pretrain_steps=3)
    with pytest.raises(NoRecipe, match="its observations is a ndarray, which is no plain value"):
        made_by(changed)


def test_a_problem_that_was_changed_by_hand_has_no_recipe():
    problem = tx.gflownet.problem(tx.envs.Hypergrid(2, 4), **SMALL)
    with pytest.raises(NoRecipe, match="not made by a function that remembers its arguments"):
        made_by(dataclasses.replace(problem, batch_size=8))


def test_what_nobody_can_import_is_said_when_the_run_is_loaded(tmp_path):
    def reward(cells):
        return 1.0 + cells.sum(1)

    problem = tx.gflownet.problem(tx.envs.Hypergrid(2, 3), reward=reward, **SMALL)
    tx.train(problem, mode="torch", steps=1, run_dir=tmp_path / "run", progress=False)
    with pytest.raises(TwinaxError) as error:
        tx.load(tmp_path / "run")
    said = str(error.value)
    assert "was started from Python" in said and "its reward is " in said and "<locals>.reward of " in said
    assert said.endswith("problem=...)") and said.count("\n") == 0
    assert len(tx.load(tmp_path / "run", problem=problem).sample(3)) == 3


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"call": "twinax.runs.files:remove", "with": {"path": "/"}}, "neither a dataclass nor remembered"),
        ({"new": "twinax.runs.files:remove_directory", "with": {}}, "neither a dataclass nor remembered"),
        ({"call": "twinax.runs.files:os.system", "with": {"command": "touch bad"}}, "which twinax only borrowed"),
        ({"code": "twinax.registry:importlib.import_module"}, "which twinax only borrowed"),
        ({"new": "os:system", "with": {"command": "touch bad"}}, "neither a dataclass nor remembered"),
        ({"call": 3}, "does not say what is to be made"),
        ({"strange": 1}, "does not say what is to be made"),
        ({"tuple": 3}, "does not say what is to be made"),
        ({"new": "twinax.envs:Uniform", "with": [1]}, "does not say what is to be made"),
        ({"new": "twinax.envs:Uniform", "with": {"worth": 1}}, "in a way that it does not take|has no argument"),
    ],
)
def test_a_recipe_of_a_stranger_calls_nothing_else(recipe, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TwinaxError, match=said):
        rebuild(recipe)
    assert not list(tmp_path.iterdir())


def test_a_strangers_run_imports_nothing_without_trust(somebody, tmp_path):
    problem = tx.gflownet.problem(somebody.Wide(2, 3), **SMALL)
    tx.train(problem, mode="torch", steps=1, run_dir="run", progress=False)
    assert len(tx.load("run").sample(2)) == 2  # this user's own
    (tmp_path / "state" / "twinax" / "key").unlink()
    Path("imported").unlink()
    del sys.modules[MODULE]
    with pytest.raises(origin.Untrusted, match=f"imports the module '{MODULE}'.*trust=True"):
        tx.load("run")
    assert not Path("imported").exists() and MODULE not in sys.modules
    assert len(tx.load("run", trust=True).sample(2)) == 2
    assert Path("imported").exists()


def test_an_edited_file_is_refused(tmp_path):
    problem = tx.gflownet.problem(tx.envs.Hypergrid(2, 3), **SMALL)
    tx.train(problem, mode="torch", steps=1, run_dir=tmp_path / "run", progress=False)
    file = RunDirectory(tmp_path / "run").problem_path
    file.write_text(file.read_text().replace("side: 3", "side: 4"))
    with pytest.raises(TwinaxError, match="problem.yaml was changed after it was written"):
        tx.load(tmp_path / "run")


def test_a_run_in_a_used_place_is_built_from_its_own_file(tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    directory.write_config({"experiment": "ppo", "seed": 3})
    problem = tx.gflownet.problem(tx.envs.Hypergrid(2, 3), **SMALL)
    tx.train(problem, mode="torch", steps=1, run_dir=directory.path, progress=False)
    assert type(tx.load(directory.path).problem) is type(problem) and not directory.config_path.exists()
