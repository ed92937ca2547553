"""Offline problems: phases, gating, targets, the optimizer, and agreement of the modes over the switch."""

from __future__ import annotations

import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest

import twinax as tx
from twinax import ops, tree
from twinax.engines import make_engine
from twinax.envs import PointMaze
from twinax.errors import TwinaxError
from twinax.noise import below
from twinax.offline import GymnasiumTask, MazeTask, collect_gymnasium, collect_maze, from_arrays, label_maze, problem
from twinax.optimizer import Optimizer

pytestmark = pytest.mark.usefixtures("quick_compilation")

NINE = ("iql", "rebrac", "mbpo_rebrac", "dino_rebrac", "crl_infonce", "td_infonce", "fb_repr", "hilp", "infom")
SWITCH = 8


def made(name, pretrain_steps=SWITCH, data=None, **options):
    data = data or few.walks()
    return problem(few.small(name, **options), data, data, pretrain_steps=pretrain_steps, batch_size=6)


# Compiling takes long; these four meet every kind of step, and the others run with the slow tests.
QUICK = ("iql", "mbpo_rebrac", "td_infonce", "hilp")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NINE])
def test_modes_agree_over_the_switch_of_phases(name):
    found = {}
    for mode in ("torch", "jax"):
        engine = make_engine(made(name), mode=mode, dtype="float64", chunk=20)
        engine.start(0)
        logs = engine.run(20)
        found[mode] = {**logs, **tree.named_leaves(engine.state())}
    assert found["torch"].keys() == found["jax"].keys()
    for label, want in found["torch"].items():
        np.testing.assert_allclose(found["jax"][label], want, rtol=1e-8, atol=1e-9, err_msg=label)


@pytest.mark.slow
def test_parity_climbs_the_whole_ladder():
    tx.parity.check(made("rebrac"), steps=12).raise_if_different()


def by_hand(subject, steps, seed=0):
    """Training written out again in NumPy over gradients from PyTorch: phases, gating, targets, one Adam for all."""
    import torch

    state = subject.init(seed)
    networks, targets = few.wide(state.networks), few.wide(state.targets)
    moments = Optimizer().init(networks)
    first, second = moments.first, moments.second
    carry = few.wide(state.carry)
    agent, rate = subject.agent, subject.optimizer.learning_rate
    for step in range(steps):
        phase = "pretrain" if step < subject.pretrain_steps else "finetune"
        full = phase == "pretrain" or (step + 1) % agent.actor_freq == 0
        draws = few.wide(tx.noise.numpy_draws(subject.draws(), seed, step))
        data = few.wide(subject.arrays())
        if step == subject.pretrain_steps:
            for name in agent.reset_targets():
                targets[name] = networks[name]
            if agent.actor_sees == "latent":
                carry["latent"] = subject.inferred(networks, subject.arrays_of("finetune", data))
        own = below(draws, phase)
        rows = subject.rows(phase, data, own, carry)
        tensors = jtu.tree_map(lambda x: torch.tensor(np.asarray(x)), (networks, targets, rows, own))
        leaves = jtu.tree_map(lambda x: x.requires_grad_(True), tensors[0])
        nets = few.nets_of(leaves, tensors[1])
        seen = agent.prepared(nets, tensors[2], tensors[3], phase)
        total = sum(
            loss(nets, seen, tensors[3])[0]
            for name, loss in agent.losses(phase).items()
            if full or name not in agent.gated
        )
        total.backward()
        grads = jtu.tree_map(lambda x: np.zeros(x.shape) if x.grad is None else x.grad.numpy(), leaves)
        if full or not agent.follows_when_full:
            for name in agent.followed[phase]:
                targets[name] = jtu.tree_map(lambda t, o: t + agent.tau * (o - t), targets[name], networks[name])
        first = jtu.tree_map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jtu.tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
        a, b = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
        networks = jtu.tree_map(
            lambda x, m, v, a=a, b=b: x - rate * (m / a) / (np.sqrt(v / b) + 1e-8), networks, first, second
        )
    return networks, targets


@pytest.mark.parametrize("name", ["iql", "rebrac", "fb_repr"])
def test_training_is_the_specified_one(name, double_precision):
    # One Adam with one count for all networks, zero gradients for those that a loss does not reach, the actor at every
    # fourth step of finetuning, and targets that follow the networks of before the step.
    subject = made(name)
    engine = make_engine(subject, mode="jax", dtype="float64", chunk=20)
    engine.start(0)
    engine.run(15)
    networks, targets = by_hand(subject, 15)
    found = engine.state()
    for label, want in tree.named_leaves({"n": networks, "t": targets}).items():
        have = tree.named_leaves({"n": found.networks, "t": found.targets})[label]
        np.testing.assert_allclose(have, want, rtol=1e-7, atol=1e-10, err_msg=label)


