"""Peptides: the file of known ones, families and their split, the trained proxy, and what it pays."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from twinax import ops
from twinax.bridge import save_weights
from twinax.commands import _amp
from twinax.commands._made_files import made
from twinax.conf import build_problem, compose
from twinax.envs import Peptides, check_env
from twinax.envs.peptide_proxy import LETTERS, PeptideProxy, read_weights
from twinax.errors import TwinaxError

HEADER = "3,1,UniProt,AMP\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("proxy") / "amp.safetensors"
    save_weights(path, PeptideProxy.init(np.random.default_rng(0)))
    return str(path)


def rows_of(*peptides: str) -> np.ndarray:
    rows = np.full((len(peptides), 60), -1, np.int32)
    for row, peptide in zip(rows, peptides, strict=True):
        row[: len(peptide)] = [LETTERS.index(letter) for letter in peptide]
    return rows


def slow_logit(proxy: PeptideProxy, peptide: str) -> float:
    """The proxy written out for one peptide, in float64."""

    def layer(part, x):
        return np.asarray(part.weight, np.float64) @ x + np.asarray(part.bias, np.float64)

    padded, seen = ["-"] * 2 + list(peptide) + ["-"] * 2, []
    for k in range(len(peptide)):
        x = np.zeros((5, 21))
        for place, letter in enumerate(padded[k : k + 5]):
            x[place, 20 if letter == "-" else LETTERS.index(letter)] = 1
        hidden = np.maximum(layer(proxy.windows.layers[0], x.reshape(-1)), 0)
        seen.append(np.maximum(layer(proxy.windows.layers[1], hidden), 0))
    pooled = np.concatenate([np.mean(seen, 0), np.max(seen, 0), [len(peptide) / 60]])
    return float(layer(proxy.head.layers[1], np.maximum(layer(proxy.head.layers[0], pooled), 0))[0])


def test_peptides_are_paid_by_the_proxy(file):
    peptides = ("GLWSKIKEVGKEAAKAAAKAAG", "KK", "W" * 60)
    env, proxy = Peptides(file), PeptideProxy.init(np.random.default_rng(0))
    states = env.states_of(rows_of(*peptides))
    logits = np.array([slow_logit(proxy, peptide) for peptide in peptides])
    np.testing.assert_allclose(env.logit(states), logits, rtol=1e-9)
    np.testing.assert_allclose(np.exp(env.log_reward(states)), 1 / (1 + np.exp(-logits)), rtol=1e-9)
    steep = Peptides(file, exponent=50.0, least_reward=1e-3)
    np.testing.assert_allclose(
        np.exp(steep.log_reward(states)), np.maximum((1 + np.exp(-logits)) ** -50.0, 1e-3), rtol=1e-9
    )
    assert [env.text(env.objects(states), row) for row in range(3)] == list(peptides)
    assert env.distance(states.letters[:1], states.letters[1:2]).tolist() == [[len(peptides[0]) - 2]]


def test_every_framework_pays_alike(file):
    torch = pytest.importorskip("torch")
    env = Peptides(file)
    check_env(env, quick=True)
    states = env.states_of(rows_of("GLWSKIKE", "ACDEFGHIKLMNPQRSTVWY"))
    here = env.log_reward(ops.like(states, torch.zeros(())))
    np.testing.assert_allclose(np.asarray(here), env.log_reward(states), rtol=1e-12)


def test_peptides_end_from_seven_letters_on(file):
    env = Peptides(file)
    assert (env.max_steps, env.num_actions, env.stops, env.fixed_length) == (61, 21, True, False)
    small = Peptides(file, length=2, min_length=1)
    assert check_env(small, quick=True).done == 20 + 400
    with pytest.raises(TwinaxError, match="at most 60"):
        Peptides(file, length=61)


def test_the_command_line_takes_the_weights_as_data(file):
    problem = build_problem(compose(["env=amp", f"data={file}", "env.length=20"]))
    assert problem.env == Peptides(file, length=20)
    with pytest.raises(TwinaxError, match=r"env.file is not given.*twinax data amp"):
        build_problem(compose(["env=amp"]))


def test_weights_that_do_not_fit_are_one_sentence(file, tmp_path):
    from safetensors.numpy import load_file, save_file

    arrays = load_file(file)
    first = sorted(arrays)[0]
    save_file({**arrays, first: arrays[first][:1]}, tmp_path / "shape.safetensors")
    save_file({**arrays, first: np.full_like(arrays[first], np.nan)}, tmp_path / "nan.safetensors")
    (tmp_path / "noise.safetensors").write_bytes(b"noise")
    for name, sentence in {
        "shape": f"the array '{first}' has the shape",
        "nan": "not finite",
        "noise": "not a whole safetensors file",
        "none": "no such file",
    }.items():
        with pytest.raises(TwinaxError, match=sentence) as error:
            read_weights(tmp_path / f"{name}.safetensors")
        assert "\n" not in str(error.value)


def test_known_peptides_are_read_once_each():
    text = HEADER + "ACD, 1\nACD, 1\nKLM, 0\nWW, 1\nWW, 0\n" + "A" * 61 + ", 0\n"
    rows, classes = _amp.parse(text.encode(), "text")
    np.testing.assert_array_equal(rows, rows_of("ACD", "KLM"))
    assert classes.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEADER + "ACB, 1\n", "line 2: 'ACB, 1' is no peptide"),
        (HEADER + "ACD, 1\nKLM, 2\n", "line 3"),
        (HEADER + "ACD, 1\n", "not both kinds"),
        (HEADER, "among 0 peptides"),
    ],
)
def test_a_file_of_peptides_that_is_wrong_is_one_sentence(text, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        _amp.parse(text.encode(), "text")


def test_families_are_chains_of_relatives_and_stay_together():
    rows = rows_of("ACDEFGHIKL", "WWWYYYSSS", "GHIKLMNPQR", "MNPQRSTVWY", "CCCCCC", "DE", "DE")
    family = _amp.families(rows)
    assert family[0] == family[2] == family[3]  # the first and the last have nothing in common
    assert len(set(family.tolist())) == 5
    many = np.repeat(np.arange(50), np.random.default_rng(0).integers(1, 9, 50))
    held = _amp.split(many)
    assert not set(many[held]) & set(many[~held])
    assert 0.2 <= held.mean() < 0.3


def test_auc_is_a_share_of_pairs():
    rng = np.random.default_rng(0)
    scores, classes = rng.integers(0, 5, 40).astype(float), rng.integers(0, 2, 40)
    ones, zeros = scores[classes == 1], scores[classes == 0]
    pairs = (ones[:, None] > zeros).mean() + (ones[:, None] == zeros).mean() / 2
    assert _amp.auc(scores, classes) == pytest.approx(pairs)


def test_a_wheel_becomes_a_proxy_that_tells_strangers_apart(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = []
    for label, letters in ((1, "KRLWIAGF"), (0, "DESTNQPA")):
        for _ in range(60):
            lines.append(f"{''.join(rng.choice(list(letters), rng.integers(10, 30)))}, {label}")
    with zipfile.ZipFile(tmp_path / "modlamp.whl", "w") as archive:
        archive.writestr(_amp.MEMBER, HEADER + "\n".join(lines) + "\n")
    monkeypatch.setattr(_amp, "STEPS", 100)
    out = tmp_path / "amp.safetensors"
    facts = made("amp", [str(tmp_path / "modlamp.whl"), str(out)])
    assert float(facts["held out"].rpartition(" ")[2]) > 0.95
    env = Peptides(str(out))
    first, second = env.logit(env.states_of(rows_of("KRLWKRLWKRLW", "DESTDESTDEST"))).tolist()
    assert first > 0 > second


def test_real_peptides_are_told_apart(tmp_path):
    wheels = list(Path(os.environ.get("TWINAX_DATA") or tmp_path).glob("modlamp-4.3.3*.whl"))
    if not wheels:
        pytest.skip("real data: TWINAX_DATA names no directory with the wheel of modlamp 4.3.3")
    facts = made("amp", [str(wheels[0]), str(tmp_path / "amp.safetensors")])
    assert facts["peptides"].startswith("4,428 distinct ones")
    assert float(facts["held out"].rpartition(" ")[2]) > 0.8
