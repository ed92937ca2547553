"""report.html: one file with everything a run, or several side by side, has to show.

What stands in the files of a run is text to be escaped and numbers to be checked, whoever wrote it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from twinax import console
from twinax.errors import TwinaxError, require
from twinax.ranges import is_number
from twinax.runs import episodes, files, images, maps, paths, plots, proofs, tables
from twinax.runs.curves import RunRecord, read_json, read_runs
from twinax.runs.films import Film
from twinax.runs.glossary import meaning, rank, tiles, title, titles_of
from twinax.runs.page import page, section

_KINDS = {"maps": maps.drawing, "paths": paths.drawing, "images": images.drawing}
"""How pictures are drawn, by what a family says that they are (`twinax.parts.Picture`)."""
_LARGEST_FILM = 5 * 10**6
"""Bytes of a film that still goes into the page, which has to stay one file that opens at once."""


def write_report(
    run_dirs: Sequence[Path | str] | Path | str,
    out: Path | str | None = None,
    warn: Callable[[str], None] | None = None,
) -> Path:
    """Write a report of the runs and return its path; figures also go to a folder beside it as PNG.

    A directory that only contains runs stands for all of them. parity.json and compare.json are shown when they
    lie in a run or beside the report. Without `out` one directory gets its own report.html, with figures in plots/;
    several get comparison.html, with figures in comparison-plots/, in the directory that holds them all, or in the
    current one when they lie in different places. `warn` gets a sentence for each log that is not as its run wrote it
    (default: printed on standard error); the report says it too.

    >>> write_report(["runs/torch", "runs/jax"], "runs/report.html")        # doctest: +SKIP
    """
    require("matplotlib", "plots", "a report")
    paths = [Path(run_dirs)] if isinstance(run_dirs, Path | str) else [Path(path) for path in run_dirs]
    runs = read_runs(paths)
    out = Path(out) if out is not None else _place(paths)
    figures = out.parent / ("plots" if out.name == "report.html" else f"{out.stem}-plots")
    notes = [note for run in runs for note in run.notes]
    for note in notes:
        (warn or console.warn)(note)
    shown_proofs = _proofs(
        [*paths, *(run.path for run in runs), out.parent]
    )  # first: reading can fail, drawing is slow
    chips = [_chip(index) for index in range(len(runs))] if len(runs) > 1 else [""]
    with titles_of(run.summary for run in runs):
        parts = [
            _head(runs),
            section("What is not as it was written", "".join(f"<p>{escape(note)}</p>" for note in notes)),
            section("Summary", tables.summary(runs, chips)),
            *(section(heading, body) for heading, body in tables.listed(runs).items()),
            _curves(runs, chips, figures),
            _pictures(runs, figures),
            _films(runs),
            _episodes(runs),
            *shown_proofs,
            _settings(runs),
        ]
    heading = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    with files.writing("the report", out, out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        # A directory's name may hold bytes that are no text.
        files.replace_file(out, page(f"twinax: {heading}", "".join(parts)).encode("utf-8", "replace"))
    return out


def _place(paths: Sequence[Path]) -> Path:
    """Where a report goes by itself: one directory has its own, and a comparison replaces none of them."""
    places = {path.resolve() for path in paths}
    if len(places) == 1:
        return paths[0] / "report.html"
    return (paths[0].parent if len({place.parent for place in places}) == 1 else Path()) / "comparison.html"


def _head(runs: Sequence[RunRecord]) -> str:
    """The title, what was trained, and the main numbers when there is one run."""
    first = runs[0].summary
    problem = tables.common_facts(runs)
    facts = ", ".join(
        f"{title(name).lower()} {tables.number(value)}"
        for name, value in problem.items()
        if not isinstance(value, dict)
    )
    heading = escape(runs[0].name) if len(runs) == 1 else f"{len(runs)} runs"
    facts = " ".join(facts.split()).replace("( ", "(").replace(" )", ")")
    text = f"<header><h1>{heading}</h1><p>{escape(facts)}</p></header>"
    if len(runs) > 1:
        return text
    shown = [
        f'<div class="tile"><span>{escape(tables.titled(name, runs))}</span><b>{escape(_short(first[name]))}</b></div>'
        for name in tiles()
        if first.get(name) is not None
    ]
    return text + f'<div class="tiles">{"".join(shown)}</div>'


def _curves(runs: Sequence[RunRecord], chips: Sequence[str], directory: Path) -> str:
    legend = "".join(f"<span>{chip} {escape(run.name)}</span>" for run, chip in zip(runs, chips, strict=True))
    note = f"Where there are several seeds, lines are means over them and bands the {plots.BAND}."
    several = any((run.summary.get("seeds") or 1) > 1 for run in runs)
    top = (f'<p class="legend">{legend}</p>' if len(runs) > 1 else "") + (f"<p>{note}</p>" if several else "")
    names = list(dict.fromkeys(name for run in runs for name in run.names()))
    evaluated = set[str]().union(*(run.evaluated() for run in runs))
    names = sorted(names, key=rank)
    measured = [_figure(name, runs, directory) for name in names if name in evaluated]
    terms = [_figure(name, runs, directory) for name in names if name not in evaluated and name != "loss"]
    loss = [_figure("loss", runs, directory), _figure("loss", runs, directory, over="seconds")]
    return (
        section("Loss", top + _grid(loss, "large"))
        + section("Metrics", _grid(measured))
        + section("Terms of each step", _grid(terms))
    )


def _figure(name: str, runs: Sequence[RunRecord], directory: Path, over: str = "steps") -> str:
    paint = plots.curve(name, runs, over)
    if paint is None:
        return ""
    file = f"{_file_name(name)}{'-over-time' if over == 'seconds' else ''}"
    caption = "The same loss over time, compilation included." if over == "seconds" else meaning(name)
    drawn = plots.draw(file, paint, plots.LARGE if name == "loss" else plots.SMALL, directory)
    return f"<figure>{drawn}<figcaption>{escape(caption)}</figcaption></figure>"


def _pictures(runs: Sequence[RunRecord], directory: Path) -> str:
    parts: dict[str, str] = {}
    for run in runs:
        for name, picture, arrays in run.pictures:
            draw = _KINDS.get(picture.kind)
            drawing = draw(arrays, picture) if draw is not None else None
            if drawing is None:
                continue
            file = _file_name(name or "pictures") + (f"-{_file_name(run.name)}" if len(runs) > 1 else "")
            drawn = plots.draw(file, drawing.paint, drawing.size, directory)
            caption = f"{run.name}, step {run.picture_step:,}{': ' if drawing.said else ''}{drawing.said}"
            figure = f'<figure class="wide">{drawn}<figcaption>{escape(caption)}</figcaption></figure>'
            parts[picture.title] = parts.get(picture.title, "") + figure
    return "".join(section(heading, body) for heading, body in parts.items())


def _films(runs: Sequence[RunRecord]) -> str:
    """The last film of each name, inside the page."""
    figures = [_film(film, run) for run in runs for film in run.films]
    return section("Films", _grid(figures))


def _film(film: Film, run: RunRecord) -> str:
    caption = f"{run.name}: {title(film.name)}, step {film.step:,}"
    try:
        size = files.readable(film.path, run.path).stat().st_size
        if size > _LARGEST_FILM:
            large = f"{caption} has {size / 1e6:.1f} MB, too much for this page: see films/{film.path.name} of the run"
            return f"<figure><figcaption>{escape(large)}</figcaption></figure>"
        content = _encoded(film.path, run.path, b"GIF8", b";")
    except (OSError, ValueError) as error:
        raise TwinaxError(f"{film.path} cannot be read ({error}); delete it to go on without that film") from error
    image = f'<img class="film" alt="{escape(caption)}" src="data:image/gif;base64,{content}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def _episodes(runs: Sequence[RunRecord]) -> str:
    """Figures of filmed episodes."""
    figures = []
    for run in runs:
        for name, path in episodes.figures(run.path / "plots").items():
            caption = f"{run.name}: {name}"
            try:
                content = _encoded(path, run.path, b"\x89PNG\r\n", b"IEND\xaeB`\x82")
            except (OSError, ValueError) as error:
                raise TwinaxError(f"{path} cannot be read ({error}); delete it to go on without it") from error
            image = f'<img alt="{escape(caption)}" style="width:100%" src="data:image/png;base64,{content}">'
            figures.append(f'<figure class="wide">{image}<figcaption>{escape(caption)}</figcaption></figure>')
    return section("Episode", "".join(figures))


def _encoded(path: Path, root: Path, first: bytes, last: bytes) -> str:
    """A picture's bytes for a page, if they begin and end as those of its kind do."""
    content = files.read_bytes(path, root)
    if not content.startswith(first) or not content.endswith(last):
        raise ValueError("it is not a whole picture")
    return b64encode(content).decode("ascii")


