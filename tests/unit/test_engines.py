"""The three engines: same interface, same state, one compilation, bit-exact continuation."""

from __future__ import annotations

import dataclasses
import functools
import logging
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from twinax import tree
from twinax.engines import MODES, NonFinite, make_engine, mode_name
from twinax.engines._draw_blocks import DrawBlocks
from twinax.envs import GridReward, Hypergrid
from twinax.errors import MissingExtra, TwinaxError, UnknownName
from twinax.gflownet import Exploration, MetricOptions, PolicyOptions, problem
from twinax.noise import Draw, numpy_draws
from twinax.optimizer import Optimizer
from twinax.parity._optimizers import injected_updates

SIZES = (24, 56)
CHUNK = 10


def make_problem(**options):
    made = problem(
        Hypergrid(dim=2, side=4, reward=GridReward(0.1, 0.5, 2.0)),
        options.pop("objective", "trajectory_balance"),
        batch_size=8,
        policy=PolicyOptions(hidden=(16, 16)),
        exploration=Exploration(epsilon=0.1),
        optimizer=options.pop("optimizer", Optimizer("adamw", 1e-2, {"log_z": 0.1}, weight_decay=1e-2, clip_norm=1.0)),
        metrics=MetricOptions(fifo=50, samples=32),
        **options,
    )
    # Small enough that both sizes are used: batches have between 8 and 56 rows.
    vars(made)["compile"] = dataclasses.replace(made.compile, sizes=SIZES)
    return made


@functools.cache
def engine_for(mode, dtype="float32", seeds=1, seeds_as="auto"):
    """One engine for all tests, so that it is compiled once; tests begin with `start` or `load`."""
    return make_engine(make_problem(), mode=mode, dtype=dtype, chunk=CHUNK, seeds=seeds, seeds_as=seeds_as)


def assert_same(a, b, **tolerance):
    """Equal trees: bit for bit, or within a tolerance."""
    ours, theirs = tree.named_leaves(a), tree.named_leaves(b)
    assert list(ours) == list(theirs)
    for name in ours:
        x, y = np.asarray(ours[name]), np.asarray(theirs[name])
        assert x.dtype == y.dtype and x.shape == y.shape, name
        if tolerance:
            np.testing.assert_allclose(x, y, err_msg=name, **tolerance)
        else:
            np.testing.assert_array_equal(x, y, err_msg=name)


def joined(*logs):
    return {name: np.concatenate([part[name] for part in logs]) for name in logs[0]}


# Compilation


