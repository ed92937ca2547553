"""The same as `twinax train`: python train.py env=grid trainer.mode=jax trainer.steps=100."""

from __future__ import annotations

import sys

from twinax.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