def test_an_actor_moves_between_its_steps_by_momentum():
    subject = made("iql", pretrain_steps=0)
    engine = make_engine(subject, mode="torch", chunk=1)
    engine.start(0)
    moved = []
    for _ in range(8):
        before = tree.named_leaves(engine.state().networks["actor"])
        engine.run(1)
        after = tree.named_leaves(engine.state().networks["actor"])
        moved.append(any((before[k] != after[k]).any() for k in before))
    assert moved == [False] * 3 + [True] * 5


def test_terms_of_the_other_phase_are_shown_as_they_were():
    engine = make_engine(made("iql"), mode="jax", chunk=20)
    engine.start(0)
    logs = engine.run(20)
    cloned = logs["bc.bc_loss"]
    assert len(set(cloned[:SWITCH])) == SWITCH and set(cloned[SWITCH:]) == {cloned[SWITCH - 1]}
    assert set(logs["value.value_loss"][:SWITCH]) == {0.0} and logs["value.value_loss"][SWITCH:].all()
    actor = logs["actor.actor_loss"]
    changes = [k for k in range(1, 20) if actor[k] != actor[k - 1]]
    assert changes == [11, 15, 19]


def test_a_run_goes_on_bit_for_bit_over_the_switch():
    engine = make_engine(made("hilp"), mode="jax", chunk=20)
    engine.start(3)
    engine.run(6)
    kept = engine.state()
    engine.run(8)
    whole = engine.state()
    engine.load(kept)
    engine.run(8)
    for a, b in zip(jtu.tree_leaves(whole), jtu.tree_leaves(engine.state()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_several_seeds_train_at_once():
    engine = make_engine(made("rebrac"), mode="jax", chunk=12, seeds=2)
    engine.start(0)
    logs = engine.run(12)
    assert logs["loss"].shape == (12, 2) and (logs["loss"][:, 0] != logs["loss"][:, 1]).all()


# Repairs of what was released, and the released behaviour


def test_the_cloned_actor_is_the_first_target_unless_faithful():
    def target_is_actor(faithful):
        engine = make_engine(made("rebrac", pretrain_steps=4, faithful=faithful), mode="torch", chunk=1)
        engine.start(0)
        engine.run(4)
        cloned = tree.named_leaves(engine.state().networks["actor"])
        engine.run(1)
        target = tree.named_leaves(engine.state().targets["actor"])
        return all((cloned[k] == target[k]).all() for k in cloned)

    assert target_is_actor(False) and not target_is_actor(True)


def test_the_target_of_a_critic_is_its_copy_unless_faithful():
    for faithful in (False, True):
        state = made("fb_repr", faithful=faithful).init(0)
        same = [
            np.array_equal(a, b)
            for a, b in zip(
                jtu.tree_leaves(state.networks["critic"]), jtu.tree_leaves(state.targets["critic"]), strict=True
            )
        ]
        assert all(same) != faithful


def test_pretraining_knows_nothing_of_the_task_unless_faithful():
    data = few.walks()
    assert made("hilp", data=data).datasets["pretrain"].masks.all()
    assert not made("hilp", data=data, faithful=True).datasets["pretrain"].masks.all()


def test_rewards_of_the_next_state_are_learned_on_it_unless_faithful():
    import dataclasses

    data = dataclasses.replace(few.walks(), reward_on_next=True)

    def states_of_rewards(faithful):
        subject = made("crl_infonce", data=data, faithful=faithful)
        draws = below(tx.noise.numpy_draws(subject.draws(), 0, 0), "finetune")
        rows = subject.rows("finetune", subject.arrays(), draws, {})
        return rows.get("reward_observations"), rows["next_observations"]

    assert states_of_rewards(True)[0] is None
    np.testing.assert_array_equal(*states_of_rewards(False))


def test_imagined_rows_are_used_unless_faithful():
    subject = made("mbpo_rebrac", pretrain_steps=0)
    state = subject.init(0)
    draws = tx.noise.numpy_draws(subject.draws(), 0, 0)
    carry, lesson = subject.collect(state, draws, subject.inputs())
    rows = lesson.rows["finetune"]
    assert int(carry["memory"]["written"]) == 12
    # What is drawn was imagined, and a rollout goes on from where it led.
    kept = carry["memory"]["observations"][:12]
    assert all((row == kept).all(1).any() for row in rows["imagined"]["observations"])
    np.testing.assert_array_equal(carry["memory"]["next_observations"][:6], kept[6:12])
    np.testing.assert_array_equal(carry["memory"]["next_actions"][:6], carry["memory"]["actions"][6:12])
    step = state.networks["transition"](kept, carry["memory"]["actions"][:12])
    np.testing.assert_allclose(carry["memory"]["next_observations"][:12], kept + step, atol=1e-6)
    # Critic and actor learn from them, and not from the data.
    nets = few.nets_of(state.networks, state.targets)
    loss = subject.agent.losses("finetune")["critic"]
    imagined = loss(nets, rows, lesson.draws["finetune"])[0]
    real = {key: value for key, value in rows.items() if key != "imagined"}
    assert imagined != loss(nets, real, lesson.draws["finetune"])[0]
    faithful = made("mbpo_rebrac", pretrain_steps=0, faithful=True)
    assert "memory" not in faithful.init(0).carry


def test_the_ring_of_imagined_rows_wraps_around():
    subject = made("mbpo_rebrac", pretrain_steps=0)
    engine = make_engine(subject, mode="torch", chunk=1)
    engine.start(0)
    engine.run(7)
    memory = engine.state().carry["memory"]
    assert int(memory["written"]) == 7 * 12 - 30 and np.abs(memory["observations"]).sum(1).all()


def test_next_actions_do_not_cross_trajectories_unless_faithful():
    def penalised(faithful):
        # A penalty at the end of a trajectory would compare with the first action of the next one.
        subject = made("rebrac", pretrain_steps=0, faithful=faithful, alpha_critic=1.0)
        draws = below(tx.noise.numpy_draws(subject.draws(), 0, 0), "finetune")
        return subject.rows("finetune", subject.arrays(), {**draws, "rows": np.array([3, 8, 17, 20, 26, 30])}, {})

    data, rows = few.walks(), penalised(False)
    at_end = ~rows["next_action_masks"].astype(bool)
    assert at_end.any() and (rows["next_actions"][at_end] == rows["actions"][at_end]).all()
    assert (penalised(True)["next_actions"][at_end] != rows["actions"][at_end]).any()
    assert data.terminals.sum() == 6


# Latents


def planted(name, width=5, rows=400):
    """An agent's networks, and labelled rows whose reward is linear in its features."""
    agent = few.small(name, latent_dim=width)
    rng = np.random.default_rng(0)
    networks = few.wide(agent.networks(rng, few.SIZES))
    batch = {key: rng.normal(size=(rows, few.SIZES.observation)) for key in ("observations", "next_observations")}
    z = rng.normal(size=width)
    return agent, networks, batch, np.sqrt(width) * z / np.linalg.norm(z)


def test_hilp_recovers_a_planted_reward():
    agent, networks, batch, z = planted("hilp")
    way = agent.features(networks, batch["next_observations"]) - agent.features(networks, batch["observations"])
    np.testing.assert_allclose(agent.infer(networks, {**batch, "rewards": 0.3 * way @ z}), z, atol=1e-9)


def test_forward_backward_infers_the_mean_of_rewarded_states():
    agent, networks, batch, _ = planted("fb_repr")
    rewards = np.zeros(len(batch["observations"]))
    rewards[7] = 2.0
    b = networks["backward"](batch["observations"])[7]
    wanted = np.sqrt(5) * b / np.linalg.norm(b)
    np.testing.assert_allclose(agent.infer(networks, {**batch, "rewards": rewards}), wanted, atol=1e-9)


# Evaluation


@pytest.mark.parametrize("reach", [0.0, 0.8])
def test_an_evaluation_counts_episodes_as_a_slow_loop_does(reach):
    maze = PointMaze("u", max_steps=30)
    task = MazeTask(maze, (1.5, 1.5), episodes=5, reach=reach)
    draws = tx.noise.numpy_draws(task.draws(), 0, 0)

    def act(observations):
        return ops.like(np.array([[-1.0, -0.5]], np.float32), observations) + 0 * observations

    found = task.rollout(act, draws)
    state = maze.reset(draws)
    for k in range(5):
        place, total, length, success = state.position[k].copy(), 0.0, 0, 0.0
        for _ in range(30):
            one = type(state)(place[None], place[None] * 0, np.array([[1.5, 1.5]], np.float32), np.zeros(1, np.int32))
            after, reward, reached, _ = maze.step(one, np.array([[-1.0, -0.5]], np.float32))
            if reach:
                reward = np.exp(-np.square(after.position - 1.5).sum(-1) / (2 * reach**2)) - 1
            place, total, length = after.position[0], total + reward[0], length + 1
            if reached[0]:
                success = 1.0
                break
        assert (found["lengths"][k], found["successes"][k]) == (length, success)
        assert found["returns"][k] == pytest.approx(total, rel=1e-5)
    assert 0 < found["successes"].sum() < 5


def test_zero_shot_evaluation_infers_the_latent_while_pretraining():
    maze = PointMaze("u", max_steps=10)
    data = label_maze(collect_maze(maze, 4, 20), maze, (1.5, 1.5))
    subject = problem(
        few.small("hilp"), data, data, pretrain_steps=3, batch_size=4, task=MazeTask(maze, (1.5, 1.5), episodes=4)
    )
    engine = make_engine(subject, mode="jax", chunk=4)
    engine.start(0)
    engine.run(2)
    metrics = engine.evaluate()
    assert 0 <= metrics["success"] <= 1 and metrics["length"] <= 10 and metrics["return"] <= 0
    assert not engine.state().carry["latent"].any()
    engine.run(2)
    latent = engine.state().carry["latent"]
    np.testing.assert_allclose(np.linalg.norm(latent), np.sqrt(5), rtol=1e-5)


def test_losses_on_validation_data_are_shown():
    data = few.walks()
    subject = problem(few.small("iql"), None, data, batch_size=6, validation=few.walks(seed=1))
    engine = make_engine(subject, mode="torch", chunk=2)
    engine.start(0)
    engine.run(2)
    metrics = engine.evaluate()
    assert {"validation.critic.critic_loss", "validation.actor.actor_loss"} <= set(metrics)


@pytest.mark.parametrize("mode", ["torch", "jax"])
def test_validation_shows_the_losses_of_the_phase(mode):
    data, other = few.walks(), few.walks(seed=1)
    subject = problem(few.small("fb_repr"), data, data, pretrain_steps=2, batch_size=6, validation=other)
    engine = make_engine(subject, mode=mode, chunk=1)
    engine.start(0)
    for step in range(4):
        shown = {name.removeprefix("validation.").split(".")[0] for name in engine.evaluate()}
        assert shown == ({"fb_repr", "fb_actor"} if step <= 2 else {"value", "critic", "actor"})
        engine.run(1)


def test_validation_in_pretraining_knows_no_task():
    """Rewards and masks of the validation data are left out, as they are of the pretraining data."""
    shown = []
    for masks in (np.zeros, np.ones):
        other = few.walks(seed=1, masks=masks(54, np.float32), rewards=masks(54, np.float32))
        subject = problem(few.small("hilp"), few.walks(), few.walks(), pretrain_steps=2, batch_size=6, validation=other)
        engine = make_engine(subject, mode="torch", chunk=1)
        engine.start(0)
        shown.append(engine.evaluate())
    assert shown[0] == shown[1] and "validation.critic.critic_loss" in shown[0]


# Bad input


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pretraining": None, "finetuning": None}, "there are no data"),
        ({"finetuning": few.walks().reward_free()}, "rewards is missing"),
        ({"pretraining": None, "pretrain_steps": 5}, "there are no pretraining data"),
        ({"finetuning": None, "pretrain_steps": 0}, "there are no finetuning data"),
        ({"pretrain_steps": -1}, "must be at least 0"),
    ],
)
def test_bad_input_is_one_sentence(change, sentence):
    given = {"pretraining": few.walks(), "finetuning": few.walks(), "pretrain_steps": 3, **change}
    with pytest.raises(TwinaxError, match=sentence):
        problem(few.small("iql"), given.pop("pretraining"), given.pop("finetuning"), **given)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("hilp", {"latent_dim": 0}, "latent_dim is 0; it must be at least 1"),
        ("infom", {"num_flow_goals": 0}, "num_flow_goals is 0; it must be at least 1"),
        ("infom", {"flow_steps": 0}, "flow_steps is 0; it must be at least 1"),
        ("iql", {"expectile": 2.0}, "expectile is 2.0; it must be between 0 and 1, neither of them"),
        ("infom", {"expectile": float("nan")}, "expectile is nan"),
        ("fb_repr", {"latent_mix_prob": 3.0}, "latent_mix_prob is 3.0; it must be between 0 and 1"),
        ("dino_rebrac", {"repr_temp": 0.0}, "repr_temp is 0.0; it must be above 0"),
        ("crl_infonce", {"std": "wide"}, "unknown std 'wide'"),
    ],
)
def test_options_that_would_give_no_numbers_are_refused(name, options, sentence):
    with pytest.raises(TwinaxError, match=sentence):
        few.small(name, **options)


