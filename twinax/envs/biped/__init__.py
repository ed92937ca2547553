"""A walking robot: one definition of its world, run by MuJoCo in C or by MJX."""

from twinax.envs.biped._biped import Biped, make_biped
from twinax.envs.biped._kinematics import Kinematics, Pose
from twinax.envs.biped._mirror import mirror_joints, mirror_motion
from twinax.envs.biped._robot import ROBOTS, Robot, load_robot
from twinax.envs.biped._settings import TASKS
from twinax.envs.biped._state import VARIED, BipedState, Ranges, Variation

__all__ = [
    "ROBOTS",
    "TASKS",
    "VARIED",
    "Biped",
    "BipedState",
    "Kinematics",
    "Pose",
    "Ranges",
    "Robot",
    "Variation",
    "load_robot",
    "make_biped",
    "mirror_joints",
    "mirror_motion",
]
