"""Training that is recorded and played again: planted faults are found at their step, files are checked."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import jax
import jax.numpy as jnp
import pytest

from twinax.errors import TwinaxError
from twinax.parity import Different
from twinax.port import Agent, Record, Recorder, Step, Target, Update, replay

torch = pytest.importorskip("torch")
nn, optim = torch.nn, torch.optim
STEPS = 7
PLANTED = 5
"""The step from which on batches are such that a planted fault shows."""


def small(dtype=torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def batches(number: int = STEPS, dtype=torch.float64) -> list:
    generator = torch.Generator().manual_seed(1)
    made = [
        {k: torch.randn(5, n, generator=generator).to(dtype) for k, n in (("x", 3), ("y", 2))} for _ in range(number)
    ]
    for place, batch in enumerate(made, 1):
        batch["planted"] = torch.tensor(float(place >= PLANTED), dtype=dtype)
        batch["weight"] = 0.1
    return made


def error(module, batch):
    out = module(batch["x"])
    mse, size = ((out - batch["y"]) ** 2).mean(), (out**2).sum(-1).mean()
    return mse + batch["weight"] * size, {"mse": mse, "size": size}


def adam(module):
    return optim.Adam(module.parameters(), 0.01)


def agent_of(module, loss=error, optimizer=adam, dtype=torch.float64, **options) -> Agent:
    return Agent(module, batches(1, dtype)[0], loss, optimizer and optimizer(module), **options)


def train(directory, module, loss, optimizer, data, recorder=None, scheduler=None, clip=0.0, **options):
    """A person's own loop."""
    recorder = recorder or Recorder(directory, module, optimizer, **options)
    for batch in data:
        result = loss(module, batch)
        value, terms = result if isinstance(result, tuple) else (result, {})
        optimizer.zero_grad()
        value.backward()
        recorder.step(batch, loss=value, terms=terms)
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        if scheduler:
            scheduler.step()
    return recorder


def recorded(directory, dtype=torch.float64, **options):
    module = small(dtype)
    train(directory, module, error, adam(module), batches(dtype=dtype), **options).close()
    return directory


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("keep", [1, 3, 20])
def test_a_recorded_training_is_jaxs(tmp_path, dtype, keep):
    record = Record(recorded(tmp_path, dtype, keep=keep))
    assert [line.step for line in record.lines if line.start] == list(range(1, STEPS + 1, keep))
    assert [line.step for line in record.lines if line.end] == [STEPS]
    found = replay(record, agent_of(small(dtype), dtype=dtype)).raise_if_different()
    assert found.report.steps == STEPS and found.first_step is None and not found.notes
    assert {row.rung for row in found.report.rows} == {
        "settings",
        "values",
        "gradients",
        "record",
        "training",
        "parameters",
    }
    assert not jax.config.jax_enable_x64


def by_hand(factor=1.0, sign=1.0, weight=1.0, detached=False, gelu=False):
    """A port to JAX with a fault that shows in planted batches alone."""

    def loss(params, batch):
        hidden = jnp.tanh(batch["x"] @ params["0.weight"].T + params["0.bias"])
        out = hidden @ params["2.weight"].T + params["2.bias"]
        mse, size = ((out - batch["y"]) ** 2).mean(), (out**2).sum(-1).mean()
        planted = batch["planted"]
        mse = mse * (1 + planted * (factor * sign - 1))
        counted = size - planted * (size - jax.lax.stop_gradient(size)) if detached else size
        return mse + batch["weight"] * counted * (1 + planted * (weight - 1)), {"mse": mse, "size": size}

    return loss


