"""Films: frames come back as they went, files are whole or absent, and a run keeps what its evaluations filmed."""

from __future__ import annotations

import base64
import errno
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from twinax import engines
from twinax.envs.sprites import render
from twinax.errors import MissingExtra, TwinaxError
from twinax.runs import films, report, resume, train, write_report
from twinax.runs.films import write_film, write_gif, write_mp4

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

Image = pytest.importorskip("PIL.Image")

FAKE_FFMPEG = """#!{python}
import json, sys
content = sys.stdin.buffer.read()
if {fails}:
    sys.exit("first line\\nno such encoder")
open(sys.argv[-1], "wb").write(content)
json.dump(sys.argv[1:], open({arguments!r}, "w"))
"""


class FilmingEngine(ProbeEngine):
    """Films a square whose brightness is the step, redder for later seeds."""

    def evaluate(self):
        films = np.zeros((self.seeds, 4, 8, 8, 3), np.uint8)
        for seed, state in enumerate(self.states):
            films[seed, :, 2:6, 2:6] = int(state.step)
            films[seed, :, 2:6, 2:6, 0] += 100 * seed
            films[seed, np.arange(4), np.arange(4)] = 255
        found = films[0] if self.seeds == 1 else films
        return super().evaluate() | {"film/greedy": found, "film/agents/first": found[..., ::-1]}


