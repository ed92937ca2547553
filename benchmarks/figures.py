"""Put the figures that gflownet_hypergrid.py printed into README.md, after the line that names them.

python benchmarks/figures.py [RESULTS.json]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- figures: gflownet_hypergrid -->", "<!-- end of figures -->"
OBJECTIVES = ("trajectory_balance", "detailed_balance", "subtrajectory_balance")


def table(results: dict) -> str:
    """Steps per second by contender, objective and stage, and the ratios that matter, as Markdown."""
    rates, machine = results["rates"], results["machine"]

    def cell(who: str, objective: str, stage: str) -> str:
        rate = rates.get(f"{who} {objective} {stage}", rates.get(f"{who} {objective} any"))
        return f"{rate:.0f}" if rate else "-"

    columns = [(objective, stage) for objective in OBJECTIVES for stage in ("fresh", "trained")]
    lines = [
        f"20^4, batch 16, MLP 256x2, learned backward policy; {machine['cores']} cores, jax {machine['jax']}, "
        f"torch {machine['torch'].split('+')[0]}; steps per second, compilation apart:",
        "",
        "| | " + " | ".join(f"{objective.replace('_', ' ')}, {stage}" for objective, stage in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for who in ("jax", "hybrid", "torch", "gfnx", "torchgfn"):
        lines.append(f"| {who} | " + " | ".join(cell(who, *column) for column in columns) + " |")
    runs = results["results"]
    gfnx = next((rows[0]["jax"] for name, rows in runs.items() if name.startswith("gfnx")), None)
    rounds = max(len(rows) for rows in runs.values())
    if gfnx:
        lines += ["", f"gfnx ran with jax {gfnx}, which pip chose for the versions that it pins, so its row compares"]
        lines[-1] += (
            f" across JAX versions. Medians of three to five repeats in each of {rounds} round(s) on a shared machine."
        )
    whole = {k: v for k, v in results["ratios"].items() if "whole recipe" in k}
    recipe = results["recipe"]
    lines += [
        "",
        f"Over the whole trajectory-balance recipe ({recipe['steps'] - 1:,} steps, exact total variation "
        f"{recipe['curve'][-1]['total_variation']:.3f} at its end), added up from the rates at five of its stages: "
        + ", ".join(f"{name.split(',')[0]} {value:.1f}x" for name, value in whole.items())
        + ".",
    ]
    return "\n".join(lines)


def main() -> None:
    default = ROOT / ".cache" / "benchmarks" / "gflownet_hypergrid.json"
    results = json.loads((Path(sys.argv[1]) if len(sys.argv) > 1 else default).read_text())
    page = ROOT / "README.md"
    text = page.read_text()
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1] if END in rest else rest
    page.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}")
    print(table(results))


if __name__ == "__main__":
    main()
