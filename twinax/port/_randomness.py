"""Which random arrays an operator reads: randomness is data, so each random call becomes a named draw."""

from __future__ import annotations

from typing import Any

from twinax.noise import Draw

NORMAL = ("randn", "randn_like", "normal_functional", "normal", "log_normal")
UNIFORM = (
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "bernoulli",
    "exponential",
    "uniform",
    "geometric",
    "cauchy",
    "native_dropout",
    "rrelu_with_noise_functional",
)


def draw_of(operator: str, node: Any) -> Draw | None:
    """What a node of `torch.fx` draws; None for an operator that is not random."""
    name = operator.removeprefix("aten.").partition(".")[0]
    value = node.meta.get("val")
    first = value[0] if isinstance(value, (list, tuple)) else value
    if name == "native_dropout" and not (node.args[2] if len(node.args) > 2 else True):
        return None
    if name == "rrelu_with_noise_functional" and not (node.args[4] if len(node.args) > 4 else False):
        return None
    if name in NORMAL:
        return Draw(tuple(map(int, first.shape)), "normal")
    if name in UNIFORM:
        return Draw(tuple(map(int, first.shape)))
    if name == "randperm":
        return Draw((int(node.args[0]),))
    if name == "multinomial":
        rows, number = node.args[0].meta["val"].shape, int(node.args[1])
        replaced = len(node.args) > 2 and node.args[2]
        return Draw((*map(int, rows[:-1]), *((number,) if replaced else ()), int(rows[-1])))
    return None
