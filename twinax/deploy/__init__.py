"""What was trained, as a thing to use: a run that samples, acts and is evaluated, and policies for elsewhere.

>>> run = load("runs/first")                                                # doctest: +SKIP
>>> run.top_k(5).texts, run.evaluate()["total_variation"]                   # doctest: +SKIP
"""

from twinax.deploy._evaluation import Evaluation, fresh_seed
from twinax.deploy._export import Exported, export
from twinax.deploy._exported import LoadedPolicy, load_policy, load_torch_policy
from twinax.deploy._load import load
from twinax.deploy._rows import Rows
from twinax.deploy._run import LoadedRun
from twinax.deploy._trained import Trained

__all__ = [
    "Evaluation",
    "Exported",
    "LoadedPolicy",
    "LoadedRun",
    "Rows",
    "Trained",
    "export",
    "fresh_seed",
    "load",
    "load_policy",
    "load_torch_policy",
]
