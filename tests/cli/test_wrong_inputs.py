"""Wrong input: one clear sentence, a code that is not zero, no traceback, nothing lost."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest

WRONG_SETTINGS = {
    # sizes
    "env.dim=-1": "env.dim is -1; it must be at least 1",
    "env.side=0": "env.side is 0; it must be at least 2",
    "env.side=1": "env.side is 1; it must be at least 2",
    "trainer.steps=-1": "trainer.steps is -1; it must be at least 1",
    "trainer.batch_size=0": "trainer.batch_size is 0; it must be at least 1",
    "trainer.chunk=0": "trainer.chunk is 0",
    "trainer.log_every=0": "trainer.log_every is 0",
    "trainer.checkpoint_every=-5": "trainer.checkpoint_every is -5",
    "seeds=0": "seeds is 0; it must be at least 1",
    "seed=-1": "seed is -1; it must be at least 0",
    "seed=99999999999": "goes beyond 4294967295",
    "policy.hidden=[0]": "every width must be at least 1",
    "policy.hidden=[-8,8]": "every width must be at least 1",
    "objective.log_z_size=0": "objective.log_z_size is 0",
    "metrics.samples=0": "metrics.samples is 0",
    # too large for the memory
    "env.side=1000000 env.dim=12": "GB of memory",
    "policy.hidden=[10000000]": "policy.hidden",
    "trainer.batch_size=1000000000": "trainer.batch_size",
    "metrics.fifo=10000000000000": "metrics.fifo",
    "objective.log_z_size=10000000000000": "objective.log_z_size",
    "seeds=100000000": "GB of memory",
    "trainer.chunk=10000000000000": "trainer.chunk",
    "env.dim=40 env.side=2": "2^40 modes",
    "env.dim=100000 env.side=2": "2^100000 modes",
    # unknown names
    "env=gird": "Did you mean 'grid'?",
    "env=treasure": "grid, hypergrid",
    "proxy=hardest": "Did you mean 'hard'?",
    "objective=trajectory": "Did you mean 'trajectory_balance'?",
    "loss=magic": "known: detailed_balance",
    "experiment=chess": "unknown experiment 'chess'; known: biped, gflownet",
    "trainer.mode=tpu": "known: hybrid, jax, legacy, torch",
    "trainer.dtype=float16": "known: float32, float64",
    "trainer.noise=loud": "known: native, shared",
    "trainer.device=cuda1": "trainer.device is 'cuda1', which is no name of one",
    "device=warp trainer.mode=torch": "trainer.device is 'warp', but trainer.mode=torch computes on auto, cpu",
    "trainer.device=tpu": "has cpu here under JAX_PLATFORMS=cpu: for NVIDIA's devices pip install 'jax[cuda12]'",
    "optimizer.name=adamm": "Did you mean 'adam",
    "policy.activation=rleu": "Did you mean 'relu'?",
    "policy.backward=backwards": "known: learned, maxent, pessimistic, tlm, uniform",
    # unknown keys
    "trainer.step=10": "did you mean 'trainer.steps'?",
    "optimiser.learning_rate=1": "did you mean 'optimizer.learning_rate'?",
    "lr=1": "did you mean 'optimizer.learning_rate'?",
    "hydra.run.dir=x": "did you mean 'run.dir'?",
    "+new.key=1": "unknown key 'new.key'",
    "env.items=9 env=set": "unknown key 'env.items'; env=set has env.number, env.size, env.stop",
    "env=set env.numbr=3": "did you mean 'env.number'?",
    "nonsense=1": "`twinax list keys` shows all of them",
    "proxy.mu=1": "'proxy.mu' belongs to proxy=corners",
    "network.depth=3": "policy.hidden=[256,256]",
    # wrong types and unreadable values
    "trainer.steps=many": "trainer.steps=many does not fit: it must be a whole number",
    "trainer.steps=1.5": "must be a whole number",
    "optimizer.learning_rate=fast": "must be a number",
    "optimizer.learning_rate=null": "must be a number",
    "optimizer.separate=maybe": "must be true or false",
    "logger=paper": "unknown logger 'paper'; known: mlflow, tensorboard, trackio, wandb",
    "logger=no.such.package:Sink": "there is no module 'no'",
    "trainer.env_steps=100": "takes no steps in an environment",
    "policy.hidden=64": "must be a list such as [256, 256]",
    "policy.hidden=[a,b]": "must be a list such as [256, 256]",
    "optimizer=adam": "'optimizer' is a section",
    "trainer.steps": "write key=value",
    "~seed": "write key=value",
    "seed=[1": "cannot be read",
    "seed=${nothing}": "write the value itself",
    "env.dim=" + "9" * 400: "env.dim has 1329 bits",
    "optimizer.learning_rate=" + "9" * 400: "at most 63",
    "parity.modes=[[1],2]": "unknown trainer.mode '[1]'",
    "gflownet.optimizer.lr_z_mult=ten": "could not convert string to float",
    # values that make no sense
    "optimizer.learning_rate=nan": "must be finite",
    "optimizer.learning_rate=-1": "not negative",
    "optimizer.beta1=1": "below 1",
    "optimizer.weight_decay=0.1": "needs name=adamw",
    "exploration.epsilon=1.5": "between 0 and 1",
    "objective=subtb objective.normalise=each": "unknown way to normalise subtrajectory_balance 'each'",
    "objective=tb objective.decay=0.5": "'objective.decay' belongs to objective=subtrajectory_balance",
    "objective=vargrad trainer.batch_size=1": "make it at least 2",
    "exploration.temperature=0": "exploration.temperature is 0.0; it must be between 1e-06",
    "objective=subtb objective.decay=0": "decay",
    "objective.log_z_init=inf": "finite",
    "seeds=2 trainer.mode=torch": "needs trainer.mode=jax",
    "trainer.noise=native": "needs trainer.mode=torch",
    # of PPO
    "experiment=ppo env=pendulum ppo.first_std=0": "first_std is 0.0; a deviation must be finite and above 0",
    "experiment=ppo env=pendulum ppo.first_std=-1": "first_std is -1.0",
    "experiment=ppo ppo.hidden=[] ppo.shared=true": "give it a width or use shared=false",
    "experiment=ppo ppo.hidden=[8,0]": "hidden is [8, 0]; every width must be at least 1",
    "experiment=ppo ppo.activation=sine": "unknown activation 'sine'",
    "experiment=ppo ppo.clip=-0.5": "clip is -0.5; it must be finite and above 0",
    "experiment=ppo ppo.value_clip=-1": "value_clip is -1.0; it must be finite and not negative",
    "experiment=ppo ppo.target_kl=-1": "target_kl is -1.0",
    "experiment=ppo ppo.ent_coef=-1": "ent_coef is -1.0",
    "experiment=ppo ppo.reward_scale=0": "reward_scale is 0.0; it must be finite and above 0",
    # rewards that are not finite, or zero
    "proxy=bands proxy.r0=0": "above 0",
    "proxy=bands proxy.r0=nan": "finite",
    "proxy=bands proxy.r2=inf": "finite",
    "proxy=bands proxy.r1=-3": "above 0",
    "proxy=uniform proxy.value=0": "above 0",
    "proxy=corners proxy.sigma=0": "sigma above 0",
}
"""Overrides of `twinax train` to a part of the sentence that they must give."""


def assert_one_sentence(done, part: str) -> None:
    assert done.code not in (0, 130)
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("error: ")
    assert part in done.err
    assert "Traceback" not in done.err + done.out


@pytest.mark.parametrize("overrides", WRONG_SETTINGS)
def test_wrong_settings(twinax, tmp_path, overrides):
    done = twinax("train", "--quiet", *overrides.split(" "))
    assert_one_sentence(done, WRONG_SETTINGS[overrides])
    assert done.code == 2
    assert list(tmp_path.iterdir()) == [], "a refused command must leave nothing behind"


WRONG_COMMANDS = {
    "trian": "Did you mean 'train'?",
    "train --fast": "unexpected argument '--fast'",
    "resume": "RUN",
    "resume nowhere": "there is no run directory nowhere",
    "eval nowhere": "there is no run directory nowhere",
    "report": "RUN",
    "report nowhere": "there is no run directory nowhere",
    "list everything": "known: all, choices, keys, runs",
    "list experiment=chess": "unknown experiment 'chess'",
    "parity parity.modes=[jax]": "at least two modes",
    "parity parity.modes=[jax,tpu]": "unknown trainer.mode 'tpu'",
    "compare compare.modes=[]": "compare.modes is empty",
    "compare compare.repeats=0": "compare.repeats is 0",
    "compare env.side=-3": "env.side is -3",
    "demo trainer.steps=0": "trainer.steps is 0",
    "doctor heal": "there is no file heal",
    "play --agent 99999999999999999999": "--agent is 99999999999999999999",
    "play --agent -1": "--agent is -1",
    f"train {'a' * 10_000}=1": "unknown key 'aaa",
    "sweep": "a sweep needs settings with several values",
    "sweep run.dir=nowhere": "holds no sweep to go on with",
    "sweep --cpus 0 seed=0,1": "--cpus is 0",
    "launch eval run": "it runs train or resume",
    "export nowhere policy.onnx": "there is no run directory nowhere",
    "data nowhere": "nowhere",
    "train experiment=ppo env=gymnasium env.id=a:b:c": "gymnasium cannot make env.id=a:b:c",
    "train experiment=ppo env=gymnasium env.id=:x": "gymnasium cannot make env.id=:x",
    "train experiment=ppo env=gymnasium env.id=no_such_module:x": "gymnasium cannot make",
}


@pytest.mark.parametrize("words", WRONG_COMMANDS)
def test_wrong_commands(twinax, tmp_path, words):
    done = twinax(*words.split(" "))
    assert_one_sentence(done, WRONG_COMMANDS[words])
    assert done.code == 2
    assert list(tmp_path.iterdir()) == []


def only_checkpoint(run: Path) -> Path:
    """Leave the newest checkpoint alone and return it."""
    *older, newest = sorted((run / "checkpoints").iterdir())
    for path in older:
        shutil.rmtree(path)
    return newest


def unsealed(config: Path) -> str:
    """A configuration without its sum: a person's own."""
    return config.read_text().split("\n", 1)[1]


