"""The documentation is executed, and is complete.

Python blocks of a page run in order in one namespace, in an empty directory. A `text` block right after a Python block
is what that block prints: words must be equal, numbers within 5 %. In shell blocks every `twinax` command, `train.py`
and baseline is parsed and its settings are composed; a block after the comment `<!-- run -->` is run with small sizes.
A block after `<!-- file: NAME -->` is such a file, which lies in that directory from the beginning.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import shlex
import sys
import types
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
KINDS = ("python", "text", "bash", "")

SMALLER = {
    "README.md": {
        "tx.envs.Hypergrid(dim=4, side=20)": "tx.envs.Hypergrid(dim=2, side=4)",
        'objective="trajectory_balance")': 'objective="trajectory_balance", batch_size=8, '
        "policy=tx.gflownet.PolicyOptions(hidden=(16,)), metrics=tx.gflownet.MetricOptions(samples=8, fifo=64))",
        "steps=20_000": "steps=20",
        "tx.parity.check(problem)": 'tx.parity.check(problem, modes=("torch", "hybrid"), steps=2)',
    }
}
"""By page: what is replaced in its Python blocks, so that a program for people takes a moment here."""

TINY = ("env.dim=2", "env.side=3", "policy.hidden=[8]", "metrics.samples=8", "metrics.fifo=64", "trainer.batch_size=4")
TINY_OWN = ("env.length=3", "proxy.length=3", "metrics.samples=8", "metrics.fifo=64", "trainer.batch_size=4")
TINY_WORLD = (
    "model.width=8", "model.num_quantiles=4", "model.num_act_quantiles=4", "model.num_cosines=8",
    "replay.buffer_size=64", "replay.frame_stack=2", "world.turns=8", "world.num_agents=2", "evaluation.num_envs=1",
    "trainer.batch_size=4",
)  # fmt: skip
WITH_SMALL_SIZES = {
    "train experiment=treasurehunt": [*TINY_WORLD, "trainer.steps=2", "trainer.mode=torch"],
    "train env=mypkg.worlds:Bits": [*TINY_OWN, "trainer.steps=4", "trainer.mode=torch"],
    "parity env=mypkg.worlds:Bits": [*TINY_OWN, "parity.steps=1", "parity.modes=[torch,hybrid]"],
    "train": [*TINY, "trainer.steps=4", "trainer.mode=torch"],
    "resume": ["trainer.steps=6"],
    "eval": [],
    "report": [],
    "list": [],
    "doctor": ["--quick"],
    "port": ["--turns", "2"],
}
"""Commands that a marked block may run, and what is added at their end, where it wins."""


@dataclass(frozen=True)
class Block:
    """One fenced piece of a page."""

    kind: str
    text: str
    line: int
    """Where the fence stands, counted from 1; the text begins on the next line."""
    marked: bool
    """Whether `<!-- run -->` stands before it."""
    file: str | None
    """The name in `<!-- file: NAME -->` before it."""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in order."""
    found: list[Block] = []
    opened: tuple[str, int, str] | None = None
    inside: list[str] = []
    before = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened, inside = (line[3:].strip(), number, before), []
        elif opened is not None and line.strip() == "```":
            kind, at, comment = opened
            file = re.fullmatch(r"<!-- file: (\S+) -->", comment)
            marked = comment == "<!-- run -->"
            found.append(Block(kind, "\n".join(inside) + "\n", at, marked, file[1] if file else None))
            opened = None
        elif opened is not None:
            inside.append(line)
        if line.strip():
            before = line.strip()
    assert opened is None, f"{page.name}: the block of line {opened} is not closed"
    return found


