"""Several devices and processes learn what one device learns; one that dies ends the others, and a run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from twinax.cli import main
from twinax.runs import checkpoint

SETTINGS = [
    "experiment=ppo",
    "env=cartpole",
    "env.time_limit=6",
    "ppo.num_envs=4",
    "ppo.num_steps=8",
    "ppo.num_epochs=2",
    "ppo.num_minibatches=2",
    "ppo.groups=2",
    "ppo.hidden=[8,8]",
    "ppo.episodes=3",
    "ppo.normalise_observations=true",
    # The rate falls to zero at the last of all five steps, also where they are made in two parts.
    "optimizer.decay_steps=20",
    "trainer.steps=5",
    "trainer.chunk=5",
    "trainer.dtype=float64",
    "trainer.checkpoint_every=2",
]

HOSTED = [*SETTINGS[:1], "env=gymnasium", "env.id=CartPole-v1", *SETTINGS[2:]]
"""The same in Gymnasium's copies, of which each device and each process steps its own."""


def twinax(*words: str, **changes: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "twinax.cli", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **changes}, **pipes)  # type: ignore[call-overload]


def arrays(run: Path) -> dict[str, np.ndarray]:
    return load_file(checkpoint.latest(run) / "state.safetensors")


def one_device_arrays(settings: list[str], place: Path) -> dict[str, np.ndarray]:
    assert main(["train", "--quiet", *settings, f"run.dir={place / 'run'}"]) == 0
    return arrays(place / "run")


@pytest.fixture(scope="module")
def one_device(tmp_path_factory):
    return one_device_arrays(SETTINGS, tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def one_host(tmp_path_factory):
    pytest.importorskip("gymnasium")
    return one_device_arrays(HOSTED, tmp_path_factory.mktemp("host"))


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("settings", "wanted"), [(SETTINGS, "one_device"), (HOSTED, "one_host")])
def test_two_devices_learn_what_one_learns(settings, wanted, tmp_path, request):
    run = tmp_path / "run"
    done = twinax("train", "--quiet", *settings, "trainer.devices=2", f"run.dir={run}")
    _, errors = done.communicate()
    assert done.returncode == 0, errors
    assert_equal(arrays(run), request.getfixturevalue(wanted))


@pytest.mark.slow
def test_a_run_of_two_devices_goes_on_with_one(one_device, tmp_path):
    run = tmp_path / "run"
    settings = [word for word in SETTINGS if not word.startswith("trainer.steps")]
    done = twinax("train", "--quiet", *settings, "trainer.steps=2", "trainer.devices=2", f"run.dir={run}")
    assert done.communicate() and done.returncode == 0
    assert main(["resume", str(run), "--quiet", "trainer.steps=5", "trainer.devices=1"]) == 0
    assert_equal(arrays(run), one_device)


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "wanted"), [(SETTINGS, "one_device"), (HOSTED, "one_host")])
def test_two_processes_learn_what_one_learns(settings, wanted, tmp_path, request):
    run = tmp_path / "run"
    done = twinax("launch", "--processes", "2", "train", "--quiet", *settings, f"run.dir={run}")
    said, errors = done.communicate()
    assert done.returncode == 0, errors
    assert said.count("problem  ") == said.count("after ") == 1, said  # one of them speaks
    assert_equal(arrays(run), request.getfixturevalue(wanted))


LONG = [word for word in SETTINGS if "steps=" not in word or word.startswith("ppo")]
LONG += ["trainer.steps=100000", "trainer.evaluate_every=0", "trainer.checkpoint_every=10"]