@pytest.mark.parametrize(
    ("fault", "item", "cause"),
    [
        ({"factor": 2.0}, "mse", "a factor of two"),
        ({"sign": -1.0}, "mse", "the sign is turned round"),
        ({"weight": 0.0}, "loss", "plus -0.1 times 'size': the term is missing on one side"),
        ({"detached": True}, "loss d ", "'size' is counted but not differentiated on one side"),
    ],
)
def test_a_fault_in_a_port_by_hand_is_found_at_its_step_and_term(tmp_path, fault, item, cause):
    record = recorded(tmp_path)
    assert replay(record, agent_of(small()), by_hand()).ok
    found = replay(record, agent_of(small(), jax_loss=by_hand(**fault)))
    assert found.first_step == PLANTED and found.report.steps == PLANTED - 1
    assert found.first_difference.item.startswith(item) and found.first_difference.against == "torch"
    assert cause in found.hint
    with pytest.raises(Different, match=f"in step {PLANTED}"):
        found.raise_if_different()
    assert json.loads(found.to_json())["first_step"] == PLANTED


def test_a_port_without_terms_is_judged_by_those_of_pytorch(tmp_path):
    record = recorded(tmp_path)
    alone = by_hand(weight=0.0)
    found = replay(record, agent_of(small()), lambda params, batch: alone(params, batch)[0])
    assert found.first_step == PLANTED and "plus -0.1 times 'size'" in found.hint
    assert any("mse, size; they are not compared" in note for note in found.notes)


def test_a_transposed_square_weight_is_found(tmp_path):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    start = {name: p.clone() for name, p in module.state_dict().items()}
    train(tmp_path, module, error, adam(module), batches(2)).close()

    def turned(params, batch):
        return by_hand()({**params, "0.weight": params["0.weight"].T}, batch)

    module.load_state_dict(start)
    assert replay(tmp_path, agent_of(module), by_hand()).ok
    found = replay(tmp_path, agent_of(module), turned)
    assert found.first_step == 1 and "'0.weight' transposed" in found.hint


def test_a_port_by_hand_is_judged_with_any_optimizer(tmp_path):
    module = small()
    train(tmp_path, module, error, optim.Rprop(module.parameters(), 0.01), batches(), keep=3).close()
    agent = agent_of(small(), optimizer=lambda m: optim.Rprop(m.parameters(), 0.01))
    found = replay(tmp_path, agent, by_hand())
    assert found.ok and any("Rprop has no rule in JAX" in note for note in found.notes)
    assert replay(tmp_path, agent, by_hand(factor=2.0)).first_step == PLANTED
    with pytest.raises(TwinaxError, match="is a Rprop; a compiled step has"):
        replay(tmp_path, agent)


# The agent is not what was recorded


def test_the_agents_loss_is_not_the_recorded_one(tmp_path):
    record = recorded(tmp_path, torch.float32)

    def half(module, batch):
        value, terms = error(module, batch)
        return value / 2, terms

    found = replay(record, agent_of(small(), half))
    assert found.first_step == 1 and found.first_difference.rung == "record" and found.first_difference.item == "loss"
    assert "the agent's loss is not what was recorded" in found.hint and "a factor of two" in found.hint

    def cut(module, batch):
        out = module(batch["x"])
        mse, size = ((out - batch["y"]) ** 2).mean(), (out**2).sum(-1).mean()
        return mse + batch["weight"] * size.detach(), {"mse": mse}

    found = replay(record, agent_of(small(), cut))
    assert found.first_step == 1 and found.first_difference.item.startswith("gradient norm of ")
    assert "detached on one side" in found.hint


def test_other_settings_of_the_optimizer_are_named_before_anything_is_played(tmp_path):
    module = small()
    train(tmp_path, module, error, optim.AdamW(module.parameters(), 0.01), batches(3)).close()
    decayed = agent_of(small(), optimizer=lambda m: optim.AdamW(m.parameters(), 0.5, weight_decay=1e-4))
    found = replay(tmp_path, decayed)
    assert found.first_step is None and "weight_decay" in found.first_difference.item
    assert "0.0001 in the agent against 0.01 in the record" in found.first_difference.note
    found = replay(tmp_path, agent_of(small()))
    assert "kind of the optimizer" in found.first_difference.item and "Adam in the agent" in found.first_difference.note
    # The rate is that of the record.
    assert replay(tmp_path, agent_of(small(), optimizer=lambda m: optim.AdamW(m.parameters(), 0.5))).ok


