"""Whatever becomes of the files of a run: no traceback, no other result than the true one, nothing touched outside.

Runs of the probe problem, which needs no compiler, are damaged in one way each; then `resume`, `eval` and `report` are
called as on the command line. Each ends with what the undamaged run gives, or says what it did without, or refuses.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from twinax import conf, engines
from twinax.cli import _main
from twinax.runs import checkpoint, sealed

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

pytest.importorskip("matplotlib")
pytest.importorskip("PIL")

FEW, MANY = 20, 600
COMMANDS = {
    "resume": ["resume", "run", "trainer.steps=40", "--quiet"],
    "eval": ["eval", "run", "--seed", "5"],
    "report": ["report", "run"],
}
SHOWN = {"config.yaml", "summary.json", "metrics.jsonl", "plots/pictures.safetensors"}
"""What a report shows as the run wrote it; films, and the proofs of other commands, have no sums."""
ODD = [None, True, -1, 0, 0.5, 10**12, 10**30, 1e300, 1e-300, "", "x", "$\\frac{", "<script>", "nan", [], {}]
ODD += [[1, "a"], [[1]], {"a": {"b": [1]}}, [10**400], float("nan"), float("inf"), "\ud800", 5 * [1.0]]


class FilmEngine(ProbeEngine):
    def evaluate(self):
        return super().evaluate() | {"film/greedy": np.zeros((2, 4, 4, 3), np.uint8)}


class Stops(FilmEngine):
    def run(self, steps):
        if int(self.states[0].step) >= 33:
            raise KeyboardInterrupt
        return super().run(steps)


@dataclass(frozen=True)
class Truth:
    """What the commands give without damage."""

    weights: dict
    rows: list
    metrics: dict
    page: str


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A finished run, an interrupted one, another person's run, and what is right for the first two."""
    home, patch = tmp_path_factory.mktemp("fuzz"), pytest.MonkeyPatch()
    patch.chdir(home)
    patch.setattr(conf, "build_problem", lambda config: ProbeProblem(width=config.env.side))
    patch.setattr(conf, "build_untrained", lambda config, tell: ProbeProblem(width=config.env.side))
    patch.setattr("matplotlib.figure.Figure.savefig", _draw_nothing)
    patch.setattr("os.fsync", lambda descriptor: None)  # hundreds of them; no power fails here
    words = ["train", "--quiet", "env=grid", "trainer.log_every=5", "trainer.evaluate_every=10"]
    words += ["trainer.checkpoint_every=10", "trainer.chunk=5"]
    patch.setattr(engines, "make_engine", Stops)
    assert _main.main([*words, "trainer.steps=40", "run.dir=interrupted"]) == 130
    patch.setattr(engines, "make_engine", FilmEngine)
    assert _main.main([*words, "trainer.steps=30", "run.dir=finished"]) == 0
    assert _main.main([*words, "trainer.steps=40", "run.dir=whole"]) == 0
    assert _main.main([*words, "trainer.steps=30", "seed=9", "run.dir=other"]) == 0
    truths = {}
    for name in ("finished", "interrupted"):
        assert _main.main(["eval", name, "--seed", "5"]) == 0
        (home / name / "parity.json").write_text(json.dumps({"ok": True, "rows": [PARITY]}))
        (home / name / "compare.json").write_text(json.dumps({"modes": [{"mode": "jax", "median": 2.0}]}))
        (home / name / "plots" / "episode-frames.png").write_bytes(b"\x89PNG\r\nIEND\xaeB`\x82")
        shutil.copytree(home / name, home / "run")
        assert _main.main(COMMANDS["report"]) == 0
        page = (home / "run" / "report.html").read_text()
        metrics = json.loads((home / "run" / "eval.json").read_text())["metrics"]
        shutil.copytree(home / "run" / "plots", home / name / "plots", dirs_exist_ok=True)
        shutil.copy(home / "run" / "report.html", home / name)
        assert _main.main(COMMANDS["resume"]) == 0
        truths[name] = Truth(_weights(home / "run"), _rows(home / "run"), metrics, page)
        shutil.rmtree(home / "run")
    assert truths["finished"].weights.keys() == _weights(home / "whole").keys()
    for name in truths:
        assert _same(truths[name].weights, _weights(home / "whole")) and truths[name].rows == _rows(home / "whole")
    yield home, truths
    patch.undo()


