"""The house stands: imports point one way, and only some rooms know a framework.

A known exception stands in a list with its reason, which may only get shorter: one that is no longer needed fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import twinax

ROOT = Path(twinax.__file__).parent
LEVELS = (
    ("errors", "types", "memory", "shapes", "interval", "episode", "console"),
    ("arguments", "platforms", "ranges", "registry", "objects", "mapped_files"),
    ("tree", "train_options", "recipe", "exportable", "blame", "npz_files"),
    ("ops",),
    ("noise", "ring"),
    ("networks", "optimizer", "parts"),
    ("problem", "envs"),
    ("gflownet", "iqn", "offline", "ppo"),
    ("bridge",),
    ("engines",),
    ("parity",),
    ("port",),
    ("runs",),
    ("agents", "batches", "brax", "commands"),
    ("conf",),
    ("deploy",),
    ("cli",),
)
"""From the ground up; a file imports from below, and from its own package."""
LEVEL = {name: k for k, names in enumerate(LEVELS) for name in names}

FAMILIES = ("gflownet", "iqn", "offline", "ppo")
FAMILY_FREE = ("networks", "envs", "bridge", "engines", "parity", "port", "runs", "deploy", "cli")
"""What serves every family and so names none: a family brings the titles of its numbers, its pictures and commands."""

KNOWS_FRAMEWORKS = ("ops", "bridge", "engines", "parity", "port")
HARMLESS = {"jax.tree_util"}
FRAMEWORKS = {
    ("deploy/_torch_policy.py", "torch"): "a plain nn.Module for who has no twinax; imported when one is asked for",
}
"""Frameworks imported at module level elsewhere, by file."""


def files() -> Iterator[tuple[str, str, ast.Module]]:
    """Every file with its package and its syntax."""
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        yield name, name.split("/")[0].removesuffix(".py"), ast.parse(path.read_text(encoding="utf-8"))


def imported(node: ast.AST) -> set[str]:
    """Modules that a statement imports; names from the package itself may be modules."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {f"twinax.{alias.name}" for alias in node.names} if node.module == "twinax" else {node.module or ""}
    return set()


def written(node: ast.AST) -> set[str]:
    """A module that a text names, as registries do: package.module, or package.module:Name."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return {text.partition(":")[0]} if re.fullmatch(r"twinax(\.\w+)+(:\w+)?", text) else set()


def at_module_level(tree: ast.AST) -> set[str]:
    """What is imported while the file is imported, at any depth but inside functions."""
    found, queue = set(), [tree]
    while queue:
        node = queue.pop()
        found |= imported(node)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            queue.extend(ast.iter_child_nodes(node))
    return found


def test_every_package_has_a_level():
    assert {package for _, package, _ in files()} - {"__init__"} == set(LEVEL)


def test_imports_point_down():
    upwards = {
        (name, module)
        for name, package, tree in files()
        if package in LEVEL
        for node in ast.walk(tree)
        for module in imported(node)
        if module.startswith("twinax.") and (other := module.split(".")[1]) in LEVEL
        if other != package and LEVEL[other] >= LEVEL[package]
    }
    assert not upwards


def test_no_layer_above_the_families_names_one():
    named = {
        (name, module)
        for name, package, tree in files()
        if package in FAMILY_FREE
        for node in ast.walk(tree)
        for module in imported(node) | written(node)
        if module.startswith("twinax.") and module.split(".")[1] in FAMILIES
    }
    assert not named


def test_private_modules_stay_private():
    found = {
        (name, module)
        for name, package, tree in files()
        for node in ast.walk(tree)
        for module in imported(node)
        if module.startswith("twinax.") and module.split(".")[1] != package
        if any(part.startswith("_") and not part.startswith("__") for part in module.split("."))
    }
    assert not found


def test_only_some_rooms_know_a_framework():
    known = {
        (name, module.split(".")[0])
        for name, package, tree in files()
        if package not in KNOWS_FRAMEWORKS
        for module in at_module_level(tree) - HARMLESS
        if module.split(".")[0] in ("torch", "jax", "jaxlib", "optax")
    }
    assert known == set(FRAMEWORKS)


def test_the_rule_sees_what_it_should():
    lines = ["import jax.tree_util as t", "if t:", "    import torch", "def f():", "    import jax.lax"]
    tree = ast.parse("\n".join([*lines, "class A:", "    from jax import numpy", "from twinax import ops, runs"]))
    assert at_module_level(tree) == {"jax.tree_util", "torch", "jax", "twinax.ops", "twinax.runs"}
