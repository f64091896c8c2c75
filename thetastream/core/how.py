"""How a join answers: in pairs of tuples, or in one answer for each tuple of a *preserved* stream.

The partners of a tuple are the tuples with which it satisfies the condition inside the window. They are all
known once the watermark is at or after t + W: the event time of the tuple plus the time that it waits for
partners. From then on the tuple is *decided*.

``Ranking`` is the expression by which the partners of a tuple are ranked: f, g, f - g or abs(f - g).
``MeasuredRanking`` ranks them by a measure, for example the similarity of two vectors.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.columns import RANKED
from thetastream.core.condition import Domain, RankedPair
from thetastream.core.errors import QueryError
from thetastream.core.keys import HIGHEST, LOWEST, Int64s, encode, encode_floats
from thetastream.core.sides import Side

_FAR = float(1 << 62)


Direction: TypeAlias = Literal["distance", "similarity"]
"""The value of ``direction`` of ``th.Nearest``."""
DISTANCE: Final = "distance"
SIMILARITY: Final = "similarity"
JoinKind: TypeAlias = Literal[
    "inner",
    "cross",
    "left",
    "leftouter",
    "left_outer",
    "right",
    "rightouter",
    "right_outer",
    "full",
    "outer",
    "fullouter",
    "full_outer",
    "semi",
    "leftsemi",
    "left_semi",
    "anti",
    "leftanti",
    "left_anti",
]
"""The names of kinds of joins, as Spark's batch joins spell them."""


@dataclass(frozen=True, repr=False)
class Nearest:
    """The k nearest partners of each left tuple: those whose rank by an expression is at most k.

    Ties are included, as in SQL's ``rank()``. NULL and NaN values of the expression are last.

    Parameters
    ----------
    k : int
        The greatest rank.
    by : str
        ``abs(f - g)``, ``f - g``, a measure such as ``vector_cosine_similarity(f, g)``, or an expression over
        one stream, where f and g are Spark SQL expressions over one stream each, as in
        ``"abs(a.price - b.price)"``. ``ASC`` or ``DESC``, and ``NULLS FIRST`` or ``NULLS LAST``, may stand
        behind it, as in ``"b.ts DESC"``. Without them, the smallest value is first.
    keep_unmatched : bool
        Whether a left tuple without partners is a row, with NULL as its partner.
    direction : str
        ``"distance"`` if the smallest value is first, or ``"similarity"`` if the greatest value is first.

    Raises
    ------
    QueryError
        NEAREST if ``k`` is not a positive integer, ``by`` is not a text, or there is no such direction.

    Examples
    --------
    >>> Nearest(1, by="a.ts - b.ts")
    Nearest(k=1, by='a.ts - b.ts', keep_unmatched=False)
    >>> Nearest(3, by="vector_cosine_similarity(a.v, b.v)", direction="similarity")
    Nearest(k=3, by='vector_cosine_similarity(a.v, b.v)', keep_unmatched=False, direction='similarity')
    """

    k: int
    by: str
    keep_unmatched: bool = False
    direction: Direction = DISTANCE

    @property
    def rule(self) -> str:
        """What the expression must be, for errors."""
        return (
            f"by={self.by!r} must be abs(f - g), f - g, a measure, or an expression over one stream, of "
            "numbers or times, with ASC or DESC behind it or without, and each column with its alias"
        )

    def __repr__(self) -> str:
        # Checkpoints have this text. Those of earlier versions have no direction.
        more = "" if self.direction == DISTANCE else f", direction={self.direction!r}"
        return f"Nearest(k={self.k!r}, by={self.by!r}, keep_unmatched={self.keep_unmatched!r}{more})"

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise QueryError("NEAREST", f"th.Nearest needs a positive integer k, not {self.k!r}")
        if not isinstance(self.by, str) or not self.by.strip():
            raise QueryError("NEAREST", f"by of th.Nearest must be a SQL expression, not {self.by!r}")
        if self.direction not in (DISTANCE, SIMILARITY):
            what = f"direction of th.Nearest must be {DISTANCE!r} or {SIMILARITY!r}, not {self.direction!r}"
            raise QueryError("NEAREST", what)


