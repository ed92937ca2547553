"""Names of what can be chosen: ours, those of installed packages, and anybody's code."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from twinax import conf, envs
from twinax.errors import TwinaxError, UnknownName
from twinax.registry import Registry, import_code, is_code

SHAPES = {"fraction": "fractions:Fraction", "square": "decimal:Decimal"}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of somebody's, and makes it importable."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.b:C", True),
        ("a:C.make", True),
        ("a", False),
        ("a:", False),
        (":C", False),
        ("/a/b:c", False),
        ("a b:C", False),
    ],
)
def test_what_names_code(name, wanted):
    assert is_code(name) is wanted


def test_names_aliases_and_code():
    shapes = Registry("shape", SHAPES, {"ratio": "fraction"})
    from fractions import Fraction

    assert shapes.find("ratio") is shapes["fraction"] is shapes.find("fractions:Fraction") is Fraction
    assert list(shapes) == ["fraction", "square"] and "ratio" not in shapes
    with pytest.raises(UnknownName, match="unknown shape 'sqare'; known: fraction, square. Did you mean 'square'"):
        shapes.find("sqare")


@pytest.fixture
def install(monkeypatch):
    """Entry points as installed packages would bring them."""

    def entries(wanted, **names):
        found = [SimpleNamespace(name=name, value=value) for name, value in names.items()]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == wanted else [])

    return entries


def test_installed_packages_add_names_and_change_none_of_ours(install):
    install("twinax.shapes", theirs="collections:Counter", square="collections:Counter")
    shapes = Registry("shape", SHAPES)
    assert list(shapes) == list(SHAPES) and list(shapes.installed) == ["theirs"]
    assert shapes.find("theirs").__name__ == "Counter" and shapes.find("square").__name__ == "Decimal"
    with pytest.raises(UnknownName, match="known: fraction, square, theirs"):
        shapes.find("circle")


@pytest.mark.parametrize(
    ("words", "section", "key", "value"),
    [
        (["env=twinax.envs:Hypergrid", "env.side=5"], "env", "side", 5),
        (["loss=twinax.gflownet.objectives:SubtrajectoryBalance", "objective.decay=0.5"], "objective", "decay", 0.5),
        (["experiment=ppo", "env=twinax.envs:Pendulum", "env.time_limit=50"], "env", "time_limit", 50),
        (["experiment=treasurehunt", "world=twinax.envs:Cleanup", "world.turns=7"], "world", "turns", 7),
        (["experiment=offline", "agent=twinax.offline.agents:IQL", "agent.expectile=0.8"], "agent", "expectile", 0.8),
    ],
)  # fmt: skip
def test_each_kind_is_chosen_as_code(words, section, key, value):
    config = conf.compose(words)
    assert getattr(getattr(config, section), key) == value
    again = conf.restore(conf.as_dict(config), trust=True)
    assert vars(getattr(again, section)) == vars(getattr(config, section))


def test_a_wrong_kind_is_one_sentence():
    for words, sentence in {
        ("experiment=ppo", "env=twinax.envs:Hypergrid"): "makes a Hypergrid; PPO plays a tx.envs.Control",
        (
            "experiment=treasurehunt",
            "world=twinax.envs:CartPole",
        ): "makes a CartPole; several agents play",
    }.items():
        with pytest.raises(TwinaxError, match=sentence):
            conf.build_problem(conf.compose(words))
    with pytest.raises(TwinaxError, match="is a ABCMeta; name a twinax.conf.Experiment"):
        conf.compose(["experiment=twinax.envs:Hypergrid"])


def test_an_experiment_of_another_package_is_composed_and_read_again():
    config = conf.compose(["experiment=twinax.conf.experiments.ppo:EXPERIMENT", "env=acrobot"])
    assert config.experiment == "twinax.conf.experiments.ppo:EXPERIMENT" and config.env.name == "acrobot"
    assert conf.restore(conf.as_dict(config), trust=True) == config


def test_an_installed_name_is_a_choice(monkeypatch):
    monkeypatch.setattr(envs.ENVIRONMENTS, "installed", {"mine": "twinax.envs:Hypergrid"})
    assert conf.compose(["env=mine", "env.side=4"]).env.name == "twinax.envs:Hypergrid"
    with pytest.raises(UnknownName, match="known: .*grid, hypergrid, mine"):
        conf.compose(["env=other"])


def test_what_cannot_be_imported_is_one_sentence(module):
    module("breaks", "raise RuntimeError('no licence')")
    module("needs", "import nowhere_to_be_found")
    module("good", "class Maze: pass")
    for name, words in {
        "missing_package.worlds:Maze": "there is no module 'missing_package' to import",
        "breaks:Maze": "its module fails with RuntimeError: no licence",
        "needs:Maze": "its module needs 'nowhere_to_be_found', which is not installed",
    }.items():
        with pytest.raises(TwinaxError, match=f"world '{name}': {words}"):
            import_code(name, "world")
    with pytest.raises(UnknownName, match="unknown world in good 'Mase'; known: Maze. Did you mean 'Maze'"):
        import_code("good:Mase", "world")
