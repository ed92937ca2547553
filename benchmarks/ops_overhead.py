"""What `ops` costs in eager PyTorch: trajectory balance through it, against the same loss written by hand.

Both compute the loss from forward and backward logits, masks and actions, and differentiate it. Their values
and gradients are compared first; a ratio is only printed if they are equal. Repeats alternate between the two,
so that both see the same machine, and processor time of the one thread is counted, so that other work on the machine
is not. Times and their ratio are lower deciles, which a busy machine disturbs least; the ratio of the medians is
printed beside it.

    python benchmarks/ops_overhead.py [--json FILE] [--repeats 1500]
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

from twinax import ops
from twinax.gflownet import Scores
from twinax.gflownet.objectives import trajectory_balance

SIZES = ((16, 16, 5), (128, 32, 32))
"""Batch, longest trajectory, actions."""
TARGET = 1.05
WARM_UP = 50
"""Repeats that are not counted."""


def inputs(batch: int, times: int, actions: int) -> dict[str, torch.Tensor]:
    """Random logits, masks and actions on the (time, batch, action) grid."""
    rng = np.random.default_rng(0)
    shape = (times, batch, actions)
    length = rng.integers(1, times + 1, batch)
    values = {
        "forward": rng.normal(size=shape).astype(np.float32),
        "backward": rng.normal(size=shape).astype(np.float32),
        "forward_mask": rng.random(shape) < 0.7,
        "backward_mask": rng.random(shape) < 0.7,
        "action": rng.integers(0, actions, (times, batch)),
        "undo": rng.integers(0, actions, (times, batch)),
        "valid": np.arange(times)[:, None] < length[None],
        "log_reward": rng.normal(size=batch).astype(np.float32),
        "log_z": np.zeros(1, np.float32),
    }
    for mask, chosen in (("forward_mask", "action"), ("backward_mask", "undo")):
        np.put_along_axis(values[mask], values[chosen][..., None], True, -1)
    return {name: torch.from_numpy(value) for name, value in values.items()}


def through_ops(x: dict[str, torch.Tensor]) -> torch.Tensor:
    """As the library computes it."""
    log_pf = ops.take_along(ops.log_softmax(x["forward"], x["forward_mask"]), x["action"])
    log_pb = ops.take_along(ops.log_softmax(x["backward"], x["backward_mask"]), x["undo"])
    scores = Scores(
        log_pf=ops.where(x["valid"], log_pf, 0.0),
        log_pb=ops.where(x["valid"], log_pb, 0.0),
        log_reward=x["log_reward"],
        valid=x["valid"],
        log_z=ops.sum(x["log_z"]),
    )
    return trajectory_balance(scores)[0]


def by_hand(x: dict[str, torch.Tensor]) -> torch.Tensor:
    """As one would write it in PyTorch."""

    def log_prob(logits, mask, chosen):
        log_probs = torch.log_softmax(torch.where(mask, logits, -1e9), -1)
        picked = torch.gather(log_probs, -1, chosen.unsqueeze(-1)).squeeze(-1)
        return torch.where(x["valid"], picked, 0.0)

    log_pf = log_prob(x["forward"], x["forward_mask"], x["action"])
    log_pb = log_prob(x["backward"], x["backward_mask"], x["undo"])
    residual = x["log_z"].sum() + (log_pf - log_pb).sum(0) - x["log_reward"]
    return (residual * residual).mean()


def differentiate(loss, x: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The loss and its gradients."""
    parameters = [x[name] for name in ("forward", "backward", "log_z")]
    value = loss(x)
    return value, *torch.autograd.grad(value, parameters)


def seconds(loss, x: dict[str, torch.Tensor]) -> float:
    """Processor time of one loss with its gradients."""
    begin = time.process_time()
    differentiate(loss, x)
    return time.process_time() - begin


def compare(size: tuple[int, int, int], repeats: int) -> dict:
    """Both ways at one size."""
    x = inputs(*size)
    for name in ("forward", "backward", "log_z"):
        x[name].requires_grad_()
    for a, b in zip(differentiate(through_ops, x), differentiate(by_hand, x), strict=True):
        if not torch.equal(a, b):
            raise SystemExit(f"error: the two losses differ by {float((a - b).detach().abs().max())} at size {size}")
    times = []
    gc.disable()
    for k in range(repeats + WARM_UP):
        order = (through_ops, by_hand) if k % 2 else (by_hand, through_ops)
        taken = {loss: seconds(loss, x) for loss in order}
        times.append((taken[through_ops], taken[by_hand]))
    gc.enable()
    (ours, native), medians = np.quantile(times[WARM_UP:], 0.1, axis=0), np.median(times[WARM_UP:], axis=0)
    return {
        "batch": size[0],
        "times": size[1],
        "actions": size[2],
        "ops_microseconds": round(1e6 * float(ours), 1),
        "native_microseconds": round(1e6 * float(native), 1),
        "ratio": round(float(ours / native), 4),
        "ratio_of_medians": round(float(medians[0] / medians[1]), 4),
    }


def main() -> None:
    """Measure, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--repeats", type=int, default=1500, help="pairs of repeats for each size")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = [compare(size, options.repeats) for size in SIZES]
    report = {
        "benchmark": "ops_overhead",
        "target_ratio": TARGET,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "results": results,
    }
    print(f"{'batch, times, actions':>24} {'ops [us]':>10} {'native [us]':>12} {'ratio':>7} {'of medians':>11}")
    for r in results:
        size = f"{r['batch']}, {r['times']}, {r['actions']}"
        times = f"{r['ops_microseconds']:>10} {r['native_microseconds']:>12}"
        print(f"{size:>24} {times} {r['ratio']:>7.3f} {r['ratio_of_medians']:>11.3f}")
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