PARITY = {"rung": "values", "item": "loss", "side": "jax", "against": "torch", "relative": 1e-15, "ok": True}


def _draw_nothing(figure, target, format="png", **_):
    """Paint without rasterising: what odd values break is the painting."""
    if hasattr(target, "write"):
        target.write("<svg viewBox='0 0 1 1'></svg>")
    else:
        Path(target).write_bytes(b"")


def _weights(run):
    return load_file(checkpoint.latest(run, refused=lambda _: None) / "state.safetensors")


def _same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def _rows(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


# Damages: each takes the random numbers, the file, and the run, and says what it did.


def flip(chance, path, run):
    content = bytearray(path.read_bytes() or b"x")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(chance, path, run):
    path.write_bytes(path.read_bytes()[: chance.randrange(max(path.stat().st_size, 1))])


def delete(chance, path, run):
    path.unlink()


def append(chance, path, run):
    path.write_bytes(
        path.read_bytes() + chance.choice([b"\n", b"\0" * 9, b"{}\n", b'{"step": 1e3}\n', b"x: 1\n", b"\xff"])
    )


def double_line(chance, path, run):
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    path.write_bytes(b"".join(lines))


def delete_line(chance, path, run):
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    lines.pop(chance.randrange(len(lines)))
    path.write_bytes(b"".join(lines))


def swap_lines(chance, path, run):
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    chance.shuffle(lines)
    path.write_bytes(b"".join(lines))


def edit_number(chance, path, run):
    content = path.read_bytes()
    numbers = list(re.finditer(rb"\d+", content))
    if numbers:
        one = chance.choice(numbers)
        other = chance.choice([b"0", b"7", b"-3", b"31", b"999999999999", b"1e400", b"0.5", b"true"])
        path.write_bytes(content[: one.start()] + other + content[one.end() :])


def odd_value(chance, path, run, forge=False):
    """Another value at a random place of a JSON file, or of a line of it."""
    lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
    which = chance.randrange(len(lines))
    try:
        value = json.loads(lines[which])
    except ValueError:
        return flip(chance, path, run)
    owner, key = None, None
    inner = value
    while isinstance(inner, dict | list) and inner and (owner is None or chance.random() < 0.7):
        owner, key = inner, chance.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        inner = owner[key]
    if owner is not None and chance.random() < 0.15 and isinstance(owner, dict):
        del owner[key]
    elif owner is not None:
        owner[key] = chance.choice(ODD)
    if forge and isinstance(value, dict):
        value.pop("sum", None)
        try:
            value["sum"] = sealed.digest(value)
        except ValueError:
            pass
    lines[which] = json.dumps(value, ensure_ascii=True).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")


def forge(chance, path, run):
    """The same with a sum that fits."""
    odd_value(chance, path, run, forge=True)


def swap_with_another(chance, path, run):
    other = chance.choice([one for one in _files(run) if one != path])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def from_another_run(chance, path, run):
    other = run.parent / "other" / path.relative_to(run)
    if other.is_file():
        shutil.copy(other, path)
    else:
        flip(chance, path, run)


def swap_checkpoints(chance, path, run):
    one, other = chance.sample(sorted((run / "checkpoints").iterdir()), 2)
    one.rename(run / "aside")
    other.rename(one)
    (run / "aside").rename(other)


def link_file_outside(chance, path, run):
    target = run.parent / "outside" / path.name
    shutil.copy(path, target)
    path.unlink()
    path.symlink_to(chance.choice([target, target.parent / "secret", target.parent / "absent"]))


def link_folder_outside(chance, path, run):
    folder = path.parent if path.parent != run else run / "weights"
    target = run.parent / "outside" / folder.name
    if folder.exists():
        folder.rename(target)
    folder.symlink_to(target)


def plant_link(chance, path, run):
    """A link under a name that a command is about to write."""
    names = [".lock", ".tmp-summary.json", ".tmp-metrics.csv", "checkpoints/.tmp-0000000040", "checkpoints/0000000040"]
    names += [
        "eval.json",
        ".tmp-eval.json",
        ".tmp-report.html",
        "plots/.tmp-loss.png",
        "plots/.tmp-pictures.safetensors",
    ]
    names += ["films/greedy-0000000040.gif", "weights/.tmp-networks.safetensors", "metrics.csv", ".tmp-config.yaml"]
    place = run / chance.choice(names)
    if place.exists():
        place.unlink()
    place.symlink_to(run.parent / "outside" / chance.choice(["secret", "folder", "absent"]))


def link_inside(chance, path, run):
    target = path.with_name("kept-" + path.name)
    path.rename(target)
    path.symlink_to(target.name)


def folder_instead(chance, path, run):
    path.unlink()
    path.mkdir()


def pipe_instead(chance, path, run):
    path.unlink()
    os.mkfifo(path)


DAMAGES = [
    flip, truncate, delete, append, double_line, delete_line, swap_lines, edit_number, odd_value, forge,
    swap_with_another, from_another_run, swap_checkpoints, link_file_outside, link_folder_outside, plant_link,
    link_inside, folder_instead, pipe_instead,
]  # fmt: skip


def _files(run):
    return sorted(path for path in run.rglob("*") if path.is_file() and not path.is_symlink())


def _tree(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def _damage(home, number, name):
    """A fresh copy of a run with one damage; what and where."""
    for old in ("run", "outside"):
        shutil.rmtree(home / old, ignore_errors=True)
    (home / "outside" / "folder").mkdir(parents=True)
    (home / "outside" / "secret").write_text("the user's own")
    shutil.copytree(home / name, home / "run")
    chance = random.Random(number)
    found = _files(home / "run")
    # Every damage has its turn; what the commands read is hit more often than what they only write.
    newest = max(path for path in found if path.name == "meta.json")
    read = [newest, newest.with_name("state.safetensors"), *(home / "run" / name for name in sorted(SHOWN))]
    damage, path = DAMAGES[number % len(DAMAGES)], chance.choice(read if chance.random() < 0.7 else found)
    if damage in (odd_value, forge) and path.suffix not in (".json", ".jsonl"):
        path = chance.choice([one for one in found if one.suffix in (".json", ".jsonl")])
    place = path.relative_to(home / "run").as_posix()
    damage(chance, path, home / "run")
    return damage, place


def _check(home, truths, capfd, number):
    name = ("finished", "interrupted")[number // len(DAMAGES) % 2]
    command = list(COMMANDS)[number % 3]
    damage, place = _damage(home, number, name)
    told = f"{number}: {damage.__name__} of {place} in the {name} run, then {command}"
    before = _tree(home / "outside")
    try:
        code = _main.main(COMMANDS[command])
    except BaseException as error:
        raise AssertionError(f"{told}: {type(error).__name__}: {error}") from error
    err = capfd.readouterr().err
    assert _tree(home / "outside") == before, f"{told}: written through a link\n{err}"
    assert "Traceback" not in err, told
    said = [line for line in err.splitlines() if line.startswith("warning: ")]
    if code:
        assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1, f"{told}: {err!r}"
        return "refused"
    run, truth = home / "run", truths[name]
    if command == "resume":
        assert _same(_weights(run), truth.weights), f"{told}: other weights\n{err}"
        logged = [line for line in said if "is not as the run wrote it" in line]
        assert logged or _rows(run) == truth.rows, f"{told}: another log, unsaid\n{err}"
    elif command == "eval":
        found = json.loads((run / "eval.json").read_text())["metrics"]
        assert found == truth.metrics or said, f"{told}: other metrics, unsaid"
    else:
        page = (run / "report.html").read_text()
        assert "the user's own" not in page, told
        # A summary whose sum was made again says what its forger wants, and what is absent is not shown.
        told_so = said or damage in (delete, forge, link_inside)
        assert place not in SHOWN or told_so or page == truth.page, f"{told}: another report, unsaid"
    return "said" if said else "true"


def _try(house, capfd, numbers):
    home, truths = house
    ends = [_check(home, truths, capfd, number) for number in numbers]
    counts = {end: ends.count(end) for end in ("true", "said", "refused")}
    assert min(counts.values()) > len(ends) // 20, counts  # all three ways are taken: the damages do something


def test_some_damages(house, capfd):
    _try(house, capfd, range(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_all_damages(house, capfd, part):
    """Each number is a damage, a file, a run and a command; together more than 500."""
    _try(house, capfd, range(FEW + part, FEW + MANY, 5))
