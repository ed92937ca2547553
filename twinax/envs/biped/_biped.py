"""The robot's world: from actions to targets, physics, reward and what is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from twinax import ops
from twinax.envs._control import FRAMEWORKS, Box, Control, Moved
from twinax.envs.biped._beginning import start_positions
from twinax.envs.biped._files import robot_file, robot_sources
from twinax.envs.biped._kinematics import Kinematics
from twinax.envs.biped._manual import layout, manual
from twinax.envs.biped._observations import observe, observe_both, sense
from twinax.envs.biped._physics_c import FINITE, CPhysics
from twinax.envs.biped._rewards import TERMS, Seen, constant
from twinax.envs.biped._robot import Robot, load_robot
from twinax.envs.biped._state import BipedState, Variation
from twinax.envs.biped.settings import TASKS, BipedSettings
from twinax.episode import View
from twinax.errors import TwinaxError, UnknownName
from twinax.noise import Draw
from twinax.types import Array, Float

MOST_BROKEN = 0.1
"""Share of steps whose physics may blow up; random actions make a sound robot fall, not explode."""


def make_biped(task: str = "walk", **settings: Any) -> Biped:
    """The world for a task: "walk" after a command of velocity, or "stand" against pushes; settings win.

    >>> make_biped("stand", robot="planar").actions.size
    6
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    return Biped(**{**TASKS[task], **settings})