@pytest.fixture
def compilations(caplog):
    """Names of the programs that JAX compiled since the last call."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):

        def since():
            found = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling ")]
            caplog.clear()
            return found

        yield since


def test_the_jax_engine_compiles_once(compilations):
    engine = make_engine(make_problem(), mode="jax", chunk=CHUNK)
    engine.start(0)
    engine.run(CHUNK)
    assert any("_chunk" in line for line in compilations()), "the first run must be seen to compile"
    assert engine.compile_seconds > 0
    first = engine.compile_seconds
    engine.run(CHUNK)
    engine.run(3)
    engine.run(2 * CHUNK + 1)
    engine.settings |= Exploration(epsilon=0.9, temperature=2.0, temperature_end=1.0, temperature_steps=7).settings()
    engine.run(CHUNK)
    kept = engine.state()
    engine.load(kept)
    engine.run(1)
    assert compilations() == [] and engine.compile_seconds == first
    engine.evaluate()
    assert compilations()
    engine.run(CHUNK)
    engine.evaluate()
    assert compilations() == []


def test_the_hybrid_engine_compiles_one_update(compilations):
    engine = engine_for("hybrid")
    engine.start(0)
    engine.run(2)
    assert engine.compile_seconds > 0
    compilations()
    lengths = engine.run(30)["length"]
    engine.settings |= Exploration(epsilon=1.0).settings()
    engine.run(5)
    engine.settings |= engine.problem.inputs().settings
    assert compilations() == [] and len(set(lengths)) > 1


@pytest.mark.parametrize("mode", MODES)
def test_settings_take_effect_at_once(mode):
    engine = engine_for(mode)
    engine.start(0)
    engine.run(2)
    state = engine.state()
    plain = engine.run(5)
    engine.load(state)
    engine.settings |= Exploration(epsilon=1.0).settings()
    explored = engine.run(5)
    engine.settings |= engine.problem.inputs().settings
    engine.load(state)
    again = engine.run(5)
    assert (plain["length"] != explored["length"]).any()
    assert_same(plain, again)


# Chunks and continuation


@pytest.mark.parametrize("mode", MODES)
def test_chunks_do_not_matter(mode):
    engine = engine_for(mode)
    engine.start(4)
    whole = engine.run(10)
    after = engine.state()
    engine.start(4)
    parts = joined(engine.run(7), engine.run(3))
    assert_same(parts, whole)
    assert_same(engine.state(), after)
    engine.start(4)
    longer = engine.run(23)
    assert_same({name: values[:10] for name, values in longer.items()}, whole)
    assert all(values.shape == (23,) for values in longer.values()) and engine.step == 23


@pytest.mark.parametrize("mode", MODES)
def test_both_sizes_are_used(mode):
    engine = engine_for(mode)
    engine.start(0)
    rows = engine.run(30)["length"] * 8
    assert (rows <= SIZES[0]).any() and (rows > SIZES[0]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_a_loaded_state_goes_on_bit_for_bit(mode, dtype):
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    engine = engine_for(mode, dtype)
    engine.start(5)
    engine.run(6)
    middle = engine.state()
    logs = engine.run(9)
    end = engine.state()
    engine.start(77)  # whatever the engine itself remembers must not count
    engine.run(4)
    engine.load(middle)
    assert_same(engine.state(), middle)
    assert engine.step == 6
    assert_same(engine.run(9), logs)
    assert_same(engine.state(), end)
    assert int(end.step) == 15 and int(end.optimizer.count) == 15 and int(end.seed) == 5


def test_a_fresh_engine_goes_on_bit_for_bit():
    for mode in ("torch", "hybrid"):
        engine = engine_for(mode)
        engine.start(5)
        engine.run(6)
        fresh = make_engine(make_problem(), mode=mode, chunk=3)
        fresh.load(engine.state())
        assert_same(fresh.run(9), engine.run(9))
        assert_same(fresh.state(), engine.state())


@pytest.mark.parametrize("mode", MODES)
def test_states_are_copies(mode):
    engine = engine_for(mode)
    engine.start(1)
    engine.run(2)
    state = engine.state()
    kept = jtu.tree_map(np.array, state)
    engine.run(3)
    assert_same(state, kept)  # running does not change what was handed out
    engine.load(state)
    engine.run(3)
    assert_same(state, kept)  # nor what was loaded


@pytest.mark.parametrize("there", MODES)
@pytest.mark.parametrize("here", MODES)
def test_a_run_may_change_its_mode(here, there, double_precision):
    first, second, whole = engine_for(here, "float64"), engine_for(there, "float64"), engine_for("torch", "float64")
    whole.start(2)
    logs = whole.run(20)
    end = whole.state()
    first.start(2)
    before = first.run(8)
    second.load(first.state())
    assert_same(joined(before, second.run(12)), logs, rtol=1e-9, atol=1e-9)
    assert_same(second.state(), end, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", MODES)
def test_states_have_one_structure(mode):
    engine = engine_for(mode)
    engine.start(3)
    fresh = engine.problem.init(3)
    assert_same(engine.state(), fresh)
    assert jtu.tree_structure(engine.state()) == jtu.tree_structure(fresh)
    assert engine.num_parameters == sum(x.size for x in jtu.tree_leaves(fresh.networks))
    engine.run(1)
    assert jtu.tree_structure(engine.state()) == jtu.tree_structure(fresh)


# Several seeds


@pytest.mark.parametrize(
    ("seeds_as", "dtype", "close"),
    [("program", "float32", 1e-6), ("program", "float64", 1e-12), ("threads", "float32", 0), ("threads", "float64", 0)],
)
def test_seeds_at_once_are_single_runs(seeds_as, dtype, close):
    """One program rounds in another order; threads run the program of a single seed."""
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    many, single = engine_for("jax", dtype, seeds=3, seeds_as=seeds_as), engine_for("jax", dtype)
    many.start(10)
    logs = many.run(12)
    states = many.state()
    metrics = many.evaluate() if dtype == "float64" else None
    assert logs["loss"].shape == (12, 3) and many.step == 12
    for k in range(3):
        single.start(10 + k)
        assert many.num_parameters == single.num_parameters
        alone = single.run(12)
        assert_same({name: values[:, k] for name, values in logs.items()}, alone, rtol=close, atol=close)
        assert_same(jtu.tree_map(lambda x, k=k: x[k], states), single.state(), rtol=close, atol=close)
        for name, value in single.evaluate().items() if metrics else ():
            np.testing.assert_allclose(metrics[name][k], value, rtol=10 * close, atol=10 * close, err_msg=name)
    assert len({float(x) for x in logs["loss"][0]}) == 3
    many.load(states)
    assert many.step == 12
    assert_same(many.state(), states)


def test_seeds_are_threads_on_a_cpu(monkeypatch):
    kind = {how: type(engine_for("jax", seeds=2, seeds_as=how)).__name__ for how in ("auto", "threads", "program")}
    assert kind == {"auto": "SeedThreads", "threads": "SeedThreads", "program": "JaxEngine"}
    monkeypatch.setattr("twinax.engines.find_devices", lambda: [SimpleNamespace(platform="tpu")])
    assert type(make_engine(make_problem(), mode="jax", seeds=2)).__name__ == "JaxEngine"


def test_an_error_of_one_thread_is_raised(monkeypatch):
    engine = engine_for("jax", seeds=2, seeds_as="threads")
    engine.start(0)
    engine.run(1)
    monkeypatch.setattr(engine._one, "advance", lambda state, *_: 1 // int(state.seed))
    with pytest.raises(ZeroDivisionError):
        engine.run(1)


def equations(jaxpr):
    """All equations of a jaxpr, also inside loops, branches and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jtu.tree_leaves(equation.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def shape_of_control(jaxpr):
    """(number of loops, number of loops with a predicate for each seed, branches of each choice by a scalar)."""
    loops = [e for e in equations(jaxpr) if e.primitive.name == "while"]
    batched = [e for e in loops if e.params["cond_jaxpr"].out_avals[0].shape != ()]
    choices = [e for e in equations(jaxpr) if e.primitive.name == "cond" and e.invars[0].aval.shape == ()]
    return len(loops), len(batched), sorted(len(e.params["branches"]) for e in choices)


def test_loops_and_choices_stay_real_with_several_seeds():
    many, single = engine_for("jax", seeds=3, seeds_as="program"), engine_for("jax")
    many.start(0)
    single.start(0)
    inputs = many._inputs()
    steps = jnp.asarray(1, jnp.int32)
    one = shape_of_control(jax.make_jaxpr(single._chunk)(single._state, inputs, steps).jaxpr)
    three = shape_of_control(jax.make_jaxpr(many._chunk)(many._state, inputs, steps).jaxpr)
    assert one == three
    assert three[0] > 1 and three[1] == 0 and len(SIZES) in three[2]
    # What a plain vmap would do: a predicate for each seed, and every branch computed and selected from.
    plain = jax.make_jaxpr(jax.vmap(single._one_step, (0, None)))(many._state, inputs)
    _, batched, choices = shape_of_control(plain.jaxpr)
    assert batched > 0 and len(SIZES) not in choices


# Errors


@pytest.mark.parametrize("mode", MODES)
def test_a_loss_that_is_not_a_number_stops_the_run(mode):
    broken = make_problem(optimizer=Optimizer("adam", 1e30))
    engine = make_engine(broken, mode=mode, chunk=4)
    engine.start(0)
    assert np.isfinite(engine.run(1)["loss"]).all()
    with pytest.raises(NonFinite, match=r"became (inf|-inf|nan) at step 2; training stopped") as caught:
        engine.run(6)
    assert caught.value.step == 2 and caught.value.term == "loss"
    engine.start(0)
    with pytest.raises(NonFinite) as caught:
        engine.run(1000)
    assert caught.value.step == 2 and engine.step == 4  # the rest was not tried


def test_the_term_that_breaks_first_is_named():
    from twinax.engines._engine import _refuse_non_finite

    logs = {
        "loss": np.array([1.0, 2.0, np.nan, np.nan]),
        "inner": np.array([1.0, 2.0, 3.0, np.nan]),
        "terminal": np.array([1.0, 2.0, np.inf, np.nan]),
        "grad_norm": np.array([1.0, 2.0, np.nan, np.nan]),
    }
    with pytest.raises(NonFinite, match="the term 'terminal' became inf at step 13") as caught:
        _refuse_non_finite(logs, 10)
    assert (caught.value.step, caught.value.term) == (13, "terminal")
    several = {name: np.stack([np.ones(4), values], 1) for name, values in logs.items()}
    with pytest.raises(NonFinite, match="the term 'terminal' became inf at step 13"):
        _refuse_non_finite(several, 10)
    _refuse_non_finite({"loss": np.ones(3)}, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "jaxx"}, "unknown trainer.mode 'jaxx'; known: hybrid, jax, legacy, torch. Did you mean 'jax'?"),
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"noise": "loud"}, "unknown noise 'loud'"),
        ({"chunk": 0}, "chunk is 0; it must be at least 1"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": 2, "seeds_as": "processes"}, "unknown seeds_as 'processes'"),
        ({"mode": "torch", "seeds": 2}, "seeds=2 needs trainer.mode=jax; mode torch"),
        ({"mode": "hybrid", "seeds": 2}, "seeds=2 needs trainer.mode=jax; mode hybrid"),
        ({"mode": "jax", "noise": "native"}, "noise=native"),
        ({"mode": "hybrid", "noise": "native"}, "noise=native"),
    ],
)
def test_wrong_requests_are_refused(options, message):
    with pytest.raises(TwinaxError) as caught:
        make_engine(make_problem(), mode=options.pop("mode", "jax"), **options)
    assert message in str(caught.value)