def spoil(run: Path, how: str) -> None:
    """Damage a run in one way."""
    config, newest = run / "config.yaml", only_checkpoint(run)
    arrays, meta = newest / "state.safetensors", newest / "meta.json"
    match how:
        case "no config":
            config.unlink()
        case "config not yaml":
            config.write_text("a: [1,\nb: }")
        case "config not text":
            config.write_bytes(b"\xff\xfe\x00\x80")
        case "config empty":
            config.write_text("")
        case "config of another version":
            config.write_text(unsealed(config) + "flux: 3\n")
        case "config without names":
            config.write_text("experiment: gflownet\n")
        case "config of another experiment":
            config.write_text("experiment: chess\n")
        case "config edited":
            config.write_text(config.read_text().replace("side: 3", "side: 4"))
        case "config of another size":
            config.write_text(unsealed(config).replace("side: 3", "side: 4"))
        case "config with a wrong type":
            config.write_text(unsealed(config).replace("side: 3", "side: three"))
        case "config of another seed":
            config.write_text(unsealed(config).replace("seed: 0", "seed: 5"))
        case "arrays truncated":
            arrays.write_bytes(arrays.read_bytes()[:100])
        case "arrays edited":
            content = bytearray(arrays.read_bytes())
            content[-1] ^= 1
            arrays.write_bytes(content)
        case "arrays missing":
            arrays.unlink()
        case "meta truncated":
            meta.write_text(meta.read_text()[:50])
        case "meta of another format":
            meta.write_text(json.dumps({**json.loads(meta.read_text()), "format": 99}))
        case "no checkpoint":
            shutil.rmtree(run / "checkpoints")


