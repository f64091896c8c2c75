"""``th.changes`` reads rows that are inserted, updated and deleted.

change feed, signs  ->  each row is an insert or a delete already      (``thetastream.spark.changes``)
Debezium            ->  each record has the rows before and after      (``thetastream.spark.debezium``)
upserts             ->  units find the row that each row replaces      (``thetastream.engine.latest``)
versions            ->  rows stay as they are; an as-of join chooses   (``thetastream.spark.row_versions``)
"""

from collections.abc import Sequence
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BooleanType,
    DataType,
    MapType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from thetastream.conditions import tokenize
from thetastream.core.columns import CHANGE_TYPE, VERSION
from thetastream.core.condition import ChangeRules, VersionRule
from thetastream.core.errors import QueryError, raise_problems
from thetastream.families.upserts import GONE_SOURCE, ORDER_SOURCE, Upserts
from thetastream.joins.ask.refusals import summarize, unlogged
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.joins.ask.streams import list_tables, read_streams
from thetastream.joins.ask.varying import refuse_varying
from thetastream.lowering.domains import quote
from thetastream.runtime.flow import RunContext
from thetastream.spark.arguments import refuse_other_frames
from thetastream.spark.changes import list_keys, mark_changes, read_changes, set_rules
from thetastream.spark.dataflow.build import build
from thetastream.spark.debezium import decode_changes, decode_upserts, read_row
from thetastream.spark.row_versions import mark_versions
from thetastream.spark.session.configure import count_partitions

UPSERT, DEBEZIUM, ROW_VERSIONS = "upsert", "debezium", "versions"
_ARGUMENTS = {
    None: ("sign",),
    UPSERT: ("key", "sequence", "deleted"),
    DEBEZIUM: ("key", "sequence", "row", "value"),
    ROW_VERSIONS: ("key", "sequence", "deleted"),
}
"""The arguments of each format."""
_DEBEZIUM_VALUE = "value"
"""The column with the records of Debezium: Spark's Kafka connector names it so."""
_ALIAS = "upserts"
"""The alias of the stream in messages and counters."""


