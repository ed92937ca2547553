"""Write a run's trained policy for those who run it elsewhere, checked against the library's own.

policy.onnx holds everything from the observation to the action: normaliser, layers, squash and bounds. The same for
PyTorch is policy.safetensors. Beside it go policy.json, with the observation's layout, the actions and checksums, and
a robot's MJCF."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from twinax import console
from twinax.cli import _settings

HELP = "write a run's policy as ONNX, or as safetensors for PyTorch"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument("file", metavar="FILE", help="policy.onnx or policy.safetensors")
    parser.add_argument("--seed", type=int, help="which of several seeds (default: the first)")
    parser.add_argument("--agent", type=int, metavar="K", help="which of several agents, from 0 (default 0)")
    _settings.add_trust(parser)


def run(arguments: Namespace) -> int:
    from twinax import deploy

    loaded = deploy.load(arguments.run, seed=arguments.seed, trust=arguments.trust)
    done = loaded.export(arguments.file, **({} if arguments.agent is None else {"agent": arguments.agent}))
    spec = done.description
    seen, action = spec["input"], spec["output"]
    parts = ", ".join(part["name"] for part in seen.get("layout", ()))
    console.facts(
        {
            "policy": f"{spec.get('world') or spec.get('agent')}, step {loaded.step:,}, seed {loaded.facts['seed']}",
            "observation": f"{' x '.join(map(str, seen['shape']))} numbers" + (f" ({parts})" if parts else ""),
            "action": f"one of {action['choices']}" if "choices" in action else f"{action['size']} numbers",
            "largest difference": f"{done.difference:.2g} of the largest value, over {done.observations} random "
            "observations",
            "written": ", ".join(map(str, done.files)),
        }
    )
    return 0
