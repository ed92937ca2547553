"""Runs of strangers: code that they name is not imported without --trust, and nothing of this machine enters them."""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest

from twinax import conf
from twinax.cli._main import COMMANDS
from twinax.conf import _compose
from twinax.errors import TwinaxError
from twinax.runs import RunDirectory, origin, settings_file, sweeps

MODULE = "stranger_worlds"
SETTINGS = ["experiment=ppo", "env=gymnasium", f"env.id={MODULE}:Thing-v0", "ppo.num_envs=2", "ppo.num_steps=4"]
CODE = """
from pathlib import Path
Path("imported").touch()
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Thing-v0", entry_point=CartPoleEnv, max_episode_steps=20)
"""


@pytest.fixture(autouse=True)
def own_key(tmp_path_factory, monkeypatch):
    """A home of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def stranger(twinax, tmp_path, monkeypatch):
    """A run that names a module whose import leaves a file behind; made by somebody with another key."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    directory.write_config(conf.as_dict(conf.compose(SETTINGS)))
    assert origin.FILE in os.listdir("run")
    Path(os.environ["XDG_STATE_HOME"], "twinax", "key").unlink()
    yield directory.path
    if MODULE in sys.modules:
        import gymnasium

        gymnasium.registry.pop("Thing-v0", None)


def takes_a_run(name: str) -> bool:
    parser = ArgumentParser()
    COMMANDS[name].add_arguments(parser)
    return any(action.dest in ("run", "runs") for action in parser._actions)


BUILDING = {
    "resume": ["resume", "run"],
    "eval": ["eval", "run"],
    "export": ["export", "run", "policy.onnx"],
    "play": ["play", "run"],
}
"""Commands that build the problem of a run."""


def test_every_command_that_takes_a_run_is_tried_here():
    assert {name for name in COMMANDS if takes_a_run(name)} == {*BUILDING, "report"}


@pytest.mark.parametrize("words", BUILDING.values(), ids=BUILDING)
def test_code_of_strangers_is_not_imported(twinax, stranger, words):
    before = (stranger / "config.yaml").read_bytes()
    done = twinax(*words)
    assert done.code == 2
    assert done.err.count("\n") == 1 and done.err.startswith("error: run/config.yaml names code outside of twinax")
    assert "env.id" in done.err and f"'{MODULE}'" in done.err and "--trust" in done.err
    assert not Path("imported").exists()
    assert (stranger / "config.yaml").read_bytes() == before
    twinax(*words, "--trust")
    assert Path("imported").exists(), "then it is imported"


def test_a_report_imports_nothing(twinax, stranger):
    twinax("report", "run")
    assert not Path("imported").exists()


def test_processes_of_a_launch_ask_too(python, stranger):
    done = python("-m", "twinax.cli", "launch", "--processes", "1", "resume", "run")
    assert done.code == 2 and "--trust" in done.err and "Traceback" not in done.err


def test_own_runs_go_on_without_asking(twinax, stranger):
    RunDirectory(stranger).write_config(conf.as_dict(conf.compose(SETTINGS)))
    shutil.move("run", "elsewhere")
    done = twinax("eval", "elsewhere")
    assert Path("imported").exists() and "it has no checkpoint" in done.err, done.err
    # What resume writes is ours as well.
    RunDirectory(Path("elsewhere")).write_config(conf.as_dict(conf.restore_run("elsewhere", ["trainer.steps=2"])))
    assert conf.restore_run("elsewhere").trainer.steps == 2


def without_sum(config):
    """The text of a configuration without its first line, which would tell that it was edited."""
    return config.read_text().partition("\n")[2]


def test_edited_settings_are_a_strangers(twinax, stranger):
    RunDirectory(stranger).write_config(conf.as_dict(conf.compose(SETTINGS)))
    conf.restore_run(stranger)
    config = stranger / "config.yaml"
    config.write_text(without_sum(config).replace(MODULE, "other_worlds"))
    with pytest.raises(origin.Untrusted, match="'other_worlds'"):
        conf.restore_run(stranger)
    assert conf.restore_run(stranger, trust=True).env.id == "other_worlds:Thing-v0"


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"file": 3, "hmac": 4}', '{"file": "config.yaml", "hmac": "é"}', "[" * 100_000]
)
def test_odd_origins_are_a_strangers(twinax, stranger, content):
    RunDirectory(stranger).write_config(conf.as_dict(conf.compose(SETTINGS)))
    (stranger / origin.FILE).write_text(content)
    with pytest.raises(origin.Untrusted):
        conf.restore_run(stranger)