@pytest.fixture
def filming(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", FilmingEngine)


@pytest.fixture
def no_pillow(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "PIL" else real(name, *rest))


def hunt(turns=30):
    """A small treasure hunt: items appear, three agents walk."""
    rng = np.random.default_rng(0)
    cells = np.zeros((turns, 10, 10), int)
    cells[:, 1:-1, 1:-1] = 1
    for before, now in zip(cells[:-1], cells[1:], strict=True):
        now[:] = np.where((before == 1) & (rng.random(before.shape) < 0.02), rng.integers(2, 5, before.shape), before)
    agents = np.clip(np.cumsum(rng.integers(-1, 2, (turns, 3, 2)), axis=0) + 4, 1, 8)
    return render(cells, ["wall", "empty", "gem", "food", "bone"], agents)


def read(path):
    """Every frame of a GIF and the milliseconds it is seen."""
    with Image.open(path) as film:
        frames, durations = [], []
        for index in range(film.n_frames):
            film.seek(index)
            frames.append(np.asarray(film.convert("RGB")))
            durations.append(film.info["duration"])
        return np.stack(frames), durations, film.info.get("loop")


def put_on_path(monkeypatch, directory, fails=False):
    program = directory / "bin" / "ffmpeg"
    program.parent.mkdir()
    arguments = directory / "arguments.json"
    program.write_text(FAKE_FFMPEG.format(python=sys.executable, fails=fails, arguments=str(arguments)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))
    return arguments


def test_frames_come_back_as_they_went(tmp_path):
    frames = hunt()
    path = write_gif(tmp_path / "deep" / "hunt.gif", frames, milliseconds=123)
    shown, durations, loop = read(path)
    np.testing.assert_array_equal(shown, frames)
    assert durations == [120] * len(frames) and loop == 0
    assert os.listdir(path.parent) == ["hunt.gif"]


@pytest.mark.parametrize("colours", [1, 2, 31, 32, 255])
def test_any_colours_and_any_movement(tmp_path, colours):
    rng = np.random.default_rng(colours)
    palette = np.concatenate([np.zeros((1, 3)), rng.integers(0, 256, (colours - 1, 3))]).astype(np.uint8)
    frames = palette[rng.integers(0, colours, (6, 20, 20))]
    frames[3] = frames[2]
    shown, durations, _ = read(write_gif(tmp_path / "noise.gif", frames))
    assert sum(durations) == 600
    np.testing.assert_array_equal(shown.repeat(np.array(durations) // 100, axis=0), frames)


def test_a_film_is_small_and_has_one_palette(tmp_path):
    frames = hunt()
    size = write_gif(tmp_path / "hunt.gif", frames).stat().st_size
    assert size < 800 * len(frames)
    with Image.open(tmp_path / "hunt.gif") as film:
        film.seek(5)
        palette = film.global_palette.getdata()[1]
    content = (tmp_path / "hunt.gif").read_bytes()
    assert content.count(palette[:90]) == 1


def test_still_frames_keep_their_time(tmp_path):
    frames = np.zeros((6, 4, 4, 3), np.uint8)
    frames[4:] = 200
    _, durations, _ = read(write_gif(tmp_path / "still.gif", frames))
    assert sum(durations) == 600


def test_many_colours_become_near_ones_without_dithering(tmp_path):
    frames = np.zeros((4, 64, 64, 3), np.uint8)
    frames[..., 0], frames[..., 1] = 4 * np.arange(64), 4 * np.arange(64)[:, None]
    frames[..., 2] = (60 * np.arange(4))[:, None, None]
    frames[:, :16, :16] = (77, 133, 201)
    shown, _, _ = read(write_gif(tmp_path / "many.gif", frames))
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= 255
    assert np.abs(shown.astype(int) - frames).max() < 40
    assert len(np.unique(shown[:, :16, :16].reshape(-1, 3), axis=0)) == 1


def test_one_frame_is_a_film_too(tmp_path):
    shown, _, _ = read(write_gif(tmp_path / "one.gif", hunt()[:1]))
    np.testing.assert_array_equal(shown, hunt()[:1])


def test_a_full_disk_leaves_the_film_before(tmp_path, monkeypatch):
    path = write_gif(tmp_path / "hunt.gif", hunt(3))
    before = path.read_bytes()

    def full(self, file, *_, **__):
        Path(file).write_bytes(b"GIF8")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(TwinaxError, match="cannot write the film.*No space left.*free some space"):
        write_gif(path, hunt(4))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["hunt.gif"]


@pytest.mark.parametrize(
    ("frames", "milliseconds", "sentence"),
    [
        (np.zeros((2, 4, 4), np.uint8), 100, r"shape \(2, 4, 4\) and type uint8"),
        (np.zeros((2, 4, 4, 3)), 100, "type float64; they must be uint8"),
        (np.zeros((0, 4, 4, 3), np.uint8), 100, "at least one frame"),
        (np.zeros((2, 4, 4, 3), np.uint8), 0, "milliseconds is 0"),
    ],
)
def test_what_is_no_film_is_named(unchecked, tmp_path, frames, milliseconds, sentence):
    for name in ("film.gif", "film.mp4"):
        with pytest.raises(TwinaxError, match=sentence):
            write_film(tmp_path / name, frames, milliseconds)


def test_the_suffix_chooses(tmp_path, monkeypatch):
    write_film(str(tmp_path / "a.GIF"), hunt(2))
    assert (tmp_path / "a.GIF").read_bytes().startswith(b"GIF89a")
    put_on_path(monkeypatch, tmp_path)
    assert write_film(tmp_path / "a.mp4", hunt(2)).read_bytes() == hunt(2).tobytes()
    with pytest.raises(TwinaxError, match="'a.avi'; end its name with .gif or .mp4"):
        write_film(tmp_path / "a.avi", hunt(2))


def test_missing_pillow_names_the_command(tmp_path, no_pillow):
    with pytest.raises(MissingExtra, match=r"needs PIL.*pip install 'twinax\[plots\]'"):
        write_gif(tmp_path / "hunt.gif", hunt(2))


def test_ffmpeg_gets_the_frames_and_their_size(tmp_path, monkeypatch):
    arguments = put_on_path(monkeypatch, tmp_path)
    frames = hunt(3)[:, :48]
    write_mp4(tmp_path / "hunt.mp4", frames[:, :, ::-1], milliseconds=40)
    given = json.loads(arguments.read_text())
    assert given[given.index("-s") + 1] == "160x48" and given[given.index("-r") + 1] == "1000/40"
    assert given.index("rgb24") < given.index("-i") < given.index("yuv420p") and given[-1].endswith(".tmp-hunt.mp4")
    assert (tmp_path / "hunt.mp4").read_bytes() == frames[:, :, ::-1].tobytes()
    assert not (tmp_path / ".tmp-hunt.mp4").exists()


def test_ffmpeg_that_fails_or_is_absent(tmp_path, monkeypatch):
    put_on_path(monkeypatch, tmp_path, fails=True)
    with pytest.raises(TwinaxError, match=r"could not write .*hunt.mp4 \(exit code 1\): no such encoder"):
        write_mp4(tmp_path / "hunt.mp4", hunt(2))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TwinaxError, match="ffmpeg, which is not on the PATH; install it or write hunt.gif"):
        write_mp4(tmp_path / "hunt.mp4", hunt(2))
    assert not list(tmp_path.glob("*.mp4")) and not list(tmp_path.glob(".tmp*"))


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not on the PATH")
def test_ffmpeg_itself_reads_what_was_written(tmp_path):
    frames = hunt(12)[:, :47, :65]  # odd: the encoder wants even numbers
    write_mp4(tmp_path / "hunt.mp4", frames)
    command = ["ffmpeg", "-v", "error", "-i", str(tmp_path / "hunt.mp4"), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    shown = np.frombuffer(done.stdout, np.uint8).reshape(12, 48, 66, 3)[:, :47, :65]
    assert np.abs(shown.astype(int) - frames).mean() < 12


def test_a_run_keeps_the_films_of_its_evaluations(tmp_path, filming):
    run_dir = tmp_path / "run"
    run = train(ProbeProblem(), steps=25, evaluate_every=10, run_dir=run_dir, progress=False)
    assert sorted(path.name for path in (run_dir / "films").iterdir()) == [
        f"{name}-{step:010d}.gif" for name in ("agents-first", "greedy") for step in (10, 20, 25)
    ]
    shown, _, _ = read(run_dir / "films" / "greedy-0000000020.gif")
    assert shown.shape == (4, 8, 8, 3) and (shown[:, 5, 5] == 20).all()
    kept = [
        *run.metrics[-1],
        *run.summary,
        (run_dir / "metrics.jsonl").read_text(),
        (run_dir / "metrics.csv").read_text(),
    ]
    assert "total_variation" in kept and not any("film" in text for text in kept)


def test_of_several_seeds_the_first_is_filmed(tmp_path, filming):
    train(ProbeProblem(), steps=3, seeds=3, run_dir=tmp_path / "run", progress=False)
    shown, _, _ = read(tmp_path / "run" / "films" / "greedy-0000000003.gif")
    assert shown.shape == (4, 8, 8, 3) and (shown[:, 5, 5] == 3).all()


def test_a_run_without_films_makes_no_directory(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "make_engine", ProbeEngine)
    train(ProbeProblem(), steps=3, run_dir=tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "films").exists() and films.newest(tmp_path / "run" / "films") == []


def test_a_run_goes_on_without_pillow_and_says_so_once(tmp_path, filming, no_pillow, capsys):
    run = train(ProbeProblem(), steps=9, evaluate_every=2, run_dir=tmp_path / "run")
    assert run.summary["status"] == "finished" and not (tmp_path / "run" / "films").exists()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "film" in line]
    assert line == "no films: a film as GIF needs PIL, which is not installed: pip install 'twinax[plots]'"


def test_the_report_has_the_last_film_of_each_name(tmp_path, filming):
    pytest.importorskip("matplotlib")
    run_dir = tmp_path / "run"
    train(ProbeProblem(), steps=20, evaluate_every=10, run_dir=run_dir, progress=False)
    resume(run_dir, ProbeProblem(), steps=30, progress=False)
    (run_dir / "films" / "notes-on-it.gif").write_bytes(b"not one of ours")
    text = write_report(run_dir).read_text()
    embedded = [base64.b64decode(found) for found in re.findall(r'src="data:image/gif;base64,([^"]*)"', text)]
    last = [run_dir / "films" / f"{name}-0000000030.gif" for name in ("agents-first", "greedy")]
    assert embedded == [path.read_bytes() for path in last]
    assert "run: Greedy, step 30" in text and "step 20" not in text


def test_a_large_film_stays_outside_the_report(tmp_path, filming, monkeypatch):
    pytest.importorskip("matplotlib")
    train(ProbeProblem(), steps=5, run_dir=tmp_path / "run", progress=False)
    monkeypatch.setattr(report, "_LARGEST_FILM", 100)
    text = write_report(tmp_path / "run").read_text()
    assert "data:image/gif" not in text and "see films/greedy-0000000005.gif" in text
