"""Batches from somebody else's PyTorch code."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
import torch

from twinax import batches, bridge
from twinax.errors import TwinaxError
from twinax.gflownet import Scores, objectives


def _batch(**changes) -> dict[str, Any]:
    valid = torch.tensor([[True, True], [True, False]])
    log_pf = torch.tensor([[0.5, 0.25], [0.5, 1.0]], requires_grad=True).log()
    log_pb = torch.tensor([[0.0, 0.0], [-0.1, -torch.inf]])
    batch = {"log_pf": log_pf, "log_pb": log_pb, "log_reward": torch.tensor([1.0, 2.0]), "valid": valid}
    return {**batch, "log_z": torch.full((4,), 0.25), **changes}


def test_a_torch_batch_is_ready_for_the_objectives():
    scores = batches.batch_from_torch(**_batch())
    assert isinstance(scores, Scores) and isinstance(scores.log_pf, jax.Array)
    loss, _ = objectives.trajectory_balance(scores)
    first = 1 + 2 * np.log(0.5) + 0.1 - 1
    second = 1 + np.log(0.25) - 2
    np.testing.assert_allclose(loss, (first**2 + second**2) / 2, rtol=1e-6)
    flows = batches.batch_from_torch(**_batch(log_z=None, log_flow=torch.ones(2, 2)), objective="db")
    inner, (end, other) = np.log(0.5), (1 + np.log(0.5) - 1 + 0.1, 1 + np.log(0.25) - 2)
    loss, _ = objectives.detailed_balance(flows)
    np.testing.assert_allclose(loss, (inner**2 + end**2 + other**2) / 3, rtol=1e-6)


def test_the_gradient_goes_back_into_the_torch_graph():
    logits = torch.zeros(2, 2, requires_grad=True)
    log_pf = torch.nn.functional.logsigmoid(logits)
    scores = batches.batch_from_torch(**_batch(log_pf=log_pf))
    gradient = jax.grad(lambda x: objectives.trajectory_balance(eqx.tree_at(lambda s: s.log_pf, scores, x))[0])
    log_pf.backward(bridge.to_torch(gradient(scores.log_pf)))
    assert logits.grad is not None
    residual = 1 + 2 * np.log(0.5) + 0.1 - 1
    np.testing.assert_allclose(logits.grad[0, 0], residual * 0.5, rtol=1e-5)
    assert bool((logits.grad != 0)[0].all())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_reward": None}, "no 'log_reward': no proxy or reward was set"),
        (
            {"log_reward": torch.zeros(3)},
            r"'log_reward' has shape \(3,\) but 'valid' is \(2, 2\), so it must be \(2,\)",
        ),
        ({"log_reward": torch.tensor([0.0, -torch.inf])}, "'log_reward' of trajectory 1 is -inf"),
        ({"log_pf": None}, "no 'log_pf': the log-probabilities were never computed"),
        ({"log_pb": None}, "no 'log_pb': the log-probabilities were never computed"),
        ({"log_pf": torch.zeros(2, 2)}, "'log_pf' is exactly 0 at all 3 steps: .* never computed"),
        ({"log_pf": -torch.ones(3, 2)}, r"'log_pf' has shape \(3, 2\) but 'valid' has shape \(2, 2\)"),
        ({"log_pf": torch.full((2, 2), torch.nan)}, "'log_pf' is nan at step 0 of trajectory 0"),
        ({"log_pf": torch.full((2, 2), 0.5)}, "'log_pf' is as large as 0.5; .* at most 0"),
        ({"log_z": None}, "log Z is missing: this objective needs it"),
        ({"log_z": torch.tensor(torch.nan)}, "log_z is nan"),
        ({"valid": None}, "no 'valid'"),
        ({"valid": torch.ones(2, 2)}, "'valid' is float32; it must be boolean"),
        ({"valid": torch.ones(4, dtype=torch.bool)}, r"'valid' has shape \(4,\); it must be \(time, batch\)"),
        ({"valid": torch.tensor([[True, False]] * 2)}, "True at the first step of every trajectory"),
        ({"objective": "detailed_balance"}, "no 'log_flow', which this objective needs: pass log F of"),
        ({"objective": "fm"}, "no 'log_inflow', which this objective needs"),
        ({"objective": "fm", "log_inflow": torch.zeros(2, 2)}, "no 'log_outflow', which this objective needs"),
        ({"objective": "flow"}, "unknown objective 'flow'"),
        ({"log_flow": torch.zeros(3, 2)}, r"'log_flow' has shape \(3, 2\)"),
    ],
)
def test_the_usual_mistakes_have_their_own_messages(changes, message):
    with pytest.raises(TwinaxError, match=message):
        batches.batch_from_torch(**_batch(**changes))


def test_a_batch_with_the_batch_axis_first_gets_a_hint():
    wrong = {"valid": torch.ones(3, 2, dtype=torch.bool), "log_pf": -torch.ones(3, 2), "log_pb": -torch.ones(3, 2)}
    with pytest.raises(TwinaxError, match="time comes first, so transpose the others"):
        batches.batch_from_torch(**_batch(**wrong, log_reward=torch.zeros(3)))
    right = {"valid": torch.ones(3, 2, dtype=torch.bool), "log_pf": -torch.ones(2, 3)}
    with pytest.raises(TwinaxError, match="time comes first, so transpose it"):
        batches.batch_from_torch(**_batch(**right))
    gap = torch.tensor([[True, True], [False, True], [True, True]])
    with pytest.raises(TwinaxError, match="steps after a trajectory's end"):
        batches.batch_from_torch(**_batch(valid=gap))


def test_unknown_arguments_of_a_batch_are_refused():
    with pytest.raises(TypeError, match=r"\['logflow'\]"):
        batches.batch_from_torch(**_batch(logflow=torch.zeros(2, 2)))


def test_every_objective_takes_a_batch_with_what_it_needs():
    """A batch with all arrays goes through each objective: names here and in `Scores` are the same."""
    import twinax as tx

    grid = np.log(np.full((2, 3), 0.5, np.float32))
    grids = dict.fromkeys(
        (
            "log_flow",
            "logit",
            "state_log_reward",
            "state_log_energy",
            "log_pf_stop",
            "log_inflow",
            "log_outflow",
            "log_final_flow",
        ),
        grid,
    )
    for name, known in tx.gflownet.objectives.OBJECTIVES.items():
        scores = tx.batches.batch_from_torch(
            log_pf=grid, log_pb=2 * grid, log_reward=np.zeros(3, np.float32), valid=np.ones((2, 3), bool), log_z=1.0,
            objective=name, **grids,
        )  # fmt: skip
        if known.prior:
            with pytest.raises(TwinaxError, match="reads the scores of a prior policy"):
                known()(scores)
            continue
        assert np.isfinite(float(known()(scores)[0])), name
