"""A statement is a SELECT and the use of its rows; every expression is a slice of the user's text.

[EXPLAIN] [CREATE VIEW name AS | INSERT INTO name]
[WITH name AS (SELECT ...)]
SELECT items FROM sources WHERE condition WITHIN window GROUP BY keys HAVING condition
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thetastream.frontend.how import GivenHow
from thetastream.predicate import Phrase, tokenize
from thetastream.predicate.tokens import Token
from thetastream.sql.select_clauses import SelectClauses
from thetastream.sql.window import Window


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
    how: GivenHow = "inner"
    """The kind of the join with the sources before it."""
    on: Phrase | None = None
    """The condition of ON."""
    using: tuple[Token, ...] = ()
    """The columns of USING, which this source has in common with the sources before it."""

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
    def how(self) -> GivenHow:
        """The kind of the join of two sources."""
        return self.sources[-1].how

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the inputs."""
        return (*self.clauses.phrases, *self.conditions)


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
