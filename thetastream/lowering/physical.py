"""The physical plan, which lowering produces and ``spark`` runs: SQL texts, key columns, an index per side.

Catalyst evaluates all SQL texts of the plan over a DataFrame with one struct column per alias. So ``a.price``
has the meaning that the user intends.
"""

from dataclasses import dataclass, field

from thetastream.conditions import tokenize
from thetastream.core.columns import SIGN
from thetastream.core.condition import (
    Condition,
    Dimension,
    PythonPredicate,
    VersionRule,
    compute_lifetime_us,
)
from thetastream.core.how import INNER, How, PairRanking
from thetastream.core.measure import PairMeasure
from thetastream.core.sides import Side
from thetastream.index.base import IndexSpec


@dataclass(frozen=True)
class Carried:
    """How one payload column is sent in the Arrow blocks.

    ``to_block`` is SQL that computes the block column from the struct column of the alias. ``from_block`` is
    SQL that restores the user's column exactly from the column ``block_column`` of the engine's output.
    """

    field: str
    block_column: str
    block_type: str
    """The Spark type of the block column as DDL, for example ``bigint``."""
    to_block: str
    from_block: str
    type: str = ""
    """The Spark type of the user's column, for messages."""


@dataclass(frozen=True)
class Filter:
    """A condition on one stream. Filters with one text are equal."""

    text: str
    required: str | None = field(default=None, compare=False)
    """The expression that must not be NULL. It is None if the filter has another condition."""

    @classmethod
    def require(cls, value: str) -> "Filter":
        """Make the filter that excludes NULL values of an expression.

        >>> Filter.require("a.x + 1").text
        '(a.x + 1) IS NOT NULL'
        """
        return cls(f"({value}) IS NOT NULL", value)

    @classmethod
    def read(cls, text: str) -> "Filter":
        """Read a condition of the user. It may be what ``require`` makes.

        >>> Filter.read("(a.x + 1) IS NOT NULL").required
        'a.x + 1'
        >>> print(Filter.read("(a.x > 3) OR (a.y) IS NOT NULL").required)
        None
        """
        phrase = tokenize(text).slice(0, -3)
        inner = phrase.slice(1, -1)
        if inner and phrase.bare().tokens != phrase.tokens:
            made = cls.require(text[phrase.tokens[0].end : phrase.tokens[-1].start])
            if made.text == text:
                return made
        return cls(text)

    @property
    def is_not_null(self) -> bool:
        """Whether the filter only excludes NULL."""
        return self.required is not None

    @property
    def is_of_column(self) -> bool:
        """Whether the filter only excludes NULL in a column. Such a filter cannot raise an error."""
        return bool(self.required) and all(sign.isalnum() or sign in "_`." for sign in str(self.required))


@dataclass(frozen=True)
class SidePlan:
    """One input stream: its filters, key columns and payload."""

    alias: str
    filters: tuple[Filter, ...]
    computed: tuple[tuple[str, str], ...]
    """(block column, SQL) of each key column that Catalyst computes before routing."""
    carried: tuple[Carried, ...]
    moves_watermark: bool = False
    """Whether tuples that fail the filters move the watermark too. Then Spark must not evaluate the filters
    before the watermark."""

    @property
    def has_deletes(self) -> bool:
        """Whether the stream has deletes beside inserts."""
        return any(column == SIGN for column, _ in self.computed)


@dataclass(frozen=True)
class PhysicalPlan:
    """A join of two streams that is ready to run, except for the model."""

    sides: tuple[SidePlan, SidePlan]
    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    """The indexes of stored left tuples and of stored right tuples."""
    residual: tuple[str, ...]
    """Conjuncts that Catalyst evaluates behind the join."""
    archive_period_us: int | None
    """Event time that one subindex spans, in microseconds. It is None for full history and count windows."""
    counts: tuple[int, ...] | None = None
    """For a count window, the number of left and right tuples that stay joinable."""
    on: tuple[str, ...] = ()
    """The condition as the user wrote it, for messages."""
    how: How = INNER
    """Whether results are pairs, or answers for each tuple of a preserved stream."""

    ranking: PairRanking | None = None
    """How the partners of a tuple are ranked, if only the nearest are results."""
    drops_replaced: bool = False
    """Whether later right tuples with equal keys replace one, once the watermark has passed them."""
    versions: VersionRule | None = None
    """What right tuples are versions of; None if they are no versions."""
    unit_checks: tuple[tuple[str, tuple[PythonPredicate, ...]], ...] = ()
    """For conjuncts of the residual, comparisons of keys by which units can evaluate them instead."""
    hashed: tuple[int, ...] = ()
    """For each pair of payload columns that must have the same bytes (``Condition.same``), the number of the
    equality whose keys are its hashes."""

    @property
    def ranking_rule(self) -> str | None:
        """How the nearest partners are found, for explain; None if all partners are results."""
        if self.ranking is None:
            return None
        condition, ranked = self.condition, self.condition.ranked
        is_whole = not (self.residual or condition.predicates or condition.same)
        shape = self.indexes[0].shape
        if ranked is not None and shape.layout.uses_measures and _leaves_out(ranked.measure):
            return f"by {ranked.measure.name}; index {shape.name} leaves out what is surely farther"
        if self.ranking.ordered is not None and is_whole:
            return "in the order of their values, from the nearest one outward, if many are partners"
        return "by the value of each partner"

    @property
    def lifetimes_us(self) -> tuple[int | None, int | None]:
        """How long left and right tuples wait for partners, in microseconds. None means for ever."""
        return compute_lifetimes(self.condition.window)


def compute_lifetimes(window: Dimension | None) -> tuple[int | None, int | None]:
    """Return how long left and right tuples stay joinable, in microseconds. None means for ever.

    >>> from thetastream.core.condition import TIME, Bound
    >>> compute_lifetimes(Dimension(Side.LEFT, TIME, Bound(TIME, -5), Bound(TIME, 3)))
    (5, 3)
    """
    left, right = (compute_lifetime_us(window, side) for side in Side)
    return None if left is None else max(0, left), None if right is None else max(0, right)


def _leaves_out(measure: PairMeasure) -> bool:
    """Whether a measure proposes the nearest partners. By default, it proposes all pairs."""
    return type(measure).propose_nearest is not PairMeasure.propose_nearest
