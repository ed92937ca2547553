"""The package itself: what importing it costs, and that every public name is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import twinax


def test_importing_twinax_imports_neither_framework():
    code = "import sys, twinax; print(sorted({'torch', 'jax', 'numpy', 'equinox'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_using_the_library_does_not_import_torch():
    code = "import sys, twinax as tx; tx.bridge, tx.networks, tx.envs, tx.Optimizer; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", twinax.__all__)
def test_every_public_name_is_there(name):
    assert getattr(twinax, name) is not None
    assert name in dir(twinax)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="no attribute 'trian'.*train"):
        _ = twinax.trian  # pyright: ignore[reportAttributeAccessIssue]