@dataclass(frozen=True, repr=False)
class AsOf(Nearest):
    """The nearest partner by an inequality that the user wrote, from which ``by`` follows.

    >>> AsOf(1, "(a.ts) - (b.ts)", written="a.ts >= b.ts")
    Nearest(k=1, by='(a.ts) - (b.ts)', keep_unmatched=False)
    """

    written: str = field(default="", compare=False)

    @property
    def rule(self) -> str:
        return (
            f"{self.written!r}, by which the nearest partner is chosen, must compare numbers, dates or times"
        )


@dataclass(frozen=True)
class How:
    """What the results of a join are."""

    name: str
    """The value of ``how=``."""
    preserved: tuple[Side, ...] = ()
    """The streams whose tuples are answered one by one."""
    has_pairs: bool = True
    """Whether results are pairs. Otherwise they are tuples of the preserved stream."""
    has_unmatched: bool = False
    """Whether a preserved tuple without partners is a result."""
    nearest: Nearest | None = None
    """Which partners of a left tuple are results; None if all are."""
    loses_partners: bool = False
    """Whether this is a semi join whose partners may be deleted. A tuple is a result when it is decided."""

    is_early: bool = False
    """Whether preserved tuples without partners are results at once, which their first partner takes back."""

    @property
    def partners(self) -> tuple[Side, ...]:
        """The streams in which preserved tuples look for partners.

        >>> HOWS["left"].partners, HOWS["inner"].partners
        ((<Side.RIGHT: 1>,), ())
        """
        return tuple(sorted(side.other for side in self.preserved))

    @property
    def waits(self) -> bool:
        """Whether some answers wait until their tuple is decided."""
        has_decided = self.has_unmatched and not self.is_early
        return has_decided or self.nearest is not None or self.loses_partners

    def over_changes(self, changing: Collection[Side]) -> "How":
        """Return the kind of join if rows of these streams may be deleted.

        >>> HOWS["semi"].waits, HOWS["semi"].over_changes([Side.RIGHT]).waits
        (False, True)
        """
        is_semi = bool(self.preserved) and not (self.has_pairs or self.has_unmatched)
        return replace(self, loses_partners=is_semi and any(side in changing for side in self.partners))

    @property
    def is_timed_by_decision(self) -> bool:
        """Whether the time of every result is the instant that decides its tuple."""
        return not self.has_pairs or self.nearest is not None

    @property
    def is_inner(self) -> bool:
        """Whether the results are the pairs and nothing else."""
        return not self.preserved

    @property
    def padded(self) -> tuple[Side, ...]:
        """The streams whose columns are NULL in some results.

        >>> HOWS["left"].padded, HOWS["anti"].padded
        ((<Side.RIGHT: 1>,), ())
        """
        return self.partners if self.has_pairs and self.has_unmatched else ()

    @property
    def shown(self) -> tuple[Side, ...]:
        """The streams whose columns results have."""
        return tuple(Side) if self.has_pairs else self.preserved


INNER = How("inner")
HOWS: dict[str, How] = {
    how.name: how
    for how in (
        INNER,
        How("left", (Side.LEFT,), has_unmatched=True),
        How("right", (Side.RIGHT,), has_unmatched=True),
        How("full", (Side.LEFT, Side.RIGHT), has_unmatched=True),
        How("semi", (Side.LEFT,), has_pairs=False),
        How("anti", (Side.LEFT,), has_pairs=False, has_unmatched=True),
    )
}
"""The kinds of joins, by the value of ``how=``."""


def find_nearest(nearest: Nearest) -> How:
    """Return the kind of join that finds the nearest partners of each left tuple."""
    return How(repr(nearest), (Side.LEFT,), has_unmatched=nearest.keep_unmatched, nearest=nearest)