@dataclass(frozen=True)
class Biped(BipedSettings, Control):
    """A robot on legs, 50 times a second. Actions in [-1, 1] move the joints' targets about home: 0 holds it.

    >>> world = Biped()
    >>> world.name, world.observation_size, world.critic_size
    ('biped', 43, 54)
    """

    privileged = True

    def __post_init__(self):
        super().__post_init__()
        for name in self.rewards:
            if name not in TERMS:
                raise UnknownName("term of the reward", name, TERMS)

    # What follows from the settings

    @cached_property
    def body(self) -> Robot:
        """The robot, loaded."""
        return load_robot(self.robot)

    @cached_property
    def scale(self) -> np.ndarray:
        """How far a full action moves the target of each joint; rad."""
        scale = np.full(len(self.body.joints), self.action_scale)
        for name, value in self.action_scales.items():
            meant = [k for k, joint in enumerate(self.body.joints) if joint.endswith(name)]
            if not meant:
                raise UnknownName(f"joint of {self.name}", name, self.body.joints)
            scale[meant] = value
        scale.flags.writeable = False
        return scale

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The robot's."""
        return self.body.name

    @cached_property
    def kinematics(self) -> Kinematics:
        """From joints to the base and the feet."""
        return Kinematics(self.body)

    @cached_property
    def physics(self) -> Any:
        """Positions and velocities after a control step."""
        varied = self.ranges.physical
        if self.runner == "mjx":
            from twinax.envs.biped._physics_mjx import MjxPhysics

            return MjxPhysics(self.body, self.substeps, varied, self.frictionloss)
        return CPhysics(self.body, self.substeps, self.threads, varied, self.frictionloss)

    @property
    def seconds(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of a control step."""
        return self.substeps * self.body.timestep

    @property
    def frameworks(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Where it can run."""
        return FRAMEWORKS if self.runner == "c" else ("jax",)

    @property
    def actions(self) -> Box:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A target for each servo."""
        return Box((-1.0,) * len(self.body.joints), (1.0,) * len(self.body.joints))

    @property
    def sensed_size(self) -> int:
        """Sensed numbers that noise can change: gravity, gyro, angles and velocities of the joints."""
        return 6 + 2 * len(self.body.joints)

    @property
    def frame_size(self) -> int:
        """What is sensed in a step: besides, which feet are on the floor, and the last action."""
        return self.sensed_size + len(self.body.feet) + len(self.body.joints)

    @property
    def observation_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the agent: frames, the command, and the gait's clock."""
        return self.frame_size * (1 + self.history) + 5

    @property
    def critic_size(self) -> int:
        """Of a critic, which sees more than sensors tell."""
        return self.observation_size + 4 + 2 * len(self.body.feet) + 3

    # For those who run a policy elsewhere

    @property
    def layout(self) -> dict[str, int]:
        """Parts of an observation in their order, with their sizes."""
        return layout(self)

    def manual(self) -> dict[str, Any]:
        """Joints, home pose, scales and rates."""
        return manual(self)

    def assets(self) -> tuple[Path, ...]:
        """The robot's MJCF."""
        file = robot_file(self.robot)
        return () if file is None else (file,)

    def sources(self) -> tuple[Path, ...]:
        """The MJCF that a person gave, its description, and what it speaks of."""
        return robot_sources(self.robot)

    # For those who look

    def on_host(self) -> Biped:
        """With MuJoCo in C: MJX is slow for one robot, and slow to compile."""
        return replace(self, runner="c") if self.runner == "mjx" else self

    def view(self, states: BipedState) -> View:
        """A film, steps and speeds."""
        from twinax.envs.biped._film import view

        return view(self, states)

    # Beginning

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        """What `reset` needs."""
        if worlds < 1:
            raise TwinaxError(f"there are {worlds} worlds; there must be at least 1")
        joints = len(self.body.joints)
        draws = {
            "joints": Draw((worlds, joints)),
            "tilt": Draw((worlds, 2)),
            "command": Draw((worlds, 4)),
            "phase": Draw((worlds,)),
            "variation": Draw((worlds, 3)),
            "offset": Draw((worlds, joints)),
        }
        if self.ranges.sensed:
            draws["noise"] = Draw((worlds, self.sensed_size), "normal")
        return draws

    def reset(self, draws: Mapping[str, Any]) -> BipedState:
        """At home, or near it, the lowest point of the feet on the floor."""
        uniform = draws["joints"]
        worlds, joints = uniform.shape
        none = ops.zeros((worlds, joints), uniform)
        number = ops.zeros((worlds,), uniform, "int32")
        state = BipedState(
            qpos=start_positions(self, self.body, self.kinematics, uniform, draws["tilt"]),
            qvel=ops.zeros((worlds, self.body.model.nv), uniform),
            action=none,
            previous_action=none,
            filtered=none,
            applied=none,
            command=self._command(draws["command"]),
            phase=2 * math.pi * draws["phase"],
            time=number,
            push=ops.zeros((worlds, 2), uniform),
            push_left=number,
            noise=self._noise(draws, uniform),
            history=ops.zeros((worlds, self.history, self.frame_size), uniform),
            variation=self._variation(draws),
        )
        if self.history:
            first = self.sense(state)[:, None]
            state = replace(state, history=ops.broadcast(first, (worlds, self.history, self.frame_size)))
        return state

    def _command(self, uniform: Any) -> Any:
        ranges = np.array([self.command_ahead, self.command_left, self.command_turn])
        low, span = constant(ranges[:, 0], uniform), constant(ranges[:, 1] - ranges[:, 0], uniform)
        still = ops.cast(uniform[:, 3:] < self.command_zero, uniform)
        return (low + span * uniform[:, :3]) * (1 - still)

    def _variation(self, draws: Mapping[str, Any]) -> Variation:
        def between(bounds, uniform):
            return bounds[0] + (bounds[1] - bounds[0]) * uniform

        ranges, uniform = self.ranges, draws["variation"]
        return Variation(
            friction=between(ranges.friction, uniform[:, 0]),
            mass=between(ranges.mass, uniform[:, 1]),
            gain=between(ranges.gain, uniform[:, 2]),
            offset=ranges.joint_offset * (2 * draws["offset"] - 1),
        )

    def _noise(self, draws: Mapping[str, Any], reference: Any) -> Any:
        if not self.ranges.sensed:
            return ops.zeros((reference.shape[0], 0), reference)
        r, joints = self.ranges, len(self.body.joints)
        sizes = [r.gravity_noise] * 3 + [r.gyro_noise] * 3 + [r.angle_noise] * joints + [r.speed_noise] * joints
        return draws["noise"] * constant(np.array(sizes), draws["noise"])

    # Moving

    def step_draws(self, worlds: int) -> dict[str, Draw]:
        """What `step` needs."""
        draws = {"command": Draw((worlds, 4))}
        if self.push_every:
            draws["push"] = Draw((worlds, 3))
        if self.ranges.sensed:
            draws["noise"] = Draw((worlds, self.sensed_size), "normal")
        return draws

    def step(self, state: BipedState, action: Float[Array, "worlds joints"], draws: Mapping[str, Any]) -> Moved:
        """One control step."""
        if tuple(action.shape) != tuple(state.action.shape):
            raise TwinaxError(
                f"the action has shape {tuple(action.shape)}; {state.action.shape[0]} worlds of {self.name} need "
                f"{tuple(state.action.shape)}"
            )
        action = ops.clip(action, -1.0, 1.0)
        filtered = self.action_filter * state.filtered + (1 - self.action_filter) * action
        applied = state.filtered if self.action_delay else filtered
        push, push_left = self._push(state, draws)
        # The servo's own zero is off by the offset.
        target = self.target(applied) + state.variation.offset
        qpos, qvel = self.physics(state.qpos, state.qvel, target, push, state.variation)
        broken = ~ops.all(ops.abs(ops.concat([qpos, qvel], 1)) < FINITE, 1)
        phase = state.phase + 2 * math.pi * self.seconds / self.gait_period
        after = replace(
            state,
            # What is left of a world that blew up is its last good state, so that everything stays finite.
            qpos=ops.where(broken[:, None], state.qpos, qpos),
            qvel=ops.where(broken[:, None], state.qvel, qvel),
            action=action,
            previous_action=state.action,
            filtered=filtered,
            applied=applied,
            phase=ops.where(phase >= 2 * math.pi, phase - 2 * math.pi, phase),
            time=state.time + 1,
            push=push,
            push_left=push_left,
            noise=self._noise(draws, action),
        )
        seen = self.see(after)
        terms = self.reward_terms(seen)
        reward = sum(terms.values(), start=after.phase * 0)
        fallen = self.fallen(seen)
        terms = {f"reward_{name}": value for name, value in terms.items()}
        terms["broken"] = ops.cast(broken, reward)
        terms["height"] = seen.pose.position[:, 2]
        terms["velocity_ahead"] = seen.velocity[:, 0]
        # The reward is for the command that was seen; the next one is seen from here on.
        again = (after.time % self.command_every == 0)[:, None]
        after = replace(after, command=ops.where(again, self._command(draws["command"]), after.command))
        if self.history:
            after = replace(after, history=ops.concat([state.history[:, 1:], self.sense(state)[:, None]], 1))
        known = observe_both(replace(seen, state=after)) if self._sees_as_given else None
        return Moved(after, reward, fallen | broken, terms, seen=known)

    def target(self, applied: Float[Array, "worlds joints"]) -> Float[Array, "worlds joints"]:
        """Angles that the servos are told to reach; rad."""
        robot = self.body
        wanted = constant(robot.home, applied) + constant(self.scale, applied) * applied
        return ops.minimum(ops.maximum(wanted, constant(robot.low, applied)), constant(robot.high, applied))

    def _push(self, state: BipedState, draws: Mapping[str, Any]) -> tuple[Any, Any]:
        if not self.push_every:
            return state.push, state.push_left
        uniform = draws["push"]
        angle = 2 * math.pi * uniform[:, 1]
        size = self.push_force[0] + (self.push_force[1] - self.push_force[0]) * uniform[:, 2]
        fresh = size[:, None] * ops.stack([ops.cos(angle), ops.sin(angle)], -1)
        begins = (state.push_left == 0) & (uniform[:, 0] < 1 / self.push_every)
        left = ops.where(begins, self.push_steps, state.push_left)
        push = ops.where(begins[:, None], fresh, state.push)
        lasts = left > 0
        return ops.where(lasts[:, None], push, 0.0), ops.cast(ops.where(lasts, left - 1, 0), state.push_left)

    def watch(self, logs: Mapping[str, Any]) -> None:
        """Physics that does not hold is no world to learn in."""
        if (share := float(np.max(logs["broken"]))) > MOST_BROKEN:
            raise TwinaxError(
                f"the physics of {self.name} gave no finite numbers in {share:.0%} of the steps of an iteration: make "
                f"the MJCF's timestep ({self.body.timestep} s) or its servos' kp smaller, or their kv and armature "
                "larger; `twinax doctor` describes a model"
            )

    # Seeing

    def see(self, state: BipedState) -> Seen:
        """The state with the poses and targets that follow from it."""
        return Seen(self, self.body, state, self.kinematics(state.qpos, state.qvel), self.target(state.applied))

    def reward_terms(self, seen: Seen) -> dict[str, Float[Array, " worlds"]]:
        """Parts of a step's reward, weighted; they add up to it."""
        return {name: TERMS[name](seen) * (weight * self.seconds) for name, weight in self.rewards.items() if weight}

    def fallen(self, seen: Seen) -> Any:
        """Whether the base is too low, too high or too tilted."""
        height, home = seen.pose.position[:, 2], self.body.height
        low, high = (part * home for part in self.height_band)
        return (height < low) | (height > high) | (seen.pose.rotation[:, 2, 2] < math.cos(self.max_tilt))

    def sense(self, state: BipedState) -> Float[Array, "worlds frame"]:
        """Gravity and gyro in the frame of the base, angles from home and velocities of the joints, feet on the floor,
        and the last action."""
        return sense(self.see(state))

    def observe(self, state: BipedState) -> Float[Array, "worlds observation"]:
        """What is sensed now, the command, the gait's clock (0 when told to stand), and what was sensed before."""
        return observe(self.see(state))

    def observe_critic(self, state: BipedState) -> Float[Array, "worlds critic"]:
        """Besides: velocity and height of the base, heights of the feet and how far they are from those wanted, the
        push, and the floor's friction."""
        return observe_both(self.see(state))[1]

    def observe_both(self, state: BipedState) -> tuple[Any, Any]:
        """Both from one walk through the robot's links."""
        return observe_both(self.see(state))

    @property
    def _sees_as_given(self) -> bool:
        """Whether no class above this one has other rules of seeing, which a step's own walk would leave out."""
        names = ("observe", "observe_critic", "observe_both", "see")
        return all(getattr(type(self), name) is getattr(Biped, name) for name in names)
