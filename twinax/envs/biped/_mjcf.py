"""The MJCF of the three robots, written from one list of sizes: `python -m twinax.envs.biped._mjcf` makes the files.

x points ahead, y to the left, z up; metres, kilograms, radians. The axes of the right side are those of the left seen
in a mirror, so equal angles on both sides are a symmetric pose. Hips and shoulders count forward, knees and elbows
when bending, ankle pitch with the toes down; rolls count inward, so that a leg opens towards its negative end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import cos, radians
from pathlib import Path

HIP_WIDTH, HIP_DROP, THIGH, SHIN, ANKLE = 0.0536, 0.035, 0.193, 0.180, 0.031
SOLE, POINT = 0.028, 0.008
"""From the ankle's roll axis down to the sole; radius of the four spheres that touch the floor."""
HEEL, TOE, SOLE_WIDTH = -0.055, 0.085, 0.022
HOME = {"hip_pitch": 0.22, "hip_roll": 0.0, "knee": 0.49, "ankle_pitch": -0.27, "ankle_roll": 0.0}
HOME["elbow"] = 0.3
"""Bent knees and elbows, and the sole flat: knee + ankle = hip."""
HEIGHT = HIP_DROP + THIGH * cos(HOME["hip_pitch"]) + SHIN * cos(HOME["ankle_pitch"]) + ANKLE + SOLE
"""Of the pelvis at home, the soles on the floor."""
RANGES = {
    "hip_pitch": (-30, 90),
    "hip_roll": (-90, 10),
    "knee": (0, 120),
    "ankle_pitch": (-40, 45),
    "ankle_roll": (-45, 45),
    "waist_yaw": (-30, 30),
    "shoulder_pitch": (-90, 90),
    "shoulder_roll": (-90, 10),
    "elbow": (0, 110),
}
"""Degrees."""
LEG = ("hip_pitch", "hip_roll", "knee", "ankle_pitch", "ankle_roll")
ARM = ("shoulder_pitch", "shoulder_roll", "elbow")
ARM_MASS = 0.55

HEAD = """\
<!-- Written by twinax/envs/biped/_mjcf.py: change that file, not this one. {about} -->
<mujoco model="{name}">
  <!-- With 4 iterations a control step ends where any number of them would in nine worlds of ten; with 2, in less than
       half. In C they cost no more, since it stops when there is nothing left to gain. -->
  <compiler angle="radian" autolimits="true"/>
  <option timestep="0.004" integrator="Euler" solver="Newton" cone="pyramidal" iterations="4" ls_iterations="6">
    <flag eulerdamp="disable"/>
  </option>
  <default>
    <joint damping="0.085" armature="0.025"/>
    <geom contype="0" conaffinity="0" rgba=".75 .77 .8 1"/>
    <position kp="21.1" kv="0.5" forcerange="-4 4" inheritrange="1"/>
    <pair condim="3" friction="1 1 .005 .0001 .0001"/>
    <default class="point"><geom type="sphere" size="{point}" mass="0" rgba=".2 .2 .25 1"/></default>
  </default>
  <visual><headlight ambient=".4 .4 .4" diffuse=".6 .6 .6"/></visual>
  <worldbody>
    <light pos="0 0 3" dir="0 0 -1" directional="true"/>
    <geom name="floor" type="plane" size="20 20 .05" rgba=".9 .9 .88 1"/>"""


@dataclass(frozen=True)
class Plan:
    """Which joints a robot has."""

    name: str
    about: str
    leg: tuple[str, ...] = LEG
    arms: bool = False
    free: bool = True

    @property
    def joints(self) -> list[str]:
        """In the order of the actuators."""
        sides = [f"{side}_{joint}" for side in ("left", "right") for joint in self.leg]
        upper = [f"{side}_{joint}" for side in ("left", "right") for joint in ARM]
        return sides + (["waist_yaw", *upper] if self.arms else [])


PLANS = (
    Plan("biped", "10 joints; the mass of the arms is part of the torso."),
    Plan("humanoid", "17 joints: a waist and arms as well.", arms=True),
    Plan(
        "planar",
        "6 joints in the plane of x and z; the mass of the arms is part of the torso.",
        leg=("hip_pitch", "knee", "ankle_pitch"),
        free=False,
    ),
)


