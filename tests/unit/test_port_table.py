"""The table of operators is whole: each core operator is there, or it is said why not."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from twinax.port import operator_table
from twinax.port._table import LEFT_OUT, OPERATORS


def test_every_core_operator_is_there_or_has_a_reason():
    rows = operator_table()
    assert len(rows) >= 189
    assert [name for name, _, state in rows if state == "not yet"] == []
    assert sum(state == "yes" for *_, state in rows) >= 180


def test_none_is_both_there_and_left_out():
    assert not set(OPERATORS) & set(LEFT_OUT)
