"""Checkpoints survive kills, and refuse everything that is not exactly what was saved."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from twinax.errors import TwinaxError
from twinax.runs import checkpoint, sealed

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeProblem

KILL = """
import sys
sys.path.insert(0, sys.argv[1])
import dataclasses, os, runs_probe
import numpy as np
from twinax.runs import checkpoint
def save(step):
    state = dataclasses.replace(runs_probe.ProbeProblem().init(7), step=np.array(step, np.int32))
    checkpoint.save(checkpoint.place(sys.argv[2], step), state, {})
save(1)
runs_probe.kill_at(sys.argv[3], int(sys.argv[4]))
save(int(sys.argv[5]))
"""


def tree():
    return {
        "weight": np.arange(6.0).reshape(2, 3).T,
        "half": np.arange(3, dtype=np.float32),
        "count": np.array(5, np.int32),
        "flag": np.array(True),
        "seed": np.array(4_000_000_000, np.uint32),
        "index": np.arange(3, dtype=np.int64),
        "empty": np.zeros((0, 2)),
        "nothing": None,
        "list": [np.ones(1), {"deep": np.zeros(2)}],
    }


def save(tmp_path, step, state=None):
    return checkpoint.save(checkpoint.place(tmp_path, step), state or tree(), {"step": step, "config": {"lr": 0.1}})


def test_everything_comes_back(tmp_path):
    path = save(tmp_path, 3)
    loaded, meta = checkpoint.load(path, tree())
    assert loaded["nothing"] is None
    expected = tree()
    for name in ("weight", "half", "count", "flag", "seed", "index", "empty"):
        assert loaded[name].dtype == expected[name].dtype
        assert loaded[name].shape == expected[name].shape
        np.testing.assert_array_equal(loaded[name], expected[name])
    np.testing.assert_array_equal(loaded["list"][1]["deep"], np.zeros(2))
    assert meta["step"] == 3 and meta["config"] == {"lr": 0.1} and meta["format"] == 2
    assert {"twinax", "jax", "torch", "numpy", "python"} <= meta["versions"].keys()
    assert meta["arrays"]["weight"] == {"shape": [3, 2], "dtype": "float64"}
    assert sorted(os.listdir(path)) == ["meta.json", "state.safetensors"]


def test_a_state_comes_back(tmp_path):
    state = ProbeProblem().init(2**32 - 1)
    path = checkpoint.save(tmp_path / "0000000000", state, {})
    loaded, meta = checkpoint.load(path, ProbeProblem().init(0))
    assert int(loaded.seed) == 2**32 - 1 and loaded.targets is None and meta["step"] == 0


def test_arrays_are_readable_by_whom_the_umask_allows(tmp_path):
    path = save(tmp_path, 1)
    modes = {os.stat(path / name).st_mode & 0o777 for name in ("meta.json", "state.safetensors")}
    assert len(modes) == 1


@pytest.mark.parametrize(
    ("function", "call", "step"),
    [
        ("fsync", 1, 2),  # the arrays are written
        ("fsync", 2, 2),  # meta.json is written
        ("replace", 1, 2),  # before the rename into place
        ("fsync", 4, 2),  # after it
        ("replace", 1, 1),  # before a checkpoint of the same step is moved away
        ("replace", 2, 1),  # between the two renames
        ("fsync", 4, 1),  # the moved one is not deleted yet
    ],
)
def test_kill_during_save(tmp_path, function, call, step):
    command = [sys.executable, "-c", KILL, str(Path(__file__).parent), str(tmp_path), function, str(call), str(step)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == -9, result.stderr
    like = ProbeProblem().init(0)
    path = checkpoint.latest(tmp_path, refused=lambda sentence: pytest.fail(sentence))
    state, meta = checkpoint.load(path, like)
    assert int(state.seed) == 7 and meta["step"] in (1, step)
    checkpoint.save(checkpoint.place(tmp_path, meta["step"]), state, {})
    assert [name for name in os.listdir(tmp_path / "checkpoints") if name.startswith(".")] == []


def test_truncated_and_edited_are_refused_by_name(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    arrays = checkpoint.place(tmp_path, 4) / "state.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-5])
    arrays = checkpoint.place(tmp_path, 3) / "state.safetensors"
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    meta = checkpoint.place(tmp_path, 2) / "meta.json"
    meta.write_text(meta.read_text()[:40])
    refused = []
    assert checkpoint.latest(tmp_path, refused.append) == checkpoint.place(tmp_path, 1)
    assert ["0000000004", "0000000003", "0000000002"] == [
        next(word for word in ("0000000004", "0000000003", "0000000002") if word in sentence) for sentence in refused
    ]
    assert "bytes instead of" in refused[0] and "its sha256 is" in refused[1] and "not valid JSON" in refused[2]
    with pytest.warns(UserWarning) as warned:
        checkpoint.latest(tmp_path)
    assert [str(warning.message) for warning in warned] == refused
    with pytest.raises(TwinaxError, match="sha256"):
        checkpoint.load(checkpoint.place(tmp_path, 3), tree())


def test_none_usable(tmp_path):
    with pytest.raises(TwinaxError, match="no checkpoint"):
        checkpoint.latest(tmp_path)
    with pytest.raises(TwinaxError, match="no run directory"):
        checkpoint.latest(tmp_path / "absent")
    (save(tmp_path, 1) / "state.safetensors").unlink()
    with pytest.raises(TwinaxError, match="none of its 1 checkpoints"):
        checkpoint.latest(tmp_path, refused=lambda sentence: None)


def test_differences_are_named(tmp_path):
    path = save(tmp_path, 1)
    with pytest.raises(TwinaxError, match=r"state.safetensors lacks 'extra' \(1 missing, 0 unexpected\)"):
        checkpoint.load(path, tree() | {"extra": np.zeros(1)})
    with pytest.raises(TwinaxError, match="unexpected 'half'"):
        checkpoint.load(path, {name: value for name, value in tree().items() if name != "half"})
    with pytest.raises(TwinaxError, match=r"'half' has shape \(3,\) but the problem needs \(4,\)"):
        checkpoint.load(path, tree() | {"half": np.zeros(4, np.float32)})
    with pytest.raises(TwinaxError, match="'half' is float32 but the problem needs float64"):
        checkpoint.load(path, tree() | {"half": np.zeros(3)})


def test_other_formats_and_descriptions_are_refused(tmp_path):
    path = save(tmp_path, 1)
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | {"format": 99}))
    with pytest.raises(TwinaxError, match="format 99, this twinax reads format 2"):
        checkpoint.load(path, tree())
    (path / "meta.json").write_text("[]")
    with pytest.raises(TwinaxError, match="missing"):
        checkpoint.load(path, tree())


def test_what_is_not_an_array_is_refused(tmp_path):
    with pytest.raises(TwinaxError, match="'activation' is a function"):
        checkpoint.save(tmp_path / "1", {"activation": lambda x: x}, {})
    with pytest.raises(TwinaxError, match="two leaves .* called 'a.b'"):
        checkpoint.save(tmp_path / "1", {"a.b": np.ones(1), "a": {"b": np.ones(1)}}, {})
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize(("number", "text"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only file system")])
def test_disk_errors_are_sentences_and_lose_nothing(tmp_path, monkeypatch, number, text):
    save(tmp_path, 1)

    def full(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TwinaxError, match=f"0000000002: {text}.*earlier checkpoints are intact"):
        save(tmp_path, 2)
    with pytest.raises(TwinaxError, match=text):
        save(tmp_path, 1)
    monkeypatch.undo()
    assert checkpoint.steps(tmp_path) == [1]
    checkpoint.load(checkpoint.latest(tmp_path), tree())
    assert os.listdir(tmp_path / "checkpoints") == ["0000000001"]


def test_a_disk_that_is_full_inside_safetensors(tmp_path, monkeypatch):
    import safetensors.numpy
    from safetensors import SafetensorError

    def full(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(TwinaxError, match="No space left on device; the earlier checkpoints are intact; free some"):
        save(tmp_path, 1)


def test_a_path_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TwinaxError, match="Not a directory"):
        save(tmp_path / "file", 1)


def test_prune_keeps_the_newest_complete(tmp_path):
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step)
    (checkpoint.place(tmp_path, 5) / "meta.json").unlink()
    checkpoint.prune(tmp_path, keep=2)
    assert checkpoint.steps(tmp_path) == [3, 4, 5]
    with pytest.raises(TwinaxError, match="keep is 0"):
        checkpoint.prune(tmp_path, keep=0)


def test_set_aside_no_longer_counts(tmp_path):
    save(tmp_path, 1)
    checkpoint.set_aside(save(tmp_path, 2))
    assert checkpoint.steps(tmp_path) == [1]
    assert (tmp_path / "checkpoints" / "0000000002.refused").is_dir()


def edit_meta(path, change, forged=False):
    """Change the values of a meta.json, with or without a sum that fits."""
    meta = json.loads((path / "meta.json").read_text())
    change(meta)
    if forged:
        del meta["sum"]
        meta["sum"] = sealed.digest(meta)
    (path / "meta.json").write_text(json.dumps(meta))


def state_of(step):
    import dataclasses

    return dataclasses.replace(ProbeProblem().init(0), step=np.array(step, np.int32))


PLAN = {"steps": 9, "seed": 0}
TRAINED = {"plan": PLAN, "seconds": 1.5, "window": {"sum": 1.0, "count": 2}, "command": "x", "config": {"seed": 0}}


@pytest.mark.parametrize("name", ["step", "seconds", "plan", "versions", "arrays", "window"])
def test_an_edited_description_is_refused_and_the_checkpoint_before_is_used(tmp_path, name):
    for step in (80, 90):
        checkpoint.save(checkpoint.place(tmp_path, step), state_of(step), TRAINED)
    edit_meta(checkpoint.place(tmp_path, 90), lambda meta: meta.update({name: 80}))
    refused = []
    assert checkpoint.latest(tmp_path, refused.append) == checkpoint.place(tmp_path, 80)
    assert len(refused) == 1 and "0000000090/meta.json" in refused[0] and "was changed" in refused[0]


def test_the_step_is_one_in_name_description_and_state(tmp_path):
    for step in (80, 90):
        checkpoint.save(checkpoint.place(tmp_path, step), state_of(step), TRAINED)
    edit_meta(checkpoint.place(tmp_path, 90), lambda meta: meta.update(step=80), forged=True)
    with pytest.raises(TwinaxError, match="says step 80, but its directory is that of step 90"):
        checkpoint.verify(checkpoint.place(tmp_path, 90))
    checkpoint.place(tmp_path, 90).rename(checkpoint.place(tmp_path, 85))
    edit_meta(checkpoint.place(tmp_path, 85), lambda meta: meta.update(step=85), forged=True)
    with pytest.raises(TwinaxError, match="says step 85, but the state in state.safetensors is of step 90"):
        checkpoint.verify(checkpoint.place(tmp_path, 85))
    assert checkpoint.latest(tmp_path, lambda _: None) == checkpoint.place(tmp_path, 80)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", "90"), ("step", -1), ("step", 2**40), ("step", None), ("step", True), ("step", [90]), ("step", 90.0),
        ("bytes", "many"), ("sha256", 5), ("seconds", "long"), ("seconds", -1.0), ("seconds", [1.0]),
        ("window", 5), ("window", {"sum": "x", "count": 1}), ("window", {"sum": 1.0}), ("window", []),
        ("log", 3), ("log", {"rows": -1}), ("plan", "all"), ("plan", {"steps": "9"}), ("plan", {"steps": -9}),
        ("plan", {"steps": 9, "mode": {"a": 1}}), ("plan", {"steps": 9, "dtype": "int8"}), ("config", 3),
        ("command", {"a": 1}), ("format", {"a": 1}),
    ],
)  # fmt: skip
def test_odd_values_in_a_description_that_sums_up_are_refused_too(tmp_path, name, value):
    for step in (80, 90):
        checkpoint.save(checkpoint.place(tmp_path, step), state_of(step), TRAINED)
    edit_meta(checkpoint.place(tmp_path, 90), lambda meta: meta.update({name: value}), forged=True)
    refused = []
    assert checkpoint.latest(tmp_path, refused.append) == checkpoint.place(tmp_path, 80)
    assert len(refused) == 1 and "0000000090/meta.json" in refused[0]


@pytest.mark.parametrize(
    "text", ['{"step": NaN}', '{"step": 1e999}', "[" * 100_000, '{"a": 1, "a": 2}', '{"a": "\\ud800"}']
)
def test_descriptions_that_nobody_writes(tmp_path, text):
    (save(tmp_path, 1) / "meta.json").write_text(text)
    with pytest.raises(TwinaxError, match="is not valid JSON"):
        checkpoint.read_meta(checkpoint.place(tmp_path, 1))


def test_names_of_directories_that_are_none_of_ours_do_not_count(tmp_path):
    save(tmp_path, 1)
    for name in ("5", "00000000000007", "\u0663"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert checkpoint.steps(tmp_path) == [1]


def test_the_same_arrays_are_the_same_file(tmp_path):
    one, other = (save(tmp_path / name, 1) / "state.safetensors" for name in "ab")
    assert one.read_bytes() == other.read_bytes()
