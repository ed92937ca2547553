"""The agents outside of a run: a PyTorch object and a pure JAX function make the updates of the engines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest
import torch

import twinax as tx
from twinax import tree
from twinax.agents import TorchAgent, jax_agent
from twinax.engines import make_engine
from twinax.errors import TwinaxError
from twinax.noise import below
from twinax.offline import Sizes, problem

pytestmark = pytest.mark.usefixtures("quick_compilation")

SIZES = Sizes(3, 2, 6)


def lessons(subject, steps):
    """The batches and draws of an engine's steps, as NumPy arrays."""
    state = subject.init(0)
    for step in range(steps):
        phase = "pretrain" if step < subject.pretrain_steps else "finetune"
        own = below(tx.noise.numpy_draws(subject.draws(), 0, step), phase)
        yield phase, subject.rows(phase, subject.arrays(), own, state.carry), own


def trained(subject, steps):
    engine = make_engine(subject, mode="torch", chunk=steps)
    engine.start(0)
    engine.run(steps)
    return tree.named_leaves({"networks": engine.state().networks, "targets": engine.state().targets})


@pytest.fixture(scope="module")
def subject():
    data = few.walks()
    return problem(few.small("rebrac"), data, data, pretrain_steps=3, batch_size=6)


def test_the_object_makes_the_updates_of_the_engine(subject):
    agent = TorchAgent(subject.agent, SIZES, seed=0)
    for step, (phase, rows, draws) in enumerate(lessons(subject, 9)):
        if step == 3:
            agent.begin_finetuning()
        rows, draws = jtu.tree_map(lambda x: torch.from_numpy(np.array(x)), (rows, draws))
        assert agent.phase == phase
        terms = agent.update(rows, draws)
        assert all(np.isfinite(value) for value in terms.values())
    want = trained(subject, 9)
    found = agent.state_dict()
    assert found.pop("finetunes") and found.keys() == want.keys()
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_function_makes_the_updates_of_the_engine(subject):
    state, update, begin_finetuning = jax_agent(subject.agent, SIZES, seed=0)
    update = jax.jit(update, static_argnames="full")
    for step, (_, rows, draws) in enumerate(lessons(subject, 5)):
        if step == 3:
            state = begin_finetuning(state)
        rows, draws = jtu.tree_map(jnp.asarray, (rows, draws))
        state, terms = update(state, rows, draws, full=(step + 1) % 4 == 0)
    assert int(state.step) == 5 and "critic.critic_loss" in terms
    found = tree.named_leaves({"networks": state.networks, "targets": state.targets})
    for name, value in trained(subject, 5).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_actions_of_one_observation_and_of_many():
    agent = TorchAgent(few.small("iql"), SIZES)
    seen = torch.randn(4, 3)
    actions = agent.sample_actions(seen)
    assert actions.shape == (4, 2) and actions.abs().max() <= 1
    torch.testing.assert_close(agent.sample_actions(seen[1]), actions[1])
    assert (agent.sample_actions(seen, temperature=1.0) != actions).any()


def test_a_saved_agent_acts_as_before():
    agent = TorchAgent(few.small("hilp"), SIZES)
    rows = {k: torch.from_numpy(v).float() for k, v in few.lesson(agent.agent, "pretrain")[2].items()}
    agent.begin_finetuning(rows)
    other = TorchAgent(few.small("hilp"), SIZES, seed=1)
    seen = torch.randn(4, 3)
    other.load_state_dict(agent.state_dict())
    assert other.phase == "finetune"
    torch.testing.assert_close(other.sample_actions(seen), agent.sample_actions(seen))
    # The optimizer goes on with what was loaded.
    before = {k: v.clone() for k, v in other.state_dict().items()}
    other.update({**rows, "rewards": rows["rewards"]})
    assert any((before[k] != v).any() for k, v in other.state_dict().items())


@pytest.mark.parametrize("name", ["infom", "td_infonce", "hilp", "fb_repr", "rebrac"])
def test_finetuning_begins_with_the_targets_and_the_latent_of_a_run(name):
    """What a run does at its first step of finetuning, the function does in `begin_finetuning`."""
    agent = few.small(name)
    _, _, batch, draws = few.lesson(agent, "pretrain")
    rows = jtu.tree_map(lambda x: jnp.asarray(x, jnp.float32), {k: v for k, v in batch.items() if k != "latents"})
    state, update, begin_finetuning = jax_agent(agent, SIZES, seed=0)
    state, _ = update(state, rows, jtu.tree_map(jnp.asarray, draws))
    after = begin_finetuning(state, rows)
    for target, old in state.targets.items():
        fresh = state.networks[target] if target in agent.reset_targets() else old
        for found, wanted in zip(jtu.tree_leaves(after.targets[target]), jtu.tree_leaves(fresh), strict=True):
            np.testing.assert_array_equal(found, wanted)
    if agent.actor_sees == "latent":
        np.testing.assert_allclose(after.carry["latent"], agent.infer(state.networks, rows), rtol=1e-6)
        with pytest.raises(TwinaxError, match="infers a latent when finetuning begins; give it labelled rows"):
            begin_finetuning(state)
    draws = few.lesson(agent, "finetune")[3]
    _, terms = update(after, rows, jtu.tree_map(jnp.asarray, draws))
    assert not any(term.startswith(("bc.", "fb_", "metric.")) for term in terms) and len(terms) > 4


def test_what_a_batch_lacks_is_named():
    agent = TorchAgent(few.small("rebrac"), SIZES)
    with pytest.raises(TwinaxError, match="the batch has no 'next_actions', which rebrac needs"):
        names = ("observations", "actions", "rewards", "masks", "next_observations")
        agent.update({name: torch.zeros(6, 3) for name in names})
    with pytest.raises(TwinaxError, match="give it labelled rows"):
        TorchAgent(few.small("hilp"), SIZES).begin_finetuning()
