"""The command line: `twinax train env=grid trainer.mode=jax`. Also `python -m twinax.cli`."""

from twinax.cli._main import main

__all__ = ["main"]