def changes(
    df: DataFrame,
    *,
    sign: str | None = None,
    format: Literal["upsert", "debezium", "versions"] | None = None,
    key: str | Sequence[str] | None = None,
    sequence: str | None = None,
    deleted: str | None = None,
    row: str | None = None,
    value: str | None = None,
    late: Literal["drop", "fail"] = "drop",
    strict: bool = False,
) -> DataFrame:
    """Read rows that are inserted, updated and deleted, so that a join follows the changes.

    A delete names the whole old row. An update is a delete of the old row and an insert of the new one.
    Results are changes too: if a row is deleted, its results are deleted. After each epoch, the inserts and
    deletes of all results so far add up to the join of the rows that are there.

    A delete is late if the event time of its row is at or before the watermark. So the delay of the watermark
    is the time for which a row may change. A late delete is dropped and counted (``late_deletes``), and the
    results of its row stay.

    Parameters
    ----------
    df : DataFrame
        A stream or batch DataFrame: Delta's change feed (``readChangeFeed``), Spark's ``changes()``, or any
        other one with a column of signs.
    sign : str, optional
        A column that is 1 for an inserted row and -1 for a deleted row. By default, the column
        ``_change_type`` says what happened to a row: ``insert``, ``delete``, ``update_preimage`` or
        ``update_postimage``.
    format : {"upsert", "debezium", "versions"}, optional
        ``"upsert"``: each row replaces the row of its key. Units keep the latest row of each key and find out
        what changes. Call ``withWatermark`` before, and a row is forgotten when the watermark has passed it;
        otherwise, the rows of all keys are kept. ``"debezium"``: each row has a record of Debezium as JSON,
        an envelope with or without its schema. Records without a value (tombstones) are left out.
        ``"versions"``: each row is the version of its key from its event time on. An as-of join
        (``th.Nearest``, ``FOR SYSTEM_TIME AS OF``) finds the version of the time of a tuple. Its result stays
        as it is when later versions come.
    key : str or sequence of str, optional
        For upserts and versions, the columns that identify a row. For Debezium, they make each record an
        upsert: units find the old row, so that records need not have it, and a record that comes twice is no
        change.
    sequence : str, optional
        For upserts and for Debezium with a key, a SQL expression by which the rows of a key are ordered, for
        example ``"offset"``. A row with a smaller value than the present row of its key is left out. By
        default, the last row that arrives counts. Rows of one key must then come from one partition of the
        source. For versions, it chooses among those of a key and a time: the one with the largest value
        counts, and any of them by default.
    deleted : str, optional
        For upserts and versions, a SQL condition that is true if the key has no row any more, as ``"value IS
        NULL"``. Such a version ends the validity of the one before it, and is no partner itself.
    row : str, optional
        For Debezium, the columns of the row, as ``"id INT, ts TIMESTAMP, price DOUBLE"``. Only these are
        read. A date or a time is read from a text; if Debezium writes it as a number, declare a number.
    value : str, optional
        For Debezium, the column with the records. By default, it is ``value``, as Spark's Kafka connector
        names it.
    late : {"drop", "fail"}
        Whether a late delete is dropped and counted, or ends the query of a join (LATE_DELETE).
    strict : bool
        Whether the delete of a row that was not inserted ends the query of a join (CHANGE_UNKNOWN_ROW). By
        default, it counts as a row that is there -1 times, until it is inserted. A unit compares the deletes
        of each epoch with all rows that it stores.

    Returns
    -------
    DataFrame
        The columns of the row, and last ``_change_type``, which is ``insert`` or ``delete``. The columns
        ``_commit_version`` and ``_commit_timestamp`` are dropped, and so is the column of signs. You may call
        ``withWatermark`` on it, filter rows, and select columns together with ``_change_type``. Computed
        columns must depend on the row alone, because the delete of a row must equal its insert. Versions are
        no changes: their last column is ``_version``, which results of joins do not have.

    Raises
    ------
    QueryError
        STREAMS if ``df`` is no DataFrame.
        CHANGES_COLUMN if there is no column that says what happened to a row, CHANGES_FORMAT if arguments do
        not fit together, UNKNOWN_COLUMN, or the error of Spark in an expression. NON_DETERMINISTIC or
        TIME_DEPENDENT if the value of an expression depends on more than the row. While the query runs, Spark
        raises CHANGES_VALUE if the column has another value, and BEFORE_IMAGE if a record of Debezium lacks
        the row that it changes.
    SessionError
        The Spark session lacks a setting that upserts over streams need.

    Examples
    --------
    >>> import thetastream as th
    >>> feed = spark.readStream.format("delta").option("readChangeFeed", "true")  # doctest: +SKIP
    >>> orders = th.changes(feed.table("orders")).withWatermark("ts", "2 hours")  # doctest: +SKIP
    >>> pairs = th.join(
    ...     {"o": orders, "c": clicks}, on="o.price > c.bid", within="10 minutes"
    ... )  # doctest: +SKIP
    >>> stock = kafka_rows.withWatermark("ts", "1 hour")  # doctest: +SKIP
    >>> stock = th.changes(stock, format="upsert", key="id", sequence="offset")  # doctest: +SKIP
    >>> users = th.changes(kafka, format="debezium", row="id INT, name STRING")  # doctest: +SKIP
    """
    refuse_other_frames("th.changes", df)
    given = {"key": key, "sequence": sequence, "deleted": deleted, "row": row, "value": value, "sign": sign}
    given = {name: one for name, one in given.items() if one is not None}
    if not isinstance(format, str | None) or format not in _ARGUMENTS:
        known = '"upsert", "debezium", "versions" or left out'
        raise QueryError("CHANGES_FORMAT", f"format must be {known}, not {format!r}")
    strange = ", ".join(name for name in given if name not in _ARGUMENTS[format])
    if strange:
        named = "a change feed" if format is None else f"format={format!r}"
        raise QueryError("CHANGES_FORMAT", f"{strange} does not belong to {named}; leave it out")
    if late not in ("drop", "fail"):
        raise QueryError("CHANGES_FORMAT", f'late must be "drop" or "fail", not {late!r}')
    keys = list_keys(key)
    if not keys and (format in (UPSERT, ROW_VERSIONS) or key is not None):
        raise QueryError("CHANGES_FORMAT", f"key must name the columns that identify a row, not {key!r}")
    if format == ROW_VERSIONS:
        if late != "drop" or strict:
            what = "late and strict are about deletes, and versions have none"
            raise QueryError("CHANGES_FORMAT", f"{what}; leave them out")
        return _read_versions(df, keys, sequence, deleted)
    if format is None:
        found = read_changes(df, sign)
    elif format == UPSERT:
        source = _add_expression(df, sequence, ORDER_SOURCE, "sequence")
        source = _add_expression(source, deleted, GONE_SOURCE, "deleted")
        found = _follow_upserts(source, keys, sequence, deleted)
    else:
        found = _read_debezium(df, value or _DEBEZIUM_VALUE, read_row(df, row), keys, sequence)
    return set_rules(found, ChangeRules(late == "fail", bool(strict)))


def _read_debezium(
    df: DataFrame, value: str, row: StructType, keys: tuple[str, ...], sequence: str | None
) -> DataFrame:
    """Read the records of Debezium. With keys, each of them is an upsert."""
    if not keys:
        if sequence is not None:
            raise QueryError("CHANGES_FORMAT", "sequence orders the rows of a key; give key too")
        return mark_changes(decode_changes(df, value, row))
    kept = () if sequence is None else (ORDER_SOURCE,)
    source = _add_expression(df, sequence, ORDER_SOURCE, "sequence")
    upserts = decode_upserts(source, value, row, GONE_SOURCE, kept)
    return _follow_upserts(upserts, keys, sequence, "op = 'd'")


