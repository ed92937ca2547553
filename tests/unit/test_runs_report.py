"""The report: complete, self-contained, and honest about what it was given."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from twinax import engines
from twinax.errors import MissingExtra, TwinaxError
from twinax.parts import Judge, Picture, Title
from twinax.runs import RunDirectory, Sink, curves, glossary, pictures, plots, proofs, tables, train, write_report
from twinax.runs.metrics import MetricsFile

sys.path.insert(0, str(Path(__file__).parent))
from runs_probe import ProbeEngine, ProbeProblem

pytest.importorskip("matplotlib")
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Reader(HTMLParser):
    """Collects ids, links and text, and checks that every element is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.ids, self.sources, self.words, self.tags = [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(set(values))
        self.ids += [values["id"]] if "id" in values else []
        self.sources += [values[name] for name in ("src", "href", "xlink:href") if values.get(name)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(autouse=True)
def probe(monkeypatch):
    monkeypatch.setattr(engines, "make_engine", ProbeEngine)


@pytest.fixture
def trained(tmp_path):
    for mode in ("torch", "jax"):
        train(ProbeProblem(), mode=mode, steps=80, evaluate_every=20, run_dir=tmp_path / mode, progress=False,
              config={"env": {"name": "<probe>"}})  # fmt: skip
    return tmp_path


def test_one_run(trained):
    path = write_report(trained / "torch")
    assert path == trained / "torch" / "report.html"
    text = path.read_text()
    reader = Reader(text)
    shown = " ".join(reader.words)
    for expected in ("Total variation", "Steps per second", "Loss", "Target", "Learned", "&lt;probe&gt;", "jax "):
        assert expected in text, expected
    assert "<probe>" not in re.sub(r"&lt;probe&gt;", "", text)
    assert "width 3" in shown and "finished" in shown
    assert text.count("<svg") == 5  # loss twice, total variation, gradient norm, pictures
    assert all(source.startswith(("#", "data:")) for source in reader.sources)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>', "", text)
    names = {file.name for file in (trained / "torch" / "plots").iterdir()}
    assert names == {
        "pictures.safetensors", "loss.png", "loss-over-time.png", "total-variation.png", "grad-norm.png", "pictures.png"
    }  # fmt: skip


def test_ids_are_unique_and_the_ink_is_the_pages(trained):
    text = write_report([trained / "torch", trained / "jax"], trained / "report.html").read_text()
    reader = Reader(text)
    assert len(reader.ids) == len(set(reader.ids))
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | {source[1:] for source in reader.sources if source[0] == "#"}
    assert used <= set(reader.ids)
    assert "currentColor" in text and "#010203" not in text


def test_a_directory_of_runs_with_its_proofs(trained):
    row = {"rung": "values", "item": "loss", "side": "jax", "against": "torch", "absolute": 1e-15, "relative": 1e-15}
    bad = row | {"rung": "gradients", "item": "log_z", "relative": "nan", "ok": False}
    (trained / "parity.json").write_text(
        json.dumps({"ok": False, "tolerance": 1e-9, "rows": [row | {"ok": True}, bad], "hint": "a factor 2"})
    )
    (trained / "compare.json").write_text(
        json.dumps(
            {
                "parity": False,
                "modes": [{"mode": "jax", "median": 421.5, "profile": {"sample": 0.002}}],
                "ratios": None,
                "reason": "no ratio: the engines differ",
            }
        )  # fmt: skip
    )
    text = write_report([trained]).read_text()
    shown = " ".join(Reader(text).words)
    assert "2 runs" in shown and "FAILED" in shown and "a factor 2" in shown and "log_z" in shown
    assert "421.5" in shown and "no ratio: the engines differ" in shown and "Milliseconds per step" in shown
    assert shown.count("Parity:") == 2  # in each of the two tables, though the directory is named twice


def test_runs_that_share_a_name_and_differ_in_their_problem(tmp_path):
    for width, folder in ((3, "a"), (5, "b")):
        train(ProbeProblem(width=width), steps=5, run_dir=tmp_path / folder / "run", progress=False)
    records = curves.read_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"])
    assert [record.name for record in records] == ["a/run", "b/run"]
    assert tables.common_facts(records) == {"family": "probe"}
    assert [facts["problem width"] for facts in tables.different_facts(records)] == [3, 5]
    write_report([tmp_path / "a" / "run", tmp_path / "b" / "run"], tmp_path / "report.html")
    assert (tmp_path / "plots" / "pictures-a-run.png").exists()


def test_several_seeds_have_mean_and_band(tmp_path):
    train(ProbeProblem(), steps=30, seeds=3, evaluate_every=5, run_dir=tmp_path / "run", progress=False)
    series = curves.read_runs([tmp_path / "run"])[0].series("loss")
    assert series is not None and series.values.shape == (30, 3)
    np.testing.assert_allclose(series.mean, series.values.mean(axis=1))
    text = write_report([tmp_path / "run"]).read_text()
    shown = " ".join(Reader(text).words)
    assert "lines are means over them and bands the 95 % confidence interval of the mean (Student's t)" in shown
    assert shown.count("mean of 3 seeds") == text.count("<svg") - 1  # in every curve; pictures have no band
    train(ProbeProblem(), steps=30, run_dir=tmp_path / "one", progress=False)
    assert "confidence" not in write_report([tmp_path / "one"]).read_text()


def test_the_band_is_students_interval_of_the_mean():
    values = np.array([[1.0, 2.0, 4.0, 5.0], [3.0, 3.0, 3.0, 3.0]])
    low, high = curves.Series(np.arange(2), np.arange(2), values).interval
    # Mean 3, s = sqrt(10 / 3), t(0.975, 3) = 3.182446 from a table.
    half = 3.182446 * np.sqrt(10 / 3) / 2
    np.testing.assert_allclose(low, [3 - half, 3], rtol=1e-5)
    np.testing.assert_allclose(high, [3 + half, 3], rtol=1e-5)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_the_band_is_drawn_as_it_is(logarithmic):
    from matplotlib.figure import Figure

    values = np.geomspace(1, 1e-3, 9)[:, None] * np.array([0.2, 1.0, 3.0])
    series = curves.Series(np.arange(9), np.arange(9), values)
    axes = Figure().subplots()
    plots._line(axes, series, "#000000", plots._EQUAL[0], "steps", logarithmic)
    corners = np.asarray(axes.collections[0].get_paths()[0].vertices)
    low, high = series.interval
    assert low.min() < 0 and np.isclose(corners[:, 1].max(), high.max())
    lowest = 0.5 * values.min() if logarithmic else low.min()
    assert np.isclose(corners[:, 1].min(), lowest)


def test_the_band_of_a_long_curve_belongs_to_its_running_mean():
    from matplotlib.figure import Figure

    values = np.random.default_rng(0).normal(size=(1000, 4)) + np.arange(4)
    axes = Figure().subplots()
    plots._line(axes, curves.Series(np.arange(1000), np.arange(1000), values), "#000000", plots._EQUAL[0], "steps")
    kept, smooth = plots._running_mean(np.arange(1000), values)
    low, high = curves.Series(kept, kept, smooth).interval
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), smooth.mean(axis=1))
    corners = np.asarray(axes.collections[0].get_paths()[0].vertices)[:, 1]
    np.testing.assert_allclose([corners.min(), corners.max()], [low.min(), high.max()])


