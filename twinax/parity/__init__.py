"""Proof that engines, or two loss functions, agree; and hints on why they do not.

>>> import twinax as tx
>>> tx.parity.check(problem).raise_if_different()  # doctest: +SKIP
"""

from twinax.parity._check import check
from twinax.parity._compare_losses import compare_losses
from twinax.parity._report import Different, Report, Row

__all__ = ["Different", "Report", "Row", "check", "compare_losses"]