DAMAGES = {
    "no config": "config.yaml",
    "config not yaml": "config.yaml cannot be read",
    "config not text": "config.yaml cannot be read",
    "config empty": "not a configuration",
    "config of another version": "'flux'",
    "config without names": ".name",
    "config of another experiment": "it has experiment=chess",
    "config edited": "config.yaml was changed after it was written",
    "config of another size": "shape",
    "config of another seed": "seed=5",
    "config with a wrong type": "'three'",
    "arrays truncated": "none of its 1 checkpoints is usable",
    "arrays edited": "none of its 1 checkpoints is usable",
    "arrays missing": "none of its 1 checkpoints is usable",
    "meta truncated": "none of its 1 checkpoints is usable",
    "meta of another format": "none of its 1 checkpoints is usable",
    "no checkpoint": "it has no checkpoint",
}


@pytest.mark.parametrize("command", ["resume", "eval"])
@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_runs(twinax, trained, command, how):
    shutil.copytree(trained, "run")
    spoil(Path("run"), how)
    before = (Path("run") / "metrics.jsonl").read_bytes()
    done = twinax(command, "run", "trainer.steps=9")
    warnings = [line for line in done.err.splitlines() if line.startswith("warning: ")]
    assert all("refused" in line for line in warnings)
    done = type(done)(done.code, done.out, done.err.removeprefix("".join(line + "\n" for line in warnings)))
    assert_one_sentence(done, DAMAGES[how])
    assert (Path("run") / "metrics.jsonl").read_bytes() == before, "a refused run stays as it was"


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("objective=db", "objective=detailed_balance cannot change"),
        ("seed=3", "'seed=3' cannot change"),
        ("run.dir=elsewhere", "'run.dir=elsewhere' cannot change"),
        ("trainer.steps=3", "nothing is left to do"),
        ("trainer.dtype=float64", "cannot go on with dtype=float64"),
        ("trainer.stepps=9", "did you mean 'trainer.steps'?"),
    ],
)
def test_resume_refuses_what_cannot_change(twinax, trained, override, part):
    shutil.copytree(trained, "run")
    assert_one_sentence(twinax("resume", "run", override), part)