def test_a_state_of_other_seeds_is_refused():
    many, single = engine_for("jax", seeds=3), engine_for("jax")
    many.start(0)
    single.start(0)
    with pytest.raises(TwinaxError, match="the state holds 3 seeds, but this engine trains 1"):
        single.load(many.state())
    with pytest.raises(TwinaxError, match="the state holds 1 seeds, but this engine trains 3"):
        many.load(single.state())


def test_zero_steps_are_refused():
    engine = engine_for("torch")
    engine.start(0)
    with pytest.raises(TwinaxError, match="asked to run 0 steps"):
        engine.run(0)


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"trainer.mode=torch needs torch.*pip install 'twinax\[torch\]'"):
        make_engine(make_problem(), mode="legacy")


def test_mode_names():
    assert mode_name("legacy") == "torch" and make_engine(make_problem(), mode="legacy").mode == "torch"
    with pytest.raises(UnknownName):
        mode_name("tensorflow")


# Noise


def test_native_noise_is_pytorchs_own():
    def run(steps, state=None, noise="native"):
        engine = make_engine(make_problem(), mode="torch", chunk=CHUNK, noise=noise)
        if state is None:
            engine.start(6)
        else:
            engine.load(state)
        return engine.run(steps), engine.state()

    logs, end = run(12)
    assert_same(run(12)[0], logs)
    first, middle = run(5)
    rest, resumed = run(7, middle)
    assert_same(joined(first, rest), logs)
    assert_same(resumed, end)
    shared, _ = run(12, noise="shared")
    assert (shared["length"] != logs["length"]).any()


