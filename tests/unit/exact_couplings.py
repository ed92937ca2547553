"""The couplings under which data are the likeliest, by Newton's method over all systems, in NumPy alone."""

from __future__ import annotations

import itertools

import numpy as np


def likeliest_couplings(spins: np.ndarray) -> np.ndarray:
    """J of log R = x^T J x, symmetric, for data (systems, places) of a few spins."""
    places = spins.shape[1]
    pairs = np.array(list(itertools.combinations(range(places), 2))).T
    systems = np.array(list(itertools.product([-1.0, 1.0], repeat=places)))
    products, seen = systems[:, pairs[0]] * systems[:, pairs[1]], (spins[:, pairs[0]] * spins[:, pairs[1]]).mean(0)

    def likelihood(weight):
        return weight @ seen - np.logaddexp.reduce(products @ weight)

    weight = np.zeros(len(seen))  # of a pair, so twice J
    for _ in range(50):
        paid = products @ weight
        law = np.exp(paid - np.logaddexp.reduce(paid))
        mean = law @ products
        if np.abs(seen - mean).max() < 1e-10:
            break
        step = np.linalg.solve((products * law[:, None]).T @ products - np.outer(mean, mean), seen - mean)
        size = 1.0
        while likelihood(weight + size * step) < likelihood(weight) - 1e-12:
            size /= 2
        weight = weight + size * step
    else:
        raise AssertionError("Newton's method did not converge")
    matrix = np.zeros((places, places))
    matrix[pairs[0], pairs[1]] = matrix[pairs[1], pairs[0]] = weight / 2
    return matrix
