"""``th.insert`` runs ``INSERT INTO sink SELECT ...``: it writes the rows of a statement into a sink.

A sink is one that the caller names, files (parquet.`folder`), a store (store.`address`), or a table of the
session.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.conditions import make_error_at, tokenize
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import Insert, Select
from thetastream.core.arguments import describe_given, read_path, refuse_non_text
from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.spans import read_trigger
from thetastream.families.options import StatementOptions, takes
from thetastream.families.views.planner import is_surely_grouped
from thetastream.models.base import Model, ModelName
from thetastream.spark.arguments import refuse_other_sessions
from thetastream.spark.changes import keep_groups
from thetastream.spark.session.configure import choose_name_key
from thetastream.statements.sink_store import STORE, SinkStore, read_sink_store
from thetastream.statements.sql import run_script
from thetastream.stores.registry import read_store

if TYPE_CHECKING:
    from thetastream.joins.ask.streams import Input

FILE_SINKS = ("parquet", "csv", "json", "orc", "delta")
_READ_BY_NAME = ("parquet", "json", "orc", "delta")
"""Formats of files whose readers find columns by name."""
OutputMode = Literal["append", "update", "complete"]
MODES: tuple[str, ...] = get_args(OutputMode)


class _Sink(NamedTuple):
    format: str
    options: dict[str, Any]
    kept: SinkStore | None = None
    """The store, if the sink is one. It has no format."""


@takes(StatementOptions)
def insert(
    spark: SparkSession,
    text: str,
    streams: "Mapping[str, Input] | None" = None,
    sinks: Mapping[str, Mapping[str, object]] | None = None,
    *,
    checkpoint: str | Path | None = None,
    mode: OutputMode = "append",
    trigger: str | None = None,
    name: str | None = None,
    model: Model | ModelName | None = None,
    **options: Unpack[StatementOptions],
) -> StreamingQuery | None:
    """Run ``INSERT INTO sink SELECT ...``: start a query over streams, or write the rows of batch inputs.

    Parameters
    ----------
    spark : SparkSession
    text : str
        ``INSERT INTO sink [(columns)] SELECT ...``, with CREATE VIEW statements before it if needed. The sink
        is a name of ``sinks``, a folder of files such as ``parquet.`out/pairs```, a store such as
        ``store.`postgresql:///results?table=pairs```, or a table of the session.
        Columns go into a table by position, as in Spark.
    streams : mapping of name to DataFrame, optional
        As in ``thetastream.sql``.
    sinks : mapping of name to options, optional
        Sinks that the statement may name: ``{"pairs": {"format": "kafka", "topic": "pairs", ...}}``.
        ``format`` names a sink of Spark; the others are its options. Or results are kept as by
        ``thetastream.write``, in a store: ``{"pairs": {"store": "delta", "path": "out/pairs"}}``,
        with the parameters of its kind, or a store itself, and ``key``, ``time``, ``snapshots``,
        ``beside_others``, ``keep`` and ``upkeep``.
    checkpoint : str, optional
        The folder of the query's checkpoint. Streams need it.
    mode : str
        The output mode of a streaming query: ``append``, ``update`` or ``complete``.
    trigger : str, optional
        The interval between two epochs, as in "10 seconds". ``"available now"``, or ``"availableNow"`` as
        in Spark, ends the query when all available input has been read. Without a trigger, epochs follow one
        another without a pause.
    name : str, optional
        The name of the query in Spark.
    model : Model or "auto", optional
        As in ``thetastream.sql``.
    **options
        As in ``thetastream.sql``.

    Returns
    -------
    StreamingQuery or None
        The started query, or None for batch inputs, whose rows are written when the call returns.

    Raises
    ------
    QueryError
        UNKNOWN_SINK, NOT_STREAMING, NO_CHECKPOINT, SINK_MODE, COLUMN_COUNT, DUPLICATE_COLUMN, BAD_VALUE, or
        an error of ``thetastream.sql``.

    Examples
    --------
    >>> import thetastream as th
    >>> query = th.insert(
    ...     spark,
    ...     "INSERT INTO parquet.`out/pairs` SELECT r.id, s.price FROM r, s WHERE r.x > s.x WITHIN 1 minute",
    ...     streams={"r": trades, "s": quotes},
    ...     checkpoint="out/checkpoint",
    ... )  # doctest: +SKIP
    """
    refuse_other_sessions("th.insert", spark)
    statements = parse_script(text)
    last, head = statements[-1], statements[-1].head
    if not isinstance(head, Insert) or last.is_explain:
        raise QueryError("INSERT", "th.insert runs INSERT INTO sink SELECT ...; th.sql runs other statements")
    if mode not in MODES:
        raise QueryError("BAD_VALUE", f"mode ({mode!r}) must be one of {', '.join(MODES)}")
    if sinks is not None and not _is_table_of_tables(sinks):
        what = 'sinks must map names to options, as in {"pairs": {"format": "kafka", "topic": "pairs"}}'
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(sinks)}")
    if name is not None:
        refuse_non_text(name, "name", 'name="pairs"')
    if checkpoint is not None:
        checkpoint = read_path(checkpoint, "checkpoint")
    pace = read_trigger(trigger)
    sink = _find_sink(spark, text, head, sinks or {})
    if sink is not None and sink.kept is not None:
        raise_problems(find_store_mode_problems(last.select, mode))
    rows = run_script(spark, statements, streams, model, options)
    rows = rows if mode == "update" else keep_groups(rows)
    if sink is None:
        rows = _name_by_position(spark, text, head, rows)
    elif sink.kept is None:
        refuse_equal_names(rows, sink.format)
    kept = None if sink is None else sink.kept
    if not rows.isStreaming and kept is None:
        if sink is None:
            rows.write.insertInto(head.name)
        else:
            rows.write.format(sink.format).options(**sink.options).mode("append").save()
        return None
    if not rows.isStreaming:
        what = "a store keeps the results of streams, and the rows of this statement are a batch"
        raise QueryError("NOT_STREAMING", f"{what}; write INSERT INTO parquet.`folder`")
    raise_problems(find_mode_problems(last.select, mode))
    if checkpoint is None:
        what = "a query over streams needs a checkpoint, from which it continues after a restart"
        raise QueryError("NO_CHECKPOINT", f"{what}; pass checkpoint=folder")
    if kept is not None:
        return kept.start(rows, checkpoint, trigger, name)
    writer = rows.writeStream.outputMode(mode).option("checkpointLocation", checkpoint).trigger(**pace)
    if name is not None:
        writer = writer.queryName(name)
    if sink is None:
        return writer.toTable(head.name)
    return writer.format(sink.format).options(**sink.options).start()


def _is_table_of_tables(sinks: object) -> bool:
    return isinstance(sinks, Mapping) and all(isinstance(one, Mapping) for one in sinks.values())


def find_mode_problems(select: Select, mode: str) -> list[QueryError]:
    """List an error if groups that still change would be appended. Names decide this, and not Spark."""
    keys = select.group_by
    if mode != "append" or not is_surely_grouped(select.items, keys):
        return []
    if keys is not None and any(token.keyword == "WINDOW" for token in keys):
        return []
    by = "" if keys is None else f", not by {keys.text!r}"
    what = 'groups that still change cannot be appended; use the output mode "update" or "complete", or group'
    return [QueryError("SINK_MODE", f"{what} by window(result_time, ...){by}")]


def find_store_mode_problems(select: Select, mode: str) -> list[QueryError]:
    """List an error if rows would not be appended to a store."""
    if mode != "append":
        return [QueryError("SINK_MODE", f'a store keeps every row, so its mode is "append", not {mode!r}')]
    return find_mode_problems(select, mode)


def refuse_equal_names(rows: DataFrame, format_: str) -> None:
    """Refuse rows with two columns of one name, if files keep them that are read by name.

    Spark writes such files for a stream, and then it cannot read them.

    Raises
    ------
    QueryError
        DUPLICATE_COLUMN.
    """
    if format_ not in _READ_BY_NAME:
        return
    names = [*map(choose_name_key(rows.sparkSession), rows.columns)]
    equal = [column for column, name in zip(rows.columns, names, strict=True) if names.count(name) > 1]
    if equal:
        what = f"{format_} files must have columns of different names, and these are one name"
        hint = "name them with AS, as in a.id AS a_id"
        raise QueryError("DUPLICATE_COLUMN", f"{what}: {', '.join(sorted(equal))}; {hint}")


def split_place(name: str) -> tuple[str, str] | None:
    """Split the name of a folder of files, or of a store; None if it is another name.

    >>> split_place("parquet.`out/pairs`"), split_place("STORE.`delta:out`"), split_place("a.b")
    (('parquet', 'out/pairs'), ('store', 'delta:out'), None)
    """
    names = [token.name for token in tokenize(name) if token.text != "."]
    if len(names) != 2 or names[0].lower() not in (*FILE_SINKS, STORE):
        return None
    return names[0].lower(), names[1]


def _find_sink(
    spark: SparkSession, text: str, head: Insert, sinks: Mapping[str, Mapping[str, object]]
) -> _Sink | None:
    """Find the sink that INSERT INTO names; None for a table of the session."""
    names = [token.name for token in tokenize(head.name) if token.text != "."]
    for name, options in sinks.items():
        if [name.casefold()] == [part.casefold() for part in names]:
            if STORE in options:
                return _Sink("", {}, read_sink_store(options, f"sink {name!r}"))
            if not isinstance(options.get("format"), str):
                what = f"sink {name!r} must have a format or a store, as in {{'format': 'parquet', ...}}"
                raise QueryError("BAD_VALUE", f"{what}, not {options!r}")
            return _Sink(str(options["format"]), {k: v for k, v in options.items() if k != "format"})
    kind, place = split_place(head.name) or ("", "")
    if kind == STORE:
        return _Sink("", {}, SinkStore(read_store(place)))
    if kind:
        return _Sink(kind, {"path": place})
    if not spark.catalog.tableExists(head.name):
        given = f"none of the sinks ({', '.join(sinks)}), " if sinks else ""
        what = f"{head.name!r} is {given}no table of the session, and no folder or store"
        what += ", as parquet.`path` and store.`path` are"
        raise make_error_at(text, head.start, what, "UNKNOWN_SINK")
    return None


def _name_by_position(spark: SparkSession, text: str, head: Insert, rows: DataFrame) -> DataFrame:
    """Give rows the names of a table's columns, by position, unless the statement names columns."""
    columns = spark.table(head.name).columns
    if head.columns:
        known = {name.casefold(): name for name in columns}
        given = {known.get(name.casefold(), name): name for name in head.columns}
        if set(given) != set(columns):
            what = f"the columns of {head.name} are {', '.join(columns)}; INSERT INTO must name all of them"
            raise make_error_at(text, head.start, what, "COLUMN_COUNT")
        return rows.select(*(rows[given[name]].alias(name) for name in columns))
    if len(columns) != len(rows.columns):
        what = f"{head.name} has {len(columns)} columns, but the SELECT has {len(rows.columns)}"
        raise make_error_at(text, head.start, what, "COLUMN_COUNT")
    return rows.toDF(*columns)
