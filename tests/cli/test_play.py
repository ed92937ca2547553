"""`twinax play`: keys from a pipe and from a terminal, among players and among the agents of a run."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from twinax import conf, engines, noise, runs
from twinax.cli import _keyboard
from twinax.runs import checkpoint

TINY = [
    "experiment=treasurehunt", "world=treasurehunt", "world.turns=12", "world.num_agents=3", "world.spawn_prob=0.2",
    "model.width=8", "model.num_quantiles=4", "model.num_act_quantiles=4", "model.num_cosines=8",
    "trainer.batch_size=8", "replay.buffer_size=64", "replay.frame_stack=2", "evaluation.num_envs=1",
    "evaluation.film=false", "preset.num_envs=1", "players.seeker=1",
]  # fmt: skip


@pytest.fixture
def play(twinax, monkeypatch):
    """`play(keys, *words)`: the command with keys from a pipe."""

    def run(keys: str, *words: str):
        monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
        return twinax("play", *words)

    return run


def store_run(path: Path, seeds: int = 1) -> Path:
    """A run that was stopped before its first step: two learners with random networks, and a seeker."""
    config = conf.compose([*TINY, f"seeds={seeds}"])
    engine = engines.make_engine(conf.build_problem(config), mode="jax", seeds=seeds)
    engine.start(0)
    path.mkdir(parents=True)
    runs.RunDirectory(path).write_config(conf.as_dict(config))
    checkpoint.save(checkpoint.place(path, 0), engine.state(), {"step": 0})
    return path


@pytest.fixture(scope="module")
def hunt(tmp_path_factory) -> Path:
    return store_run(tmp_path_factory.mktemp("runs") / "hunt")


def board(out: str) -> list[str]:
    """The rows of the last map, one character for each cell."""
    return [line[::2] for line in out.splitlines() if re.fullmatch(r"#( .)* #", line)]


def place(out: str) -> tuple[int, int]:
    """Row and column of the person's agent."""
    ((row, column),) = [(r, line.index("@")) for r, line in enumerate(board(out)) if "@" in line]
    return row, column


def fact(out: str, name: str) -> float:
    (value,) = re.findall(rf"^{name} +(\S+)$", out, re.MULTILINE)
    return float(value)


EMPTY_WORLD = ["world=treasurehunt", "world.num_agents=1", "world.spawn_prob=0", "--seed", "6"]


def test_keys_walk_and_q_quits(play):
    start = play("q", *EMPTY_WORLD)
    assert start.code == 0, start.err
    assert fact(start.out, "turns") == 0 and fact(start.out, "score") == 0
    row, column = place(start.out)
    assert 2 <= row <= 6 and 2 <= column <= 6, "choose another seed: this start is too near to a wall"
    for keys, (down, right) in {"w": (-1, 0), "s": (1, 0), "a": (0, -1), "d": (0, 1), "sSd": (2, 1)}.items():
        done = play(keys + "q", *EMPTY_WORLD)
        assert place(done.out) == (row + down, column + right), keys
        assert fact(done.out, "turns") == len(keys)


def test_arrows_are_letters_and_other_keys_nothing(play):
    letters = play("wddsaq", *EMPTY_WORLD)
    arrows = play("\x1b[A\x1b[C\x1bOC\x1b[B\x1b[Dq", *EMPTY_WORLD)
    assert arrows.out == letters.out
    ignored = play("w5?\ndc z\x1b[5~d\x1b[Hsaé\tq", *EMPTY_WORLD)
    assert ignored.out == letters.out


def test_the_end_of_the_keys_or_of_the_epoch_ends_the_game(play):
    assert fact(play("ww", *EMPTY_WORLD).out, "turns") == 2
    assert fact(play("", *EMPTY_WORLD).out, "turns") == 0
    assert fact(play("wasd" * 5, *EMPTY_WORLD, "world.turns=3").out, "turns") == 3


def test_the_score_is_what_was_gathered(play):
    """Gems everywhere, also on the cell that was just left."""
    words = ["world=gem", "world.num_agents=1", "world.spawn_prob=1", "--seed", "6"]
    done = play("dada", *words)
    assert fact(done.out, "score") == 40
    assert "turn 4 of 50   score 40" in done.out
    at_the_wall = play("w" * 12, *words)
    row = place(play("", *words).out)[0]
    assert fact(at_the_wall.out, "score") == 10 * (row - 1) - (12 - (row - 1))


def test_further_actions_of_cleanup(play):
    words = ["world=cleanup", "world.num_agents=1", "world.pollution_prob=0", "--seed", "6"]
    shown = play("", *words).out
    assert "c clean   z zap   q quit" in shown and "~ river" in shown and "o apple" in shown
    for key, symbol in (("c", "="), ("z", "!")):
        done = play("d" + key, *words)
        assert fact(done.out, "turns") == 2
        assert any(symbol in row for row in board(done.out)), done.out


def test_one_seed_is_one_game(play):
    words = ["world=treasurehunt_items", "players.seeker=2"]
    first, again, other = (play("wasdwasd", *words, "--seed", seed).out for seed in ("3", "3", "4"))
    assert first == again
    assert board(first) != board(other)
    assert len(board(first)) == 10
    assert sum(char in "1234" for row in board(first) for char in row) == 4
    fresh = {play("", *words).out.splitlines()[-1] for _ in range(3)}
    assert len(fresh) == 3, "without --seed every game is another"