def test_clipping_and_schedules_are_followed_and_forgotten_clipping_is_named(tmp_path):
    module = small()
    optimizer = adam(module)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(tmp_path, module, error, optimizer, batches(), scheduler=scheduler, clip=0.3).close()
    rates = [line.rates[0] for line in Record(tmp_path).lines if not line.end]
    assert rates == pytest.approx([0.01 * 0.5**k for k in range(STEPS)])
    assert replay(tmp_path, agent_of(small(), clip_norm=0.3)).ok
    found = replay(tmp_path, agent_of(small()))
    assert found.first_step == 1 and found.first_difference.item == "gradient norm after clipping"
    assert "and 0.3" in found.hint


class Agents(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.critic, self.actor, self.aim = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)
        self.aim.load_state_dict(self.critic.state_dict())
        self.double()


def critic_loss(agent, batch):
    with torch.no_grad():
        aim = batch["y"][:, :1] + 0.9 * agent.aim(batch["x"])
    return ((agent.critic(batch["x"]) - aim) ** 2).mean()


def actor_loss(agent, batch):
    out = agent.actor(batch["x"])
    return (0.1 * out**2 - out * agent.critic(batch["x"])).mean(), {"out": out.mean()}


def test_several_updates_with_delays_and_a_target(tmp_path):
    agent = Agents()
    losses = {"critic_loss": critic_loss, "actor_loss": actor_loss}
    optimizers = {"critic_loss": adam(agent.critic), "actor_loss": adam(agent.actor)}
    with Recorder(tmp_path, agent, optimizers, keep=4) as recorder:
        for number, batch in enumerate(batches(), 1):
            for name, loss in losses.items():
                if name == "actor_loss" and number % 2:
                    continue
                result = loss(agent, batch)
                value, terms = result if isinstance(result, tuple) else (result, {})
                optimizers[name].zero_grad()
                value.backward()
                recorder.step(batch, loss=value, terms=terms, update=name)
                optimizers[name].step()
            with torch.no_grad():
                for p, q in zip(agent.aim.parameters(), agent.critic.parameters(), strict=True):
                    p.lerp_(q, 0.1)
    steps = Record(tmp_path).steps
    assert [[line.update[:6] for line in lines] for lines in steps[:2]] == [["critic"], ["critic", "actor_"]]
    assert steps[1][0].file == steps[1][1].file  # one batch, kept once

    def made(**options):
        module = Agents()
        updates = [Update(critic_loss, adam(module.critic)), Update(actor_loss, adam(module.actor), every=2)]
        return Agent(module, batches(1)[0], updates, **options)

    assert replay(tmp_path, made(targets=[Target("aim", "critic", tau=0.1)])).ok
    found = replay(tmp_path, made())
    assert found.first_step == 2 and "in step 2, update 'critic_loss'" in found.first_difference.note

    def jax_actor(params, batch):
        out = batch["x"] @ params["actor.weight"].T + params["actor.bias"]
        return (0.2 * out**2 - out * (batch["x"] @ params["critic.weight"].T + params["critic.bias"])).mean()

    found = replay(tmp_path, made(targets=[Target("aim", "critic", tau=0.1)]), {"actor_loss": jax_actor})
    assert found.first_step == 2 and "update 'actor_loss'" in found.first_difference.note
    with pytest.raises(TwinaxError, match="give the JAX losses by these names"):
        replay(tmp_path, made(), jax_actor)


def test_a_changed_parameter_that_nothing_trains_is_a_forgotten_target(tmp_path):
    agent = Agents()
    with Recorder(tmp_path, agent, optimizer := optim.SGD(agent.actor.parameters(), 0.1), keep=2) as recorder:
        for batch in batches(4):
            value, terms = actor_loss(agent, batch)
            optimizer.zero_grad()
            value.backward()
            recorder.step(batch, loss=value)
            optimizer.step()
            agent.aim.load_state_dict(agent.actor.state_dict())

    def made(**options):
        module = Agents()
        return Agent(module, batches(1)[0], actor_loss, optim.SGD(module.actor.parameters(), 0.1), **options)

    assert replay(tmp_path, made(targets=[Target("aim", "actor")])).ok
    found = replay(tmp_path, made())
    assert found.first_step == 2 and found.first_difference.item.startswith("aim.")
    assert "no optimizer trains 'aim." in found.hint


