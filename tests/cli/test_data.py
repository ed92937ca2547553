"""`twinax data`: what it says of a file, and the sentence and the code when something is wrong."""

from __future__ import annotations

import numpy as np
import pytest


def rows(lengths=(3, 5), **changed):
    count = sum(lengths) + len(lengths)
    ends = np.isin(np.arange(count), np.cumsum([n + 1 for n in lengths]) - 1)
    fields = {
        "observations": np.linspace(-2, 3, count * 2).reshape(count, 2),
        "actions": np.full((count, 1), 0.5),
        "terminals": ends,
        **changed,
    }
    return {name: value for name, value in fields.items() if value is not None}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_is_described(twinax, save):
    save("cube.npz", **rows())
    shown = twinax("data", "cube.npz")
    assert shown.code == 0 and not shown.err
    facts = dict(line.split("  ", 1) for line in shown.out.splitlines())
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    assert facts["format"] == "ogbench" and facts["file"] == "cube.npz"
    assert facts["rows"] == "10, of which 8 may be drawn" and facts["layout"].startswith("compact")
    assert facts["trajectories"] == "2 of 3 to 5 steps, mean 4.0"
    assert facts["observations"].startswith("2 of float32, from -2 to ")
    assert facts["actions"] == "1 of float32, from 0.5 to 0.5"
    assert facts["rewards"] == "none" and facts["masks"].startswith("1 everywhere")
    assert facts["ends"] == "0 terminated, 0 truncated, 2 where the recording stopped"
    assert facts["size on disk"].endswith("B") and facts["checked"] == "nothing wrong was found"
    assert twinax("data", "cube.npz", "--goals").code == 0


def test_a_file_larger_than_memory_is_described(twinax, monkeypatch):
    monkeypatch.setattr("twinax.offline._readers.available_memory", lambda: 100.0)
    np.savez_compressed("cube.npz", **rows())
    shown = twinax("data", "cube.npz")
    assert shown.code == 0 and "10, of which 8 may be drawn" in shown.out
    assert shown.err == (
        "cube.npz: copies of arrays that cannot be mapped as they are go to cube.npz.mapped; used again next time\n"
    )


def test_rewards_masks_and_ends(twinax):
    fields = rows(rewards=np.arange(10.0), masks=np.arange(10) != 2, truncations=np.arange(10) == 8)
    np.savez("x.npz", **fields)
    out = twinax("data", "x.npz").out
    assert "from 0 to 8, mean " in out and "0 in 1 rows" in out
    assert "1 terminated, 1 truncated, 0 where the recording stopped" in out


def test_an_open_end_is_said(twinax):
    fields = rows((9,), actions=np.arange(10), terminals=np.zeros(10))
    np.savez("x.npz", **fields, next_observations=fields["observations"])
    shown = twinax("data", "x.npz")
    assert shown.code == 0 and "choices from 0 to 9" in shown.out and "no goals can be drawn" in shown.out
    refused = twinax("data", "x.npz", "--goals")
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert "x.npz: terminals is 0 at row 9, the last one; goals are drawn" in refused.err


def nan_at(row):
    x = np.zeros((10, 2))
    x[row] = np.nan
    return x


WRONG = {
    "observations is nan at row 4": lambda: np.savez("x.npz", **rows(observations=nan_at(4))),
    "rewards is inf at row 7": lambda: np.savez("x.npz", **rows(rewards=np.where(np.arange(10) == 7, np.inf, 0))),
    "actions is 3 at row 0": lambda: np.savez("x.npz", **rows(actions=np.full((10, 1), 3))),
    "terminals is missing": lambda: np.savez("x.npz", **rows(terminals=None)),
    "actions has shape (4, 1), but observations has 10 rows": lambda: np.savez(
        "x.npz", **rows(actions=np.zeros((4, 1)))
    ),
    "the trajectory that ends at row 4 is empty": lambda: np.savez("x.npz", **rows((3, 0, 5))),
    "the file ends inside a trajectory": lambda: np.savez("x.npz", **rows(terminals=np.zeros(10))),
    "this is no npz file": lambda: open("x.npz", "w").close(),
    "there is no file or directory 'x.npz'": lambda: None,
}


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_one_sentence(twinax, words):
    WRONG[words]()
    shown = twinax("data", "x.npz")
    assert shown.code == 2 and not shown.out
    assert shown.err.startswith("error: ") and words in shown.err and shown.err.count("\n") == 1


def test_an_unknown_format(twinax):
    np.savez("x.npz", **rows())
    shown = twinax("data", "x.npz", "--format", "ogbnch")
    assert shown.code == 2 and "Did you mean 'ogbench'?" in shown.err


def test_a_box_can_be_given(twinax):
    fields = rows(actions=np.full((10, 1), 1.5))
    np.savez("x.npz", **fields, valids=~fields["terminals"])
    assert "actions is 1.5 at row 0" in twinax("data", "x.npz").err
    assert "1 of float32, from 0.5 to 0.5" in twinax("data", "x.npz", "--low", "0", "--high", "2").out
    assert "low has shape (2,), but actions has rows of shape (1,)" in twinax("data", "x.npz", "--low=0,0").err
    assert "--low is 'a'; it must be a number" in twinax("data", "x.npz", "--low", "a").err
    refused = twinax("data", "x.npz", "--keys", "a,b")
    assert refused.code == 2 and "unknown option of the format 'arrays' 'keys'" in refused.err


def test_a_box_can_be_given_for_every_format(twinax):
    np.savez("x.npz", **rows(actions=np.full((10, 2), [1.5, 0.5])))
    shown = twinax("data", "x.npz")
    assert shown.code == 2 and "name its box by low and high (in a run data.low and data.high)" in shown.err
    assert "2 of float32, from 0 to 0.5" in twinax("data", "x.npz", "--low=0,0", "--high=2,1").out


def test_ends_and_unused_arrays_of_other_libraries(twinax):
    fields = rows((99,), actions=np.zeros((100, 1)), terminals=np.zeros(100), timeouts=np.arange(100) % 5 == 4)
    np.savez("x.npz", **fields, next_observations=fields["observations"], dones=np.zeros(100))
    shown = twinax("data", "x.npz")
    assert shown.code == 0 and "20 of 5 steps" in shown.out and "20 truncated" in shown.out
    assert shown.err == "x.npz: this array is not used: dones\n"