def test_players_act_by_their_rule(play):
    """A seeker that stands among gems finds one in every turn; it may be any of the others."""
    words = ["world=treasurehunt", "world.spawn_prob=1", "world.num_agents=2", "world.turns=20", "players.seeker=1"]
    for agent, other in (("0", "1"), ("1", "0")):
        done = play("w" * 20, *words, "--agent", agent, "--seed", "1")
        (score,) = re.findall(rf"scores of the others   {other}: (\d+)", done.out)
        assert float(score) > 180


# Runs


def test_the_agents_of_a_run_play_as_when_they_are_evaluated(play, hunt):
    """Whoever types what an agent would have done gets the epoch of an evaluation, under both turn rules."""
    before = {path: path.stat().st_mtime_ns for path in hunt.rglob("*")}
    for rule in ("sequential", "simultaneous"):
        config = conf.restore(
            runs.RunDirectory(hunt).read_config(), [f"world.turn_rule={rule}", "evaluation.num_envs=1"]
        )
        problem = conf.build_problem(config)
        state, _ = checkpoint.load(checkpoint.latest(hunt), like=problem.init(0))
        draws = noise.numpy_draws(problem.judge.draws(), 7, 0)
        history = {"iqn": np.zeros((2, 1, 1, problem.world.view_cells), np.uint8)}
        epoch = problem.play(state.networks, history, draws, {"iqn": np.float32(0)})
        assert epoch.score.sum() > 0
        for agent in range(3):
            keys = "".join("wsad"[action] for action in epoch.actions[:, agent, 0])
            done = play(keys, str(hunt), "--agent", str(agent), "--seed", "7", f"world.turn_rule={rule}")
            assert done.code == 0, done.err
            scores = {int(k): float(x) for k, x in re.findall(r"(\d): (-?\d+)", done.out)}
            scores[agent] = fact(done.out, "score")
            assert [scores[k] for k in range(3)] == epoch.score.tolist()
    assert before == {path: path.stat().st_mtime_ns for path in hunt.rglob("*")}, "a run stays as it was"


def test_the_first_of_several_seeds_plays(play, hunt, tmp_path):
    two = store_run(tmp_path / "two", seeds=2)
    first, same = (play("wasdwasd", str(run), "--seed", "1", "--agent", "2") for run in (hunt, two))
    assert first.code == same.code == 0, same.err
    assert first.out == same.out


# Terminal


def test_a_terminal_gives_keys_at_once_and_comes_back_as_it_was(tmp_path):
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "twinax.cli", "play", *EMPTY_WORLD]
    game = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=os.environ)
    try:
        shown = wait_for(ours, "turn 0 of 50")
        assert not termios.tcgetattr(theirs)[3] & (termios.ICANON | termios.ECHO)
        os.write(ours, b"x\x1b[Cd")  # no line end follows
        shown = wait_for(ours, "turn 2 of 50")
        assert "\x1b[" in shown and "@" in shown
        os.write(ours, b"\x1b")
        time.sleep(2 * _keyboard._PATIENCE)
        os.write(ours, b"q")
        wait_for(ours, "seed")
        assert game.wait(30) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        game.kill()
        game.wait()
        os.close(ours)
        os.close(theirs)


def wait_for(terminal: int, text: str, seconds: float = 60) -> str:
    """What a terminal shows until a text has come."""
    shown, end = "", time.monotonic() + seconds
    while text not in shown:
        assert time.monotonic() < end, f"'{text}' did not come; there was {shown!r}"
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096).decode()
    return shown


def test_bytes_that_are_no_text_are_ignored(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x80d")))
    with _keyboard.keys() as read:
        found = [read() for _ in range(5)]
    assert found[3:] == ["d", ""]
    monkeypatch.setattr(sys, "stdin", None)
    with _keyboard.keys() as read:
        assert read() == ""


# Wrong input

WRONG = {
    "nowhere": "there is no run directory nowhere",
    "{run} --agent 3": "--agent is 3, but the world has 3 agents; it must be between 0 and 2",
    "{run} --agent -1": "--agent is -1, but the world has 3 agents",
    "{run} --agent me": "invalid int value: 'me'",
    "{run} other": "unexpected argument 'other'",
    "{run} world=cleanup": "world=cleanup cannot change in an existing run",
    "{grid}": "is of a GFlowNet, which has no play; it has sample, top_k, evaluate; play is for runs of experiment=",
    "experiment=gflownet": "experiment=gflownet has no world to walk in",
    "experiment=chess": "unknown experiment 'chess'",
    "world=maze": "unknown world 'maze'",
    "world=cleanup --agent 3": "--agent is 3, but the world has 3 agents",
    "world.num_agents=0": "num_agents is 0",
    "players.seeker=5": "5 players are wanted, but beside you there are 4 agents",
    "players.random=-1": "players.random is -1",
    "--seed -4": "the seed is -4; it must be a whole number",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_sentence(play, hunt, trained, words):
    done = play("q", *words.format(run=hunt, grid=trained).split())
    assert done.code == 2
    assert done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    assert WRONG[words] in done.err and done.out == ""
