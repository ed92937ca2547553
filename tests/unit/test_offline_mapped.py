"""Files larger than the memory: every reader maps what it reads, with the values that it has in memory."""

from __future__ import annotations

import errno
import subprocess
import sys

import jax
import numpy as np
import pytest
from offline_rows import compact, regular, trajectories

import twinax as tx
from twinax import mapped_files
from twinax.errors import TwinaxError
from twinax.mapped_files import ArrayFile, aligned, gathered, in_blocks, row_blocks
from twinax.memory import is_mapped
from twinax.offline import BatchOptions, problem, read_dataset, sample_batch, save_ogbench
from twinax.offline.agents import BC

LENGTHS = (4, 1, 7, 2, 9)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Five rows at a time, so that every file has several blocks."""
    monkeypatch.setattr(mapped_files, "CHUNK", 5)


def npz(path, compressed):
    return save_ogbench(compact(trajectories(LENGTHS)), path / "walks.npz", compressed)


def npy(path, dtype):
    data = regular(trajectories(LENGTHS))
    (path / "arrays").mkdir()
    for name in ("observations", "next_observations", "actions", "terminals", "rewards"):
        value = getattr(data, name)
        np.save(path / "arrays" / f"{name}.npy", value.astype(dtype) if value.dtype == np.float32 else value)
    return path / "arrays"


def d4rl(path, following=False, timeouts=False, **storage):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    rows = 23
    fields = {
        "observations": rng.normal(size=(rows, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "terminals": np.isin(np.arange(rows), (4, 5, 20)),
    }
    if following:
        fields["next_observations"] = rng.normal(size=(rows, 3)).astype(np.float32)
    if timeouts:
        fields["timeouts"] = np.isin(np.arange(rows), (9, 10, 15, 22))
    with h5py.File(path / "hopper.hdf5", "w") as file:
        for name, value in fields.items():
            file.create_dataset(name, data=value, **storage)
    return path / "hopper.hdf5"


def minari(path, parts=False):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    with h5py.File(path / "main_data.hdf5", "w") as file:
        for k, steps in enumerate(LENGTHS):
            group = file.create_group(f"episode_{k}")
            names = ("observations/observation", "observations/desired_goal") if parts else ("observations",)
            for name in names:
                group.create_dataset(name, data=rng.normal(size=(steps + 1, 3)), compression="gzip")
            group["actions"] = rng.uniform(-0.4, 0.4, (steps, 2))
            group["rewards"] = rng.normal(size=steps)
            group["terminations"] = (np.arange(steps) == steps - 1) & (k == 0)
            group["truncations"] = (np.arange(steps) == steps - 1) & (k == 1)
    return path / "main_data.hdf5"


def exorl(path, dtype=np.float32):
    rng = np.random.default_rng(0)
    (path / "episodes").mkdir()
    for k, steps in enumerate(LENGTHS):
        one = {
            "observation": rng.normal(size=(steps + 1, 3)).astype(dtype),
            "action": rng.uniform(-1, 1, (steps + 1, 2)).astype(dtype),
            "reward": rng.normal(size=(steps + 1, 1)).astype(dtype),
            "discount": np.where(np.arange(steps + 1) == steps, k % 2, 1).astype(dtype),
        }
        np.savez_compressed(path / "episodes" / f"episode_{k:06d}_{steps}.npz", **one)
    return path / "episodes"


FILES = {
    "npz": (lambda path: npz(path, False), {}, False),
    "npz, compressed": (lambda path: npz(path, True), {}, True),
    "npy": (lambda path: npy(path, np.float32), {}, False),
    "npy of float64": (lambda path: npy(path, np.float64), {}, True),
    "npy of another box": (lambda path: npy(path, np.float32), {"low": [-1, -2], "high": [3, 1]}, True),
    "d4rl": (lambda path: d4rl(path, following=True), {}, False),
    "d4rl without next observations": (d4rl, {}, True),
    "d4rl with timeouts": (lambda path: d4rl(path, timeouts=True), {}, True),
    "d4rl to the end": (lambda path: d4rl(path, timeouts=True), {"terminate_on_end": True}, True),
    "d4rl in chunks": (lambda path: d4rl(path, timeouts=True, chunks=True, compression="gzip"), {}, True),
    "d4rl in one chunk": (lambda path: d4rl(path, True, True, maxshape=None, compression="gzip"), {}, True),
    "minari": (minari, {"low": -0.4, "high": 0.4}, True),
    "minari, regular": (minari, {"compact": False}, True),
    "minari with parts": (lambda path: minari(path, True), {"keys": ["desired_goal", "observation"]}, True),
    "exorl": (exorl, {}, True),
    "exorl of float64": (lambda path: exorl(path, np.float64), {}, True),
    "exorl, regular": (exorl, {"compact": False}, True),
}


def drawn(data):
    """All rows that may be drawn, in order, as a batch; rows themselves differ between the layouts."""
    options = BatchOptions(batch_size=data.size, next_actions=True)
    batch = sample_batch(data.arrays(), options, {"rows": np.arange(data.size)})
    del batch["rows"]
    return batch


def copies(path):
    return sorted(str(file) for file in path.parent.rglob("*.npy") if ".mapped" in str(file))


@pytest.mark.parametrize("name", FILES)
def test_mapped_rows_are_those_in_memory(name, tmp_path, capsys):
    make, options, copied = FILES[name]
    path = make(tmp_path)
    memory = read_dataset(path, mapped=False, **options)
    mapped = read_dataset(path, mapped=True, **options)
    assert not memory.mapped and mapped.mapped
    for column in ("observations", "actions", "next_observations"):
        assert getattr(mapped, column) is None or is_mapped(getattr(mapped, column)), column
    expected, found = drawn(memory), drawn(mapped)
    assert expected.keys() == found.keys()
    for column, value in expected.items():
        np.testing.assert_array_equal(found[column], value, err_msg=column)
    assert mapped.lengths.tolist() == memory.lengths.tolist() and mapped.reward_on_next == memory.reward_on_next
    for one, other in (
        (mapped.observation_range(), memory.observation_range()),
        (mapped.action_range(), memory.action_range()),
    ):
        np.testing.assert_array_equal(one, other)
    # Copies are said once, and made once.
    said = capsys.readouterr().err
    assert said.count("copies of arrays that cannot be mapped as they are go to") == copied, said
    before = copies(path)
    assert bool(before) == copied
    again = read_dataset(path, mapped=True, **options)
    assert copies(path) == before and not capsys.readouterr().err
    np.testing.assert_array_equal(again.observations, mapped.observations)


@pytest.mark.parametrize("name", ["npz", "npz, compressed", "d4rl with timeouts", "exorl"])
@pytest.mark.parametrize("kind", ["normal", "bounded"])
def test_normalised_rows_stay_on_the_disk(name, kind, tmp_path):
    make, options, _ = FILES[name]
    path = make(tmp_path)
    memory, mapped = (read_dataset(path, mapped=way, **options) for way in (False, True))
    statistics = memory.statistics(kind)
    np.testing.assert_allclose(mapped.statistics(kind).shift, statistics.shift, rtol=1e-12)
    one, other = memory.normalised(statistics), mapped.normalised(statistics)
    assert other.mapped and not one.mapped
    expected, found = drawn(one), drawn(other)
    for column, value in expected.items():
        np.testing.assert_array_equal(found[column], value, err_msg=column)
    before = copies(path)
    mapped.normalised(statistics)
    assert copies(path) == before


@pytest.mark.parametrize("mode", ["torch", "jax"])
def test_engines_read_the_file_itself(mode, tmp_path):
    path = npz(tmp_path, False)

    def subject(mapped):
        data = read_dataset(path, mapped=mapped, compact=True).placed()
        return problem(BC(hidden=(4,)), data, pretrain_steps=100, batch_size=8)

    mapped, memory = (tx.engines.make_engine(subject(way), mode=mode, chunk=5) for way in (True, False))
    given, rows = mapped._inputs().data["pretrain"], mapped.problem.datasets["pretrain"]
    for name in ("observations", "actions"):
        place = given[name].unsafe_buffer_pointer() if mode == "jax" else given[name].data_ptr()
        assert place == getattr(rows, name).ctypes.data and is_mapped(getattr(rows, name))
    logs = []
    for engine in (mapped, memory):
        engine.start(seed=0)
        logs.append(engine.run(5))
    for name, value in logs[1].items():
        np.testing.assert_array_equal(logs[0][name], value, err_msg=name)


def test_the_directory_that_one_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(exorl(tmp_path))
    assert read_dataset(".", mapped=True).mapped and (tmp_path / "episodes.mapped").is_dir()


def test_changed_data_are_copied_again(tmp_path):
    path = npz(tmp_path, True)
    read_dataset(path, mapped=True)
    before = copies(path)
    other = compact(trajectories((3, 4), seed=1))
    save_ogbench(other, path, compressed=True)
    found = read_dataset(path, mapped=True)
    np.testing.assert_array_equal(found.observations, other.observations)
    assert len(copies(path)) == len(before) and not set(copies(path)) & set(before)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch, capsys):
    path = npz(tmp_path, True)
    monkeypatch.setattr(mapped_files.os, "access", lambda *_: False)
    found = read_dataset(path, mapped=True)
    said = capsys.readouterr().err
    assert said.count("deleted at the end, because nothing can be written beside the data") == 1
    assert found.mapped and not copies(path)
    # What is made of a temporary copy is a temporary copy.
    assert found.normalised("normal").mapped and not copies(path)
    np.testing.assert_array_equal(read_dataset(path, mapped=True).observations, found.observations)
    assert not capsys.readouterr().err


def test_a_full_disk_and_a_killed_process(tmp_path, monkeypatch):
    path = exorl(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ArrayFile, "append", full)
        with pytest.raises(TwinaxError, match="there is no space in .*episodes.mapped for a copy that can be mapped"):
            read_dataset(path, mapped=True)
    place = tmp_path / "episodes.mapped"
    assert not list(place.iterdir())
    name = f"{'0' * 12}-{'1' * 12}"
    ours, theirs = (place / f".{name}.{host}.{2**22 + 1}.part" for host in (mapped_files.platform.node(), "else.where"))
    older, foreign = place / name, place / "notes-2024"
    for folder in (ours, theirs, older, foreign):
        folder.mkdir()
    read_dataset(path, mapped=True)
    assert theirs.exists() and foreign.exists() and not ours.exists() and not older.exists()


def test_wrong_rows_are_named_in_any_block(tmp_path):
    path = npy(tmp_path, np.float32)
    for name, row, value, sentence in (
        ("observations", 13, np.nan, "observations is nan at row 13; it must be finite"),
        ("actions", 17, 3.0, "actions is 3 at row 17; it must lie in [-1, 1]"),
    ):
        right = np.load(path / f"{name}.npy")
        wrong = right.copy()
        wrong[row, 1] = value
        np.save(path / f"{name}.npy", wrong)
        for mapped in (False, True):
            with pytest.raises(TwinaxError) as caught:
                read_dataset(path, mapped=mapped)
            assert sentence in str(caught.value)
        np.save(path / f"{name}.npy", right)
    with pytest.raises(TwinaxError, match="actions is 3 at row 17; it must lie in the box from -2.0 to 2.0"):
        np.save(path / "actions.npy", wrong)
        read_dataset(path, mapped=True, low=-2, high=2)


def test_episodes_of_another_kind(tmp_path):
    path = exorl(tmp_path)
    file = path / "episode_000003_2.npz"
    with np.load(file) as found:
        fields = dict(found)
    np.savez(file, **{**fields, "observation": fields["observation"].astype(np.complex64)})
    with pytest.raises(TwinaxError, match="observations has dtype complex64 after 15 rows of float32"):
        read_dataset(path, mapped=True)


def test_larger_than_half_of_the_free_memory(tmp_path, monkeypatch):
    for make in (lambda path: npz(path, True), lambda path: npy(path, np.float32), d4rl, minari, exorl):
        path = make(tmp_path)
        for free, mapped in ((1e9, False), (500.0, True)):
            monkeypatch.setattr("twinax.offline._readers.available_memory", lambda free=free: free)
            assert read_dataset(path).mapped == mapped


# The parts


def test_blocks_of_rows():
    x = np.zeros((23, 3))
    assert [block.stop - block.start for block in row_blocks(x)] == [5, 5, 5, 5, 3]
    assert [block.stop - block.start for block in row_blocks(x, 4)] == [8, 8, 7]
    wide = np.zeros((2, mapped_files.BLOCK), np.uint8)
    assert [block.stop - block.start for block in row_blocks(wide)] == [1, 1]
    index = np.array([0, 0, 4, 5, 17, 22])
    rows = np.arange(23) * 2
    np.testing.assert_array_equal(np.concatenate(list(gathered(rows, index))), index * 2)


def test_slices_of_one_file_have_their_own_copies(tmp_path):
    (tmp_path / "x").mkdir()
    np.save(tmp_path / "x" / "x.npy", np.arange(20, dtype=np.float32).reshape(10, 2))
    x = np.load(tmp_path / "x" / "x.npy", mmap_mode="r")
    for part in (x[:4], x[1:5], x[1:5, :1], np.asarray(x)[2:6]):
        assert is_mapped(part)
        doubled = in_blocks(part, np.float64, lambda block: 2 * block, "doubled")
        assert is_mapped(doubled) and doubled.dtype == np.float64
        np.testing.assert_array_equal(doubled, 2 * part)
        np.testing.assert_array_equal(aligned(part), part)
        assert aligned(part).ctypes.data % 64 == 0 and is_mapped(aligned(part))
    assert not is_mapped(x + 1) and not is_mapped(x[[0, 1]]) and not is_mapped(x.astype(np.float64))
    found = aligned(x[1:])
    assert jax.numpy.asarray(found).unsafe_buffer_pointer() == found.ctypes.data


# Under a limit: what a process may allocate is less than a file

LIMITED = """
import resource, sys
from twinax.offline import read_dataset
with open("/proc/self/status") as file:
    now = next(int(line.split()[1]) for line in file if line.startswith("VmData")) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (now + 88_000_000,) * 2)
