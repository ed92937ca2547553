"""What RDKit says of molecules: properties, pictures and how alike they are. It is imported when it is first asked."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.errors import TwinaxError, require

SIDE = 240
"""Width and height of a picture, in pixels."""


def _rdkit(part: str) -> Any:
    require("rdkit", "molecules", "a molecule")
    return importlib.import_module(f"rdkit.{part}")


def molecule(smiles: str) -> Any:
    """RDKit's molecule of a SMILES; what it refuses is one sentence.

    >>> molecule("c1ccccc1").GetNumAtoms()                                  # doctest: +SKIP
    6
    """
    chem = _rdkit("Chem")
    with _rdkit("rdBase").BlockLogs():
        made = chem.MolFromSmiles(smiles, sanitize=False)
        if made is None:
            raise TwinaxError(f"RDKit cannot read the SMILES '{smiles}'; correct the blocks that it is made of")
        try:
            chem.SanitizeMol(made)
        except ValueError as error:  # RDKit's own exceptions are of this kind
            raise TwinaxError(
                f"RDKit refuses the SMILES '{smiles}' ({str(error).strip()}); correct the blocks that it is made of"
            ) from error
    return made


def drug_likeness(made: Any) -> float:
    """QED, from 0 to 1."""
    return _rdkit("Chem.QED").qed(made)


def log_p(made: Any) -> float:
    """Crippen's estimate of the logarithm of the octanol-water partition coefficient."""
    return _rdkit("Chem.Crippen").MolLogP(made)


def weight(made: Any) -> float:
    """Average molecular weight, in daltons."""
    return _rdkit("Chem.Descriptors").MolWt(made)


def synthesis(made: Any) -> float:
    """How hard it is to make (Ertl and Schuffenhauer), from 1, easy, to 10."""
    return _synthesis_score()(made)


@functools.cache
def _synthesis_score() -> Callable[[Any], float]:
    """RDKit brings it as a script with its table beside it, outside of its package."""
    script = Path(_rdkit("RDConfig").RDContribDir) / "SA_Score" / "sascorer.py"
    found = importlib.util.spec_from_file_location("twinax_sascorer", script)
    if not script.is_file() or found is None or found.loader is None:
        raise TwinaxError(
            f"this RDKit has no synthesis score ({script.name} is not among its contributions); leave the exponent "
            "synthesis at 0, or install RDKit by pip"
        )
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module.calculateScore


def likeness(one: Sequence[str], other: Sequence[str]) -> np.ndarray:
    """Tanimoto's coefficient of Morgan fingerprints (radius 2, 1,024 bits), for each pair of two lists of SMILES."""
    first, second = (_fingerprints(tuple(smiles)) for smiles in (one, other))
    common = first @ second.T
    either = first.sum(1)[:, None] + second.sum(1)[None] - common
    return np.where(either > 0, common / np.maximum(either, 1), 1.0)


def _fingerprints(smiles: tuple[str, ...]) -> np.ndarray:
    generator = _rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(radius=2, fpSize=1024)
    rows = [generator.GetFingerprintAsNumPy(molecule(one)) for one in smiles]
    return np.array(rows, np.float64).reshape(len(rows), 1024)


def picture(smiles: str) -> np.ndarray:
    """A drawing of a molecule, (height, width, 3) of uint8."""
    from PIL import Image

    drawing = _rdkit("Chem.Draw.rdMolDraw2D")
    canvas = drawing.MolDraw2DCairo(SIDE, SIDE)
    drawing.PrepareAndDrawMolecule(canvas, molecule(smiles))
    canvas.FinishDrawing()
    return np.array(Image.open(io.BytesIO(canvas.GetDrawingText())).convert("RGB"))
