"""The clauses of a SELECT over the rows of a join; every expression is a slice of the user's text."""

from dataclasses import dataclass

from thetastream.predicate import Phrase


@dataclass(frozen=True)
class SelectClauses:
    """The select list, and the other clauses that are evaluated over the rows of a join."""

    items: Phrase
    group_by: Phrase | None = None
    having: Phrase | None = None
    is_distinct: bool = False
    tail: tuple[Phrase, ...] = ()
    """ORDER BY, LIMIT and OFFSET. Each phrase begins with the word of its clause."""
    where: tuple[Phrase, ...] = ()
    """The conjuncts that results must satisfy. Those of an inner join are part of its condition instead."""

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the results of the join."""
        optional = (*self.where, self.group_by, self.having)
        return (self.items, *(phrase for phrase in optional if phrase is not None), *self.tail)
