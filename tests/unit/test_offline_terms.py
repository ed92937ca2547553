"""What offline agents log: parts that add up to each loss, and the published code's names with the published values."""

from __future__ import annotations

import numpy as np
import offline_small as few
import pytest

from twinax.offline import AGENTS
from twinax.offline._agent import PHASES
from twinax.offline.learning import Lesson, total_loss

WEIGHTED = {name: {"alpha_actor": 0.3} for name in ("rebrac", "mbpo_rebrac", "dino_rebrac", "td3bc")}


def terms_of(name, phase, loss, **options):
    """One loss of an agent, in NumPy and float64: its value, its terms and what they were made of."""
    agent = few.small(name, **{**WEIGHTED.get(name, {}), **options})
    networks, targets, batch, draws = few.lesson(agent, phase)
    nets = few.nets_of(networks, targets)
    rows = agent.prepared(nets, batch, draws, phase)
    value, terms = agent.losses(phase)[loss](nets, rows, draws)
    return value, terms, agent, nets, rows


@pytest.mark.parametrize("name", AGENTS)
def test_parts_of_every_loss_and_of_their_sum_add_up(name):
    agent = few.small(name, **WEIGHTED.get(name, {}))
    for phase in PHASES:
        networks, targets, batch, draws = few.lesson(agent, phase)
        for loss in agent.losses(phase):
            value, terms, *_ = terms_of(name, phase, loss)
            assert terms.parts, (phase, loss)
            np.testing.assert_allclose(sum(terms.parts.values()), value, rtol=1e-12, err_msg=f"{phase} {loss}")
        for full in (True, False):
            lesson = Lesson({phase: batch}, {phase: draws}, targets, full=full)
            value, terms = total_loss(agent, networks, lesson)
            np.testing.assert_allclose(sum(terms.parts.values()), value, rtol=1e-12)
            assert all(np.ndim(term) == 0 for term in terms.log().values())


def test_a_loss_that_is_left_out_is_shown_as_it_was_last():
    agent = few.small("rebrac")
    networks, targets, batch, draws = few.lesson(agent, "finetune")
    last = {"actor.bc_loss": np.array(7.0), "critic.critic_loss": np.array(8.0)}
    lesson = Lesson({"finetune": batch}, {"finetune": draws}, targets, last=last, full=False)
    value, terms = total_loss(agent, networks, lesson)
    assert terms.shown["actor.bc_loss"] == 7 and terms.parts["critic.critic_loss"] == value != 8


@pytest.mark.parametrize(
    ("name", "loss", "options"),
    [
        ("iql", "actor", {"extraction": "ddpgbc", "alpha": 3.0}),
        ("crl_infonce", "actor", {"alpha": 3.0}),
        ("td_infonce", "actor", {"alpha": 3.0}),
        ("infom", "actor", {"alpha": 3.0}),
        ("qrl", "actor", {"alpha": 3.0}),
        ("fb_repr", "fb_actor", {"alpha_repr": 3.0}),
    ],
)
def test_cloning_beside_a_critic_is_logged_with_its_weight(name, loss, options):
    value, terms, *_ = terms_of(name, "pretrain" if loss == "fb_actor" else "finetune", loss, **options)
    assert set(terms.parts) == {"q_loss", "bc_loss"} and terms.shown["actor_loss"] == value
    np.testing.assert_allclose(terms.parts["bc_loss"], -3.0 * terms.shown["bc_log_prob"], rtol=1e-12)


@pytest.mark.parametrize("name", WEIGHTED)
def test_rebracs_distance_is_logged_with_its_weight(name):
    value, terms, *_ = terms_of(name, "finetune", "actor")
    np.testing.assert_allclose(terms.parts["bc_loss"], 0.3 * terms.shown["mse"], rtol=1e-12)
    assert terms.shown["total_loss"] == value


def test_weighted_cloning_has_no_other_cloning_loss():
    _, terms, *_ = terms_of("iql", "finetune", "actor")
    assert "bc_loss" not in terms.log() and set(terms.parts) == {"actor_loss"}


def test_representations_and_their_orthonormality_are_two_parts():
    found = [terms_of("fb_repr", "pretrain", "fb_repr", orthonorm_coeff=weight)[1].parts for weight in (1.0, 2.5)]
    assert found[0]["repr_loss"] == found[1]["repr_loss"]
    np.testing.assert_allclose(found[1]["ortho_loss"], 2.5 * found[0]["ortho_loss"], rtol=1e-12)
    # Diagonal and the others, by the formula of the published code: mean over members and rows.
    _, terms, *_ = terms_of("fb_repr", "pretrain", "fb_repr")
    pieces = terms.shown["repr_diag_loss"] + terms.shown["repr_others"]
    np.testing.assert_allclose(terms.parts["repr_loss"], pieces, rtol=1e-12)


def test_the_models_change_has_its_sign():
    _, terms, _, _, rows = terms_of("mbpo_rebrac", "pretrain", "transition")
    change = rows["next_observations"] - rows["observations"]
    np.testing.assert_allclose(terms.shown["obs_res"], np.mean(change), rtol=1e-12)


@pytest.mark.parametrize(("name", "loss"), [("hilp", "metric"), ("gcivl", "value"), ("hiql", "value")])
def test_values_of_goals_are_those_of_the_mean_member(name, loss):
    _, terms, agent, nets, rows = terms_of(name, "pretrain", loss)
    s, goals = rows["observations"], rows["value_goals"]
    network = nets.online["metric" if name == "hilp" else "value"]
    members = network(s, agent.point(nets.online, s, goals) if name == "hiql" else goals)
    assert members.shape[0] == 2
    np.testing.assert_allclose(terms.shown["v_max"], np.max(np.mean(members, 0)), rtol=1e-10)
    np.testing.assert_allclose(terms.shown["v_min"], np.min(np.mean(members, 0)), rtol=1e-10)


def test_the_divergence_is_logged_with_and_without_its_weight():
    _, terms, *_ = terms_of("infom", "pretrain", "flow_occupancy", kl_weight=0.2)
    np.testing.assert_allclose(terms.parts["weighted_kl_loss"], 0.2 * terms.shown["kl_loss"], rtol=1e-12)