def test_a_run_that_has_just_begun(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": null}\n{"step": 2, "lo')
    Reader(write_report([tmp_path]).read_text())


def test_what_is_not_a_run_is_named(tmp_path, trained):
    (tmp_path / "empty").mkdir()
    with pytest.raises(TwinaxError, match="no metrics.jsonl found"):
        write_report([tmp_path / "empty"])
    with pytest.raises(TwinaxError, match="there is no run directory"):
        write_report([tmp_path / "absent"])
    with pytest.raises(TwinaxError, match="no run in an empty list"):
        write_report([])
    (trained / "torch" / "parity.json").write_text("{")
    with pytest.raises(TwinaxError, match="parity.json cannot be read"):
        write_report([trained / "torch"])


def test_missing_matplotlib_names_the_command(trained, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'twinax\[plots\]'"):
        write_report([trained / "torch"])


def test_a_log_scale_where_it_shows_more():
    def series(values):
        values = np.array(values, dtype=float)[:, None]
        return curves.Series(np.arange(len(values)), np.arange(len(values)), values)

    assert plots._spans_decades([series(np.geomspace(1, 1e-4, 50))])
    assert not plots._spans_decades([series(np.linspace(1, 2, 50))])
    assert not plots._spans_decades([series(np.linspace(-1, 100, 50))])
    assert plots._coincide([series(np.geomspace(1, 1e-4, 50)), series(1.01 * np.geomspace(1, 1e-4, 50))])
    assert not plots._coincide([series(np.geomspace(1, 1e-4, 50)), series(5 * np.geomspace(1, 1e-4, 50))])


def test_running_mean_keeps_a_line_and_its_ends():
    x = np.arange(1000.0)
    kept, smooth = plots._running_mean(x, 3 * x + 1)
    np.testing.assert_allclose(smooth, 3 * kept + 1)
    assert kept[0] == 0 and kept[-1] == 999 and len(kept) == 800


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (12345, "12,345"), (0.5, "0.5"), (1e-7, "1.000e-07"), (12345.6, "12,346"),
     ([1.0, 1.0], "1"), ([1, 2], "1.5 (1 to 2)"), (["a", "b"], "a, b"), ({"a": 1}, "a 1"), (0.0, "0")],
)  # fmt: skip
def test_numbers_for_people(value, text):
    assert tables.number(value) == text