class PairRanking(Protocol):
    """How the partners of a tuple are ranked. Picklable."""

    @property
    def k(self) -> int:
        """The greatest rank of a result."""

    @property
    def ordered(self) -> "Ranking | None":
        """The ranking, if the nearest partners lie side by side in the order of a value."""

    def list_columns(self, side: Side) -> list[str]:
        """List the block columns that the ranking reads."""

    def rename(self, names: Sequence[Mapping[str, str]]) -> Self:
        """Return the ranking with new names of some columns of each side."""

    def rank_pairs(
        self, left: pa.RecordBatch, left_rows: Int64s, right: pa.RecordBatch, right_rows: Int64s
    ) -> Int64s:
        """Compute for each pair (left[left_rows[i]], right[right_rows[i]]) a key that orders pairs as Spark
        orders their values; the least key is the nearest."""


@dataclass(frozen=True)
class MeasuredRanking:
    """A ranking by a measure. NULL is the last, and NaN comes before it."""

    pair: RankedPair

    @property
    def k(self) -> int:
        return self.pair.k

    @property
    def ordered(self) -> "Ranking | None":
        return None

    def list_columns(self, side: Side) -> list[str]:
        return [self.pair.columns[side]]

    def rename(self, names: Sequence[Mapping[str, str]]) -> Self:
        return replace(self, pair=self.pair.rename(names))

    def rank_pairs(
        self, left: pa.RecordBatch, left_rows: Int64s, right: pa.RecordBatch, right_rows: Int64s
    ) -> Int64s:
        mine, theirs = self.pair.columns
        found = self.pair.measure.compute(left.column(mine), left_rows, right.column(theirs), right_rows)
        keys = encode_floats(found.values)
        if self.pair.is_descending:
            keys = np.where(np.isnan(found.values), keys, ~keys)
        return np.where(found.is_null, HIGHEST, keys)


@dataclass(frozen=True)
class Ranking:
    """How the value of a pair follows from the values ``r`` of its tuples."""

    k: int
    domain: Domain
    """The domain of the values. WIDE_DECIMAL stands for a distance of numbers of up to 19 digits."""
    has_left: bool
    has_right: bool
    """Whether the left and the right tuple has a value. If both have one, they are subtracted."""
    is_flipped: bool = False
    """Whether the left value is subtracted from the right one."""
    is_abs: bool = False
    is_single: bool = False
    """Whether Spark computes in single precision."""
    is_descending: bool = False
    """Whether the greatest value is the nearest."""
    has_nulls_first: bool = False
    has_nan_last: bool = False
    """Whether NaN is the last also if the greatest value is the nearest."""

    @property
    def ordered(self) -> "Ranking | None":
        is_farthest = self.is_abs and self.is_descending
        is_ordered = self.has_right and self.domain is not Domain.WIDE_DECIMAL and not is_farthest
        return self if is_ordered else None

    def list_columns(self, side: Side) -> list[str]:
        return [RANKED] * (self.has_left, self.has_right)[side]

    def rename(self, names: Sequence[Mapping[str, str]]) -> Self:
        return self

    def rank_pairs(
        self, left: pa.RecordBatch, left_rows: Int64s, right: pa.RecordBatch, right_rows: Int64s
    ) -> Int64s:
        return self.rank_keys(
            left.column(RANKED).take(left_rows) if self.has_left else None,
            right.column(RANKED).take(right_rows) if self.has_right else None,
        )

    def rank_keys(self, left: pa.Array | None, right: pa.Array | None) -> Int64s:
        """Compute for each pair a key that orders pairs as Spark orders their values.

        >>> ranking = Ranking(1, Domain.FLOAT, True, True, is_abs=True)
        >>> keys = ranking.rank_keys(pa.array([1.0, 1.0, None, 1.0]), pa.array([4.0, 2.0, 1.0, float("nan")]))
        >>> keys.argsort().tolist()
        [1, 0, 3, 2]
        """
        values = [column for column in (left, right) if column is not None]
        is_null = np.zeros(len(values[0]), dtype=np.bool_)
        for column in values:
            is_null |= column.is_null().to_numpy(zero_copy_only=False)
        combine = {Domain.FLOAT: self._combine_floats, Domain.WIDE_DECIMAL: _measure_wide}
        keys = combine.get(self.domain, self._combine_whole)(values)
        keys = ~keys if self.is_descending else keys
        if self.has_nan_last and self.domain is Domain.FLOAT:
            keys = np.where(keys == ~(HIGHEST - 1), HIGHEST - 1, keys)
        return np.where(is_null, LOWEST if self.has_nulls_first else HIGHEST, keys)

    def _combine_floats(self, values: list[pa.Array]) -> Int64s:
        precision = np.float32 if self.is_single else np.float64
        plain = [column.fill_null(0).to_numpy(zero_copy_only=False).astype(precision) for column in values]
        with np.errstate(invalid="ignore", over="ignore"):
            found = plain[0] if len(plain) == 1 else plain[0] - plain[1]
            found = -found if self.is_flipped else found
            found = np.abs(found) if self.is_abs else found
        return encode_floats(found.astype(np.float64))

    def _combine_whole(self, values: list[pa.Array]) -> Int64s:
        plain = [encode(column, self.domain) for column in values]
        if len(plain) == 1:
            return plain[0]
        found = _subtract(*plain)
        found = -found if self.is_flipped else found
        return np.abs(found) if self.is_abs else found