def test_batches_and_rewards_that_would_give_no_numbers_are_refused():
    data = few.walks()
    for name in ("crl_infonce", "td_infonce", "fb_repr"):
        with pytest.raises(TwinaxError, match=f"batch_size is 1, but {name} compares the rows of a batch"):
            problem(few.small(name), data, data, pretrain_steps=1, batch_size=1)
    for name in ("hilp", "fb_repr"):
        with pytest.raises(TwinaxError, match=f"every reward is 0, so {name} cannot infer a task"):
            problem(few.small(name), data, few.walks(rewards=np.zeros(54)), pretrain_steps=1)
    for discount in (0.0, 1.0):
        with pytest.raises(TwinaxError, match=f"gamma is {discount}, but hilp draws goals at a distance"):
            problem(few.small("hilp", gamma=discount), data, data, pretrain_steps=1)


def test_actions_mean_the_same_in_both_phases():
    fields = {name: np.zeros((4, 3), np.float32) for name in ("observations", "next_observations")}
    fields |= {"actions": np.zeros((4, 2)), "terminals": np.ones(4), "rewards": np.ones(4)}
    one, other = (from_arrays(fields, -side, side) for side in (2.0, 3.0))
    with pytest.raises(TwinaxError, match=r"had actions from .* an action must mean the same in both"):
        problem(few.small("iql"), one, other, pretrain_steps=1)


