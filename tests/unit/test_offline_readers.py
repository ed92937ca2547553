"""Readers of each format against slow loops, files that are mapped, and files that are broken."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from offline_rows import compact, regular, trajectories

from twinax import offline
from twinax.errors import MissingExtra, TwinaxError
from twinax.npz_files import read_npz
from twinax.offline import (
    find_format,
    read_arrays,
    read_d4rl,
    read_dataset,
    read_exorl,
    read_minari,
    read_ogbench,
    save_ogbench,
)

LENGTHS = (4, 1, 7, 2)
PARTS = trajectories(LENGTHS)


def fails(call, *words):
    """One sentence with all of the words."""
    with pytest.raises(TwinaxError) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text
    return text


def assert_same(one, other, names=("observations", "next_observations", "actions", "terminals", "rewards", "masks")):
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


# OGBench


def ogbench_fields(parts=PARTS):
    """As the files are: every trajectory has a last row with its final state and an action that leads nowhere."""
    return {
        "observations": np.concatenate([p["states"] for p in parts]),
        "actions": np.concatenate([np.concatenate([p["actions"], p["actions"][-1:]]) for p in parts]),
        "terminals": np.concatenate([np.arange(len(p["states"])) == len(p["states"]) - 1 for p in parts]),
        "qpos": np.zeros((sum(len(p["states"]) for p in parts), 9)),
    }


def slow_ogbench(fields):
    """Transitions one by one: (state, action, next state, last of its trajectory)."""
    found = []
    for k in range(len(fields["observations"]) - 1):
        if not fields["terminals"][k]:
            row = (fields["observations"][k], fields["actions"][k], fields["observations"][k + 1])
            found.append((*row, bool(fields["terminals"][k + 1])))
    return found


def write(path, fields, compressed=False):
    (np.savez_compressed if compressed else np.savez)(path, **fields)
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_ogbench_regular_and_compact(tmp_path, compressed):
    fields = ogbench_fields()
    path = write(tmp_path / "cube.npz", fields, compressed)
    data = read_ogbench(path)
    rows = slow_ogbench(fields)
    assert data.rows == len(rows) == sum(LENGTHS) and data.rewards is None and (data.masks == 1).all()
    for row, (state, action, following, last) in enumerate(rows):
        assert (data.observations[row] == state).all() and (data.actions[row] == action).all()
        assert (data.next_observations[row] == following).all() and data.terminals[row] == last
    dense = read_ogbench(path, compact=True)
    assert dense.compact and dense.valids.tolist() == (~fields["terminals"]).tolist()
    np.testing.assert_array_equal(dense.observations, fields["observations"])
    doubled = fields["terminals"] | np.append(fields["terminals"][1:], True)  # as OGBench's loader marks them
    np.testing.assert_array_equal(dense.terminals, doubled)
    assert find_format(path) == "ogbench"


@pytest.mark.parametrize("make", [regular, compact])
@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_saved_is_read_again(tmp_path, make, compressed):
    masks = (np.arange(sum(LENGTHS)) % 5 != 0).astype(np.float32)
    cut = np.zeros(sum(LENGTHS), bool)
    cut[[3, 13]] = True
    data = regular(PARTS, masks=masks, truncations=cut)
    given = data
    if make is compact:
        given = compact(PARTS)
        spread = [np.ones(given.rows, np.float32), np.zeros(given.rows, bool)]
        spread[0][given.drawable], spread[1][given.drawable] = masks, cut
        given = compact(PARTS, masks=spread[0], truncations=spread[1])
    path = save_ogbench(given, tmp_path / "out.npz", compressed)
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]
    assert_same(read_ogbench(path), data)
    assert_same(read_ogbench(path), data, ["truncations"])
    plain = save_ogbench(regular(PARTS).reward_free(), tmp_path / "free.npz")
    assert set(read_npz(plain)) == {"observations", "actions", "terminals"}


def test_what_cannot_be_saved(tmp_path):
    data = regular(PARTS)
    fails(lambda: save_ogbench(data, tmp_path / "x.hdf5"), "called 'x.hdf5'", "end in .npz")
    fails(
        lambda: save_ogbench(data.normalised("normal"), tmp_path / "x.npz"), "are normalised; save the dataset before"
    )
    broken = np.array(data.next_observations)
    broken[6] += 1
    wrong = offline.Dataset(data.observations, data.actions, data.terminals, next_observations=broken)
    fails(lambda: save_ogbench(wrong, tmp_path / "x.npz"), "next_observations of row 6 is not observations of row 7")
    endless = offline.Dataset(data.observations, data.actions, data.terminals * 0, next_observations=broken)
    fails(lambda: save_ogbench(endless, tmp_path / "x.npz"), "terminals is 0 at row 13")
    assert not list(tmp_path.iterdir())


def test_wrong_ogbench_files(tmp_path):
    def after(**changed):
        fields = {k: v for k, v in {**ogbench_fields(), **changed}.items() if v is not None}
        path = write(tmp_path / "x.npz", fields)
        return fails(lambda: read_ogbench(path), "x.npz: "), fails(lambda: read_ogbench(path, compact=True), "x.npz: ")

    rows = sum(LENGTHS) + 4
    ends = ogbench_fields()["terminals"]
    for text in after(observations=None):
        assert "observations is missing; there are actions, terminals" in text
    for text in after(terminals=ends & (np.arange(rows) < 10)):
        assert "terminals is 0 at row 17, the last one; the file ends inside a trajectory" in text
    for text in after(terminals=ends | (np.arange(rows) == 5)):
        assert "the trajectory that ends at row 5 is empty: no step leads there" in text
    for text in after(terminals=ends[:4]):
        assert "terminals has shape (4,), but observations has 18 rows" in text
    for text in after(terminals=np.where(ends, np.nan, 0)):
        assert "terminals is nan at row 4; it must be 0 or 1" in text
    for text in after(observations=np.zeros(18)):
        assert "observations has shape (18,); it must be (rows, width)" in text
    for text in after(actions=np.zeros((3, 2))):
        assert "actions has shape (3, 2), but observations has 18 rows" in text
    for text in after(actions=np.full((rows, 2), 3.0)):
        assert "actions is 3 at row 0; it must lie in [-1, 1]" in text


# Mapped files


def test_members_of_npz_files_are_mapped(tmp_path):
    fields = {
        **ogbench_fields(),
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "empty": np.zeros((0, 3)),
        "scalar": np.float32(3),
    }
    path = write(tmp_path / "x.npz", fields)
    mapped = read_npz(path, mapped=True)
    assert set(mapped) == set(fields)
    for name, value in fields.items():
        np.testing.assert_array_equal(mapped[name], value, err_msg=name)
        assert mapped[name].dtype == np.asarray(value).dtype
    assert isinstance(mapped["observations"], np.memmap)
    data = read_ogbench(path, mapped=True)
    assert isinstance(data.observations, np.memmap) and data.compact
    options = offline.BatchOptions(batch_size=sum(LENGTHS), next_actions=True)
    draws = {"rows": np.arange(sum(LENGTHS))}
    batches = [offline.sample_batch(d.arrays(), options, draws) for d in (data, read_ogbench(path))]
    for name in batches[0].keys() - {"rows"}:
        np.testing.assert_array_equal(batches[0][name], batches[1][name], err_msg=name)


def test_directories_of_npy_files_are_mapped(tmp_path):
    data = regular(PARTS)
    for name in ("observations", "next_observations", "actions", "terminals", "rewards"):
        np.save(tmp_path / f"{name}.npy", getattr(data, name))
    found = read_arrays(tmp_path, mapped=True)
    assert isinstance(found.observations, np.memmap)
    assert_same(found, data)
    assert find_format(tmp_path) == "arrays"
    (tmp_path / "rewards.npy").write_bytes(b"nothing")
    fails(lambda: read_arrays(tmp_path), "rewards.npy: cannot be read")


# Plain arrays


def test_plain_arrays(tmp_path):
    for make in (regular, compact):
        data = make(PARTS)
        names = ("observations", "actions", "terminals", "rewards", "next_observations", "valids")
        fields = {name: getattr(data, name) for name in names if getattr(data, name) is not None}
        path = write(tmp_path / "x.npz", {**fields, "note": np.arange(3)})
        assert find_format(path) == "arrays"
        assert_same(read_dataset(path), data, [*fields, "ends"])
    halved = write(tmp_path / "y.npz", {**fields, "actions": data.actions * 2})
    np.testing.assert_allclose(read_arrays(halved, low=-2, high=2).actions, data.actions, rtol=1e-6)


# Where trajectories end, by the names of other libraries


def flat_rows(lengths, over, following=False):
    """A table of steps: where the world ended, and where time was up in the other trajectories."""
    last = np.cumsum(lengths) - 1
    rows = sum(lengths)
    ended = np.isin(np.arange(rows), [last[k] for k in over])
    found = {
        "observations": np.arange(rows)[:, None] + np.zeros((1, 2)),
        "actions": np.zeros((rows, 1)),
        "rewards": np.arange(rows) / 10,
        "terminals": ended,
        "timeouts": np.isin(np.arange(rows), last) & ~ended,
    }
    return {**found, "next_observations": found["observations"] + 0.5} if following else found


@pytest.mark.parametrize("names", [("terminals", "timeouts"), ("terminations", "truncations")])
@pytest.mark.parametrize("container", ["npz", "npy", "hdf5"])
@pytest.mark.parametrize("mapped", [False, True])
def test_timeouts_end_trajectories_and_only_terminals_stop_values(tmp_path, names, container, mapped):
    fields = flat_rows([5] * 20, over=(3, 7), following=True)
    fields = {dict(zip(("terminals", "timeouts"), names, strict=True)).get(k, k): v for k, v in fields.items()}
    if container == "hdf5":
        fields["masks"] = ~fields[names[0]]  # with masks this is no table of D4RL
        with hdf5().File(tmp_path / "x.hdf5", "w") as file:
            for name, value in fields.items():
                file.create_dataset(name, data=value, chunks=True)
    elif container == "npy":
        for name, value in fields.items():
            np.save(tmp_path / f"{name}.npy", value)
    path = {"npz": tmp_path / "x.npz", "npy": tmp_path, "hdf5": tmp_path / "x.hdf5"}[container]
    if container == "npz":
        write(path, fields)
    assert find_format(path) == "arrays"
    data = read_dataset(path, mapped=mapped)
    assert data.mapped == mapped and data.lengths.tolist() == [5] * 20
    assert np.flatnonzero(data.masks == 0).tolist() == [19, 39] and np.flatnonzero(data.truncations).size == 18


@pytest.mark.parametrize("container", ["npz", "npy"])
@pytest.mark.parametrize("mapped", [False, True])
def test_steps_without_their_next_are_read_as_d4rl(tmp_path, container, mapped):
    fields = flat_rows([5] * 20, over=(3, 7))
    path = tmp_path if container == "npy" else write(tmp_path / "x.npz", fields)
    if container == "npy":
        for name, value in fields.items():
            np.save(tmp_path / f"{name}.npy", value)
    assert find_format(path) == "d4rl"
    data = read_dataset(path, mapped=mapped)
    # The last step of a timeout has no next observation.
    assert data.lengths.tolist() == [5 if k in (3, 7) else 4 for k in range(20)]
    assert np.flatnonzero(data.masks == 0).size == 2
    np.testing.assert_array_equal(data.observations[:3, 0], [0, 1, 2])
    np.testing.assert_array_equal(data.next_observations[:3, 0], [1, 2, 3])


def test_this_projects_own_truncations_are_among_its_terminals(tmp_path):
    fields = flat_rows([5, 5], over=(), following=True)
    fields["truncations"] = fields.pop("timeouts") & (np.arange(10) == 4)
    fields["terminals"] = np.arange(10) % 5 == 4
    data = read_dataset(write(tmp_path / "x.npz", fields))
    assert data.lengths.tolist() == [5, 5] and (data.masks == 1).all()
    assert np.flatnonzero(data.truncations).tolist() == [4]


def test_timeouts_in_ogbenchs_format(tmp_path):
    fields = ogbench_fields()
    finals = np.flatnonzero(fields["terminals"])
    for marked in (finals[:2], finals[:2] - 1):
        late = np.isin(np.arange(len(fields["terminals"])), marked)
        for dense in (False, True):
            data = read_ogbench(write(tmp_path / "x.npz", {**fields, "timeouts": late}), compact=dense)
            assert data.lengths.tolist() == list(LENGTHS) and data.truncations.sum() == 2
            assert data.truncations[np.unique(data.ends[data.drawable])].tolist() == [True, True, False, False]
    late = np.arange(len(late)) == 1
    path = write(tmp_path / "x.npz", {**fields, "truncations": late})
    fails(lambda: read_ogbench(path), "truncations is 1 at row 1, but row 2 is no final state", "read as format d4rl")


def test_dones_say_too_little(tmp_path):
    fields = flat_rows([5, 5], over=(), following=True)
    fields["dones"] = fields.pop("terminals")
    del fields["timeouts"]
    path = write(tmp_path / "x.npz", fields)
    fails(lambda: read_dataset(path), "x.npz: terminals is missing; dones does not say whether the world ended or time")
    fails(lambda: read_dataset(path, "d4rl"), "x.npz: terminals is missing; dones does not say")
    fails(lambda: offline.from_arrays(fields), "terminals is missing; dones does not say")


# What is not used is said


def test_arrays_that_are_not_used_are_named(tmp_path, capsys):
    def said(call):
        call()
        return capsys.readouterr().err

    fields = {**flat_rows([5, 5], over=(), following=True), "dones": np.zeros(10), "qpos": np.zeros(10)}
    path = write(tmp_path / "x.npz", fields)
    sentence = f"{path}: these arrays are not used: dones, qpos\n"
    assert said(lambda: read_dataset(path)) == sentence
    assert said(lambda: read_dataset(path)) == ""  # once
    assert said(lambda: offline.from_arrays(fields)) == "these arrays are not used: dones, qpos\n"
    path = write(tmp_path / "cube.npz", ogbench_fields())
    assert said(lambda: read_dataset(path)) == f"{path}: this array is not used: qpos\n"
    for k in range(2):
        (tmp_path / "episodes").mkdir(exist_ok=True)
        np.savez(tmp_path / "episodes" / f"episode_{k}_4.npz", **exorl_episode(4))
    assert "episodes: this array is not used: physics\n" in said(lambda: read_dataset(tmp_path / "episodes"))
    d4rl_file(tmp_path / "x.hdf5", [0, 0, 1], None)
    assert "x.hdf5: this array is not used: infos/*\n" in said(lambda: read_dataset(tmp_path / "x.hdf5"))
    minari_file(tmp_path / "y.hdf5", parts=True, infos=np.zeros(3))
    found = said(lambda: read_dataset(tmp_path / "y.hdf5", keys=["observation"]))
    assert "y.hdf5: these arrays are not used: infos, observations.achieved_goal, observations.desired_goal" in found


# Broken and foreign files


@pytest.mark.parametrize("mapped", [False, True])
def test_broken_npz_files(tmp_path, mapped):
    whole = write(tmp_path / "whole.npz", ogbench_fields()).read_bytes()
    path = tmp_path / "x.npz"
    path.write_bytes(whole[: len(whole) // 2])
    fails(
        lambda: read_ogbench(path, mapped=mapped),
        "x.npz: this is no npz file: it begins as one, but its end is missing",
    )
    path.write_bytes(b"hello")
    fails(lambda: read_ogbench(path, mapped=mapped), "this is no npz file: it is not a zip archive")
    path.write_bytes(b"")
    fails(lambda: read_ogbench(path, mapped=mapped), "it is not a zip archive")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("observations.npy", b"\x93NUMPY\x01\x00 nonsense")
    fails(lambda: read_ogbench(path, mapped=mapped), "the array 'observations' cannot be read")
    header = whole[whole.index(b"\x93NUMPY") :][:128]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("observations.npy", header + b"abc")
    fails(lambda: read_ogbench(path, mapped=mapped), "the array 'observations' cannot be read")
    np.savez(path, observations=np.array([{"a": 1}], dtype=object))
    fails(lambda: read_ogbench(path, mapped=mapped), "Python objects, which are never loaded")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "hello")
    fails(lambda: read_ogbench(path, mapped=mapped), "observations is missing; there are no known arrays")


def test_a_changed_byte_is_noticed(tmp_path):
    path = write(tmp_path / "x.npz", ogbench_fields())
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"\x93NUMPY") + 200] ^= 0xFF
    path.write_bytes(raw)
    fails(lambda: read_ogbench(path), "the array 'observations' cannot be read (Bad CRC-32")


@pytest.mark.parametrize("compressed", [False, True])
def test_damage_is_always_a_sentence(tmp_path, compressed):
    """Bytes changed, cut out and cut off anywhere: a dataset or one sentence, nothing else."""
    whole = write(tmp_path / "whole.npz", ogbench_fields(), compressed).read_bytes()
    rng, path, sentences = np.random.default_rng(0), tmp_path / "x.npz", 0
    for k in range(400):
        raw = bytearray(whole)
        where = int(rng.integers(len(raw)))
        if k % 4 == 0:
            raw = raw[:where]
        elif k % 4 == 1:
            del raw[where : where + int(rng.integers(1, 50))]
        else:
            for place in rng.integers(len(raw), size=k % 5 + 1):
                raw[place] = rng.integers(256)
        path.write_bytes(raw)
        for mapped in (False, True):
            try:
                read_ogbench(path, mapped=mapped)
            except TwinaxError as error:
                sentences += 1
                assert str(error).startswith(str(path)) and "\n" not in str(error)
    assert sentences > 400


def test_options_of_a_format(tmp_path):
    path = write(tmp_path / "x.npz", ogbench_fields())
    assert read_dataset(path, compact=True).compact
    fails(lambda: read_dataset(path, keys=[]), "unknown option of the format 'ogbench' 'keys'; known: compact, high")


def test_foreign_paths(tmp_path):
    fails(lambda: find_format(tmp_path / "no.npz"), "there is no file or directory", "no.npz")
    fails(lambda: find_format(tmp_path), "holds no npy files, no episodes and no Minari dataset")
    (tmp_path / "x.csv").write_text("1,2")
    fails(lambda: find_format(tmp_path / "x.csv"), "data is read from .npz, .hdf5 and .h5 files and from directories")
    path = write(tmp_path / "x.npz", ogbench_fields())
    fails(lambda: read_dataset(path, "ogbnch"), "unknown format 'ogbnch'", "Did you mean 'ogbench'?")
    fails(lambda: read_dataset(path, "exorl"), "there are no files called episode_NUMBER_STEPS.npz")


# ExORL


def exorl_episode(steps, seed=0, discount=1.0):
    rng = np.random.default_rng(seed)
    return {
        "observation": rng.normal(size=(steps + 1, 3)).astype(np.float32),
        "action": rng.uniform(-1, 1, (steps + 1, 2)).astype(np.float32),
        "reward": rng.normal(size=(steps + 1, 1)).astype(np.float32),
        "discount": np.where(np.arange(steps + 1)[:, None] == steps, discount, 1).astype(np.float32),
        "physics": np.zeros((steps + 1, 5)),
    }


def test_exorl(tmp_path):
    episodes = [exorl_episode(4, 0), exorl_episode(6, 1, discount=0.0), exorl_episode(3, 2)]
    for k, one in enumerate(episodes):
        np.savez_compressed(tmp_path / f"episode_{k:06d}_{len(one['action']) - 1}.npz", **one)
    data = read_exorl(tmp_path)
    assert data.reward_on_next and data.lengths.tolist() == [4, 6, 3] and find_format(tmp_path) == "exorl"
    row = 0
    for k, one in enumerate(episodes):
        steps = len(one["action"]) - 1
        for t in range(steps):
            assert (data.observations[row] == one["observation"][t]).all()
            assert (data.next_observations[row] == one["observation"][t + 1]).all()
            np.testing.assert_allclose(data.actions[row], one["action"][t + 1], atol=2e-5)
            assert data.rewards[row] == one["reward"][t + 1, 0] and data.masks[row] == one["discount"][t + 1, 0]
            assert data.terminals[row] == (t == steps - 1)
            assert data.truncations[row] == (t == steps - 1 and k != 1)
            row += 1
    assert read_exorl(tmp_path, max_rows=8).lengths.tolist() == [4, 4]
    assert read_exorl(tmp_path, max_rows=10).lengths.tolist() == [4, 6]


def test_exorl_episodes_of_different_widths(tmp_path):
    np.savez(tmp_path / "episode_0_4.npz", **exorl_episode(4))
    np.savez(tmp_path / "episode_1_4.npz", **{**exorl_episode(4), "action": np.zeros((5, 3))})
    fails(lambda: read_exorl(tmp_path), "actions has rows of shape (3,) in trajectory 1, but of (2,) in trajectory 0")


def test_wrong_exorl(tmp_path):
    fails(lambda: read_exorl(tmp_path), "there are no files called episode_NUMBER_STEPS.npz")

    def after(name, **changed):
        fields = {k: v for k, v in {**exorl_episode(4), **changed}.items() if v is not None}
        path = write(tmp_path / name, fields)
        text = fails(lambda: read_exorl(tmp_path), name)
        path.unlink()
        return text

    assert "the name says 5 steps, but there are 4" in after("episode_0_5.npz")
    assert "the name must be episode_NUMBER_STEPS.npz" in after("episode_x.npz")
    assert "reward is missing; there are action, discount, observation" in after("episode_0_4.npz", reward=None)
    assert "action has shape (3, 2), but observation has 5 rows" in after("episode_0_4.npz", action=np.zeros((3, 2)))
    assert "reward has shape (5, 2) of float64; it must be one number" in after(
        "episode_0_4.npz", reward=np.zeros((5, 2))
    )
    only = {name: value[:1] for name, value in exorl_episode(4).items()}
    assert "the trajectory is empty" in after("episode_0_0.npz", **only)


# HDF5


def hdf5():
    return pytest.importorskip("h5py")


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "x.hdf5").write_bytes(b"")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"reading HDF5 files needs h5py.*pip install 'twinax\[offline\]'"):
        read_d4rl(tmp_path / "x.hdf5")


def d4rl_file(path, over, late, following=False):
    rng = np.random.default_rng(0)
    rows = len(over)
    fields = {
        "observations": np.arange(rows)[:, None] + np.zeros((1, 3)),
        "actions": rng.uniform(-0.9, 0.9, (rows, 2)),
        "rewards": rng.normal(size=rows),
        "terminals": np.array(over, bool),
    }
    if late is not None:
        fields["timeouts"] = np.array(late, bool)
    if following:
        fields["next_observations"] = fields["observations"] + 0.5
    with hdf5().File(path, "w") as file:
        for name, value in fields.items():
            file[name] = value
        file["infos/goal"] = np.zeros(rows)
    return fields


def slow_d4rl(fields, terminate_on_end):
    """The q-learning view as its rules say, row by row: (row, mask)."""
    found = []
    for i in range(len(fields["rewards"]) - 1):
        late = bool(fields["timeouts"][i]) if "timeouts" in fields else False
        if late and not terminate_on_end:
            continue
        found.append((i, not (fields["terminals"][i] or (late and terminate_on_end))))
    return found


@pytest.mark.parametrize("following", [False, True])
@pytest.mark.parametrize("on_end", [False, True])
@pytest.mark.parametrize("timeouts", [False, True])
def test_d4rl(tmp_path, on_end, following, timeouts):
    over = [0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    late = [0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0] if timeouts else None
    fields = d4rl_file(tmp_path / "x.hdf5", over, late, following)
    data = read_d4rl(tmp_path / "x.hdf5", terminate_on_end=on_end)
    rows = slow_d4rl(fields, on_end)
    assert data.observations[:, 0].tolist() == [i for i, _ in rows]
    np.testing.assert_array_equal(data.rewards, fields["rewards"][[i for i, _ in rows]].astype(np.float32))
    for place, (i, mask) in enumerate(rows):
        assert data.masks[place] == mask
        if following:
            assert data.next_observations[place, 0] == i + 0.5
        else:
            assert data.next_observations[place, 0] == (i + 1 if mask else i)
    if not timeouts:
        assert data.lengths.tolist() == [3, 5, 3] and not data.truncations.any()
    elif on_end:
        assert data.lengths.tolist() == [3, 3, 2, 1, 2] and np.flatnonzero(data.truncations).tolist() == [5, 8]
    else:  # a timeout's last step is left out, so a trajectory of one such step is gone
        assert data.lengths.tolist() == [3, 2, 2, 2] and np.flatnonzero(data.truncations).tolist() == [4]
    data.require_goals()
    assert data.masks[-1] == 1 and not data.truncations[-1]  # where the file stops
    assert find_format(tmp_path / "x.hdf5") == "d4rl"


def test_wrong_d4rl(tmp_path):
    path = tmp_path / "x.hdf5"
    path.write_bytes(b"hello")
    hdf5()
    fails(lambda: read_d4rl(path), "x.hdf5: this file cannot be opened as HDF5: it is not an HDF5 file")
    d4rl_file(path, [0] * 500, [0] * 500)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    fails(lambda: read_d4rl(path), "cannot be opened as HDF5: it is truncated")
    d4rl_file(path, [0, 0, 0], [1, 1, 1])
    fails(lambda: read_d4rl(path), "every row is the last step of a timeout")
    d4rl_file(path, [0], None)
    fails(lambda: read_d4rl(path), "observations has 1 rows; at least 2 are needed")
    with hdf5().File(path, "w") as file:
        file["observations"] = np.zeros((3, 2))
    fails(lambda: read_d4rl(path), "actions is missing; there are observations")
    d4rl_file(path, [0, 0, 0], None)
    with hdf5().File(path, "a") as file:
        del file["rewards"]
        file["rewards"] = np.zeros(2)
    fails(lambda: read_d4rl(path), "rewards has shape (2,), but observations has 3 rows")
    with hdf5().File(path, "a") as file:
        del file["rewards"]
        file["rewards"] = np.zeros((3, 2))
    fails(lambda: read_d4rl(path), "rewards has shape (3, 2) of float64; it must be one number for each row")
    with hdf5().File(path, "a") as file:
        del file["rewards"]
        file["rewards/x"] = np.zeros(3)
    fails(lambda: read_d4rl(path), "'rewards' is a group of arrays")


def minari_file(path, lengths=(3, 1, 5), parts=False, discrete=False, **changed):
    rng = np.random.default_rng(0)
    found = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with hdf5().File(path, "w") as file:
        for k in [*range(len(lengths))][::-1]:  # order in the file is not the order of the episodes
            steps = lengths[k]
            group = file.create_group(f"episode_{k}")
            group.attrs["total_steps"] = steps
            one = {
                "observations": rng.normal(size=(steps + 1, 3)),
                "actions": rng.integers(0, 4, steps) if discrete else rng.uniform(-0.4, 0.4, (steps, 2)),
                "rewards": rng.normal(size=steps),
                "terminations": (np.arange(steps) == steps - 1) & (k == 0),
                "truncations": (np.arange(steps) == steps - 1) & (k == 1),
                **changed,
            }
            for name, value in one.items():
                if name == "observations" and parts:
                    group["observations/achieved_goal"] = value * 0
                    group["observations/desired_goal"] = value[:, :1]
                    group["observations/observation"] = value
                elif value is not None:
                    group[name] = value
            found.insert(0, one)
    return found


def test_minari(tmp_path):
    lengths = tuple(range(1, 13))  # episode_10 comes after episode_9
    episodes = minari_file(tmp_path / "d" / "data" / "main_data.hdf5", lengths)
    data = read_minari(tmp_path / "d", low=-0.4, high=0.4)
    assert data.lengths.tolist() == list(lengths) and find_format(tmp_path / "d") == "minari"
    assert find_format(tmp_path / "d" / "data" / "main_data.hdf5") == "minari"
    row = 0
    for one in episodes:
        for t in range(len(one["actions"])):
            np.testing.assert_allclose(data.observations[row], one["observations"][t], rtol=1e-6)
            np.testing.assert_allclose(data.next_observations[row], one["observations"][t + 1], rtol=1e-6)
            np.testing.assert_allclose(data.actions[row], one["actions"][t] / 0.4, rtol=1e-5)
            assert data.rewards[row] == np.float32(one["rewards"][t])
            assert data.masks[row] == (not one["terminations"][t]) and data.truncations[row] == one["truncations"][t]
            assert data.terminals[row] == (t == len(one["actions"]) - 1)
            row += 1
    assert read_minari(tmp_path / "d", max_rows=5).lengths.tolist() == [1, 2, 2]


@pytest.mark.parametrize("beside", [False, True])
def test_minari_names_its_box(tmp_path, beside):
    path = tmp_path / "data" / "main_data.hdf5"
    episodes = minari_file(path)
    space = json.dumps({"type": "Box", "dtype": "float32", "shape": [2], "low": [-0.4, -0.8], "high": [0.4, 0.8]})
    if beside:
        (path.parent / "metadata.json").write_text(json.dumps({"total_steps": 9, "action_space": space}))
    else:
        with hdf5().File(path, "a") as file:
            file.attrs["action_space"] = space
    expected = np.concatenate([one["actions"] for one in episodes]) / [0.4, 0.8]
    np.testing.assert_allclose(read_minari(tmp_path).actions, expected, atol=2e-5)
    np.testing.assert_allclose(read_minari(tmp_path, low=-1, high=1).actions, expected * [0.4, 0.8], atol=2e-5)


def test_minari_with_parts_and_choices(tmp_path):
    path = tmp_path / "main_data.hdf5"
    episodes = minari_file(path, parts=True, discrete=True)
    data = read_minari(path, keys=("observation", "desired_goal"))
    assert data.observations.shape == (9, 4) and data.actions.dtype == np.int32
    np.testing.assert_allclose(data.observations[0, [0, 1, 2, 0]], data.observations[0])
    np.testing.assert_allclose(data.observations[0, :3], episodes[0]["observations"][0], rtol=1e-6)
    fails(lambda: read_minari(path), "episode_0: observations has the parts achieved_goal, desired_goal, observation")
    fails(
        lambda: read_minari(path, keys=("observatoin",)),
        "unknown part of the observations",
        "Did you mean 'observation'",
    )


def test_wrong_minari(tmp_path):
    hdf5()
    path = tmp_path / "main_data.hdf5"
    fails(lambda: read_minari(tmp_path), "there is no data/main_data.hdf5 in it; only Minari's HDF5 format is read")
    for changed, words in (
        ({"rewards": None}, "episode_0: rewards is missing"),
        ({"observations": np.zeros((3, 3))}, "observations has 3 rows, but 3 actions need 4"),
        ({"rewards": np.zeros(2)}, "rewards has shape (2,), but actions has 3 rows"),
    ):
        minari_file(path, (3,), **changed)
        fails(lambda: read_minari(path), "main_data.hdf5: episode_0: ", words)
    minari_file(path, (3, 0))
    fails(lambda: read_minari(path), "episode_1: the trajectory is empty")
    minari_file(path, ())
    fails(lambda: read_minari(path), "no groups called episode_0, episode_1 and so on")