def _subtract(a: Int64s, b: Int64s) -> Int64s:
    """Subtract. A difference beyond int64 becomes the farthest one, before the place of NULL.

    >>> found = _subtract(np.array([HIGHEST, -2, 5]), np.array([-1, HIGHEST, 3]))
    >>> found + np.array([1 - HIGHEST, HIGHEST, 0])
    array([0, 1, 2])
    """
    difference = a - b
    is_beyond = ((a ^ b) & (a ^ difference)) < 0
    farthest = np.where(a < 0, -(HIGHEST - 1), HIGHEST - 1)
    found: Int64s = np.where(is_beyond, farthest, np.clip(difference, -(HIGHEST - 1), HIGHEST - 1))
    return found


def _measure_wide(values: list[pa.Array]) -> Int64s:
    """Measure the distance of two decimals of one scale and of up to 38 digits.

    A distance below 2^62 units of the last digit is its own key. A longer one has the first 16 digits in its
    key, as a double has them.

    >>> from decimal import Decimal
    >>> both = [pa.array([x], pa.decimal128(38, 2)) for x in (Decimal("9e30"), Decimal("0.07"))]
    >>> int(_measure_wide([both[1], pa.array([Decimal("-0.01")], pa.decimal128(38, 2))])[0])
    8
    >>> bool(_measure_wide(both)[0] > 1 << 62)
    True
    """
    (low, high), (other_low, other_high) = map(_read_words, values)
    high = high - other_high - (low < other_low)
    low = low - other_low
    is_negative = high < 0
    low = np.where(is_negative, ~low + np.uint64(1), low)
    high = np.where(is_negative, ~high + (low == 0), high)
    approximate = np.ldexp(high.astype(np.float64), 64) + low.astype(np.float64)
    beyond = np.maximum(approximate, _FAR).view(np.int64) - np.float64(_FAR).view(np.int64) + (1 << 62)
    is_near = (high == 0) & (low < np.uint64(1 << 62))
    keys: Int64s = np.where(is_near, low.view(np.int64), beyond)
    return keys


def _read_words(array: pa.Array) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """Read the low and the high 8 bytes of the unscaled values of decimals."""
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)
    words = words[2 * array.offset : 2 * (array.offset + len(array))]
    return np.ascontiguousarray(words[::2]).view(np.uint64), np.ascontiguousarray(words[1::2])


def select_nearest(numbers: Int64s, keys: Int64s, k: int) -> Int64s:
    """Return the positions of the pairs whose rank among the pairs with the same number is at most ``k``.

    >>> select_nearest(np.array([7, 7, 7, 8]), np.array([5, 3, 3, 9]), 2).tolist()
    [1, 2, 3]
    """
    order = np.lexsort((keys, numbers))
    number, key = numbers[order], keys[order]
    is_first = np.concatenate(([True], number[1:] != number[:-1]))[: len(order)]
    is_new = is_first.copy()
    is_new[1:] |= key[1:] != key[:-1]
    places = np.arange(len(order))
    start = np.maximum.accumulate(np.where(is_first, places, 0))
    tie = np.maximum.accumulate(np.where(is_new, places, 0))
    chosen: Int64s = order[tie - start < k]
    return chosen
