"""A join condition as the engine sees it: a box over encoded key columns.

Each side has *keys*. Catalyst computes these columns, and ``thetastream.core.keys`` encodes them as int64 in
an order-preserving way. The indexable part of the condition is a conjunction of

* equalities      L[i] = R[j]
* dimensions      low <= point <= high, where the point is a key of one side and each bound is a key of the
                  other side plus a constant: BETWEEN, <, <=, >, >=, abs(f - g) <= c, and the time window.

For one probing tuple the condition is a box: a closed interval for some of the stored columns. The index
evaluates one or two intervals of the box, and the kernel checks the others while it walks.

Units evaluate some comparisons of two keys exactly (``ExactBand``, ``ExactOrder``), because the index only
approximates them:

abs(f - g) <= c over floating-point values, whose difference Spark rounds
f OP g          over texts, and over decimals of more than 18 digits; <=> takes NULL for a value
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.columns import SIGN, VERSION_GONE, VERSION_ORDER
from thetastream.core.measure import MeasureLimit, PairMeasure
from thetastream.core.row_limit import RowLimit
from thetastream.core.sides import Side

TIME = -1
"""The position that stands for the event time wherever a key position is expected."""
SUBINDEXES_PER_WINDOW = 10
"""The default number of archive periods per window. With it, tuples stay in memory for a tenth of the window
after they have left it."""
VALUE = "value"
"""The name under which a comparison gets the values of each side."""
THRESHOLD = "threshold"
"""The name under which a comparison gets the thresholds of a side."""
_COMPARE = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


class Domain(Enum):
    """How a key column becomes int64 in Spark's order. NULL keys are filtered before they are encoded."""

    INT = "int"
    """Integers, booleans, dates, timestamps (microseconds) and day-time intervals are encoded as they are."""
    FLOAT = "float"
    """float32 and float64; integers are widened to float64. NaN equals NaN and is the largest value, and -0.0
    equals 0.0."""
    DECIMAL = "decimal"
    """decimal128 of precision <= 18 is encoded as its unscaled value."""
    WIDE_DECIMAL = "wide_decimal"
    """decimal128 of a higher precision is encoded as its float64 approximation, which is not exact."""
    TEXT = "text"
    """UTF-8 strings and binary are encoded as their first 8 bytes, big-endian, which is not exact."""

    @property
    def is_exact(self) -> bool:
        """Whether encoded keys compare exactly as the values compare."""
        return self not in (Domain.WIDE_DECIMAL, Domain.TEXT)


@dataclass(frozen=True)
class Key:
    """One key of one side: an Arrow column of the block, and how it is encoded as int64."""

    column: str
    domain: Domain
    offset: int | float = 0
    """A constant that is added to the column. Only INT and FLOAT keys have one."""


@dataclass(frozen=True)
class Bound:
    """One end of a dimension: key ``key`` of the bounding side plus ``delta``.

    ``delta`` is in the unit of the domain (microseconds for timestamps, days for dates, unscaled units for
    decimals). On a FLOAT key, a bound with a non-zero delta is widened outward by four ulps, so the conjunct
    must also stay as a residual. On integer domains the bound is exact.
    """

    key: int
    delta: int | float = 0
    is_strict: bool = False


@dataclass(frozen=True)
class Dimension:
    """``low <= point <= high``. The point belongs to side ``point``, and the bounds belong to the other."""

    point: Side
    key: int
    low: Bound | None
    high: Bound | None
    text: str = ""

    @property
    def is_two_sided(self) -> bool:
        """Whether both ends are bounded. Such a dimension is a band; the others are inequalities."""
        return self.low is not None and self.high is not None

    def bounds_above(self, side: Side) -> bool:
        """Whether the key of ``side`` has an upper bound. Of one side of an inequality this is true, and of
        the other side it is false."""
        return (self.high if self.point is side else self.low) is not None

    def list_keys(self, side: Side) -> list[int]:
        """List the keys of ``side`` that the dimension compares."""
        if self.point is side:
            return [self.key]
        return [bound.key for bound in (self.low, self.high) if bound is not None]

    def find_key(self, side: Side) -> int:
        """Return the key of ``side`` that the dimension compares. If there are two, it is the lower bound."""
        bound = self.low or self.high
        if self.point is side or bound is None:
            return self.key
        return bound.key


@dataclass(frozen=True)
class Equality:
    """``LEFT.keys[left] = RIGHT.keys[right]`` over encoded keys."""

    left: int
    right: int
    text: str = ""


@dataclass(frozen=True)
class PythonPredicate:
    """A vectorised Python function over columns of candidates.

    ``columns[side]`` lists pairs of (argument column name, block column name). For each alias the function
    receives an object with these columns. It returns a boolean array with one value per candidate.
    """

    name: str
    function: Callable[..., Any]
    aliases: tuple[str, ...]
    columns: tuple[tuple[tuple[str, str], ...], ...]
    is_encoded: bool = False
    """Whether the function receives dictionary-encoded columns, for which no value is copied."""
    version: str = ""
    """The version that the user gave the function; empty without one."""


@dataclass(frozen=True)
class MeasuredPair:
    """A measure of a left and a right block column that is compared with a constant or with thresholds."""

    columns: tuple[str, str]
    limit: MeasureLimit | RowLimit
    thresholds: tuple[str | None, str | None] = (None, None)
    """The block column of the side that has thresholds."""

    @property
    def check(self) -> PythonPredicate:
        """The comparison as a predicate, which decides the candidates of an index."""
        left, right = self.columns
        # A dot would end the name of a module.
        name = f"{left} {right} {self.limit}".replace(".", "_")
        own, others = (
            ((VALUE, column), *(() if threshold is None else ((THRESHOLD, threshold),)))
            for column, threshold in zip(self.columns, self.thresholds, strict=True)
        )
        return PythonPredicate(name, self.limit, ("left", "right"), (own, others), is_encoded=True)


