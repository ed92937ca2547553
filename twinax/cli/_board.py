"""The map of a world as coloured characters."""

from __future__ import annotations

from typing import Any

SYMBOLS = {
    "empty": (".", "dim"),
    "wall": ("#", "white"),
    "gem": ("*", "bold cyan"),
    "food": ("+", "bold yellow"),
    "bone": ("-", "bold red"),
    "river": ("~", "blue"),
    "pollution": ("%", "bold magenta"),
    "grass": (",", "green"),
    "apple": ("o", "bold red"),
    "clean_beam": ("=", "cyan"),
    "zap_beam": ("!", "bold yellow"),
    "zapped_agent": ("z", "red"),
}
"""A character and a style of rich for what a code shows; other names show their first letter."""

_AGENTS = "0123456789"
_YOU, _YOURS = "@", "bold reverse"
"""You, and the style in which you are always shown."""
_NOWHERE = ("blank", "outside", "agent")
"""Names that need no line in a legend: not on the map, or shown by a number."""


def symbol(name: str) -> tuple[str, str]:
    """The character and style of a name; of stacked names the uppermost counts.

    >>> symbol("grass+apple"), symbol("lamp")
    (('o', 'bold red'), ('l', ''))
    """
    top = name.rpartition("+")[2]
    return SYMBOLS.get(top, (top[0], ""))


def board(world: Any, state: Any, you: int) -> Any:
    """The first world of a state as a `rich.text.Text`: things, other agents by number, and you."""
    from rich.text import Text

    codes = world.picture(state)[0]
    shown = [[symbol(world.names[code]) for code in row] for row in codes]
    for agent in range(world.num_agents):
        row, column = divmod(int(world.place(state, agent)[0]), world.stride)
        row, column = row - world.margin, column - world.margin
        char, style = shown[row][column]
        if world.names[codes[row, column]] == "agent":
            char, style = (_YOU, "") if agent == you else (_AGENTS[agent % len(_AGENTS)], "bold")
        shown[row][column] = (char, f"{style} {_YOURS}" if agent == you else style)
    text = Text()
    for row in shown:
        for number, (char, style) in enumerate(row):
            text.append(" " * (number > 0))
            text.append(char, style)
        text.append("\n")
    return text


def legend(world: Any) -> Any:
    """What the characters mean, as a `rich.text.Text`."""
    from rich.text import Text

    text = Text()
    text.append(_YOU, _YOURS)
    text.append(" you")
    if world.num_agents > 1:
        text.append("   other agents by number")
    for name in dict.fromkeys(world.names):
        if name not in _NOWHERE:
            text.append("   ")
            text.append(*symbol(name))
            text.append(" " + name.rpartition("+")[2].replace("_", " "))
    return text
