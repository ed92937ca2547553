"""`twinax port`: an agent of somebody's, looked at from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

AGENT = """
import torch
from torch import nn

import twinax as tx


def loss(agent, batch):
    return (agent(batch["x"]) - batch["y"]).square().mean(), {"size": batch["y"].abs().mean()}


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient


def wrong_loss(agent, batch):
    return Wrong.apply(agent(batch["x"])).sum()


def made(loss, **more):
    torch.manual_seed(0)
    agent = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    batch = {"x": torch.randn(5, 3), "y": torch.randn(5, 1)}
    return tx.port.Agent(agent, batch, loss, torch.optim.Adam(agent.parameters(), 0.01), **more)


def make():
    return made(loss, sample=lambda: torch.randn(5, 3), clip_norm=1.0)


def wrong():
    return made(wrong_loss)


def pair():
    agent = nn.Bilinear(3, 2, 4)
    return agent, torch.randn(5, 3), torch.randn(5, 2)


def nothing():
    return 3


def picks():
    return made(lambda agent, batch: agent(batch["x"])[batch["y"][:, 0] > 0].sum())
"""


@pytest.fixture(autouse=True)
def agent(tmp_path: Path) -> Path:
    path = tmp_path / "my_agent.py"
    path.write_text(AGENT, encoding="utf-8")
    return path


def test_an_agent_is_proven_and_measured(twinax, tmp_path):
    done = twinax("port", "my_agent.py:make", "--turns", "2", "--json", "about.json")
    assert done.code == 0, done.err
    for part in ("aten.tanh.default", "gradients", "update by the step", "sampling", "x at most while sampling stays"):
        assert part in done.out
    about = json.loads((tmp_path / "about.json").read_text(encoding="utf-8"))
    assert about["functions"]["loss"]["operators"]["aten.linear.default"] == 2
    assert about["profile"]["ceiling"] >= 1 and about["profile"]["step"].keys() == {"convert", "compute", "sync"}
    assert json.dumps(about, allow_nan=False)


def test_a_module_and_its_inputs_are_enough(twinax):
    done = twinax("port", "my_agent.py:pair", "--json", "about.json")
    assert done.code == 0 and "Bilinear:" in done.out and "update" not in done.out


def test_a_proof_that_fails_is_exit_code_1(twinax):
    done = twinax("port", "my_agent.py:wrong")
    assert done.code == 1 and "differ" in done.out and "update by the step" not in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "write twinax port agent.py:make, or twinax port --operators"),
        (("my_agent.py",), "names no function; write the file and the function"),
        (("other.py:make",), "there is no file other.py"),
        (("my_agent.py:mak",), "Did you mean 'make'"),
        (("my_agent.py:nothing",), "gave a int; return a twinax.port.Agent, or a tuple"),
        (("my_agent.py:picks",), "a mask that is computed"),
        (("no_such_package.agents:make",), "no_such_package"),
        (("my_agent.py:make", "my_agent.py:pair"), "one agent is ported at a time"),
    ],
)
def test_what_cannot_be_ported_is_one_sentence(twinax, words, said):
    done = twinax("port", *words)
    told = " ".join(done.err.split())
    assert done.code and said in told and "Traceback" not in told, told


def test_the_table_of_operators(twinax):
    done = twinax("port", "--operators")
    assert done.code == 0 and "aten.convolution.default" in done.out and "in the table" in done.out
