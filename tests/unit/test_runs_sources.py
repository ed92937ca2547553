"""Files that a person gave a run: kept with it, or missed and refused when they are no longer what they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_robot import write_robot

from twinax.envs.biped import Biped, load_robot
from twinax.errors import TwinaxError
from twinax.runs import RunDirectory

MESH = "v -1 -1 -1\nv 1 -1 -1\nv 0 1 -1\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 3 1 4\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def config(robot: Path | str) -> dict:
    return {"task": {"name": "walk", "robot": str(robot)}, "seed": 0}


def test_a_robot_is_copied_into_its_run(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_robot(tmp_path)
    world = Biped(robot="duck.xml")
    assert [file.name for file in world.sources()] == ["duck.xml", "duck.yaml"]
    RunDirectory(Path("run")).write_config(config("duck.xml"), world.sources())
    kept = run.config_path.read_text()
    assert "robot: sources/duck.xml" in kept
    # The run stands on its own, wherever it lies and whatever becomes of the files.
    (tmp_path / "duck.xml").write_text("<mujoco/>")
    (tmp_path / "duck.yaml").unlink()
    (tmp_path / "elsewhere").mkdir()
    run.path.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "elsewhere")
    moved = RunDirectory(Path("../moved"))
    robot = moved.read_config()["task"]["robot"]
    assert load_robot(robot).joints == ("left_hip", "left_knee", "right_hip", "right_knee")
    # A run that goes on writes what it has read.
    moved.write_config(moved.read_config(), Biped(robot=robot).sources())
    assert moved.config_path.read_text() == kept
    copy = moved.path / "sources" / "duck.xml"
    copy.write_text(copy.read_text() + "<!-- other -->")
    with pytest.raises(TwinaxError, match=r"sources/duck.xml is not the file that the run .* was trained with"):
        moved.read_config()


def test_a_robot_with_files_in_other_folders_is_remembered_by_its_sums(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "hat.obj").write_text(MESH)
    compiler, body = '<compiler angle="radian"/>', '<body name="trunk" pos="0 0 .35"><freejoint/>'
    path = write_robot(
        tmp_path,
        (compiler, '<compiler angle="radian" meshdir="meshes"/><asset><mesh name="hat" file="hat.obj"/></asset>'),
        (body, f'{body}<geom type="mesh" mesh="hat" contype="0" conaffinity="0" mass=".1"/>'),
    )
    world = Biped(robot="duck.xml")
    assert load_robot("duck.xml").model.nmesh == 1
    run.write_config(config("duck.xml"), world.sources())
    monkeypatch.chdir(run.path)
    assert run.read_config()["task"]["robot"] == str(path) and not (run.path / "sources").exists()
    run.write_config(run.read_config(), Biped(robot=path).sources())
    mesh = tmp_path / "meshes" / "hat.obj"
    mesh.write_text(MESH + "# other\n")
    with pytest.raises(TwinaxError, match=r"hat.obj is not the file that the run .* was trained with: its sha256 is"):
        run.read_config()
    mesh.unlink()
    with pytest.raises(TwinaxError, match=r"was trained with .*hat.obj, which is not there; put it back"):
        run.read_config()


def test_what_an_included_file_speaks_of_counts_as_well(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "floor.png").write_bytes(b"")
    (tmp_path / "look.xml").write_text('<mujoco><compiler texturedir="parts"/><texture file="floor.png"/></mujoco>')
    path = write_robot(tmp_path, ('<compiler angle="radian"/>', '<compiler angle="radian"/><include file="look.xml"/>'))
    names = [str(file.relative_to(tmp_path)) for file in Biped(robot=path).sources()]
    assert names == ["duck.xml", "duck.yaml", "look.xml", "parts/floor.png"]


def test_robots_of_the_package_are_not_copied(run):
    assert Biped(robot="planar").sources() == () and Biped(robot=load_robot("planar")).sources() == ()
    run.write_config(config("planar"), ())
    assert run.read_config() == config("planar") and [file.name for file in run.path.iterdir()] == ["config.yaml"]


def test_a_run_that_never_began_may_begin_again(run, tmp_path):
    path = write_robot(tmp_path)
    run.write_config(config(path), Biped(robot=path).sources())
    run.create()
    run.write_config(config(path), Biped(robot=path).sources())
    (run.path / "sources.json").write_text("[3]")
    with pytest.raises(TwinaxError, match=r"sources.json cannot be read"):
        run.read_config()
