"""Names of what can be chosen: ours, those of installed packages, and anybody's code."""

from __future__ import annotations

import sys

import pytest

from twinax.errors import TwinaxError, UnknownName
from twinax.registry import Registry, import_code, is_code

SHAPES = {"fraction": "fractions:Fraction", "square": "decimal:Decimal"}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of somebody's, and makes it importable."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a.b:C", True),
        ("a:C.make", True),
        ("a", False),
        ("a:", False),
        (":C", False),
        ("/a/b:c", False),
        ("a b:C", False),
    ],
)
def test_what_names_code(name, wanted):
    assert is_code(name) is wanted


def test_names_aliases_and_code():
    shapes = Registry("shape", SHAPES, {"ratio": "fraction"})
    from fractions import Fraction

    assert shapes.find("ratio") is shapes.find("fraction") is shapes.find("fractions:Fraction") is Fraction
    assert list(shapes) == ["fraction", "square"] and "ratio" not in shapes
    with pytest.raises(UnknownName, match="unknown shape 'sqare'; known: fraction, square. Did you mean 'square'"):
        shapes.find("sqare")


def test_a_name_is_added_once_and_as_code():
    shapes = Registry("shape", SHAPES, {"ratio": "fraction"})
    shapes.add("own", "collections:OrderedDict")
    assert shapes.find("own").__name__ == "OrderedDict"
    for taken in ("own", "square", "ratio"):
        with pytest.raises(TwinaxError, match=f"there is a shape called '{taken}' already"):
            shapes.add(taken, "collections:Counter")
    with pytest.raises(TwinaxError, match="write it as package.module:Name"):
        shapes.add("odd", "collections.Counter")


def test_installed_packages_add_names_and_change_none_of_ours(monkeypatch):
    class Entry:
        def __init__(self, name, value):
            self.name, self.value = name, value

    found = [Entry("theirs", "collections:Counter"), Entry("square", "collections:Counter")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == "twinax.shapes" else [])
    shapes = Registry("shape", SHAPES)
    assert "theirs" in shapes and shapes.find("theirs").__name__ == "Counter"
    assert shapes.find("square").__name__ == "Decimal"


def test_what_cannot_be_imported_is_one_sentence(module):
    module("breaks", "raise RuntimeError('no licence')")
    module("needs", "import nowhere_to_be_found")
    module("good", "class Maze: pass")
    for name, words in {
        "missing_package.worlds:Maze": "there is no module 'missing_package' to import",
        "breaks:Maze": "its module fails with RuntimeError: no licence",
        "needs:Maze": "its module needs 'nowhere_to_be_found', which is not installed",
    }.items():
        with pytest.raises(TwinaxError, match=f"world '{name}': {words}"):
            import_code(name, "world")
    with pytest.raises(UnknownName, match="unknown world in good 'Mase'; known: Maze. Did you mean 'Maze'"):
        import_code("good:Mase", "world")
