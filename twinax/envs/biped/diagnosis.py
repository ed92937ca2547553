"""Why a model is slow: how fast it is on one thread, and how fast it would be with one thing changed."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs.biped._physics_c import quiet
from twinax.envs.biped.collisions import Pairs
from twinax.envs.biped.mujoco_model import load_mujoco
from twinax.errors import TwinaxError

CONTROL = 0.02
"""Seconds of a control step, for which physics steps are counted."""
LEAST_GAIN = 1.1
"""A change that gains less is not worth a hint."""


@dataclass(frozen=True)
class Speed:
    """Measured on one thread, in seconds of its own time: others on the machine do not count."""

    steps: float
    """Physics steps per second."""
    contacts: float
    """On average."""
    most_contacts: int
    rows: float
    """Of the constraint solver, on average."""
    blown_up: bool
    """Whether the simulation went beyond all bounds."""


@dataclass(frozen=True)
class Hint:
    """A change and what it gains."""

    gain: float
    """Physics steps per second with it, divided by those without; 0 where it was not measured."""
    text: str


def read_model(path: Path | str) -> Any:
    """The model in an MJCF or URDF file."""
    mujoco, path = load_mujoco(), Path(path)
    if not path.is_file():
        raise TwinaxError(f"there is no file {path}; give the path of a robot's MJCF")
    try:
        return mujoco.MjModel.from_xml_path(str(path))
    except (ValueError, UnicodeDecodeError) as error:
        raise TwinaxError(f"MuJoCo cannot read {path.name}: {' '.join(str(error).split())}") from None


def measure(model: Any, seconds: float = 0.5) -> Speed:
    """Simulate from the first keyframe, or from where the file puts the robot, half a second again and again."""
    mujoco = load_mujoco()
    data = mujoco.MjData(model)
    steps, spent, contacts, rows, most, bad = 0, 0.0, 0, 0, 0, False
    length = max(1, round(0.5 / model.opt.timestep))
    with quiet():
        while spent < seconds:
            _restart(model, data)
            begin = time.thread_time()
            # Bursts are long enough for the clock, and short enough to see contacts come and go.
            for _ in range(max(1, length // 10)):
                mujoco.mj_step(model, data, 10)
                contacts, rows, most = contacts + data.ncon, rows + data.nefc, max(most, data.ncon)
                steps += 10
            spent += time.thread_time() - begin
            bad |= bool(data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number)
    bursts = steps / 10
    return Speed(steps / max(spent, 1e-9), contacts / bursts, most, rows / bursts, bad)


def _restart(model: Any, data: Any) -> None:
    mujoco = load_mujoco()
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    else:
        mujoco.mj_resetData(model, data)


def find_hints(model: Any, pairs: Pairs, speed: Speed, seconds: float = 0.2) -> list[Hint]:
    """Changes in order of what they gain here, then those that matter elsewhere."""
    hints = []
    for text, change in _changes(model, pairs).items():
        changed = copy.copy(model)
        change(changed)
        gain = measure(changed, seconds).steps / speed.steps
        if gain >= LEAST_GAIN:
            hints.append(Hint(gain, text))
    substeps = CONTROL / model.opt.timestep
    if substeps > 6:
        text = f"timestep {1e3 * model.opt.timestep:g} ms is {substeps:g} steps per control step: try 4 ms"
        hints.append(Hint(0.004 / model.opt.timestep, text))
    return sorted(hints, key=lambda hint: -hint.gain) + [Hint(0, text) for text in _elsewhere(model, pairs)]


def _changes(model: Any, pairs: Pairs) -> dict[str, Callable[[Any], None]]:
    mujoco = load_mujoco()
    option, changes = model.opt, {}
    own = sum(pairs.own.values())
    if own:
        kind, number = pairs.own.most_common(1)[0]
        most = f", {number} of them {kind}" if number < own else f" of {kind}"
        changes[f"{own} self pairs{most}: set contype=conaffinity=0 and list foot-floor pairs"] = _without_own
    rows = int(np.count_nonzero(model.dof_frictionloss) + np.count_nonzero(model.tendon_frictionloss))
    if rows:
        changes[f"{rows} rows of friction loss: use damping instead, or add friction for the last runs only"] = _no_loss
    if option.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        changes["integrator RK4 computes everything four times: use Euler"] = _set(integrator=0)
    if option.solver != mujoco.mjtSolver.mjSOL_NEWTON:
        name = mujoco.mjtSolver(option.solver).name.removeprefix("mjSOL_")
        changes[f"solver {name}: use Newton"] = _set(solver=int(mujoco.mjtSolver.mjSOL_NEWTON))
    if option.cone == mujoco.mjtCone.mjCONE_ELLIPTIC:
        changes["cone elliptic: use pyramidal"] = _set(cone=int(mujoco.mjtCone.mjCONE_PYRAMIDAL))
    if option.iterations > 4 or option.ls_iterations > 8:
        text = f"iterations {option.iterations}, ls_iterations {option.ls_iterations}: try 4 and 8"
        changes[text] = _set(iterations=min(option.iterations, 4), ls_iterations=min(option.ls_iterations, 8))
    if option.noslip_iterations:
        changes[f"noslip_iterations {option.noslip_iterations}: set 0"] = _set(noslip_iterations=0)
    if model.nsensor:
        flags = option.disableflags | int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
        changes[f"{model.nsensor} sensors in every step: disable what nobody reads"] = _set(disableflags=flags)
    return changes


def _set(**values: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        for name, value in values.items():
            setattr(model.opt, name, value)

    return change


def _no_loss(model: Any) -> None:
    model.dof_frictionloss[:] = 0
    model.tendon_frictionloss[:] = 0


def _without_own(model: Any) -> None:
    """Geoms that move touch only the fixed world; explicit pairs stay."""
    for moves, kind, affinity in (
        (model.body_weldid[model.geom_bodyid] != 0, model.geom_contype, model.geom_conaffinity),
        (model.body_weldid != 0, model.body_contype, model.body_conaffinity),
    ):
        touches = (kind | affinity) != 0
        kind[:] = np.where(moves, 0, touches)
        affinity[:] = np.where(moves, touches, 0)


def _elsewhere(model: Any, pairs: Pairs) -> list[str]:
    """What C hardly notices, and MJX or a small board does."""
    texts = []
    meshes = sum(number for kind, number in pairs.every.items() if "mesh" in kind.split("-"))
    if meshes:
        texts.append(f"{meshes} pairs with meshes: let capsules, boxes and spheres collide, and meshes be seen only")
    broad = {kind for kind in pairs.fixed + pairs.listed if kind in ("plane-box", "plane-cylinder", "plane-mesh")}
    if broad:
        texts.append(f"{' and '.join(sorted(broad))} for feet: four spheres or two capsules each are cheaper in MJX")
    if pairs.most_contacts > 32:
        texts.append(f"{pairs.most_contacts} possible contacts: MJX works on all of them in every step; aim for 32")
    if model.opt.iterations > 4:
        texts.append(f"iterations {model.opt.iterations}: MJX may run them all; 1 to 4 are usual there")
    return texts


def mjx_refuses(model: Any) -> str | None:
    """Why MJX cannot load the model, None if it can; nothing is compiled."""
    mjx = load_mujoco("mujoco.mjx")
    try:
        mjx.put_model(model)
    except NotImplementedError as error:
        # Kinds by their own names, not by those of MuJoCo's enumerations.
        text = re.sub(r"(?:mjt\w+\.)?mj[A-Z]+_(\w+)", lambda match: match[1].lower(), str(error))
        return " ".join(text.split()).rstrip(".")
    return None
