"""Records of Kafka become columns, and those that cannot be decoded are told apart. No broker is needed."""

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from thetastream.app.job.decoding import decode, select_dead
from thetastream.app.job.spec import SourceSpec

SCHEMA = "id LONG, ts TIMESTAMP"
GOOD = '{"id": 7, "ts": "2026-01-05T09:30:00Z", "more": [1]}'
DEAD = {
    None: "the record has no value",
    "": "the value is not JSON of the schema",
    "{": "the value is not JSON of the schema",
    "[]": "the value is not JSON of the schema",
    '{"id": "x", "ts": "2026-01-05T09:30:00Z"}': "the value is not JSON of the schema",
    '{"id": 8}': "the event time is NULL",
}


def test_records_are_decoded_or_dead(spark: SparkSession) -> None:
    moment = datetime(2026, 1, 5, 9, 31, tzinfo=UTC)
    rows = [
        (None, None if text is None else bytearray(text.encode()), "t", 0, offset, moment)
        for offset, text in enumerate([GOOD, *DEAD])
    ]
    columns = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"
    records = spark.createDataFrame(rows, columns)
    source = SourceSpec("a", "kafka", schema=SCHEMA, event_time="ts", decode="json")
    (row,) = decode(records, source).selectExpr("id", "unix_seconds(ts)").collect()
    assert tuple(row) == (7, 1_767_605_400)
    dead = {
        None if row.value is None else row.value.decode(): (row.reason, row.offset)
        for row in select_dead(records, source).collect()
    }
    assert {text: reason for text, (reason, _) in dead.items()} == DEAD
    assert sorted(offset for _, offset in dead.values()) == list(range(1, 1 + len(DEAD)))
    # Expressions of select see the record, and may compute the event time.
    selecting = SourceSpec(
        "a", "kafka", schema=SCHEMA, event_time="at", decode="json", select=("id", "kafka.timestamp AS at")
    )
    found = decode(records, selecting).selectExpr(*selecting.select).collect()
    assert sorted(row.id for row in found) == [7, 8]
    assert {row["at"].astimezone(UTC) for row in found} == {moment}
