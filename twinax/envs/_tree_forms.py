"""Trees on the host: as text, as pictures, how far apart they are, and examples from bad to good."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

LONGEST = 24
"""Letters of a name in a picture."""
HELD_OUT = 32
"""Trees over which learned probabilities are compared with rewards."""


def newick(left: np.ndarray, right: np.ndarray, names: tuple[str, ...]) -> str:
    """A forest in Newick's notation, a tree after the other.

    >>> newick(np.array([-1, 0, 4]), np.array([-1, 1, 2]), ("a", "b", "c"))
    '((a,b),c);'
    """
    number, nodes = len(names), [_plain(name) for name in names]

    def text(node: int) -> str:
        if node < number:
            return nodes[node]
        return f"({text(int(left[node - number]))},{text(int(right[node - number]))})"

    return " ".join(f"{text(node)};" for node in _tops(left, right, number))


def _plain(name: str) -> str:
    """Names with signs of the notation stand in quotes."""
    return name if re.fullmatch(r"[^\s()\[\]':;,]+", name) else "'" + name.replace("'", "''") + "'"


def _tops(left: np.ndarray, right: np.ndarray, number: int) -> list[int]:
    children = {int(node) for node in (*left, *right)}
    slots = [number + slot for slot in range(number) if left[slot] >= 0]
    return [node for node in (*range(number), *slots) if node not in children]


def picture(left: np.ndarray, right: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """A forest as a dendrogram, (height, width, 3) of uint8: what counts is who is joined with whom, lengths mean
    nothing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    number = len(names)
    figure = Figure(dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    axes.set_axis_off()
    place, widest, letters = iter(range(number)), 1, []

    def branch(node: int) -> tuple[float, int]:
        """Where a node lies, and how many levels are below it."""
        nonlocal widest
        if node < number:
            y = float(next(place))
            letters.append(axes.text(0.15, y, names[node][:LONGEST], va="center", fontsize=8, parse_math=False))
            return y, 0
        below = [branch(int(side[node - number])) for side in (left, right)]
        level = 1 + max(depth for _, depth in below)
        widest = max(widest, level)
        for y, depth in below:
            axes.plot([-level, -depth], [y, y], color="#285577", linewidth=1.4, solid_capstyle="round")
        axes.plot([-level, -level], [y for y, _ in below], color="#285577", linewidth=1.4, solid_capstyle="round")
        return sum(y for y, _ in below) / 2, level

    for top in _tops(left, right, number):
        branch(top)
    # Inches: the deeper a tree, the wider, and to its right as much room as the widest name needs.
    wide, longest = min(max(1.4, 0.3 * widest), 4.0), max(text.get_window_extent().width for text in letters)
    room = 0.25 + longest / figure.dpi
    figure.set_size_inches(wide + room, max(1.5, 0.22 * number + 0.3))
    axes.set_xlim(-widest - 0.3, (widest + 0.3) * room / wide)
    axes.set_ylim(number - 0.5, -0.5)
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])


def distances(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Groups of leaves below a node that one of two trees has and the other has not, for each pair."""
    numbers: dict[int, int] = {}
    groups = [[[numbers.setdefault(g, len(numbers)) for g in _groups(*tree)] for tree in zip(*trees, strict=True)]
              for trees in (one, other)]  # fmt: skip
    has = [np.zeros((len(trees), len(numbers)), np.float64) for trees in groups]
    for rows, trees in zip(has, groups, strict=True):
        for row, tree in enumerate(trees):
            rows[row, tree] = 1.0
    return has[0].sum(1)[:, None] + has[1].sum(1)[None] - 2 * has[0] @ has[1].T


def _groups(left: np.ndarray, right: np.ndarray) -> list[int]:
    """The leaves below each inner node of a tree, as bits of a whole number."""
    number = len(left)
    found: dict[int, int] = {}

    def below(node: int) -> int:
        if node < number:
            return 1 << node
        if node not in found:
            found[node] = below(int(left[node - number])) | below(int(right[node - number]))
        return found[node]

    for slot in np.flatnonzero(left >= 0):
        below(number + int(slot))
    return list(found.values())


def trees_of_all_qualities(env: Any, seed: int) -> Any:
    """Finished trees, from random ones to those that are merged greedily by parsimony, the same for the same seed."""
    rng, number = np.random.default_rng(seed), env.num_taxa
    sets, weights = env.patterns.sets, env.patterns.weights
    state = env.reset(HELD_OUT)
    tops = np.repeat(sets[None], HELD_OUT, 0)
    apart = np.stack([((sets[:, None] & one) == 0)[:, 0] @ weights for one in sets]).astype(np.float64)
    costs = np.repeat(apart[None], HELD_OUT, 0)
    first, second = np.triu_indices(number, 1)
    # How much changes count when a merge is chosen, from nothing much to nearly all.
    greed = np.geomspace(0.1, 30.0, HELD_OUT)[:, None] / (apart[first, second].std() + 1e-9)
    rows = np.arange(HELD_OUT)
    for _ in range(env.max_steps):
        score = rng.gumbel(size=(HELD_OUT, len(first))) - greed * costs[:, first, second]
        action = np.where(env.forward_mask(state), score, -np.inf).argmax(1).astype(np.int32)
        one, other = first[action], second[action]
        common = tops[rows, one] & tops[rows, other]
        tops[rows, one] = np.where(common == 0, tops[rows, one] | tops[rows, other], common)
        new = ((tops & tops[rows, one][:, None]) == 0) @ weights
        costs[rows, one], costs[rows, :, one] = new, new
        state = env.step(state, action)
    return state