# Randomness and state


def noisy(module, batch):
    return (nn.functional.dropout(module(batch["x"]), 0.3) - batch["y"]).abs().mean()


def test_a_random_loss_is_compared_with_the_record_where_a_step_made_it(tmp_path):
    def made():
        module = small(torch.float32)
        return module, optim.Adam(module.parameters(), 0.01)

    module, optimizer = made()
    step = Step(module, noisy, optimizer, seed=3, check=False)
    with Recorder(tmp_path / "step", step, keep=3) as recorder:
        for batch in batches(dtype=torch.float32):
            assert math.isfinite(recorder.step(batch)["loss"])
    agent = agent_of(small(torch.float32), noisy, dtype=torch.float32)
    found = replay(tmp_path / "step", agent)
    assert found.ok and not found.notes and {"record", "parameters"} <= {row.rung for row in found.report.rows}
    # Other draws are another training.
    other = Record(tmp_path / "step")
    other.lines = [line if line.end else type(line)(**{**vars(line), "seed": 4}) for line in other.lines]
    assert replay(other, agent).first_difference.rung == "record"

    module, optimizer = made()
    train(tmp_path / "own", module, noisy, optimizer, batches(3, torch.float32)).close()
    found = replay(tmp_path / "own", agent)
    assert found.ok and "record" not in {row.rung for row in found.report.rows}
    assert any("PyTorch's own when it was recorded" in note for note in found.notes)
    with pytest.raises(TwinaxError, match="draws random numbers"):
        replay(tmp_path / "own", agent, lambda params, batch: jnp.zeros(()))


def test_running_statistics_and_steps_of_two_updates_of_a_step(tmp_path):
    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()

    def plain(module, batch):
        return ((module(batch["x"]) - batch["y"]) ** 2).mean()

    module = made()
    train(tmp_path / "norm", module, plain, optim.SGD(module.parameters(), 0.1), batches(4), keep=2).close()
    found = replay(tmp_path / "norm", agent_of(made(), plain, lambda m: optim.SGD(m.parameters(), 0.1)))
    # What stands before a norm has a gradient of rounding.
    assert found.ok and any("'0.bias' is rounding" in note for note in found.notes)


# Which steps are recorded


def test_every_and_most_bound_a_record(tmp_path):
    module = small()
    data = batches(12)
    recorder = train(tmp_path, module, error, adam(module), data, every=3, most=3)
    assert recorder.full and recorder.steps == 12
    record = Record(tmp_path)
    assert [(line.step, line.start, line.end) for line in record.lines] == [
        (step, not end, end) for step in (1, 4, 7) for end in (False, True)
    ]
    assert replay(record, agent_of(small())).report.steps == 3
    assert replay(record, agent_of(small()), most=2).report.steps == 2


def test_without_an_optimizer_losses_and_gradients_are_recorded(tmp_path):
    module = small()
    recorder = Recorder(tmp_path, module)
    for batch in batches(3):
        module.zero_grad()
        value, terms = error(module, batch)
        value.backward()
        recorder.step(batch, loss=value, terms=terms)
        with torch.no_grad():
            for p in module.parameters():
                p -= 0.1 * p.grad
    recorder.close()
    assert all(line.start and not line.end for line in Record(tmp_path).lines)
    assert replay(tmp_path, agent_of(small(), optimizer=None)).ok
    assert replay(tmp_path, agent_of(small()), by_hand(weight=0.0)).ok  # planted batches come later


