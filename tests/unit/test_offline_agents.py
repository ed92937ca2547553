"""The offline agents' losses: the same in every framework, and gradients only where they belong."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest
import torch

from twinax import tree
from twinax.offline import AGENTS, agents
from twinax.offline._agent import PHASES

pytestmark = pytest.mark.usefixtures("quick_compilation")

# Which networks a loss differentiates, by agent, phase and loss.
BC = {"bc": "actor"}
IQL = {"value": "value", "critic": "critic", "actor": "actor"}
REBRAC = {"critic": "critic", "actor": "actor"}
CONTRAST = {
    "pretrain": {"critic": "critic", **BC},
    "finetune": {"reward": "reward", "critic": "critic", "actor": "actor"},
}
FLOW = {"flow_occupancy": "field intention"}


def both(losses):
    return {"pretrain": losses, "finetune": losses}


TABLE = {
    "iql": {"pretrain": BC, "finetune": IQL},
    "rebrac": {"pretrain": BC, "finetune": REBRAC},
    "mbpo_rebrac": {
        "pretrain": {"transition": "transition", **BC},
        "finetune": {"transition": "transition", "reward": "reward", **REBRAC},
    },
    "dino_rebrac": {"pretrain": {"repr": "encoder", **BC}, "finetune": REBRAC},
    "crl_infonce": CONTRAST,
    "td_infonce": CONTRAST,
    "fb_repr": {"pretrain": {"fb_repr": "forward backward", "fb_actor": "actor"}, "finetune": IQL},
    "hilp": {"pretrain": {"metric": "metric", **IQL}, "finetune": IQL},
    "infom": {
        "pretrain": {**FLOW, **BC},
        "finetune": {**FLOW, "reward": "reward", "critic": "critic", "actor": "actor"},
    },
    "bc": both(BC),
    "td3bc": {"pretrain": BC, "finetune": REBRAC},
    "gcbc": both(BC),
    "gcivl": both({"value": "value", "actor": "actor"}),
    "gciql": both(IQL),
    "hiql": both({"value": "value subgoal", "low_actor": "actor", "high_actor": "high_actor"}),
    "qrl": both({"value": "metric multiplier", "dynamics": "dynamics", "actor": "actor"}),
    "fql": {
        "pretrain": {"flow": "field", "distil": "actor"},
        "finetune": {"flow": "field", "distil": "actor", "critic": "critic", "actor": "actor"},
    },
}


def test_the_table_has_every_agent():
    assert set(TABLE) == set(AGENTS)


def all_losses(agent, phase, networks, targets, batch, draws):
    """Every loss of a phase and its terms, by name."""
    nets = few.nets_of(networks, targets)
    rows = agent.prepared(nets, batch, draws, phase)
    return {name: loss(nets, rows, draws) for name, loss in agent.losses(phase).items()}


NINE = {agent.name for agent in agents.NINE}


@pytest.mark.parametrize("name", [n if n in NINE else pytest.param(n, marks=pytest.mark.slow) for n in TABLE])
def test_losses_agree_and_reach_only_their_networks(name, double_precision):
    agent = few.small(name)
    for phase in PHASES:
        if phase == "finetune" and TABLE[name]["pretrain"] == TABLE[name]["finetune"]:
            continue
        given = few.lesson(agent, phase)
        want = all_losses(agent, phase, *given)
        assert set(want) == set(TABLE[name][phase])
        labels = list(want)

        def in_jax(networks, rest, phase=phase, labels=labels):
            """Losses, their terms, and each loss's gradient."""

            def values(networks):
                found = all_losses(agent, phase, networks, *rest)
                return jnp.stack([found[label][0] for label in labels]), {k: v[1] for k, v in found.items()}

            losses, back, terms = jax.vjp(values, networks, has_aux=True)
            rows = [back(row)[0] for row in jnp.eye(len(labels), dtype=losses.dtype)]
            return losses, terms, rows

        losses, terms, gradients = jax.jit(in_jax)(*jtu.tree_map(jnp.asarray, (given[0], given[1:])))
        tensors = jtu.tree_map(lambda x: torch.tensor(np.asarray(x)), given)
        parameters, targets = jtu.tree_map(lambda x: x.requires_grad_(True), tensors[:2])
        theirs = all_losses(agent, phase, parameters, targets, *tensors[2:])
        named = tree.named_leaves(parameters)
        for k, label in enumerate(labels):
            value, parts = want[label]
            assert np.isfinite(value)
            np.testing.assert_allclose(losses[k], value, rtol=1e-10)
            np.testing.assert_allclose(theirs[label][0].detach(), value, rtol=1e-10)
            for key, part in parts.log().items():
                assert np.ndim(part) == 0 and np.isfinite(part)
                np.testing.assert_allclose(terms[label].log()[key], part, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(theirs[label][1].log()[key], part, rtol=1e-9, atol=1e-12)
            leaves = [*named.values(), *jtu.tree_leaves(targets)]
            grads = torch.autograd.grad(theirs[label][0], leaves, retain_graph=True, allow_unused=True)
            assert all(grad is None for grad in grads[len(named) :]), "a target has a gradient"
            reached = set()
            for (leaf, expected), grad in zip(tree.named_leaves(gradients[k]).items(), grads, strict=False):
                found = np.zeros(expected.shape) if grad is None else grad.numpy()
                np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-11, err_msg=f"{phase} {label} {leaf}")
                if np.abs(expected).max() > 0:
                    reached.add(leaf.split(".")[0])
            assert reached == set(TABLE[name][phase][label].split()), (phase, label)


@pytest.mark.parametrize("name", TABLE)
def test_the_agent_says_which_networks_a_phase_trains(name):
    agent = few.small(name)
    for phase in PHASES:
        reached = set(" ".join(TABLE[name][phase].values()).split())
        assert set(agent.trained[phase]) == reached
    networks = agent.networks(np.random.default_rng(0), few.SIZES)
    assert set(agent.network_names()) == set(networks)
    assert set(agent.targets) <= set(networks)
    assert set(agent.reset_targets()) <= set(agent.targets)
