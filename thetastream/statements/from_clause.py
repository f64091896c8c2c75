"""Resolves the parts of a SELECT that depend on the columns of its sources.

    r JOIN s USING (k)        r JOIN s ON r.k = s.k, with one column k in the result
    ASOF JOIN ... USING       the last column t is compared as r.t >= s.t, and the result has r.t
    FOR SYSTEM_TIME AS OF     an as-of join by the event time of the source that has versions; of a table with
                              valid_from, a join with the row that is valid at the time

A name in a subquery, or in a ranking of LATERAL, is a column of its own source, and otherwise a column of the
outer one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

from thetastream.conditions import Phrase, make_error_at, split_comparisons, split_conjuncts, tokenize
from thetastream.conditions.names import qualify
from thetastream.conditions.statement import Select, Source, Subquery
from thetastream.core.errors import ThetastreamError
from thetastream.core.how import AsOf, Nearest
from thetastream.joins.ask.streams import find_time_column
from thetastream.joins.ask.validity import find_valid_from, write_valid_at
from thetastream.lowering.domains import quote
from thetastream.spark.changes import keep_row_columns
from thetastream.spark.session.configure import choose_name_key
from thetastream.spark.tables.declared import give_time


@dataclass(frozen=True)
class MergedColumns:
    """The columns that USING merges."""

    conditions: tuple[str, ...] = ()
    """The equalities of the columns."""
    name_key: Callable[[str], str] = str.casefold
    """The function that gives all spellings of one name the same value."""
    owners: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each merged column, by folded name: the alias whose column is taken, and the name of the column."""
    dropped: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each alias, the folded names of merged columns, which its part of a star leaves out."""

    def qualify(self, phrase: Phrase) -> str:
        """Write the owner before every merged column that has no alias."""
        if not self.owners:
            return phrase.text
        columns: dict[str, list[str]] = {}
        for alias, name in self.owners.values():
            columns.setdefault(alias, []).append(name)
        return qualify(tokenize(phrase.text), columns, self.name_key).text

    def write_star(self, frames: Mapping[str, DataFrame]) -> str:
        """Write the columns that a star stands for: merged columns first, and then those of each alias."""
        parts = [f"{quote(alias)}.{quote(name)}" for alias, name in self.owners.values()]
        for alias, frame in frames.items():
            dropped = self.dropped.get(alias)
            if dropped is None:
                parts.append(f"{quote(alias)}.*")
            else:
                names = keep_row_columns(frame.schema).names
                kept = [name for name in names if self.name_key(name) not in dropped]
                parts += [f"{quote(alias)}.{quote(name)}" for name in kept]
        return ", ".join(parts)


def merge_columns(
    select: Select, frames: Mapping[str, DataFrame], problems: list[ThetastreamError]
) -> MergedColumns:
    """Resolve every USING of a SELECT.

    A column of USING must be in the stream behind JOIN, and in exactly one of the streams before it. Columns
    that an earlier USING has merged count as one.
    """
    name_key = choose_name_key(next(iter(frames.values())).sparkSession)
    columns = {alias: {name_key(name): name for name in frame.columns} for alias, frame in frames.items()}
    conditions: list[str] = []
    owners: dict[str, tuple[str, str]] = {}
    dropped: dict[str, frozenset[str]] = {}
    before: list[str] = []
    for source in select.sources:
        for token in source.using:
            name = name_key(token.name)
            merged = {alias for alias in before if name in dropped.get(alias, ())}
            having = [alias for alias in before if name in columns[alias] and alias not in merged]
            if merged:
                having.append(owners[name][0])
            if name not in columns[source.alias] or not having:
                where = source.alias if having else " and ".join(before)
                there = ", ".join(columns[source.alias].values() if having else columns[before[-1]].values())
                what = f"USING names {token.name!r}, which is no column of {where}; there are {there}"
                problems.append(make_error_at(select.text, token.start, what, "UNKNOWN_COLUMN"))
                continue
            if len(having) > 1:
                what = f"column {token.name!r} is in the streams {', '.join(having)}; write JOIN ... ON"
                problems.append(make_error_at(select.text, token.start, what, "AMBIGUOUS_COLUMN"))
                continue
            owner, mine = having[0], columns[source.alias][name]
            theirs = columns[owner][name]
            operator = ">=" if source.ends_with_time and token is source.using[-1] else "="
            conditions.append(
                f"{quote(owner)}.{quote(theirs)} {operator} {quote(source.alias)}.{quote(mine)}"
            )
            owners.setdefault(name, (owner, theirs))
            for alias in (owner, source.alias):
                dropped[alias] = dropped.get(alias, frozenset()) | {name}
        before.append(source.alias)
    return MergedColumns(tuple(conditions), name_key, owners, dropped)


def resolve_versions(
    select: Select, frames: Mapping[str, DataFrame], event_time: Any
) -> tuple[Select, dict[str, DataFrame]]:
    """Write every FOR SYSTEM_TIME AS OF as a condition of its join.

    Returns the inputs too, because a table must know that the condition names a time.
    """
    sources = tuple(_resolve(select, source, frames, event_time) for source in select.sources)
    timed = {
        source.alias
        for source in select.sources
        if source.version is not None and find_valid_from(frames[source.alias]) is not None
    }
    given = {alias: give_time(frame) if alias in timed else frame for alias, frame in frames.items()}
    new = [
        mine.match
        for mine, given in zip(sources, select.sources, strict=True)
        if mine.match is not None and given.match is None
    ]
    if new:
        select = replace(select, sources=sources, conditions=(*select.conditions, *new))
    return select, given


def _resolve(select: Select, source: Source, frames: Mapping[str, DataFrame], event_time: Any) -> Source:
    if source.version is None or not isinstance(source.how, AsOf):
        return source
    frame, alias = frames[source.alias], source.alias
    asked = event_time.get(alias) if isinstance(event_time, Mapping) else event_time
    column = find_time_column(frame, asked)
    start = source.version.tokens[0].start
    began = find_valid_from(frame)
    if began is not None:
        valid = " AND ".join(write_valid_at(alias, began, source.version.text))
        kind = "left" if source.how.keep_unmatched else "inner"
        return replace(source, how=kind, match=tokenize(valid), version=None)
    if any(other.isStreaming for other in frames.values()) and not frame.isStreaming:
        what = f"{alias!r} is a table, and nothing says from when on its rows are valid; give it as "
        what += f"th.Table(..., key=, valid_from=), or write JOIN ... AS {alias} ON ... without the time"
        raise make_error_at(select.text, start, what, "VALID_FROM")
    if column is None:
        raise make_error_at(
            select.text,
            start,
            f"FOR SYSTEM_TIME AS OF needs the event time of {alias!r}, from which on a version holds; call "
            f'.withWatermark("column", "delay") on it; of a batch, give event_time={{"{alias}": "column"}}',
            "NO_WATERMARK",
        )
    time, since = source.version.text, f"{quote(alias)}.{quote(column)}"
    written = f"{time} >= {alias}.{column}"
    how = replace(source.how, by=f"({time}) - ({since})", written=written)
    return replace(source, how=how, match=tokenize(f"({time}) >= {since}"), version=None)


def write_correlated(
    subquery: Subquery,
    outer: str,
    inner: str,
    frames: Mapping[str, DataFrame],
    name_key: Callable[[str], str],
) -> list[str]:
    """Write the conjuncts of the join of the aliases ``outer`` and ``inner``."""
    seen = _list_seen(outer, inner, frames, name_key)

    def write(phrase: Phrase, columns: Mapping[str, list[str]]) -> str:
        return qualify(tokenize(phrase.text), columns, name_key).text

    written = [write(phrase, seen) for phrase in subquery.where]
    for value, column in zip(subquery.values, subquery.columns, strict=True):
        v = write(value, {outer: frames[outer].columns, inner: []})
        y = write(column, seen)
        is_known = _is_known(value, outer, frames, subquery.outer_where, name_key) and _is_known(
            column, inner, frames, (*subquery.where, *subquery.inner_where), name_key
        )
        is_exact = is_known or not subquery.is_negated
        written.append(f"({v}) = ({y})" if is_exact else f"(({v}) = ({y})) IS NOT FALSE")
    return written


def resolve_rankings(
    select: Select, frames: Mapping[str, DataFrame], name_key: Callable[[str], str]
) -> Select:
    """Write the alias before each column in the rankings of LATERAL."""
    outer = select.sources[0].alias

    def resolve(source: Source) -> Source:
        if source.subquery is None or not isinstance(source.how, Nearest):
            return source
        by = qualify(tokenize(source.how.by), _list_seen(outer, source.alias, frames, name_key), name_key)
        return replace(source, how=replace(source.how, by=by.text))

    return replace(select, sources=tuple(map(resolve, select.sources)))


def _list_seen(
    outer: str, inner: str, frames: Mapping[str, DataFrame], name_key: Callable[[str], str]
) -> dict[str, list[str]]:
    """List the columns that names in a subquery may stand for."""
    mine = frames[inner].columns
    own = {name_key(name) for name in mine}
    return {outer: [name for name in frames[outer].columns if name_key(name) not in own], inner: mine}


def _is_known(
    phrase: Phrase,
    alias: str,
    frames: Mapping[str, DataFrame],
    conditions: Iterable[Phrase],
    name_key: Callable[[str], str],
) -> bool:
    """Whether a value of a stream cannot be NULL: by the schema, or because a conjunct is not TRUE then."""
    name = _name(phrase, alias, name_key)
    fields = frames[alias].schema.fields
    if any(name_key(field.name) == name and not field.nullable for field in fields):
        return True
    for condition in conditions:
        for conjunct in split_conjuncts(condition):
            conjunct = conjunct.bare()
            operands = [conjunct.slice(0, -3)]
            if [token.keyword for token in conjunct.tokens[-3:]] != ["IS", "NOT", "NULL"]:
                operands = [side for c in split_comparisons(conjunct) for side in (c.f, c.g)]
            if any(operand and _name(operand, alias, name_key) == name for operand in operands):
                return True
    return False


def _name(phrase: Phrase, alias: str, name_key: Callable[[str], str]) -> str:
    """Write an expression in a form in which equal expressions of one stream are equal texts."""
    tokens = phrase.bare().tokens
    if len(tokens) > 2 and tokens[0].name.casefold() == alias.casefold() and tokens[1].text == ".":
        tokens = tokens[2:]
    return " ".join(name_key(token.name) for token in tokens)
