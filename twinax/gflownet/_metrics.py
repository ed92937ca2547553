"""Metrics in two tiers: a cheap update at each step, and what is worked out at an evaluation.

Update (inside the training step): a first-in first-out store of finished objects, and which modes were seen.
Process (between chunks, fresh draws each time): `measure` runs in the engine's framework, `evaluate` in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.tree_util as jtu
import numpy as np

from twinax import ops, ring, tree
from twinax.arguments import checked
from twinax.envs import Enumeration, Environment
from twinax.envs.state_rows import keys_of, pick, rows_of, show, size_of
from twinax.errors import TwinaxError
from twinax.gflownet import _exact
from twinax.types import Array, Bool, Int

AT_ONCE = 1024
"""Stored objects whose rewards are worked out side by side."""


@checked
@dataclass(frozen=True)
class MetricOptions:
    """What is measured, and how much of it."""

    fifo: int = 20_000
    """Finished objects kept for the sampled distribution, top-k and modes; old ones are dropped first."""
    samples: int = 512
    """Fresh trajectories of an evaluation, for the ELBO, the EUBO and the reward correlation."""
    top_k: int = 10
    """How many of the best distinct objects in the store the top-k reward is the mean of."""
    test_size: int = 1000
    """Objects of the world's held-out set whose learned log-probabilities are compared with log-rewards, where the
    world has such a set and is too large for exact metrics; 0 for none."""
    rollouts: int = 10
    """Backward trajectories from which the probability of each held-out object is estimated."""
    mode_reward: float = 0.0
    """Reward from which an object in the store may count as a mode of its own; 0 counts no such modes."""
    mode_distance: float = 1.0
    """Distance that two such modes have at least; worlds say what a distance is."""
    exact_limit: int = 2_000_000
    """Largest number of states of a world that gets exact metrics; 0 means that none does."""

    def __post_init__(self):
        for name in ("fifo", "samples", "top_k", "rollouts"):
            if getattr(self, name) < 1:
                raise TwinaxError(f"metrics.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("test_size", "mode_reward", "mode_distance"):
            if not 0 <= getattr(self, name) < np.inf:
                raise TwinaxError(f"metrics.{name} is {getattr(self, name)}; it must be finite and not negative")
        if self.exact_limit < 0:
            raise TwinaxError(
                f"metrics.exact_limit is {self.exact_limit}; it must be a number of states, or 0 for no exact metrics"
            )


@tree.record
class Samples:
    """The cheap tier: arrays that live in the state's carry."""

    objects: Any
    """Finished states, a ring of `fifo` entries."""
    added: Int[Array, ""]
    """How many objects were added; once the ring is full, its size and the place where the next batch goes."""
    modes: Bool[Array, " modes"]
    """Which modes were ever seen."""
    replay: Any = None
    """The `Replay` that training draws from; None where there is none."""

    @classmethod
    def empty(cls, env: Environment, size: int, batch: int) -> Samples:
        """Nothing seen yet; room for at least `size` objects, which come `batch` at a time; NumPy leaves."""
        size = -(-size // max(batch, 1)) * max(batch, 1)
        one = env.reset(1)
        return cls(
            jtu.tree_map(lambda x: np.zeros((size, *x.shape[1:]), x.dtype), one),
            np.zeros((), np.int32),
            np.zeros((max(env.num_modes, 1),), bool),
        )

    def update(self, env: Environment, final: Any) -> Samples:
        """With one more batch of finished objects."""
        size = jtu.tree_leaves(self.objects)[0].shape[0]
        batch = jtu.tree_leaves(final)[0].shape[0]
        # The ring is a whole number of batches long, so that a batch is one slice, written in place.
        start = self.added % size
        objects = tree.map_leaves(lambda kept, x: ops.write_rows(kept, start, x), self.objects, final)
        modes = self.modes
        if env.num_modes:
            modes = modes | ops.any(env.modes(final), 0)
        return Samples(objects, ring.counted(self.added, batch, size), modes, self.replay)


def stored(samples: Samples) -> Any:
    """The objects in the store, in NumPy, oldest slots first as they lie."""
    used = min(int(samples.added), jtu.tree_leaves(samples.objects)[0].shape[0])
    return jtu.tree_map(lambda x: np.asarray(x)[:used], samples.objects)


def exact_metrics(graph: Enumeration, probabilities: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
    """total_variation, kl (target from learned), jsd: the policy's exact distribution against R / Z."""
    # Rows of float32 probabilities sum to 1 only roughly, which over many steps would show in the divergences.
    rows = probabilities.astype(np.float64)
    rows /= np.maximum(rows.sum(1, keepdims=True), np.finfo(np.float64).tiny)
    learned, target = _exact.terminal_distribution(graph, rows), graph.target_distribution
    return {
        "total_variation": _exact.total_variation(learned, target),
        "kl": _exact.kl(target, learned),
        "jsd": _exact.jsd(learned, target),
    }, learned


def indices_of(graph: Enumeration, objects: Any) -> np.ndarray:
    """The place of each finished state in an enumeration; one that is not in it is refused."""
    table, rows = rows_of(graph.states), rows_of(objects)
    if not len(rows):
        return np.zeros(0, np.int64)
    keys = keys_of(np.concatenate([table, rows]))
    keys, wanted = keys[: len(table)], keys[len(table) :]
    order = np.argsort(keys)
    indices = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(order) - 1)]
    if (lost := np.flatnonzero(keys[indices] != wanted)).size:
        raise TwinaxError(
            f"the finished state {show(objects, int(lost[0]))} is none of the {len(table)} states that the same rules "
            "reach in NumPy; a state must be equal to the bit in every framework, so keep whole numbers in it, or set "
            "metrics.exact_limit=0 to do without exact metrics"
        )
    return indices


