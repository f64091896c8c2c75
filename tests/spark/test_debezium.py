"""Records of Debezium as changes, over batch rows."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th

Row = dict[str, Any]


def write(op: str, before: Row | None = None, after: Row | None = None, schema: bool = False) -> str:
    """Write an envelope as Debezium does, with or without its schema."""
    source = {"connector": "postgresql", "ts_ms": 1_767_605_405_000, "table": "orders", "lsn": 23}
    envelope = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_767_605_406_000}
    envelope |= {"transaction": {"id": "571", "total_order": 1, "data_collection_order": 1}}
    return json.dumps(
        {"schema": {"type": "struct", "fields": []}, "payload": envelope} if schema else envelope
    )


def open_records(spark: SparkSession, *values: str | None) -> DataFrame:
    """Return records as Spark's Kafka connector does."""
    records = [(None if value is None else value.encode(), n) for n, value in enumerate(values)]
    return spark.createDataFrame(records, "value BINARY, offset LONG")


def order(id_: int, price: float | None, name: str | None = "a") -> Row:
    return {"id": id_, "price": price, "name": name}


COLUMNS = "id INT, price DOUBLE, name STRING"


@pytest.mark.parametrize("has_schema", [False, True])
def test_each_record_has_the_rows_before_and_after(spark: SparkSession, has_schema: bool) -> None:
    records = open_records(
        spark,
        write("r", None, order(1, 5.0), has_schema),
        write("c", None, order(2, 6.0, None), has_schema),
        write("u", order(1, 5.0), order(1, 7.5), has_schema),
        write("d", order(2, 6.0, None), None, has_schema),
        None,  # the tombstone behind a delete
        write("m", None, None, has_schema),
    )
    changed = th.changes(records, format="debezium", row=COLUMNS)
    assert changed.columns == ["id", "price", "name", "_change_type"]
    assert changed.schema["_change_type"].metadata
    assert [tuple(row) for row in changed.collect()] == [
        (1, 5.0, "a", "insert"),
        (2, 6.0, None, "insert"),
        (1, 5.0, "a", "delete"),
        (1, 7.5, "a", "insert"),
        (2, 6.0, None, "delete"),
    ]
    named = records.selectExpr("CAST(value AS STRING) AS json")
    assert th.changes(named, format="debezium", value="json", row="price DOUBLE").count() == 5


def test_with_a_key_records_need_no_row_before(spark: SparkSession) -> None:
    records = open_records(
        spark,
        write("c", None, order(1, 5.0)),
        write("c", None, order(2, 6.0)),
        write("u", None, order(1, 7.5)),
        write("d", {"id": 2}, None),
        write("c", None, order(3, 1.0)),
    )
    records = records.union(records)  # a source that brings each record twice
    changed = th.changes(records, format="debezium", row=COLUMNS, key="id", sequence="offset")
    assert changed.columns == ["id", "price", "name", "_change_type"]
    assert sorted(map(tuple, changed.collect())) == [(1, 7.5, "a", "insert"), (3, 1.0, "a", "insert")]


def test_times_are_texts(spark: SparkSession) -> None:
    spelled = {"at": "2026-01-05T09:30:05.25Z", "local": "2026-01-05T09:30:05", "day": "2026-01-05", "n": 1}
    numbers = {"at": None, "local": None, "day": None, "n": 1_767_605_405_250_000}
    records = open_records(spark, write("u", spelled, numbers))
    row = "at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, n BIGINT"
    changed = th.changes(records, format="debezium", row=row)
    changed = changed.selectExpr("*", "timestamp_micros(n) AS ts")
    before, after = changed.collect()
    instant = datetime(2026, 1, 5, 9, 30, 5, 250_000, UTC)
    assert before.at.astimezone(UTC) == after.ts.astimezone(UTC) == instant
    assert (before.local, before.day) == (datetime(2026, 1, 5, 9, 30, 5), date(2026, 1, 5))
    assert (after.at, after.local, after.day) == (None, None, None)


@pytest.mark.parametrize(
    ("record", "asked", "refused"),
    [
        (write("u", None, order(1, 5.0)), {}, "BEFORE_IMAGE.*op=u has before=null.*REPLICA IDENTITY FULL"),
        (write("d", None, None), {"key": "id"}, "BEFORE_IMAGE.*op=d has before=null"),
        (write("d", {"id": 1}), {"row": "id INT, price DOUBLE NOT NULL"}, r"BEFORE_IMAGE.*before\.price"),
        (
            write("u", order(1, 5.0), order(1, 5.0, "__debezium_unavailable_value")),
            {"key": "id"},
            r"BEFORE_IMAGE.*after\.name",
        ),
        (write("c", None, None), {}, "CHANGES_VALUE.*op=c has after=null"),
        (write("t"), {}, r"CHANGES_VALUE.*not t; a truncate \(t\) names no rows"),
        (json.dumps(order(1, 5.0)), {}, "CHANGES_VALUE.*not NULL.*ExtractNewRecordState"),
        (write("c", None, {"id": "x"}), {}, "MALFORMED_RECORD|malformed|Malformed"),
        (write("c", None, {"ts": 1_767_605_405}), {"row": "ts TIMESTAMP"}, "CHANGES_VALUE.*timestamp_micros"),
        (write("c", None, {"ts": "today at 5"}), {"row": "ts TIMESTAMP"}, "CHANGES_VALUE.*today at 5"),
        (write("c", None, {"day": 20_458}), {"row": "day DATE"}, "CHANGES_VALUE.*date_from_unix_date"),
    ],
)  # fmt: skip
def test_a_record_that_does_not_say_what_happened_ends_the_query(
    spark: SparkSession, record: str, asked: Row, refused: str
) -> None:
    changed = th.changes(open_records(spark, record), format="debezium", **{"row": COLUMNS, **asked})
    with pytest.raises(Exception, match=refused):
        changed.collect()


def test_wrong_arguments_of_debezium(spark: SparkSession) -> None:
    records = open_records(spark, None)
    for refused, asked in (
        ("CHANGES_FORMAT.*row must list.*not None", {}),
        ("CHANGES_FORMAT.*row must list.*'id INTT'", {"row": "id INTT"}),
        ("CHANGES_FORMAT.*row names '_Change_Type'", {"row": "id INT, _Change_Type STRING"}),
        ("CHANGES_FORMAT.*row names a column twice: id, ID", {"row": "id INT, ID INT"}),
        ("CHANGES_FORMAT.*sign does not belong", {"row": COLUMNS, "sign": "w"}),
        ("CHANGES_FORMAT.*give key too", {"row": COLUMNS, "sequence": "offset"}),
        ("CHANGES_FORMAT.*key must name", {"row": COLUMNS, "key": 3}),
        ("CHANGES_FORMAT.*must have records as JSON", {"row": COLUMNS, "value": "offset"}),
        ("UNKNOWN_COLUMN.*value names 'x'", {"row": COLUMNS, "value": "x"}),
        ("UNKNOWN_COLUMN.*key names 'x'", {"row": COLUMNS, "key": "x"}),
    ):
        with pytest.raises(th.QueryError, match=refused):
            th.changes(records, format="debezium", **asked)  # type: ignore[arg-type]
