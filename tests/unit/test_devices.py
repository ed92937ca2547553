"""The device of a run: its name, what is not there, and that no line of the library makes a tensor without one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import other_device
import pytest
import small_problems
import torch

import twinax as tx
from twinax import platforms
from twinax.errors import TwinaxError
from twinax.train_options import TrainOptions

ROOT = Path(tx.__file__).parent
MAKERS = {
    "arange", "as_tensor", "empty", "eye", "from_dlpack", "from_numpy", "full", "linspace", "logspace", "ones", "rand",
    "randint", "randn", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "Generator",
}  # fmt: skip
"""Functions of PyTorch that make a tensor on the CPU unless they are told a device."""
WITHOUT = {
    "bridge/_arrays.py": "numpy_to_tensor shares memory with an array of the host; who wants a device moves it",
    "bridge/_exchange.py": "from_dlpack shares the memory of a JAX array, on the device where that is",
    "ops/_torch.py": "_shared gives the pages of a file, which `convert` moves to the reference's device",
    "parity/_differentiate.py": "parity compares in float64 on the CPU; as_tensor leaves a tensor where it is",
    "deploy/_export.py": "an exported policy is tried on the CPU, beside ONNX",
    "deploy/_torch_policy.py": "a plain module is made on the CPU, as all of torch.nn, and its `.to` moves everything",
    "bridge/conversion/_library_torch.py": "a conversion is tried on the CPU, on copies",
    "port/_function.py": "a port captures on the CPU; modules on other devices are refused",
    "port/_module.py": "numbers beside arrays, on their way to JAX",
    "port/_network.py": "numbers of the host, which go to the device of the weights when they are used",
    "port/_reference.py": "the proof runs on the CPU, where the module is",
    "port/_replay_torch.py": "a record is played on the CPU, on a copy",
    "port/_where.py": "the proof runs on the CPU, where the module is",
}
"""Files that make tensors without a device, and why they may."""


def makers(path: Path) -> list[int]:
    """Lines on which a tensor is made without a device."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    moved = {
        id(node.func.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args
    }
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"):
            continue
        named = any(keyword.arg == "device" for keyword in node.keywords)
        first = node.func.attr == "Generator" and node.args  # its only argument is the device
        if not named and not first and id(node) not in moved:
            found.append(node.lineno)
    return found


def test_no_tensor_is_made_without_a_device():
    without = {str(path.relative_to(ROOT).as_posix()): makers(path) for path in sorted(ROOT.rglob("*.py"))}
    found = {name: lines for name, lines in without.items() if lines}
    assert found.keys() == WITHOUT.keys(), {k: v for k, v in found.items() if k not in WITHOUT}


def test_the_search_sees_what_it_looks_for(tmp_path):
    file = tmp_path / "some.py"
    file.write_text("torch.zeros(2)\ntorch.zeros(2, device=d)\ntorch.from_numpy(x).to(d)\ntorch.tensor(1).to()\n")
    assert makers(file) == [1, 4]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "cuda1", "mode": "torch"}, "device is 'cuda1', which is no name of one"),
        ({"device": "", "mode": "jax"}, "device is '', which is no name of one"),
        (
            {"device": "tpu", "mode": "torch"},
            "device is 'tpu', but trainer.mode=torch computes on auto, cpu, cuda, mps",
        ),
        ({"device": "gpu", "mode": "hybrid"}, "device is 'gpu', but trainer.mode=hybrid"),
        ({"device": "cuda:1", "mode": "jax", "devices": 2}, "name the kind alone, device=cuda"),
        ({"device": "mps", "mode": "torch", "dtype": "float64"}, "has no float64"),
    ],
)
def test_names_that_cannot_be_meant(options, sentence):
    with pytest.raises(TwinaxError, match=sentence.replace("'", ".")):
        TrainOptions(**options)


