"""A reward that is somebody's function: what it is asked, what it may answer, and what is said when it goes wrong."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from twinax.envs import BlackBox, Hypergrid, Uniform, check_env, enumerate_states
from twinax.errors import TwinaxError

sys.path.insert(0, str(Path(__file__).parent))
from small_worlds import BitStrings

GRID = Hypergrid(dim=2, side=4)


class Counted:
    """A function of cells that remembers each batch that it was asked for."""

    def __init__(self, answer=lambda cells: 1.0 + cells.sum(1)):
        self.answer, self.batches = answer, []

    def __call__(self, cells):
        self.batches.append(np.array(cells))
        return self.answer(cells)

    @property
    def asked(self):
        return [tuple(cell) for batch in self.batches for cell in batch.tolist()]


def states(*cells):
    return GRID.reset(len(cells))._replace(position=np.array(cells, np.int32), done=np.ones(len(cells), bool))


# What it is asked


def test_each_object_is_asked_for_once_in_a_batch_and_over_all_batches():
    function = Counted()
    env = GRID.with_reward(function)
    paid = env.log_reward(states((1, 2), (0, 0), (1, 2)))
    assert np.exp(paid) == pytest.approx([4.0, 1.0, 4.0]) and paid.dtype == np.float64
    assert function.asked == [(1, 2), (0, 0)]
    assert np.exp(env.log_reward(states((3, 3), (0, 0)))) == pytest.approx([7.0, 1.0])
    assert function.asked == [(1, 2), (0, 0), (3, 3)]
    env.log_reward(states((1, 2), (3, 3)))
    assert len(function.batches) == 2, "nothing new was asked, so there is no call"


def test_pieces_have_at_most_the_batch_size():
    function = Counted()
    cells = [(i, j) for i in range(4) for j in range(4)][:7]
    paid = BlackBox(function, batch_size=3).log_reward(GRID, states(*cells))
    assert [len(batch) for batch in function.batches] == [3, 3, 1]
    assert np.exp(paid) == pytest.approx([1.0 + sum(cell) for cell in cells])


def test_the_cache_is_bounded_and_forgets_what_was_not_asked_for_the_longest():
    function = Counted()
    box = BlackBox(function, cache=2)
    for cell in ((0, 0), (1, 1), (0, 0), (2, 2), (0, 0), (1, 1)):
        box.log_reward(GRID, states(cell))
    assert function.asked == [(0, 0), (1, 1), (2, 2), (1, 1)]
    assert np.exp(box.log_reward(GRID, states((0, 1), (0, 2), (0, 3)))) == pytest.approx([2.0, 3.0, 4.0])
    assert len(box._known) == 2


def test_without_a_cache_a_batch_still_has_each_object_once():
    function = Counted()
    box = BlackBox(function, cache=0)
    for _ in range(2):
        box.log_reward(GRID, states((1, 0), (1, 0)))
    assert function.asked == [(1, 0)] * 2


def test_equal_bytes_of_other_kinds_are_other_objects():
    box = BlackBox(lambda x: np.full(len(x), float(x.shape[1])))
    wide, narrow = np.zeros((1, 4), np.int16), np.zeros((1, 2), np.int32)
    assert np.exp([box.log_rewards(GRID, x)[0] for x in (wide, narrow)]) == pytest.approx([4.0, 2.0])


def test_a_function_may_write_into_what_it_is_given():
    def spoils(cells):
        cells *= 0
        return np.ones(len(cells))

    some = states((1, 2))
    GRID.with_reward(spoils).log_reward(some)
    assert some.position.tolist() == [[1, 2]]


def test_threads_ask_for_an_object_once():
    from concurrent.futures import ThreadPoolExecutor

    function = Counted()
    env = GRID.with_reward(function)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: env.log_reward(states((1, 1), (2, 2))), range(32)))
    assert np.ptp(found, 0).max() == 0 and function.asked == [(1, 1), (2, 2)]


def test_unfinished_states_are_not_asked_for():
    """The strings have holes until they are done; a function of strings need not know what a hole is."""

    def ones(bits):
        assert (bits >= 0).all(), "a hole"
        return 1.0 + bits.sum(1)

    env = BitStrings(3).with_reward(ones)
    assert check_env(env).frameworks == ("numpy", "jax", "torch")
    assert enumerate_states(env).log_z == pytest.approx(np.log(1 + 3 * 2 + 3 * 3 + 4))


def test_a_quick_check_asks_for_few_objects():
    function = Counted()
    check_env(Hypergrid(3, 8, BlackBox(function, cache=0)), quick=True)
    assert len(set(function.asked)) <= 32


# What it may answer

ANSWERS = {
    "list": lambda cells: [1.0 + sum(cell) for cell in cells.tolist()],
    "whole numbers": lambda cells: 1 + cells.sum(1),
    "float32": lambda cells: (1 + cells.sum(1)).astype(np.float32),
    "column": lambda cells: 1.0 + cells.sum(1, keepdims=True),
    "python objects": lambda cells: np.array([1.0 + sum(cell) for cell in cells.tolist()], object),
    "squeezed": lambda cells: np.squeeze(1.0 + cells.sum(1, keepdims=True)),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_of_many_kinds(kind):
    env = GRID.with_reward(ANSWERS[kind])
    for cells in (((1, 2), (3, 0)), ((0, 0),)):
        assert np.exp(env.log_reward(states(*cells))) == pytest.approx([1.0 + sum(cell) for cell in cells])


def test_answers_that_are_tensors_series_and_jax_arrays():
    import jax.numpy as jnp

    torch = pytest.importorskip("torch")
    weight = torch.ones((), requires_grad=True)
    answers = [
        lambda cells: torch.from_numpy(cells).sum(1) + weight,
        lambda cells: (torch.from_numpy(cells).sum(1, keepdim=True) + 1).to(torch.bfloat16),
        lambda cells: jnp.sum(jnp.asarray(cells), 1) + 1,
    ]
    if importlib.util.find_spec("pandas"):
        import pandas

        answers.append(lambda cells: pandas.Series(1.0 + cells.sum(1), index=np.arange(len(cells)) + 7))
    for answer in answers:
        assert np.exp(GRID.with_reward(answer).log_reward(states((1, 2), (3, 0)))) == pytest.approx([4.0, 4.0])


def test_log_rewards_are_taken_as_they_are():
    env = GRID.with_reward(BlackBox(lambda cells: -500.0 * cells.sum(1), log=True))
    assert env.log_reward(states((1, 2), (0, 0))).tolist() == [-1500.0, 0.0]


def test_a_module_is_asked_in_evaluation_mode_without_gradients_and_left_as_it_was():
    torch = pytest.importorskip("torch")

    class Proxy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.drop = torch.nn.Embedding(4, 3), torch.nn.Dropout(0.5)
            self.scale = torch.nn.BatchNorm1d(3)

        def forward(self, cells):
            assert cells.dtype == torch.int64 and not torch.is_grad_enabled() and not self.drop.training
            return torch.exp(self.scale(self.drop(self.embed(cells).sum(1))).sum(-1, keepdim=True))

    proxy = Proxy().train()
    proxy.scale.eval()
    env = GRID.with_reward(proxy)
    first = env.log_reward(states((1, 2), (3, 0)))
    assert proxy.training and proxy.drop.training and not proxy.scale.training
    assert np.isfinite(first).all() and str(env.reward) == "BlackBox(Proxy)"
    check_env(env)  # asks again


def test_who_has_no_pytorch_needs_none():
    program = """
