"""What a world of the robot remembers, and how worlds may differ from each other."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from twinax import tree
from twinax.errors import TwinaxError
from twinax.types import Array, Float, Int


@tree.record
class Variation:
    """How a world's robot differs from the drawing, for one episode."""

    friction: Float[Array, " worlds"]
    """Factor of the sliding friction of every contact."""
    mass: Float[Array, " worlds"]
    """Factor of all masses and inertias."""
    gain: Float[Array, " worlds"]
    """Factor of the servos' stiffness."""
    offset: Float[Array, "worlds joints"]
    """What the servos take for zero; rad."""


@tree.record
class BipedState:
    """Worlds side by side."""

    qpos: Float[Array, "worlds nq"]
    qvel: Float[Array, "worlds nv"]
    action: Float[Array, "worlds joints"]
    """The last one, within its bounds."""
    previous_action: Float[Array, "worlds joints"]
    filtered: Float[Array, "worlds joints"]
    """The last action after the low-pass filter."""
    applied: Float[Array, "worlds joints"]
    """What the servos were last given."""
    command: Float[Array, "worlds 3"]
    """Wanted velocity ahead and to the left in m/s, and wanted turning to the left in rad/s."""
    phase: Float[Array, " worlds"]
    """Of the gait: the left foot swings in the first half of 2 pi, the right one in the second."""
    time: Int[Array, " worlds"]
    """Steps taken."""
    push: Float[Array, "worlds 2"]
    """Force along x and y in N, while it lasts."""
    push_left: Int[Array, " worlds"]
    """Steps that it still lasts."""
    noise: Float[Array, "worlds sensors"]
    """Errors of what is sensed now; of width 0 without sensor noise."""
    history: Float[Array, "worlds frames frame"]
    """What was sensed in the steps before, the oldest first."""
    variation: Variation


def require_pair(name: str, value: Any) -> None:
    """Refuse what is not two numbers."""
    if not isinstance(value, tuple | list):
        raise TwinaxError(f"{name} needs two numbers, lowest and highest, but was given {value!r}")
    if len(value) != 2:
        raise TwinaxError(f"{name} needs two numbers, lowest and highest, but was given {len(value)}")


@dataclass(frozen=True)
class Ranges:
    """Domain randomisation: from what ranges each episode's robot is drawn. Nothing varies by default.

    >>> Ranges(friction=(0.4, 1.0)).physical
    True
    """

    friction: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest factor of the sliding friction of every contact; [1, 1] means no variation."""
    mass: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest factor of all masses and inertias; [1, 1] means no variation."""
    gain: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest factor of the servos' stiffness; [1, 1] means no variation."""
    joint_offset: float = 0.0
    """Largest error of what a servo takes for zero, in rad; 0 means none."""
    gravity_noise: float = 0.0
    """Standard deviation of the noise on each part of the sensed direction of gravity; 0 means none."""
    gyro_noise: float = 0.0
    """Standard deviation of the noise on the gyro, in rad/s; 0 means none."""
    angle_noise: float = 0.0
    """Standard deviation of the noise on sensed joint angles, in rad; 0 means none."""
    speed_noise: float = 0.0
    """Standard deviation of the noise on sensed joint velocities, in rad/s; 0 means none."""

    def __post_init__(self):
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(entry.default, tuple):
                require_pair(entry.name, value)
                if not 0 < value[0] <= value[1]:
                    raise TwinaxError(f"{entry.name} is {value}; it must be two factors above 0, the smaller one first")
            elif value < 0:
                raise TwinaxError(f"{entry.name} is {value}; it must be at least 0")

    @property
    def physical(self) -> bool:
        """Whether the physics differs from world to world."""
        return any(getattr(self, name) != (1.0, 1.0) for name in ("friction", "mass", "gain"))

    @property
    def sensed(self) -> bool:
        """Whether there is sensor noise."""
        return any((self.gravity_noise, self.gyro_noise, self.angle_noise, self.speed_noise))


VARIED = Ranges(
    friction=(0.4, 1.0),
    mass=(0.9, 1.1),
    gain=(0.9, 1.1),
    joint_offset=0.03,
    gravity_noise=0.02,
    gyro_noise=0.05,
    angle_noise=0.005,
    speed_noise=0.1,
)
"""Ranges in which a policy for hardware is trained."""
