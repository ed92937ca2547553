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
)


def draws(node: Any) -> bool:
    """Whether a node of `torch.fx` is random."""
    name = _name(node)
    if name == "native_dropout":
        return len(node.args) < 3 or bool(node.args[2])
    return name in (*NORMAL, *UNIFORM, "randperm", "multinomial")


def draw_of(node: Any) -> Draw:
    """What a random node draws."""
    name, value = _name(node), node.meta["val"]
    if name == "randperm":
        return Draw((int(node.args[0]),))
    if name == "multinomial":
        rows, number = node.args[0].meta["val"].shape, int(node.args[1])
        replaced = len(node.args) > 2 and node.args[2]
        return Draw((*map(int, rows[:-1]), *((number,) if replaced else ()), int(rows[-1])))
    first = value[0] if isinstance(value, (list, tuple)) else value
    return Draw(tuple(map(int, first.shape)), "normal" if name in NORMAL else "uniform")


def _name(node: Any) -> str:
    return str(node.target).removeprefix("aten.").partition(".")[0] if node.op == "call_function" else ""
