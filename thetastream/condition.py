"""A join condition as the engine sees it: a box over encoded key columns.

Each side has *keys*: columns that Catalyst computed and that become int64 in an order-preserving
way (``thetastream.keys``). The indexable part of the condition is a conjunction of

* equalities      L[i] = R[j]
* dimensions      low <= point <= high, the point a key of one side, the bounds keys of the other,
                  each plus a constant: BETWEEN, <, <=, >, >=, abs(f - g) <= c, and the time window.

For one probing tuple this is a box: a closed interval for some of the stored columns. The index
answers one or two intervals of the box, the kernel checks the others while it walks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from thetastream.types import Side

TIME = -1
"""Key position of the event time, wherever a key position is asked for."""


class Domain(Enum):
    """How a key column becomes int64, keeping Spark's order (NULLs never get here)."""

    INT = "int"
    """Integers, booleans, dates, timestamps (microseconds), day-time intervals: the value itself."""
    FLOAT = "float"
    """float32, float64 (integers are widened to float64): NaN = NaN is largest, -0.0 = 0.0."""
    DECIMAL = "decimal"
    """decimal128 of precision <= 18: the unscaled value."""
    WIDE_DECIMAL = "wide_decimal"
    """decimal128 beyond: its float64 approximation. Not exact."""
    TEXT = "text"
    """UTF-8 strings and binary: the first 8 bytes, big-endian. Not exact."""

    @property
    def is_exact(self) -> bool:
        """Whether encoded keys compare exactly as the values do."""
        return self not in (Domain.WIDE_DECIMAL, Domain.TEXT)


@dataclass(frozen=True)
class Key:
    """One key of one side: an Arrow column of the block and its way to int64."""

    column: str
    domain: Domain
    offset: int | float = 0
    """Added to the column; INT and FLOAT only."""


@dataclass(frozen=True)
class Bound:
    """One end of a dimension: key ``key`` of the bounding side plus ``delta``.

    ``delta`` is in the domain's own unit (microseconds for timestamps, days for dates, unscaled
    units for decimals). On a FLOAT key a non-zero delta is widened outward by four ulps, so the
    conjunct must also stay as a residual; on the integer domains it is exact.
    """

    key: int
    delta: int | float = 0
    is_strict: bool = False


@dataclass(frozen=True)
class Dimension:
    """``low <= point <= high``: the point on side ``point``, both bounds on the other side."""

    point: Side
    key: int
    low: Bound | None
    high: Bound | None
    text: str = ""

    @property
    def is_two_sided(self) -> bool:
        """Whether both ends are bounded (a band), as opposed to an inequality."""
        return self.low is not None and self.high is not None


@dataclass(frozen=True)
class Equality:
    """``LEFT.keys[left] = RIGHT.keys[right]`` over encoded keys."""

    left: int
    right: int
    text: str = ""


@dataclass(frozen=True)
class PythonPredicate:
    """A vectorised Python function over columns of candidates.

    ``columns[side]`` lists (argument column name, block column name); the function receives, per
    alias, an object with those columns and returns a boolean array of the candidates' length.
    """

    name: str
    function: Callable[..., Any]
    aliases: tuple[str, str]
    columns: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
    is_encoded: bool = False
    """Whether columns are handed over dictionary-encoded, without a copy of any value."""


@dataclass(frozen=True)
class SideSpec:
    """What a block of one side carries."""

    alias: str
    columns: tuple[str, ...]
    """Payload columns, the ones that results show."""
    computed: tuple[str, ...] = ()
    """Key columns that Catalyst computed and that are not payload."""
    keys: tuple[Key, ...] = ()
    time: Key | None = None
    """Event time (Domain.INT, microseconds since the epoch), or None."""

    def key(self, position: int) -> Key:
        """Key at ``position``; ``TIME`` is the event time."""
        if position != TIME:
            return self.keys[position]
        if self.time is None:
            raise ValueError(f"side {self.alias!r} has no event time")
        return self.time


@dataclass(frozen=True)
class Condition:
    """The whole condition of a binary join, less the residual that Catalyst evaluates behind it.

    ``window`` is a dimension over TIME on both sides: low <= left.ts - right.ts <= high.
    """

    sides: tuple[SideSpec, SideSpec]
    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    window: Dimension | None = None
    predicates: tuple[PythonPredicate, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    """Payload columns (left, right) whose values must be the same bytes: their hashes were equal."""


@dataclass(frozen=True)
class IndexSpec:
    """Which index a side's tuples are stored in, and what it answers.

    ``kind`` names an entry of ``thetastream.index.REGISTRY``: scan, hash, sorted, hash_sorted, grid.
    ``equalities`` are positions in ``Condition.equalities`` (all of them for the hash kinds);
    ``dimensions`` are positions in ``Condition.dimensions``, -1 standing for the window: one for
    sorted and hash_sorted, two for grid.
    """

    kind: str
    equalities: tuple[int, ...] = ()
    dimensions: tuple[int, ...] = ()
