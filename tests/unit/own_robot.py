"""A small robot as somebody else would write it: no pairs but ordinary contacts, and names of its own."""

from __future__ import annotations

from pathlib import Path

LEG = """<body name="{side}_leg" pos="0 {y} -.05"><joint name="{side}_hip" axis="0 -1 0" range="-1 1"/>
<geom type="capsule" fromto="0 0 0 0 0 -.15" size=".02" mass=".3" contype="0" conaffinity="0"/>
<body name="{side}_shin" pos="0 0 -.15"><joint name="{side}_knee" axis="0 1 0" range="0 2"/>
<geom type="capsule" fromto="0 0 0 0 0 -.13" size=".018" mass=".3" contype="0" conaffinity="0"/>
<geom name="{side}_heel" pos="-.04 0 -.14" size=".01" mass=".02" contype="1" conaffinity="0"/>
<geom name="{side}_toe" pos=".06 0 -.14" size=".01" mass=".02" contype="1" conaffinity="0"/></body></body>"""
JOINTS = ("left_hip", "left_knee", "right_hip", "right_knee")
MJCF = (
    '<mujoco><compiler angle="radian"/>'
    '<option timestep=".004" iterations="4" ls_iterations="8"><flag eulerdamp="disable"/></option>'
    '<default><joint damping=".1" armature=".02"/><position kp="20" kv=".5" forcerange="-4 4"/></default>'
    '<worldbody><geom name="floor" type="plane" size="5 5 .1" contype="0" conaffinity="1"/>'
    '<body name="trunk" pos="0 0 .35"><freejoint/>'
    '<geom type="box" size=".05 .08 .06" mass="1" contype="0" conaffinity="0"/>'
    + LEG.format(side="left", y=".05")
    + LEG.format(side="right", y="-.05")
    + "</body></worldbody><actuator>"
    + "".join(f'<position name="{joint}" joint="{joint}"/>' for joint in JOINTS)
    + '</actuator><keyframe><key name="home" qpos="0 0 .35 1 0 0 0 0 0 0 0"/></keyframe></mujoco>'
)
DESCRIPTION = "base: trunk\nfeet: [[left_heel, left_toe], [right_heel, right_toe]]\n"


def write_robot(folder: Path, *changes: tuple[str, str], name: str = "duck", description: str = DESCRIPTION) -> Path:
    """The MJCF's path after parts of it were replaced, its description beside it."""
    text = MJCF
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / f"{name}.xml"
    path.write_text(text)
    path.with_suffix(".yaml").write_text(description)
    return path