@pytest.mark.parametrize(
    ("mode", "device", "sentence"),
    [
        ("torch", "cuda", "has cpu here: this build has no CUDA, and pip install --force-reinstall torch"),
        ("hybrid", "cuda:1", "device=cuda:1, but PyTorch"),
        ("torch", "mps", "mps needs a Mac"),
        ("torch", "cpu:3", "name one of those"),
        ("jax", "tpu", "JAX .* has cpu here under JAX_PLATFORMS=cpu: for NVIDIA's devices pip install 'jax.cuda12.'"),
        ("jax", "cuda", "device=cuda, but JAX"),
        ("jax", "cpu:77", "set JAX_NUM_CPU_DEVICES=78 before Python starts"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there are other devices")
def test_a_device_that_is_not_there_is_one_sentence(mode, device, sentence):
    with pytest.raises(TwinaxError, match=sentence) as caught:
        tx.engines.make_engine(small_problems.gflownet("trajectory_balance"), mode=mode, device=device)
    assert "\n" not in str(caught.value)


def test_what_auto_takes_and_what_a_machine_has(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert platforms.torch_devices()[:3] == ["cpu", "cuda:0", "cuda:1"]
    assert str(platforms.torch_device("auto")) == str(platforms.torch_device("cuda")) == "cuda:0"
    assert str(platforms.torch_device("cuda:1")) == platforms.device_label("torch", "cuda:1") == "cuda:1"
    with pytest.raises(TwinaxError, match="has cpu, cuda:0, cuda:1.* here: name one of those"):
        platforms.torch_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    with pytest.raises(TwinaxError, match=r"for CUDA 12.9 but sees no card, so look at the driver \(nvidia-smi\)"):
        platforms.torch_device("cuda")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert str(platforms.torch_device("mps")) == "mps" and str(platforms.torch_device("auto")) == "cpu"


SECOND = """
import json, jax, numpy as np, small_problems
from twinax.engines import make_engine
problem = small_problems.gflownet("trajectory_balance")
runs = {}
for device, seeds in (("auto", 1), ("cpu:1", 1), ("cpu:1", 2)):
    engine = make_engine(problem, mode="jax", device=device, seeds=seeds, chunk=4)
    engine.start(0)
    loss = engine.run(4)["loss"].reshape(4, -1)[:, 0].tolist()
    engine.evaluate()
    engine.profile(1)
    states = engine._states if seeds > 1 else [engine._state]
    where = {str(place) for state in states for x in jax.tree.leaves(state) for place in x.devices()}
    runs[f"{device} {seeds}"] = (loss, sorted(where), np.asarray(engine.state().step).tolist())
both = make_engine(small_problems.balancing(), mode="jax", device="cpu", devices=2, chunk=1)
both.start(0)
both.run(1)
both.evaluate()
runs["both"] = sorted({str(place) for x in jax.tree.leaves(both._state) for place in x.devices()})
print(json.dumps(runs))
"""


def test_jax_computes_on_the_device_that_was_named():
    paths = [str(ROOT.parent), *(str(ROOT.parent / "tests" / name) for name in ("unit", "parity"))]
    code = f"import sys; sys.path[:0] = {paths!r}\n{SECOND}"
    given = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=given, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = json.loads(done.stdout.splitlines()[-1])
    first, second, seeds = runs["auto 1"], runs["cpu:1 1"], runs["cpu:1 2"]
    assert first[1] == ["TFRT_CPU_0"] and second[1] == seeds[1] == ["TFRT_CPU_1"]
    assert first[0] == second[0] == seeds[0]
    assert runs["both"] == ["TFRT_CPU_0", "TFRT_CPU_1"], "`devices` is how many, of the kind that `device` names"


def test_a_run_says_its_device_and_goes_on_where_another_one_is(tmp_path, monkeypatch):
    problem = small_problems.gflownet("trajectory_balance")
    monkeypatch.setattr("twinax.engines.torch_engine.torch_device", lambda name: other_device.NAME)
    with other_device.OtherDevice():
        tx.train(problem, mode="torch", steps=2, run_dir=tmp_path / "run", progress=False)
    monkeypatch.undo()
    run = tx.resume(tmp_path / "run", problem, steps=4, device="cpu", progress=False)
    alone = tx.train(problem, mode="torch", steps=4, progress=False, device="cpu")
    assert run.summary["device"] == "cpu" and run.summary["plan"]["device"] == "cpu"
    np.testing.assert_allclose([row["loss"] for row in run.metrics], [row["loss"] for row in alone.metrics], rtol=1e-4)
