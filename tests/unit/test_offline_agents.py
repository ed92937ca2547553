"""The offline agents' losses: the same in every framework, and gradients only where they belong."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
import torch

from twinax import tree
from twinax.networks import frozen
from twinax.offline._agent import Nets, Sizes
from twinax.offline.agents import AGENTS

SIZES = Sizes(observation=3, action=2, batch=6)
SMALL = {"hidden": (8, 7)}
WIDTH = {"dino_rebrac": 5, "crl_infonce": 5, "td_infonce": 5, "fb_repr": 5, "hilp": 5, "infom": 5}

# Which networks a loss differentiates, by agent, phase and loss.
TABLE = {
    "iql": {"pretrain": {"bc": "actor"}, "finetune": {"value": "value", "critic": "critic", "actor": "actor"}},
    "rebrac": {"pretrain": {"bc": "actor"}, "finetune": {"critic": "critic", "actor": "actor"}},
    "dino_rebrac": {
        "pretrain": {"repr": "encoder", "bc": "actor"},
        "finetune": {"critic": "critic", "actor": "actor"},
    },
    "crl_infonce": {
        "pretrain": {"critic": "critic", "bc": "actor"},
        "finetune": {"reward": "reward", "critic": "critic", "actor": "actor"},
    },
    "td_infonce": {
        "pretrain": {"critic": "critic", "bc": "actor"},
        "finetune": {"reward": "reward", "critic": "critic", "actor": "actor"},
    },
    "fb_repr": {
        "pretrain": {"fb_repr": "forward backward", "fb_actor": "actor"},
        "finetune": {"value": "value", "critic": "critic", "actor": "actor"},
    },
    "hilp": {
        "pretrain": {"metric": "metric", "value": "value", "critic": "critic", "actor": "actor"},
        "finetune": {"value": "value", "critic": "critic", "actor": "actor"},
    },
    "infom": {
        "pretrain": {"flow_occupancy": "field intention", "bc": "actor"},
        "finetune": {
            "flow_occupancy": "field intention",
            "reward": "reward",
            "critic": "critic",
            "actor": "actor",
        },
    },
}
CASES = [(name, phase) for name in TABLE for phase in ("pretrain", "finetune")]


def made(name, **options):
    width = {"width": WIDTH[name]} if name in WIDTH else {}
    return AGENTS[name](**SMALL, **width, **({"goals": 3, "flow_steps": 2} if name == "infom" else {}), **options)


def wide(x):
    return jtu.tree_map(lambda leaf: np.asarray(leaf, np.float64) if np.asarray(leaf).dtype.kind == "f" else leaf, x)


def setting(agent, phase, seed=0):
    """Networks, targets that differ from them, a batch and draws; NumPy, float64."""
    rng = np.random.default_rng(seed)
    networks = wide(agent.networks(rng, SIZES))
    # Biases are zero at first, and heads nearly: away from there nothing is hidden by a zero.
    networks = jtu.tree_map(lambda x: x + 0.3 * rng.normal(size=x.shape), networks)
    targets = {k: jtu.tree_map(lambda x: x + 0.2 * rng.normal(size=x.shape), networks[k]) for k in agent.targets}
    rows, d, a = SIZES.batch, SIZES.observation, SIZES.action
    fields = ("observations", "next_observations", "value_goals", "actor_goals")
    batch = {name: rng.normal(size=(rows, d)) for name in fields}
    batch |= {name: rng.uniform(-0.9, 0.9, (rows, a)) for name in ("actions", "next_actions")}
    batch |= {"rewards": rng.normal(size=rows), "masks": (rng.random(rows) < 0.8) * 1.0}
    batch |= {"goal_rewards": -1.0 * (rng.random(rows) < 0.7), "goal_masks": (rng.random(rows) < 0.7) * 1.0}
    batch |= {"observation_min": np.full(d, -2.0), "observation_max": np.full(d, 2.0)}
    if phase == "finetune" and agent.name in ("hilp", "fb_repr"):
        batch["latents"] = np.tile(rng.normal(size=agent.width), (rows, 1))
    draws = {
        name: rng.normal(size=draw.shape) if draw.kind == "normal" else rng.random(draw.shape)
        for name, draw in agent.draws(phase, SIZES).items()
    }
    return networks, targets, batch, draws


def evaluate(loss, networks, targets, batch, draws):
    return loss(Nets(networks, frozen(networks), frozen(targets)), batch, draws)


@pytest.mark.parametrize(("name", "phase"), CASES)
def test_losses_agree_and_reach_only_their_networks(name, phase, double_precision):
    agent = made(name)
    networks, targets, batch, draws = setting(agent, phase)
    losses = agent.losses(phase)
    assert set(losses) == set(TABLE[name][phase])
    for label, loss in losses.items():
        value, terms = evaluate(loss, networks, targets, batch, draws)
        assert np.isfinite(value) and all(np.ndim(term) == 0 and np.isfinite(term) for term in terms.values())
        given = jtu.tree_map(jnp.asarray, (networks, targets, batch, draws))
        (ours, ours_terms), gradient = jax.value_and_grad(
            lambda n, *rest, loss=loss: evaluate(loss, n, *rest), has_aux=True
        )(*given)
        np.testing.assert_allclose(ours, value, rtol=1e-10)
        tensors = jtu.tree_map(lambda x: torch.tensor(np.asarray(x)), (networks, targets, batch, draws))
        leaves = jtu.tree_map(lambda x: x.requires_grad_(True), (tensors[0], tensors[1]))
        theirs, their_terms = evaluate(loss, *leaves, *tensors[2:])
        theirs.backward()
        np.testing.assert_allclose(theirs.detach(), value, rtol=1e-10)
        for key, term in terms.items():
            np.testing.assert_allclose(ours_terms[key], term, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(their_terms[key].detach(), term, rtol=1e-9, atol=1e-12)
        reached = set()
        named = tree.named_leaves(leaves[0])
        for leaf, expected in tree.named_leaves(gradient).items():
            found = named[leaf].grad
            found = np.zeros(expected.shape) if found is None else found.numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-11, err_msg=f"{label} {leaf}")
            if np.abs(expected).max() > 0:
                reached.add(leaf.split(".")[0])
        assert reached == set(TABLE[name][phase][label].split()), label
        assert all(leaf.grad is None for leaf in jtu.tree_leaves(leaves[1])), "a target has a gradient"