def launched(run: Path) -> subprocess.Popen:
    """Two processes in the middle of a long training."""
    parent = twinax("launch", "--processes", "2", "train", *LONG, f"run.dir={run}")
    limit = time.monotonic() + 120
    while not (run / "checkpoints" / "0000000010").exists() and time.monotonic() < limit:
        assert parent.poll() is None, parent.communicate()
        time.sleep(0.2)
    return parent


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["launch", "--process 1"])
def test_a_signal_to_one_process_stops_all_of_them(whom, tmp_path):
    run = tmp_path / "run"
    parent = launched(run)
    os.kill(parent.pid if whom == "launch" else child_of(parent.pid, whom), signal.SIGTERM)
    _, errors = parent.communicate(timeout=60)
    assert parent.returncode in (130, 143), errors
    assert errors.count("continue with:") == 1 and "error" not in errors
    assert f"continue with: twinax launch --processes 2 resume {run}" in errors
    saved = checkpoint.read_meta(checkpoint.latest(run))["step"]
    assert f"stopped at step {saved} of 100000" in errors
    # Also with another number of processes.
    assert main(["resume", str(run), "--quiet", f"trainer.steps={saved + 2}"]) == 0


@pytest.mark.slow
def test_slurm_says_who_is_who(one_device, tmp_path):
    run = tmp_path / "run"
    known = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    tasks = [
        twinax(
            *["launch", "--processes", "2", "train", "--quiet", *SETTINGS, f"run.dir={run}"],
            **{**known, "SLURM_STEP_NUM_NODES": "1", "SLURM_PROCID": str(k), "SLURM_LOCALID": str(k)},
        )
        for k in range(2)
    ]
    errors = [task.communicate(timeout=200)[1] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], errors
    assert_equal(arrays(run), one_device)
    other = twinax("launch", "--processes", "3", "train", **known)
    assert other.communicate()[1] == "error: --processes is 3, but SLURM has started 2 tasks; leave it out\n"


@pytest.mark.slow
def test_a_used_directory_is_one_sentence_from_all_processes(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("{}")
    begin = time.monotonic()
    done = twinax("launch", "--processes", "2", "train", *SETTINGS, f"run.dir={tmp_path / 'run'}")
    _, errors = done.communicate()
    assert done.returncode == 2
    assert errors.count("error:") == 1 and "Traceback" not in errors
    assert time.monotonic() - begin < 60


@pytest.mark.slow
def test_when_a_process_dies_the_others_stop_and_the_run_goes_on(tmp_path):
    run = tmp_path / "run"
    parent = launched(run)
    victim = child_of(parent.pid, "--process 1")
    os.kill(victim, signal.SIGKILL)
    _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 1
    # Whichever notices first is named.
    assert "of 2" in errors and "the others were stopped" in errors
    assert f"continue with: twinax launch --processes 2 resume {run}" in errors
    assert "Traceback" not in errors
    steps = checkpoint.read_meta(checkpoint.latest(run))["step"] + 3
    again = twinax("launch", "--processes", "2", "resume", str(run), "--quiet", f"trainer.steps={steps}")
    assert again.communicate(timeout=120) and again.returncode == 0
    assert checkpoint.read_meta(checkpoint.latest(run))["step"] == steps


def child_of(parent: int, words: str) -> int:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            above = int((place / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if above == parent and words in command:
            return int(place.name)
    raise AssertionError(f"process {parent} has no child with '{words}'")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["launch", "eval", "RUN"], "launch was given 'eval' to run; it runs train or resume"),
        (["launch"], "launch was given nothing to run"),
        (["launch", "--processes", "0", "train"], "--processes is 0"),
        (["launch", "train"], "launch needs --processes N"),
        (["launch", "--process", "1", "train"], "--process needs --processes and --coordinator"),
        (["launch", "--processes", "2", "--coordinator", "here:1", "train"], "--coordinator needs --process K"),
        (["launch", "--processes", "2", "resume", "--quiet"], "launch was given resume without a run"),
        (
            ["train", *SETTINGS[:-6], "ppo.groups=1", "trainer.devices=2"],
            "groups=1 cannot be shared out over 2 devices",
        ),
        (["train", "env=grid", "trainer.devices=2"], "cannot be shared out over 2 devices"),
        (["train", *SETTINGS, "trainer.devices=2", "trainer.mode=torch"], "devices=2 needs trainer.mode=jax"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, tmp_path):
    more = [f"run.dir={tmp_path / 'run'}"] if words[0] == "train" else []
    done = twinax(*words, *more)
    _, errors = done.communicate()
    assert done.returncode == 2, errors
    assert sentence in errors and "Traceback" not in errors
