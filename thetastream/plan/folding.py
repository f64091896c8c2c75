"""A grouped select list as views of units and a query that merges them.

    SELECT r.k, 2 * avg(s.x) FROM r, s GROUP BY r.k
    units:  r.k AS g0, sum(s.x) AS m0, count(s.x) AS m1    per group and epoch
    merged: SELECT g0, sum(m0) / nullif(sum(m1), 0) AS a0 FROM views GROUP BY g0
    answer: SELECT g0, 2 * a0 FROM merged

Whatever this does not know to be right is left: then pairs leave the units and Spark aggregates them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

from thetastream.aggregate import Lazy, Pane, columns_of
from thetastream.aggregate.sketch import INSTALL, is_available, registers_for
from thetastream.errors import QueryError
from thetastream.plan.domains import decimal_of, is_floating, is_integral
from thetastream.plan.query import Resolver, Stream
from thetastream.plan.total import is_total
from thetastream.predicate import Phrase
from thetastream.predicate.names import qualify, references, refuse
from thetastream.predicate.tokens import Token, parse

PREFIX = "__view_"
"""Before the names of the views' columns: no name of a stream may be mistaken for one."""
TIME = f"{PREFIX}time"
_SPREADS = {
    # Spark's name: (what counts below the sum of squares, whether a root is taken)
    **dict.fromkeys(("VARIANCE", "VAR_SAMP"), ("{n} - 1", False)),
    **dict.fromkeys(("STDDEV", "STD", "STDDEV_SAMP"), ("{n} - 1", True)),
    "VAR_POP": ("{n}", False),
    "STDDEV_POP": ("{n}", True),
}
_DISTINCT = "APPROX_COUNT_DISTINCT"
FUNCTIONS = {"COUNT", "SUM", "AVG", "MEAN", "MIN", "MAX", _DISTINCT, *_SPREADS}
_ERROR = 0.05
"""Spark's relative standard deviation of approx_count_distinct, unless it is given."""
_GROUPED = {"tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "boolean"}
_DATETIMES = {"date", "timestamp", "timestamp_ntz"}
_WIDEST_DECIMAL = 28
"""Precision to which the sums of an epoch surely fit 38 digits."""
_WIDEST_MEAN = 14
"""Precision to which the quotient of sum and count has ten digits more than an avg's s + 4: rounded twice,
it is still rounded right, for counts below 5e9."""
_SUBQUERIES = {"SELECT", "WITH", "VALUES", "TABLE", "FROM"}
_NAMING = {"STRUCT", ",", "(", "AS", "SELECT"}
"""Before a bracket that makes a struct, perhaps, of unnamed fields: struct(a, b), (a, b)."""
_WINDOW = "window"
_SETS = {"ALL", "ROLLUP", "CUBE", "GROUPING"}


class NotFoldable(Exception):
    """Why matches must leave the units as pairs."""


@dataclass(frozen=True)
class Computed:
    """A column to compute on one stream before the join: SQL over the stream's alias."""

    alias: str
    text: str
    name: str


@dataclass(frozen=True)
class Measured:
    """A measure of the views: a function over a computed column; ``count`` without one counts matches."""

    name: str
    function: str
    column: Computed | None = None
    registers: int | None = None
    """Of a sketch: the logarithm to base 2."""


@dataclass
class Folding:
    """What units fold, and the texts over their views."""

    groups: list[Computed] = field(default_factory=list)
    """A group's name is its column's."""
    measures: list[Measured] = field(default_factory=list)
    pane: Pane | None = None
    keys: list[tuple[str, str]] = field(default_factory=list)
    """GROUP BY over the views: (SQL, name)."""
    merges: dict[str, str] = field(default_factory=dict)
    """SQL over the views -> name."""
    items: str = ""
    """The select list over keys and merges; no aggregate is left in it."""
    having: str | None = None
    lazy: Lazy | None = None
    """When views wait for the next epochs."""

    @property
    def computed(self) -> list[Computed]:
        """All columns to compute, each once."""
        read = (measure.column for measure in self.measures if measure.column is not None)
        return list(dict.fromkeys([*self.groups, *read]))

    def describe(self) -> str:
        """What units fold, for explain."""
        groups = ", ".join(column.text for column in self.groups) or "all matches"
        if self.pane is not None:
            groups += ", a pane of result_time"
        measures = ", ".join(
            f"{measure.function}({'*' if measure.column is None else measure.column.text})"
            for measure in self.measures
        )
        return f"{measures or 'nothing'} by {groups}"


def plan_folding(
    items: Phrase,
    group_by: Phrase | None,
    having: Phrase | None,
    streams: Sequence[Stream],
    resolver: Resolver,
    result_time: str | None,
) -> Folding:
    """How units can fold a grouped statement.

    Parameters
    ----------
    items, group_by, having : Phrase
        As the user wrote them; ``*`` written out.
    streams : two Streams
        What the phrases read.
    resolver : Resolver
        Over these streams.
    result_time : str or None
        The name that stands for a match's latest event time, if streams have event times.

    Raises
    ------
    NotFoldable
        With the reason.
    """
    planner = _Planner(streams, resolver, result_time)
    try:
        return planner.plan(items, group_by, having)
    except QueryError as error:
        raise NotFoldable(error.message) from None


class _Planner:
    def __init__(self, streams: Sequence[Stream], resolver: Resolver, result_time: str | None) -> None:
        self._aliases = [stream.alias for stream in streams]
        self._fold: Callable[[str], str] = str if resolver.is_case_sensitive else str.casefold
        self._columns = {
            # A bare result_time is the result's, whatever columns streams have.
            stream.alias: [name for name, _ in stream.types if name.casefold() != result_time]
            for stream in streams
        }
        self._types = {
            (self._fold(stream.alias), self._fold(name)): type_
            for stream in streams
            for name, type_ in stream.types
        }
        self._resolver = resolver
        self._result_time = result_time
        self._folding = Folding()
        self._replaced: list[tuple[tuple[str, ...], bool, str]] = []
        """(tokens of a group, whether it is one operand, its name)"""
        self._columns_by_text: dict[tuple[str, str], Computed] = {}

    def plan(self, items: Phrase, group_by: Phrase | None, having: Phrase | None) -> Folding:
        folding = self._folding
        if group_by is not None:
            for part in self._qualified(group_by).at_commas():
                folding.keys.append(self._group(part))
        folding.items = self._over_views(self._qualified(items))
        if having is not None:
            self._refuse_shadowed(items, having)
            folding.having = self._over_views(self._qualified(having))
        if not (folding.groups or folding.measures or folding.pane):
            raise NotFoldable("there is nothing to fold")
        return folding

    def _qualified(self, phrase: Phrase) -> Phrase:
        for token in phrase.tokens:
            if token.keyword == "OVER" and token.kind != "FIELD":
                raise NotFoldable("a window function looks at rows")
            if token.text == "->":
                raise NotFoldable("a lambda binds names")
        pairs = list(pairwise(phrase.tokens))
        if any(token.text == "(" and after.keyword in _SUBQUERIES for token, after in pairs):
            raise NotFoldable("a subquery has names of its own")
        if any(token.keyword in _NAMING and after.text == "(" for token, after in pairs):
            raise NotFoldable("a struct names fields by the text of its arguments")
        return qualify(parse(phrase.text), self._columns, self._fold)

    def _refuse_shadowed(self, items: Phrase, having: Phrase) -> None:
        """In HAVING a name of the select list comes before a column."""
        named = {self._fold(part.tokens[-1].name) for part in items.at_commas() if len(part.tokens) > 1}
        columns = {self._fold(name) for names in self._columns.values() for name in names}
        for n, token in enumerate(having.tokens):
            is_bare = token.kind != "FIELD" and having.slice(n + 1, n + 2).text != "."
            if is_bare and self._fold(token.name) in named & columns:
                raise NotFoldable(f"{token.text} in HAVING is a column and a name of the select list")

    def _side(self, *phrases: Phrase) -> str:
        """The one stream that phrases read; the first one if they read none."""
        read: dict[str, None] = {}
        for phrase in phrases:
            for problem in refuse(phrase):
                raise NotFoldable(problem.message)
            for n, token in enumerate(phrase.tokens):
                is_field = n > 0 and phrase.tokens[n - 1].text == "."
                if token.name.casefold() == self._result_time and not is_field:
                    raise NotFoldable(f"{phrase.text} reads the result time, which both streams make")
            if not is_total(phrase, self._types, self._resolver.is_ansi):
                raise NotFoldable(f"{phrase.text} may fail for a tuple that has no match")
            read |= dict.fromkeys(references(phrase, self._aliases))
        if len(read) > 1:
            raise NotFoldable(f"{' and '.join(phrase.text for phrase in phrases)} read both streams")
        return next(iter(read), self._aliases[0])

    # GROUP BY

    def _group(self, phrase: Phrase) -> tuple[str, str]:
        """The group over views: SQL and name."""
        first = phrase.tokens[0]
        if first.keyword in _SETS or first.kind == "NUMBER":
            raise NotFoldable(f"GROUP BY {phrase.text} is not a plain expression")
        if first.keyword == "WINDOW" and self._names_result_time(phrase):
            return self._window(phrase)
        if not references(phrase, self._aliases):
            raise NotFoldable(f"GROUP BY {phrase.text} reads no stream")
        alias = self._side(phrase)
        type_ = self._resolver.type_of(phrase.text, [alias])
        if type_ is None or not _is_ordinary(type_):
            raise NotFoldable(f"units do not group by {phrase.text} of type {type_}")
        name = f"{PREFIX}g{len(self._folding.groups)}"
        self._folding.groups.append(Computed(alias, phrase.text, name))
        self._replaced.append((self._words(phrase), _is_operand(phrase), name))
        return name, name

    def _names_result_time(self, phrase: Phrase) -> bool:
        return (
            self._result_time is not None
            and len(phrase.tokens) > 3
            and phrase.tokens[2].name.casefold() == self._result_time
        )

    def _window(self, phrase: Phrase) -> tuple[str, str]:
        """A window, tumbling or sliding, as panes of the greatest span that divides its length and slide."""
        arguments = phrase.slice(2, -1).at_commas() if phrase.tokens[-1].text == ")" else []
        spans = []
        for argument in arguments[1:]:
            token = argument.tokens[0] if argument else None
            if token is None or len(argument.tokens) > 1 or token.kind != "STRING":
                raise NotFoldable(f"units do not cut {phrase.text} into panes")
            spans.append(self._resolver.duration(token.text[1:-1], "a window"))
        if not 1 <= len(spans) <= 3 or len(arguments[0].tokens) > 1 or not all(spans[:2]):
            raise NotFoldable(f"units do not cut {phrase.text} into panes")
        if self._folding.pane is not None:
            raise NotFoldable("there are two windows")
        span = gcd(*spans[:2])
        self._folding.pane = Pane(span, spans[2] % span if len(spans) == 3 else 0)
        self._replaced.append((self._words(phrase), True, _WINDOW))
        # Named as Spark names it, so that window.start is found.
        return f"window({TIME}, {', '.join(argument.text for argument in arguments[1:])})", _WINDOW

    # SELECT, HAVING

    def _over_views(self, phrase: Phrase) -> str:
        """The text with merges and groups by their names."""
        text, base = phrase.text, phrase.tokens[0].start
        splices: list[tuple[int, int, str]] = []
        n = 0
        while n < len(phrase.tokens):
            end, written = self._aggregate(phrase, n) or self._grouped(phrase, n) or (0, "")
            if end:
                tokens = phrase.tokens
                splices.append((tokens[n].start - base, tokens[end - 1].end - base, written))
            n = end or n + 1
        for start, stop, written in reversed(splices):
            text = text[:start] + written + text[stop:]
        return text

    def _grouped(self, phrase: Phrase, n: int) -> tuple[int, str] | None:
        """A group that stands at token ``n``: the token behind it, and its name."""
        tokens = phrase.tokens
        before = tokens[n - 1].text if n else "("
        for words, is_operand, name in self._replaced:
            end = n + len(words)
            if self._words(phrase.slice(n, end)) != words or before == ".":
                continue
            after = tokens[end].keyword if end < len(tokens) else ")"
            if is_operand or (before in ("(", ",") and after in (")", ",", "AS")):
                return end, name
        return None

    def _aggregate(self, phrase: Phrase, n: int) -> tuple[int, str] | None:
        """An aggregate that begins at token ``n``: the token behind it, and the name of its merge."""
        tokens = phrase.tokens
        token = tokens[n]
        is_call = n + 1 < len(tokens) and tokens[n + 1].text == "("
        if token.keyword not in FUNCTIONS or token.kind == "FIELD" or not is_call:
            return None
        close = _closing(tokens, n + 1)
        argument, end = phrase.slice(n + 2, close), close + 1
        where: Phrase | None = None
        if end + 1 < len(tokens) and tokens[end].keyword == "FILTER" and tokens[end + 1].text == "(":
            shut = _closing(tokens, end + 1)
            where, end = phrase.slice(end + 3, shut), shut + 1
        is_sketch = token.keyword == _DISTINCT
        if (
            not argument
            or argument.tokens[0].keyword in ("DISTINCT", "ALL")
            or len(argument.at_commas()) > (2 if is_sketch else 1)
        ):
            raise NotFoldable(f"{phrase.slice(n, end).text} is not folded")
        merge = self._distinct(argument, where) if is_sketch else self._merge(token.keyword, argument, where)
        return end, self._folding.merges.setdefault(merge, f"{PREFIX}a{len(self._folding.merges)}")

    def _merge(self, function: str, argument: Phrase, where: Phrase | None) -> str:
        is_star = argument.text == "*"
        if is_star and where is None:
            return f"coalesce(sum({self._measure('count', None, None)}), 0)"
        alias, value, type_ = self._value(
            None if is_star else argument, where, is_counted=function == "COUNT"
        )
        if function == "COUNT":
            return f"coalesce(sum({self._measure('count', alias, value)}), 0)"
        if function in ("MIN", "MAX"):
            if not _is_ordinary(type_):
                raise NotFoldable(f"units do not compare values of type {type_}")
            return f"{function.lower()}({self._measure(function.lower(), alias, value)})"
        decimal = decimal_of(type_)
        if not (is_integral(type_) or is_floating(type_) or decimal):
            raise NotFoldable(f"units do not add up values of type {type_}")
        if function in _SPREADS:
            return self._spread(function, alias, value if type_ == "double" else f"CAST({value} AS DOUBLE)")
        if decimal and decimal[0] > _WIDEST_DECIMAL:
            raise NotFoldable(f"units do not add up values of type {type_}")
        total = f"sum({self._measure('sum', alias, value)})"
        typed = f"CAST({total} AS {self._resolver.type_of(f'sum({value})', [alias])})"
        if function == "SUM":
            return typed
        if decimal and decimal[0] > _WIDEST_MEAN:
            raise NotFoldable(f"a quotient of sums of {type_} has fewer digits than its avg")
        count = f"sum({self._measure('count', alias, f'CASE WHEN {value} IS NOT NULL THEN 1 END')})"
        if decimal is None:
            return f"(CAST({total} AS DOUBLE) / nullif({count}, 0))"
        mean = self._resolver.type_of(f"avg({value})", [alias])
        return f"CAST({typed} / nullif(CAST({count} AS DECIMAL(20,0)), 0) AS {mean})"

    def _value(
        self, argument: Phrase | None, where: Phrase | None, is_counted: bool = False
    ) -> tuple[str, str, str]:
        """Stream, SQL and type of what an aggregate reads; no argument stands for ``*``."""
        alias = self._side(*(part for part in (argument, where) if part is not None))
        value = "1" if argument is None else f"({argument.text})"
        if is_counted:
            value = f"CASE WHEN {value} IS NOT NULL THEN 1 END"
        if where is not None:
            value = f"CASE WHEN ({where.text}) THEN {value} END"
        type_ = self._resolver.type_of(value, [alias])
        if type_ is None:
            what = "*" if argument is None else argument.text
            raise NotFoldable(f"{what} is not a column of one stream")
        return alias, value, type_

    def _spread(self, function: str, alias: str, value: str) -> str:
        """Variance or deviation from the moments of views: v of them, of n values, mean and m2 each.

        M2 = sum m2 + sum n (mean - M)^2. The last sum, Spark not knowing weights, is made of covariances of
        views. With c(x) = sum (x - avg x)(mean - avg mean) = v covar_pop(x, mean), it is
        c(n mean) - avg(mean) c(n) - c(n)^2 / N, in which digits are lost as the mean exceeds the deviation.
        """
        n, mean, m2 = columns_of(self._measure("moments", alias, value), "moments")
        count = f"CAST(sum({n}) AS DOUBLE)"
        covaried = f"(count({mean}) * covar_pop({n}, {mean}))"
        between = (
            f"count({mean}) * covar_pop({n} * {mean}, {mean}) - avg({mean}) * {covaried}"
            f" - {covaried} * {covaried} / nullif({count}, 0)"
        )
        divisor, is_root = _SPREADS[function]
        below = divisor.format(n=count)
        spread = f"greatest(sum({m2}) + {between}, 0D) / ({below})"
        return f"CASE WHEN {below} > 0 THEN {f'sqrt({spread})' if is_root else spread} END"

    def _distinct(self, argument: Phrase, where: Phrase | None) -> str:
        """Sketches of hashes; Spark hashes equal values alike, NaN and -0.0 included."""
        counted, *errors = argument.at_commas()
        try:
            error = float(errors[0].text) if errors else _ERROR
        except ValueError:
            raise NotFoldable(
                f"the error of a sketch is {errors[0].text}, which is no plain number"
            ) from None
        registers = registers_for(error)
        if registers is None:
            raise NotFoldable(f"no sketch errs by as little as {error:g}")
        if not is_available():
            raise NotFoldable(f"units count distinct values with the package datasketches: {INSTALL}")
        alias, value, type_ = self._value(counted, where)
        if not _is_ordinary(type_):
            raise NotFoldable(f"units do not count distinct values of type {type_}")
        hashed = f"CASE WHEN {value} IS NOT NULL THEN xxhash64({value}) END"
        sketches = self._measure("distinct", alias, hashed, registers)
        return f"coalesce(hll_sketch_estimate(hll_union_agg({sketches})), 0)"

    def _words(self, phrase: Phrase) -> tuple[str, ...]:
        """Tokens as they are compared."""
        return tuple(
            token.text if token.kind in ("STRING", "RAW_STRING", "NUMBER") else self._fold(token.name)
            for token in phrase.tokens
        )

    def _measure(
        self, function: str, alias: str | None, text: str | None, registers: int | None = None
    ) -> str:
        """Name of the measure; asked twice, made once."""
        column = None
        if alias is not None and text is not None:
            name = f"{PREFIX}v{len(self._columns_by_text)}"
            column = self._columns_by_text.setdefault((alias, text), Computed(alias, text, name))
        for known in self._folding.measures:
            if (known.function, known.column, known.registers) == (function, column, registers):
                return known.name
        made = Measured(f"{PREFIX}m{len(self._folding.measures)}", function, column, registers)
        self._folding.measures.append(made)
        return made.name


def is_surely_grouped(items: Phrase, group_by: Phrase | None) -> bool:
    """Whether a select list is over groups, as far as names tell before Spark is asked."""
    calls = (
        token.keyword
        for token, after in pairwise(items.tokens)
        if after.text == "(" and token.kind != "FIELD"
    )
    return group_by is not None or any(name in FUNCTIONS for name in calls)


def _is_ordinary(type_: str) -> bool:
    """Whether values are compared, grouped and hashed as Spark does it."""
    return type_ in _GROUPED | _DATETIMES or decimal_of(type_) is not None


def _is_operand(phrase: Phrase) -> bool:
    """Whether the phrase is a column or a call, which stays one whatever stands beside it."""
    tokens = phrase.tokens
    if all(token.text == "." or token.kind in ("VAR", "IDENTIFIER", "FIELD") for token in tokens):
        return True
    is_named = tokens[0].kind == "IDENTIFIER" or (tokens[0].text[0].isalpha() and tokens[0].keyword != "NOT")
    is_call = is_named and len(tokens) > 2 and tokens[1].text == "("
    return is_call and _closing(tokens, 1) == len(tokens) - 1


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """Position of the bracket that closes the one at ``opening``."""
    depth = tokens[opening].depth
    return next(
        n for n in range(opening + 1, len(tokens)) if tokens[n].text == ")" and tokens[n].depth == depth
    )
