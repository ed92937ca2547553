"""What a person sees while a training runs: a bar on a terminal, two lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from twinax.parts import Unit

_STEPS = Unit()


class Progress:
    """A rich progress bar with speed, loss and time left; without a terminal a line at the start and the end.

    `show` None means: a bar when standard error is a terminal; False means silence.
    """

    def __init__(self, label: str, total: int, done: int = 0, show: bool | None = None, unit: Unit = _STEPS):
        self._label, self._unit = label, unit
        self._total = total
        self._done = done
        self._show = show
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._show is not False and sys.stderr.isatty():
            self._start_bar()
        elif self._show is not False:
            start = f", from step {self._done:,}" if self._done else ""
            self.say(f"{self._label}: {self._unit.told(self._total)}{start}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, loss: float, speed: float) -> None:
        """Show the steps done, the latest loss and the steps per second (0 while it is not known)."""
        if self._bar is not None:
            done, speed = done * self._unit.per_step, speed * self._unit.per_step
            rate = f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s" if speed else "compiled"
            self._bar.update(self._task, completed=done, loss=f"{loss:.4g}", rate=rate)

    def say(self, sentence: str) -> None:
        """A line above the bar, or on standard error; nothing when progress is switched off."""
        if self._bar is not None:
            self._bar.console.print(sentence, markup=False, highlight=False)
        elif self._show is not False:
            print(sentence, file=sys.stderr, flush=True)

    def _start_bar(self) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn(f"{{task.completed:,}}/{{task.total:,}} {self._unit.name}"),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TextColumn("loss {task.fields[loss]}"),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=5,
        )
        self._bar.start()
        self._task = self._bar.add_task(
            self._label,
            total=self._total * self._unit.per_step,
            completed=self._done * self._unit.per_step,
            loss="...",
            rate="compiling",
        )
