"""What was trained, as a thing to use: a run that samples, acts and is evaluated, and policies for elsewhere.

>>> run = load("runs/first")                                                # doctest: +SKIP
>>> run.top_k(5).texts, run.evaluate()["total_variation"]                   # doctest: +SKIP
"""

from twinax.deploy._evaluation import Evaluation
from twinax.deploy._load import load
from twinax.deploy._rows import Rows
from twinax.deploy._run import LoadedRun
from twinax.deploy._trained import Trained

__all__ = ["Evaluation", "LoadedRun", "Rows", "Trained", "load"]