def test_goals_need_a_last_row_that_is_terminal():
    data = few.walks()
    ends = data.terminals.copy()
    ends[-1] = False
    with pytest.raises(TwinaxError, match="terminals is 0 at row 53"):
        made("crl_infonce", data=few.walks(terminals=ends))


def test_a_task_needs_labelled_data_where_a_latent_stands_for_it():
    maze = PointMaze("u")
    data = collect_maze(maze, 3, 12)
    with pytest.raises(TwinaxError, match="hilp infers a task from labelled data, but there are none"):
        problem(few.small("hilp"), data, pretrain_steps=2, task=MazeTask(maze, (1.5, 1.5)))


def test_discrete_actions_are_refused():
    with pytest.raises(TwinaxError, match="actions are discrete"):
        made("iql", data=few.walks(actions=np.zeros(54, np.int32)))


def test_copies_of_a_gymnasium_environment_are_counted_as_single_episodes():
    gymnasium = pytest.importorskip("gymnasium")
    task = GymnasiumTask("Pendulum-v1", episodes=3, num_envs=2, seed=5)

    def act(observations):
        return np.tanh(observations[:, :1] + observations[:, 2:])

    found = task.play(act)
    env = gymnasium.make("Pendulum-v1")
    want = {}
    for copy, episodes in ((0, 2), (1, 1)):
        seen, _ = env.reset(seed=5 + copy)
        for episode in range(episodes):
            total, over = 0.0, False
            while not over:
                seen, reward, terminated, truncated, _ = env.step(2 * act(seen[None].astype(np.float32))[0])
                total, over = total + reward, terminated or truncated
            want[copy, episode] = total
            seen, _ = env.reset()
    env.close()
    np.testing.assert_allclose(sorted(found["returns"]), sorted(want.values()), rtol=1e-6)
    assert found["lengths"].tolist() == [200] * 3 and "successes" not in found


def test_an_agent_is_judged_in_gymnasium():
    pytest.importorskip("gymnasium")
    data = collect_gymnasium("Pendulum-v1", steps=60)
    subject = problem(
        few.small("iql"), None, data, batch_size=4, task=GymnasiumTask("Pendulum-v1", episodes=2, num_envs=2)
    )
    engine = make_engine(subject, mode="torch", chunk=2)
    engine.start(0)
    engine.run(2)
    first, again = engine.evaluate(), engine.evaluate()
    assert first == again and first["length"] == 200 and first["return"] < 0