def test_unknown_json_is_still_shown():
    for show in (proofs.parity, proofs.compare):
        shown = show({"ok": True, "things": [{"a": 1}, {"b": "<x>"}], "deep": {"x": {"y": {"z": 3}}}})
        assert "&lt;x&gt;" in shown and ">3<" in shown
        Reader(shown)
    assert proofs.compare([1, 2]) == "<p>1.5 (1 to 2)</p>"


def test_a_comparison_replaces_no_runs_own_report(trained, monkeypatch, tmp_path):
    own = write_report(trained / "torch").read_bytes()
    pictures = {path.name: path.read_bytes() for path in (trained / "torch" / "plots").iterdir()}
    both = write_report([trained / "torch", trained / "jax"])
    assert both == trained / "comparison.html" and "2 runs" in both.read_text()
    assert (trained / "comparison-plots" / "loss.png").exists()
    assert (trained / "torch" / "report.html").read_bytes() == own
    assert {path.name: path.read_bytes() for path in (trained / "torch" / "plots").iterdir()} == pictures
    # The same run twice is one run, by whatever name.
    (trained / "again").symlink_to("torch")
    assert write_report([trained / "torch", trained / "torch" / ".." / "torch"]) == trained / "torch" / "report.html"
    assert "2 runs" not in write_report([trained / "torch", trained / "again"], trained / "x.html").read_text()
    # Runs in different places: here.
    (trained / "far").mkdir()
    (trained / "jax").rename(trained / "far" / "jax")
    (trained / "here").mkdir()
    monkeypatch.chdir(trained / "here")
    assert write_report([trained / "torch", trained / "far" / "jax"]) == Path("comparison.html")
    assert (trained / "here" / "comparison.html").exists()


EVIL = '"><script>alert(1)</script><svg onload=x> $\\frac{ \u2028 &amp;'


def test_everything_from_files_is_escaped(tmp_path):
    run = tmp_path / "<b>run"
    train(ProbeProblem(), steps=20, evaluate_every=10, run_dir=run, progress=False, config={"env": {"name": EVIL}})
    directory = RunDirectory(run)
    summary = directory.read_summary()
    odd = {EVIL: EVIL, "list": [EVIL], "status": EVIL, "mode": EVIL, "command": EVIL, "versions": {EVIL: EVIL}}
    directory.write_summary({**summary, **odd, "problem": {EVIL: EVIL, "deep": {EVIL: [EVIL]}}, "loss": EVIL})
    rows = [{**row, EVIL: row["step"], f"{EVIL}/2": [row["step"], 1.0]} for row in directory.read_metrics()]
    directory.metrics_path.unlink()
    file = MetricsFile(directory.metrics_path)
    file.write(rows)
    file.close()
    pictures.save(directory.pictures_path, {"target": np.eye(3), EVIL: np.eye(3)}, 20)
    (run / "films").mkdir()
    (run / "films" / "<i onload=x>&-0000000020.gif").write_bytes(b"GIF89a;")
    proof = {"rung": EVIL, "item": EVIL, "side": EVIL, "against": EVIL, "relative": EVIL, "ok": False, "note": EVIL}
    (run / "parity.json").write_text(json.dumps({"ok": False, "dtype": EVIL, "rows": [proof], "hint": EVIL}))
    speed = {"mode": EVIL, "median": EVIL, "profile": {EVIL: 1.0}}
    (run / "compare.json").write_text(
        json.dumps({"modes": [speed], "ratios": {EVIL: 2.0}, "problem": EVIL, "reason": EVIL})
    )
    text = write_report(run, warn=lambda sentence: None).read_text()
    reader = Reader(text)
    assert "<script" not in text and "<b>run" not in text and "<i " not in text.replace('<i class="chip"', "")
    assert "onload" not in {name for tag in reader.tags for name in tag}
    assert text.count("&lt;script&gt;") > 20


