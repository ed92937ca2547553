"""PPO as a problem: an iteration written out again, agreement of the modes, groups, pools, resuming, bad input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from twinax import networks, tree
from twinax.brax.habits import ALWAYS, DEFAULTS, combined
from twinax.engines import make_engine
from twinax.envs import CartPole, Pendulum
from twinax.errors import TwinaxError
from twinax.noise import numpy_draws
from twinax.optimizer import Optimizer
from twinax.ppo import problem
from twinax.ppo._learning import minibatch_rows
from twinax.ppo._playing import by_group, pick_starts, roll_out

pytestmark = pytest.mark.usefixtures("quick_compilation")

SMALL: dict = {"hidden": (8, 8), "num_envs": 6, "num_steps": 8, "num_epochs": 2, "num_minibatches": 3, "episodes": 3}
FAST = Optimizer(learning_rate=0.03, eps=1e-5, clip_norm=0.5)
"""So fast that `target_kl` stops the updates of an iteration."""
BRAX = {name: value for name, value in combined(ALWAYS, DEFAULTS)["ppo"].items() if name != "anneal"}


def residual(rng, spec):
    """A network of one's own."""
    return networks.ResidualMLP.init(rng, spec.observation.shape[-1], 6, 1, spec.outputs)


KINDS = {
    "own": lambda: problem(Pendulum(time_limit=6), network=residual, std="state", **SMALL),
    "cartpole": lambda: problem(
        CartPole(time_limit=5),
        optimizer=FAST,
        normalise_observations=True,
        target_kl=0.01,
        **{**SMALL, "num_epochs": 4},
    ),
    "pendulum": lambda: problem(
        Pendulum(time_limit=6), policy="tanh", std="state", normalise_rewards=True, pool=16, groups=2, **SMALL
    ),
    "brax": lambda: problem(Pendulum(time_limit=6), **{**BRAX, **SMALL}),
    "shared": lambda: problem(
        Pendulum(time_limit=6), shared=True, standardise="rollout", value_clip=0.0, advantage="brax", **SMALL
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_modes_agree_on_whole_iterations(kind):
    found = {}
    for mode in ("torch", "jax"):
        engine = make_engine(KINDS[kind](), mode=mode, dtype="float64", chunk=3)
        engine.start(0)
        logs = engine.run(3)
        found[mode] = {**logs, **tree.named_leaves(engine.state()), **engine.evaluate()}
        most = engine.problem.compile.updates
        stopped = (logs["updates"] < most).all() and (logs["updates"] > 1).all()
        assert stopped if engine.problem.target_kl else (logs["updates"] == most).all()
    assert found["torch"].keys() == found["jax"].keys()
    for label, want in found["torch"].items():
        np.testing.assert_allclose(found["jax"][label], want, rtol=1e-9, atol=1e-10, err_msg=label)


def test_seeds_in_one_program_stop_their_updates_each_for_itself():
    def subject():
        quick = Optimizer(learning_rate=0.03, eps=1e-5)
        return problem(CartPole(time_limit=5), optimizer=quick, target_kl=0.01, **SMALL)

    many = make_engine(subject(), mode="jax", dtype="float64", chunk=3, seeds=3, seeds_as="program")
    many.start(0)
    logs = many.run(3)
    assert len(set(logs["updates"].ravel())) > 2  # some stop early, not all of them together
    for seed in range(3):
        one = make_engine(subject(), mode="jax", dtype="float64", chunk=3)
        one.start(seed)
        for name, want in one.run(3).items():
            np.testing.assert_allclose(logs[name][:, seed], want, rtol=1e-9, atol=1e-10, err_msg=name)


def wide(values):
    return tree.map_leaves(lambda x: x.astype(np.float64) if x.dtype == np.float32 else x, values)


def by_hand(subject, seed=0):
    """One iteration of a gaussian or categorical policy with gradients from PyTorch and Adam written out."""
    import torch

    state = wide(subject.init(seed))
    draws = wide(numpy_draws(subject.draws(), seed, 0))
    carry, happened = roll_out(subject, state, draws)
    agent = state.networks["agent"]
    see = state.carry.observation
    scaled = happened.observation if see is None else see.scaled(happened.observation)
    value, following = (
        agent.value(scaled),
        agent.value(happened.next_observation if see is None else see.scaled(happened.next_observation)),
    )
    steps, worlds = value.shape
    advantage = np.zeros((steps, worlds))
    for w in range(worlds):
        later = 0.0
        for t in reversed(range(steps)):
            d, u = happened.terminated[t, w], happened.truncated[t, w]
            delta = happened.reward[t, w] + (0 if d else subject.gamma * following[t, w]) - value[t, w]
            later = delta + (0 if d or u else subject.gamma * subject.gae_lambda * later)
            advantage[t, w] = later
    target = advantage + value
    parameters = tree.named_leaves(state.networks)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in parameters.items()}
    first, second = ({name: np.zeros_like(x) for name, x in parameters.items()} for _ in range(2))

    def forward(name, x):
        depth = len(subject.hidden) + 1
        for k in range(depth):
            x = x @ tensors[f"agent.{name}.layers.{k}.weight"].T + tensors[f"agent.{name}.layers.{k}.bias"]
            x = torch.tanh(x) if k < depth - 1 else x
        return x

    count, recipe = 0, subject.optimizer
    flat = {
        "observation": scaled.reshape(steps * worlds, -1),
        "point": happened.point.reshape(steps * worlds),
        "old": happened.log_prob.ravel(),
        "value": value.ravel(),
        "advantage": advantage.ravel(),
        "target": target.ravel(),
    }
    rows = {name: torch.tensor(x) for name, x in flat.items()}
    for uniform in draws["order"][:, 0]:
        order = np.argsort(uniform, kind="stable").reshape(subject.num_minibatches, -1)
        for index in order:
            mine = {name: x[index] for name, x in rows.items()}
            logs = torch.log_softmax(forward("actor", mine["observation"]), -1)
            chosen = logs[torch.arange(len(index)), mine["point"].long()]
            a = mine["advantage"]
            a = (a - a.mean()) / (a.std() + 1e-8)
            ratio = torch.exp(chosen - mine["old"])
            gain = torch.minimum(ratio * a, torch.clamp(ratio, 1 - subject.clip, 1 + subject.clip) * a).mean()
            v = forward("critic", mine["observation"])[:, 0]
            near = mine["value"] + torch.clamp(v - mine["value"], -subject.value_clip, subject.value_clip)
            error = 0.5 * torch.maximum((v - mine["target"]) ** 2, (near - mine["target"]) ** 2).mean()
            entropy = -(logs.exp() * logs).sum(-1).mean()
            loss = -gain + subject.vf_coef * error - subject.ent_coef * entropy
            grads = dict(zip(tensors, torch.autograd.grad(loss, list(tensors.values())), strict=True))
            norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))
            factor = min(1.0, recipe.clip_norm / (float(norm) + 1e-6))
            count += 1
            with torch.no_grad():
                for name, g in grads.items():
                    g = g.numpy() * factor
                    first[name] = recipe.beta1 * first[name] + (1 - recipe.beta1) * g
                    second[name] = recipe.beta2 * second[name] + (1 - recipe.beta2) * g * g
                    m, s = first[name] / (1 - recipe.beta1**count), second[name] / (1 - recipe.beta2**count)
                    tensors[name] -= torch.from_numpy(recipe.learning_rate * m / (np.sqrt(s) + recipe.eps))
    return {name: x.detach().numpy() for name, x in tensors.items()}, carry