def test_a_record_goes_on_after_a_kill(tmp_path):
    module = small()
    optimizer = adam(module)
    data = batches()
    train(tmp_path, module, error, optimizer, data[:3])  # never closed
    with (tmp_path / "record.jsonl").open("ab") as file:
        file.write(b'{"step": 4, "update": "lo')
    assert replay(tmp_path, agent_of(small())).report.steps == 3
    recorder = Recorder(tmp_path, module, optimizer)
    assert recorder.steps == 3 and recorder.recorded == 3
    train(tmp_path, module, error, optimizer, data[3:], recorder).close()
    record = Record(tmp_path)
    assert [lines[0].step for lines in record.steps] == list(range(1, STEPS + 1))
    assert [(line.step, line.follows) for line in record.lines if line.start] == [(1, False), (4, False)]
    assert replay(record, agent_of(small())).report.steps == STEPS
    with pytest.raises(TwinaxError, match="holds the record of another module"):
        Recorder(tmp_path, nn.Linear(2, 2).double())


def test_steps_that_the_recorder_does_not_see_begin_a_replay_anew(tmp_path):
    module = small()
    optimizer = adam(module)
    recorder = Recorder(tmp_path, module, optimizer)
    for number, batch in enumerate(batches(), 1):
        optimizer.zero_grad()
        value, terms = error(module, batch)
        value.backward()
        if number not in (3, 4):
            recorder.step(batch, loss=value, terms=terms)
        if number == 6:
            continue  # such as a step that is left out for its gradients
        optimizer.step()
    recorder.close()
    assert [line.start for line in Record(tmp_path).lines] == [True, False, True, True, False]
    assert replay(tmp_path, agent_of(small())).ok


# Mistakes


def parts(module):
    optimizer = adam(module)
    value, _ = error(module, batches(1)[0])
    return optimizer, value


def test_the_order_of_calls_is_one_sentence(tmp_path):
    said = r"call recorder.step\(batch, loss=loss\) once after loss.backward\(\) and before optimizer.step\(\)$"
    batch = batches(1)[0]
    module = small()
    optimizer, value = parts(module)
    recorder = Recorder(tmp_path / "a", module, optimizer)
    with pytest.raises(TwinaxError, match=f"no parameter of 'loss' has a gradient in step 1; {said}"):
        recorder.step(batch, loss=value)
    with pytest.raises(TwinaxError, match=f"no loss; {said}"):
        recorder.step(batch)

    recorder = Recorder(tmp_path / "b", module, optimizer)
    value.backward()
    optimizer.step()
    with pytest.raises(TwinaxError, match=f"has used already; {said}"):
        recorder.step(batch, loss=value)

    recorder = Recorder(tmp_path / "c", small_one := small(), (optimizer := parts(small_one)[0]))
    error(small_one, batch)[0].backward()
    recorder.step(batch, loss=1.0)
    with pytest.raises(TwinaxError, match=f"called twice for 'loss'.*; {said}"):
        recorder.step(batch, loss=1.0)
    assert not Record(tmp_path / "c").lines and len(list((tmp_path / "c" / "steps").iterdir())) == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda d, m: Recorder(d, m, adam(m), every=0), "every is 0; it must be at least 1"),
        (lambda d, m: Recorder(d, m, adam(small())), r"shape \(8, 3\) that is not one of the module's"),
        (lambda d, m: Recorder(d, m, "adam"), "the optimizer of 'loss' is a str; give one of torch.optim"),
        (lambda d, m: Recorder(d, nn.Tanh()), "the Tanh has no parameters"),
        (
            lambda d, m: Recorder(d, m, {"a": adam(m), "b": adam(m)}).step(1, loss=1.0),
            "several updates; say which this is: update='a' or 'b'",
        ),
        (lambda d, m: Recorder(d, m, adam(m)).step(1, loss=1.0, update="b"), "there is no update 'b'"),
        (
            lambda d, m: with_gradient(d, m, {"x": object()}),
            "a builtins.object among what is given or returned is neither an array",
        ),
        (lambda d, m: with_gradient(d, m, {}, torch.ones(3)), r"the loss has shape \(3,\)"),
        (
            lambda d, m: Recorder(d, Step(m, error, adam(m))).step(1, loss=1.0),
            "a port.Step computes its losses itself",
        ),
    ],
)
def test_what_cannot_be_recorded_is_one_sentence(tmp_path, make, said):
    module = small(torch.float32)
    with pytest.raises(TwinaxError, match=said) as found:
        make(tmp_path / "record", module)
    assert "\n" not in str(found.value)


