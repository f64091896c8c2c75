"""Evaluates the select list over the results of a join: names, stars, DISTINCT, groups."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from thetastream.conditions import Phrase, make_error_at, tokenize
from thetastream.conditions.clauses import SelectClauses
from thetastream.conditions.names import is_star
from thetastream.core.columns import CHANGE_TYPE, MARK
from thetastream.core.errors import QueryError, raise_problems
from thetastream.families.pairs.flow import ARRIVAL, ARRIVAL_TYPE
from thetastream.families.windows import is_counted
from thetastream.joins.ask.catalyst import escape_braces
from thetastream.joins.ask.refusals import unlogged
from thetastream.joins.ask.streams import LATE_RESULTS
from thetastream.joins.ask.varying import refuse_varying
from thetastream.joins.joined import Joined
from thetastream.lowering.domains import quote
from thetastream.lowering.query import RESULT_TIME
from thetastream.spark.changes import is_changes, mark_changes
from thetastream.spark.varying_columns import refuse_varying_columns
from thetastream.statements.errors import find_list_problems, sort_problems
from thetastream.statements.join_select import JoinSelect

DISTINCT_TIME = "__result_time"


class Selected(NamedTuple):
    """The rows of a select list."""

    rows: DataFrame
    is_grouped: bool
    """Whether rows are groups of results, and not single results."""
    items: tuple[str, ...] | None
    """The items that are selected, if the rows are those of the join; None if some are dropped or changed."""


def find_changes_problem(name: str, clauses: SelectClauses) -> QueryError | None:
    """Return an error if a SELECT over rows of ``name`` that may be deleted has more than groups of them."""
    words = ["DISTINCT"] * clauses.is_distinct + ["HAVING"] * (clauses.having is not None)
    words += [clause.tokens[0].keyword for clause in clauses.tail]
    words += ["OVER"] * any(_is_over(clauses.items, n) for n in range(1, len(clauses.items.tokens)))
    return refuse_changes(name, f"{words[0]} counts a delete as a row") if words else None


def _is_over(items: Phrase, n: int) -> bool:
    """Whether a token begins the window of a window function."""
    return items.tokens[n].keyword == "OVER" and items.tokens[n - 1].text == ")"


def refuse_changes(name: str, why: str) -> QueryError:
    """Make the error of a SELECT over rows of ``name`` that may be deleted."""
    what = f"rows of {name} may be deleted, and {why}"
    return QueryError("CHANGES_AGGREGATE", f"{what}; write the rows into a store, and ask the store")


def add_change_type(items: str) -> str:
    """Add the type of the change to a select list, unless the list has it.

    >>> add_change_type("a.id, b.id")
    'a.id, b.id\\n, `_change_type`'
    """
    listed = (item.text.strip("`").casefold() for item in tokenize(items).split_at_commas())
    return items if CHANGE_TYPE in listed else f"{items}\n, {quote(CHANGE_TYPE)}"


def refuse_other_change_types(name: str, rows: DataFrame) -> None:
    """Raise CHANGES_COLUMN unless rows of ``name`` have one column of this name, the type of the change."""
    alike = [column for column in rows.columns if column.casefold() == CHANGE_TYPE]
    if alike != [CHANGE_TYPE] or not is_changes(rows.schema):
        what = f"rows of {name} may be deleted, and {CHANGE_TYPE!r} says which of them are"
        hint = "select this column itself, once, and give other columns other names"
        raise QueryError("CHANGES_COLUMN", f"{what}; {hint}")


def select_rows(spark: SparkSession, join_select: JoinSelect, join: Joined) -> Selected:
    """Evaluate the select list and its groups over the results of the join."""
    clauses = join_select.clauses
    rows = _add_names(join_select, join)
    items = write_out_stars(clauses.items, join_select.star)
    is_grouped = _is_grouped(spark, clauses, items, rows)
    if join.facts.has_deletes and not is_grouped:
        items = add_change_type(items)
    is_bounded = clauses.is_distinct and rows.isStreaming and clauses.group_by is None
    word = "SELECT DISTINCT" if clauses.is_distinct and not is_bounded else "SELECT"
    if is_bounded:
        if DISTINCT_TIME not in rows.columns or join_select.within is None or is_counted(join_select.within):
            what = "DISTINCT over streams needs WITHIN a time: otherwise it would keep every row forever"
            raise _refuse_list(clauses, what, "UNBOUNDED_DISTINCT")
        word = f"SELECT {DISTINCT_TIME},"
    try:
        with unlogged():
            result = spark.sql(write_query(word, clauses, [items, *_texts_behind(clauses)]), rows=rows)
            columns = result.columns
    except AnalysisException:
        raise_problems(sort_problems(find_select_problems(spark, join_select, join.facts.is_ordered)))
        raise
    if is_bounded:
        if len(set(columns)) < len(columns):
            what = f"DISTINCT needs columns of different names, they are {', '.join(columns[1:])}; use AS"
            raise _refuse_list(clauses, what, "DUPLICATE_COLUMN")
        result = result.dropDuplicatesWithinWatermark(columns[1:]).drop(DISTINCT_TIME)
    if join.facts.has_deletes:
        names = " and ".join(join_select.frames)
        refuse_varying(rows, clauses.phrases, f"rows of {names} may be deleted")
        refuse_varying_columns(result, names)
        if not is_grouped:
            refuse_other_change_types(names, result)
    is_whole = len(clauses.phrases) == 1 and not clauses.is_distinct
    listed = tuple(item.text for item in tokenize(items).split_at_commas()) if is_whole else None
    return Selected(result, is_grouped, listed)


def find_select_problems(spark: SparkSession, join_select: JoinSelect, is_ordered: bool) -> list[QueryError]:
    """List Catalyst's errors in the select list and its groups. This needs the streams and not the join.

    ``is_ordered`` says whether results have the column ``ARRIVAL``.
    """
    clauses = join_select.clauses
    # 1. An empty DataFrame with the columns that results have.
    shown = join_select.shown
    fields = [StructField(alias, frame.schema) for alias, frame in shown.items()]
    owners = _find_owners(join_select, {alias: frame.columns for alias, frame in shown.items()})
    rows = spark.createDataFrame([], StructType(fields)).select(
        "*", *_name_columns(owners, {RESULT_TIME, *[ARRIVAL] * is_ordered, *map(str.casefold, shown)})
    )
    if is_ordered:
        rows = rows.withColumn(ARRIVAL, F.lit(None).cast(ARRIVAL_TYPE))
    if RESULT_TIME not in map(str.casefold, shown):
        rows = rows.withColumn(RESULT_TIME, F.lit(None).cast("timestamp"))

    # 2. Catalyst's errors over it.
    def ask(texts: Sequence[str]) -> AnalysisException | None:
        try:
            with unlogged():
                _ = spark.sql(write_query("SELECT", clauses, texts), rows=rows).schema
        except AnalysisException as error:
            return error
        return None

    try:
        items = write_out_stars(clauses.items, join_select.star)
    except QueryError as problem:
        return [problem]
    texts = [items, *_texts_behind(clauses)]
    return list(find_list_problems(ask, clauses.phrases, texts))


def _texts_behind(clauses: SelectClauses) -> list[str]:
    """The texts of the clauses behind FROM, in the order of ``clauses.phrases``."""
    return [phrase.text for phrase in clauses.phrases[1:]]


def write_query(select: str, clauses: SelectClauses, texts: Sequence[str], source: str = "{rows}") -> str:
    """Write a query over ``source`` from the texts of a select list and of the clauses behind FROM."""
    optional = (("GROUP BY", clauses.group_by), ("HAVING", clauses.having))
    words = ["AND" if n else "WHERE" for n in range(len(clauses.where))]
    words += [word for word, clause in optional if clause]
    words += [""] * len(clauses.tail)
    written = "".join(f"\n{word} {escape_braces(text)}" for word, text in zip(words, texts[1:], strict=True))
    return f"{select} {escape_braces(texts[0])}\nFROM {source}{written}"


def _is_grouped(spark: SparkSession, clauses: SelectClauses, items: str, rows: DataFrame) -> bool:
    """Whether a select list makes groups.

    Without GROUP BY and HAVING, Spark decides this: it refuses a plain column beside an aggregate.
    """
    if clauses.group_by is not None or clauses.having is not None:
        return True
    try:
        with unlogged():
            _ = spark.sql(
                f"SELECT {quote(rows.columns[0])}, {escape_braces(items)}\nFROM {{rows}}", rows=rows
            ).schema
    except AnalysisException as error:
        return (error.getCondition() or "").startswith("MISSING_GROUP_BY")
    return False


def _refuse_list(clauses: SelectClauses, what: str, condition: str) -> QueryError:
    """Make an error that points at the select list."""
    return make_error_at(clauses.items.source, clauses.items.tokens[0].start, what, condition)


def _add_names(join_select: JoinSelect, join: Joined) -> DataFrame:
    """Add to results every column that only one stream has or that USING merges, and ``result_time``.

    ``result_time`` carries the mark of the watermark again if no result is older than the watermark at which
    it is found. Otherwise groups by time are kept for ever, because later results may change them.
    """
    pairs, facts = join.results(), join.facts
    pairs = mark_changes(pairs) if facts.has_deletes else pairs
    owners = _find_owners(
        join_select,
        {s.alias: [name for name, _ in s.types] for s in join.inputs if s.alias in join_select.shown},
    )
    taken = {name.casefold() for name in pairs.columns}
    columns = [F.col(quote(name)) for name in pairs.columns if name not in facts.hidden]
    if facts.result_time is not None:
        taken.add(RESULT_TIME)
    columns += _name_columns(owners, taken)
    if facts.result_time is not None:
        time = F.expr(facts.result_time)
        if join_select.clauses.is_distinct:
            longest_ms = -(-facts.longest_window_us // 1000)
            columns.append(time.alias(DISTINCT_TIME, metadata={MARK: longest_ms}))
        if RESULT_TIME not in map(str.casefold, join_select.shown):
            metadata = {MARK: 0} if facts.is_prompt else {LATE_RESULTS: 1}
            columns.append(time.alias(RESULT_TIME, metadata=metadata))
    return pairs.select(*columns)


def _find_owners(
    join_select: JoinSelect, columns: Mapping[str, Sequence[str]]
) -> dict[str, list[tuple[str, str]]]:
    """Find the streams that have each column: folded name -> (alias, name)."""
    name_key = join_select.name_key
    owners: dict[str, list[tuple[str, str]]] = {}
    for alias, names in columns.items():
        for name in names:
            owners.setdefault(name_key(name), []).append((alias, name))
    return owners | {name: [owner] for name, owner in join_select.merged.owners.items()}


def _name_columns(owners: Mapping[str, Sequence[tuple[str, str]]], taken: Collection[str]) -> list[Column]:
    """Select every column that has one owner, and whose name, in lower case, is not taken."""
    return [
        F.col(f"{quote(alias)}.{quote(name)}").alias(name)
        for (alias, name), *others in owners.values()
        if not others and name.casefold() not in taken
    ]


def write_out_stars(items: Phrase, star: str) -> str:
    """Write a select list with the columns of all streams, ``star``, in place of a bare ``*``."""
    text, base = items.text, items.tokens[0].start
    for n in reversed(range(len(items.tokens))):
        token = items.tokens[n]
        if token.kind != "STAR" or not is_star(items, n) or items.tokens[n - 1].text == ".":
            continue
        following = items.tokens[n + 1].keyword if n + 1 < len(items.tokens) else ""
        if n not in items.top or following == "EXCEPT":
            what = "a star stands alone, for all columns of all streams; or write alias.*"
            raise make_error_at(items.source, token.start, what, "UNSUPPORTED_SQL")
        text = text[: token.start - base] + star + text[token.end - base :]
    return text
