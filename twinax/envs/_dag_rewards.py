"""What a graph is paid: its posterior, up to a constant, from scores of each node given its parents.

log R(G) = log P(data | G) + log P(G), a sum over nodes. The scores of a node given each set of parents are a table; set
{0, 2} is number 1 + 4. So the reward of any graph, finished or not, is a few numbers looked up by sets of parents.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax import ops
from twinax.arguments import checked
from twinax.errors import TwinaxError, UnknownName
from twinax.types import Array, Float

MOST_NODES = 16
"""The table has num_nodes x 2^num_nodes entries: 4 MB in float32 for 16 nodes."""
PIECE = 2**12
"""Sets of parents whose determinants are taken at once."""
PRIORS = ("uniform", "edge", "erdos_renyi", "fair")
TABLE = "parent_scores"


@dataclass(frozen=True)
class ParentScores(ABC):
    """A reward that is a sum of scores of nodes given their parents."""

    prior: str = "uniform"
    """Prior of graphs: uniform, edge (a factor beta for each edge), erdos_renyi (each edge with a probability), or fair
    (every number of parents alike)."""
    beta: float = 0.1
    """Factor for each edge under prior=edge; below 1 it favours sparse graphs."""
    edge_probability: float | None = None
    """Probability of each possible edge under prior=erdos_renyi; null: an edge for each node on average, at most
    1/2."""

    def __post_init__(self):
        if self.prior not in PRIORS:
            raise UnknownName("prior over graphs", self.prior, PRIORS)
        if not (math.isfinite(self.beta) and self.beta > 0):
            raise TwinaxError(f"beta is {self.beta}; it must be finite and above 0")
        if self.edge_probability is not None and not 0 < self.edge_probability < 1:
            raise TwinaxError(f"edge_probability is {self.edge_probability}; it must lie between 0 and 1")

    @abstractmethod
    def log_likelihoods(self, samples: np.ndarray) -> np.ndarray:
        """log P(column j | columns of a set of parents), entry [j, number of the set]; what stands where j is its own
        parent is never read."""

    def log_priors(self, num_nodes: int) -> np.ndarray:
        """What a node adds to log P(G), by its number of parents."""
        most = num_nodes - 1
        parents = np.arange(num_nodes)
        if self.prior == "edge":
            return parents * math.log(self.beta)
        if self.prior == "erdos_renyi":
            q = self.edge_probability or min(0.5, 1 / most)
            return parents * math.log(q) + (most - parents) * math.log1p(-q)
        if self.prior == "fair":
            return np.array([-math.log(math.comb(num_nodes, p)) for p in parents])
        return np.zeros(num_nodes)

    def check(self, env: Any) -> None:
        """One sentence for a world whose graphs this reward cannot score."""
        if getattr(env, "observations", None) is None:
            raise TwinaxError(
                f"{type(self).__name__} scores graphs over the columns of data, and {type(env).__name__} has none; "
                "name a reward of your own, or Uniform"
            )
        if env.num_nodes > MOST_NODES:
            raise TwinaxError(
                f"{type(self).__name__} keeps a table of num_nodes x 2^num_nodes scores, for at most {MOST_NODES} "
                f"nodes, and there are {env.num_nodes}; leave columns out, or name a reward of your own"
            )

    def constants(self, env: Any) -> dict[str, np.ndarray]:
        """The table, flat, node after node."""
        self.check(env)
        table = self.log_likelihoods(env.observations.samples.values)
        table = table + self.log_priors(env.num_nodes)[np.minimum(_sizes(env.num_nodes), env.num_nodes - 1)]
        own = (np.arange(table.shape[1]) >> np.arange(env.num_nodes)[:, None]) & 1 == 1
        if not np.isfinite(table[~own]).all():
            raise TwinaxError(
                f"{type(self).__name__} gives scores that are not finite for these data; bring the columns to similar "
                "sizes with standardise=True"
            )
        return {TABLE: np.where(own, 0.0, table).reshape(-1)}

    def log_reward(self, env: Any, state: Any) -> Float[Array, " batch"]:
        """The sum over nodes of the entries for their parents."""
        if getattr(state, "adjacency", None) is None:
            self.check(env)
        bits = ops.like(2 ** np.arange(env.num_nodes, dtype=np.int32), state.adjacency)
        parents = ops.sum(ops.cast(state.adjacency, "int32") * bits[:, None], -2)
        first = ops.arange(env.num_nodes, state.adjacency) * 2**env.num_nodes
        return ops.sum(ops.take(env.constant(TABLE, state.adjacency), ops.cast(first + parents, "int32")), -1)


@checked
@dataclass(frozen=True)
class BGe(ParentScores):
    """The Bayesian Gaussian equivalent score: graphs that say the same about independence are paid the same.

    A normal-Wishart prior over mean and precision with T = t I, t = a (w - d - 1) / (a + 1), a and w being the two
    fields below. It has no scale of its own, so data of very different scales are best standardised.

    >>> BGe(prior="fair").prior
    'fair'
    """

    mean_strength: float = 1.0
    """How many samples the prior mean of 0 counts for (a)."""
    degrees: float | None = None
    """Degrees of freedom of the Wishart prior (w), above num_nodes + 1; null: num_nodes + 2."""

    def __post_init__(self):
        super().__post_init__()
        if not (math.isfinite(self.mean_strength) and self.mean_strength > 0):
            raise TwinaxError(f"mean_strength is {self.mean_strength}; it must be finite and above 0")

    def check(self, env: Any) -> None:
        super().check(env)
        if self.degrees is not None and not env.num_nodes + 1 < self.degrees < math.inf:
            raise TwinaxError(
                f"degrees is {self.degrees}; for {env.num_nodes} nodes it must be above {env.num_nodes + 1}"
            )

    def log_likelihoods(self, samples: np.ndarray) -> np.ndarray:
        (number, d), a = samples.shape, self.mean_strength
        w = d + 2 if self.degrees is None else self.degrees
        t = a * (w - d - 1) / (a + 1)
        mean = samples.mean(0)
        centred = samples - mean
        scatter = t * np.eye(d) + centred.T @ centred + number * a / (number + a) * np.outer(mean, mean)
        determinants = log_minors(scatter)
        p = _sizes(d)
        gamma = [math.lgamma((number + w - d + k + 1) / 2) - math.lgamma((w - d + k + 1) / 2) for k in range(d + 1)]
        of_size = (
            0.5 * math.log(a / (number + a))
            + np.array(gamma)
            - number / 2 * math.log(math.pi)
            + (w - d + 2 * np.arange(d + 1) + 1) / 2 * math.log(t)
        )
        joined = determinants[np.arange(2**d) | (1 << np.arange(d))[:, None]]
        return of_size[p] + (number + w - d + p) / 2 * determinants - (number + w - d + p + 1) / 2 * joined


@checked
@dataclass(frozen=True)
class LinearGaussian(ParentScores):
    """Each variable is a weighted sum of its parents plus noise: weights N(0, weight_variance), noise N(0, variance).

    Summed over the weights, a column has the density N(0, variance I + weight_variance X X^T), X being its parents'
    columns. Data are taken as they are: around 0, without an intercept.

    >>> LinearGaussian(variance=0.5).variance
    0.5
    """

    variance: float = 0.1
    """Variance of the noise."""
    weight_variance: float = 1.0
    """Variance of the weights of edges."""

    def __post_init__(self):
        super().__post_init__()
        for name in ("variance", "weight_variance"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise TwinaxError(f"{name} is {getattr(self, name)}; it must be finite and above 0")

    def log_likelihoods(self, samples: np.ndarray) -> np.ndarray:
        (number, d), ridge = samples.shape, self.variance / self.weight_variance
        # With M = X^T X + ridge I, det of M over parents and j by det over parents is the residual square plus ridge.
        minors = log_minors(samples.T @ samples + ridge * np.eye(d))
        joined = minors[np.arange(2**d) | (1 << np.arange(d))[:, None]]
        quadratic = (np.exp(joined - minors) - ridge) / self.variance
        log_determinant = number * math.log(self.variance) + minors - _sizes(d) * math.log(ridge)
        return -0.5 * (quadratic + log_determinant + number * math.log(2 * math.pi))


def log_minors(matrix: np.ndarray) -> np.ndarray:
    """log of the determinant of the rows and columns in each set, by the set's number; 0 for the empty one.

    >>> np.round(np.exp(log_minors(np.diag([2.0, 3.0]))), 3).tolist()
    [1.0, 2.0, 3.0, 6.0]
    """
    d = len(matrix)
    # Rows and columns outside of a set become those of the identity, which changes no determinant.
    inside = (np.arange(2**d)[:, None] >> np.arange(d)) & 1 == 1
    logs = np.empty(2**d)
    for start in range(0, 2**d, PIECE):
        some = inside[start : start + PIECE]
        kept = np.where(some[:, :, None] & some[:, None], matrix, np.eye(d))
        logs[start : start + PIECE] = np.linalg.slogdet(kept)[1]
    return logs


def _sizes(d: int) -> np.ndarray:
    """How many members each set has."""
    return ((np.arange(2**d)[:, None] >> np.arange(d)) & 1).sum(1)