@pytest.mark.parametrize("spoil", ["readable by all", "short", "a directory", "no home"])
def test_without_a_private_key_nothing_is_ours(twinax, stranger, monkeypatch, spoil):
    RunDirectory(stranger).write_config(conf.as_dict(conf.compose(SETTINGS)))
    key = Path(os.environ["XDG_STATE_HOME"], "twinax", "key")
    assert key.stat().st_mode & 0o777 == 0o600
    match spoil:
        case "readable by all":
            key.chmod(0o644)
        case "short":
            key.write_bytes(b"short")
        case "a directory":
            key.unlink()
            key.mkdir()
        case "no home":
            monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with pytest.raises(origin.Untrusted):
        conf.restore_run(stranger)
    RunDirectory(stranger).write_config(conf.as_dict(conf.compose(SETTINGS)))
    assert not (stranger / origin.FILE).exists(), "nothing is said that is not known"


def test_values_from_elsewhere_need_trust_too():
    stored = conf.as_dict(conf.compose(SETTINGS))
    with pytest.raises(origin.Untrusted, match="env.id imports the module 'stranger_worlds'"):
        conf.restore(stored)
    assert conf.restore(stored, trust=True).env.id == f"{MODULE}:Thing-v0"


def test_every_value_counts_whatever_its_key():
    assert origin.named_code({"a": [{"b": "x.y:Z"}, "m:"], "c": 3, "d": "/data/x:y", "run": {"dir": "a:b"}}) == {
        "a.b": "x.y",
        "a": "m",
    }


def test_most_runs_need_no_key(twinax, tiny):
    assert twinax("train", "--quiet", *tiny, "trainer.steps=1", "run.dir=run").code == 0
    assert not Path("run", origin.FILE).exists()
    assert not Path(os.environ["XDG_STATE_HOME"], "twinax").exists()


# Sweeps


def test_a_strangers_sweep_is_not_begun(twinax, stranger, tmp_path):
    sweeps.make(tmp_path / "sweep", [[*SETTINGS, "trainer.steps=1", "env.options={}"]])
    Path(os.environ["XDG_STATE_HOME"], "twinax", "key").unlink()
    done = twinax("sweep", "run.dir=sweep")
    assert done.code == 2 and "sweep.json names code" in done.err and "--trust" in done.err
    assert not Path("imported").exists() and not Path("sweep/000").exists()
    assert twinax("sweep", "--status", "run.dir=sweep").code == 0


def test_an_own_sweep_goes_on(tmp_path):
    tasks = sweeps.make(tmp_path / "sweep", [SETTINGS])
    assert tasks[0].trust, "its runs are those of this sweep, also where there is no key"
    from twinax.cli._sweep import trusted

    assert trusted(sweeps.read(tmp_path / "sweep"), trust=False) == tasks


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        {},
        3,
        [{"name": "../../elsewhere", "overrides": []}],
        [{"name": "000", "overrides": ["--quiet"]}],
        [{"name": "000", "overrides": [3]}],
        [{"name": "000", "overrides": 3}],
        [{"name": "000", "overrides": ["--out=x"]}],
        [{"name": ["000"], "overrides": []}],
        ["000"],
    ],
)
def test_odd_sweeps_are_refused(twinax, tasks):
    Path("sweep").mkdir()
    Path("sweep/sweep.json").write_text(json.dumps({"format": 1, "tasks": tasks}))
    done = twinax("sweep", "run.dir=sweep")
    assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1
    assert "sweep.json" in done.err


# Values from the environment


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "a ${oc.env:SECRET} b", "${seed}", "${times:2,3}", "\\${seed}"])
@pytest.mark.parametrize("command", ["resume", "eval"])
def test_a_secret_does_not_enter_a_run(twinax, trained, monkeypatch, command, value):
    monkeypatch.setenv("SECRET", "hush-hush")
    shutil.copytree(trained, "run")
    config = Path("run/config.yaml")
    config.write_text(without_sum(config).replace("name: null", f"name: '{value}'"))
    done = twinax(command, "run", "trainer.steps=9")
    assert done.code == 2 and "run.name=" in done.err and "plain values" in done.err
    written = b"".join(path.read_bytes() for path in Path("run").rglob("*") if path.is_file())
    assert b"hush-hush" not in written