def with_gradient(directory, module, batch, loss=1.0):
    recorder = Recorder(directory, module, adam(module))
    sum(p.sum() for p in module.parameters()).backward()
    recorder.step(batch, loss=loss)


def edit(path, old, new):
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: edit(d / "record.jsonl", b'"step": 2', b'"step": 3'), "line 2 of .* the record was edited"),
        (lambda d: edit(d / "record.jsonl", b"{", b""), "line 1 of .* is no JSON"),
        (lambda d: edit(d / "record.json", b"Adam", b"Eve"), "record.json is not as it was written"),
        (lambda d: edit(d / "record.json", b"record 1", b"record 9"), "is no record of this version"),
        (lambda d: edit(d / "steps/00000002.safetensors", b"F64", b"I64"), "not the file that step 2 of the record"),
        (lambda d: (d / "steps/00000002.safetensors").unlink(), "cannot read step 2 of the record"),
        (lambda d: (d / "record.json").unlink(), "there is no record in"),
        (lambda d: (d / "record.jsonl").unlink(), "has no whole step yet"),
    ],
)
def test_a_record_that_is_missing_or_edited_is_one_sentence(tmp_path, change, said):
    change(recorded(tmp_path / "record"))
    with pytest.raises(TwinaxError, match=said) as found:
        replay(tmp_path / "record", agent_of(small()))
    assert "\n" not in str(found.value)


def renamed(batch):
    return {"z" if name == "x" else name: x for name, x in batch.items()}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: agent_of(nn.Sequential(nn.Linear(3, 8))),
            r"another module: only the record has the parameter '2.bias'",
        ),
        (
            lambda: agent_of(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))),
            r"'0.weight' has shape \(8, 3\) there and \(8, 4\) in the agent",
        ),
        (
            lambda: Agent(m := small(), renamed(batches(1)[0]), error, adam(m)),
            "the batch of step 1 does not fit the agent's: only that of the record has 'x'",
        ),
        (
            lambda: agent_of(small(), lambda m, b: m(b["y"]).mean()),
            r"the module cannot be captured.*\(.*test_port_record.py",
        ),
        (lambda: agent_of(small(), optimizer=None), "the record has an optimizer and the agent has none"),
        (lambda: Agent(small(), batches(1)[0]), "the agent has no loss"),
    ],
)
def test_an_agent_that_does_not_fit_is_one_sentence(tmp_path, make, said):
    recorded(tmp_path)
    with pytest.raises(TwinaxError, match=said) as found:
        replay(tmp_path, make())
    assert "\n" not in str(found.value)


def test_a_batch_that_the_loss_cannot_take_is_one_sentence(tmp_path):
    recorded(tmp_path)
    wrong = agent_of(small(), lambda m, b: m(b["y"]).mean())
    with pytest.raises(
        TwinaxError, match=r"the loss .* cannot be computed on the batch of step 1 .*test_port_record.py"
    ):
        replay(tmp_path, wrong, by_hand())


def test_losses_of_a_record_are_those_of_the_training(tmp_path):
    """The file itself, read without the library."""
    module = small()
    data = batches(3)
    expected = []

    def listened(module, batch):
        value, terms = error(module, batch)
        expected.append(value.item())
        return value, terms

    train(tmp_path, module, listened, optimizer := optim.SGD(module.parameters(), 0.1), data).close()
    lines = [json.loads(text) for text in (tmp_path / "record.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines if not line.get("end")] == expected
    assert all(math.isclose(line["grad_norm"], math.hypot(*line["grad_norms"].values())) for line in lines[:3])
    from safetensors.numpy import load_file

    first, last = (load_file(tmp_path / line["file"]) for line in (lines[0], lines[-1]))
    assert (first["batch/x"] == data[0]["x"].numpy()).all()
    assert (last["parameters/0.weight"] == module[0].weight.detach().numpy()).all()
    assert all(a["step"] <= b["step"] for a, b in pairwise(lines)) and optimizer.param_groups
