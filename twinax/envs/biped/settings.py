"""Settings of the robot's world, and the tasks that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinax.envs.biped._robot import Robot
from twinax.envs.biped._state import Ranges, require_pair
from twinax.errors import TwinaxError, UnknownName

RUNNERS = ("c", "callback", "mjx")
WALK_REWARDS = {
    "alive": 0.5,
    "velocity": 2.0,
    "yaw": 0.5,
    "orientation": -2.0,
    "height": -10.0,
    "spin": -0.05,
    "feet_phase": 1.5,
    "foot_slip": -0.25,
    "action_rate": -0.02,
    "torque": -0.005,
    "energy": -0.005,
    "pose": -0.1,
}
STAND_REWARDS = {**WALK_REWARDS, "alive": 1.0, "velocity": 1.0, "feet_phase": 0.0, "foot_slip": -0.5, "pose": -0.5}


@dataclass(frozen=True)
class BipedSettings:
    """Options of `Biped`. The defaults are the task "walk"."""

    robot: str | Path | Robot = "biped"
    """A robot of the package (biped, humanoid, planar), the path of an MJCF with its description, or a `Robot`."""
    runner: str = "c"
    """Who computes the physics: MuJoCo in C ("c"; within a JAX program it is a callback, which "callback" says aloud),
    or MJX ("mjx", in JAX only: made for accelerators; on a CPU it is slower, and takes a minute to compile)."""
    threads: int = 0
    """Threads of MuJoCo in C; 0 for as many as the process has cores."""
    substeps: int = 5
    """Physics steps in a control step."""
    time_limit: int = 1000
    """Control steps after which an episode is cut off; 0 for never."""
    frictionloss: float | None = None
    """Dry friction of the driven joints in N m, 0.022 in servos of this size; null: as in the MJCF, which is 0 in the
    robots of the package. It adds a row to the solver for each."""

    # Actions
    action_scale: float = 0.5
    """How far, in rad, a full action moves a joint's target from home."""
    action_scales: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Other scales, by a joint's name or by what names end in: "knee" is for both knees."""
    action_filter: float = 0.0
    """Part of the filtered action that is kept from the step before; 0 for no filter."""
    action_delay: bool = False
    """Whether an action reaches the servos one step late."""

    # What is seen
    speed_scale: float = 0.1
    """Factor of joint velocities in an observation."""
    spin_scale: float = 0.25
    """Factor of the gyro in an observation."""
    contact_height: float = 0.003
    """A foot whose lowest point is below this, in m, counts as on the floor."""
    history: int = 0
    """Steps before the present whose sensed values are seen as well."""

    # What is wanted
    command_ahead: tuple[float, float] = (0.065, 0.26)
    """Range of the wanted velocity ahead; m/s."""
    command_left: tuple[float, float] = (0.0, 0.0)
    """m/s."""
    command_turn: tuple[float, float] = (0.0, 0.0)
    """rad/s, to the left."""
    command_zero: float = 0.05
    """Part of the commands that are to stand still."""
    command_every: int = 150
    """Steps between commands."""
    gait_period: float = 0.64
    """Seconds of two steps."""
    swing_height: float = 0.03
    """How high, in m, a foot is wanted in the middle of its swing."""
    velocity_width: float = 0.1
    """Error of the velocity, in m/s, at which its reward has fallen to 1/e."""
    yaw_width: float = 0.25
    """The same for turning; rad/s."""
    phase_width: float = 0.02
    """The same for the heights of the feet; m."""
    rewards: Mapping[str, float] = field(default_factory=lambda: dict(WALK_REWARDS), hash=False)
    """Weight of each term, per second."""

    # What disturbs
    push_every: int = 0
    """Steps between pushes on average; 0 for none."""
    push_force: tuple[float, float] = (2.0, 5.0)
    """Range of a push; N."""
    push_steps: int = 6
    """Steps that it lasts."""
    reset_joints: float = 0.05
    """Largest distance of a joint from home at the beginning; rad."""
    reset_tilt: float = 0.1
    """Largest roll and pitch at the beginning; rad."""
    ranges: Ranges = Ranges()
    """Domain randomisation."""

    # When it is over
    height_band: tuple[float, float] = (0.65, 1.5)
    """Heights of the base between which it has not fallen, as parts of its height at home."""
    max_tilt: float = 0.8
    """Tilt of the base at which it has fallen; rad."""

    def __post_init__(self):
        if self.runner not in RUNNERS:
            raise UnknownName("runner", self.runner, RUNNERS)
        for name in ("substeps", "command_every", "push_steps"):
            if getattr(self, name) < 1:
                raise TwinaxError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("threads", "time_limit", "history", "push_every", "reset_joints", "reset_tilt"):
            if getattr(self, name) < 0:
                raise TwinaxError(f"{name} is {getattr(self, name)}; it must be at least 0")
        for name in ("action_scale", "gait_period", "velocity_width", "yaw_width", "phase_width", "max_tilt"):
            if getattr(self, name) <= 0:
                raise TwinaxError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.frictionloss is not None and self.frictionloss < 0:
            raise TwinaxError(f"frictionloss is {self.frictionloss}; it must be at least 0, or none for the MJCF's own")
        if not 0 <= self.action_filter < 1:
            raise TwinaxError(f"action_filter is {self.action_filter}; it must be at least 0 and below 1")
        if not 0 <= self.command_zero <= 1:
            raise TwinaxError(f"command_zero is {self.command_zero}; it must be between 0 and 1")
        for name in ("command_ahead", "command_left", "command_turn", "push_force", "height_band"):
            require_pair(name, getattr(self, name))
            low, high = getattr(self, name)
            if low > high:
                raise TwinaxError(f"{name} is ({low}, {high}); the smaller one must come first")


TASKS: dict[str, dict[str, Any]] = {
    "walk": {},
    "stand": {
        "command_ahead": (0.0, 0.0),
        "command_zero": 1.0,
        "push_every": 100,
        # Of robots that only hold their home pose, half fall within ten seconds.
        "push_force": (5.0, 10.0),
        "rewards": STAND_REWARDS,
    },
}
"""Changes to the settings by task: follow a velocity, or stay upright against pushes."""
