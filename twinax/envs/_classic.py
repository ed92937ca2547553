"""The classic control problems by name."""

from twinax.envs._classic_cars import MountainCar, MountainCarContinuous
from twinax.envs._classic_poles import Acrobot, CartPole, Classic, Pendulum

CLASSIC: dict[str, type[Classic]] = {
    kind.name: kind for kind in (CartPole, Pendulum, Acrobot, MountainCar, MountainCarContinuous)
}
"""Classic control problems by name."""
