"""Write a run's trained policy for those who run it elsewhere, checked against the library's own.

policy.onnx holds everything from the observation to the action: normaliser, layers, squash and bounds. The same for
PyTorch is policy.safetensors. Beside it go policy.json, with the observation's layout, the actions and checksums, and
a robot's MJCF."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from twinax.cli import _console, _settings

HELP = "write a run's policy as ONNX, or as safetensors for PyTorch"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("file", metavar="FILE", help="policy.onnx or policy.safetensors")
    parser.add_argument("--seed", type=int, help="which of several seeds (default: the first)")
    _settings.add_trust(parser)


def run(found: Namespace) -> int:
    from twinax.ppo import export, read_policy
    from twinax.ppo._onnx import ROWS

    policy = read_policy(found.run, found.seed, found.trust)
    done = export(policy, found.file)
    actions = f"one of {policy.outputs}" if policy.discrete else f"{policy.outputs} numbers"
    _console.facts(
        {
            "policy": f"{policy.world.name}, step {policy.facts['step']:,}, seed {policy.facts['seed']}",
            "observation": f"{policy.inputs} numbers ({', '.join(policy.world.layout)})",
            "action": actions,
            "largest difference": f"{done.difference:.2g} of the largest value, over {ROWS} random observations",
            "written": ", ".join(map(str, done.files)),
        }
    )
    return 0
