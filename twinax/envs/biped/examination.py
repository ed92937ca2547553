"""`twinax doctor robot.xml`: what a model consists of, how fast it is, and what slows it down."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from twinax import console
from twinax.envs.biped.collisions import collision_pairs
from twinax.envs.biped.diagnosis import CONTROL, find_hints, measure, mjx_refuses, read_model
from twinax.envs.biped.mujoco_model import load_mujoco


def examine(path: Path, seconds: float = 0.5) -> int:
    """Print what there is to know; `seconds` is how long the physics is measured, 0 for not at all."""
    model = read_model(path)
    pairs = collision_pairs(model)
    console.table(path.name, ("part", "number", ""), _parts(model, pairs), numbers_to=2)
    console.table("pairs that can touch", ("kind", "self", "with the world", "listed"), _kinds(pairs))
    console.table("solver", ("setting", "value"), _settings(model), numbers_from=2)
    if seconds:
        speed = measure(model, seconds)
        console.table("measured on one thread", ("what", "value"), _measured(model, speed))
        _print_hints(find_hints(model, pairs, speed, seconds / 2.5))
    return 0


def _parts(model: Any, pairs: Any) -> list[tuple[str, Any, str]]:
    loss = int(np.count_nonzero(model.dof_frictionloss)), int(np.count_nonzero(model.tendon_frictionloss))
    own, fixed, listed = (sum(counts.values()) for counts in (pairs.own, pairs.fixed, pairs.listed))
    meshes = int(np.count_nonzero(model.geom_type == load_mujoco().mjtGeom.mjGEOM_MESH))
    used = "" if not meshes else f"{model.nmeshvert:,} vertices, in {meshes} geoms"
    return [
        ("bodies", int(model.nbody) - 1, f"{float(model.body_mass.sum()):.3g} kg"),
        ("joints", int(model.njnt), f"{int(np.count_nonzero(model.jnt_limited))} limited"),
        ("degrees of freedom", int(model.nv), ""),
        ("actuators", int(model.nu), ""),
        ("sensors", int(model.nsensor), ""),
        ("geoms", int(model.ngeom), ""),
        ("meshes", int(model.nmesh), used),
        ("self pairs", own, "both geoms move"),
        ("pairs with the world", fixed, ""),
        ("listed pairs", listed, "<pair> elements"),
        ("possible contacts", pairs.most_contacts, "if everything touched at once"),
        ("friction-loss rows", sum(loss), f"{loss[0]} of joints, {loss[1]} of tendons" if sum(loss) else ""),
        ("equality constraints", int(model.neq), ""),
    ]


def _kinds(pairs: Any) -> list[tuple[Any, ...]]:
    order = [kind for kind, _ in pairs.every.most_common()]
    rows = [(kind, pairs.own[kind], pairs.fixed[kind], pairs.listed[kind]) for kind in order]
    return rows or [("none", 0, 0, 0)]


def _settings(model: Any) -> list[tuple[str, str]]:
    mujoco, option = load_mujoco(), model.opt

    def name(kind: str, value: int) -> str:
        return getattr(mujoco, kind)(value).name.split("_", 1)[1].lower()

    steps = CONTROL / option.timestep
    return [
        ("solver", name("mjtSolver", option.solver)),
        ("iterations", f"{option.iterations}, in its line search {option.ls_iterations}"),
        ("cone", name("mjtCone", option.cone)),
        ("integrator", name("mjtIntegrator", option.integrator)),
        ("timestep", f"{1e3 * option.timestep:g} ms: {steps:.3g} physics steps in a control step of 20 ms (50 Hz)"),
        ("MJX", _mjx(model)),
    ]


def _mjx(model: Any) -> str:
    if importlib.util.find_spec("mujoco.mjx") is None:
        return "not installed: pip install 'twinax[mujoco]'"
    reason = mjx_refuses(model)
    return "loads it" if reason is None else f"cannot load it: {reason}"


def _measured(model: Any, speed: Any) -> list[tuple[str, str]]:
    control = speed.steps * model.opt.timestep / CONTROL
    rows = [
        ("physics steps per second", f"{speed.steps:,.0f}"),
        ("control steps per second", f"{control:,.0f}"),
        ("times real time", f"{speed.steps * model.opt.timestep:,.0f}"),
        ("contacts", f"{speed.contacts:.1f} on average, {speed.most_contacts} at most"),
        ("solver rows", f"{speed.rows:.1f} on average"),
    ]
    if speed.blown_up:
        rows.append(("the physics", "BLOWS UP: use a smaller timestep, softer servos or a pose without overlaps"))
    return rows


def _print_hints(hints: list[Any]) -> None:
    if not hints:
        print("nothing slows this model down that a setting could change")
        return
    rows = [(f"{hint.gain:.2g} x" if hint.gain else "in MJX", hint.text) for hint in hints]
    console.table("hints, in order of gain", ("speed", "what to change"), rows, numbers_from=2)
