"""What the numbers of a run are called in a report, and what they mean.

A family says it of its own (`Judge.titles`), and a run keeps that in its summary; here is what every run has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from twinax.parts import Title

GENERAL = {
    "loss": Title("Loss", "Training loss: each logged value faintly, the running mean on top.", tile=True),
    "grad_norm": Title("Gradient norm", "Global norm before clipping."),
    "steps_per_second": Title("Steps per second", "After compilation.", tile=True),
    "env_steps": Title("Environment steps"),
    "trajectories": Title("Trajectories"),
    "compile_seconds": Title("Compilation, seconds"),
    "seconds": Title("Training, seconds"),
    "first_step_seconds": Title("First step, seconds"),
    "dtype": Title("dtype"),
    "seed": Title("First seed"),
    "seeds": Title("Number of seeds"),
}
_LONGEST = 300
"""Characters of a title or a sentence that a file may give."""
_OWN: ContextVar[dict[str, Title]] = ContextVar("titles of the runs at hand")


@contextmanager
def titles_of(summaries: Iterable[Mapping[str, Any]]) -> Iterator[None]:
    """Within this, titles are also those that these summaries hold; a file may say anything, so only texts count."""
    own: dict[str, Title] = {}
    for summary in summaries:
        told = summary.get("titles")
        for name, texts in told.items() if isinstance(told, Mapping) else ():
            if isinstance(texts, list) and [type(one) for one in texts] == [str, str, bool]:
                own.setdefault(name, Title(texts[0][:_LONGEST], texts[1][:_LONGEST], texts[2]))
    token = _OWN.set(own)
    try:
        yield
    finally:
        _OWN.reset(token)


def title(name: str) -> str:
    """The name in words.

    >>> title("grad_norm"), title("entropy_bonus")
    ('Gradient norm', 'Entropy bonus')
    """
    if (known := _known().get(name)) is not None:
        return known.title
    words = name.replace("_", " ").replace("/", " / ").strip()
    return words[:1].upper() + words[1:]


def meaning(name: str) -> str:
    """The sentence under a curve; empty for names that are not known."""
    known = _known().get(name)
    return "" if known is None else known.meaning


def rank(name: str) -> int:
    """Place in a report: the loss, what the families name in their order, what every run has, then the others."""
    order = list(_known())
    return order.index(name) if name in order else len(order)


def tiles() -> list[str]:
    """What stands at the top of a report: what the families find most telling, then what every run has."""
    known = _known()
    order = [*(name for name in known if name not in GENERAL), *GENERAL]
    return [name for name in order if known[name].tile]


def _known() -> dict[str, Title]:
    return {"loss": GENERAL["loss"], **_OWN.get({}), **GENERAL}
