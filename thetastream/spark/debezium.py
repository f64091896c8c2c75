"""Reads the records of Debezium: which rows are inserted and which are deleted.

    op c, r   create, snapshot   after  -> insert
    op d      delete             before -> delete
    op u      update             before -> delete,  after -> insert
    op m      message            nothing, and so do records without a value (tombstones)
    op t      truncate           an error, because it names no rows

A record is JSON: an envelope ``{"before": ..., "after": ..., "op": ...}``, or one inside
``{"schema": ..., "payload": ...}``.
"""

from collections.abc import Iterator, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from thetastream.core.columns import CHANGE_TYPE, DELETE, INSERT
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.lowering.domains import quote

_OP, _BEFORE, _AFTER = "op", "before", "after"
_PARSED = "__debezium"
_TIMES = (TimestampType, TimestampNTZType, DateType)
"""Types that are read as texts first: Spark would read a number of milliseconds as a number of seconds."""
_UNKNOWN = "__debezium_unavailable_value"
"""What Debezium writes in place of a long value of PostgreSQL that has not changed."""
_IDENTITY = (
    "let the database send whole rows (PostgreSQL: ALTER TABLE ... REPLICA IDENTITY FULL, MySQL: "
    "binlog_row_image=FULL)"
)


def read_row(df: DataFrame, row: object) -> StructType:
    """Read the columns of the row, as ``"id INT, ts TIMESTAMP"``.

    Raises
    ------
    QueryError
        CHANGES_FORMAT if they are no columns, or one of them has the name of the type of a change.
    """
    what = f'row must list the columns of a row, as in "id INT, ts TIMESTAMP", not {row!r}'
    if not isinstance(row, str) or not row.strip():
        raise QueryError("CHANGES_FORMAT", what)
    try:
        schema = df.sparkSession.createDataFrame([], row).schema
    except PySparkException as error:
        raise QueryError("CHANGES_FORMAT", what) from error
    taken = [name for name in schema.names if name.casefold() == CHANGE_TYPE]
    if taken:
        raise QueryError("CHANGES_FORMAT", f"row names {taken[0]!r}, which is the type of a change")
    known = {name.casefold() for name in schema.names}
    if len(known) < len(schema.names):
        raise QueryError("CHANGES_FORMAT", f"row names a column twice: {', '.join(schema.names)}")
    return schema


def decode_changes(df: DataFrame, value: str, row: StructType) -> DataFrame:
    """Decode each record into the rows that it deletes and inserts, with their type behind the columns.

    ``value`` names the column with the records, and ``row`` has the columns of a row.
    """
    hint = f"{_IDENTITY}, or name the columns that identify a row: key="
    delete = F.struct(*_write_row(_BEFORE, row, hint), F.lit(DELETE).alias(CHANGE_TYPE))
    insert = F.struct(*_write_row(_AFTER, row, hint), F.lit(INSERT).alias(CHANGE_TYPE))
    is_new, is_gone = {_AFTER: insert}, {_BEFORE: delete}
    found = {"c": is_new, "r": is_new, "u": {**is_gone, **is_new}, "d": is_gone}
    return _decode(df, value, row, (), found, hint)


def decode_upserts(df: DataFrame, value: str, row: StructType, gone: str, kept: tuple[str, ...]) -> DataFrame:
    """Decode each record into the row that its key has from now on.

    Behind the columns of the row are ``gone``, which says whether the key has no row any more, and the
    columns ``kept`` of ``df``. A deleted key has the row before, whose other columns may be NULL.
    """
    others = [F.col(quote(name)) for name in kept]
    last = F.struct(*_write_row(_BEFORE, row, None), F.lit(True).alias(gone), *others)
    new = F.struct(*_write_row(_AFTER, row, _IDENTITY), F.lit(False).alias(gone), *others)
    is_new = {_AFTER: new}
    found = {"c": is_new, "r": is_new, "u": is_new, "d": {_BEFORE: last}}
    return _decode(df, value, row, kept, found, _IDENTITY)