def test_blocks_of_draws_are_the_same_numbers():
    spec = {"a": Draw((3, 2)), "b": Draw((4,), "normal"), "c": Draw((2,), "integers", 9)}
    blocks = DrawBlocks(spec)
    for seed, step in ((0, 0), (0, 1), (2**32 - 1, 5), (0, 63), (0, 64), (0, 1_000_003), (1, 64)):
        assert_same(blocks.at(seed, step), numpy_draws(spec, seed, step))


# Updates


RECIPES = {
    "sgd": Optimizer("sgd", 1e-2),
    "sgd, clipped and decaying": Optimizer("sgd", 1e-2, {"scale": 0.1}, clip_norm=0.7, decay_steps=30, decay_to=0.2),
    "adam": Optimizer("adam", 1e-2, {"scale": 0.1}),
    "adam, other constants": Optimizer("adam", 3e-3, beta1=0.5, beta2=0.9, eps=1e-3),
    "adam, clipped": Optimizer("adam", 1e-2, clip_norm=0.7),
    "adam, decaying": Optimizer("adam", 1e-2, decay_steps=30),
    "adamw": Optimizer("adamw", 1e-2, {"scale": 0.1}, weight_decay=0.1),
    "adamw, clipped and decaying": Optimizer(
        "adamw", 1e-2, weight_decay=0.1, clip_norm=0.7, decay_steps=80, decay_to=0.1
    ),
}


