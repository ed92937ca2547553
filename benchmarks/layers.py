"""What the layers of `twinax.networks` cost in eager PyTorch, against their counterparts of `torch.nn`.

Both have the same weights, and their outputs are compared first. Repeats alternate between the two, and processor time
of the one thread is counted; times and their ratio are lower deciles, as in `ops_overhead.py`.

    python benchmarks/layers.py [--repeats 300] [--no-grad]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from twinax import networks
from twinax.networks import as_torch_module

TARGET = 1.3
RNG = np.random.default_rng(0)


def normal(*shape: int) -> torch.Tensor:
    """Random inputs."""
    return torch.from_numpy(RNG.normal(size=shape).astype(np.float32))


def attend(module: nn.MultiheadAttention) -> Callable:
    """Self-attention as one argument, without the weights of the heads."""
    return lambda x: module(x, x, x, need_weights=False)[0]


def layers() -> dict[str, tuple[Any, nn.Module, tuple]]:
    """Ours, theirs and inputs, by name; the sizes are those of small policies, where overhead shows."""
    tokens = torch.from_numpy(RNG.integers(0, 100, (64, 32)).astype(np.int32))
    found: dict[str, tuple[Any, nn.Module, tuple]] = {
        "linear": (networks.Linear.init(RNG, 64, 64), nn.Linear(64, 64), (normal(64, 64),)),
        "embedding": (networks.Embedding.init(RNG, 100, 64), nn.Embedding(100, 64), (tokens,)),
        "layer norm": (networks.LayerNorm.init(64), nn.LayerNorm(64), (normal(64, 64),)),
        "group norm": (networks.GroupNorm.init(16, 4), nn.GroupNorm(4, 16), (normal(8, 16, 16, 16),)),
        "conv2d": (
            networks.Conv2d.init(RNG, 16, 32, 3, padding=1),
            nn.Conv2d(16, 32, 3, padding=1),
            (normal(8, 16, 16, 16),),
        ),
        "conv1d": (
            networks.Conv1d.init(RNG, 16, 32, 3, padding=1),
            nn.Conv1d(16, 32, 3, padding=1),
            (normal(8, 16, 64),),
        ),
        "gru cell": (networks.GRUCell.init(RNG, 64, 64), nn.GRUCell(64, 64), (normal(16, 64), normal(16, 64))),
    }
    for rows, length, width in ((4, 8, 16), (16, 16, 64)):
        size = f"{rows} x {length} x {width}"
        x, hidden = normal(rows, length, width), 4 * width
        block = nn.TransformerEncoderLayer(width, 4, hidden, dropout=0.0, batch_first=True)
        found |= {
            f"attention {size}": (
                networks.MultiheadAttention.init(RNG, width, 4),
                nn.MultiheadAttention(width, 4, batch_first=True),
                (x,),
            ),
            f"transformer {size}": (
                networks.TransformerEncoder.init(RNG, 2, width, 4, hidden),
                nn.TransformerEncoder(block, 2, enable_nested_tensor=False),
                (x,),
            ),
            f"gru {size}": (networks.GRU.init(RNG, width, width), nn.GRU(width, width), (x,)),
            f"lstm {size}": (networks.LSTM.init(RNG, width, width), nn.LSTM(width, width), (x,)),
        }
    return found


def seconds(function: Callable, inputs: tuple) -> float:
    """Processor time of one call."""
    begin = time.process_time()
    function(*inputs)
    return time.process_time() - begin


def compare(ours: Any, theirs: nn.Module, inputs: tuple, repeats: int) -> tuple[float, float]:
    """Microseconds of both."""
    module = as_torch_module(ours)
    theirs.load_state_dict(module.state_dict())
    net = module.network()  # as the engines hold it
    other = attend(theirs) if isinstance(theirs, nn.MultiheadAttention) else theirs
    first, second = net(*inputs), other(*inputs)
    if isinstance(first, tuple):
        first, second = first[0], second[0]
    if not torch.allclose(first, second, atol=1e-5):
        raise SystemExit(f"error: {type(ours).__name__} differs from torch.nn by {float((first - second).abs().max())}")
    times = []
    for k in range(repeats + 30):
        order = (net, other) if k % 2 else (other, net)
        taken = {id(function): seconds(function, inputs) for function in order}
        times.append((taken[id(net)], taken[id(other)]))
    here, there = 1e6 * np.quantile(times[30:], 0.1, axis=0)
    return float(here), float(there)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=300, help="pairs of repeats for each layer")
    parser.add_argument("--no-grad", action="store_true", help="as when acting; otherwise gradients are recorded")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'layer':>26} {'here [us]':>10} {'torch.nn [us]':>14} {'ratio':>6}   (at most {TARGET})")
    with torch.set_grad_enabled(not options.no_grad):
        for name, (ours, theirs, inputs) in layers().items():
            here, there = compare(ours, theirs, inputs, options.repeats)
            print(f"{name:>26} {here:>10.1f} {there:>14.1f} {here / there:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
