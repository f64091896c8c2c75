"""How a join answers: in pairs of tuples, or in one answer for each tuple of a *preserved* stream.

The partners of a tuple are the tuples with which it satisfies the condition inside the window. They are all
known once the watermark is at or after t + W: the event time of the tuple plus the time that it waits for
partners. From then on the tuple is *decided*.
"""

from dataclasses import dataclass, field

from thetastream.core.sides import Side
from thetastream.errors import QueryError


@dataclass(frozen=True)
class Nearest:
    """The k nearest partners of each left tuple: those whose rank by an expression is at most k.

    Ties are included, as in SQL's ``rank()``. NULL and NaN values of the expression are last.

    Parameters
    ----------
    k : int
        The greatest rank.
    by : str
        ``abs(f - g)``, ``f - g``, or an expression over one stream, where f and g are Spark SQL expressions
        over one stream each, as in ``"abs(a.price - b.price)"``. ``ASC`` or ``DESC``, and ``NULLS FIRST`` or
        ``NULLS LAST``, may stand behind it, as in ``"b.ts DESC"``. Without them, the smallest value is first.
    keep_unmatched : bool
        Whether a left tuple without partners is a row, with NULL as its partner.

    Raises
    ------
    QueryError
        NEAREST if ``k`` is not a positive integer, or ``by`` is not a text.

    Examples
    --------
    >>> Nearest(1, by="a.ts - b.ts")
    Nearest(k=1, by='a.ts - b.ts', keep_unmatched=False)
    """

    k: int
    by: str
    keep_unmatched: bool = False

    @property
    def rule(self) -> str:
        """What the expression must be, for errors."""
        return (
            f"by={self.by!r} must be abs(f - g), f - g, or an expression over one stream, of numbers or "
            "times, with ASC or DESC behind it or without, and each column with its alias"
        )

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise QueryError("NEAREST", f"th.Nearest needs a positive integer k, not {self.k!r}")
        if not isinstance(self.by, str) or not self.by.strip():
            raise QueryError("NEAREST", f"by of th.Nearest must be a SQL expression, not {self.by!r}")


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

    def __repr__(self) -> str:
        return f"Nearest(k={self.k!r}, by={self.by!r}, keep_unmatched={self.keep_unmatched!r})"


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
        return self.has_unmatched or self.nearest is not None

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
