"""Settings of the robot's world, and the tasks that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinax.envs.biped._robot import Robot
from twinax.envs.biped._state import Ranges, require_pair
from twinax.errors import TwinaxError
from twinax.ranges import check_known, check_range

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
REWARDED = {
    "alive": "as long as the robot has not fallen",
    "velocity": "times 1 where the base moves as commanded, falling to 0 with the error (velocity_width)",
    "yaw": "times 1 where the base turns as commanded, falling to 0 with the error (yaw_width)",
    "orientation": "times the squared sine of the base's tilt",
    "height": "times the squared distance of the base from its height at home, in m^2",
    "spin": "times the squared roll and pitch rates of the base, in rad^2/s^2",
    "feet_phase": "times 1 where the feet are as high as the gait wants, falling to 0 with the error (phase_width)",
    "foot_slip": "times the squared speed of feet on the floor, in m^2/s^2",
    "action_rate": "times the squared change of the action from one control step to the next",
    "torque": "times the squared torques of the servos, in (N m)^2",
    "energy": "times the power of the servos, in W",
    "pose": "times the squared distance of the joints from home, in rad^2",
}
"""What the weight of each term is a weight of."""
STAND_REWARDS = {**WALK_REWARDS, "alive": 1.0, "velocity": 1.0, "feet_phase": 0.0, "foot_slip": -0.5, "pose": -0.5}


@dataclass(frozen=True)
class BipedSettings:
    """Options of `Biped`. The defaults are the task "walk"."""

    robot: str | Path | Robot = "biped"
    """Robot of the package (biped, humanoid, planar), the path of an MJCF with its description, or a `Robot`."""
    runner: str = "c"
    """Who computes the physics: MuJoCo in C ("c"; within a JAX program it is a callback, which "callback" says aloud),
    or MJX ("mjx", in JAX only: made for accelerators; on a CPU it is slower, and takes a minute to compile)."""
    threads: int = 0
    """Threads of MuJoCo in C; 0 means as many as the process has cores."""
    substeps: int = 5
    """Physics steps of MuJoCo in a control step."""
    time_limit: int = 1000
    """Control steps after which an episode is cut off; 0 means never."""
    frictionloss: float | None = None
    """Dry friction of the driven joints in N m, 0.022 in servos of this size; null: as in the MJCF, which is 0 in the
    robots of the package. It adds a row to the solver for each."""

    # Actions
    action_scale: float = 0.5
    """How far, in rad, a full action moves a joint's target from home."""
    action_scales: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Other scales, by a joint's name or by what names end in: "knee" is for both knees."""
    action_filter: float = 0.0
    """Share of the filtered action that is kept from the control step before; 0 means no filter."""
    action_delay: bool = False
    """Whether an action reaches the servos one control step late."""

    # What is seen
    speed_scale: float = 0.1
    """Factor of joint velocities in an observation."""
    spin_scale: float = 0.25
    """Factor of the gyro in an observation."""
    contact_height: float = 0.003
    """Height, in m, below which a foot's lowest point counts as on the floor."""
    history: int = 0
    """Control steps before the present whose sensed values are observed as well; 0 means none."""

    # What is wanted
    command_ahead: tuple[float, float] = (0.065, 0.26)
    """Smallest and largest wanted velocity ahead, in m/s."""
    command_left: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest wanted velocity to the left, in m/s."""
    command_turn: tuple[float, float] = (0.0, 0.0)
    """Smallest and largest wanted turning to the left, in rad/s."""
    command_zero: float = 0.05
    """Share of the commands that are to stand still, between 0 and 1."""
    command_every: int = 150
    """Control steps between two commands to a robot."""
    gait_period: float = 0.64
    """Seconds of a gait cycle, which is one step of each foot."""
    swing_height: float = 0.03
    """How high, in m, a foot is wanted in the middle of its swing."""
    velocity_width: float = 0.1
    """Error of the velocity, in m/s, at which its reward has fallen to 1/e."""
    yaw_width: float = 0.25
    """Error of the turning, in rad/s, at which its reward has fallen to 1/e."""
    phase_width: float = 0.02
    """Error of the heights of the feet, in m, at which their reward has fallen to 1/e."""
    rewards: Mapping[str, float] = field(default_factory=lambda: dict(WALK_REWARDS), hash=False)
    """Weight of each term, per second."""

    # What disturbs
    push_every: int = 0
    """Control steps between two pushes on average; 0 means no pushes."""
    push_force: tuple[float, float] = (2.0, 5.0)
    """Smallest and largest force of a push, in N."""
    push_steps: int = 6
    """Control steps that a push lasts."""
    reset_joints: float = 0.05
    """Largest distance of a joint from home at the beginning of an episode, in rad."""
    reset_tilt: float = 0.1
    """Largest roll and pitch of the base at the beginning of an episode, in rad."""
    ranges: Ranges = Ranges()
    """Domain randomisation."""

    # When it is over
    height_band: tuple[float, float] = (0.65, 1.5)
    """Lowest and highest height of the base at which the robot has not fallen, as parts of its height at home."""
    max_tilt: float = 0.8
    """Tilt of the base at which the robot has fallen, in rad."""

    def __post_init__(self):
        check_known(self, runner=RUNNERS)
        check_range(self, "at least 1", "substeps", "command_every", "push_steps")
        check_range(self, "at least 0", "threads", "time_limit", "history", "push_every", "reset_joints", "reset_tilt")
        check_range(self, "above 0", "action_scale", "gait_period", "velocity_width", "yaw_width")
        check_range(self, "above 0", "phase_width", "max_tilt")
        if self.frictionloss is not None and self.frictionloss < 0:
            raise TwinaxError(f"frictionloss is {self.frictionloss}; it must be at least 0, or none for the MJCF's own")
        check_range(self, "at least 0 and below 1", "action_filter")
        check_range(self, "between 0 and 1", "command_zero")
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
