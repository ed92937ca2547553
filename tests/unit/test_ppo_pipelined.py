"""Playing while learning: an iteration learns from the rollout before, and both halves run at the same time."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinax import tree
from twinax.engines import make_engine
from twinax.engines._side_by_side import SideBySide
from twinax.engines.jax_engine import make_update
from twinax.envs import Pendulum
from twinax.errors import TwinaxError
from twinax.noise import key_draws, numpy_draws
from twinax.parts import Compile
from twinax.ppo import problem
from twinax.ppo._playing import make_rows, roll_out
from twinax.problem import State

SMALL: dict = {"hidden": (8, 8), "num_envs": 6, "num_steps": 8, "num_epochs": 2, "num_minibatches": 3, "episodes": 3}


def subject(**settings):
    return problem(
        Pendulum(time_limit=6), policy="tanh", normalise_observations=True, pipelined=True, **{**SMALL, **settings}
    )


def run(engine, steps=3):
    return {**engine.run(steps), **tree.named_leaves(engine.state())}


@pytest.fixture(scope="module")
def beside():
    engine = make_engine(subject(), mode="jax", dtype="float64", chunk=3)
    engine.start(0)
    return run(engine)


def test_modes_agree(beside):
    engine = make_engine(subject(), mode="torch", dtype="float64", chunk=3)
    engine.start(0)
    found = run(engine)
    assert found.keys() == beside.keys()
    for label, want in found.items():
        np.testing.assert_allclose(beside[label], want, rtol=1e-9, atol=1e-10, err_msg=label)


def test_one_program_for_several_seeds_agrees_with_two_programs(beside):
    engine = make_engine(subject(), mode="jax", dtype="float64", chunk=3, seeds=2, seeds_as="program")
    engine.start(0)
    engine.run(3)
    for label, values in tree.named_leaves(engine.state()).items():
        np.testing.assert_allclose(values[0], beside[label], rtol=1e-9, atol=1e-10, err_msg=label)


def test_rows_are_those_of_the_iteration_before(beside):
    assert (beside["policy_lag"] == 1).all()
    # The first rollout was played by the policy that begins to learn; later ones by one that has learned since.
    assert abs(beside["lag_kl"][0]) < 1e-12
    assert (beside["lag_kl"][1:] > 1e-9).all()


def test_what_waits_is_what_was_played():
    one = subject()
    state = one.init(0)
    draws = numpy_draws(one.draws(), 0, 0)
    after, _ = one.step(state, draws, one.inputs(), stay)
    rows = make_rows(one, state.networks, state.carry, roll_out(one, state, draws)[1], draws)
    np.testing.assert_array_equal(after.carry.waiting.advantage, rows.advantage)
    assert not np.array_equal(state.carry.waiting.advantage, rows.advantage)


def stay(state, loss, batch, still=()):
    """An update that changes nothing."""
    return state, dict.fromkeys(TERMS, np.zeros(()))


TERMS = ("loss", "policy_loss", "value_loss", "entropy_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")


def test_resuming_is_exact(beside):
    engine = make_engine(subject(), mode="jax", dtype="float64", chunk=3)
    engine.start(0)
    engine.run(1)
    kept = engine.state()
    other = make_engine(subject(), mode="jax", dtype="float64", chunk=3)
    other.start(5)
    other.load(kept)
    other.run(2)
    for label, value in tree.named_leaves(other.state()).items():
        np.testing.assert_array_equal(value, beside[label], err_msg=label)


def test_both_halves_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=30)

    def meet(x):
        meeting.wait()  # raises unless the other half comes here too
        return np.asarray(x)

    class Meeting:
        @property
        def compile(self):
            def half(state, draws, settings, update=None):
                return jax.pure_callback(meet, jax.ShapeDtypeStruct((), jnp.float32), state.networks + draws["u"])

            def join(state, one, other, draws, settings, update):
                return state, {"loss": one + other}

            return Compile(halves=(half, half, join))

        optimizer = None

    state = State(jnp.float32(1.0), None, None, None, jnp.int32(0), jnp.uint32(0))  # type: ignore[arg-type]
    from twinax.noise import Draw

    made = SideBySide(Meeting(), lambda s: key_draws({"u": Draw(())}, s.seed, s.step), lambda _: make_update)  # type: ignore
    made.compile(state, {}, None)
    after, terms = made.step(state, {})
    assert int(after.step) == 1 and np.isfinite(terms["loss"])


def test_worlds_that_numpy_cannot_step_are_refused():
    class Elsewhere(Pendulum):
        frameworks = ("jax",)

    with pytest.raises(TwinaxError, match="runs in jax only"):
        problem(Elsewhere(), pipelined=True)
