"""A person's own PyTorch module in JAX: what it consists of, whether it is equal, and what a compiled step gains.

FILE.py:make is a function without arguments that returns a twinax.port.Agent, or a tuple of a module and its inputs.
`twinax port replay RECORD FILE.py:make` plays a recorded training against JAX and names the first step that differs."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twinax import console
from twinax.errors import TwinaxError

HELP = "port a PyTorch module or loss of one's own to JAX, with the proof"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="AGENT", nargs="*", help="FILE.py:make or package.module:make; or replay RECORD AGENT"
    )
    parser.add_argument(
        "--operators", action="store_true", help="list PyTorch's core operators and what is in the table"
    )
    parser.add_argument(
        "--audit", action="store_true", help="list the defaults of Flax, Optax and Equinox that differ for this agent"
    )
    parser.add_argument(
        "--against",
        metavar="[UPDATE=]FILE.py:NAME",
        action="append",
        help="judge this JAX loss(params, batch) in a replay",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="steps of a replay (default: all)")
    parser.add_argument("--turns", type=int, default=20, metavar="N", help="turns of the measurement (default: 20)")
    parser.add_argument("--json", metavar="FILE", help="also write operators, proof and phases to a file")


def run(arguments: Namespace) -> int:
    if arguments.operators:
        return _operators()
    if not arguments.words:
        raise TwinaxError("nothing is named; write twinax port agent.py:make, or twinax port --operators")
    if arguments.words[0] == "replay":
        return _replay(arguments)
    if arguments.against or arguments.steps is not None:
        raise TwinaxError("--against and --steps belong to a replay; write twinax port replay RECORD agent.py:make")
    if len(arguments.words) > 1:
        raise TwinaxError(f"'{arguments.words[1]}' follows '{arguments.words[0]}', but one agent is ported at a time")
    return (_audit if arguments.audit else _port)(arguments.words[0], arguments)


def _operators() -> int:
    from twinax.port import operator_table

    rows = operator_table()
    console.table("PyTorch's core operators", ("operator", "kind", "in JAX"), rows, numbers_from=9)
    there = sum(state == "yes" for *_, state in rows)
    console.facts({"in the table": f"{there} of {len(rows)}"})
    return 0


def _replay(arguments: Namespace) -> int:
    from twinax import port

    if len(arguments.words) != 3:
        raise TwinaxError("a replay needs a record and an agent; write twinax port replay RECORD agent.py:make")
    if arguments.steps is not None and arguments.steps < 1:
        raise TwinaxError(f"--steps is {arguments.steps}; it must be at least 1")
    record, agent = port.Record(arguments.words[1]), port.make_agent(arguments.words[2])
    found = port.replay(record, agent, _against(arguments.against or []), most=arguments.steps)
    console.console().print(found.report.table())
    console.facts(
        {
            "record": f"{len(record.steps)} steps in {record.header.dtype}, {record.directory}",
            "replayed": f"{found.report.steps or 0} steps without a difference",
            **{"note" + " " * k: note for k, note in enumerate(found.notes)},
        }
    )
    if arguments.json:
        Path(arguments.json).write_text(found.to_json(), encoding="utf-8")
        console.facts({"written": arguments.json})
    return 0 if found.ok else 1


def _against(words: list[str]) -> Any:
    """The JAX losses that are named, of several updates by their names."""
    from twinax.port import named_function

    pairs = [word.partition("=")[::2] if "=" in word else ("", word) for word in words]
    made = {update: named_function(name, "JAX loss") for update, name in pairs}
    if len(made) != len(words):
        raise TwinaxError(
            "--against is given twice for one update; name them, as --against critic_loss=agent.py:jax_critic"
        )
    return made.get("", made) if len(made) < 2 and words and "" in made else made or None


def _audit(name: str, arguments: Namespace) -> int:
    from twinax import port

    agent = port.make_agent(name)
    rows = port.audit(agent)
    for row in rows:
        print(f"{row.setting} ({row.where})")
        said = {"in PyTorch": row.here, row.library: f"{row.default}: {row.effect}", "write": row.instead}
        console.facts({f"  {name}": text for name, text in said.items()})
    console.facts({"settings that differ": len(rows)})
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
        console.facts({"written": arguments.json})
    return 0


def _port(name: str, arguments: Namespace) -> int:
    from twinax import port

    agent = port.make_agent(name)
    updates = port.Step.updates_of(agent.loss, agent.optimizer, agent.clip_norm) if agent.loss is not None else ()
    functions = {
        update.title: port.function(agent.module, agent.batch, loss=update.loss, check=False) for update in updates
    } or {type(agent.module).__name__: port.function(agent.module, *agent.inputs, check=False)}
    about: dict[str, Any] = {"functions": {}}
    fine = True
    for title, one in functions.items():
        counts = one.operators()
        rows = [(operator, number) for operator, number in counts.items()]
        console.table(f"{title}: {sum(counts.values())} calls of {len(counts)} operators", ("operator", "calls"), rows)
        report = one.check()
        fine = fine and report.ok
        console.console().print(report.table())
        about["functions"][title] = {"operators": counts, "proof": json.loads(report.to_json())}
    if fine and updates:
        step = port.Step(agent.module, list(updates), targets=agent.targets, check=False)
        measured = step.profile(agent.batch, agent.sample, arguments.turns)
        console.facts(measured.facts())
        about["profile"] = measured.to_json()
        if agent.sample is None:
            console.facts({"ceiling": "not known: give Agent(sample=...), one turn of your sampler"})
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(about, indent=1), encoding="utf-8")
        console.facts({"written": arguments.json})
    return 0 if fine else 1