for path in sys.argv[1:]:
    try:
        read_dataset(path, mapped=False)
    except MemoryError:
        print("too large", end=" ")
    data = read_dataset(path, mapped=True)
    low, high = data.observation_range()
    print(data.size, float(low.min()), round(float(high.max()), 3), data.normalised("normal").mapped)
    del data
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit counts private memory only on Linux")
def test_files_larger_than_what_may_be_allocated(tmp_path):
    rows, width = 100_000, 256  # 102 MB
    states = np.broadcast_to(np.linspace(-2, 3, rows, dtype=np.float32)[:, None], (rows, width))
    actions, ends = np.zeros((rows, 2), np.float32), np.arange(rows) % 1000 == 999
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "walks.hdf5", "w") as file:
        file.create_dataset("observations", data=states, chunks=(1000, width), compression="lzf")
        for name, value in (("actions", actions), ("rewards", np.zeros(rows)), ("terminals", ends)):
            file[name] = value
    np.savez_compressed(tmp_path / "walks.npz", observations=states, actions=actions, terminals=ends)
    (tmp_path / "walks").mkdir()
    rest = {"action": actions[:1000], "reward": np.zeros(1000), "discount": np.ones(1000)}
    for k in range(0, rows, 1000):
        np.savez(tmp_path / "walks" / f"episode_{k:06d}_999.npz", observation=states[k : k + 1000], **rest)
    paths = [str(tmp_path / name) for name in ("walks.hdf5", "walks.npz", "walks")]
    done = subprocess.run([sys.executable, "-c", LIMITED, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"too large {size} -2.0 3.0 True" for size in (rows - 1, rows - rows // 1000, rows - rows // 1000)
    ]
