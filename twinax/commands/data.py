"""Describe a file of offline data and check every row of it; or make a world's file of somebody's package.

With the name of a world (tfbind8, sachs) and a package, what the world needs is read out of it, checked and written; the
package is not installed. Otherwise known are OGBench (npz), D4RL and Minari (HDF5), ExORL (a directory of episodes) and
plain arrays (npz, or a directory of npy files). Something wrong is said in one sentence that names the field and the
row."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from twinax import console
from twinax.commands._made_files import READERS, made
from twinax.errors import TwinaxError

HELP = "describe a file of offline data and check it, or make a world's file of a package"
WHEELS = "the wheel to read, and the file to write, NAME.npz if none is given"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file, or a directory of episodes or of npy files; or a NAME")
    parser.add_argument("more", metavar="WHEEL [OUT]", nargs="*", help=f"after a name ({', '.join(READERS)}): {WHEELS}")
    parser.add_argument("--format", metavar="NAME", help="ogbench, d4rl, minari, exorl or arrays (default: found out)")
    parser.add_argument("--low", metavar="X", help="smallest action of the box, if it is not -1; or --low=-2,-1")
    parser.add_argument("--high", metavar="X", help="largest action of the box, if it is not 1; or --high=2,1")
    parser.add_argument(
        "--keys", metavar="NAMES", help="parts of the observations to join, as observation,desired_goal"
    )
    parser.add_argument("--goals", action="store_true", help="also check that goals can be drawn from it")


def run(arguments: Namespace) -> int:
    if arguments.file in READERS:
        console.facts(made(arguments.file, arguments.more))
        return 0
    if arguments.more:
        raise TwinaxError(
            f"'{arguments.file}' is followed by '{arguments.more[0]}', but only one file is described at a time; of "
            f"packages, files are made for {', '.join(READERS)}"
        )
    from twinax.offline import find_format, read_dataset

    path = Path(arguments.file)
    format = arguments.format or find_format(path)
    given = {"low": _side("low", arguments.low), "high": _side("high", arguments.high)}
    given |= {"keys": arguments.keys.split(",") if arguments.keys else None}
    if format == "ogbench":
        given["compact"] = True  # rows are then numbered as in the file
    data = read_dataset(path, format, **{name: x for name, x in given.items() if x is not None})
    if arguments.goals:
        data.require_goals()
    console.facts(description(data, path, format))
    return 0


def _side(name: str, text: str | None) -> Any:
    """A number, or a list of numbers."""
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.strip("[]").split(",")]
    except ValueError:
        raise TwinaxError(f"--{name} is '{text}'; it must be a number, or several with commas between them") from None
    return numbers if len(numbers) > 1 else numbers[0]


def description(data: Any, path: Path, format: str) -> dict[str, Any]:
    """What is in a dataset, in words."""
    lengths = data.lengths
    layout = "compact: the next observation is the next row" if data.compact else "regular"
    facts = {
        "file": path,
        "format": format,
        "layout": layout,
        "size on disk": _bytes(size_on_disk(path)),
        "rows": f"{data.rows:,}" + (f", of which {data.size:,} may be drawn" if data.size < data.rows else ""),
        "trajectories": f"{len(lengths):,} of {_range(lengths.min(), lengths.max())} steps"
        + (f", mean {lengths.mean():.1f}" if lengths.min() < lengths.max() else ""),
        "observations": f"{_shape(data.observations)}, {_values(data.observation_range())}",
        "actions": _actions(data),
        "rewards": _rewards(data),
        "masks": _masks(data),
        "ends": _ends(data),
    }
    return {**facts, "checked": "nothing wrong was found"}


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files in a directory."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files)


def _actions(data: Any) -> str:
    low, high = data.action_range()
    if data.actions.ndim == 1:
        return f"choices from {low} to {high}"
    return f"{_shape(data.actions)}, {_values((low, high))}"


def _rewards(data: Any) -> str:
    if data.rewards is None:
        return "none"
    steps = data.rewards[data.drawable]
    where = "the next observation" if data.reward_on_next else "the observation or the step"
    return f"{_values((steps.min(), steps.max()))}, mean {steps.mean(dtype='float64'):.5g}, of {where}"


def _masks(data: Any) -> str:
    steps = data.masks[data.drawable]
    zeros = int((steps == 0).sum())
    return f"0 in {zeros:,} rows" if zeros else "1 everywhere: values are bootstrapped at every step"


def _ends(data: Any) -> str:
    import numpy as np

    last = np.unique(data.ends[data.drawable])
    over = data.masks[last] == 0
    cut = data.truncations[last] & ~over
    stopped = int((~over & ~cut & data.terminals[last]).sum())
    text = f"{int(over.sum()):,} terminated, {int(cut.sum()):,} truncated, {stopped:,} where the recording stopped"
    return text + ("; the last trajectory does not end, so no goals can be drawn" if data.open_end else "")


def _shape(x: Any) -> str:
    return f"{' x '.join(str(n) for n in x.shape[1:])} of {x.dtype}"


def _values(limits: tuple[Any, Any]) -> str:
    low, high = limits
    return f"from {low.min():.5g} to {high.max():.5g}"


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _bytes(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size = size / 1000  # type: ignore[assignment]
    return f"{size:.3g} GB"
