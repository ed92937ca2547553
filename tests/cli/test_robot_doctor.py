"""`twinax doctor robot.xml`, and `twinax doctor` as it was."""

from __future__ import annotations

import pytest

pytest.importorskip("mujoco")


def test_a_robot_is_examined(twinax, root):
    done = twinax("doctor", str(root / "twinax" / "envs" / "biped" / "biped.xml"))
    assert done.code == 0
    for text in ("degrees of freedom", "plane-sphere", "newton", "5 physics steps in a control step", "loads it"):
        assert text in done.out
    assert "physics steps per second" in done.out and "8.0 on average, 8 at most" in done.out


def test_without_a_measurement(twinax, root):
    done = twinax("doctor", "--quick", str(root / "twinax" / "envs" / "biped" / "planar.xml"))
    assert done.code == 0 and "actuators" in done.out and "per second" not in done.out


def test_wrong_files_are_one_sentence(twinax, tmp_path):
    (tmp_path / "bad.xml").write_text("<mujoco")
    for name, sentence in (("bad.xml", "MuJoCo cannot read bad.xml"), ("gone.xml", "there is no file gone.xml")):
        done = twinax("doctor", name)
        assert done.code == 2 and sentence in done.err and done.err.count("\n") == 1


def test_the_machine_is_still_examined(twinax):
    done = twinax("doctor", "--quick")
    assert done.code == 0 and "compilation cache" in done.out and "onnxruntime" in done.out
