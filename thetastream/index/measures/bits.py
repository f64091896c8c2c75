"""Hamming distance: the number of bits in which two integers differ, ``bit_count(left ^ right)``, and the sum
over several integers of each side, ``bit_count(a.x ^ b.x) + bit_count(a.y ^ b.y)``.

Spark counts the bits of a BIGINT. A shorter integer is extended by its sign, so -1 has 64 bits in every type.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.core.measure import (
    Bools,
    DerivedArrays,
    LimitSearch,
    MeasureLimit,
    NearestSearch,
    Proposal,
    Singles,
    Values,
    collect_places,
)
from thetastream.index.measures.scores import ScoredMeasure

INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class Words(DerivedArrays):
    """The integers of a column; 0 stands for NULL."""

    words: Int64s
    is_null: Bools


class Hamming(ScoredMeasure):
    """The number of bits in which two integers differ."""

    name = "bit_count"
    forms = ("bit_count(left ^ right)",)
    arguments = "two integers"

    def takes(self, left: str, right: str) -> bool:
        return left in INTEGERS and right in INTEGERS

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        x, y = self.derive(left.take(pa.array(left_rows))), self.derive(right.take(pa.array(right_rows)))
        differing = (x.words ^ y.words).view(np.uint64)  # of a negative number, NumPy counts other bits
        return Values(np.bitwise_count(differing).astype(np.float64), x.is_null | y.is_null)

    def derive(self, column: pa.Array) -> Words:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        return Words(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), is_null)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        from thetastream.kernels.tiles import select_bits  # loads Numba

        least, most = find_interval(search.limit)
        known, others = search.find_known()
        words = search.probes.words[search.probe_rows[known]], search.stored.words[search.stored_rows[others]]
        for found, columns in collect_places(partial(select_bits, *words, least, most), capacity):
            yield Proposal(known[found], others[columns], is_proved=True)

    def score(self, search: NearestSearch, mine: Int64s, theirs: Int64s, best: Singles) -> Singles:
        from thetastream.kernels.tiles import score_bits  # loads Numba

        rows, other_rows = search.seeker_rows[mine], search.other_rows[theirs]
        tile = np.empty((len(mine), len(theirs)), dtype=np.float32)
        score_bits(search.seekers.words[rows], search.others.words[other_rows], tile)
        return tile if search.is_descending else -tile


@dataclass(frozen=True)
class WordLists(DerivedArrays):
    """The integers of a column of lists, of shape (words, n); 0 stands for NULL."""

    words: Int64s
    is_null: Bools
    """Whether a list or one of its integers is NULL."""


class HammingSum(ScoredMeasure):
    """The number of bits in which two lists of integers differ."""

    name = "sum of bit_count"
    forms = ()
    arguments = "integers"

    def takes(self, left: str, right: str) -> bool:
        return left == right == "array<bigint>"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        x, y = self.derive(left.take(pa.array(left_rows))), self.derive(right.take(pa.array(right_rows)))
        differing = (x.words ^ y.words).view(np.uint64)
        return Values(np.bitwise_count(differing).sum(axis=0).astype(np.float64), x.is_null | y.is_null)

    def derive(self, column: pa.Array) -> WordLists:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        known = column.drop_null()
        if not len(known):
            return WordLists(np.zeros((1, len(column)), dtype=np.int64), is_null)
        numbers, gaps = (
            part.to_numpy(zero_copy_only=False).reshape(len(known), -1)
            for part in (known.flatten().fill_null(0), known.flatten().is_null())
        )
        words = np.zeros((numbers.shape[1], len(column)), dtype=np.int64)
        words[:, ~is_null] = numbers.T
        is_null[~is_null] = gaps.any(axis=1)
        return WordLists(words, is_null)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        from thetastream.kernels.tiles import select_words  # loads Numba

        least, most = find_interval(search.limit)
        known, others = search.find_known()
        x = search.probes.words[:, search.probe_rows[known]]
        y = search.stored.words[:, search.stored_rows[others]]
        for found, columns in collect_places(partial(select_words, x, y, least, most), capacity):
            yield Proposal(known[found], others[columns], is_proved=True)

    def score(self, search: NearestSearch, mine: Int64s, theirs: Int64s, best: Singles) -> Singles:
        from thetastream.kernels.tiles import score_bits  # loads Numba

        rows, other_rows = search.seeker_rows[mine], search.other_rows[theirs]
        total = np.zeros((len(mine), len(theirs)), dtype=np.float32)
        tile = np.empty_like(total)
        # A column in which all lists are NULL has one word.
        for x, y in zip(search.seekers.words, search.others.words, strict=False):
            score_bits(x[rows], y[other_rows], tile)
            total += tile
        return total if search.is_descending else -total


def find_interval(limit: MeasureLimit) -> tuple[int, int]:
    """Find the least and the greatest whole number from 0 to 2^31 that satisfies a comparison.

    >>> from thetastream.index.measures import REGISTRY
    >>> [find_interval(MeasureLimit(REGISTRY["bit_count"], op, 2.0)) for op in ("<", "<=", ">")]
    [(0, 1), (0, 2), (3, 2147483648)]
    """
    value, most = min(max(limit.value, -1.0), 2.0**31), 1 << 31
    ends = {
        "<": (0, math.ceil(value) - 1),
        "<=": (0, math.floor(value)),
        ">": (max(0, math.floor(value) + 1), most),
        ">=": (max(0, math.ceil(value)), most),
    }
    return ends[limit.op]
