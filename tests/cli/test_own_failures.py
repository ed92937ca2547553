"""What a stranger's code does wrong is one sentence with their own line in it; what we do wrong is a traceback."""

from __future__ import annotations

import sys

import pytest

import twinax as tx
from twinax import blame, conf
from twinax.errors import TwinaxError, UnknownName
from twinax.registry import import_code

MODULE = """
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np

import twinax as tx
from twinax import networks, ops


@dataclasses.dataclass(frozen=True)
class Rule(tx.envs.Hypergrid):
    def observe(self, state):
        raise KeyError("nowhere")  # line 16


@dataclasses.dataclass(frozen=True)
class Helped(tx.envs.Hypergrid):
    def observe(self, state):
        return helper(state)


def helper(state):
    return np.zeros(3)[state.positions]  # line 26


@dataclasses.dataclass(frozen=True)
class Shapes(tx.envs.Hypergrid):
    def observe(self, state):
        return ops.concat([state.position, state.position[:, :, None]], -1)  # line 32


@dataclasses.dataclass(frozen=True)
class Made(tx.envs.Hypergrid):
    def __post_init__(self):
        raise ValueError("no such size")  # line 38


@dataclasses.dataclass(frozen=True)
class Cart(tx.envs.CartPole):
    name: str = "mine"

    def step(self, *given):
        raise OSError("the cart is\\n broken")  # line 46


class Shy(eqx.Module):
    inner: Any

    def __call__(self, x):
        if x.shape[0] > 1:
            raise RuntimeError("too many rows")  # line 54
        return self.inner(x)


def shy(rng, spec):
    return Shy(networks.Linear.init(rng, spec.observation.shape[-1], spec.outputs))


@dataclasses.dataclass(frozen=True)
class Loss(tx.gflownet.objectives.TrajectoryBalance):
    def __call__(self, s):
        return s.nothing  # line 65


@dataclasses.dataclass(frozen=True)
class Array(tx.envs.Hypergrid):
    table: np.ndarray = None


@dataclasses.dataclass(frozen=True)
class Function(tx.envs.Hypergrid):
    how: Callable[[int], int] = abs


@dataclasses.dataclass(frozen=True)
class Nowhere(tx.envs.Hypergrid):
    how: "Missing" = None


@dataclasses.dataclass(frozen=True)
class Many(tx.envs.Hypergrid):
    other: tuple[int, ...] = (1,)
    pair: tuple[int, str] = (1, "a")
    maybe: int | None = None
    either: int | str = 3
    anything: Any = None
    yes: bool = True


@dataclasses.dataclass(frozen=True)
class Book(tx.envs.Hypergrid):
    pages: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Named(tx.envs.Hypergrid):
    name: str = "mine"


@dataclasses.dataclass(frozen=True)
class Nameless(tx.envs.Hypergrid):
    name: str = dataclasses.field(kw_only=True)


def make(side=3, name="mine"):
    return Named(2, side, name=name)
"""
GRID = ["env.dim=2", "env.side=3", "policy.hidden=[8]", "metrics.samples=8", "metrics.fifo=16", "trainer.batch_size=4"]
CART = ["experiment=ppo", "env=faulty:Cart", "ppo.num_envs=2", "ppo.num_steps=4", "ppo.num_minibatches=2"]