import sys, numpy as np, twinax as tx
env = tx.envs.Hypergrid(2, 3, reward=lambda cells: 1.0 + cells.sum(1))
env.log_reward(env.reset(2))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_method_of_a_model():
    class Regressor:
        def predict(self, rows):
            return 1.0 + rows @ np.array([1.0, 10.0])

    env = GRID.with_reward(Regressor().predict)
    assert np.exp(env.log_reward(states((1, 2)))) == pytest.approx([22.0])
    assert repr(env) == "Hypergrid(dim=2, side=4, reward=BlackBox(Regressor.predict))"
    with pytest.raises(TwinaxError, match=r"a Regressor, which cannot be called; give its method.*model\.predict"):
        GRID.with_reward(Regressor())


# What it may not


def _raises(cells):
    if (cells == 3).any():
        raise KeyError("no such cell")
    return np.ones(len(cells))


def _only_together(cells):
    if len(cells) > 1:
        raise ValueError("one at a time, please\nand a second line")
    return np.ones(1)


def proxy(answer):
    """A function that is called `proxy` and gives this."""

    def proxy(cells):
        return answer(cells)

    return proxy


BAD = {
    "a sum": (proxy(np.sum), {}, r"the reward proxy gave the shape \(\) for 3 objects such as \[0, 0\]; .*\(3,\)"),
    "two columns": (proxy(lambda c: c * 1.0), {}, r"gave the shape \(3, 2\) for 3 objects.*one number for each"),
    "too few": (proxy(lambda c: np.ones(2)), {}, r"gave the shape \(2,\) for 3 objects"),
    "nan": (proxy(lambda c: np.where(c[:, 0] == 3, np.nan, 1.0)), {}, r"R = nan for the object \[3, 1\]; .*finite"),
    "infinity": (proxy(lambda c: np.where(c[:, 0] == 3, np.inf, 1.0)), {}, r"R = inf for the object \[3, 1\]"),
    "log infinity": (
        proxy(lambda c: np.where(c[:, 0] == 3, -np.inf, 1.0)),
        {"log": True},
        r"log R = -inf for the object \[3, 1\]; .*finite log R",
    ),
    "zero": (proxy(lambda c: c[:, 0] * 1.0), {}, r"R = 0 for the object \[0, 0\].*log=True.*floor"),
    "negative": (proxy(lambda c: -1.5 - c[:, 0]), {}, r"R = -1.5 for the object \[0, 0\].*log=True"),
    "text": (proxy(lambda c: ["good", "bad", "good"]), {}, "gave a list for 3 objects such as .*one number for each"),
    "nothing": (proxy(lambda c: None), {}, "gave a NoneType for 3 objects"),
    "a dictionary": (proxy(lambda c: {"reward": c}), {}, "gave a dict for 3 objects"),
    "complex": (proxy(lambda c: np.ones(3) * 1j), {}, "gave complex numbers"),
    "an exception": (
        _raises,
        {},
        r"the reward _raises failed for the object \[3, 1\] \(KeyError: 'no such cell'\); .*int32 of shape \(n, 2\)",
    ),
    "a batch": (
        _only_together,
        {},
        r"failed for 3 objects, the first being \[0, 0\] \(ValueError: one at a time, please\).*any number of objects",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_one_sentence_with_the_object(name):
    function, options, sentence = BAD[name]
    with pytest.raises(TwinaxError, match=sentence) as error:
        GRID.with_reward(BlackBox(function, **options)).log_reward(states((0, 0), (1, 2), (3, 1)))
    assert "\n" not in str(error.value)


def test_the_exception_of_the_function_is_the_cause():
    with pytest.raises(TwinaxError) as error:
        GRID.with_reward(_raises).log_reward(states((3, 1)))
    assert isinstance(error.value.__cause__, KeyError)


def test_a_long_object_is_shortened():
    env = Hypergrid(200, 2, BlackBox(lambda cells: -np.ones(len(cells))))
    with pytest.raises(TwinaxError, match=r"\.\.\., and a reward must be above 0") as error:
        env.log_reward(env.reset(1))
    assert len(str(error.value)) < 500


def _noise():
    rng = np.random.default_rng(0)
    return lambda cells: 1.0 + rng.random(len(cells))


ANSWERS_OTHERWISE = {"chance": _noise, "the batch": lambda: lambda cells: (1.0 + cells.sum(1)) / (1 + cells.max())}


@pytest.mark.parametrize("why", ANSWERS_OTHERWISE)
@pytest.mark.parametrize("quick", [True, False])
def test_a_function_that_answers_otherwise_when_asked_again_is_refused(why, quick):
    env = GRID.with_reward(ANSWERS_OTHERWISE[why]())
    with pytest.raises(TwinaxError, match=r"gave log R = .* for the object \[\d, \d\], and .* when asked for it again"):
        check_env(env, quick=quick)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: BlackBox(3), "function is 3"),
        (lambda: BlackBox(len, batch_size=0), r"batch size of BlackBox\(len, batch_size=0\) is 0; .*at least 1"),
        (lambda: BlackBox(len, cache=-1), "holds -1 objects"),
        (lambda: GRID.with_reward(Uniform), r"the class Uniform itself; give an object of it, such as Uniform\(\)"),
        (lambda: GRID.with_reward("easy"), "a str, which cannot be called"),
        (lambda: Hypergrid(2, 4, None), "the reward is None"),
    ],
)
def test_what_is_no_reward(make, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        make()


# Within JAX


def test_within_jax_it_is_one_call_for_all_members_of_a_map_and_gives_the_same():
    import jax
    import jax.numpy as jnp

    function = Counted()
    env = GRID.with_reward(BlackBox(function, cache=0))
    cells = jnp.asarray([[[0, 0], [1, 2]], [[3, 3], [1, 2]]], jnp.int32)
    done = jnp.ones((2, 2), bool)
    paid = jax.jit(jax.vmap(lambda p, d: env.log_reward(GRID.reset(1)._replace(position=p, done=d))))(cells, done)
    np.testing.assert_allclose(np.exp(paid), [[1.0, 4.0], [7.0, 4.0]], rtol=1e-6)
    assert [len(batch) for batch in function.batches] == [3]


@dataclass(frozen=True)
class Powered:
    """A reward made of another one."""

    reward: BlackBox
    beta: float

    def log_reward(self, env, state):
        return self.beta * self.reward.log_reward(env, state)


@dataclass(frozen=True)
class Product:
    """A reward made of several."""

    factors: tuple[BlackBox, ...]

    def log_reward(self, env, state):
        return sum(one.log_reward(env, state) for one in self.factors)


@pytest.mark.parametrize("wrap", [lambda box: box, lambda box: Powered(box, 2.0), lambda box: Product((box, box))])
def test_what_goes_wrong_within_jax_is_said_by_watch(wrap):
    import jax

    env = GRID.with_reward(wrap(BlackBox(_raises)))
    pay = jax.jit(env.log_reward)
    assert np.isnan(pay(states((3, 1), (0, 0)))).all(), "what is not known is not a number"
    with pytest.raises(TwinaxError, match=r"failed for the object \[3, 1\] \(KeyError"):
        env.watch()
    env.watch()
    assert pay(states((0, 0), (1, 1))).tolist() == [0.0, 0.0]
