"""Jaccard similarity of arrays as sets: |A intersected with B| / |A united with B|.

    size(array_intersect(left, right)) / size(array_union(left, right))      try_divide of both sizes, too

*Proposals.* With similarity t or more, |B| is at least t |A|, and the sets share t |A| elements or more. If
the elements of both are in one order, an element that they share is among the first |A| - ceil(t |A|) + 1
elements of A, its *prefix*, and in the prefix of B (Chaudhuri, Ganti and Kaushik, ICDE 2006). Rare elements
come first, so few pairs share one of them. The sets of a run have an inverted index. Elements are compared by
hashes. Two elements of a set may have one hash, which then counts twice, so equal hashes only add pairs.

*Decisions.* ``compute`` compares the elements. NULL is an element, and an element counts once, as in Spark.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.errors import PredicateError
from thetastream.core.keys import Int64s
from thetastream.core.measure import Bools, MeasureLimit, PairMeasure, Values, pair_all

ELEMENTS = ("tinyint", "smallint", "int", "bigint", "boolean", "date", "string")
"""Types whose values are equal if their bytes are."""
ROUNDING = 1e-9
_NULL = 0x5851F42D4C957F2D
"""The hash of NULL."""
_SIZE_OF_NULL = "coalesce(CAST(size(CAST(NULL AS ARRAY<INT>)) AS STRING), 'NULL')"


class Inverted(NamedTuple):
    """The sets that have each element. Elements of a set are ordered from the rarest to the most frequent."""

    tokens: Int64s
    """The distinct elements, in ascending order."""
    counts: Int64s
    """The number of sets that have each of them."""
    ends: Int64s
    """Where the sets of each element end in ``rows``."""
    rows: Int64s
    places: Int64s
    """For each entry of ``rows``, the place of the element in its set."""


@dataclass(frozen=True)
class Sets:
    """The sets of a column: hashes of their distinct elements, in ascending order."""

    tokens: Int64s
    starts: Int64s
    """Where the elements of each row begin; one more for the end."""
    is_null: Bools

    @property
    def nbytes(self) -> int:
        """Bytes of memory beside those of the column."""
        arrays = [self.tokens, self.starts, self.is_null, *vars(self).get("inverted", ())]
        return sum(array.nbytes for array in arrays)

    @property
    def sizes(self) -> Int64s:
        """The number of elements of each set."""
        return np.diff(self.starts)

    @cached_property
    def inverted(self) -> Inverted:
        """The inverted index."""
        owners = np.repeat(np.arange(len(self.sizes)), self.sizes)
        tokens, numbers, counts = np.unique(self.tokens, return_inverse=True, return_counts=True)
        places = np.empty(len(owners), dtype=np.int64)
        places[np.lexsort((numbers, counts[numbers], owners))] = np.arange(len(owners))
        places -= self.starts[owners]
        order = np.argsort(numbers, kind="stable")
        return Inverted(tokens, counts, np.cumsum(counts), owners[order], places[order])


class Jaccard(PairMeasure):
    """The share of the elements of two arrays that both have. Two empty arrays end the query, as in Spark."""

    name = "jaccard"
    forms = (
        "size(array_intersect(left, right)) / size(array_union(left, right))",
        "size(array_intersect(left, right)) / size(array_union(right, left))",
    )
    arguments = "two arrays of one type of whole numbers, booleans, dates or texts without a collation"
    proof = f"concat(typeof(coalesce('1', 1)), ' ', {_SIZE_OF_NULL})", "bigint NULL"
    """Without ANSI mode, a division by zero is NULL, and the size of NULL may be -1."""

    def takes(self, left: str, right: str) -> bool:
        return left == right and left.removeprefix("array<").removesuffix(">") in ELEMENTS

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        from thetastream.kernels import count_common  # loads Numba

        mine, theirs = left.take(pa.array(left_rows)), right.take(pa.array(right_rows))
        # Equal elements of both have one number.
        elements = pa.chunked_array([mine.flatten(), theirs.flatten()])
        numbers = pc.fill_null(pc.dictionary_encode(elements).combine_chunks().indices, -1)
        codes = numbers.to_numpy().astype(np.int64)
        n = len(mine.flatten())
        x, y = _make_sets(mine, codes[:n]), _make_sets(theirs, codes[n:])
        common = np.zeros(len(left_rows), dtype=np.int64)
        count_common(x.tokens, x.starts, y.tokens, y.starts, common)
        union = x.sizes + y.sizes - common
        is_null = x.is_null | y.is_null
        is_empty = (union == 0) & ~is_null
        values = common / np.maximum(union, 1)
        return Values(values, is_null | self._divide_by_zero(is_empty))

    def _divide_by_zero(self, is_empty: Bools) -> Bools:
        """Return for which pairs of empty arrays the value is NULL."""
        if is_empty.any():
            raise PredicateError(
                "EMPTY_SETS",
                "the size of the union of two empty arrays divides by zero: add size(...) > 0 of one of them "
                "to the condition, or write try_divide(..., ...)",
            )
        return is_empty

    def derive(self, column: pa.Array) -> Sets:
        from pandas.util import hash_array  # The package itself must not load pandas.

        elements = column.flatten()
        encoded = pc.dictionary_encode(elements)
        values = encoded.dictionary.to_numpy(zero_copy_only=False)
        hashes = hash_array(values).view(np.int64) if len(values) else np.zeros(0, dtype=np.int64)
        codes = pc.fill_null(encoded.indices, len(values)).to_numpy().astype(np.int64)
        sets = _make_sets(column, codes)
        tokens = np.append(hashes, _NULL)[sets.tokens]
        order = np.lexsort((tokens, np.repeat(np.arange(len(column)), sets.sizes)))
        return Sets(tokens[order], sets.starts, sets.is_null)

    def propose(
        self,
        limit: MeasureLimit,
        probes: Any,
        places: Int64s,
        stored: Any,
        rows: range,
        capacity: int,
    ) -> Iterator[tuple[Int64s, Int64s]]:
        from thetastream.kernels import select_sets  # loads Numba

        every, here = np.arange(len(places)), np.arange(rows.start, rows.stop)
        if limit.op in ("<", "<=") or limit.value <= 0:
            yield from pair_all(every, here, capacity)
            return
        # 1. Propose two empty sets, which have no similarity.
        is_empty, others_empty = probes.sizes[places] == 0, stored.sizes[here] == 0
        yield from pair_all(every[is_empty], here[others_empty], capacity)
        if limit.value > 1:
            return
        # 2. Look the first elements of each set up.
        index = stored.inverted
        for number in np.flatnonzero(~is_empty):
            start, end = probes.starts[places[number]], probes.starts[places[number] + 1]
            tokens, size = probes.tokens[start:end], int(end - start)
            at = np.minimum(np.searchsorted(index.tokens, tokens), max(len(index.tokens) - 1, 0))
            is_known = index.tokens[at] == tokens if len(index.tokens) else np.zeros(size, dtype=np.bool_)
            counts = np.where(is_known, index.counts[at] if len(index.counts) else 0, 0)
            first = np.argsort(counts, kind="stable")[: size - math.ceil(limit.value * size - ROUNDING) + 1]
            first = first[is_known[first]]
            found = select_sets(
                tokens, at[first], index.ends, index.counts, index.rows, index.places,
                stored.tokens, stored.starts, limit.value - ROUNDING, rows.start, rows.stop,
            )  # fmt: skip
            for begin in range(0, len(found), capacity):
                part = found[begin : begin + capacity]
                yield np.full(len(part), number), part


class TryJaccard(Jaccard):
    """The same, where two empty arrays have the similarity NULL."""

    name = "try_jaccard"
    forms = (
        "try_divide(size(array_intersect(left, right)), size(array_union(left, right)))",
        "try_divide(size(array_intersect(left, right)), size(array_union(right, left)))",
    )
    proof = _SIZE_OF_NULL, "NULL"

    def _divide_by_zero(self, is_empty: Bools) -> Bools:
        return is_empty


def _make_sets(column: pa.Array, tokens: Int64s) -> Sets:
    """Sort the elements of each row, and leave out those that occur twice. ``tokens`` has all elements."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    owners = np.repeat(np.arange(len(column)), lengths)
    order = np.lexsort((tokens, owners))
    owners, tokens = owners[order], tokens[order]
    is_new = np.ones(len(tokens), dtype=np.bool_)
    is_new[1:] = (owners[1:] != owners[:-1]) | (tokens[1:] != tokens[:-1])
    sizes = np.bincount(owners[is_new], minlength=len(column))
    return Sets(np.ascontiguousarray(tokens[is_new]), np.append(0, np.cumsum(sizes)), is_null)