@pytest.fixture
def here(twinax, tmp_path, monkeypatch):
    """A directory with the module of that person in it; what runs a command there."""
    (tmp_path / "faulty.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    yield twinax
    sys.modules.pop("faulty", None)


@pytest.mark.parametrize("mode", ["torch", "jax"])
@pytest.mark.parametrize(("words", "sentence"), [
    (["env=faulty:Rule", *GRID], "Rule.observe fails with KeyError: 'nowhere' (faulty.py:16)"),
    (["env=faulty:Helped", *GRID], "Helped.observe fails with AttributeError: 'GridState' object has no attribute "
     "'positions' (faulty.py:26)"),
    (["env=faulty:Shapes", *GRID], "Shapes.observe fails with ValueError: all the input arrays must have same number"),
    (["env=faulty:Made", *GRID], "Made.__post_init__ fails with ValueError: no such size (faulty.py:38)"),
    (CART, "Cart.step fails with OSError: the cart is broken (faulty.py:46)"),
    ([*CART[:1], *CART[2:], "env=pendulum", "ppo.network=faulty:shy"],
     "Shy fails with RuntimeError: too many rows (faulty.py:54)"),
    ([*GRID, "objective=faulty:Loss"], "Loss fails with AttributeError: 'Scores' object has no attribute 'nothing' "
     "(faulty.py:65)"),
])  # fmt: skip
def test_what_a_strangers_code_raises_is_one_sentence(here, mode, words, sentence):
    done = here("train", "--quiet", *words, "trainer.steps=2", f"trainer.mode={mode}", "run.dir=run")
    said = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert done.code == 1 and len(said) == 1 and said[0].startswith(f"error: {sentence}"), done.err
    assert said[0].endswith("; TWINAX_DEBUG=1 shows the whole traceback") and "Traceback" not in done.err


def test_with_debug_all_is_shown(here, monkeypatch):
    monkeypatch.setenv("TWINAX_DEBUG", "1")
    with pytest.raises(KeyError, match="nowhere"):
        here("train", "--quiet", "env=faulty:Rule", *GRID, "trainer.steps=2", "trainer.mode=torch")


def test_our_own_defects_stay_tracebacks(here, monkeypatch):
    def broken(*given):
        return [][0]

    code = compile("def broken(*given):\n    return [][0]\n", tx.gflownet.__file__, "exec")
    namespace: dict = {}
    exec(code, namespace)
    monkeypatch.setattr(tx.envs.Hypergrid, "observe", namespace["broken"])
    with pytest.raises(IndexError):
        here("train", "--quiet", *GRID, "trainer.steps=2", "trainer.mode=torch")
    # Neither is what a test, or a program of somebody, does outside of the library.
    with pytest.raises(IndexError) as caught:
        broken()
    assert blame.find_stranger(caught.value) is None


def test_a_package_that_is_installed_is_a_stranger_all_the_same(monkeypatch, tmp_path):
    (tmp_path / "beside_us.py").write_text("def reward(cells):\n    raise ValueError('no')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(blame, "_libraries", lambda: (str(tmp_path),))
    reward = import_code("beside_us:reward", "reward")
    called = compile("def call(function):\n    function(3)\n", tx.gflownet.__file__, "exec")
    namespace: dict = {}
    exec(called, namespace)
    with pytest.raises(ValueError) as caught:
        namespace["call"](reward)
    assert blame.tell(caught.value).startswith("reward fails with ValueError: no (")
    monkeypatch.setattr("twinax.registry.imported_packages", set())
    assert blame.find_stranger(caught.value) is None


# Fields of somebody's own


@pytest.mark.parametrize(("name", "sentence"), [
    ("Array", "environment 'faulty:Array' has the field table of type numpy.ndarray, which can be no setting: settings "
     "are numbers, text, true or false"),
    ("Function", "has the field how of type collections.abc.Callable[[int], int], which can be no setting"),
    ("Nowhere", "has fields whose types cannot be read: name 'Missing' is not defined"),
    ("Nameless", "needs a value called 'name', but the setting of that name says which one is chosen"),
])  # fmt: skip
def test_fields_that_can_be_no_settings_are_named(here, name, sentence):
    done = here("train", f"env=faulty:{name}", *GRID)
    assert done.code == 2 and done.err.count("\n") == 1 and sentence in done.err, done.err


def test_fields_of_many_types_are_settings(here):
    words = ["env.other=[1,2]", "env.pair=[3,b]", "env.maybe=4", "env.either=x", "env.anything=[1]", "env.yes=false"]
    config = conf.compose(["env=faulty:Many", *words, *GRID])
    env = conf.build_problem(config).env
    assert (env.other, env.pair, env.maybe, env.either, env.yes) == ((1, 2), (3, "b"), 4, "x", False)
    assert conf.as_dict(conf.restore(conf.as_dict(config), trust=True)) == conf.as_dict(config)


def test_a_world_that_cannot_be_hashed_is_one_sentence(here):
    done = here("train", "--quiet", "env=faulty:Book", "env.pages={a: 3}", *GRID, "trainer.steps=1")
    assert done.code == 2 and done.err.count("\n") == 1, done.err
    assert "Book cannot be hashed (unhashable type: 'dict'); make it a frozen dataclass whose fields are" in done.err


def test_a_field_called_name_keeps_its_default(here):
    assert conf.build_problem(conf.compose(["env=faulty:Named", *GRID])).env.name == "mine"
    assert conf.build_problem(conf.compose(["env=faulty:make", "env.side=4", *GRID[2:]])).env.name == "mine"
    done = here("train", "env=faulty:Named", "env.name=yours", *GRID)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "'env.name=yours' would choose another env than faulty:Named" in done.err
    assert conf.compose(["env.name=grid"]).env.name == "grid"


def test_only_names_of_the_module_itself_are_suggested(here):
    with pytest.raises(UnknownName) as caught:
        import_code("faulty:Nmaed", "environment")
    said = str(caught.value)
    assert said.endswith("Did you mean 'Named'?") and "known: Array, Book, Cart, " in said
    assert not {"eqx", "np", "tx", "Any", "dataclasses", "ops", "networks"} & set(said.replace(",", " ").split())


def test_a_package_suggests_what_it_shows_of_its_modules(tmp_path, monkeypatch):
    package = tmp_path / "showing"
    package.mkdir()
    (package / "inner.py").write_text("class Shown:\n    pass\n")
    (package / "__init__.py").write_text("from fractions import Fraction\nfrom showing.inner import Shown\nfirst = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownName, match=r"known: Shown, first. Did you mean 'Shown'\?"):
        import_code("showing:Shwon", "environment")


class Forgetful:
    """No `__call__`."""


@pytest.mark.parametrize(("callbacks", "sentence"), [
    (print, "train: callbacks is the function print; it must be a list whose entries are each a function"),
    (5, "train: callbacks is 5; it must be a list"),
    ("abc", "train: callbacks is 'abc'; it must be a list"),
    ([3], r"train: callbacks is \[3\]; it must be a list"),
    ([Forgetful()], "train: callbacks is .*; it must be a list"),
    ([Forgetful], r"callbacks has the class Forgetful; give an object of it that can be called, Forgetful\(\)"),
    ([lambda run: None], r"the callback .*<lambda> cannot be called with \(run, step, metrics\): too many positional"),
])  # fmt: skip
def test_callbacks_that_are_none_are_one_sentence(callbacks, sentence, tmp_path):
    problem = tx.gflownet.problem(tx.envs.Hypergrid(2, 3), batch_size=4)
    with pytest.raises(TwinaxError, match=sentence):
        tx.train(problem, mode="torch", steps=1, run_dir=tmp_path / "run", progress=False, callbacks=callbacks)
    assert not (tmp_path / "run").exists()
