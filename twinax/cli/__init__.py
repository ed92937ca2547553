"""The command line: `twinax train env=grid trainer.mode=jax`. Also `python -m twinax.cli`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    >>> main(["train", "env=grid", "trainer.steps=10", "run.dir=runs/first"])   # doctest: +SKIP
    0
    """
    from twinax.cli._signals import Watch

    with Watch() as watch:
        try:
            from twinax.cli import _main

            return _main.main(argv)
        except BaseException:
            # Whatever an interrupt has become on its way, such as a failed import, it is still an interrupt.
            if watch.arrived is None or os.environ.get("TWINAX_DEBUG", "") not in ("", "0"):
                raise
            print(watch.arrived, file=sys.stderr)
            return watch.arrived.exit_code
