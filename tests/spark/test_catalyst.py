"""What is known of expressions without Spark equals what Spark says of them."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from thetastream.core.spark_types import is_day_time
from thetastream.joins.ask.catalyst import Catalyst

NUMBERS = [
    "0",
    "7",
    "007",
    "-10",
    "999999999",
    "0.05",
    "10.50",
    "0.0",
    "00.5",
    "-1.250",
    "123456789.98765432",
]


LIMITS = [
    f"CAST(CAST(({number}) AS {type_}) AS DOUBLE)"
    for number in ("7", "-0", "-0.0", "0.1", "123456789.123456789")
    for type_ in ("int", "bigint", "double", "float")
]
INTERVALS = [
    "INTERVAL 5 SECONDS",
    "interval   1 minute",
    "INTERVAL '90' MINUTE",
    "INTERVAL '3 days 4 hours'",
    "INTERVAL '2 weeks 3 milliseconds 7 microseconds'",
    "INTERVAL '3 days 3 days'",
    "INTERVAL '999999' DAY",
    "INTERVAL 0 HOURS",
    "INTERVAL -5 SECONDS",
    "INTERVAL '1.5' SECOND",
    "INTERVAL '1:30' MINUTE TO SECOND",
]


@pytest.fixture
def catalyst(spark: SparkSession) -> Catalyst:
    schemas = {"a": "x INT, `x.y` DOUBLE, X2 STRING, s STRUCT<x: DATE>", "b": "x DECIMAL(9,2), a INT"}
    return Catalyst(spark, {alias: StructType.fromDDL(ddl) for alias, ddl in schemas.items()})


def test_numbers_have_the_values_and_the_types_of_spark(spark: SparkSession, catalyst: Catalyst) -> None:
    row = spark.sql("SELECT " + ", ".join(f"({text}) AS c{n}" for n, text in enumerate(NUMBERS)))
    types = [field.dataType.simpleString() for field in row.schema]
    found = [catalyst.constant(text) for text in NUMBERS]
    assert [(one.type, one.value) for one in found if one] == list(zip(types, row.collect()[0], strict=True))


def test_numbers_that_have_another_type_are_evaluated_by_spark(catalyst: Catalyst) -> None:
    texts = ["3000000000", "1e3", "10L", "12345678901.5", "1 + 1"]
    found = [one.type for text in texts if (one := catalyst.constant(text))]
    assert found == ["bigint", "double", "bigint", "decimal(12,1)", "int"]


def test_limits_and_intervals_have_the_values_and_the_types_of_spark(
    spark: SparkSession, catalyst: Catalyst
) -> None:
    texts = [*LIMITS, *INTERVALS]
    row = spark.sql("SELECT " + ", ".join(f"({text}) AS c{n}" for n, text in enumerate(texts)))
    types = [field.dataType.simpleString() for field in row.schema]
    found = [catalyst.constant(text) for text in texts]
    expected = list(zip(types, map(repr, row.collect()[0]), strict=True))
    assert [(one.type, repr(one.value)) for one in found if one] == expected


def test_intervals_that_spark_refuses_or_counts_otherwise_have_no_value_of_days(spark: SparkSession) -> None:
    assert Catalyst(spark, {}).constant("INTERVAL 999999 PARSECS") is None
    spark.conf.set("spark.sql.legacy.interval.enabled", "true")
    try:
        found = Catalyst(spark, {}).constant("INTERVAL 5 SECONDS")
    finally:
        spark.conf.unset("spark.sql.legacy.interval.enabled")
    assert found is None or not is_day_time(found.type)


def test_the_name_of_an_alias_may_be_that_of_a_column_that_spark_chooses(spark: SparkSession) -> None:
    schemas = {alias: StructType.fromDDL("id INT, value STRING") for alias in ("id", "value", "_1")}
    known = Catalyst(spark, schemas)
    assert known.type_of("id.id + value.id + _1.id", list(schemas)) == "int"


def test_types_of_columns_are_those_of_spark(catalyst: Catalyst) -> None:
    simple = ["a.x", "a.X", "`a`.`x`", "a.x2", "a.s", "b.x", "b.a"]
    texts = [*simple, "a.s.x", "a.`x.y`", "`a.x`", "a.none", "c.x"]
    every = [catalyst.type_of(text, ["a", "b"]) for text in texts]
    asked = [catalyst.type_of(f"({text})", ["a", "b"]) for text in texts]
    assert every == asked
    assert every[:4] == ["int", "int", "int", "string"]
    assert every[-4:] == ["double", None, None, None]
    assert catalyst.type_of("b.x", ["a"]) is None


def test_types_that_are_learnt_together_are_those_of_each_alone(catalyst: Catalyst) -> None:
    texts = ["a.x + 1", "a.x + 1.5", "a.none + 1", "upper(a.x2)"]
    catalyst.learn_types([(text, ["a"]) for text in texts if "none" not in text] + [("b.x * 2", ["b"])])
    catalyst.learn_types([(text, ["a"]) for text in texts])
    found = [catalyst.type_of(text, ["a"]) for text in texts]
    assert found == [catalyst.type_of(f"({text})", ["a"]) for text in texts]
    assert found == ["int", "decimal(12,1)", None, "string"]
