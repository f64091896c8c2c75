"""A statement as its clauses; every expression is a slice of what the user wrote.

SELECT ONLINE items FROM sources WHERE condition WITHIN window GROUP BY keys HAVING condition
"""

from dataclasses import dataclass

from thetastream.predicate import Phrase
from thetastream.sql.window import Window


@dataclass(frozen=True)
class Source:
    """One stream of FROM: a name, or a subquery over one that selects and projects."""

    alias: str
    name: str
    """As written, dots and quotes included."""
    start: int
    """Where it stands in the text."""
    items: Phrase | None = None
    """Select list of a subquery."""
    where: Phrase | None = None
    """Condition of a subquery."""
    inner: str = ""
    """What the subquery calls its stream."""


@dataclass(frozen=True)
class Statement:
    """``SELECT ONLINE`` as parsed; nothing is resolved yet."""

    text: str
    items: Phrase
    sources: tuple[Source, ...]
    conditions: tuple[Phrase, ...]
    """ON of every join, then WHERE: a conjunction."""
    within: Window | dict[str, Window] | None = None
    group_by: Phrase | None = None
    having: Phrase | None = None
    is_distinct: bool = False
    is_explain: bool = False

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the streams."""
        return (*self.shown, *self.conditions)

    @property
    def shown(self) -> tuple[Phrase, ...]:
        """Expressions over the join's results."""
        optional = (self.group_by, self.having)
        return (self.items, *(phrase for phrase in optional if phrase is not None))