def test_an_iteration_is_the_one_written_out_by_hand():
    adam = Optimizer(learning_rate=0.01, eps=1e-5, clip_norm=0.5)
    subject = problem(CartPole(time_limit=5), optimizer=adam, normalise_rewards=False, **SMALL)
    engine = make_engine(subject, mode="torch", dtype="float64", chunk=1)
    engine.start(0)
    engine.run(1)
    parameters, carry = by_hand(subject)
    state = engine.state()
    for name, want in parameters.items():
        np.testing.assert_allclose(tree.named_leaves(state.networks)[name], want, rtol=1e-9, atol=1e-11, err_msg=name)
    for name, want in tree.named_leaves(carry.playing).items():
        np.testing.assert_allclose(tree.named_leaves(state.carry.playing)[name], want, rtol=1e-9, err_msg=name)


def test_statistics_stand_still_within_an_iteration_and_move_after_it():
    subject = KINDS["cartpole"]()
    state = subject.init(0)
    draws = numpy_draws(subject.draws(), 0, 0)
    carry, happened = roll_out(subject, state, draws)
    assert carry.observation is state.carry.observation
    after, _ = subject.collect(state, draws, subject.inputs())
    rows = happened.observation.reshape(-1, 4)
    np.testing.assert_allclose(after.observation.mean, rows.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.observation.variance, rows.var(0), rtol=1e-4, atol=1e-6)


