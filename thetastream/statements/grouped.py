"""Groups over views: units fold their matches into views, and Spark merges the views (BiStream 3.4.2).

    SELECT k, sum(v) FROM (SELECT a.k, a.x * b.y AS v FROM a, b WHERE ...) GROUP BY k
    SELECT a.k, sum((a.x * b.y)) FROM a, b WHERE ... GROUP BY a.k

A grouped SELECT over a subquery is written as a grouped SELECT over the join that is in the subquery. So the
units of the join can fold its results. Names of the subquery are replaced by its expressions. This is refused
if a name could then mean something else.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from thetastream.aggregates import NotFoldable
from thetastream.conditions import Phrase, tokenize
from thetastream.conditions.clauses import SelectClauses, find_name, split_name, write_out_groups
from thetastream.conditions.names import find_free_names, is_keyword_here, is_star
from thetastream.conditions.statement import Select
from thetastream.core.columns import MARK
from thetastream.core.errors import SessionError
from thetastream.engine.views import ViewDelays
from thetastream.families.base import FinalJoin
from thetastream.families.views.expressions import has_plain_calls
from thetastream.families.views.folding import PREFIX, VIEW_TIME, Computed, Folding
from thetastream.families.views.planner import is_operand, plan_folding
from thetastream.joins.ask.carriers import select_fields
from thetastream.joins.ask.catalyst import Catalyst, escape_braces
from thetastream.joins.ask.refusals import unlogged
from thetastream.joins.ask.shown import find_names_in
from thetastream.joins.ask.streams import StreamInput
from thetastream.joins.ask.window import read_every
from thetastream.joins.joined import Foldable, Joined, PlannedInput
from thetastream.lowering.domains import quote
from thetastream.lowering.query import RESULT_TIME, Stream
from thetastream.spark.changes import add_group_change
from thetastream.statements.join_select import JoinSelect
from thetastream.statements.select import write_out_stars

NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_PLAIN = f"{PREFIX}plain"
_HAVING = f"{PREFIX}having"


class MergedViews(NamedTuple):
    """The rows of a select list that is evaluated over merged views."""

    rows: DataFrame
    join: Joined
    """The plan of the join whose units make the views."""
    how: str
    """A description of the evaluation, for ``explain``."""


def fold_groups(
    spark: SparkSession, join_select: JoinSelect, join: Joined, over_pairs: DataFrame
) -> MergedViews:
    """Evaluate a select list over views; columns and types are those of ``over_pairs``.

    Raises
    ------
    NotFoldable
        If the answer needs the matches themselves.
    """
    clauses = join_select.clauses
    final = join.facts.final
    if isinstance(final, str):
        raise NotFoldable(final)
    if clauses.is_distinct:
        raise NotFoldable("DISTINCT compares rows")
    if clauses.tail:
        raise NotFoldable(f"{clauses.tail[0].tokens[0].keyword} needs all rows")
    # 1. Plan what units fold.
    foldable = cast(Foldable, join)  # only such joins have a final join
    inputs = dict(zip((stream.alias for stream in final.streams), foldable.final_inputs, strict=True))
    catalyst = Catalyst(spark, {alias: given.schema for alias, given in inputs.items()})
    has_time = all(stream.event_time for stream in join.inputs)
    merged = join_select.merged
    items = tokenize(merged.qualify(tokenize(write_out_stars(clauses.items, join_select.star))))
    group_by, having = clauses.group_by, clauses.having
    if group_by is not None:
        columns = {join_select.name_key(name) for stream in join.inputs for name, _ in stream.types}
        group_by = tokenize(merged.qualify(write_out_groups(items, group_by, columns, join_select.name_key)))
    folding = plan_folding(
        items,
        group_by,
        None if having is None else tokenize(merged.qualify(having)),
        join.inputs,
        final,
        catalyst,
        RESULT_TIME if has_time else None,
    )
    times = {stream.type_of(stream.event_time) for stream in final.streams if stream.event_time}
    if folding.pane is not None and len(times) > 1:
        raise NotFoldable("event times have two types")
    if join_select.every is not None:
        _plan_waiting(join_select, join.inputs, final, folding, catalyst)
    if folding.lazy is not None and spark.conf.get(NO_DATA_BATCHES, "true") != "true":
        raise SessionError("NO_DATA_BATCHES", f"{NO_DATA_BATCHES} must be true, or views would wait forever")
    # 2. Plan the join whose units fold it, over inputs with the computed columns.
    try:
        with unlogged():
            streams = {
                stream.alias: StreamInput(_compute(inputs[stream.alias], stream, final, folding))
                for stream in final.streams
            }
    except AnalysisException as error:
        raise NotFoldable(f"units cannot compute it: {error.getCondition()}") from None
    join = foldable.fold(folding, streams)
    views = join.results()
    if folding.pane is not None:
        views = views.withColumn(VIEW_TIME, F.col(VIEW_TIME).alias(VIEW_TIME, metadata={MARK: 0}))
    # 3. Evaluate the select list over merged views.
    try:
        with unlogged():
            rows = _select_merged(spark, folding, views)
            types = [field.dataType for field in rows.schema][: len(over_pairs.columns)]
    except AnalysisException as error:
        names = (error.getMessageParameters() or {}).get("objectName", "")
        raise NotFoldable(f"{names or error.getCondition()} is no group and no measure") from None
    if types != [field.dataType for field in over_pairs.schema]:
        raise NotFoldable("merged views have other types")
    how = f"units fold {folding.describe()}; Spark merges their views"
    if folding.lazy is not None:
        how += f", which wait while the watermark moves by {join_select.every}"
    return MergedViews(rows.toDF(*over_pairs.columns, *rows.columns[len(types) :]), join, how)


def _select_merged(spark: SparkSession, folding: Folding, views: DataFrame) -> DataFrame:
    """Evaluate the select list and HAVING over the merged views.

    If matches may be deleted, a group leaves the answer with its last match. Its aggregates are NULL then,
    and over streams, the last column says that it is deleted. A single group without keys is never deleted.
    """
    keys = [f"{sql} AS {quote(name)}" for sql, name in folding.keys]
    merges, plain = dict(folding.merges), f"1 AS {_PLAIN}"
    loses_groups = folding.rows is not None and bool(keys)
    if loses_groups:
        holds = f"sum({quote(str(folding.rows))}) > 0"
        merges = {f"CASE WHEN {holds} THEN {sql} END": name for sql, name in merges.items()}
        plain = f"{holds} AS {_PLAIN}"
    named = [f"{sql} AS {quote(name)}" for sql, name in merges.items()]
    # With this plain column, Spark refuses a select list that contains an aggregate.
    merged = f"SELECT {', '.join([*keys, *named, plain])}\nFROM {{views}}"
    if keys:
        merged += f"\nGROUP BY {', '.join(sql for sql, _ in folding.keys)}"
    # HAVING may use names of the select list.
    having = escape_braces(folding.having) if folding.having else "true"
    query = f"SELECT {_PLAIN}, {escape_braces(folding.items)}, ({having}) AS {_HAVING}\nFROM {{merged}}"
    rows = spark.sql(query, merged=spark.sql(merged, views=views)).where(F.col(_HAVING))
    if loses_groups and views.isStreaming:
        rows = add_group_change(rows, _PLAIN)
    elif loses_groups:
        rows = rows.where(F.col(_PLAIN))
    return rows.drop(_PLAIN, _HAVING)


def _plan_waiting(
    join_select: JoinSelect, given: Sequence[Stream], final: FinalJoin, folding: Folding, catalyst: Catalyst
) -> None:
    """Plan how long views wait, and how units see that another epoch follows. Views of batch DataFrames do
    not wait."""
    assert join_select.every is not None
    has_pane = folding.pane is not None
    every_ms = read_every(join_select.every, given, join_select.frames, has_pane, catalyst)
    if every_ms is None:
        return
    left, right = final.streams
    delays = ((stream.watermark_delay_us or 0) // 1000 for stream in final.streams)
    folding.lazy = ViewDelays(every_ms, (next(delays), next(delays)))
    folding.bounds = (_compute_bound(left), _compute_bound(right))


def _compute_bound(stream: Stream) -> Computed | None:
    """Compute how far the streams behind an input of the last join move the watermark. It is None if the
    input is a stream of the user, whose event times say so."""
    if stream.watermark_bound is None:
        return None
    text = f"{quote(stream.alias)}.{quote(stream.watermark_bound)}"
    return Computed(stream.alias, text, f"{PREFIX}bound_{stream.alias}")


def _compute(given: PlannedInput, stream: Stream, join: FinalJoin, folding: Folding) -> DataFrame:
    """Select the columns of an input that the condition reads, and compute those that units fold."""
    alias = stream.alias
    if any(name.startswith(PREFIX) for name, _ in stream.types):
        raise NotFoldable(f"{alias} has columns that start with {PREFIX}")
    names = find_names_in(join.on, alias)
    if names is None:
        raise NotFoldable(f"the condition reads all columns of {alias}")
    frame = given.dataframe()
    names |= set() if stream.change_type is None else {stream.change_type}
    narrow = select_fields(frame.schema, names, frame.isStreaming).names
    # With any metadata, a copy of the event time loses the mark of the watermark.
    made = [
        F.expr(column.text).alias(column.name, metadata={"thetastream": "computed"})
        for column in folding.computed
        if column.alias == alias
    ]
    named = frame.alias(alias)
    return named.select(*(F.col(quote(name)) for name in narrow), *made)


def inline(select: Select, inner: JoinSelect) -> SelectClauses:
    """Write the clauses of a SELECT over the streams of its subquery.

    Parameters
    ----------
    select : Select
        A SELECT whose only source is a subquery.
    inner : JoinSelect
        The subquery: a join whose select list makes one row of each result.

    Raises
    ------
    NotFoldable
        If the clauses would not certainly have the same meaning.
    """
    outer, projected, name_key = select.clauses, inner.clauses, inner.name_key
    if any((select.conditions, outer.where, outer.tail, projected.where, projected.tail)):
        raise NotFoldable("a subquery and its SELECT both select rows")
    if outer.is_distinct or projected.is_distinct:
        raise NotFoldable("DISTINCT compares rows")
    expressions = _name_items(inner)
    named = {name_key(name) for name, _ in map(split_name, outer.items.split_at_commas()) if name is not None}
    if outer.having is not None and named & expressions.keys():
        raise NotFoldable("a name in HAVING is a column and a name of the select list")
    columns = [name for frame in inner.frames.values() for name in frame.columns]
    hidden = {name_key(name) for name in [*inner.frames, *columns]}

    def write(phrase: Phrase) -> Phrase:
        return _write(phrase, select.sources[0].alias, expressions, hidden - expressions.keys(), inner)

    return SelectClauses(
        write(outer.items),
        None if outer.group_by is None else write(outer.group_by),
        None if outer.having is None else write(outer.having),
    )


def _name_items(inner: JoinSelect) -> dict[str, str]:
    """Return the expression of each column of the subquery, by the folded name of the column."""
    expressions: dict[str, str] = {}
    for item in inner.clauses.items.split_at_commas():
        name, (_, expression) = find_name(item), split_name(item)
        if name is None or inner.name_key(name) in expressions:
            raise NotFoldable(f"{item.text} of the subquery has no name of its own")
        if not has_plain_calls(expression):
            raise NotFoldable(f"{item.text} of the subquery may make other rows")
        text = expression.text
        expressions[inner.name_key(name)] = text if is_operand(expression) else f"({text})"
    return expressions


def _write(
    phrase: Phrase, alias: str, expressions: Mapping[str, str], hidden: Collection[str], inner: JoinSelect
) -> Phrase:
    """Replace the names of the subquery, with or without its alias, by their expressions."""
    tokens, text, base = phrase.tokens, phrase.text, phrase.tokens[0].start
    if any(token.kind == "STAR" and is_star(phrase, n) for n, token in enumerate(tokens)):
        raise NotFoldable("a star stands for the columns of the subquery")
    splices = []
    for n, token in find_free_names(phrase):
        is_dotted = n + 2 < len(tokens) and tokens[n + 1].text == "."
        is_qualified = is_dotted and token.name.casefold() == alias.casefold()
        end = n + 2 if is_qualified else n
        name = inner.name_key(tokens[end].name)
        if not is_dotted and is_keyword_here(phrase, n):
            continue
        if name in expressions:
            splices.append((token.start - base, tokens[end].end - base, expressions[name]))
        elif name in hidden or token.name.casefold() == alias.casefold():
            raise NotFoldable(f"{token.text} would be another column without the subquery")
    for start, stop, written in reversed(splices):
        text = text[:start] + written + text[stop:]
    return tokenize(text)