@dataclass(frozen=True)
class RankedPair:
    """A measure of a left and a right block column that ranks the partners of left tuples."""

    k: int
    columns: tuple[str, str]
    measure: PairMeasure
    is_descending: bool
    """Whether the greatest value is the nearest."""

    def rename(self, names: Sequence[Mapping[str, str]]) -> "RankedPair":
        """Return the same with new names of some columns of each side."""
        left, right = (new.get(column, column) for column, new in zip(self.columns, names, strict=True))
        return replace(self, columns=(left, right))


@dataclass(frozen=True)
class ChangeRules:
    """What ends a query over a stream with deletes. Picklable."""

    fails_on_late: bool = False
    """Whether a late delete ends the query."""
    is_strict: bool = False
    """Whether the delete of a row that was not inserted ends the query."""


LENIENT = ChangeRules()
"""Late deletes and deletes of unknown rows are counted."""


@dataclass(frozen=True)
class VersionRule:
    """What the tuples of a stream are versions of, and which of them count. Texts are those of the user."""

    key: tuple[str, ...]
    """The columns that identify a row."""
    sequence: str | None = None
    """By what the versions of one time are ordered. None if the values of the rows decide."""
    deleted: str | None = None
    """When a key has no row any more. None if keys are never deleted."""


@dataclass(frozen=True)
class SideSpec:
    """The columns and keys of the blocks of one side."""

    alias: str
    columns: tuple[str, ...]
    """The payload columns, which results show."""
    computed: tuple[str, ...] = ()
    """The columns that Catalyst computed and that are not payload: keys, and the sign of a change."""
    keys: tuple[Key, ...] = ()
    time: Key | None = None
    """The event time (Domain.INT, microseconds since 1970); None if the stream has none."""
    rules: ChangeRules = LENIENT
    """What ends a query over a stream with deletes."""

    @property
    def has_deletes(self) -> bool:
        """Whether tuples have a sign, because the stream has deletes beside inserts."""
        return SIGN in self.computed

    @property
    def version_columns(self) -> tuple[str, ...]:
        """The columns that say which versions count; empty if tuples are no versions of their keys."""
        return tuple(name for name in (VERSION_ORDER, VERSION_GONE) if name in self.computed)

    def key(self, position: int) -> Key:
        """Return the key at ``position``; ``TIME`` stands for the event time."""
        if position != TIME:
            return self.keys[position]
        if self.time is None:
            raise ValueError(f"side {self.alias!r} has no event time")
        return self.time


@dataclass(frozen=True)
class Condition:
    """The condition of a binary join without the residual filters that Catalyst evaluates after the join.

    ``window`` is a dimension over TIME on both sides: low <= left.ts - right.ts <= high.
    """

    sides: tuple[SideSpec, SideSpec]
    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    window: Dimension | None = None
    predicates: tuple[PythonPredicate, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    """Pairs of payload columns (left, right) whose values must be the same bytes. The index compares their
    hashes only."""
    measured: tuple[MeasuredPair, ...] = ()
    """Measures that an index can use. ``predicates`` decides them."""
    ranked: RankedPair | None = None
    """By what an index may leave out partners that are not among the nearest. None if no measure ranks them,
    or if a predicate or Spark decides who is a partner."""


def compute_lifetime_us(window: Dimension | None, side: Side) -> int | None:
    """Compute how long after its event time a stored tuple of ``side`` may find a partner; None means
    forever.

    With low <= left.ts - right.ts <= high, a left tuple waits for right tuples up to t - low, and a right
    tuple waits for left tuples up to t + high. In a count window, times are numbers of tuples.
    """
    if window is None:
        return None
    bound = window.low if window.point is side else window.high
    if bound is None:
        return None
    delta = int(bound.delta)
    return -delta if window.point is side else delta


@dataclass(frozen=True)
class ExactBand:
    """``abs(left - right) <= limit``, computed as Spark does in double or in single precision.

    >>> left = SimpleNamespace(value=pa.array([0.3, float("nan")]))
    >>> right = SimpleNamespace(value=pa.array([0.1, 0.0]))
    >>> ExactBand(0.2, False, False)(left, right)
    array([ True, False])
    """

    limit: float
    is_strict: bool
    is_single: bool

    def __call__(self, left: SimpleNamespace, right: SimpleNamespace) -> npt.NDArray[np.bool_]:
        """Return for each candidate whether the comparison is true."""
        precision = np.float32 if self.is_single else np.float64
        f, g = (side.value.to_numpy(zero_copy_only=False).astype(precision) for side in (left, right))
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(f - g).astype(np.float64)
        found: npt.NDArray[np.bool_] = distance < self.limit if self.is_strict else distance <= self.limit
        return found


@dataclass(frozen=True)
class ExactOrder:
    """``left op right`` for values that Arrow orders as Spark does: texts by their bytes, and decimals."""

    op: str

    def __call__(self, left: SimpleNamespace, right: SimpleNamespace) -> pa.Array:
        """Return for each candidate whether the comparison is true."""
        if self.op == "<=>":
            equal = pc.fill_null(pc.equal(left.value, right.value), False)
            return pc.or_(equal, pc.and_(pc.is_null(left.value), pc.is_null(right.value)))
        return _COMPARE[self.op](left.value, right.value)
