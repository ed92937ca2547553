"""Proof that engines, or two loss functions, agree; and hints on why they do not.

>>> import twinax as tx
>>> tx.parity.check(problem).raise_if_different()  # doctest: +SKIP
"""

from twinax.parity._check import check
from twinax.parity._compare_losses import compare_losses
from twinax.parity._counts import counts_of
from twinax.parity._difference import FLOOR, difference
from twinax.parity._hints import Evidence, likely_cause
from twinax.parity._precision import precision
from twinax.parity._report import Different, Report, Row

__all__ = [
    "FLOOR",
    "Different",
    "Evidence",
    "Report",
    "Row",
    "check",
    "compare_losses",
    "counts_of",
    "difference",
    "likely_cause",
    "precision",
]