def sampled_distribution(graph: Enumeration, objects: Any) -> np.ndarray:
    """Frequencies of the stored objects over the states of an enumeration.

    They mix the policies of recent steps; a perfect sampler still shows a distance of about
    sqrt(states / (2 pi samples)).
    """
    counts = np.bincount(indices_of(graph, objects), minlength=len(graph.done))
    return counts / max(counts.sum(), 1)


def top_k(env: Environment, objects: Any, k: int) -> dict[str, float]:
    """Mean reward of the k best distinct objects in the store, and the mean distance between two of them."""
    if not size_of(objects):
        return {"top_k_reward": float("nan"), "top_k_diversity": float("nan")}
    best, log_rewards = best_distinct(env, objects, k)
    return {"top_k_reward": float(np.exp(log_rewards).mean()), "top_k_diversity": diversity(env, best)}


def diversity(env: Environment, states: Any) -> float:
    """Mean distance between two different places of a batch; nan where there is only one."""
    number, seen = size_of(states), env.objects(states)
    return float(np.triu(env.distance(seen, seen), 1).sum() / (number * (number - 1) / 2)) if number > 1 else np.nan


def modes_apart(env: Environment, objects: Any, options: MetricOptions) -> int:
    """How many objects of at least `mode_reward` lie `mode_distance` apart, taken greedily, the best first."""
    if not size_of(objects):
        return 0
    distinct, log_rewards = best_distinct(env, objects, size_of(objects))
    enough = int((log_rewards >= np.log(options.mode_reward) - 1e-6).sum())
    seen, kept = env.objects(pick(distinct, np.arange(enough))), []
    for row in range(enough):
        one = pick(seen, np.array([row]))
        if not kept or env.distance(pick(seen, np.array(kept)), one).min() >= options.mode_distance:
            kept.append(row)
    return len(kept)


def best_distinct(env: Environment, objects: Any, k: int) -> tuple[Any, np.ndarray]:
    """The k best objects, each once, the best first, and their log rewards."""
    _, first = np.unique(keys_of(rows_of(objects)), return_index=True)
    distinct = pick(objects, first)
    log_rewards = _log_rewards(env, distinct)
    order = np.argsort(-log_rewards, kind="stable")[:k]
    return pick(distinct, order), log_rewards[order]


def _log_rewards(env: Environment, objects: Any) -> np.ndarray:
    """A piece at a time: the store may hold many more objects than a batch, from whose size memory is known."""
    pieces = np.split(np.arange(size_of(objects)), range(AT_ONCE, size_of(objects), AT_ONCE))
    return np.concatenate([np.asarray(env.log_reward(pick(objects, piece)), np.float64) for piece in pieces])


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's coefficient; nan where one side is constant."""
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a * a).sum() * (b * b).sum())
    return float((a * b).sum() / scale) if scale > 0 else float("nan")


def ranks(values: np.ndarray) -> np.ndarray:
    """Places in ascending order, from 1; equal values share the mean of theirs."""
    _, place, number = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(number) - (number - 1) / 2)[place.reshape(-1)]


def held_out_correlations(log_probability: np.ndarray, log_reward: np.ndarray) -> dict[str, float]:
    """Pearson's coefficient of logarithms, and Spearman's, over a fixed set of objects."""
    return {
        "test_pearson": correlation(log_probability, log_reward),
        "test_spearman": correlation(ranks(log_probability), ranks(log_reward)),
    }


def reward_accuracy(graph: Enumeration, learned: np.ndarray) -> float:
    """The expected reward of a policy in percent of that of the target; more than all counts as all."""
    reward = np.where(graph.done, np.exp(graph.log_reward - graph.log_reward[graph.done].max()), 0.0)
    return float(100 * min(1.0, (learned @ reward) / (graph.target_distribution @ reward)))
