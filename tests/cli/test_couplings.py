"""Couplings that are learned from a file, as people ask for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import twinax as tx
from twinax import conf
from twinax.gflownet import EnergyOptions

SMALL = (
    "env=ising",
    "env.side=2",
    "proxy=learned_couplings",
    "energy.batch_size=4",
    "policy.hidden=[8]",
    "metrics.samples=4",
    "metrics.fifo=8",
    "trainer.batch_size=2",
    "trainer.mode=torch",
    "run.dir=r",
)


def data(path: str = "spins.npz") -> None:
    world = tx.envs.Ising(2, sigma=0.3)
    np.savez(path, spins=tx.envs.sample_spins(world, 20, sweeps=5), couplings=world.couplings())


def test_a_run_learns_from_a_file_that_it_keeps(twinax):
    data()
    shown = twinax("train", *SMALL, "proxy.data=spins.npz", "trainer.steps=2")
    assert shown.code == 0 and "coupling_accuracy" in shown.out and "data_log_likelihood" in shown.out, shown.err
    Path("spins.npz").unlink()
    assert twinax("resume", "r", "trainer.steps=3").code == 0
    rows = [json.loads(line) for line in Path("r/metrics.jsonl").read_text().splitlines()]
    assert all(0 <= row["acceptance"] <= 1 for row in rows) and len(rows) == 3


def test_any_number_of_spins_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savetxt("three.csv", [[1, 1, -1], [1, 1, 1]], fmt="%d", delimiter=",")
    made = conf.build_problem(conf.compose(["env=spins", "env.number=3", "proxy.data=three.csv"]))
    assert made.learns_energy and made.env.places == 3


@pytest.mark.slow
def test_a_report_shows_true_and_learned_couplings(twinax):
    data()
    assert twinax("train", *SMALL, "proxy.data=spins.npz", "trainer.steps=2").code == 0
    assert twinax("report", "r").code == 0
    page = Path("r/report.html").read_text()
    assert "-log RMSE of J" in page and "Couplings J" in page and "Pseudo-likelihood" in page


def test_the_published_settings():
    made = conf.build_problem(conf.compose(["env=learned_ising"]))
    assert made.env.env == tx.envs.Ising(10, sigma=0.1) and made.env.reward == tx.envs.LearnedCouplings(samples=2000)
    assert made.energy == EnergyOptions(batch_size=256, l1=0.1) and made.batch_size == 256
    assert made.optimizer.rates == {"log_z": 1e-3, "energy": 1e-4} and made.optimizer.learning_rate == 1e-2
    assert made.policy.hidden == (256,) * 4 and made.objective.residual_loss == "half"
    # Where nothing is learned there is no step size for it.
    assert conf.build_problem(conf.compose(["env=ising"])).optimizer.rates == {"log_z": 0.1}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["proxy.data=none.npz"], "none.npz cannot be read: No such file or directory"),
        (["proxy.data=spins.npz", "env.side=3"], "the data have 4 columns, but the world has 9 spins"),
        (["proxy.data=bits.npy"], "spins are -1 or 1; of zeros and ones, 2 x - 1 makes spins"),
        (["energy.steps=-1"], "energy.steps is -1; it must be at least 0"),
        (["proxy=own", "energy.l1=0.1"], "energy says how a reward is learned from data"),
    ],
)
def test_what_does_not_fit_is_one_sentence(twinax, words, sentence):
    data()
    np.save("bits.npy", np.ones((3, 4)) * [0, 1, 0, 1])
    shown = twinax("train", *SMALL, *words, "trainer.steps=1")
    assert shown.code != 0 and shown.err.strip().count("\n") == 0 and sentence in shown.err, shown.err
    assert not Path("r").exists()


def test_another_world_has_no_couplings(twinax):
    shown = twinax("train", "env=set", *SMALL[2:])
    assert shown.code != 0 and "LearnedCouplings pays spins, and Sets has none" in shown.err
