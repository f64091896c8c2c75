"""What a user is warned of: state that is kept for ever, a stream that is mostly late."""

import time
import warnings
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.streams import outcome, replay


def stream(spark: SparkSession, folder: Path, n: int = 4, epochs: int = 2):
    frame = spark.range(n).selectExpr("id", "timestamp_seconds(1700000000 + id) AS ts").localCheckpoint()
    size = n // epochs
    return replay(frame, [range(e * size, (e + 1) * size) for e in range(epochs)], folder)


def test_state_that_is_kept_for_ever(spark: SparkSession, tmp_path: Path) -> None:
    s = stream(spark, tmp_path)
    marked = s.withWatermark("ts", "1 second")
    with pytest.warns(th.errors.UnboundedStateWarning, match="tuples of a, b are kept for ever") as found:
        th.plan({"a": marked, "b": marked}, "a.id = b.id")
    assert found[0].filename == __file__
    with pytest.warns(th.errors.UnboundedStateWarning, match="tuples of a, b are kept"):
        th.plan({"a": s, "b": s}, "a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 MINUTE")
    with pytest.warns(th.errors.UnboundedStateWarning, match="tuples of b are kept"):
        th.plan({"a": marked, "b": marked}, "a.id = b.id AND a.ts >= b.ts")
    with warnings.catch_warnings():
        warnings.simplefilter("error", th.errors.UnboundedStateWarning)
        th.plan({"a": marked, "b": marked}, "a.id = b.id", within="1 minute")
        th.plan({"a": marked, "b": marked}, "a.id = b.id", within=th.Rows(3), model=th.Split(1))
        th.plan({"a": spark.range(3), "b": spark.range(3)}, "a.id = b.id")


def test_a_stream_that_is_mostly_late(spark: SparkSession, tmp_path: Path) -> None:
    """Event times run backwards, so all tuples after the second epoch are late."""
    frame = (
        spark.range(120).selectExpr("id", "timestamp_seconds(1700000000 - id * 60) AS ts").localCheckpoint()
    )
    epochs = [range(20), range(20, 40), range(40, 120)]
    a, b = (replay(frame, epochs, tmp_path).withWatermark("ts", "1 second") for _ in range(2))
    joined = th.join({"a": a, "b": b}, "a.id = b.id", within="1 hour", model=th.Biclique(1))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = outcome(joined, ["a.id"], tmp_path)
        end = time.monotonic() + 30
        while time.monotonic() < end and len(late(found)) < 2:
            time.sleep(0.1)  # Spark tells its listeners when it is ready
    assert sum(epoch["late"] for epoch in result.metrics) == 160
    assert sorted(text.split("stream ")[1][:3] for text in late(found)) == ["'a'", "'b'"]
    assert all(text.startswith("80 of 120 tuples of stream") for text in late(found))


def late(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in found if each.category is th.errors.LateTuplesWarning]
