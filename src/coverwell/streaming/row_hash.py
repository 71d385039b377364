"""Who trains on a row, decided by a hash of its number or of its group: no pass over the table, and always the same.

A row's *key* is its number in the table, or a digest of its group's name. Keys are mixed with the seed by splitmix64
(Steele, Lea and Flood 2014), whose bits pass for random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]

# A batch has an equal share of each lane, so that 1, 2, 4 or 8 workers can make the same batches together.
N_LANES = 8

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
FOLD, KEPT, SAMPLED, LANE = range(1, 5)  # what a hash is for; each use has numbers of its own


def row_keys(first: int, n_rows: int) -> Keys:
    """The keys of rows that are counted from here on."""
    return np.arange(first, first + n_rows, dtype=np.uint64)


def group_keys(groups: Iterable[str]) -> Keys:
    """The keys of rows by the names of their groups: rows of one group have one key."""
    known: dict[str, int] = {}
    for name in groups:
        if name not in known:
            known[name] = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.fromiter((known[name] for name in groups), dtype=np.uint64)


def seed_of(*numbers: int) -> int:
    """A seed of 63 bits, made of several numbers; their order counts."""
    state = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        state = _mixed(state ^ np.array([number], dtype=np.uint64))
    return int(state[0] >> np.uint64(1))


@dataclass(frozen=True)
class RowHash:
    """Folds, kept rows, sample and lanes, as a function of keys."""

    seed: int
    folds: int
    repeats: int  # member r * folds + k leaves out fold k of repeat r
    kept_share: float = 0.0  # of the rows, or groups: they are kept for the ranks and train nobody

    @property
    def n_members(self) -> int:
        return self.folds * self.repeats

    def left_out_by(self, keys: Keys) -> Mask:
        """Which members leave a row out, (member, row); all others train on it."""
        folds = np.arange(self.folds)[:, None]
        by_repeat = [self._bits(keys, FOLD, repeat) % np.uint64(self.folds) == folds for repeat in range(self.repeats)]
        return np.concatenate(by_repeat)

    def kept(self, keys: Keys) -> Mask:
        """Which rows are kept for the ranks."""
        return self._shares(keys, KEPT) < self.kept_share

    def sampled(self, numbers: Keys, share: float) -> Mask:
        """A uniform sample of rows, by their numbers; a larger share contains a smaller one."""
        return self._shares(numbers, SAMPLED) < share

    def lanes(self, numbers: Keys) -> NDArray[np.int64]:
        """The lane of each row in a batch, by its number."""
        return (self._bits(numbers, LANE) % np.uint64(N_LANES)).astype(np.int64)

    def _bits(self, keys: Keys, *use: int) -> Keys:
        return _mixed(keys ^ np.uint64(seed_of(self.seed, *use)))

    def _shares(self, keys: Keys, *use: int) -> NDArray[np.float64]:
        """Uniform on [0, 1), in steps of 2^-53."""
        return (self._bits(keys, *use) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(keys: Keys) -> Keys:
    """The output of splitmix64 for these states; a bijection of the 64 bits."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is meant
        bits = keys + GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * FIRST
        bits = (bits ^ (bits >> np.uint64(27))) * SECOND
        return bits ^ (bits >> np.uint64(31))