def test_every_row_is_learned_from_once_in_a_pass_and_equally_from_each_group():
    subject = problem(CartPole(), **{**SMALL, "groups": 3, "num_minibatches": 2})
    uniform = numpy_draws(subject.draws(), 0, 0)["order"][0]
    index = np.asarray(minibatch_rows(subject, uniform))
    assert sorted(index.ravel()) == list(range(48))
    for part in index:
        assert np.bincount(part // 16, minlength=3).tolist() == [len(part) // 3] * 3


def test_rows_of_a_group_are_its_worlds():
    subject = problem(CartPole(), **{**SMALL, "groups": 2})
    x = np.arange(8 * 6).reshape(8, 6)
    rows = by_group(subject, x)
    assert set(rows[:24] % 6) == {0, 1, 2} and set(rows[24:] % 6) == {3, 4, 5}


def test_the_pool_is_renewed_by_eighths():
    subject = KINDS["pendulum"]()
    state = subject.init(0)
    before = np.array(state.carry.pool.observation)
    changed = []
    for k in range(8):
        state = dataclasses.replace(state, step=np.array(k, np.int32))
        after, _ = subject.collect(state, numpy_draws(subject.draws(), 0, k), subject.inputs())
        changed.append(np.flatnonzero((after.pool.observation != before).any(-1)).tolist())
        before = np.array(after.pool.observation)
        state = dataclasses.replace(state, carry=after)
    # Two groups of eight starts: one of each is renewed.
    assert changed == [[k, 8 + k] for k in range(8)]


def test_picks_stay_in_the_group():
    subject = KINDS["pendulum"]()
    uniform = np.random.default_rng(0).uniform(size=(50, 6)).astype(np.float32)
    picks = pick_starts(subject, uniform, 16)
    assert picks[:, :3].min() == 0 and picks[:, :3].max() == 7
    assert picks[:, 3:].min() == 8 and picks[:, 3:].max() == 15


def test_updates_stop_at_the_divergence():
    options = {**SMALL, "num_epochs": 4}
    fast = Optimizer(learning_rate=0.1, eps=1e-5, clip_norm=0.5)
    subject = problem(CartPole(), optimizer=fast, target_kl=0.005, **options)
    engine = make_engine(subject, mode="torch", chunk=2)
    engine.start(0)
    logs = engine.run(2)
    assert (logs["updates"] < 12).all() and (logs["updates"] >= 1).all()


def test_resuming_is_exact_to_the_bit_environments_included():
    subject = KINDS["cartpole"]()
    whole = make_engine(subject, mode="jax", chunk=2)
    whole.start(0)
    whole.run(2)
    kept = whole.state()
    whole.run(2)
    again = make_engine(subject, mode="jax", chunk=2)
    again.load(kept)
    again.run(2)
    for name, want in tree.named_leaves(whole.state()).items():
        np.testing.assert_array_equal(tree.named_leaves(again.state())[name], want, err_msg=name)


def test_an_evaluation_tells_who_lasted_until_the_limit():
    measured = {"returns": [5, 2, 5, 4], "lengths": [5, 2, 5, 4], "terms": {"angle": [1.0, 2.0]}}
    measured["survived"] = [1, 0, 0, 1]  # one fell at the last moment, another has a limit of its own
    found = problem(CartPole(time_limit=5), **SMALL).judge.summarise(measured)
    assert found["episode_survived"] == 0.5 and found["episode_length"] == 4 and found["episode_angle"] == 1.5
    assert found["episode_return_ci"] == pytest.approx(3.182446 * np.std([5, 2, 5, 4], ddof=1) / 2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_minibatches": 5}, r"48 transitions a group \(6 worlds x 8 steps\) do not divide into 5 minibatches"),
        ({"groups": 4}, "6 worlds do not divide into groups=4"),
        ({"pool": 12}, "a pool of 12 starts"),
        ({"advantage": "td"}, "unknown advantage 'td'"),
        ({"policy": "gaussian"}, "policy=gaussian does not fit"),
        ({"policy": "beta"}, "unknown policy 'beta'"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"standardise": "epoch"}, "unknown standardise 'epoch'"),
        ({"hidden": (8, 0)}, r"hidden is \[8, 0\]; every width"),
        ({"hidden": (), "shared": True}, r"needs a layer to share and hidden is \[\]"),
        ({"activation": "sine"}, "unknown activation 'sine'"),
        ({"std": "fixed"}, "unknown std 'fixed'"),
        ({"first_std": 0.0}, "first_std is 0.0; .* above 0"),
        ({"first_std": -1.0}, "first_std is -1.0; .* above 0"),
        ({"first_std": float("nan")}, "first_std is nan"),
        ({"clip": -0.5}, "clip is -0.5; .* above 0"),
        ({"clip": 0.0}, "clip is 0.0; .* above 0"),
        ({"reward_scale": 0.0}, "reward_scale is 0.0; .* above 0"),
        ({"value_clip": -1.0}, "value_clip is -1.0; .* not negative"),
        ({"target_kl": -1.0}, "target_kl is -1.0; .* not negative"),
        ({"vf_coef": -0.5}, "vf_coef is -0.5; .* not negative"),
        ({"ent_coef": -0.01}, "ent_coef is -0.01; .* not negative"),
        ({"ent_coef": float("nan")}, "ent_coef is nan; .* finite"),
        ({"pool": -8}, "pool is -8; it must be at least 0"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(changes, words):
    with pytest.raises(TwinaxError, match=words) as caught:
        problem(CartPole(), **{**SMALL, **changes})
    assert "\n" not in str(caught.value)


def test_a_problem_with_wide_networks_is_made_at_once():
    # Sizes are held against the memory only after this, so nothing large may be made here.
    assert problem(CartPole(), **{**SMALL, "hidden": (10**9, 10**9)}).hidden == (10**9, 10**9)


def test_a_network_of_ones_own_is_told_what_it_is_for():
    asked = []

    def note(rng, spec):
        asked.append((spec.role, spec.observation.shape, dict(spec.heads)))
        return residual(rng, spec)

    problem(CartPole(), network=note, **SMALL)
    problem(Pendulum(), network=note, std="state", **SMALL)
    assert asked == [
        ("actor", (1, 4), {"logits": 2}),
        ("critic", (1, 4), {"value": 1}),
        ("actor", (1, 3), {"mean": 1, "deviation": 1}),
        ("critic", (1, 3), {"value": 1}),
    ]


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (lambda rng, spec: networks.Linear.init(rng, 4, spec.outputs + 1), "as actor it needs 2 columns: 2 logits"),
        (lambda rng, spec: 3, "made a int; it must make a module that can be called"),
        (lambda rng, spec: networks.Linear([0.0], None), "has leaves of type float; parameters are NumPy arrays"),
    ],
)
def test_a_network_that_does_not_fit_is_one_sentence(network, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        problem(CartPole(), network=network, **SMALL)
    with pytest.raises(TwinaxError, match="shared=true is for networks of ours"):
        problem(CartPole(), network=residual, shared=True, **SMALL)
