"""MJX: the same physics as a JAX program, for accelerators. On a CPU it is slower than C, and slow to compile."""

from __future__ import annotations

from typing import Any

from twinax import ops
from twinax.envs.biped._physics_c import physics_model, varied_fields
from twinax.envs.biped._robot import Robot
from twinax.envs.biped._state import Variation
from twinax.envs.biped.mujoco_model import load_mujoco
from twinax.errors import TwinaxError, require
from twinax.types import Array, Float


class MjxPhysics:
    """Steps of one robot, as `CPhysics`: nothing is carried from call to call."""

    def __init__(self, robot: Robot, substeps: int, varied: bool = False, frictionloss: float | None = None):
        require("mujoco.mjx", "mujoco", "the runner mjx")
        self._mjx = load_mujoco("mujoco.mjx")
        self.substeps, self.varied = substeps, varied
        self.model = physics_model(robot, frictionloss)
        self._body = self.model.body(robot.push_body).id
        try:
            self._mjx.put_model(self.model)
        except NotImplementedError as error:
            raise TwinaxError(f"MJX cannot run {robot.name}: {error}; use the runner c") from None

    def __call__(
        self,
        qpos: Float[Array, "worlds nq"],
        qvel: Float[Array, "worlds nv"],
        target: Float[Array, "worlds joints"],
        push: Float[Array, "worlds 2"],
        variation: Variation,
    ) -> tuple[Float[Array, "worlds nq"], Float[Array, "worlds nv"]]:
        """Positions and velocities after the physics steps of one control step."""
        if ops.framework(qpos) != "jax":
            raise TwinaxError(f"the runner mjx needs JAX arrays, not those of {ops.framework(qpos)}; use the runner c")
        import jax
        import jax.numpy as jnp

        # Made here, and not kept: its arrays have the precision that JAX has now.
        model, data = self._mjx.put_model(self.model), self._mjx.make_data(self.model)

        def one(qpos, qvel, target, push, factors) -> tuple[Any, Any]:
            varied = model.tree_replace(varied_fields(model, *factors)) if self.varied else model
            # MJX computes in JAX's own precision, whatever the states' is.
            qpos, qvel, target = (x.astype(data.qpos.dtype) for x in (qpos, qvel, target))
            force = jnp.zeros_like(data.xfrc_applied).at[self._body, :2].set(push)
            begin = data.replace(qpos=qpos, qvel=qvel, ctrl=target, xfrc_applied=force)
            end = jax.lax.fori_loop(0, self.substeps, lambda _, d: self._mjx.step(varied, d), begin)
            return end.qpos, end.qvel

        factors = (variation.friction, variation.mass, variation.gain)
        after = jax.vmap(one)(qpos, qvel, target, push, factors)
        return after[0].astype(qpos.dtype), after[1].astype(qvel.dtype)
