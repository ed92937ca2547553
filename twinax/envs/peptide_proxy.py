"""A small network that says how much a peptide looks like an antimicrobial one."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from twinax import ops
from twinax.errors import TwinaxError
from twinax.networks import MLP, KHot
from twinax.tree import named_leaves, with_leaves
from twinax.types import Array, Float

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
"""The twenty amino acids."""
LONGEST = 60
"""Letters of a peptide at most."""
BESIDE = 2
"""Letters that are seen to the left, and to the right, of each."""
WIDTH = 64


class PeptideProxy(eqx.Module):
    """One network reads each letter with its neighbours; another reads the mean and the maximum over the letters.

    >>> proxy = PeptideProxy.init(np.random.default_rng(0))
    >>> proxy(np.array([[0, 5, 3, -1], [1, 1, -1, -1]])).shape
    (2,)
    """

    windows: MLP
    head: MLP

    @classmethod
    def init(cls, rng: np.random.Generator) -> PeptideProxy:
        """Weights from a NumPy generator."""
        seen = (2 * BESIDE + 1) * (len(LETTERS) + 1)
        return cls(MLP.init(rng, seen, (WIDTH,), WIDTH), MLP.init(rng, 2 * WIDTH + 1, (WIDTH,), 1))

    def __call__(self, letters: Any) -> Float[Array, " batch"]:
        """Logits of peptides given by the numbers of their letters, -1 behind the last."""
        places = letters.shape[1]
        codes = ops.pad(ops.where(letters < 0, len(LETTERS), letters), ((BESIDE, BESIDE),), len(LETTERS))
        beside = ops.stack([codes[:, k : k + places] for k in range(2 * BESIDE + 1)], -1)
        offsets = ops.arange(2 * BESIDE + 1, letters) * (len(LETTERS) + 1)
        seen = ops.relu(self.windows(KHot(beside + offsets, (2 * BESIDE + 1) * (len(LETTERS) + 1))))
        seen = ops.where((letters >= 0)[..., None], seen, 0.0)
        length = ops.cast(ops.sum(ops.cast(letters >= 0, "int32"), -1), seen)[:, None]
        mean = ops.sum(seen, 1) / ops.maximum(length, 0 * length + 1)
        return self.head(ops.concat([mean, ops.max(seen, 1), length / LONGEST], -1))[:, 0]


@dataclass(frozen=True)
class ProxyWeights:
    """Weights of such a network, told from others by a digest."""

    digest: str
    arrays: dict[str, np.ndarray] = field(compare=False, repr=False)
    """In float64, so that every framework computes in the widest float that it has on."""

    def proxy(self, given: Any) -> PeptideProxy:
        """The network with its arrays from a function of their names."""
        return with_leaves(_blank(), {name: given(name) for name in self.arrays})


def read_weights(file: str | Path) -> ProxyWeights:
    """The weights of a safetensors file, which `twinax data amp` writes."""
    import safetensors
    import safetensors.numpy

    path = Path(file).expanduser()
    try:
        arrays = safetensors.numpy.load_file(path)
    except OSError as error:
        raise TwinaxError(f"{path}: there is no such file of weights ({error.strerror or error})") from None
    except safetensors.SafetensorError as error:
        raise TwinaxError(f"{path}: this is not a whole safetensors file ({error})") from None
    wanted = {name: tuple(leaf.shape) for name, leaf in named_leaves(_blank()).items()}
    here = {name: tuple(array.shape) for name, array in arrays.items()}
    for name in sorted(wanted.keys() | here.keys()):
        if wanted.get(name) != here.get(name):
            raise TwinaxError(
                f"{path}: the array '{name}' has the shape {here.get(name)}, but the proxy has {wanted.get(name)}; "
                "make the file with `twinax data amp`"
            )
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise TwinaxError(f"{path}: the array '{bad[0]}' has numbers that are not finite; make the file again")
    digest = hashlib.sha256(b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))).hexdigest()
    return ProxyWeights(digest, {name: arrays[name].astype(np.float64) for name in wanted})


@functools.cache
def _blank() -> PeptideProxy:
    return PeptideProxy.init(np.random.default_rng(0))