def _proofs(directories: Sequence[Path]) -> list[str]:
    """parity.json and compare.json wherever they lie."""
    parts = []
    for name, heading, show in (
        ("parity.json", "Parity", proofs.parity),
        ("compare.json", "Comparison", proofs.compare),
    ):
        seen = dict.fromkeys(path.resolve() / name for path in directories)
        for path in seen:
            content = read_json(path)
            if content is not None:
                parts.append(section(heading, show(content)))
    return parts


def _settings(runs: Sequence[RunRecord]) -> str:
    """Commands, versions and whole configurations: what it takes to do it again."""
    parts = []
    for run in runs:
        command = run.summary.get("command")
        versions = run.summary.get("versions") or {}
        body = f"<pre><code>{escape(command)}</code></pre>" if command else ""
        body += f"<p>{escape(', '.join(f'{name} {number}' for name, number in versions.items() if number))}</p>"
        if run.config:
            body += f"<details><summary>Configuration</summary><pre><code>{escape(run.config)}</code></pre></details>"
        parts.append((f"<h3>{escape(run.name)}</h3>" if len(runs) > 1 else "") + body)
    return section("How to do it again", "".join(parts))


def _grid(figures: Sequence[str], kind: str = "") -> str:
    shown = "".join(figures)
    return f'<div class="grid {kind}">{shown}</div>' if shown else ""


def _chip(index: int) -> str:
    return f'<i class="chip" style="background:{plots.COLOURS[index % len(plots.COLOURS)]}"></i>'


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name[:60])


def _short(value: Any) -> str:
    numbers = isinstance(value, list) and value and all(map(is_number, value))
    return tables.number(float(np.mean(value)) if numbers else value)
