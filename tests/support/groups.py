"""Groups over joins: rows of all types with NULL and NaN, and answers over views and over pairs."""

import importlib
import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from thetastream.aggregates import NotFoldable

answer = importlib.import_module("thetastream.statements.join_results")
evaluate = importlib.import_module("thetastream.statements.evaluate")

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = (
    "id INT, k STRING, f FLOAT, x DOUBLE, n BIGINT, b BOOLEAN, d DECIMAL(12,2), "
    "wide DECIMAL(30,3), day DATE, a ARRAY<INT>, ts TIMESTAMP"
)


def draw_rows(n: int, shift: int) -> list[tuple[Any, ...]]:
    """Draw rows of ``SCHEMA``, one every three seconds. A fifth of the values are NULL."""
    chance = random.Random(f"{n} {shift}")

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return [
        (
            number,
            maybe(chance.choice(["u", "ä", ""])),
            maybe(chance.choice([1.5, math.nan, -0.0, 0.0])),
            maybe(chance.choice([math.nan, math.inf, -2.25, 0.5])),
            maybe(2**53 + chance.randrange(9)),
            maybe(chance.random() < 0.5),
            maybe(Decimal(chance.randrange(-(10**9), 10**9)) / 100),
            maybe(Decimal(chance.randrange(-(10**12), 10**12)) / 1000),
            maybe(START.date() + timedelta(days=chance.randrange(3))),
            maybe([chance.randrange(2)]),
            START + timedelta(seconds=3 * number + shift),
        )
        for number in range(n)
    ]


def answer_twice(
    spark: SparkSession,
    streams: dict[str, DataFrame],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    **settings: Any,
) -> tuple[DataFrame, DataFrame]:
    """Answer a statement over views and over pairs."""

    def refuse(*_: Any) -> None:
        raise NotFoldable("asked for")

    views = th.sql(spark, text, streams, **settings)
    with monkeypatch.context() as patched:
        for module in (answer, evaluate):
            patched.setattr(module, "fold_groups", refuse)
        pairs = th.sql(spark, text, streams, **settings)
    assert views.schema.simpleString() == pairs.schema.simpleString()
    return views, pairs


def explain_groups(spark: SparkSession, streams: dict[str, DataFrame], text: str) -> str:
    """Return what EXPLAIN says about the groups of a statement."""
    explained: str = th.sql(spark, f"EXPLAIN {text}", streams).collect()[0][0]
    return explained.split("== Aggregation ==\n")[1]


def list_groups(frame: DataFrame) -> list[str]:
    """Return the rows in an order of their own, with floating-point numbers of twelve digits."""
    return sorted(repr(tuple(_round(value) for value in row)) for row in frame.collect())


def _round(value: Any) -> Any:
    return float(f"{value:.12g}") + 0.0 if isinstance(value, float) else value


def read_latest(
    frame: DataFrame, mode: str, folder: Path, keys: int
) -> tuple[dict[tuple[Any, ...], tuple[Any, ...]], StreamingQuery]:
    """Read the last row of every group from the available input, and return the query too.

    The first ``keys`` columns name the group.
    """
    groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def keep(batch: DataFrame, _: int) -> None:
        groups.update({tuple(row[:keys]): tuple(row) for row in batch.collect()})

    writer = frame.writeStream.outputMode(mode).foreachBatch(keep).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder)).start()
    query.awaitTermination()
    return groups, query