@pytest.fixture
def lay_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the files of a page into an empty directory, which is then the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(page: Path) -> list[Block]:
        listed = blocks(page)
        for block in listed:
            if block.file is not None:
                path = tmp_path / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
        return listed

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def commands(block: Block) -> list[list[str]]:
    """The command lines of a shell block as words, without comments; a backslash joins lines."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def differs(shown: str, printed: str) -> bool:
    """Whether two texts differ in a word, or in a number by more than 5 %."""
    if NUMBER.sub("#", " ".join(shown.split())) != NUMBER.sub("#", " ".join(printed.split())):
        return True
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (shown, printed)]
    return not all(math.isclose(a, b, rel_tol=0.05, abs_tol=1e-9) for a, b in zip(*numbers, strict=True))


def test_differs_sees_words_and_numbers():
    assert not differs("loss 0.5  at step 10", "loss 0.501\nat step 10")
    assert differs("loss 0.5", "loss 0.6")
    assert differs("loss 0.5", "rate 0.5")
    assert differs("shape (3, 2)", "shape (2, 3)")


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run_and_print_what_is_shown(page: Path, lay_out, monkeypatch: pytest.MonkeyPatch):

    listed = lay_out(page)
    assert {block.kind for block in listed} <= set(KINDS), f"{page.name} has a block of an unknown kind"
    module = types.ModuleType(f"docs_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look for their names
    smaller = dict(SMALLER.get(page.name, {}))
    pages_code = "".join(block.text for block in listed if block.kind == "python")
    for text in smaller:
        assert text in pages_code, f"{page.name} no longer has {text!r}: mend SMALLER"
    for block, following in zip_longest(listed, listed[1:]):
        if block.kind != "python" or block.file is not None:
            continue
        code = block.text
        for text, replacement in smaller.items():
            code = code.replace(text, replacement)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + code, str(page), "exec"), module.__dict__)
        if following is not None and following.kind == "text":
            what = f"{page.name}, line {block.line}: shown\n{following.text}\nprinted\n{printed.getvalue()}"
            assert not differs(following.text, printed.getvalue()), what


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_shell_commands_can_be_typed(page: Path, lay_out):
    from twinax import conf
    from twinax.cli import _play
    from twinax.cli._main import parse

    for block in lay_out(page):
        for words in commands(block) if block.kind == "bash" else []:
            where = f"{page.name}, line {block.line}: {shlex.join(words)}"
            if words[0] == "python" and words[1].endswith(".py"):
                assert (ROOT / words[1]).is_file(), where
            if words[0] == "make":
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), where
            if words[0] == "twinax" or words[:2] == ["python", "train.py"]:
                words = words[1:] if words[0] == "twinax" else ["train", *words[2:]]
                found = parse(words)
                # `play` may have a run or settings first, and sorts them itself.
                settings = _play.words(found)[1] if words[0] == "play" else getattr(found, "overrides", [])
                for overrides in conf.split_commas(settings):
                    assert conf.compose(overrides), where
            elif words[0] == "python" and words[1].startswith("baselines"):
                assert conf.compose(words[2:]), where


MARKED = [page for page in PAGES if any(block.marked for block in blocks(page))]


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.stem)
def test_marked_shell_blocks_run(page: Path, lay_out, capsys):
    from twinax.cli import main

    for block in lay_out(page):
        for words in commands(block) if block.marked else []:
            assert words[0] == "twinax", f"{page.name}, line {block.line}: only twinax commands are run"
            sizes = WITH_SMALL_SIZES.get(" ".join(words[1:3]), WITH_SMALL_SIZES.get(words[1]))
            assert sizes is not None, f"{page.name}, line {block.line}: {words[1]} has no small sizes"
            code = main([*words[1:], *sizes])
            said = capsys.readouterr()
            assert code == 0, f"{shlex.join(words)} gave {code}: {said.err}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}; the headings are {anchors(file)}"


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    outside = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [page.name for page in PAGES[1:] if page.name != "index.md" and f"({page.name})" not in index]
    assert not missing


def test_every_objective_is_described():
    from twinax.gflownet import objectives

    text = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^## `(\w+)`", text, re.MULTILINE))
    assert headings == set(objectives.OBJECTIVES)
    for alias in objectives.ALIASES:
        assert f"`{alias}`" in text, f"objectives.md does not name the alias {alias}"


def test_every_metric_is_described():
    from twinax import envs, gflownet
    from twinax.engines import make_engine

    options = gflownet.PolicyOptions(hidden=(8,)), gflownet.MetricOptions(samples=4, fifo=8)
    problem = gflownet.problem(envs.Hypergrid(2, 3), batch_size=4, policy=options[0], metrics=options[1])
    engine = make_engine(problem, mode="torch")
    engine.start(0)
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    missing = [name for name in {**engine.run(1), **engine.evaluate()} if f"`{name}`" not in text]
    assert not missing


def written(value: object) -> str:
    """A default as it is typed on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value).replace("'", "").replace(", ", ",") if isinstance(value, list) else str(value)


def test_every_key_is_described():
    from twinax import conf
    from twinax.conf._aliases import all_keys

    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    experiment = conf.find_experiment("gflownet")
    chosen = {f"{name}.name": group.default for name, group in experiment.groups.items()}
    for _, key, default, sentence in conf.documentation(experiment):
        row = f"| `{key}` | {written(chosen.get(key, default))} | {' '.join(sentence.split())} |"
        assert row in text, f"configuration.md lacks the row\n{row}"
    for older in all_keys(experiment):
        assert f"`{older}`" in text, f"configuration.md lacks the older name {older}"
