"""PPO on the robot: modes agree on a whole iteration, and a run goes on exactly, worlds and pool included."""

from __future__ import annotations

import numpy as np
import pytest

from twinax import conf, tree
from twinax.engines import make_engine
from twinax.errors import TwinaxError

pytest.importorskip("mujoco")
pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL = [
    "experiment=biped",
    "ppo.num_envs=4",
    "ppo.num_steps=6",
    "ppo.num_minibatches=2",
    "ppo.num_epochs=2",
    "ppo.hidden=[8,8]",
]
SMALL += ["ppo.pool=8", "ppo.episodes=2", "task.threads=1", "task.time_limit=4", "trainer.steps=4"]


def engine(mode: str, dtype: str, *words: str):
    made = make_engine(conf.build_problem(conf.compose([*SMALL, *words])), mode=mode, dtype=dtype, chunk=2)
    made.start(0)
    return made


@pytest.mark.parametrize("words", [("task=walk", "ranges.friction=[0.5,1.5]"), ("task=stand", "ppo.policy=tanh")])
def test_modes_agree_on_the_robot(words):
    found = {}
    for mode in ("torch", "jax"):
        one = engine(mode, "float64", *words)
        found[mode] = {**one.run(2), **tree.named_leaves(one.state())}
    assert found["torch"].keys() == found["jax"].keys()
    for label, want in found["torch"].items():
        np.testing.assert_allclose(found["jax"][label], want, rtol=1e-8, atol=1e-9, err_msg=label)


def test_a_run_of_the_robot_goes_on_exactly():
    whole = engine("jax", "float32", "task=walk", "ranges.mass=[0.8,1.2]")
    whole.run(2)
    kept = whole.state()
    whole.run(2)
    # Another process would make everything anew: physics, models, programs.
    other = engine("jax", "float32", "task=walk", "ranges.mass=[0.8,1.2]")
    other.start(3)
    other.load(kept)
    other.run(2)
    wanted = tree.named_leaves(whole.state())
    assert any("qpos" in name for name in wanted)
    for label, value in tree.named_leaves(other.state()).items():
        np.testing.assert_array_equal(value, wanted[label], err_msg=label)


def test_physics_that_does_not_hold_is_a_sentence(tmp_path):
    from pathlib import Path

    import twinax.envs.biped

    home = Path(twinax.envs.biped.__file__).parent
    for name in ("biped.xml", "biped.yaml"):
        text = (home / name).read_text().replace('kp="21.1" kv="0.5" forcerange="-4 4"', 'kp="1e9"')
        (tmp_path / name).write_text(text)
    one = engine("torch", "float32", "task=walk", f"task.robot={tmp_path / 'biped.xml'}")
    with pytest.raises(TwinaxError, match=r"gave no finite numbers in \d+% of the steps.*timestep \(0.004 s\)"):
        one.run(2)
