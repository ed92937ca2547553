"""The run directory: where everything that a training leaves behind has its place.

config.yaml         the whole configuration (absent when the run was started from Python without one); its first line
                    has a sum over the others
problem.yaml        of a run that was started from Python: the call that made its problem, as `twinax.recipe` writes it,
                    or why that cannot be written down; under a sum as well
origin.json         shows this user that one of these two is theirs, only where it names code of other packages
sources/            copies of files that it names, such as a robot's MJCF; sources.json has their sums
metrics.jsonl       one object per logged step
metrics.csv         the same rows as a table, written when a training ends
summary.json        final metrics, speed, versions, the command, and a sum over all of this
checkpoints/        one directory per saved step
weights/            the networks alone by PyTorch's names, as of the last checkpoint: one safetensors file for each
plots/              pictures.safetensors of the last evaluation, figures of an episode, and PNG files of the report
films/              <name>-<step>.gif (and .mp4), one per film and evaluation, when the problem has any
sinks.json          what is known of the sinks of the run, such as its id elsewhere
tensorboard/        event files, when asked for
report.html         written by `twinax report`

A run may come from somebody else, or from a bad disk: what is read is checked, and no link that leads out of the
run is followed (see `files`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinax import recipe
from twinax.bridge.weight_files import encode_weights
from twinax.errors import TwinaxError
from twinax.problem import Problem
from twinax.runs import (
    checkpoint,
    config_file,
    files,
    lock,
    metrics,
    metrics_csv,
    origin,
    plain,
    sealed,
    sources,
    summary,
)

# Other commands may have left these in a directory before a training uses it.
_FOREIGN = {"parity.json", "compare.json"}
# What a training has written before its first checkpoint.
_BEGUN = {"config.yaml", "problem.yaml", "metrics.jsonl", "checkpoints", origin.FILE, sources.FOLDER, sources.SUMS}
_BEGUN |= {"sinks.json", "tensorboard"}
# Folders that other packages fill, also with links of their own; nothing is read from there.
_OTHERS = {"wandb"}
_OWN = {"metrics.csv", "summary.json", "weights", "plots", "films", "report.html", "eval.json"}


@dataclass(frozen=True)
class RunDirectory:
    """The paths of a run, and its small files read and written whole."""

    path: Path
    """The directory itself (`run.dir`)."""

    @property
    def config_path(self) -> Path:
        return self.path / "config.yaml"

    @property
    def problem_path(self) -> Path:
        return self.path / "problem.yaml"

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def csv_path(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def summary_path(self) -> Path:
        return self.path / "summary.json"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @property
    def pictures_path(self) -> Path:
        return self.plots / "pictures.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / "weights"

    @property
    def films(self) -> Path:
        return self.path / "films"

    @property
    def is_composed(self) -> bool:
        """Whether the run's problem is built from its configuration; otherwise from the call that made it in Python."""
        return self.config_path.exists() and not self.problem_path.exists()

    def refuse_if_used(self) -> None:
        """Raise unless a new training may start here; touches nothing.

        A directory in which a training was stopped before its first checkpoint may be used again.
        """
        if self.path.exists() and not self.path.is_dir():
            raise TwinaxError(f"run.dir {self.path} is a file, not a directory; choose another run.dir")
        self.refuse_links()
        entries = self._entries()
        if checkpoint.steps(self.path) or "metrics.jsonl" in entries and self.metrics_path.stat().st_size:
            raise TwinaxError(
                f"run.dir {self.path} already holds a training; continue it with `twinax resume {self.path}` "
                "(twinax.resume in Python), or choose a new run.dir"
            )
        strangers = sorted(entries - _FOREIGN - _BEGUN - _OTHERS)
        if strangers:
            raise TwinaxError(
                f"run.dir {self.path} is not empty (it has '{strangers[0]}', {len(strangers)} entries in all) "
                "and holds no training; choose a new run.dir"
            )

    def create(self) -> None:
        """Make the directory for a new training, or say why not."""
        self.refuse_if_used()
        with files.writing("the run directory", self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def lock(self) -> AbstractContextManager[None]:
        """Hold the directory, so that two processes cannot train in it."""
        self.refuse_links()
        return lock.locked(self.path)

    def refuse_links(self) -> None:
        """Raise if a link that leads out of the run stands where the run has, or would have, files of its own.

        Every read and write refuses such a link by itself; this says so before hours of training.
        """
        own = _FOREIGN | _BEGUN | _OWN
        files.refuse_links(self.path, lambda name: name in own or name.startswith("."))

    def read_config(self) -> dict[str, Any]:
        """config.yaml as plain data, files of the run's own by where they lie now."""
        if not self.config_path.exists():
            self.must_exist()
            raise TwinaxError(
                f"the run {self.path} has no config.yaml: it was started from Python; "
                f"continue it with twinax.resume({str(self.path)!r}, problem=...)"
            )
        self.refuse_links()
        return sources.locate(self.path, self._config()[0])

    def config_text(self) -> str:
        """config.yaml as it was written, for people; empty when there is none."""
        return self._config()[1] if self.config_path.exists() else ""

    def _config(self) -> tuple[dict[str, Any], str]:
        """config.yaml and its text, if nobody changed it and it is this run's."""
        try:
            text = files.read_text(self.config_path, self.path)
        except (OSError, ValueError) as error:
            raise TwinaxError(f"{self.config_path} cannot be read: {' '.join(str(error).split())}") from error
        config, text = config_file.loads(text, self.config_path)
        kept = config_file.identity((checkpoint.newest_meta(self.path) or {}).get("config") or {})
        self._refuse_another("configuration", self.config_path, config_file.identity(config), kept)
        return config, text

    def _refuse_another(self, what: str, path: Path, here: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        """Raise if a file is that of another run: some things never change in one."""
        for name, value in kept.items():
            if here.get(name) is not None and here[name] != value:
                raise TwinaxError(
                    f"{path} is not the {what} of this run: it has {name}={here[name]}, the newest checkpoint was "
                    f"trained with {name}={value}; put the run's own file back"
                )

    def write_config(self, config: Mapping[str, Any], given: Sequence[Path] = ()) -> None:
        """Write config.yaml whole, and keep the files that a person gave; it names the first of them."""
        kept = sources.keep(self.path, container(config), given)
        with files.writing("the configuration", self.config_path, self.path):
            files.replace_file(self.config_path, config_file.dumps(kept))
        origin.vouch(self.config_path, bool(origin.named_code(kept)))

    def write_origin(self, problem: Any, config: Mapping[str, Any] | None) -> None:
        """Write what a new run can be built from again: its composed configuration, or the call that made its problem.

        What an earlier training left here, which was stopped before its first checkpoint, goes.
        """
        given, composed = problem.present.sources, builds_problem(config)
        for path, stale in ((self.config_path, config is None), (self.problem_path, composed)):
            if stale and path.exists():
                with files.writing("the run directory", path, self.path):
                    path.unlink()
        if config is not None:
            self.write_config(config, given)
        if not composed:
            self.write_problem(problem, given)

    def write_problem(self, problem: Any, given: Sequence[Path] = ()) -> None:
        """Write problem.yaml: how a problem was made, or why nobody can say it."""
        try:
            kept = {"problem": sources.keep(self.path, recipe.made_by(problem), given)}
        except recipe.NoRecipe as error:
            kept = {"unknown": str(error)}
        with files.writing("how the problem was made", self.problem_path, self.path):
            files.replace_file(self.problem_path, config_file.dumps(kept))
        origin.vouch(self.problem_path, bool(recipe.named_modules(kept.get("problem"))))

    def read_problem(self, trust: bool = False, use: str = "load") -> Problem:
        """The problem of a run that was started from Python, built again.

        A file that names code of other packages is refused, unless this user wrote it on this machine, or with `trust`.
        `use` is the function of this library that takes the problem itself where this one cannot make it.
        """
        self.must_exist()
        self.refuse_links()
        instead = f"give the problem itself: twinax.{use}({str(self.path)!r}, problem=...)"
        if self.is_composed:
            raise TwinaxError(
                f"the run {self.path} was started from a configuration, which the command line reads: `twinax resume "
                f"{self.path}`; or {instead}"
            )
        try:
            text = files.read_text(self.problem_path, self.path) if self.problem_path.exists() else "unknown: ''"
        except (OSError, ValueError) as error:
            raise TwinaxError(f"{self.problem_path} cannot be read: {' '.join(str(error).split())}") from error
        kept, _ = config_file.loads(text, self.problem_path)
        if not isinstance(kept.get("problem"), dict):
            why = f" ({kept['unknown']})" if kept.get("unknown") else ""
            raise TwinaxError(
                f"the run {self.path} has no config.yaml: it was started from Python, and its files do not say how its "
                f"problem was made{why}; {instead}"
            )
        if not trust:
            origin.require_trust(self.problem_path, recipe.named_modules(kept["problem"]))
        try:
            return recipe.rebuild(sources.locate(self.path, kept["problem"]))
        except TwinaxError as error:
            raise TwinaxError(
                f"the run {self.path} was started from Python, and its problem cannot be made again: {error}; or "
                f"{instead}"
            ) from error

    def read_summary(self) -> dict[str, Any]:
        """summary.json, or an empty dict before the first one was written."""
        if not self.summary_path.exists():
            self.must_exist()
            return {}
        try:
            entries = sealed.loads(files.read_text(self.summary_path, self.path))
        except (OSError, ValueError) as error:
            raise TwinaxError(f"{self.summary_path} cannot be read: {error}; delete it to go on without it") from error
        entries = summary.checked(entries, self.summary_path)
        plan = (checkpoint.newest_meta(self.path) or {}).get("plan") or {}
        kept = {name: plan[name] for name in ("seed", "seeds", "dtype") if name in plan}
        self._refuse_another("summary", self.summary_path, entries, kept)
        return entries

    def write_summary(self, content: Mapping[str, Any]) -> None:
        """Write summary.json whole."""
        with files.writing("the summary", self.summary_path, self.path, kept="the checkpoints are intact"):
            files.replace_file(self.summary_path, sealed.dumps(content, indent=2) + "\n")

    def read_metrics(self, tell: metrics.Tell | None = None) -> list[metrics.Row]:
        """The rows of metrics.jsonl; none before the first was written.

        `tell` gets a sentence if they are not those that the run wrote (default: a Python warning).
        """
        self.must_exist()
        meta = checkpoint.newest_meta(self.path) or {"step": 0}  # first: a run that goes on writes its log before
        if not self.metrics_path.exists():
            return []
        return metrics.read(self.metrics_path, meta.get("log"), meta["step"], tell)

    def write_csv(self, rows: Sequence[metrics.Row]) -> None:
        """Write metrics.csv whole."""
        with files.writing("the table", self.csv_path, self.path, kept="the checkpoints and metrics.jsonl are intact"):
            files.replace_file(self.csv_path, metrics_csv.text(rows))

    def write_weights(self, networks: Mapping[str, Any]) -> None:
        """Write each network to a file of its own."""
        for name, network in networks.items():
            path = self.weights / f"{name}.safetensors"
            with files.writing("the weights", path, self.path, kept="the checkpoints are intact"):
                path.parent.mkdir(parents=True, exist_ok=True)
                files.replace_file(path, encode_weights(network))

    def must_exist(self) -> None:
        """Raise unless the directory is there."""
        if not self.path.is_dir():
            raise TwinaxError(
                f"there is no run directory {self.path}; give the directory that a training wrote (run.dir)"
            )

    def _entries(self) -> set[str]:
        if not self.path.is_dir():
            return set()
        return {entry.name for entry in self.path.iterdir() if not entry.name.startswith(".")}


def builds_problem(config: Mapping[str, Any] | None) -> bool:
    """Whether a configuration is one that the command line composes, and so says what the problem is."""
    return config is not None and "experiment" in config


def find_runs(root: Path) -> list[Path]:
    """The runs below a directory, however they were started, the newest last."""
    names = ("config.yaml", "problem.yaml", "metrics.jsonl")
    found = {path.parent for name in names for path in root.glob(f"**/{name}")}
    return sorted(found, key=lambda path: max(path.joinpath(n).stat().st_mtime for n in names if (path / n).exists()))


def container(config: Any) -> Any:
    """A configuration as plain dicts and lists, whether it came from Hydra or from Python."""
    if type(config).__module__.startswith("omegaconf"):
        from omegaconf import OmegaConf

        for key, value in origin.leaves(OmegaConf.to_container(config, resolve=False)):
            if isinstance(value, str) and "${oc.env:" in value:
                raise TwinaxError(
                    f"{key}={value} would write a value of the environment, perhaps a secret, into the run's files; "
                    "give the value itself, or leave the key out of `config`"
                )
        config = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    if isinstance(config, Mapping):
        return {str(key): container(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return [container(value) for value in config]
    # Not finite numbers are fine in YAML, and a configuration must come back as it went.
    return config if isinstance(config, float) else plain.plain(config)
