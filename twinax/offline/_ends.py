"""Where trajectories end and where values stop, by the names that libraries give to these columns.

D4RL has terminals (the world ended) and timeouts; Gymnasium terminations and truncations; a `Dataset` terminals (any
end), masks and truncations. A trajectory ends at any of them; only an end of the world stops the bootstrap.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from twinax.errors import TwinaxError

OVER = ("terminals", "terminations")
"""Names for the end of a world."""
CUT = ("timeouts", "truncations")
"""Names for the limit of time."""


def dataset_ends(fields: Mapping[str, Any], rows: int, source: str = "") -> dict[str, np.ndarray]:
    """The columns `terminals`, `truncations` and `masks` of a dataset, as far as these arrays say what they are.

    >>> found = dataset_ends({"terminals": np.array([0, 1, 0, 0]), "timeouts": np.array([0, 0, 0, 1])}, rows=4)
    >>> found["terminals"].tolist(), found["masks"].tolist()
    ([False, True, False, True], [True, False, True, True])
    """
    over = flags_of(fields, OVER, rows, source)
    if over is None:
        raise missing_ends(fields, source)
    cut = flags_of(fields, CUT, rows, source)
    columns = {"terminals": over if cut is None else over | cut}
    # Terminals beyond which a trajectory goes on are the world's ends, whatever else they are called. But in a dataset
    # of this project they are all ends; its truncations are among them, and its compact layout has rows without a step.
    apart = {"timeouts", "terminations"} & set(fields) or (cut is not None and bool((cut & ~over).any()))
    worldly = "valids" not in fields and bool(apart)
    if "masks" in fields:
        columns["masks"] = fields["masks"]
    elif worldly:
        columns["masks"] = ~over
    if cut is not None:
        columns["truncations"] = cut & ~over if worldly else cut
    return columns


def flags_of(fields: Mapping[str, Any], names: tuple[str, ...], rows: int, source: str = "") -> np.ndarray | None:
    """Rows at which any of these columns is 1; None if there is none of them."""
    begin, flags = f"{source}: " if source else "", None
    for name in names:
        if name not in fields:
            continue
        one = np.asarray(fields[name])
        one = one[:, 0] if one.shape == (rows, 1) else one
        if one.dtype.kind not in "fiub":
            raise TwinaxError(f"{begin}{name} has dtype {one.dtype}; it must hold numbers")
        if one.shape != (rows,):
            raise TwinaxError(f"{begin}{name} has shape {one.shape}, but observations has {rows} rows")
        if len(wrong := np.flatnonzero((one != 0) & (one != 1))):
            raise TwinaxError(f"{begin}{name} is {one[wrong[0]]} at row {wrong[0]}; it must be 0 or 1")
        flags = one.astype(bool) if flags is None else flags | one.astype(bool)
    return flags


def missing_ends(fields: Collection[str], source: str = "") -> TwinaxError:
    """What to say where nothing is called terminals."""
    begin = f"{source}: " if source else ""
    if named := next((name for name in ("dones", "done") if name in fields), None):
        return TwinaxError(
            f"{begin}terminals is missing; {named} does not say whether the world ended or time was up, so name it "
            "terminals where the world ended, and timeouts where time was up"
        )
    return TwinaxError(f"{begin}terminals is missing; there are {', '.join(sorted(fields)) or 'no arrays'}")
