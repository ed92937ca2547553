"""Alignments of sequences: read from files, and simulated along a random tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinax.envs._parsimony import read_letters
from twinax.errors import TwinaxError

LEAST = 3
"""Two taxa have one tree."""
MOST_BYTES = 2**28
"""Files of more bytes are no alignment that a tree of parsimony is sought for."""


@dataclass(frozen=True)
class Alignment:
    """Sequences of one length, each of a taxon.

    >>> Alignment(("a", "b", "c"), ("ACGT", "ACGA", "TCGA")).num_sites
    4
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    origin: str = "the alignment"
    """What sentences call it."""

    def __post_init__(self):
        who = self.origin
        if len(self.names) != len(self.sequences) or len(self.names) < LEAST:
            raise TwinaxError(
                f"{who} has {len(self.names)} names and {len(self.sequences)} sequences; trees need as many names as "
                f"sequences, and at least {LEAST}"
            )
        seen: set[str] = set()
        for name in self.names:
            if name in seen:
                raise TwinaxError(f"{who} has two sequences of the name {name!r}; every taxon needs a name of its own")
            seen.add(name)
        for name, sequence in zip(self.names, self.sequences, strict=True):
            if not sequence:
                raise TwinaxError(f"{who} has no letters for {name!r}; every taxon needs a sequence")
            if len(sequence) != self.num_sites:
                raise TwinaxError(
                    f"{who} has sequences of different lengths: {self.names[0]!r} has {self.num_sites} sites and "
                    f"{name!r} has {len(sequence)}; align them first, with - for gaps"
                )

    @property
    def num_sites(self) -> int:
        """The length of every sequence."""
        return len(self.sequences[0])

    def sets(self) -> np.ndarray:
        """What each letter stands for, (taxa, sites) of uint8: a bit for each of the five states."""
        return read_letters(self.origin, self.sequences)


def read_alignment(path: Path | str) -> Alignment:
    """An alignment from a file: FASTA, or JSON that has the sequences by name or as a list."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MOST_BYTES:
            raise TwinaxError(f"{path} is {'too large' if size > MOST_BYTES else 'no file'}; name a FASTA or JSON file")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TwinaxError(f"{path} is no text; an alignment is a FASTA file, or JSON with sequences by name") from error
    except OSError as error:
        raise TwinaxError(f"the alignment {path} cannot be read ({error.strerror or error}); give its path") from None
    begins = text.lstrip()[:1]
    if begins in ("{", "["):
        pairs = list(_pairs_of_json(path, text))
    elif begins == ">":
        pairs = list(_pairs_of_fasta(path, text))
    else:
        raise TwinaxError(
            f"{path} begins with {begins!r}; an alignment is a FASTA file, which begins with >, or JSON with sequences "
            "by name"
        )
    names, sequences = zip(*pairs, strict=True) if pairs else ((), ())
    return Alignment(names, sequences, str(path))


def _pairs_of_fasta(path: Path, text: str) -> Iterator[tuple[str, str]]:
    for number, part in enumerate(text.lstrip()[1:].split("\n>"), 1):
        head, *lines = part.splitlines() or [""]
        words = head.split()
        if not words:
            raise TwinaxError(f"sequence {number} of {path} has no name after its >; give it one")
        yield words[0], "".join("".join(lines).split()).upper()


def _pairs_of_json(path: Path, text: str) -> Iterator[tuple[str, str]]:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TwinaxError(f"{path} is no JSON ({error}); an alignment in JSON has sequences by name") from error
    if isinstance(found, dict):
        pairs = list(found.items())
    else:
        pairs = [(str(number), one) for number, one in enumerate(found, 1)]
    for name, sequence in pairs:
        if not isinstance(sequence, str):
            raise TwinaxError(
                f"{path} has {type(sequence).__name__} as the sequence {name!r}; an alignment in JSON is an object "
                "with sequences by name, or a list of sequences, all of them text"
            )
        yield name, "".join(sequence.split()).upper()


def simulate_alignment(taxa: int, sites: int, rate: float, seed: int) -> Alignment:
    """Sequences that evolved along a random tree.

    Lineages merge as in Kingman's coalescent; on an edge of b expected changes per site, a site takes one of the other
    three letters with probability 3/4 (1 - exp(-4 b / 3)) (Jukes and Cantor). `rate` is the number of changes per site
    in one unit of the coalescent's time, in which a pair of lineages merges on average.

    >>> simulate_alignment(4, 6, 0.2, seed=0).num_sites
    6
    """
    rng = np.random.default_rng(seed)
    roots, time, birth = list(range(taxa)), 0.0, dict.fromkeys(range(taxa), 0.0)
    children: dict[int, tuple[int, int]] = {}
    while len(roots) > 1:
        time += rng.exponential(2 / (len(roots) * (len(roots) - 1)))
        one, other = rng.choice(len(roots), 2, replace=False)
        node = taxa + len(children)
        children[node], birth[node] = (roots[one], roots[other]), time
        roots = [root for k, root in enumerate(roots) if k not in (one, other)] + [node]
    letters = {roots[0]: rng.integers(4, size=sites)}
    for node in sorted(children, reverse=True):
        for child in children[node]:
            length = rate * (birth[node] - birth[child])
            changed = rng.random(sites) < 0.75 * (1 - np.exp(-4 * length / 3))
            letters[child] = (letters[node] + changed * rng.integers(1, 4, size=sites)) % 4
    alphabet = np.array(list("ACGT"))
    sequences = tuple("".join(alphabet[letters[leaf]]) for leaf in range(taxa))
    return Alignment(tuple(f"taxon{leaf}" for leaf in range(taxa)), sequences, "the simulated alignment")