@pytest.mark.parametrize(
    "override",
    [
        "run.name=${oc.env:SECRET}",
        "run.name='${oc.env:SECRET}'",
        "run.name=$\\{oc.env\\:SECRET\\}",
        "policy.hidden=[${oc.env:SECRET}]",
        "gflownet.optimizer.lr_z_mult=${oc.env:SECRET}",
        "gflownet.optimizer.lr_z_mult=$\\{oc.env\\:SECRET\\}",
        "seed=${nothing}",
    ],
)
def test_a_secret_does_not_enter_through_the_command_line(monkeypatch, override):
    monkeypatch.setenv("SECRET", "7")
    with pytest.raises(TwinaxError, match="write the value itself"):
        conf.compose([override])


def test_a_dollar_is_a_letter_like_others():
    assert conf.compose(["run.name=cost$5"]).run.name == "cost$5"


# YAML

DEEP = "a: " + "[" * 1500
ODD_YAML = {
    "alias": ("a: &x [1, 2]\nb: *x", "repeats a part by an alias"),
    "bomb": ("a: &a [x]\n" + "".join(f"b{k}: &b{k} [*a,*a,*a]\n" for k in range(40)), "repeats a part by an alias"),
    "merge": ("a: {<<: {b: 1}}", "no text"),
    "twice": ("a: {b: 1, b: 2}", "the key 'a.b' is there twice"),
    "number as key": ("3: x", "the key '3', which is no text"),
    "list as key": ("? [a]\n: x", "no text"),
    "date": ("a: {b: 2020-01-01}", "a.b is a timestamp"),
    "object": ("a: !!python/object/apply:os.system ['true']", "a is a "),
    "set": ("a: !!set {x}", "a is a set"),
    "bytes": ("a: !!binary aGk=", "a is a binary"),
    "huge number": ("a: " + "9" * 5000, "a is no int"),
    "bad number": ("a: !!int x", "a is no int"),
    "bad float": ("a: !!float x", "a is no float"),
    "bad bool": ("a: !!bool x", "a is no bool"),
    "deep": (DEEP, "cannot be read"),
    "two documents": ("a: 1\n---\nb: 2", "cannot be read"),
    "large": ("a: " + "x" * 1_000_001, "more than 1,000,000 characters"),
    "a list": ("[1, 2]", "holds a list"),
    "nothing": ("", "holds a NoneType"),
}


@pytest.mark.parametrize(("text", "part"), ODD_YAML.values(), ids=ODD_YAML)
def test_odd_yaml_is_one_sentence(text, part):
    with pytest.raises(TwinaxError) as told:
        settings_file.parse(text, "config.yaml")
    assert part in str(told.value) and "\n" not in str(told.value) and len(str(told.value)) < 600


def _changed(tree, path, value):
    inner = tree
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return tree


ODD_VALUES = (None, [], {}, "???", 10**30, -1, "x", {"a": {"b": 1}}, [[1]], True, 1e308, {"name": ["x"]})


@pytest.mark.parametrize("experiment", conf.experiment_names())
def test_odd_values_are_one_sentence(experiment, monkeypatch):
    """Each value in turn is something else; what fits by chance must still be a configuration."""
    made, compose = {}, _compose._compose_groups

    def once(found, choices):  # Hydra takes its time
        key = str(choices)
        made[key] = made[key] if key in made else compose(found, choices)
        return copy.deepcopy(made[key])

    monkeypatch.setattr(_compose, "_compose_groups", once)
    plain = json.loads(json.dumps(conf.as_dict(conf.compose([f"experiment={experiment}"]))))
    places = [(key,) for key in plain] + [(key, name) for key, x in plain.items() if isinstance(x, dict) for name in x]
    for number, place in enumerate(places):
        odd = ODD_VALUES[number % len(ODD_VALUES)]
        stored = _changed(json.loads(json.dumps(plain)), place, odd)
        try:
            assert conf.restore(stored).experiment == experiment
        except TwinaxError as error:
            assert "\n" not in str(error), (place, odd)