def test_a_run_is_never_overwritten(twinax, trained, tiny):
    shutil.copytree(trained, "run")
    before = sorted((path, path.stat().st_mtime_ns) for path in Path("run").rglob("*"))
    done = twinax("train", "--quiet", *tiny, "trainer.steps=1", "run.dir=run")
    assert_one_sentence(done, "already holds a training")
    assert before == sorted((path, path.stat().st_mtime_ns) for path in Path("run").rglob("*"))


def test_run_directory_is_a_file(twinax, tiny):
    Path("taken").write_text("mine")
    for target in ("taken", "taken/below"):
        done = twinax("train", "--quiet", *tiny, "trainer.steps=1", f"run.dir={target}")
        assert_one_sentence(done, "taken")
    assert Path("taken").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_run_directory_is_read_only(twinax, tiny):
    Path("locked").mkdir(mode=0o500)
    done = twinax("train", "--quiet", *tiny, "trainer.steps=1", "run.dir=locked/run")
    assert_one_sentence(done, "choose a run.dir that you may write to")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that nobody can write to")
def test_run_directory_on_a_file_system_without_writing(twinax, tiny):
    done = twinax("train", "--quiet", *tiny, "trainer.steps=1", "run.dir=/proc/twinax")
    assert_one_sentence(done, "/proc/twinax")
    assert done.code == 1