def mjcf(plan: Plan) -> str:
    """The whole file."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield HEAD.format(name=plan.name, about=plan.about, point=POINT)
    yield f'    <body name="pelvis" pos="0 0 {HEIGHT:.6f}">'
    if plan.free:
        yield '      <freejoint name="root"/>'
    else:
        # The three joints of the plane carry no motor, and nothing brakes them.
        for name, kind, axis in (
            ("root_x", "slide", "1 0 0"),
            ("root_z", "slide", "0 0 1"),
            ("root_y", "hinge", "0 1 0"),
        ):
            yield f'      <joint name="{name}" type="{kind}" axis="{axis}" damping="0" armature="0"/>'
    yield '      <geom type="box" size=".04 .06 .03" mass=".439"/>'
    # On the pelvis, below the waist: what is measured here is what a policy sees.
    yield '      <site name="imu"/>'
    yield from _torso(plan)
    for side, sign in (("left", 1), ("right", -1)):
        yield from _leg(plan, side, sign)
    yield "    </body>\n  </worldbody>"
    yield "  <contact>"
    for side in ("left", "right"):
        for point in range(4):
            yield f'    <pair geom1="floor" geom2="{side}_foot_{point}"/>'
    yield "  </contact>\n  <actuator>"
    for joint in plan.joints:
        yield f'    <position name="{joint}" joint="{joint}"/>'
    yield "  </actuator>\n  <sensor>"
    yield '    <gyro name="gyro" site="imu"/>\n    <accelerometer name="accelerometer" site="imu"/>'
    yield '    <framequat name="orientation" objtype="site" objname="imu"/>'
    yield '    <velocimeter name="velocity" site="imu"/>\n  </sensor>'
    home = " ".join(f"{HOME.get(joint.split('_', 1)[1], 0.0):g}" for joint in plan.joints)
    root = f"0 0 {HEIGHT:.6f} 1 0 0 0" if plan.free else "0 0 0"
    yield f'  <keyframe>\n    <key name="home" qpos="{root} {home_positions(plan)}" ctrl="{home}"/>\n  </keyframe>'
    yield "</mujoco>"


def home_positions(plan: Plan) -> str:
    """Angles at home in the order of the bodies, which puts the waist and the arms first."""
    names = plan.joints
    ordered = [n for n in names if not _of_leg(n)] + [n for n in names if _of_leg(n)]
    return " ".join(f"{HOME.get(name.split('_', 1)[1], 0.0):g}" for name in ordered)


def _of_leg(name: str) -> bool:
    return name.split("_", 1)[1] in LEG


def _joint(name: str, axis: tuple[int, int, int]) -> str:
    low, high = (radians(x) for x in RANGES[name if name in RANGES else name.split("_", 1)[1]])
    return f'<joint name="{name}" axis="{axis[0]} {axis[1]} {axis[2]}" range="{low:.6f} {high:.6f}"/>'


def _torso(plan: Plan) -> Iterator[str]:
    mass = 0.534 + (0.0 if plan.arms else 2 * ARM_MASS)
    yield '      <body name="torso" pos="0 0 .04">'
    if plan.arms:
        yield "        " + _joint("waist_yaw", (0, 0, 1))
    yield f'        <geom type="box" size=".045 .08 .09" pos="0 0 .09" mass="{mass:g}"/>'
    yield '        <geom type="sphere" size=".05" pos="0 0 .24" mass="0"/>'
    if plan.arms:
        for side, sign in (("left", 1), ("right", -1)):
            yield from _arm(side, sign)
    yield "      </body>"


def _arm(side: str, sign: int) -> Iterator[str]:
    out = f"{sign * 0.02:g}"
    yield f'        <body name="{side}_shoulder" pos="0 {sign * 0.1:g} .15">'
    yield "          " + _joint(f"{side}_shoulder_pitch", (0, -1, 0))
    yield '          <geom type="sphere" size=".025" mass=".1"/>'
    yield f'          <body name="{side}_upper_arm">'
    yield "            " + _joint(f"{side}_shoulder_roll", (-sign, 0, 0))
    yield f'            <geom type="capsule" fromto="0 {out} 0 0 {out} -.12" size=".02" mass=".25"/>'
    yield f'            <body name="{side}_forearm" pos="0 {out} -.12">'
    yield "              " + _joint(f"{side}_elbow", (0, -1, 0))
    yield '              <geom type="capsule" fromto="0 0 0 0 0 -.12" size=".018" mass=".2"/>'
    yield "            </body>\n          </body>\n        </body>"


def _leg(plan: Plan, side: str, sign: int) -> Iterator[str]:
    """Bodies of no joint stay where their joint is missing, so that the masses are those of the others."""
    axes = {"hip_pitch": (0, -1, 0), "hip_roll": (-sign, 0, 0), "knee": (0, 1, 0), "ankle_pitch": (0, 1, 0)}
    axes["ankle_roll"] = (-sign, 0, 0)
    capsule = '<geom type="capsule" fromto="0 0 0 0 0 -{length:g}" size="{size:g}" mass="{mass:g}"/>'
    bodies = (
        ("hip", (0, sign * HIP_WIDTH, -HIP_DROP), "hip_pitch", '<geom type="sphere" size=".03" mass=".085"/>'),
        ("thigh", (0, 0, 0), "hip_roll", capsule.format(length=THIGH, size=0.025, mass=0.23)),
        ("shin", (0, 0, -THIGH), "knee", capsule.format(length=SHIN, size=0.022, mass=0.375)),
        ("bracket", (0, 0, -SHIN), "ankle_pitch", '<geom type="sphere" size=".015" mass=".017"/>'),
        ("foot", (0, 0, -ANKLE), "ankle_roll", None),
    )
    for depth, (body, place, joint, geom) in enumerate(bodies):
        space = "      " + "  " * depth
        yield f'{space}<body name="{side}_{body}" pos="{place[0]:g} {place[1]:g} {place[2]:g}">'
        if joint in plan.leg:
            yield f"{space}  {_joint(f'{side}_{joint}', axes[joint])}"
        if geom is not None:
            yield f"{space}  {geom}"
    space = "      " + "  " * len(bodies)
    middle = POINT - SOLE
    yield f'{space}<geom type="box" size=".08 {SOLE_WIDTH:g} .008" pos=".015 0 {middle:g}" mass=".319"/>'
    corners = ((TOE, 1), (TOE, -1), (HEEL, 1), (HEEL, -1))
    for point, (x, outer) in enumerate(corners):
        place = f"{x:g} {sign * outer * SOLE_WIDTH:g} {middle:g}"
        yield f'{space}<geom name="{side}_foot_{point}" class="point" pos="{place}"/>'
    for depth in reversed(range(len(bodies))):
        yield "      " + "  " * depth + "</body>"


if __name__ == "__main__":
    for each in PLANS:
        Path(__file__).with_name(f"{each.name}.xml").write_text(mjcf(each))
