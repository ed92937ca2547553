"""MuJoCo in C: a pure function from states and targets to the states some physics steps later, on several threads."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from twinax import ops
from twinax.envs.biped._robot import Robot
from twinax.envs.biped._state import Variation
from twinax.envs.biped.mujoco_model import load_mujoco
from twinax.types import Array, Float

FINITE = 1e10
"""Numbers beyond this are broken physics, in MuJoCo as well."""
SETS = 32
"""Sets of models that are kept at most."""


class CPhysics:
    """Steps of one robot; in JAX it is one callback for all worlds.

    Nothing is carried from call to call: each begins with no guess at the contact forces, so the same arguments give
    the same result. A world in which the simulation blows up comes back as NaN.
    """

    def __init__(
        self, robot: Robot, substeps: int, threads: int = 0, varied: bool = False, frictionloss: float | None = None
    ):
        mujoco = load_mujoco()
        self.robot, self.substeps, self.varied = robot, substeps, varied
        self.model = physics_model(robot, frictionloss)
        # With one thread the work is done by the caller's own.
        self.threads = threads = threads or _cores()
        self._rollout = load_mujoco("mujoco.rollout").Rollout(nthread=threads if threads > 1 else 0)
        self._data = [mujoco.MjData(self.model) for _ in range(threads)]
        self._spec = int(mujoco.mjtState.mjSTATE_CTRL) | int(mujoco.mjtState.mjSTATE_XFRC_APPLIED)
        # In a control row the forces on the bodies follow the targets: 3 of force and 3 of torque each.
        self._force = self.model.nu + 6 * self.model.body(robot.push_body).id
        self._parts = np.cumsum([self.model.nq + self.model.nv, self.model.nu, 2])
        self._sets: list[VariedModels] = []
        self._lock = threading.Lock()

    def __call__(
        self,
        qpos: Float[Array, "worlds nq"],
        qvel: Float[Array, "worlds nv"],
        target: Float[Array, "worlds joints"],
        push: Float[Array, "worlds 2"],
        variation: Variation,
    ) -> tuple[Float[Array, "worlds nq"], Float[Array, "worlds nv"]]:
        """Positions and velocities after the physics steps of one control step."""
        arrays = [qpos, qvel, target, push]
        if self.varied:
            arrays.append(ops.stack([variation.friction, variation.mass, variation.gain], -1))
        # One array there and one back: what JAX hands over costs by the piece.
        given, nq = ops.concat(arrays, -1), self.model.nq
        end = ops.host_call(self._rows, given[..., : nq + self.model.nv], given)
        return end[..., :nq], end[..., nq:]

    def _rows(self, given: np.ndarray) -> np.ndarray:
        rows = np.asarray(given, np.float64).reshape(-1, given.shape[-1])
        with self._lock, quiet():
            end = self._step(rows)
        return end.reshape(*given.shape[:-1], -1)

    def _step(self, rows: np.ndarray) -> np.ndarray:
        state, target, push, factors = np.split(rows, self._parts, 1)
        start = np.concatenate([np.zeros((len(state), 1)), state], 1)
        control = np.zeros((len(state), 1, self.model.nu + 6 * self.model.nbody))
        control[:, 0, : self.model.nu] = target
        control[:, 0, self._force : self._force + 2] = push
        # MuJoCo would begin again from its initial pose.
        broken = ~(np.abs(rows) < FINITE).all(1)
        start[broken] = np.concatenate([[0.0], self.robot.home_qpos, np.zeros(self.model.nv)])
        control[broken] = 0.0
        states, _ = self._rollout.rollout(
            self._vary(factors) if self.varied else self.model,
            self._data,
            start,
            control,
            control_spec=self._spec,
            nstep=self.substeps,
            initial_warmstart=np.zeros((len(state), self.model.nv)),
        )
        end = states[:, -1]
        # Where it blew up on the way, MuJoCo has begun again, and its clock tells.
        broken |= np.abs(end[:, 0] - self.substeps * self.robot.timestep) > 1e-9
        end[broken] = np.nan
        return end[:, 1:]

    def _vary(self, factors: np.ndarray) -> list[Any]:
        """A model for each world, from the set that fits best: seeds take turns, each with worlds of its own."""
        sets = [one for one in self._sets if len(one.models) == len(factors)]
        best = min(sets, key=lambda one: len(one.differing(factors)), default=None)
        if best is None or (2 * len(best.differing(factors)) > len(factors) and len(self._sets) < SETS):
            best = VariedModels(self.model, len(factors))
            self._sets.append(best)
        return best.written(factors)


class VariedModels:
    """Copies of a model, written only where their factors are not those of the call before."""

    def __init__(self, model: Any, number: int):
        self.model = model
        self.models = [copy.copy(model) for _ in range(number)]
        self._factors = np.ones((number, 3))

    def differing(self, factors: Float[np.ndarray, "worlds 3"]) -> np.ndarray:
        """The worlds whose model has other factors."""
        return np.flatnonzero((self._factors != factors).any(1))

    def written(self, factors: Float[np.ndarray, "worlds 3"]) -> list[Any]:
        """The models with these factors of friction, mass and gain."""
        for k in self.differing(factors):
            for name, value in varied_fields(self.model, *factors[k]).items():
                getattr(self.models[k], name)[:] = value
            self._factors[k] = factors[k]
        return self.models


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A world that blows up is told by its NaN, not by a file that MuJoCo writes where the program was started."""
    mujoco = load_mujoco()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physics_model(robot: Robot, frictionloss: float | None = None) -> Any:
    """The model as it is stepped: perhaps with another dry friction in the driven joints (N m), and without sensors,
    which nobody reads."""
    model = copy.copy(robot.model)
    model.opt.disableflags |= load_mujoco().mjtDisableBit.mjDSBL_SENSOR
    if frictionloss is not None:
        model.dof_frictionloss[robot.speeds] = frictionloss
    return model


def varied_fields(model: Any, friction: Any, mass: Any, gain: Any) -> dict[str, Any]:
    """The model's arrays for one world, of either MuJoCo.

    The weights by which MuJoCo softens its constraints stay those of the drawing, in both.
    """
    # Sliding only. A pair has friction of its own, two numbers for the plane; any other contact has the larger one of
    # its two geoms, so the factor of both is that of the contact.
    plane, sliding = np.array([1.0, 1.0, 0.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.0])
    stiffness, reaction = np.zeros(model.actuator_gainprm.shape), np.zeros(model.actuator_biasprm.shape)
    stiffness[:, 0] = reaction[:, 1] = 1.0
    return {
        "geom_friction": model.geom_friction * (1 + sliding * (friction - 1)),
        "pair_friction": model.pair_friction * (1 + plane * (friction - 1)),
        "body_mass": model.body_mass * mass,
        "body_inertia": model.body_inertia * mass,
        "body_subtreemass": model.body_subtreemass * mass,
        "actuator_gainprm": model.actuator_gainprm * (1 + stiffness * (gain - 1)),
        "actuator_biasprm": model.actuator_biasprm * (1 + reaction * (gain - 1)),
    }
