"""Samples of spins, as data to learn from: heat bath in replicas at several temperatures that change places."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinax.arguments import checked
from twinax.envs._spins import Ising, Spins
from twinax.errors import TwinaxError


@checked
def sample_spins(
    world: Ising | Spins,
    number: int,
    *,
    seed: int = 0,
    sweeps: int = 200,
    chains: int = 50,
    replicas: int = 8,
    hottest: float = 0.1,
    every: int = 5,
) -> np.ndarray:
    """(number, places) of -1 and 1 from R / Z, by parallel tempering.

    `chains` independent chains begin at random, and each has `replicas` systems, whose log R is multiplied by 1 for the
    first and by less for the others, down to `hottest`. After `sweeps` over all places, in which a spin is drawn from
    its law given the others, every chain gives its first system, and again after `every` sweeps. Neighbouring replicas
    change places with the probability that leaves their joint law as it is.

    >>> sample_spins(Ising(3), number=4, sweeps=5).shape
    (4, 9)
    """
    for name, value in (("number", number), ("chains", chains), ("replicas", replicas), ("every", every)):
        if value < 1:
            raise TwinaxError(f"{name} is {value}; it must be at least 1")
    if not 0 < hottest <= 1:
        raise TwinaxError(f"hottest is {hottest}; it must be above 0 and at most 1")
    rng = np.random.default_rng(seed)
    couplings = world.couplings()
    pull = couplings + couplings.T
    fields = world.pulls()
    # Between 1 and the hottest in equal ratios.
    beta = hottest ** (np.arange(replicas) / max(replicas - 1, 1))
    # Places first: a place is then a row of all systems.
    spins = rng.choice([-1.0, 1.0], (world.places, chains, replicas))
    kept: list[np.ndarray] = []
    rounds = -(-number // chains)
    for sweep in range(sweeps + every * (rounds - 1) + 1):
        if sweep >= sweeps and (sweep - sweeps) % every == 0:
            kept.append(spins[:, :, 0].T.copy())
        _sweep(rng, spins, pull, fields, beta)
        _exchange(rng, spins, couplings, fields, beta, sweep % 2)
    return np.concatenate(kept)[:number].astype(np.int32)


def _sweep(rng: np.random.Generator, spins: Any, pull: np.ndarray, fields: np.ndarray, beta: np.ndarray) -> None:
    flat = spins.reshape(len(spins), -1)
    for place in range(len(spins)):
        others = np.flatnonzero(pull[place])
        force = (pull[place, others] @ flat[others]).reshape(spins.shape[1:]) + fields[place]
        # P(1) = 1 / (1 + exp(-2 beta force))
        up = rng.random(force.shape) * (1 + np.exp(-2 * beta * force)) < 1
        spins[place] = np.where(up, 1.0, -1.0)


def _exchange(
    rng: np.random.Generator, spins: Any, couplings: np.ndarray, fields: np.ndarray, beta: np.ndarray, first: int
) -> None:
    low = np.arange(first, len(beta) - 1, 2)
    if not len(low):
        return
    flat = spins.reshape(len(spins), -1)
    paid = (((couplings @ flat) + fields[:, None]) * flat).sum(0).reshape(spins.shape[1:])
    log_ratio = (beta[low] - beta[low + 1]) * (paid[:, low + 1] - paid[:, low])
    swap = np.log(rng.random(log_ratio.shape)) < log_ratio
    here, there = spins[:, :, low], spins[:, :, low + 1]
    spins[:, :, low], spins[:, :, low + 1] = np.where(swap, there, here), np.where(swap, here, there)
