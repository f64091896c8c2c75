"""Finds pairs of arrays by what they share, as sets, for the measures of ``set_ratios`` beside this file.

*Proposals.* A comparison ``value >= t`` with t > 0 needs a least number o of shared elements, which follows
from the sizes. If the elements of all sets are in one order, an element that two sets share is among the
first |A| - o + 1 elements of A, its *prefix*, and in the prefix of B (Chaudhuri, Ganti and Kaushik, ICDE
2006). Rare elements come first, so few pairs share one of them. The sets of a run have an inverted index.
Elements are compared by hashes. Two elements of a set may have one hash, which then counts twice, so equal
hashes only add pairs. Of a comparison ``value < t``, all other pairs are proved.

*The nearest.* The inverted index counts what a set shares with each other one. If k sets share an element,
the others are not among the nearest.

*Decisions.* ``compute`` compares the elements. NULL is an element, and an element counts once, as in Spark.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.keys import Int64s
from thetastream.core.measure import (
    Bools,
    DerivedArrays,
    Floats,
    LimitSearch,
    NearestSearch,
    Proposal,
    Singles,
    Values,
    join_places,
    pair_all,
    pair_others,
)
from thetastream.index.measures.scores import ScoredMeasure

ELEMENTS = ("tinyint", "smallint", "int", "bigint", "boolean", "date", "string")
"""Types whose values are equal if their bytes are."""
ROUNDING = 1e-9
MOST = 2.0**40
"""More than any value."""
_NULL = 0x5851F42D4C957F2D
"""The hash of NULL."""
SIZE_OF_NULL = "coalesce(CAST(size(CAST(NULL AS ARRAY<INT>)) AS STRING), 'NULL')"
_IS_ANSI = f"concat(typeof(coalesce('1', 1)), ' ', {SIZE_OF_NULL})", "bigint NULL"
"""Without ANSI mode, a division by zero is NULL, and the size of NULL may be -1."""


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

    def find(self, tokens: Int64s) -> Int64s:
        """Return the numbers of elements, from the rarest to the most frequent one; -1 if no set has it."""
        if not len(self.tokens):
            return np.full(len(tokens), -1)
        at = np.minimum(np.searchsorted(self.tokens, tokens), len(self.tokens) - 1)
        is_known = self.tokens[at] == tokens
        counts = np.where(is_known, self.counts[at], 0)
        numbers: Int64s = np.where(is_known, at, -1)[np.argsort(counts, kind="stable")]
        return numbers


@dataclass(frozen=True)
class Sets(DerivedArrays):
    """The sets of a column: hashes of their distinct elements, in ascending order."""

    tokens: Int64s
    starts: Int64s
    """Where the elements of each row begin; one more for the end."""
    lengths: Int64s
    """The number of elements of each array, of which some may be equal."""
    is_null: Bools
    has_null: Bools
    """Whether an element is NULL."""

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


class SetFacts(NamedTuple):
    """What tells which pairs have no value: facts about some sets."""

    is_empty: Bools
    has_null: Bools


Rectangles = list[tuple[Bools, Bools]]
"""Pairs of sets: each left set and each right set of a rectangle."""


class SetMeasure(ScoredMeasure):
    """A measure of two arrays that follows from what they share and from their sizes."""

    most_others = 1 << 22
    """The inverted index is read once for all of the others."""
    arguments = "two arrays of one type of whole numbers, booleans, dates or texts without a collation"
    is_similarity = True
    widens = True
    proof: tuple[str, Any] | None = _IS_ANSI
    kind: int
    """Its case in ``thetastream.kernels.sets.find_whole``."""
    is_fatal: bool = False
    """Whether a pair without a value ends the query."""
    has_null_element: bool = True
    """Whether NULL counts as an element."""

    def takes(self, left: str, right: str) -> bool:
        return left == right and left.removeprefix("array<").removesuffix(">") in ELEMENTS

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        from thetastream.kernels.sets import count_common, find_wholes  # loads Numba

        mine, theirs = (
            _read_arrays(column.take(pa.array(rows)))
            for column, rows in ((left, left_rows), (right, right_rows))
        )
        # Equal elements of both have one number.
        elements = [mine.flatten(), theirs.flatten()]
        numbers = pc.fill_null(pc.dictionary_encode(pa.chunked_array(elements)).combine_chunks().indices, -1)
        codes, n = numbers.to_numpy().astype(np.int64), len(elements[0])
        x, y = self._make_sets(mine, codes[:n]), self._make_sets(theirs, codes[n:])
        shared, whole = np.zeros(len(left_rows), dtype=np.int64), np.zeros(len(left_rows), dtype=np.float64)
        count_common(x.tokens, x.starts, y.tokens, y.starts, shared)
        find_wholes(self.kind, x.sizes, y.sizes, x.lengths, y.lengths, shared, whole)
        return self.finish(x, y, shared, whole)

    @abstractmethod
    def finish(self, x: Sets, y: Sets, shared: Int64s, whole: Floats) -> Values:
        """Return the values of pairs, from the number of elements that they share and that of all."""

    @abstractmethod
    def list_void(self, left: SetFacts, right: SetFacts) -> Rectangles:
        """List the pairs of sets that are not NULL, and that have no value or may have none. No pair is
        twice in the list."""

    def derive(self, column: pa.Array) -> Sets:
        from pandas.util import hash_array  # The package itself must not load pandas.

        column = _read_arrays(column)
        encoded = pc.dictionary_encode(column.flatten())
        values = encoded.dictionary.to_numpy(zero_copy_only=False)
        hashes = hash_array(values).view(np.int64) if len(values) else np.zeros(0, dtype=np.int64)
        sets = self._make_sets(column, pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64))
        tokens = np.append(hashes, _NULL)[sets.tokens]
        order = np.lexsort((tokens, np.repeat(np.arange(len(column)), sets.sizes)))
        return replace(sets, tokens=tokens[order])

    def _make_sets(self, column: pa.Array, tokens: Int64s) -> Sets:
        """Sort the elements of each row, and leave out those that occur twice.

        ``tokens`` has all elements; -1 stands for NULL.
        """
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
        owners = np.repeat(np.arange(len(column)), lengths)
        has_null = np.bincount(owners[tokens == -1], minlength=len(column)) > 0
        if not self.has_null_element:
            owners, tokens = owners[tokens >= 0], tokens[tokens >= 0]
        order = np.lexsort((tokens, owners))
        owners, tokens = owners[order], tokens[order]
        is_new = np.ones(len(tokens), dtype=np.bool_)
        is_new[1:] = (owners[1:] != owners[:-1]) | (tokens[1:] != tokens[:-1])
        sizes = np.bincount(owners[is_new], minlength=len(column))
        starts = np.append(0, np.cumsum(sizes))
        return Sets(np.ascontiguousarray(tokens[is_new]), starts, lengths, is_null, has_null)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        limit, probes, stored, places = search.limit, search.probes, search.stored, search.probe_rows
        known, others = search.find_known()
        rows = search.stored_rows[others]
        theirs = SetFacts(stored.lengths[rows] == 0, stored.has_null[rows])
        columns = np.full(len(stored.is_null), -1, dtype=np.int64)
        columns[rows] = others

        t = min(max(limit.value, -1.0), MOST)
        needs = self._find_needs(stored.sizes, stored.lengths, t, is_left=False)
        firsts = stored.sizes - needs + 1

        def find_void(some: Int64s) -> Rectangles:
            at = places[some]
            return self.list_void(SetFacts(probes.lengths[at] == 0, probes.has_null[at]), theirs)

        def find_similar(some: Int64s, capacity: int = capacity) -> Iterator[tuple[Int64s, Int64s]]:
            for number, row in enumerate(places[some]):
                found = columns[self._find_similar(t, probes, int(row), stored, firsts, columns)]
                for begin in range(0, len(found), capacity):
                    part = found[begin : begin + capacity]
                    yield np.full(len(part), number), part

        def find_near(some: Int64s) -> tuple[Int64s, Int64s]:
            void = (find_ones(np.outer(*rectangle)) for rectangle in find_void(some))
            similar = ((found, np.searchsorted(others, at)) for found, at in find_similar(some))
            near, at = join_places([*void, *(() if is_sure else similar)])
            flat = np.unique(near * len(others) + at)
            return flat // len(others), flat % len(others)

        # No similarity is negative, so some comparisons are true for all pairs with a value, or for none.
        is_above = limit.op in (">", ">=")
        is_sure = t < 0 or (t == 0 and limit.op in (">=", "<"))
        if is_above is is_sure:
            yield from pair_others(known, others, find_near, capacity)
            return
        if self.is_fatal:
            for mine, those in find_void(known):
                for pairs in pair_all(known[mine], others[those], capacity):
                    yield Proposal(*pairs)
        if not is_sure:
            for found, at in find_similar(known):
                yield Proposal(known[found], at)

    def _find_similar(
        self, t: float, probes: Sets, row: int, stored: Sets, firsts: Int64s, columns: Int64s
    ) -> Int64s:
        """Find the stored sets that share an element with a set and have at least the value t with it.

        A set is found only if its number in ``columns`` is not -1.
        """
        from thetastream.kernels.sets import select_sets  # loads Numba

        tokens, lengths = probes.tokens[probes.starts[row] : probes.starts[row + 1]], probes.lengths[[row]]
        sizes = np.array([len(tokens)])
        needs = self._find_needs(sizes, lengths, t, is_left=True)
        index = stored.inverted
        prefix = index.find(tokens)[: sizes[0] - needs[0] + 1]
        found: Int64s = select_sets(
            self.kind, tokens, lengths[0], prefix[prefix >= 0], index.ends, index.counts, index.rows,
            index.places, stored.tokens, stored.starts, stored.lengths, firsts, t - ROUNDING, columns,
        )  # fmt: skip
        return found

    def _find_needs(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Int64s:
        """Find how many elements each set must share at least with any other set, for a value of t or more.

        It is 1 or more, and no more than one more than the set has.
        """
        needs = self.find_least(sizes, lengths, t, is_left)
        found: Int64s = np.clip(np.ceil(needs - ROUNDING), 1, sizes + 1).astype(np.int64)
        return found

    @abstractmethod
    def find_least(self, sizes: Int64s, lengths: Int64s, t: float, is_left: bool) -> Any:
        """Return how many elements each set must share, as a real number."""

    def score(self, search: NearestSearch, mine: Int64s, theirs: Int64s, best: Singles) -> Singles:
        from thetastream.kernels.sets import score_sets  # loads Numba

        left, right = search.seekers, search.others
        rows, other_rows = search.seeker_rows[mine], search.other_rows[theirs]
        index = right.inverted
        tile = np.zeros((len(mine), len(theirs)), dtype=np.float32)
        columns = np.full(len(right.is_null), -1, dtype=np.int64)
        columns[other_rows] = np.arange(len(theirs))
        for number, row in enumerate(rows):
            tokens = left.tokens[left.starts[row] : left.starts[row + 1]]
            elements = index.find(tokens)
            score_sets(
                self.kind, len(tokens), left.lengths[row], elements[elements >= 0], index.ends, index.counts,
                index.rows, columns, right.sizes[other_rows], right.lengths[other_rows], tile[number],
            )  # fmt: skip
        if not search.is_descending:
            np.negative(tile, out=tile)
        for one, others in self.list_void(
            SetFacts(left.lengths[rows] == 0, left.has_null[rows]),
            SetFacts(right.lengths[other_rows] == 0, right.has_null[other_rows]),
        ):
            # A pair that ends the query must be proposed.
            tile[np.ix_(one, others)] = np.inf if self.is_fatal else -np.inf
        return tile


def find_ones(matrix: Bools) -> tuple[Int64s, Int64s]:
    """Return the rows and the columns of the places that are true."""
    rows, columns = np.nonzero(matrix)
    return rows.astype(np.int64), columns.astype(np.int64)


def _read_arrays(column: pa.Array) -> pa.Array:
    """Return a column of arrays. A value becomes an array of it, and NULL stays NULL."""
    if not pa.types.is_list(column.type):
        offsets = pa.array(np.arange(len(column) + 1, dtype=np.int32))
        mask = column.is_null()
        return pa.ListArray.from_arrays(offsets, column, mask=mask)
    return column
