"""What is left of a filmed episode: a film, a strip of its frames, figures of its reward and of what is tracked."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from twinax.episode import Episode
from twinax.errors import TwinaxError, require
from twinax.problem import Problem, State
from twinax.runs import episode_plots, files, films, plots
from twinax.runs.directory import RunDirectory

FIGURES = ("frames", "reward", "tracks")
NAMES = ("episode", "eval-episode")
"""Of the episode at the end of a run, and of one that was asked for."""
COLUMNS, ROWS = 4, 2
"""Of the strip."""


def show(problem: Problem, state: State, seed: int, directory: RunDirectory) -> tuple[Path | None, str | None]:
    """Film one episode of what one seed has learned: the film, and what was in its way. It costs the film, not the
    run."""
    present = problem.present
    if present.show is None or not present.film:
        return None, None
    try:
        shown = present.show(state, seed)
        if shown is not None:
            written = save(directory, shown, int(state.step))
            return (None, shown.view.drawn) if shown.view.frames is None else (written[0], None)
    except (TwinaxError, OSError) as error:
        return None, str(error)
    except Exception as error:  # a stranger's world, Matplotlib or Pillow
        return None, f"{type(error).__name__}: {error}"
    return None, None


def save(directory: RunDirectory, episode: Episode, step: int, name: str = NAMES[0]) -> list[Path]:
    """Write films/<name>-<step>.gif (and .mp4 where ffmpeg is) and plots/<name>-*.png; the files."""
    require("matplotlib", "plots", "figures of an episode")
    written, view = [], episode.view
    if view.frames is not None:
        time = round(1000 * view.frame_seconds)
        film = files.inside(directory.path, directory.films / f"{name}-{step:010d}.gif")
        written.append(films.write_gif(film, view.frames, time))
        if shutil.which("ffmpeg"):
            written.append(films.write_mp4(film.with_suffix(".mp4"), view.frames, time))
        written.append(save_strip(directory.plots / f"{name}-frames.png", strip(episode)))
    for kind, (paint, size) in episode_plots.paintings(episode).items():
        plots.draw(f"{name}-{kind}", paint, size, directory.plots)
        written.append(directory.plots / f"{name}-{kind}.png")
    return written


def figures(directory: Path) -> dict[str, Path]:
    """Figures of the newest filmed episode by name: those that were asked for, else those of the end of the run."""
    for name in NAMES[::-1]:
        paths = {kind: directory / f"{name}-{kind}.png" for kind in FIGURES}
        paths = {f"{kind} of an episode": path for kind, path in paths.items() if path.is_file()}
        if paths:
            return paths
    return {}


def strip(episode: Episode) -> np.ndarray:
    """Some frames in rows: from the part of the film that the world finds telling, or from all of it."""
    frames, view = episode.view.frames, episode.view
    assert frames is not None
    first, last = 0, len(frames) - 1
    if view.strip is not None and view.strip[1] <= last * view.frame_seconds:
        first, last = (round(second / view.frame_seconds) for second in view.strip)
    number = min(COLUMNS * ROWS, last - first + 1)
    chosen = frames[np.linspace(first, last, number).round().astype(int)]
    columns = min(COLUMNS, number)
    blank = np.full_like(chosen[:1], 255).repeat(-number % columns, 0)
    rows = np.concatenate([chosen, blank]).reshape(-1, columns, *frames.shape[1:])
    return rows.swapaxes(1, 2).reshape(-1, columns * frames.shape[2], 3)


def save_strip(path: Path, pixels: np.ndarray) -> Path:
    """Write a picture into plots/ of a run as PNG, with few colours where few are enough."""
    require("PIL", "plots", "a strip of frames")
    from PIL import Image

    with files.writing("the frames", path, path.parent.parent, kept="the checkpoints are intact"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as temporary:
            Image.fromarray(pixels).quantize(256, dither=Image.Dither.NONE).save(temporary, "PNG", optimize=True)
    return path
