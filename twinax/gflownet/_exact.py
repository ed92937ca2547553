"""Exact answers on worlds that can be enumerated: the distribution that a policy really has."""

from __future__ import annotations

import numpy as np

from twinax.envs import Enumeration


def terminal_distribution(graph: Enumeration, probabilities: np.ndarray) -> np.ndarray:
    """The probability that a trajectory ends in each state, by pushing mass along the edges, level after level.

    `probabilities` has P_F(action | state) for every state (rows of done states are not read).
    """
    mass = np.zeros(len(graph.done))
    mass[0] = 1.0
    flow = probabilities[graph.source, graph.action].astype(np.float64)
    for low, high in zip(graph.edge_levels[:-1], graph.edge_levels[1:], strict=True):
        source, target = graph.source[low:high], graph.target[low:high]
        np.add.at(mass, target, mass[source] * flow[low:high])
    return np.where(graph.done, mass, 0.0)


def log_path_counts(graph: Enumeration) -> np.ndarray:
    """log of the number of paths from the source to each state."""
    counts = np.full(len(graph.done), -np.inf)
    counts[0] = 0.0
    for low, high in zip(graph.edge_levels[:-1], graph.edge_levels[1:], strict=True):
        np.logaddexp.at(counts, graph.target[low:high], counts[graph.source[low:high]])
    return counts


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    """Half the sum of absolute differences: 0 when equal, 1 when disjoint."""
    return float(0.5 * np.abs(p - q).sum())


def kl(p: np.ndarray, q: np.ndarray) -> float:
    """Sum of p log(p / q) in nats; infinite where q is 0 and p is not."""
    used = p > 0
    with np.errstate(divide="ignore"):
        return float((p[used] * (np.log(p[used]) - np.log(q[used]))).sum())


def jsd(p: np.ndarray, q: np.ndarray) -> float:
    """Mean of the KL divergences of p and q from their average, in nats: at most log 2."""
    middle = 0.5 * (p + q)
    return 0.5 * kl(p, middle) + 0.5 * kl(q, middle)
