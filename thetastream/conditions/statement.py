"""A statement is a SELECT and the use of its rows; every expression is a slice of the user's text.

[EXPLAIN] [CREATE VIEW name AS | INSERT INTO name]
[WITH name AS (SELECT ...)]
SELECT items FROM sources WHERE condition WITHIN window GROUP BY keys HAVING condition
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from thetastream.conditions.clauses import SelectClauses
from thetastream.conditions.tokens import Phrase, Token, tokenize
from thetastream.core.how import Nearest
from thetastream.core.spans import Duration, Rows

HowOption: TypeAlias = str | Nearest
"""What a user passes as ``how=``."""
Window: TypeAlias = Duration | Rows


@dataclass(frozen=True)
class Subquery:
    """``[NOT] EXISTS (SELECT ...)`` or ``values [NOT] IN (SELECT columns ...)`` in WHERE, which is a join."""

    where: tuple[Phrase, ...]
    """The WHERE of the subquery. It may name columns of the outer source."""
    values: tuple[Phrase, ...] = ()
    columns: tuple[Phrase, ...] = ()
    """For each value, the expression over the inner source with which it is compared."""
    is_negated: bool = False
    """Whether it is NOT IN, for which NULL counts as a possible match."""
    outer_where: tuple[Phrase, ...] = ()
    """What else WHERE asks of the outer rows."""
    is_narrowed: bool = False
    """Whether a subquery behind LATERAL selects some columns only."""
    inner_where: tuple[Phrase, ...] = ()
    """Conditions that the rows of the inner source satisfy already."""


@dataclass(frozen=True)
class Source:
    """One input of FROM: a name, or a subquery."""

    alias: str
    name: str
    """The name as the user wrote it, with dots and quotes. It is empty for a subquery."""
    start: int
    """The position of the source in the text."""
    select: "Select | None" = None
    """The subquery."""
    how: HowOption = "inner"
    """The kind of the join with the sources before it."""
    on: Phrase | None = None
    """The condition of ON."""
    using: tuple[Token, ...] = ()
    """The columns of USING, which this source has in common with the sources before it."""
    match: Phrase | None = None
    """The text of MATCH_CONDITION, the inequality by which an as-of join chooses the nearest partner."""
    ends_with_time: bool = False
    """Whether the last column of USING is a time that is at or before that of the row, as in ASOF JOIN."""
    version: Phrase | None = None
    """The time of ``FOR SYSTEM_TIME AS OF``. The partner is the newest row of this source until then."""
    subquery: Subquery | None = None
    """The subquery of WHERE, or behind LATERAL, whose rows these are."""

    @property
    def asked(self) -> tuple[Phrase, ...]:
        """The conditions of the join that the user wrote behind the source."""
        return tuple(phrase for phrase in (self.match, self.on) if phrase is not None)

    @property
    def is_hidden(self) -> bool:
        """Whether results have no columns of this source."""
        return self.how in ("semi", "anti")

    @property
    def plain_name(self) -> str:
        """The name without quotes, in lower case."""
        return "".join(token.name for token in tokenize(self.name)).casefold()


@dataclass(frozen=True)
class NamedSelect:
    """One part of a WITH clause."""

    name: str
    start: int
    """The position of the name in the text."""
    select: "Select"


@dataclass(frozen=True)
class Select:
    """A parsed SELECT over one input or over a join, whose names are not resolved yet."""

    text: str
    """The whole text. All phrases are slices of it."""
    items: Phrase
    sources: tuple[Source, ...]
    conditions: tuple[Phrase, ...]
    """The conditions of the join, which must all hold: those of every ON, and then WHERE. The WHERE of an
    outer, semi or anti join is not one of them."""
    within: Window | dict[str, Window] | None = None
    group_by: Phrase | None = None
    having: Phrase | None = None
    is_distinct: bool = False
    tail: tuple[Phrase, ...] = ()
    """ORDER BY, LIMIT and OFFSET, for batch inputs only. Each phrase begins with the word of its clause."""
    where: tuple[Phrase, ...] = ()
    """The conjuncts in the WHERE of an outer, semi or anti join, which select among its results."""
    named: tuple[NamedSelect, ...] = ()
    """The parts of the WITH clause, in the order of the text."""

    @property
    def clauses(self) -> SelectClauses:
        """The select list, and the other clauses that are evaluated over the rows of the join."""
        return SelectClauses(self.items, self.group_by, self.having, self.is_distinct, self.tail, self.where)

    @property
    def how(self) -> HowOption:
        """The kind of the join of two sources."""
        return self.sources[-1].how

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the inputs."""
        return (*self.clauses.phrases, *self.compared)

    @property
    def compared(self) -> tuple[Phrase, ...]:
        """The conditions of the joins, and all expressions of the subqueries in WHERE."""
        found = [source.subquery for source in self.sources if source.subquery is not None]
        inner = [phrase for one in found for phrase in (*one.where, *one.values, *one.columns)]
        return (*self.conditions, *inner)


@dataclass(frozen=True)
class View:
    """The head ``CREATE VIEW name [(columns)] AS``."""

    name: str
    start: int
    columns: tuple[str, ...] = ()
    """The new names of the columns. Without them, the columns keep their names."""
    is_replaced: bool = False
    """Whether a view of the same name is replaced. Otherwise, it is an error."""


@dataclass(frozen=True)
class Insert:
    """The head ``INSERT INTO name [(columns)]``."""

    name: str
    """The name of the sink as the user wrote it, with dots and quotes."""
    start: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statement:
    """A parsed statement."""

    select: Select
    head: View | Insert | None = None
    """What is done with the rows. Without a head, they are returned."""
    is_explain: bool = False
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """The values of the clause OPTIONS, by name."""


def find_inputs(statements: Sequence[Statement]) -> Iterator[tuple[Select, Source]]:
    """Yield every source that names a stream, with its SELECT.

    Names of parts of WITH and of views of the script are left out.
    """
    views = set[str]()
    for statement in statements:
        yield from _find_in_select(statement.select, frozenset(views))
        if isinstance(statement.head, View):
            views.add(statement.head.name.casefold())


def _find_in_select(select: Select, known: frozenset[str]) -> Iterator[tuple[Select, Source]]:
    for part in select.named:
        yield from _find_in_select(part.select, known)
        known |= {part.name.casefold()}
    for source in select.sources:
        if source.select is not None:
            yield from _find_in_select(source.select, known)
        elif source.plain_name not in known:
            yield select, source


def list_selects(select: Select) -> Iterator[Select]:
    """Yield a SELECT and all SELECTs inside it."""
    yield select
    for part in select.named:
        yield from list_selects(part.select)
    for source in select.sources:
        if source.select is not None:
            yield from list_selects(source.select)