def _decode(
    df: DataFrame,
    value: str,
    row: StructType,
    kept: tuple[str, ...],
    found: Mapping[str, Mapping[str, Column]],
    hint: str,
) -> DataFrame:
    """Decode records into rows: for each ``op``, ``found`` has what follows from the images of its row."""
    if value not in df.columns:
        what = f"value names {value!r}, but the stream has the columns {', '.join(df.columns)}"
        raise QueryError("UNKNOWN_COLUMN", what)
    type_ = df.schema[value].dataType
    if not isinstance(type_, StringType | BinaryType):
        what = f"the column {value!r} must have records as JSON, and is {type_.simpleString()}"
        raise QueryError("CHANGES_FORMAT", what)
    # 1. Parse both forms of a record. A value that does not fit its column ends the query.
    sent = StructType(
        [
            StructField(one.name, StringType() if isinstance(one.dataType, _TIMES) else one.dataType)
            for one in row
        ]
    )
    envelope = [StructField(_OP, StringType()), StructField(_BEFORE, sent), StructField(_AFTER, sent)]
    record = StructType([*envelope, StructField("payload", StructType(envelope))])
    parsed = F.from_json(F.col(quote(value)).cast("string"), record, {"mode": "FAILFAST"})
    others = [F.col(quote(name)) for name in kept]
    records = df.where(F.col(quote(value)).isNotNull()).select(parsed.alias(_PARSED), *others)
    parts = (
        F.coalesce(F.col(f"{_PARSED}.payload.{name}"), F.col(f"{_PARSED}.{name}")).alias(name)
        for name in (_OP, _BEFORE, _AFTER)
    )
    records = records.select(*parts, *others)
    # 2. Choose the rows by what happened. A message (m) has none.
    op = F.col(_OP)
    what = "op of a Debezium record must be c, r, u or d, not "
    advice = (
        "; a truncate (t) names no rows, and a record without op is none of Debezium's own form (leave out "
        "the transform ExtractNewRecordState)"
    )
    error = F.concat(F.lit(str(ThetastreamError("CHANGES_VALUE", what))), F.coalesce(op, F.lit("NULL")))
    changes = F.when(op.isNull() | (op != "m"), F.raise_error(F.concat(error, F.lit(advice))))
    for name, images in found.items():
        rows = F.array(*images.values())
        for image in images:
            rows = F.when(F.col(image).isNull(), _refuse(name, image, hint)).otherwise(rows)
        changes = F.when(op == name, rows).otherwise(changes)
    return records.select(F.inline(changes))


def _refuse(op: str, image: str, hint: str) -> Column:
    """Raise an error for a record without one of the images of its row."""
    what = f"a Debezium record with op={op} has {image}=null"
    if image == _BEFORE:
        return F.raise_error(F.lit(f"{ThetastreamError('BEFORE_IMAGE', what)}; {hint}"))
    return F.raise_error(F.lit(str(ThetastreamError("CHANGES_VALUE", what))))


def _write_row(image: str, row: StructType, hint: str | None) -> list[Column]:
    """Write the columns of a row. With a hint, a value that the record does not have is an error."""
    columns = []
    for field in row:
        value = F.col(f"{image}.{quote(field.name)}")
        found = _read_time(field, value) if isinstance(field.dataType, _TIMES) else value
        if hint is not None:
            what = ThetastreamError("BEFORE_IMAGE", f"a Debezium record does not have {image}.{field.name}")
            for is_missing in _find_missing(field, value):
                found = F.when(is_missing, F.raise_error(F.lit(f"{what}; {hint}"))).otherwise(found)
        columns.append(found.alias(field.name))
    return columns


def _find_missing(field: StructField, value: Column) -> Iterator[Column]:
    """Yield the conditions under which a record does not have the value of a column."""
    if not field.nullable:
        yield value.isNull()
    if isinstance(field.dataType, StringType):
        yield value == _UNKNOWN


def _read_time(field: StructField, value: Column) -> Column:
    """Read a date or an instant from its text. A number is an error, because its unit is not known."""
    type_ = field.dataType
    what = f"{field.name!r} of a Debezium record must be {type_.simpleString().upper()}, and its value is "
    advice = (
        "; Debezium writes times as numbers, so declare the column as BIGINT or INT and convert it behind "
        "th.changes: timestamp_micros(x), timestamp_millis(x) or date_from_unix_date(x)"
    )
    error = F.concat(F.lit(str(ThetastreamError("CHANGES_VALUE", what))), value, F.lit(advice))
    read = F.when(~value.rlike("^[+-]?[0-9]+$"), value.try_cast(type_))
    return F.when(value.isNotNull(), F.coalesce(read, F.raise_error(error)))
