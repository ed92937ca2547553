"""Worlds, rewards, networks and objectives of somebody else, from the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

import twinax as tx
from twinax import conf
from twinax.cli import main
from twinax.errors import TwinaxError

MODULE = '''
"""What a person brings: a world of words, a PyTorch module that pays, a network and an objective."""
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import torch

import twinax as tx
from twinax import networks, ops


class Word(NamedTuple):
    letters: Any
    length: Any
    done: Any


@dataclasses.dataclass(frozen=True)
class Words(tx.envs.Environment):
    length: int
    """Letters of a word."""
    num_actions = 2
    num_backward_actions = 1
    stops = False

    @property
    def max_steps(self):
        return self.length

    def reset(self, batch):
        return Word(np.full((batch, self.length), -1, np.int32), np.zeros(batch, np.int32), np.zeros(batch, bool))

    def place(self, length, like):
        return ops.arange(self.length, like)[None] == length[:, None]

    def step(self, state, action):
        here = self.place(state.length, state.letters) & ~state.done[:, None]
        length = state.length + ops.cast(~state.done, "int32")
        return Word(ops.where(here, action[:, None], state.letters), length, length == self.length)

    def backward_step(self, state, action):
        length = state.length - 1
        letters = ops.where(self.place(length, state.letters), -1, state.letters)
        return Word(letters, length, state.done & False)

    def forward_mask(self, state):
        return ops.stack([~state.done, ~state.done], -1)

    def backward_mask(self, state):
        return (state.length > 0)[:, None]

    def backward_action(self, state, action):
        return action * 0

    def forward_action(self, state, action):
        last = ops.where(self.place(state.length - 1, state.letters), state.letters, 0)
        return ops.cast(ops.sum(last, -1), "int32")

    def observe(self, state):
        return state.letters + 1 + 3 * ops.arange(self.length, state.letters)[None]

    def objects(self, state):
        return state.letters


class Proxy(torch.nn.Module):
    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.scale = scale

    def forward(self, letters):
        return torch.exp(self.scale * letters.double().mean(-1))


class Reader(eqx.Module):
    embed: Any
    attend: Any
    head: Any

    def __call__(self, letters):
        return self.head(ops.mean(self.attend(self.embed(letters)), -2))


@dataclasses.dataclass(frozen=True)
class Attention:
    width: int = 8
    heads: int = 2

    def __call__(self, rng, spec):
        letters = 3 * spec.observation.shape[-1]
        return Reader(
            networks.Embedding.init(rng, letters, self.width),
            networks.TransformerEncoder.init(rng, 1, self.width, self.heads, 2 * self.width),
            networks.Linear.init(rng, self.width, spec.outputs),
        )


@dataclasses.dataclass(frozen=True)
class Huber(tx.gflownet.objectives.TrajectoryBalance):
    delta: float = 1.0
    """Residuals beyond this count in proportion."""

    def __call__(self, s):
        residual = ops.abs(s.log_z + ops.sum(s.log_pf - s.log_pb, 0) - s.log_reward)
        far = 2 * self.delta * residual - self.delta**2
        return ops.mean(ops.where(residual < self.delta, ops.square(residual), far)), tx.Terms()


def worth(letters, scale=1.0):
    return np.exp(scale * letters.mean(-1))


class Half(tx.envs.Environment):
    pass


def blind(rng, spec):
    return networks.Linear.init(rng, 99, spec.outputs)


def narrow(rng, spec):
    return networks.Linear.init(rng, 3, spec.outputs + 1)


answer = 42
'''
OWN = ["env=bring:Words", "env.length=3", "proxy=bring:Proxy", "proxy.scale=2"]
OWN += ["policy.network=bring:Attention", "policy.network_options={heads: 4}", "objective=bring:Huber"]
SMALL = ["objective.delta=2", "trainer.batch_size=8", "metrics.samples=16", "metrics.fifo=32"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A directory with the module of that person in it."""
    (tmp_path / "bring.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_a_person_brings_is_trained_resumed_elsewhere_and_reported(here):
    words = ["--quiet", *OWN, *SMALL, "trainer.steps=3", "trainer.mode=torch", "run.dir=run"]
    assert main(["train", *words]) == 0
    assert main(["resume", "run", "--quiet", "trainer.mode=hybrid", "trainer.steps=5"]) == 0
    assert main(["eval", "run", "--seed", "1"]) == 0
    assert main(["report", "run"]) == 0
    assert main(["list", "keys", *OWN]) == 0
    summary = json.loads((here / "run" / "summary.json").read_text())
    assert summary["steps"] == 5 and summary["problem"]["objective"] == "Huber" and summary["total_variation"] < 1
    stored = conf.restore_run(here / "run")
    assert (stored.env.name, stored.env.length, stored.proxy.scale) == ("bring:Words", 3, 2)
    assert stored.policy.network_options == {"heads": 4} and stored.objective.delta == 2


def test_engines_agree_on_what_a_person_brings(here):
    assert main(["parity", *OWN, *SMALL, "parity.modes=[torch,hybrid]", "parity.steps=2", "run.dir=proof"]) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["env=bring:Words"], "env.length has no value, and nothing stands in for it; give one with env.length=VALUE"),
        (["env=bring:Proxy"], "env=bring:Proxy makes a Proxy; a world is a tx.envs.Environment"),
        (["env=bring:Half"], "env=bring:Half cannot be made: Can't instantiate abstract class Half"),
        (["env=bring.Words"], "unknown env 'bring.Words'; known: grid, hypergrid, package.module:Name"),
        ([*OWN[:2], "proxy=hard"], "GridReward pays for positions on a grid, and Words has none"),
        ([*OWN[:3], "policy.network=bring:blind"], "blind fails on an observation of shape .1, 3.: ValueError"),
        (["env=bring:answer"], "environment 'bring:answer' is a int; name a class"),
        ([*OWN[:3], "policy.network=bring:narrow"], "as policy it needs 3 columns"),
        ([*OWN[:3], "policy.network=bring:Attention", "policy.network_options={wide: 1}"], "cannot be made with its"),
        ([*OWN[:3], "policy.network=attention"], "unknown policy.network 'attention'; known: graph, mlp, package.mod"),
        ([*OWN[:3], "policy.network_options={a: 1}"], "network_options are those of a network other than mlp"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_it_is_one_sentence(here, words, sentence):
    with pytest.raises((TwinaxError, ValueError), match=sentence):
        problem = conf.build_problem(conf.compose([*words, "trainer.batch_size=8"]))
        problem.init(0)
        problem.prove.check("torch")


def test_an_option_of_ones_own_is_not_taken_for_an_older_name(here):
    """`env.length` is another library's name for `env.side`, unless the world has a length."""
    assert conf.compose(["env.length=7"]).env.side == 7
    assert conf.compose(["env=bring:Words", "env.length=7"]).env.length == 7


def test_a_reward_may_be_the_function_itself(here):
    config = conf.compose([*OWN[:2], "proxy=bring:worth", "proxy.scale=2", "trainer.batch_size=8"])
    problem = conf.build_problem(config)
    done = problem.env.reset(1)._replace(letters=np.ones((1, 3), np.int32), done=np.ones(1, bool))
    np.testing.assert_allclose(problem.env.log_reward(done), 2.0)
    assert vars(conf.restore(conf.as_dict(config), trust=True).proxy) == {"name": "bring:worth", "scale": 2}


def test_a_class_is_no_factory(here):
    import bring

    problem = tx.gflownet.problem(bring.Words(3), reward=bring.worth, network=bring.Attention)
    with pytest.raises(TwinaxError, match="network is the class Attention; give .* an object of it, Attention"):
        problem.init(0)
