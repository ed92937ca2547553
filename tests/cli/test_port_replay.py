"""`twinax port replay` and `twinax port --audit`, as people type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

AGENT = """
import jax.numpy as jnp
import torch
import twinax as tx


def loss(module, batch):
    error = module(batch["x"]) - batch["y"]
    return (error**2).mean(), {"size": error.abs().mean()}


def make():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    batch = {"x": torch.randn(5, 3), "y": torch.randn(5, 2)}
    return tx.port.Agent(module, batch, loss, torch.optim.AdamW(module.parameters(), 0.01))


def jax_loss(params, batch, scale=1.0):
    import jax

    hidden = jax.nn.gelu(batch["x"] @ params["0.weight"].T + params["0.bias"], approximate=False)
    return scale * ((hidden @ params["2.weight"].T + params["2.bias"] - batch["y"]) ** 2).mean()


def half(params, batch):
    return jax_loss(params, batch, 0.5)
"""


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "agent_of_a_person.py").write_text(AGENT, encoding="utf-8")
    return "agent_of_a_person.py:make"


@pytest.fixture
def record(agent, tmp_path, monkeypatch):
    import torch

    from twinax.port import Recorder, make_agent

    monkeypatch.chdir(tmp_path)
    made = make_agent(agent)
    with Recorder("record", made.module, made.optimizer) as recorder:
        for _ in range(3):
            batch = {"x": torch.randn(5, 3), "y": torch.randn(5, 2)}
            value, terms = made.loss(made.module, batch)
            made.optimizer.zero_grad()
            value.backward()
            recorder.step(batch, loss=value, terms=terms)
            made.optimizer.step()
    return "record"


def test_a_replay_says_whether_jax_would_have_trained_the_same(twinax, agent, record):
    done = twinax("port", "replay", record, agent, "--json", "replay.json")
    assert done.code == 0, done.err
    assert "agree over 3 training steps" in done.out and "3 steps in float32" in done.out
    assert json.loads(Path("replay.json").read_text())["ok"]


def test_a_port_by_hand_is_judged(twinax, agent, record):
    done = twinax("port", "replay", record, agent, "--against", "agent_of_a_person.py:jax_loss", "--steps", "2")
    assert done.code == 0 and "agree over 2 training steps" in done.out
    done = twinax("port", "replay", record, agent, "--against", "agent_of_a_person.py:half")
    assert done.code == 1 and "a factor of two" in done.out and "in step 1" in done.out


def test_an_audit_lists_what_differs(twinax, agent):
    done = twinax("port", agent, "--audit", "--json", "audit.json")
    assert done.code == 0, done.err
    for said in ("gelu", "tanh approximation", "weight decay of AdamW", "lecun_normal"):
        assert said in done.out
    rows = json.loads(Path("audit.json").read_text())
    assert {row["library"] for row in rows} >= {"flax.linen, flax.nnx", "jax.nn", "optax"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["replay"], "a replay needs a record and an agent; write twinax port replay RECORD agent.py:make"),
        (["replay", "nowhere", "{agent}"], "there is no record in nowhere"),
        (["replay", "nowhere", "{agent}", "--steps", "0"], "--steps is 0; it must be at least 1"),
        (["{agent}", "--against", "a.py:b"], "--against and --steps belong to a replay"),
        (["replay", "nowhere", "missing.py:make"], "there is no"),
    ],
)
def test_mistakes_are_one_sentence(twinax, agent, words, said):
    done = twinax("port", *(word.format(agent=agent) for word in words))
    assert done.code == 2 and done.err.startswith("error: ") and said in done.err and done.err.count("\n") == 1
