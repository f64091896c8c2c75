"""Measures: functions of two values, such as the similarity of two vectors, that a conjunct compares with a
constant.

    measure(f(left), g(right)) OP value         OP is one of < <= > >=

A measure has two parts. ``propose`` compares many values at once and approximately. It proposes pairs, and
it may prove that the comparison is true for some of them. ``compute`` computes the value of each other pair
exactly as Spark does, and decides. So the answer depends on neither the hardware nor the number of values
that are compared at once.

*Complements.* Of a comparison such as ``distance > c``, most pairs are often true. An index then finds the
few pairs that are near (``pair_others``). All others are proved, and none of them is computed.

The partners of a tuple may also be ranked by a measure. Then ``propose_nearest`` proposes pairs among which
the k nearest of each tuple are.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Values(NamedTuple):
    """The values of n pairs, or of n rows."""

    values: Floats
    is_null: Bools

    def take(self, rows: Int64s) -> "Values":
        """Return the values at these positions."""
        return Values(self.values[rows], self.is_null[rows])


NO_VALUES = Values(np.zeros(0), np.zeros(0, dtype=np.bool_))


class Derived(Protocol):
    """What a measure computes from a column."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory beside those of the column."""


class DerivedArrays:
    """What a measure computes from a column, as arrays. Subclasses are dataclasses.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Lengths(DerivedArrays):
    ...     lengths: Int64s
    >>> Lengths(np.arange(10)).nbytes
    80
    """

    @property
    def nbytes(self) -> int:
        """Bytes of memory beside those of the column."""
        return sum(_count_bytes(value) for value in vars(self).values())


def _count_bytes(value: Any) -> int:
    """Count the bytes of arrays that own their memory. Others are parts of an Arrow column."""
    if isinstance(value, tuple):
        return sum(_count_bytes(one) for one in value)
    while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
        value = value.base
    return value.nbytes if isinstance(value, np.ndarray) and value.flags.owndata else 0


Singles = npt.NDArray[np.float32]


class Ranges(NamedTuple):
    """Which pairs satisfy the rest of a condition: low[p, c] <= keys[s, c] <= high[p, c] for all columns c.

    p is the number of a probe, and s the number of a stored row.
    """

    low: Int64s
    high: Int64s
    keys: Int64s


class LimitSearch(NamedTuple):
    """Rows of two columns that are compared, and the constant with which their values are compared."""

    limit: "MeasureLimit"
    probes: Any
    """What ``derive`` returned for the column of the probes, which are the left operands."""
    probe_rows: Int64s
    """The rows of this column that are compared."""
    stored: Any
    stored_rows: Int64s

    def find_known(self) -> tuple[Int64s, Int64s]:
        """Return the positions in ``probe_rows`` and in ``stored_rows`` of values that are not NULL.

        Both columns have ``is_null``, as those of ``DerivedArrays`` in this package do.
        """
        known = np.flatnonzero(~self.probes.is_null[self.probe_rows])
        return known, np.flatnonzero(~self.stored.is_null[self.stored_rows])


class Proposal(NamedTuple):
    """Some pairs for which a comparison may be true."""

    probes: Int64s
    """For each pair a position in ``LimitSearch.probe_rows``."""
    stored: Int64s
    """A position in ``LimitSearch.stored_rows``."""
    is_proved: bool = False
    """Whether the comparison is true for all of these pairs."""


class NearestSearch(NamedTuple):
    """Tuples that look for their nearest partners, the *seekers*, and the *others*, among which these are."""

    is_descending: bool
    """Whether the greatest value is the nearest."""
    seekers: Any
    """What ``derive`` returned for the column of the seekers."""
    seeker_rows: Int64s
    """The row of each seeker in this column."""
    others: Any
    other_rows: Int64s
    best: Singles
    """For each seeker a heap of the k greatest lower bounds on scores of its partners so far. A measure may
    define scores, and -inf stands for a missing partner. ``propose_nearest`` updates the heaps."""
    inside: Ranges
    """Which pairs are partners."""
    seekers_probe: bool
    """Whether the seekers are the probes of ``inside``. Otherwise they are its stored rows."""


