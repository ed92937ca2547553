"""Draw the exact total variation along the 20^4 recipe that gflownet_hypergrid.py trained.

python benchmarks/gflownet_hypergrid.py --no-peers && python benchmarks/plot_recipe.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".cache" / "benchmarks" / "recipe.json"
    curve = json.loads(source.read_text())["curve"]
    steps = [row["step"] for row in curve]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.semilogy(steps, [row["total_variation"] for row in curve], marker="o", markersize=3, label="exact")
    left.semilogy(steps, [row["sampled_total_variation"] for row in curve], color="0.6", label="of the sample store")
    left.set(title="total variation", xlabel="steps", ylim=(0.01, 1))
    left.legend(frameon=False)
    right.plot(steps, [row["eubo"] for row in curve], label="EUBO")
    right.plot(steps, [row["log_z"] for row in curve], label="learned log Z")
    right.plot(steps, [row["elbo"] for row in curve], label="ELBO")
    truth = curve[-1]["log_z"] - curve[-1]["log_z_error"]
    right.axhline(truth, color="black", linewidth=0.8, linestyle="--", label=f"log Z = {truth:.3f}")
    right.set(title="log Z and its bounds", xlabel="steps", ylim=(truth - 2, truth + 1.5))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    target = ROOT / "docs" / "images" / "hypergrid_recipe.png"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, dpi=110)
    print(f"written to {target}")


if __name__ == "__main__":
    main()