def parameters():
    rng = np.random.default_rng(0)
    return {"layer": {"weight": rng.normal(size=(4, 3)), "bias": rng.normal(size=4)}, "scale": np.array([0.5])}


@pytest.mark.parametrize("name", RECIPES)
def test_updates_agree(name, double_precision):
    found = {where: injected_updates(where, RECIPES[name], parameters(), 50, 1) for where in ("numpy", "torch", "jax")}
    for where in ("torch", "jax"):
        assert_same(found[where], found["numpy"], rtol=1e-12, atol=1e-14)
    norms = found["numpy"]["norm at each update"]
    assert (norms < 0.7).any() and (norms > 0.7).any()  # clipping is on in some updates and off in others


def test_a_transposed_weight_is_updated_as_any_other():
    # PyTorch's fused optimizers pair numbers by their place in memory.
    weight = np.arange(6.0).reshape(3, 2)
    turned = np.asfortranarray(weight)
    one, other = (injected_updates("torch", Optimizer(), {"weight": x}, 3, 1) for x in (weight, turned))
    assert_same(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_first_updates_by_hand(framework, double_precision):
    """The moments cancel in Adam's first update: rate g / (|g| + eps)."""

    def first(recipe, networks, gradient):
        if framework == "torch":
            import torch

            from twinax.engines.torch_engine import TorchUpdate

            tensors = jtu.tree_map(lambda x: torch.nn.Parameter(torch.from_numpy(np.array(x))), networks)
            update = TorchUpdate(recipe, tensors, recipe.init(networks))
            tensors["x"].grad = torch.tensor(gradient, dtype=torch.float64)
            norm = update.apply()
            return tensors["x"].detach().numpy(), float(norm)
        from twinax.engines.optax_update import apply_update

        moments = jtu.tree_map(jnp.array, recipe.init(networks))
        after, _, norm = apply_update(recipe, networks, {"x": jnp.array(gradient)}, moments)
        return np.asarray(after["x"]), float(norm)

    networks, gradient = {"x": np.array([1.0, -2.0])}, [3.0, -4.0]
    adam, norm = first(Optimizer("adam", 0.1, eps=1.0), networks, gradient)
    np.testing.assert_allclose(adam, [1 - 0.1 * 3 / 4, -2 + 0.1 * 4 / 5], rtol=1e-12)
    assert norm == pytest.approx(5.0, rel=1e-12)
    decayed, _ = first(Optimizer("adamw", 0.1, eps=1.0, weight_decay=0.5), networks, gradient)
    np.testing.assert_allclose(decayed, [0.95 - 0.1 * 3 / 4, -1.9 + 0.1 * 4 / 5], rtol=1e-12)
    clipped, norm = first(Optimizer("sgd", 0.1, clip_norm=1.0), networks, gradient)
    np.testing.assert_allclose(clipped, [1 - 0.1 * 3 / 5.000001, -2 + 0.1 * 4 / 5.000001], rtol=1e-12)
    assert norm == pytest.approx(5.0, rel=1e-12)  # the norm before clipping
    own_rate, _ = first(Optimizer("sgd", 0.1, {"x": 0.5}), networks, gradient)
    np.testing.assert_allclose(own_rate, [1 - 1.5, -2 + 2.0], rtol=1e-12)


def test_a_parameter_without_gradient_decays_in_torch_too():
    """PyTorch alone would skip it."""
    import torch

    from twinax.engines.torch_engine import TorchUpdate

    networks = {"seen": np.ones(2), "unseen": np.ones(2)}
    tensors = jtu.tree_map(lambda x: torch.nn.Parameter(torch.from_numpy(np.array(x))), networks)
    recipe = Optimizer("adamw", 0.1, weight_decay=0.5)
    update = TorchUpdate(recipe, tensors, recipe.init(networks))
    update.differentiate(tensors["seen"].sum())
    update.apply()
    np.testing.assert_allclose(tensors["unseen"].detach().numpy(), 0.95)


# Evaluation and profile


def test_evaluations_agree(double_precision):
    start = engine_for("torch", "float64")
    start.start(8)
    start.run(15)
    state, found = start.state(), {}
    for mode in MODES:
        engine = engine_for(mode, "float64")
        engine.load(state)
        found[mode] = engine.evaluate()
        assert_same(engine.state(), state)
    assert {"total_variation", "elbo", "eubo", "log_z", "picture/learned"} <= set(found["torch"])
    for mode in ("hybrid", "jax"):
        assert set(found[mode]) == set(found["torch"])
        for name, value in found["torch"].items():
            np.testing.assert_allclose(found[mode][name], value, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("mode", MODES)
def test_a_profile_leaves_the_state_alone(mode):
    engine = engine_for(mode)
    engine.start(9)
    engine.run(3)
    before = engine.state()
    phases = engine.profile(steps=3)
    assert_same(engine.state(), before)
    assert (
        {"sample", "loss", "backward", "optimizer"}
        <= set(phases)
        <= {"sample", "loss", "backward", "optimizer", "sync"}
    )
    assert phases["sample"] > 0 and all(0 <= seconds < 60 for seconds in phases.values())
    after = engine.run(3)
    engine.load(before)
    assert_same(engine.run(3), after)


def test_a_profile_counts_every_update_of_a_step(monkeypatch):
    engine = engine_for("torch")
    monkeypatch.setattr(engine, "_phases", lambda repeats: {"sample": 1.0, "loss": 2.0, "sync": 0.5})
    assert engine.profile() == {"sample": 1.0, "loss": 2.0, "sync": 0.5}
    many = dataclasses.replace(engine.problem.compile, updates=8)
    monkeypatch.setitem(vars(engine.problem), "compile", many)
    assert engine.profile() == {"sample": 1.0, "loss": 16.0, "sync": 4.0}


def test_compile_time_is_apart():
    assert engine_for("torch").compile_seconds == 0.0
