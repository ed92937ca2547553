"""Why a model is slow: pairs counted as MuJoCo finds them, measured changes, and files that are no models."""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np
import pytest

from twinax.envs.biped import ROBOTS, load_robot
from twinax.envs.biped.collisions import _kind, collision_pairs
from twinax.envs.biped.diagnosis import _changes, _without_own, find_hints, measure, mjx_refuses, read_model
from twinax.errors import TwinaxError

mujoco = pytest.importorskip("mujoco")

CRAWLER = """
<mujoco>
  <option timestep="0.002" cone="elliptic"/>
  <default><joint frictionloss=".02"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1"/>
    <geom name="step" type="box" size=".1 .1 .1" pos="3 0 0"/>
    <body name="trunk" pos="0 0 .5">
      <freejoint/>
      <geom name="trunk" type="box" size=".2 .1 .1"/>
      <body name="head" pos=".3 0 .1"><geom name="head" type="sphere" size=".08"/></body>
      <body name="left" pos=".1 .2 0"><joint axis="0 1 0"/><geom name="left" type="capsule" size=".04 .1"/>
        <body name="left_foot" pos="0 0 -.2"><joint axis="0 1 0"/><geom name="left_foot" type="box" size=".08 .04 .02"/>
          <geom name="seen" type="sphere" size=".03" contype="0" conaffinity="0"/></body></body>
      <body name="right" pos=".1 -.2 0"><joint axis="0 1 0"/><geom name="right" type="capsule" size=".04 .1"/>
        <body name="right_foot" pos="0 0 -.2"><joint axis="0 1 0"/>
          <geom name="right_foot" type="box" size=".08 .04 .02"/>
          <geom name="odd" type="sphere" size=".03" contype="2" conaffinity="2"/></body></body>
    </body>
  </worldbody>
  <contact>
    <exclude body1="trunk" body2="left_foot"/>
    <pair geom1="floor" geom2="left_foot"/>
    <pair geom1="seen" geom2="odd"/>
  </contact>
</mujoco>
"""


def crawler():
    return mujoco.MjModel.from_xml_string(CRAWLER)


def found_by_mujoco(model) -> Counter:
    """Pairs that touch when everything is in one place, so that all that may touch does."""
    wide = copy.copy(model)
    wide.geom_margin[:] = wide.pair_margin[:] = 50.0
    wide.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
    data = mujoco.MjData(wide)
    mujoco.mj_kinematics(wide, data)
    mujoco.mj_comPos(wide, data)
    data.geom_xpos[:] = 0.001 * np.arange(model.ngeom)[:, None] * [0.3, 0.5, 0.7]
    mujoco.mj_collision(wide, data)
    pairs = {tuple(sorted((int(c.geom[0]), int(c.geom[1])))) for c in data.contact}
    return Counter(_kind(model, *pair) for pair in pairs)


@pytest.mark.parametrize("flags", [0, int(mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)])
def test_pairs_are_those_that_mujoco_finds(flags):
    model = crawler()
    model.opt.disableflags |= flags
    pairs = collision_pairs(model)
    assert pairs.every == found_by_mujoco(model)
    assert pairs.listed == {"plane-box": 1, "sphere-sphere": 1}
    assert sum(pairs.own.values()) > 5 and sum(pairs.fixed.values()) > 5


@pytest.mark.parametrize("name", ROBOTS)
def test_the_robots_of_the_package_touch_the_floor_only(name):
    model = load_robot(name).model
    pairs = collision_pairs(model)
    assert pairs.every == found_by_mujoco(model) == {"plane-sphere": 8}
    assert not pairs.own and not pairs.fixed and pairs.most_contacts == 8


def test_contacts_that_are_switched_off_are_none():
    model = crawler()
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    assert not collision_pairs(model).every


def test_taking_self_pairs_away_takes_them_away_for_mujoco_as_well():
    model = crawler()
    before = collision_pairs(model)
    _without_own(model)
    pairs = collision_pairs(model)
    # A geom with masks of its own may now touch the world; nothing else is new.
    assert not pairs.own and pairs.every == found_by_mujoco(model)
    assert pairs.listed == before.listed


def test_hints_name_what_a_model_has():
    texts = list(_changes(crawler(), collision_pairs(crawler())))
    assert any("self pairs" in text and "set contype=conaffinity=0 and list foot-floor pairs" in text for text in texts)
    assert any("4 rows of friction loss" in text for text in texts)
    assert any("iterations 100, ls_iterations 50" in text for text in texts)
    assert any("elliptic" in text for text in texts)


def test_hints_come_in_the_order_of_their_gain():
    model = crawler()
    model.opt.integrator = int(mujoco.mjtIntegrator.mjINT_RK4)
    hints = find_hints(model, collision_pairs(model), measure(model, 0.1), 0.1)
    gains = [hint.gain for hint in hints if hint.gain]
    assert gains == sorted(gains, reverse=True)
    four = next(hint for hint in hints if "RK4" in hint.text)
    assert 1.5 < four.gain < 8
    assert "try 4 ms" in " ".join(hint.text for hint in hints)


def test_the_measured_world_is_told():
    speed = measure(load_robot("biped").model, 0.05)
    assert speed.steps > 1000 and speed.contacts == 8 and speed.most_contacts == 8 and not speed.blown_up


def test_physics_that_blows_up_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = crawler()
    model.opt.gravity[2] = -1e12
    assert measure(model, 0.01).blown_up
    assert not list(tmp_path.iterdir())


def test_what_mjx_cannot_load_is_said():
    pytest.importorskip("mujoco.mjx")
    text = CRAWLER.replace('type="capsule" size=".04 .1"', 'type="cylinder" size=".04 .1"')
    assert mjx_refuses(mujoco.MjModel.from_xml_string(text)) == "(cylinder, box) collisions not implemented"
    assert mjx_refuses(load_robot("planar").model) is None


def test_files_that_are_no_models(tmp_path):
    with pytest.raises(TwinaxError, match="there is no file .*gone.xml; give the path of a robot's MJCF"):
        read_model(tmp_path / "gone.xml")
    for text in (
        "<mujoco><foo/></mujoco>",
        "nonsense",
        "",
        "<mujoco><worldbody><body><joint/></body></worldbody></mujoco>",
    ):
        (tmp_path / "bad.xml").write_text(text)
        with pytest.raises(TwinaxError, match=r"MuJoCo cannot read bad\.xml: .") as error:
            read_model(tmp_path / "bad.xml")
        assert "\n" not in str(error.value)
