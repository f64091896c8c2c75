"""A statement consists of clauses; every expression in them is a slice of the user's text.

SELECT ONLINE items FROM sources WHERE condition WITHIN window GROUP BY keys HAVING condition
"""

from dataclasses import dataclass

from thetastream.predicate import Phrase
from thetastream.sql.question import Selection
from thetastream.sql.window import Window


@dataclass(frozen=True)
class Source:
    """One stream of FROM: a name, or a subquery that selects and projects one stream."""

    alias: str
    name: str
    """The name of the stream as the user wrote it, with dots and quotes."""
    start: int
    """The position of the source in the text."""
    items: Phrase | None = None
    """The select list of a subquery."""
    where: Phrase | None = None
    """The condition of a subquery."""
    inner: str = ""
    """The alias of the stream inside the subquery."""


@dataclass(frozen=True)
class Statement:
    """A parsed ``SELECT ONLINE`` statement, whose names are not resolved yet."""

    text: str
    items: Phrase
    sources: tuple[Source, ...]
    conditions: tuple[Phrase, ...]
    """The conditions of every ON and then of WHERE; all of them must hold."""
    within: Window | dict[str, Window] | None = None
    group_by: Phrase | None = None
    having: Phrase | None = None
    is_distinct: bool = False
    is_explain: bool = False

    @property
    def selection(self) -> Selection:
        """The select list and its groups."""
        return Selection(self.items, self.group_by, self.having, self.is_distinct)

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the streams."""
        return (*self.selection.phrases, *self.conditions)