@pytest.mark.parametrize("limit", [0, 3000])
def test_full_disk(twinax, trained, limit):
    """The system refuses to write beyond a size, as a full disk does; what was saved before stays usable."""
    shutil.copytree(trained, "run")
    before = {path: path.read_bytes() for path in Path("run/checkpoints").rglob("*") if path.is_file()}
    old_limit, old_handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old_limit[1]))
    try:
        done = twinax("resume", "run", "trainer.steps=9", "--quiet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert_one_sentence(done, "cannot write")
    assert done.code == 1
    assert before == {path: path.read_bytes() for path in Path("run/checkpoints").rglob("*") if path.is_file()}
    assert twinax("eval", "run", "--seed", "0").code == 0


@pytest.mark.parametrize(
    ("package", "words", "part"),
    [
        ("torch", "train trainer.mode=torch", "pip install 'twinax[torch]'"),
        ("torch", "train trainer.mode=hybrid", "pip install 'twinax[torch]'"),
        ("torch", "train trainer.mode=legacy env=grid", "pip install 'twinax[torch]'"),
        ("torch", "parity env=grid", "pip install 'twinax[torch]'"),
        ("tensorboard", "train logger=tensorboard env=grid trainer.steps=1", "pip install 'twinax[tensorboard]'"),
        ("wandb", "train logger=[tensorboard,wandb] env=grid trainer.steps=1", "pip install 'twinax[wandb]'"),
        ("mlflow", "train logger=mlflow env=grid trainer.steps=1", "pip install 'twinax[mlflow]'"),
        ("trackio", "train logger=trackio env=grid trainer.steps=1", "pip install 'twinax[trackio]'"),
        ("matplotlib", "report {run}", "pip install 'twinax[plots]'"),
    ],
)
def test_missing_extras(twinax, trained, monkeypatch, package, words, part):
    real = importlib.util.find_spec
    missing = lambda name, *rest: None if name.split(".")[0] == package else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    monkeypatch.setitem(sys.modules, package, None)
    assert_one_sentence(twinax(*words.format(run=trained).split(" ")), part)


def test_a_loss_that_is_not_finite(twinax, tiny):
    done = twinax("train", "--quiet", *tiny, "trainer.steps=50", "optimizer.learning_rate=1e38", "run.dir=run")
    assert_one_sentence(done, "no longer finite")
    assert done.code == 1
    assert list(Path("run/checkpoints").iterdir()), "the last good checkpoint stays"


def test_out_of_memory_is_a_sentence(twinax, monkeypatch):
    def exhausted(*_, **__):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 99999999999 bytes")

    monkeypatch.setattr("twinax.runs.trainer.train", exhausted)
    done = twinax("train", "env=grid", "trainer.steps=1")
    assert_one_sentence(done, "not enough memory")


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (RuntimeError("Unable to initialize backend 'x': it is not there. (set JAX_PLATFORMS='')"), "it is not there)"),
        (ImportError("libtorch.so: cannot open"), "a library cannot be imported (libtorch.so: cannot open)"),
    ],
)
def test_machines_without_what_was_asked_for(twinax, tiny, monkeypatch, error, part):
    def devices(*_):
        raise error

    import jax

    jax.devices()  # before it is asked for others
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", devices)
    assert_one_sentence(twinax("train", *tiny, "trainer.steps=1"), part)
    done = twinax("doctor")
    assert done.code == 1 and str(error).partition(" (")[0].rstrip(".") in done.out
    assert "optax" in done.out and "GFLOP/s" in done.out, "everything else is still there"


def test_a_machine_without_cuda(python):
    """As it really is: JAX fails an assertion that says nothing, and XLA ends the process."""
    done = python("-m", "twinax.cli", "doctor", "--quick", JAX_PLATFORMS="cuda", XLA_FLAGS="--nonsense=1")
    assert done.code == 1 and "Traceback" not in done.err and "optax" in done.out
    assert "JAX_PLATFORMS=cuda asks for devices that JAX cannot use here" in done.out
    assert "XLA_FLAGS=--nonsense=1 ends every process that uses JAX (Unknown flag" in done.out


def test_an_old_jax_is_told(monkeypatch):
    from twinax.cli import _doctor

    monkeypatch.setattr(_doctor, "version", lambda name: "0.4.30")
    assert "jax 0.4.30 is too old, 0.8 or newer is needed" in str(_doctor.old_jax())


def test_debugging_shows_the_traceback(twinax, monkeypatch):
    from twinax.errors import TwinaxError

    monkeypatch.setenv("TWINAX_DEBUG", "1")
    with pytest.raises(TwinaxError, match="env.side is -3"):
        twinax("train", "env.side=-3")