ODD_JSON = {
    "text": '"x"', "list": "[1, [2], {}]", "huge": '{"loss": 1e308, "kl": [1e308, 1e308]}', "nan": '{"loss": NaN}',
    "deep": "[" * 400 + "]" * 400, "surrogate": '{"loss": "\\ud800"}', "twice": '{"a": 1, "a": 2}',
    "seeds": '{"seeds": "x"}', "bytes": "\xff", "versions": '{"versions": [1]}', "long": '{"loss": ' + "9" * 5000 + "}",
}  # fmt: skip


@pytest.mark.parametrize("how", ODD_JSON)
@pytest.mark.parametrize("name", ["summary.json", "parity.json", "compare.json", "metrics.jsonl", "config.yaml"])
def test_odd_files_are_shown_or_refused_in_a_sentence(tmp_path, monkeypatch, name, how):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", draw)
    train(ProbeProblem(), steps=4, evaluate_every=2, run_dir=tmp_path, progress=False, config={"seed": 0})
    content = ODD_JSON[how].encode("latin-1") + b"\n"
    place = tmp_path / name
    place.write_bytes(place.read_bytes() + content if name == "metrics.jsonl" else content)
    told = []
    try:
        write_report(tmp_path, warn=told.append)
    except TwinaxError as error:
        assert name in str(error)
    else:
        assert name != "metrics.jsonl" or "1 damaged" in told[0]


ROWS = [
    {"loss": 1e300}, {"loss": 1e-320}, {"loss": [1.0]}, {"loss": {"a": 1}}, {"kl": True}, {"seconds": -1},
    {"x": 10**19},
    {"loss": "x"}, {"$\\frac{": 3.0}, {"a" * 500: 1.0}, {"total_variation": [[1.0]]}, {"loss_per_seed": [1.0, "x"]},
]  # fmt: skip


@pytest.mark.parametrize("odd", ROWS, ids=lambda row: str(row)[:20])
def test_odd_values_in_the_log_are_drawn_or_left_out(tmp_path, monkeypatch, odd):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", draw)
    train(ProbeProblem(), steps=4, evaluate_every=2, run_dir=tmp_path, progress=False)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.writelines(json.dumps({"step": step, "loss": 1.0, "seconds": 1.0, **odd}) + "\n" for step in (5, 6, 7))
    write_report(tmp_path)


