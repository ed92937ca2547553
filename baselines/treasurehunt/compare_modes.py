"""PyTorch, JAX with agents one after the other, and JAX with all agents at once: the same game, timed alike.

    python baselines/treasurehunt/compare_modes.py

Any setting of `twinax compare` may follow. Each mode has a process of its own; compilation stands apart, and ratios are
printed only after the modes were shown to agree.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from twinax.cli import main

SETTINGS = [
    "experiment=treasurehunt",
    "preset=seed",
    "compare.modes=[torch,jax]",
    "compare.warm_up=6",
    "compare.repeats=3",
    "trainer.chunk=5",
]


def run(directory: Path, overrides: list[str]) -> int:
    """Both comparisons, then one table of the three modes."""
    rows = {}
    for parallel in ("false", "true"):
        place = directory / f"parallel-{parallel}"
        settings = [*SETTINGS, f"model.parallel={parallel}", f"run.dir={place}", *overrides]
        if code := main(["compare", *settings]):
            return code
        found = {row["mode"]: row for row in json.loads((place / "compare.json").read_text())["modes"]}
        rows["PyTorch"] = found["torch"]
        rows[f"JAX, {'all agents at once' if parallel == 'true' else 'one after the other'}"] = found["jax"]
    print("\nepochs per second")
    for name, row in rows.items():
        print(f"  {name:28s} {row['median']:8.2f}   compiled in {row['compile_seconds']:.1f} s")
    return 0


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        sys.exit(print(__doc__))
    sys.exit(run(Path("runs/treasurehunt-modes"), sys.argv[1:]))
