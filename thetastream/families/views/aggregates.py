"""Plans the aggregates of a folded statement: the measures of each call and the SQL that merges them."""

from collections.abc import Sequence
from dataclasses import dataclass

from thetastream.aggregates import REGISTRY, Aggregate, MeasureFunction, NotFoldable
from thetastream.aggregates.operands import AND
from thetastream.conditions import Phrase
from thetastream.conditions.names import find_references
from thetastream.families.views.calculations import Calculations
from thetastream.families.views.expressions import Expressions, find_closing
from thetastream.families.views.folding import PREFIX, Calculated, Computed, Folding, ViewMeasure


class Aggregates:
    """Finds calls of registered aggregates, and adds their measures and merges to a folding."""

    def __init__(self, expressions: Expressions, folding: Folding) -> None:
        self._expressions = expressions
        self._folding = folding
        self._computed: dict[tuple[str, str], Computed] = {}
        self._calculations = Calculations(expressions, self._compute)

    def find(self, phrase: Phrase, n: int) -> tuple[int, str] | None:
        """Find the call that begins at token ``n``. Return the position after it and the name of its merge.

        Return None if no call begins there.

        Raises
        ------
        NotFoldable
            If units cannot fold the call.
        """
        tokens = phrase.tokens
        token = tokens[n]
        aggregate = REGISTRY.get(token.keyword)
        is_call = n + 1 < len(tokens) and tokens[n + 1].text == "("
        if aggregate is None or token.kind == "FIELD" or not is_call:
            return None
        # 1. Find its arguments and the FILTER that may follow them.
        close = find_closing(tokens, n + 1)
        arguments, end = phrase.slice(n + 2, close), close + 1
        where: Phrase | None = None
        if end + 1 < len(tokens) and tokens[end].keyword == "FILTER" and tokens[end + 1].text == "(":
            shut = find_closing(tokens, end + 1)
            where, end = phrase.slice(end + 3, shut), shut + 1
        if not arguments or not _is_taken(aggregate, arguments):
            raise NotFoldable(f"{phrase.slice(n, end).text} is not folded")
        if self.has_deletes and not aggregate.takes_deletes:
            raise NotFoldable(f"a deleted row cannot be taken out of {phrase.slice(n, end).text}")
        # 2. Write its SQL over views.
        merge = aggregate.merge(self._read(token.keyword, arguments, where))
        return end, self._folding.merges.setdefault(merge, f"{PREFIX}a{len(self._folding.merges)}")

    def _read(self, name: str, arguments: Phrase, where: Phrase | None) -> "FoldedCall":
        argument, *options = arguments.split_at_commas()
        is_star = argument.text == "*"
        read = [part for part in (None if is_star else argument, where) if part is not None]
        aliases = self._expressions.aliases
        named = {alias for part in read for alias in find_references(part, aliases)}
        if len(named) < 2:
            aliases = [self._expressions.find_stream(*read)]
        value = "1" if is_star else f"({argument.text})"
        if where is not None:
            value = f"CASE WHEN ({where.text}) THEN {value} END"
        type_ = self._expressions.resolver.type_of(value, aliases)
        if type_ is None:
            raise NotFoldable(f"Spark finds no type for {argument.text}")
        texts = [option.text for option in options]
        return FoldedCall(name, is_star and where is None, value, type_, texts, aliases, self)

    @property
    def is_ansi(self) -> bool:
        """Whether an overflow is an error in Spark."""
        return self._expressions.resolver.is_ansi

    @property
    def has_deletes(self) -> bool:
        """Whether matches may be deleted."""
        return self._folding.rows is not None

    def plan_checks(self, checks: Sequence[str]) -> Computed | Calculated | None:
        """Plan the condition that all checks are true. It is None without checks.

        Raises
        ------
        NotFoldable
            If units cannot evaluate a check.
        """
        planned = []
        for check in checks:
            try:
                planned.append(self._calculations.plan(check))
            except NotFoldable as reason:
                raise NotFoldable(f"{check} is evaluated behind the units: {reason}") from None
        if len(planned) < 2:
            return planned[0] if planned else None
        text = " AND ".join(f"({check})" for check in checks)
        return Calculated(AND, tuple(planned), text, "boolean", is_checked=False)

    def type_of(self, aliases: Sequence[str], text: str) -> str | None:
        """Return the Spark type of SQL over these streams."""
        return self._expressions.resolver.type_of(text, aliases)

    def measure(self, function: MeasureFunction, aliases: Sequence[str], text: str | None) -> tuple[str, ...]:
        """Return the columns of the views that hold a measure. A measure is added only once."""
        column: Computed | Calculated | None = None
        if text is not None:
            is_of_one = len(aliases) == 1
            column = self._compute(aliases[0], text) if is_of_one else self._calculations.plan(text)
        for known in self._folding.measures:
            if (known.function, known.column) == (function, column):
                return function.columns(known.name)
        made = ViewMeasure(f"{PREFIX}m{len(self._folding.measures)}", function, column)
        self._folding.measures.append(made)
        return function.columns(made.name)

    def _compute(self, alias: str, text: str) -> Computed:
        """Return the column that a stream computes. A column is computed only once."""
        name = f"{PREFIX}v{len(self._computed)}"
        return self._computed.setdefault((alias, text), Computed(alias, text, name))


@dataclass(frozen=True)
class FoldedCall:
    """A ``thetastream.aggregates.base.AggregateCall``."""

    name: str
    is_every_match: bool
    value: str
    type: str
    options: Sequence[str]
    aliases: Sequence[str]
    """The streams that it reads: one of them or both."""
    aggregates: Aggregates

    @property
    def is_ansi(self) -> bool:
        return self.aggregates.is_ansi

    @property
    def has_deletes(self) -> bool:
        return self.aggregates.has_deletes

    @property
    def presence(self) -> str:
        # Units do not evaluate IS NOT NULL.
        is_of_one = len(self.aliases) == 1
        return f"CASE WHEN {self.value} IS NOT NULL THEN 1 END" if is_of_one else self.value

    def measure(self, function: MeasureFunction, text: str | None = None) -> tuple[str, ...]:
        return self.aggregates.measure(function, self.aliases, text)

    def type_of(self, text: str) -> str | None:
        return self.aggregates.type_of(self.aliases, text)


def _is_taken(aggregate: Aggregate, arguments: Phrase) -> bool:
    """Whether an aggregate accepts these arguments."""
    if arguments.tokens[0].keyword in ("DISTINCT", "ALL"):
        return False
    if arguments.text == "*" and not aggregate.takes_star:
        return False
    return len(arguments.split_at_commas()) <= aggregate.most_arguments