def _read_versions(
    df: DataFrame, keys: tuple[str, ...], sequence: str | None, deleted: str | None
) -> DataFrame:
    """Mark rows as versions of their keys."""
    _check_row(df, keys, "versions")
    if VERSION in df.columns:
        raise QueryError("CHANGES_FORMAT", f"versions must have no column {VERSION!r}; drop it")
    source = _add_expression(df, sequence, ORDER_SOURCE, "sequence")
    source = _add_expression(source, deleted, GONE_SOURCE, "deleted")
    _check_deleted(source, deleted)
    return mark_versions(source, VersionRule(keys, sequence, deleted), ORDER_SOURCE, GONE_SOURCE)


def _check_row(df: DataFrame, keys: tuple[str, ...], what: str) -> None:
    """Raise an error unless the columns of ``df`` may be those of rows with these keys."""
    for name in keys:
        if name not in df.columns:
            known = f"key names {name!r}, but the row has the columns {', '.join(df.columns)}"
            raise QueryError("UNKNOWN_COLUMN", known)
        if _has_map(df.schema[name].dataType):
            raise QueryError("UNSUPPORTED_TYPE", f"key names {name!r}, and a map identifies no row")
    if CHANGE_TYPE in df.columns:
        raise QueryError("CHANGES_FORMAT", f"{what} must have no column {CHANGE_TYPE!r}; drop it")


def _has_map(type_: DataType) -> bool:
    """Whether values of a type are maps, or have maps inside. Spark hashes no maps."""
    if isinstance(type_, ArrayType):
        return _has_map(type_.elementType)
    if isinstance(type_, StructType):
        return any(_has_map(field.dataType) for field in type_)
    return isinstance(type_, MapType)


def _check_deleted(source: DataFrame, deleted: str | None) -> None:
    """Raise CHANGES_FORMAT unless ``deleted`` is a condition, whose values ``source`` has."""
    if deleted is not None and not isinstance(source.schema[GONE_SOURCE].dataType, BooleanType):
        raise QueryError("CHANGES_FORMAT", f"deleted must be a condition, and {deleted!r} is none")


def _follow_upserts(
    source: DataFrame, keys: tuple[str, ...], sequence: str | None, deleted: str | None
) -> DataFrame:
    """Turn upserts into changes, by units that keep the latest row of each key.

    ``source`` has the columns of the row, and ``ORDER_SOURCE`` and ``GONE_SOURCE`` if there are ``sequence``
    and ``deleted``.
    """
    # 1. Read the columns of the row.
    df = source.drop(ORDER_SOURCE, GONE_SOURCE)
    _check_row(df, keys, "upserts")
    for name in keys:
        if " collate " in df.schema[name].dataType.simpleString():
            what = f"key names {name!r}, whose texts may be equal by their collation and be other texts"
            raise QueryError("UNSUPPORTED_TYPE", f"{what}; cast it to STRING, or name lower(...) of it")
    _check_deleted(source, deleted)
    read = read_streams({_ALIAS: df}, list_tables({_ALIAS: df}), False, None, {})
    raise_problems(read.problems)
    (stream,) = read.streams
    # 2. Build the units.
    spark = df.sparkSession
    flow = Upserts(stream, keys, sequence, deleted).flow(count_partitions(spark))
    if stream.is_streaming:
        raise_problems(SparkSessionChecks(spark).find_problems(flow.stages[0].spec.n_units))
    changed = build(flow, [source], RunContext() if stream.is_streaming else None)
    # 3. The event time is that of the stream, with the marks of its watermark.
    if stream.event_time is not None:
        marks = dict(df.schema[stream.event_time].metadata or {})
        columns = {
            stream.event_time: F.col(quote(stream.event_time)).alias(stream.event_time, metadata=marks)
        }
        changed = changed.select(*(columns.get(name, F.col(quote(name))) for name in changed.columns))
    return mark_changes(changed)


def _add_expression(df: DataFrame, text: str | None, name: str, what: str) -> DataFrame:
    """Add the values of a SQL expression as a column."""
    if text is None:
        return df
    if not isinstance(text, str):
        raise QueryError("CHANGES_FORMAT", f"{what} must be a SQL expression, not {text!r}")
    try:
        with unlogged():
            added = df.withColumn(name, F.expr(text))
            type_ = added.schema[name].dataType
    except AnalysisException as error:
        raise summarize(error, what) from error
    if not isinstance(type_, AtomicType):
        found = type_.simpleString()
        raise QueryError("UNSUPPORTED_TYPE", f"{what} must be one value, and {text!r} is {found}")
    if isinstance(type_, YearMonthIntervalType | VariantType):
        found = type_.simpleString()
        raise QueryError(
            "UNSUPPORTED_TYPE", f"{what} must be a value that units order, and {text!r} is {found}"
        )
    refuse_varying(df, [tokenize(text)], f"{what} is about a row alone", "compute it in the source")
    return added