class PairMeasure(ABC):
    """A function of a left and a right value. To add one, write one file and one line in the registry of
    ``thetastream.index.measures``.

    A measure is pickled into the plan. Two measures are equal if they have the same name.
    """

    name: str
    """The name of the function in SQL, for messages."""
    forms: tuple[str, ...]
    """How it is written in SQL, with ``left`` and ``right`` as arguments: ``bit_count(left ^ right)``."""
    arguments: str
    """What the arguments must be, as in "two values of type ARRAY<FLOAT>". Error messages print it."""
    proof: tuple[str, Any] | None = None
    """An expression of constants and its value, if some versions or sessions of Spark have another value."""
    is_similarity: bool = False
    """Whether great values are near. Otherwise small ones are, as of a distance."""
    is_test: bool = False
    """Whether it is a boolean in SQL, which is a conjunct by itself. Its value is then 1 or 0."""
    ranks: bool = True
    """Whether partners can be ranked by it."""
    widens: bool = False
    """Whether Spark casts arguments of two types to their common type."""
    is_cheap: bool = False
    """Whether a pair is computed as fast as the keys of an index are compared. If another conjunct has an
    index, it answers the condition then."""

    @property
    def mirrored(self) -> "PairMeasure":
        """The measure with the operands exchanged. By default, a measure is symmetric."""
        return self

    @abstractmethod
    def takes(self, left: str, right: str) -> bool:
        """Whether units compute the measure for arguments of these Spark types."""

    @abstractmethod
    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        """Compute the values of the pairs (left[left_rows[i]], right[right_rows[i]]) as Spark does.

        Raises
        ------
        PredicateError
            If Spark raises an error for a pair.
        """

    @abstractmethod
    def derive(self, column: pa.Array) -> "Derived":
        """Compute from a column what ``propose`` needs. It is kept in memory as long as the column."""

    @abstractmethod
    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        """Propose pairs, at most ``capacity`` at a time.

        Among them are all for which the limit may be true, and all whose value may be NaN. The latter are not
        proved.
        """

    def propose_nearest(self, search: NearestSearch, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Propose pairs, among them the k nearest partners of each seeker and all that tie with the last.

        By default, all pairs are proposed.

        Yields
        ------
        tuple of int64 arrays
            Positions in ``search.seeker_rows`` and in ``search.other_rows``. Some of the pairs may be no
            partners by ``search.inside``.
        """
        return pair_all(np.arange(len(search.seeker_rows)), np.arange(len(search.other_rows)), capacity)

    def __repr__(self) -> str:
        return f"<measure {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PairMeasure) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def collect_places(
    find: Callable[[Int64s, Int64s, Int64s], int], capacity: int
) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the places that a kernel finds, at most ``capacity`` at a time.

    Parameters
    ----------
    find : callable
        A kernel such as ``thetastream.kernels.tiles.select``. It gets a cursor, a buffer of rows and one of
        columns, goes on at the cursor, and returns how many places it has written. It is done when it leaves
        the buffers with room.
    capacity : int
        The length of the buffers.
    """
    cursor, n = np.zeros(2, dtype=np.int64), capacity
    while n == capacity:
        rows, columns = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        n = find(cursor, rows, columns)
        yield rows[:n], columns[:n]


def join_places(pieces: Iterable[tuple[Int64s, Int64s]]) -> tuple[Int64s, Int64s]:
    """Join the places that ``collect_places`` yields.

    >>> join_places([(np.array([0, 1]), np.array([5, 6])), (np.array([2]), np.array([7]))])
    (array([0, 1, 2]), array([5, 6, 7]))
    """
    nothing = np.zeros(0, dtype=np.int64)
    rows, columns = zip((nothing, nothing), *pieces, strict=True)
    return np.concatenate(rows), np.concatenate(columns)


def pair_all(probes: Int64s, stored: Int64s, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield each pair of a probe and a stored row, at most ``capacity`` at a time.

    >>> [(p.tolist(), s.tolist()) for p, s in pair_all(np.array([4]), np.array([7, 8, 9]), 2)]
    [([4, 4], [7, 8]), ([4], [9])]
    """
    n = len(probes) * len(stored)
    for begin in range(0, n, capacity):
        at = np.arange(begin, min(begin + capacity, n))
        yield probes[at // len(stored)], stored[at % len(stored)]


def list_ranges(first: Int64s, last: Int64s, capacity: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield each number n with all rows from ``first[n]`` to ``last[n]``, at most ``capacity`` at a time.

    >>> [(n.tolist(), row.tolist()) for n, row in list_ranges(np.array([4, 0]), np.array([6, 1]), 2)]
    [([0, 0], [4, 5]), ([1], [0])]
    """
    before = np.append(0, np.cumsum(last - first))
    for begin in range(0, int(before[-1]), capacity):
        pairs = np.arange(begin, min(begin + capacity, int(before[-1])))
        at = np.searchsorted(before, pairs, side="right") - 1
        yield at, first[at] + pairs - before[at]


def pair_others(
    probes: Int64s,
    stored: Int64s,
    find_near: Callable[[Int64s], tuple[Int64s, Int64s]],
    capacity: int,
) -> Iterator[Proposal]:
    """Propose each pair of a probe and a stored row. Those that are not near are proved.

    Parameters
    ----------
    probes, stored : int64
    find_near : callable
        Finds the pairs that are near among some of the probes and all stored rows, as positions in both.
    capacity : int
        The largest number of pairs in a piece.

    Examples
    --------
    >>> def find_same(some):
    ...     return np.nonzero(some[:, None] == np.array([7, 8]))
    >>> for one in pair_others(np.array([7, 8]), np.array([7, 8]), find_same, 9):
    ...     print(one.probes, one.stored, one.is_proved)
    [7 8] [7 8] False
    [7 8] [8 7] True
    """
    n = len(stored)
    step = max(1, capacity // max(1, n))
    for begin in range(0, len(probes) if n else 0, step):
        some = probes[begin : begin + step]
        near, rows = find_near(some)
        is_other = np.ones((len(some), n), dtype=np.bool_)
        is_other[near, rows] = False
        for start in range(0, len(near), capacity):
            part = slice(start, start + capacity)
            yield Proposal(some[near[part]], stored[rows[part]])
        at = np.flatnonzero(is_other)
        for start in range(0, len(at), capacity):
            places = at[start : start + capacity]
            yield Proposal(some[places // n], stored[places % n], is_proved=True)


@dataclass(frozen=True)
class MeasureLimit:
    """``measure(left, right) OP value``. Units call it as they call a predicate."""

    measure: PairMeasure
    op: str
    value: float

    @property
    def is_far(self) -> bool:
        """Whether pairs that are far from each other satisfy it, as with ``distance > 3``."""
        return (self.op in (">", ">=")) is not self.measure.is_similarity

    @property
    def mirrored(self) -> "MeasureLimit":
        """The same comparison with the operands exchanged."""
        return replace(self, measure=self.measure.mirrored)

    def __call__(self, left: SimpleNamespace, right: SimpleNamespace) -> Bools:
        """Return for each candidate whether the comparison is true. Values are dictionary-encoded columns."""
        return compare(compute_candidates(self.measure, left, right), self.op, self.value)


def compute_candidates(measure: PairMeasure, left: SimpleNamespace, right: SimpleNamespace) -> Values:
    """Compute the values of candidates, of which each side has the dictionary-encoded column ``value``."""
    (mine, mine_rows), (theirs, their_rows) = (
        (side.value.dictionary, side.value.indices.to_numpy(zero_copy_only=False)) for side in (left, right)
    )
    return measure.compute(mine, mine_rows, theirs, their_rows)


def compare(found: Values, op: str, limit: float | Floats) -> Bools:
    """Compare values with a limit, or with one for each of them, as Spark does: NaN equals NaN and is the
    greatest value, and NULL is never true.

    >>> found = Values(np.array([0.5, np.nan, 1.0]), np.array([False, False, True]))
    >>> compare(found, ">=", 0.9), compare(found, "<", 0.9)
    (array([False,  True, False]), array([ True, False, False]))
    >>> compare(found, "<", np.nan), compare(found, ">=", np.nan)
    (array([ True, False, False]), array([False,  True, False]))
    """
    with np.errstate(invalid="ignore"):
        is_true: Bools = _COMPARE[op](found.values, limit)
    is_nan, are_nan = np.isnan(found.values), np.isnan(limit)
    greatest = {">": is_nan & ~are_nan, ">=": is_nan, "<": ~is_nan & are_nan, "<=": are_nan}
    result: Bools = (is_true | greatest[op]) & ~found.is_null
    return result
