"""The log of a run, for who goes on with it in a notebook."""

from __future__ import annotations

from typing import Any

from twinax.errors import TwinaxError
from twinax.runs.metrics import Row


class Rows(list[Row]):
    """Logged rows, each a dictionary by name with its `step`.

    >>> rows = Rows([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "score": 3.0}])
    >>> rows.column("score")
    [(2, 3.0)]
    """

    def column(self, name: str) -> list[tuple[int, Any]]:
        """Step and value of every row that has this metric."""
        return [(row["step"], row[name]) for row in self if name in row]

    def frame(self) -> Any:
        """All of them as a pandas DataFrame with the steps as its index."""
        try:
            import pandas
        except ImportError as error:
            raise TwinaxError(
                "a frame of the metrics needs pandas, which is not installed: pip install pandas; without it they are "
                "a list of dictionaries"
            ) from error
        return pandas.DataFrame(list(self)).set_index("step") if self else pandas.DataFrame()
