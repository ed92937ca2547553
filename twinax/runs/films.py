"""Films: GIF through Pillow or MP4 through ffmpeg, and those of a run's evaluations in films/."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from twinax.errors import TwinaxError, require
from twinax.runs import files

PREFIX = "film/"

_MOST_COLOURS = 255  # a GIF has 256, and one means "as before"

Frames = UInt8[np.ndarray, "time height width 3"]


@dataclass(frozen=True)
class Film:
    """A film in a run directory."""

    name: str
    """Its name among the metrics, without the prefix, as far as a file name can hold it."""
    step: int
    """The step of its evaluation."""
    path: Path
    """Its file."""


def select(metrics: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The films among an evaluation's metrics, without their prefix; of several seeds the first one's."""
    films = {name.removeprefix(PREFIX): np.asarray(value) for name, value in metrics.items() if name.startswith(PREFIX)}
    return {name: film[0] if film.ndim == 5 else film for name, film in films.items()}


def save(directory: Path, films: Mapping[str, np.ndarray], step: int) -> dict[str, Path]:
    """Write the films of an evaluation, if there are any, into films/ of a run as <name>-<step>.gif; the files."""
    places = {name: directory / f"{_file_name(name)}-{step:010d}.gif" for name in films}
    return {name: write_gif(files.inside(directory.parent, places[name]), frames) for name, frames in films.items()}


def newest(directory: Path) -> list[Film]:
    """The last film of each name."""
    films: dict[str, Film] = {}
    for path in sorted(directory.glob("*-*.gif")):
        name, _, step = path.stem.rpartition("-")
        if step.isdecimal() and len(step) <= 10 and not name.startswith("."):
            film = Film(name, int(step), path)
            films[name] = max(films.get(name, film), film, key=lambda one: one.step)
    return list(films.values())


def write_film(path: Path | str, frames: Frames, milliseconds: int = 100) -> Path:
    """Write frames as GIF or MP4, whichever the name ends with; `milliseconds` is how long a frame is seen.

    >>> write_film("hunt.gif", frames)                                      # doctest: +SKIP
    """
    writers: dict[str, Callable[..., Path]] = {".gif": write_gif, ".mp4": write_mp4}
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        raise TwinaxError(f"a film cannot be written as '{Path(path).name}'; end its name with {' or '.join(writers)}")
    return writers[suffix](path, frames, milliseconds)


def write_gif(path: Path | str, frames: Frames, milliseconds: int = 100) -> Path:
    """Write an endless GIF; up to 255 colours are kept exactly, more are reduced to 255 for the whole film.

    The format counts in 10 milliseconds, to which the time of a frame is rounded. Frames in which nothing moves may be
    joined into one that is seen longer.

    >>> write_gif("hunt.gif", np.zeros((50, 160, 160, 3), np.uint8))        # doctest: +SKIP
    """
    require("PIL", "plots", "a film as GIF")
    from PIL import Image

    path, frames = Path(path), _checked(frames, milliseconds)
    indices, palette = _with_palette(frames)
    clear, table = len(palette), palette.tobytes() + bytes(3)
    # What stays as it was is left clear, so that a frame costs only what moved.
    indices[1:] = np.where(indices[1:] == indices[:-1], np.uint8(clear), indices[1:])
    images = [Image.fromarray(index) for index in indices]
    for image in images:
        image.putpalette(table)
    options = {"palette": table, "transparency": clear, "disposal": 1, "loop": 0, "optimize": False}
    time = 10 * max(1, round(milliseconds / 10))
    with _replacing(path) as temporary:
        images[0].save(temporary, "GIF", save_all=True, append_images=images[1:], duration=time, **options)
    return path


def write_mp4(path: Path | str, frames: Frames, milliseconds: int = 100) -> Path:
    """Write an MP4 with the program ffmpeg, which must be on the PATH.

    >>> write_mp4("hunt.mp4", np.zeros((50, 160, 160, 3), np.uint8))        # doctest: +SKIP
    """
    path, frames = Path(path), _checked(frames, milliseconds)
    program = shutil.which("ffmpeg")
    if program is None:
        raise TwinaxError(
            f"a film as MP4 needs the program ffmpeg, which is not on the PATH; install it or write {path.stem}.gif"
        )
    _, height, width, _ = frames.shape
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"1000/{milliseconds}", "-i", "-"]
    # Players expect yuv420p, which needs an even number of lines and columns.
    target = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4"]
    with _replacing(path) as temporary:
        command = [program, "-v", "error", "-y", *source, *target, str(temporary)]
        done = subprocess.run(command, input=frames.tobytes(), capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise TwinaxError(f"ffmpeg could not write {path} (exit code {done.returncode}): {lines[-1]}")
    return path


def _with_palette(frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames as indices into one palette of at most 255 colours: one table for the whole film keeps the file small."""
    packed = (frames[..., 0].astype(np.uint32) << 16) | (frames[..., 1].astype(np.uint32) << 8) | frames[..., 2]
    # A table over all colours finds and replaces them without sorting millions of pixels.
    seen = np.zeros(1 << 24, bool)
    seen[packed] = True
    colours = np.flatnonzero(seen)
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=-1).astype(np.uint8)
    nearest, palette = (np.arange(len(rgb)), rgb) if len(rgb) <= _MOST_COLOURS else _reduce(rgb)
    table = np.zeros(1 << 24, np.uint8)
    table[colours] = nearest
    return table[packed], palette


def _reduce(rgb: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A palette for many colours, and which each becomes, wherever it stands: dithering would make large files."""
    from PIL import Image

    image = Image.fromarray(rgb[None]).quantize(_MOST_COLOURS, method=Image.Quantize.MAXCOVERAGE)
    palette = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
    return np.asarray(image)[0], palette[:_MOST_COLOURS]


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its name when the block has filled it, and goes when the block fails."""
    with files.writing("the film", path, kept="the checkpoints are intact"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path) as temporary:
            yield temporary


def _checked(frames: Any, milliseconds: int) -> np.ndarray:
    frames = np.asarray(frames)
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or not frames.size:
        raise TwinaxError(
            f"a film's frames have shape {frames.shape} and type {frames.dtype}; "
            "they must be uint8 of shape (time, height, width, 3) with at least one frame"
        )
    if milliseconds < 1 or int(milliseconds) != milliseconds:
        raise TwinaxError(f"milliseconds is {milliseconds}; it must be a whole number of at least 1")
    return np.ascontiguousarray(frames)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter == "_" else "-" for letter in name)
