"""Which geoms of a model can touch: after contype and conaffinity, the filters of parents, and excludes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinax.envs.biped.mujoco_model import load_mujoco

CONTACTS = {
    frozenset({"plane", "sphere"}): 1,
    frozenset({"plane", "capsule"}): 2,
    frozenset({"plane", "ellipsoid"}): 1,
    frozenset({"plane", "cylinder"}): 4,
    frozenset({"plane", "box"}): 4,
    frozenset({"plane", "mesh"}): 4,
    frozenset({"sphere"}): 1,
    frozenset({"capsule"}): 2,
    frozenset({"capsule", "box"}): 2,
    frozenset({"box"}): 8,
}
"""Most contact points of a pair by its kinds; others have 1."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of geoms that may touch; kinds are such as box-box."""

    own: Counter[str]
    """Within the robot: both geoms move."""
    fixed: Counter[str]
    """Between something that moves and the fixed world."""
    listed: Counter[str]
    """Explicit <pair> elements."""

    @property
    def every(self) -> Counter[str]:
        """All of them."""
        return self.own + self.fixed + self.listed

    @property
    def most_contacts(self) -> int:
        """Points if everything touched at once; MJX works on all of them in every step."""
        return sum(number * CONTACTS.get(frozenset(kind.split("-")), 1) for kind, number in self.every.items())


def collision_pairs(model: Any) -> Pairs:
    """Count them as MuJoCo would."""
    mujoco = load_mujoco()
    off = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    if model.opt.disableflags & off:
        return Pairs(Counter(), Counter(), Counter())
    listed = {frozenset((int(a), int(b))) for a, b in zip(model.pair_geom1, model.pair_geom2, strict=True)}
    may = _by_masks(model) & _by_bodies(model)
    weld = model.body_weldid[model.geom_bodyid]
    own, fixed = Counter[str](), Counter[str]()
    for a, b in zip(*np.nonzero(np.triu(may, 1)), strict=True):
        kind = _kind(model, a, b)
        # A pair that is listed is handled by its own element; planes and height fields do not meet each other.
        if frozenset((int(a), int(b))) in listed or set(kind.split("-")) <= {"plane", "hfield"}:
            continue
        (own if weld[a] and weld[b] else fixed)[kind] += 1
    return Pairs(own, fixed, Counter(_kind(model, *pair) for pair in listed if len(pair) == 2))


def _by_masks(model: Any) -> np.ndarray:
    one = (model.geom_contype[:, None] & model.geom_conaffinity[None]) != 0
    return one | one.T


def _by_bodies(model: Any) -> np.ndarray:
    """Bodies that are joined rigidly count as one; such a body does not touch itself, nor its parent unless that is
    the world."""
    mujoco = load_mujoco()
    weld = model.body_weldid[model.geom_bodyid]
    may = weld[:, None] != weld[None]
    if not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT:
        parent = model.body_weldid[model.body_parentid[weld]]
        child = (parent[:, None] == weld[None]) & (weld[None] != 0) & (weld[:, None] != 0)
        may &= ~(child | child.T)
    signature = model.exclude_signature
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in signature}
    for a, b in excluded:
        first, second = model.geom_bodyid == a, model.geom_bodyid == b
        may[np.ix_(first, second)] = may[np.ix_(second, first)] = False
    return may


def _kind(model: Any, a: int, b: int) -> str:
    mujoco = load_mujoco()
    names = [mujoco.mjtGeom(int(model.geom_type[k])).name.removeprefix("mjGEOM_").lower() for k in (a, b)]
    order = ("plane", "hfield", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "sdf")
    return "-".join(sorted(names, key=lambda name: order.index(name) if name in order else len(order)))
