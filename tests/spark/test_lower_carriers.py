"""Every Spark type goes through Arrow blocks and back unchanged, bit for bit, in a zone that is not UTC."""

from collections import Counter

import pytest
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.core.errors import QueryError
from thetastream.joins.ask.carriers import carry

VALUES = {
    "tinyint": "CAST(-128 AS TINYINT)",
    "smallint": "CAST(32767 AS SMALLINT)",
    "integer": "-2147483648",
    "bigint": "9007199254740993L",
    "float": "CAST('NaN' AS FLOAT)",
    "double": "CAST('-Infinity' AS DOUBLE)",
    "decimal": "12345678901234567890.123456789012345678BD",
    "string": "'é😀'",
    "empty": "''",
    "collated": "'Ab' COLLATE UTF8_LCASE",
    "binary": "X'00FF'",
    "boolean": "true",
    "date": "DATE'0001-01-01'",
    "date_last": "DATE'9999-12-31'",
    "stamp_first": "TIMESTAMP'0001-01-01 00:00:00.000001'",
    "stamp_1969": "TIMESTAMP'1969-12-31 18:59:59.999999'",
    "stamp_fold": "timestamp_micros(1730615400000001)",
    "stamp_last": "TIMESTAMP'9999-12-31 23:59:59.999999'",
    "ntz_first": "TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'",
    "ntz_gap": "TIMESTAMP_NTZ'2024-03-10 02:30:00'",
    "ntz_last": "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
    "year_month": "INTERVAL '-1-2' YEAR TO MONTH",
    "month": "INTERVAL '5' MONTH",
    "day_time": "INTERVAL '-1 02:03:04.000005' DAY TO SECOND",
    "day": "INTERVAL '106751991' DAY",
    "time": "TIME'23:59:59.999999'",
    "time_0": "CAST('23:59:59' AS TIME(0))",
    "calendar": "make_interval(1, -2, 3, -4, 5, -6, 7.000001)",
    "void": "NULL",
}
NESTED = {
    "array": "array(1, NULL, 3)",
    "stamps": "array(TIMESTAMP'0001-01-01 00:00:00', TIMESTAMP'2024-11-03 01:30:00')",
    "map": "map('k', array(1.5BD, NULL))",
    "struct": "named_struct('we ird', 1, 'y', named_struct('z', DATE'2020-01-01'))",
    "empty_array": "array()",
    "variant": """parse_json('{"a": [1, null, 1.5]}')""",
}


@pytest.fixture
def zone(spark):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("values", [VALUES, NESTED], ids=["atomic", "nested"])
def test_payload_comes_back(spark, zone, values):
    columns = ", ".join(f"{text} AS {name}" for name, text in values.items())
    nulls = ", ".join(f"IF(true, NULL, {text}) AS {name}" for name, text in values.items())
    a = spark.sql(f"SELECT 1 AS id, {columns} UNION ALL SELECT 2, {nulls}")
    b = spark.sql("SELECT 1 AS id UNION ALL SELECT 2")
    joined = th.join({"a": a, "b": b}, on="a.id = b.id").select("a.*")
    assert joined.dtypes == a.dtypes

    def spelled(frame):
        texts = [
            f"to_json(named_struct('v', {name}))" if values is NESTED else f"CAST({name} AS STRING)"
            for name in values
        ]
        return sorted(frame.select("id", *[F.expr(text) for text in texts]).collect())

    assert spelled(joined) == spelled(a)


def test_nested_results_of_a_stream_come_back(spark, zone, tmp_path):
    """Nested results leave the stateful operator as they are, a NULL inside a value included."""
    columns = ", ".join(f"{text} AS {name}" for name, text in NESTED.items())
    nulls = ", ".join(f"IF(true, NULL, {text}) AS {name}" for name, text in NESTED.items())
    frame = spark.sql(f"SELECT 1L AS id, {columns} UNION ALL SELECT 2L, {nulls}")
    stream = replay(frame.select("id"), [[1, 2]], tmp_path, by_key=True).join(F.broadcast(frame), "id")
    joined = th.join({"a": stream, "b": stream}, on="a.id = b.id", within=None)
    texts = [f"to_json(named_struct('v', {{}}{name}))" for name in NESTED]
    found = outcome(joined.selectExpr("a.id", *(text.format("b.") for text in texts)), ["*"], tmp_path)
    assert found.rows == Counter(map(tuple, frame.selectExpr("id", *(t.format("") for t in texts)).collect()))


def test_what_arrow_cannot_carry(spark):
    refused = spark.range(1).selectExpr(
        "array(INTERVAL '1' MONTH) AS months", "map(1, make_interval(1)) AS m"
    )
    _, problems = carry("a", refused.schema, 0)
    assert [problem.condition for problem in problems] == ["UNSUPPORTED_TYPE"] * 2
    assert all(isinstance(problem, QueryError) for problem in problems)
