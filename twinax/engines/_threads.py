"""How many threads PyTorch uses, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twinax.errors import require


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """PyTorch on one thread: idle workers spin for milliseconds, on cores that others need."""
    require("torch", "torch", "running in PyTorch")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
