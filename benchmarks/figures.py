"""Put the figures that the benchmarks wrote into the pages, between the lines that name them.

python benchmarks/figures.py
"""

from __future__ import annotations

import json
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / ".cache" / "benchmarks"
END = "<!-- end of figures -->"
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


def hunt_table(results: dict) -> str:
    """Collecting, training and epochs of the treasure hunt, beside the original if it ran in the same turns."""
    one, both = results["matrix"]["1"], results["matrix"]["2"]
    machine, original = results["machine"], results.get("original")
    lines = [
        "10 x 10, 5 agents, 50 turns, batch 256, width 250, 12 quantiles, one train step for each agent an epoch.",
        f"{machine['cores']} cores, jax {machine['jax']}, torch {machine['torch'].split('+')[0]}; compilation apart, "
        "medians. The machine multiplies matrices of these",
        f"sizes at {one:.0f} GFLOP/s on one core and {both:.0f} on all (XLA).",
    ]
    if original:
        lines += [
            f"Original is Sorrel {original['sorrel']} with torch {original['torch'].split('+')[0]} in the same turns, "
            "networks and batches of the same sizes; in brackets:",
            "times its speed.",
        ]
    lines += [
        "",
        "| mode | epsilon | worlds | cores | agent-steps/s collecting | train steps/s | GFLOP/s | ms an epoch |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in results["results"].items():
        mode, _, epsilon, _, worlds, *rest = name.split()
        times = [f" ({ratio:.1f}x)" for ratio in row["ratios"]] if row["ratios"] else ["", "", ""]
        cells = [mode, epsilon, worlds, "1" if rest else str(machine["cores"]), f"{row['agent_steps']:,.0f}{times[0]}"]
        cells += [f"{row['train_steps']:.1f}{times[1]}", f"{row['train_steps'] * results['gigaflops']:.0f}"]
        cells.append(f"{1e3 * row['epoch']:.0f}" + (times[2] if worlds == "1" else ""))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def agents_table(results: dict) -> str:
    """Updates per second of the offline agents by phase and mode, as Markdown."""
    rows = results["results"]
    products = [row["products"] for row in rows.values()]
    modes = [mode for mode in ("jax", "torch", "plain", "original") if mode in next(iter(rows.values()))["updates"]]
    ratios = [("jax", "torch"), ("torch", "plain"), ("jax", "original")]
    ratios = [pair for pair in ratios if set(pair) <= set(modes)]
    columns = ["agent", "phase", *modes, "GFLOP/s", "of products", *(" / ".join(pair) for pair in ratios)]
    lines = [
        "Observations of width 17, actions of width 6, batch 256, four layers of 512; updates per second on 2 cores.",
        "Plain is eager PyTorch, module by module. Of products: jax mode's GFLOP/s over those of products of these",
        f"sizes alone, {min(products):.0f} to {max(products):.0f}. All had their turns one after the other; medians.",
    ]
    if "original" in modes:
        version = next(iter(rows.values()))["found"]["original"]["jax"]
        lines.append(f"Original is the published JAX code of these agents, jax {version}, in the same turns.")
    lines += ["", "| " + " | ".join(columns) + " |", "|---|---|" + "---:|" * (len(columns) - 2)]
    for name, row in rows.items():
        speed, rate = row["updates"], row["updates"]["jax"] * row["gigaflops"]
        cells = [*name.split(), *(f"{speed[mode]:.1f}" for mode in modes), f"{rate:.0f}"]
        cells.append(f"{rate / row['products']:.0%}")
        cells += [f"{speed[one] / speed[other]:.2f}" for one, other in ratios]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def ppo_table(results: dict) -> str:
    """Environment steps per second of PPO on CartPole, as Markdown."""
    machine = results["machine"]
    lines = [
        f"64 worlds x 128 steps, 4 epochs x 4 minibatches, 64x64; {machine['cores']} cores, jax {machine['jax']}.",
        "Time limits are bootstrapped, observations and rewards normalised; PureJaxRL has neither. Runs by turns,",
        "medians, compilation apart:",
        "",
        "| | environment steps/s |",
        "|---|---:|",
        *(f"| {name} | {rate:,.0f} |" for name, rate in results["rates"].items()),
        "",
        ", ".join(f"{name}: {ratio:.2f}" for name, ratio in results["ratios"].items()) + ".",
    ]
    return "\n".join(lines)


def levels_table(results: dict) -> str:
    """Every level and runner of the walking robot, as Markdown."""
    lines = [
        f"The task `walk`, whole training; a control step is {results['substeps']} steps of physics; "
        f"{results['machine']['cores']} cores.",
        "",
        "| | control steps/s | physics steps/s | compilation, s | share of physics |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in results["results"].items():
        compiled, share = row.get("compile_seconds"), row["share"]
        cells = [name, f"{row['rate']:,.0f}", f"{results['substeps'] * row['rate']:,.0f}"]
        cells += ["-" if compiled is None else f"{compiled:.1f}", "-" if share is None else f"{share:.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", ", ".join(f"{name}: {ratio:.2f}" for name, ratio in results["ratios"].items()) + "."]
    return "\n".join(lines)


def recipe_table(recipe: dict) -> str:
    """The metrics along the 20^4 recipe, as Markdown."""
    curve = recipe["curve"]
    lines = [
        "| step | `total_variation` | `sampled_total_variation` | `log_z_error` | `eubo` - `elbo` | `modes_found` |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in [*curve[:4], *curve[5::2]]:
        cells = [f"{row['step']:,}", f"{row['total_variation']:.3f}", f"{row['sampled_total_variation']:.3f}"]
        cells += [f"{row['log_z_error']:+.3f}", f"{row['eubo'] - row['elbo']:.3f}", str(row["modes_found"])]
        lines.append("| " + " | ".join(cells) + " |")
    first = curve[0]
    return "\n".join(
        [
            *lines,
            "",
            "Exploration goes to 0 over the first 30,000 steps. Then the sampled distance settles at the noise floor",
            "of the block above, while the exact one goes on falling.",
            f"At the first row {first['modes_found']} of 16 modes had been found: the correlation was "
            f"{first['reward_correlation']:.3f}, the total variation {first['total_variation']:.3f}.",
            f"The training took {recipe['seconds']:.0f} s on 2 cores, evaluations included.",
        ]
    )


GALLERY = (
    "hypergrid sequences bitseq tfbind8 qm9 dag ising couplings set bag perfect_tree rings phylo molecules".split()
)
GALLERY_COLUMNS = (
    "objects", "parameters", "steps x batch", "training", "compilation", "exact TV", "log Z error", "correlation",
    "modes found",
)  # fmt: skip


def gallery_row(row: dict) -> str:
    """The numbers of a world of the gallery, as a row of a Markdown table; what a world has not is a dash."""

    def cell(key: str, form: str) -> str:
        return format(row[key], form) if row.get(key) is not None else "-"

    cells = [cell("objects", ","), cell("parameters", ","), f"{row['steps']:,} x {row['batch']}"]
    cells += [f"{row['training_seconds']:.0f} s", f"{row['compile_seconds']:.0f} s", cell("total_variation", ".4f")]
    cells += [cell("log_z_error", "+.4f"), cell("test_pearson", ".4f")]
    cells.append(f"{row['modes_found']} of {row['modes']}" if row["modes"] else "-")
    return "| " + " | ".join(cells) + " |"


def gallery_table(row: dict) -> str:
    """The command of a world, its picture and its numbers."""
    name = row["name"]
    words, lines = row["command"].split(), []
    for word in words:
        if not lines or len(lines[-1]) + len(word) > 104:
            lines.append("" if not lines else "   ")
        lines[-1] = f"{lines[-1]} {word}".lstrip() if len(lines) == 1 else f"{lines[-1]} {word}"
    return "\n".join(
        [
            "```bash",
            " \\\n".join(lines),
            "```",
            "",
            f"![{row['shows']}](images/gallery_{name}.png)",
            "",
            "| " + " | ".join(GALLERY_COLUMNS) + " |",
            "|" + "---:|" * len(GALLERY_COLUMNS),
            gallery_row(row),
        ]
    )


def couplings_table(results: dict) -> str:
    """How near learned couplings come to the likeliest ones."""
    likeliest = results["likeliest"]
    lines = [
        f"Ising 3 x 3, sigma 0.2, 2,000 systems, {results['updates']:,} updates with 256 fakes each:",
        "",
        "| steps back | accepted | RMSE to the likeliest J | -log RMSE to the true J | log-likelihood | exact TV |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    turned = {**results["turned"], "steps": f"{results['turned']['steps']}, ratio with wrong signs"}
    for row in (*results["rows"], turned):
        cells = [str(row["steps"]), f"{100 * row['acceptance']:.0f} %", f"{row['to_likeliest']:.4f}"]
        cells += [f"{row['coupling_accuracy']:.2f}", f"{row['data_log_likelihood']:.4f}"]
        lines.append("| " + " | ".join([*cells, f"{row['total_variation']:.3f}"]) + " |")
    best = f"{likeliest['data_log_likelihood']:.4f}"
    lines.append(f"| the likeliest J itself | | 0 | {-math.log(likeliest['to_true']):.2f} | {best} | |")
    return "\n".join(lines)


PAGES = {
    "couplings": ("docs/worlds_lattice.md", couplings_table),
    **{f"gallery_{name}": ("docs/gallery.md", gallery_table) for name in GALLERY},
    "gflownet_hypergrid": ("README.md", table),
    "recipe": ("docs/metrics.md", recipe_table),
    "treasurehunt": ("docs/worlds.md", hunt_table),
    "offline_agents": ("docs/offline.md", agents_table),
    "ppo": ("docs/ppo.md", ppo_table),
    "ppo_levels": ("docs/biped.md", levels_table),
}


def main() -> None:
    for name, (page, make) in PAGES.items():
        source = RESULTS / f"{name}.json"
        if not source.exists():
            print(f"no {source.name}: the figures of {page} stay as they are")
            continue
        begin = f"<!-- figures: {name} -->"
        text = (ROOT / page).read_text()
        before, rest = text.split(begin, 1)
        # A block that is filled for the first time has no end of its own; the next block keeps its.
        own, mark, others = rest.partition("<!-- figures:")
        after = (own.split(END, 1)[1] if END in own else own) + mark + others
        made = make(json.loads(source.read_text()))
        (ROOT / page).write_text(f"{before}{begin}\n\n{made}\n\n{END}{after}")
        print(made)


if __name__ == "__main__":
    main()