@pytest.mark.parametrize(
    "odd",
    [
        {"target": np.full((2, 2), np.nan)}, {"target": np.zeros((0, 3))}, {"target": np.ones((2, 2), np.complex64)},
        {"target": np.array(3.0), "learned": np.array(3.0)},
        {"target": np.ones((2, 2), bool), "learned": np.eye(2, dtype=bool)},
        {"target": np.ones((1, 1, 1, 1))}, {"target": np.full((2, 2), 1e308), "learned": np.full((2, 2), -1e308)},
        {f"map{k}": np.eye(2) for k in range(30)}, {"maze/walls": np.ones((3, 3))}, {"maze/walls": np.zeros(3)},
        {"maze/walls": np.zeros((0, 3, 3)), "maze/paths": np.zeros(2)}, {"maze/paths": np.full((2, 3, 2), 1e308)},
        {"maze/paths": np.zeros((1, 1, 2)), "maze/values": np.eye(2), "maze/goal": np.ones(3)},
        {"maze/paths": np.zeros((1, 1, 2)), "maze/walls": np.eye(2), "maze/goal": np.full(3, np.inf)},
        {"maze/paths": np.zeros((0, 1, 1, 2)), "maze/successes": np.ones(2, "c8")},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["paths", "maps", "<b>"])
def test_odd_pictures_are_drawn_or_left_out(tmp_path, monkeypatch, odd, kind):
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", draw)
    train(ProbeProblem(), steps=4, run_dir=tmp_path, progress=False)
    told = {"maze": Picture("Maze", kind), "": Picture("All", difference=("learned", "target"))}
    pictures.save(tmp_path / "plots" / "pictures.safetensors", odd, 4, told)
    write_report(tmp_path)


class Walker(ProbeProblem):
    """A stranger's family: where it went, and how often it was anywhere."""

    @property
    def judge(self):
        paths = Picture("Where <it> went", "paths", {"reached": "came $home"}, {"paths": "three <walks>"})
        maps = Picture("Visits", labels={"late": "At last"}, difference=("late", "early"))
        titles = {"distance": Title("Distance <walked>", "In metres.", tile=True)}
        return Judge(titles=titles, pictures={"walks": paths, "visits": maps})


class WalkerEngine(ProbeEngine):
    def evaluate(self):
        walks = np.cumsum(np.random.default_rng(0).normal(size=(3, 9, 2)), 1)
        return {
            "distance": 4.5,
            "picture/walks/paths": walks,
            "picture/walks/successes": np.array([1, 0, 1]),
            "picture/visits/early": np.eye(3),
            "picture/visits/late": np.ones((3, 3)),
            "picture/alone": np.eye(2),
        }


def test_a_family_of_somebody_brings_its_own_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr("twinax.engines.make_engine", WalkerEngine)
    seen: list = []

    class Album(Sink):
        def pictures(self, step, pictures):
            seen.append(sorted(pictures))

    train(Walker(), steps=4, evaluate_every=2, run_dir=tmp_path / "run", progress=False, sinks=[Album()])
    assert seen[-1] == ["alone", "visits/early", "visits/late"], "paths are no pixels"
    text = write_report(tmp_path / "run").read_text()
    shown = " ".join(Reader(text).words)
    for words in ("Where <it> went", "run, step 4: three <walks>", "came $home: 2", "did not: 1", "Visits", "At last"):
        assert words in shown, words
    assert "At last - early" in shown and "half the L1 distance of these two pictures is 3" in shown
    assert "Pictures" in shown and "Alone" in shown and "<walks>" not in text and "Target" not in text
    assert '<div class="tile"><span>Distance &lt;walked&gt;</span><b>4.5</b></div>' in text
    assert {"walks.png", "visits.png", "pictures.png"} <= {file.name for file in (tmp_path / "run" / "plots").iterdir()}


NOT_TOLD = ["3", "[]", "{", '{"maze": 3}', '{"maze": {"title": 1, "kind": "paths"}}']
ODDLY_TOLD = '{"maze": {"title": "M", "kind": "maps", "labels": [1], "captions": {"a": 2}, "difference": ["a"]}}'


@pytest.mark.parametrize("told", [*NOT_TOLD, ODDLY_TOLD])
def test_what_a_file_says_of_pictures_is_only_text(tmp_path, monkeypatch, told):
    monkeypatch.setattr(pictures.plain, "dumps", lambda value: told)
    path = tmp_path / "plots" / "pictures.safetensors"
    pictures.save(path, {"maze/a": np.eye(2)}, 3)
    try:
        _, found, _ = pictures.load(path)
    except TwinaxError as error:
        assert "pictures.safetensors cannot be read" in str(error) and told in NOT_TOLD[:3]
    else:
        assert found == ({"maze": Picture("M")} if told == ODDLY_TOLD else {})


@pytest.mark.parametrize("name", ["films/greedy-0000000004.gif", "plots/episode-frames.png"])
def test_half_a_film_is_not_shown(tmp_path, name):
    train(ProbeProblem(), steps=4, run_dir=tmp_path, progress=False)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"GIF8")
    with pytest.raises(TwinaxError, match="not a whole picture.*delete it"):
        write_report(tmp_path)


def draw(figure, target, **_):
    target.write("<svg></svg>") if hasattr(target, "write") else Path(target).write_bytes(b"")


def test_titles_are_those_of_the_family_and_any_text_of_a_file_is_only_text():
    told = {
        "titles": {
            "tvd": ["Distance <b>", "Half the sum.", True],
            "odd": 3,
            "other": ["one"],
            "text": ["Text", "", "True"],
            "loss": ["No", "", False],
        }
    }
    assert (glossary.title("tvd"), glossary.meaning("tvd")) == ("Tvd", "")
    with glossary.titles_of([told, {"titles": "nonsense"}, {}]):
        assert (glossary.title("tvd"), glossary.meaning("tvd")) == ("Distance <b>", "Half the sum.")
        assert (
            glossary.title("odd") == "Odd" and glossary.title("other") == "Other" and glossary.title("loss") == "Loss"
        )
        assert glossary.tiles() == ["tvd", "loss", "steps_per_second"] and glossary.title("text") == "Text"
        assert sorted(["seed", "tvd", "zzz", "loss"], key=glossary.rank) == ["loss", "tvd", "seed", "zzz"]
    assert glossary.title("tvd") == "Tvd"


@pytest.mark.parametrize("family", ["gflownet", "iqn", "ppo", "offline"])
def test_every_family_says_what_its_numbers_mean(family):
    titles = importlib.import_module(f"twinax.{family}._judge").TITLES
    assert titles and all(one.title and one.meaning.endswith(".") for one in titles.values())
    assert any(one.tile for one in titles.values())
