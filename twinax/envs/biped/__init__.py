"""A walking robot: one definition of its world, run by MuJoCo in C or by MJX."""

from twinax.envs.biped._biped import Biped, make_biped
from twinax.envs.biped._kinematics import Kinematics, Pose
from twinax.envs.biped._mirror import mirror_joints, mirror_motion
from twinax.envs.biped._motion import check_reference, motion_features, motion_layout, scripted_gait
from twinax.envs.biped._robot import ROBOTS, Robot, load_robot
from twinax.envs.biped._state import VARIED, BipedState, Ranges, Variation
from twinax.envs.biped.settings import TASKS

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
    "check_reference",
    "load_robot",
    "make_biped",
    "mirror_joints",
    "mirror_motion",
    "motion_features",
    "motion_layout",
    "scripted_gait",
]
