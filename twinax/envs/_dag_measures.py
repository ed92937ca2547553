"""What is asked of a distribution over graphs: which edges, paths and neighbourhoods it believes in, and how far it is
from a known graph. NumPy, on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from twinax.parts import Title

PIECE = 8192
"""Graphs whose neighbourhoods are worked out at once."""

TITLES = {
    "expected_edges": Title("Expected edges", "Mean number of edges of a graph."),
    "expected_shd": Title("Expected SHD", "Mean number of pairs of nodes that differ from the true graph.", tile=True),
    "auroc": Title("AUROC", "Of edge probabilities against the true graph, off the diagonal; 1 is perfect."),
    "edge_correlation": Title("Edge marginals", "Pearson, with those of the exact posterior; 1 is perfect."),
    "path_correlation": Title("Path marginals", "Pearson, with those of the exact posterior; 1 is perfect."),
    "blanket_correlation": Title("Markov blankets", "Pearson, with those of the exact posterior; 1 is perfect."),
    "entropy": Title("Entropy", "Of the learned distribution over graphs, in nats."),
}
"""What reports call the numbers of a summary."""


class Marginals(NamedTuple):
    """Probabilities of statements about two nodes, each (nodes, nodes) with 0 on the diagonal."""

    edge: np.ndarray
    """i -> j."""
    path: np.ndarray
    """There is a directed path from i to j."""
    blanket: np.ndarray
    """j is in the Markov blanket of i: a parent, a child, or another parent of a child."""


def marginals(adjacency: np.ndarray, weights: np.ndarray) -> Marginals:
    """Over graphs (number, nodes, nodes) with weights that add up to 1.

    >>> marginals(np.array([[[0, 0, 1], [0, 0, 1], [0, 0, 0]]], bool), np.ones(1)).blanket[0].tolist()
    [0.0, 1.0, 1.0]
    """
    d = adjacency.shape[1]
    edge, path, blanket = (np.zeros((d, d)) for _ in range(3))
    for start in range(0, len(weights), PIECE):
        a, w = adjacency[start : start + PIECE].astype(bool), weights[start : start + PIECE].astype(np.float64)
        edge += np.tensordot(w, a, 1)
        path += np.tensordot(w, paths(a), 1)
        blanket += np.tensordot(w, blankets(a), 1)
    return Marginals(edge, path, blanket)


def paths(adjacency: np.ndarray) -> np.ndarray:
    """From where a directed path leads where."""
    reach = adjacency.copy()
    for k in range(adjacency.shape[1]):
        reach |= reach[:, :, k, None] & reach[:, None, k]
    return reach


def blankets(adjacency: np.ndarray) -> np.ndarray:
    """Who is in whose Markov blanket."""
    one = adjacency.astype(np.float32)  # whole numbers, by the quick matrix product
    around = adjacency | adjacency.swapaxes(1, 2) | (one @ one.swapaxes(1, 2) > 0)
    return around & ~np.eye(adjacency.shape[1], dtype=bool)


def differing_pairs(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Structural Hamming distance: in how many pairs of nodes two batches of graphs differ; a reversed edge counts
    once. The batches have equal lengths, or one of them has length 1."""
    differ = one.astype(bool) != other.astype(bool)
    return np.triu(differ | differ.swapaxes(-1, -2), 1).sum((-1, -2))


def area_under_curve(scores: np.ndarray, truth: np.ndarray) -> float:
    """Probability that an edge of the true graph has a higher score than a pair without one, ties counting half; the
    diagonal is left out. nan where there are no edges, or nothing else.

    >>> area_under_curve(np.array([[0, 0.9], [0.1, 0]]), np.array([[0, 1], [0, 0]]))
    1.0
    """
    off = ~np.eye(len(truth), dtype=bool)
    values, positive = scores[off], truth[off].astype(bool)
    edges, others = int(positive.sum()), int((~positive).sum())
    if not edges or not others:
        return float("nan")
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]  # equal values share their mean rank
    return float((rank[positive].sum() - edges * (edges + 1) / 2) / (edges * others))


def agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's coefficient of two matrices off the diagonal; nan where one of them is constant there."""
    off = ~np.eye(len(one), dtype=bool)
    a, b = (x[off] - x[off].mean() for x in (one, other))
    scale = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else float("nan")


def entropy(weights: np.ndarray) -> float:
    """In nats."""
    return float(-(weights * np.log(np.maximum(weights, np.finfo(np.float64).tiny))).sum())


def summary(
    adjacency: np.ndarray,
    weights: np.ndarray,
    truth: np.ndarray | None,
    exact: tuple[np.ndarray, np.ndarray] | None,
) -> dict[str, Any]:
    """Numbers, and pictures of edge probabilities, of a distribution over graphs: beside the true graph where it is
    known, and beside the exact posterior (all graphs, and their probabilities) where there is one."""
    learned = marginals(adjacency, weights)
    numbers: dict[str, Any] = {"expected_edges": float(learned.edge.sum()), "picture/edges/learned": learned.edge}
    if exact is not None:
        graphs, probabilities = exact
        target = marginals(graphs, probabilities)
        for name, one, other in zip(Marginals._fields, learned, target, strict=True):
            numbers[f"{name}_correlation"] = agreement(one, other)
        if np.array_equal(adjacency, graphs):  # not samples, whose entropy would say too little
            numbers["entropy"] = entropy(weights)
        numbers["picture/edges/target"] = target.edge
    if truth is not None:
        numbers["expected_shd"] = float(weights @ differing_pairs(adjacency, truth[None]))
        numbers["auroc"] = area_under_curve(learned.edge, truth)
        numbers["picture/edges/truth"] = truth.astype(np.float64)
    return numbers
