"""Which rows move the watermark: the plan says it, and the metrics show rows that never reach the join."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import outcome, replay
from tests.support.truth import configured

ON = "a.x = b.x AND b.kind = 'alarm'"


@pytest.fixture(autouse=True)
def two_partitions(spark: SparkSession) -> Iterator[None]:
    with configured(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    rows = "(1L, 1, 'alarm', 100), (2L, 2, 'alarm', 200), (3L, 3, 'beat', 900), "
    rows += "(4L, 4, 'alarm', 50), (5L, 5, 'alarm', 950)"
    text = f"SELECT id, x, kind, timestamp_seconds(s) AS ts FROM VALUES {rows} AS t(id, x, kind, s)"
    return spark.sql(text).localCheckpoint()


EPOCHS = [[1, 2], [3], [4], [5]]


def test_explain_says_which_rows_move_the_watermark(frame: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, EPOCHS, tmp_path).withWatermark("ts", "0 seconds")
    text = th.plan({"a": s, "b": s}, on=ON, within="1 minute").explain()
    assert "watermark of a: rows move it by ts if they pass what Spark runs before withWatermark" in text
    (line,) = (line for line in text.splitlines() if line.startswith("watermark of b"))
    assert "b.kind = 'alarm'" in line
    assert "ts) IS NOT NULL" not in line
    assert "late rows of" not in text
    once = s.dropDuplicatesWithinWatermark(["id"])
    behind = th.plan({"a": once, "b": s}, on=ON, within="1 minute").explain()
    assert "late rows of a: dropDuplicatesWithinWatermark before the join drops them" in behind
    assert "late rows of b" not in behind
    preserved = th.plan({"a": s, "b": s}, on=ON, within="1 minute", how="right").explain()
    (line,) = (line for line in preserved.splitlines() if line.startswith("watermark of b"))
    assert "alarm" not in line


def test_explain_says_why_units_know_no_watermark_before_1970(frame: DataFrame, tmp_path: Path) -> None:
    s = replay(frame, EPOCHS, tmp_path).withWatermark("ts", "0 seconds")
    given: dict[str, Any] = {"on": "a.x = b.x", "within": "1 minute", "how": "left"}
    assert "Before 1970" not in th.plan({"a": s, "b": s}, **given).explain()
    changing = th.plan({"a": s, "b": s}, max_units=4, **given).explain()
    assert "has passed 1970   (the units may change (max_units))" in changing
    both = th.plan({"a": s.union(s), "b": s}, **given).explain()
    assert "has passed 1970   (a has 2 watermarks)" in both
    assert "Before 1970" not in th.plan({"a": s.union(s), "b": s}, **given | {"how": "inner"}).explain()


@pytest.mark.slow
def test_rows_that_never_reach_the_join_are_in_the_metrics(frame: DataFrame, tmp_path: Path) -> None:
    """The filter reads the event time, so a heartbeat moves the watermark, and then tuple 4 is late."""
    s = replay(frame, EPOCHS, tmp_path).withWatermark("ts", "0 seconds")
    alive = s.where("kind <> 'beat' OR ts IS NULL").dropDuplicatesWithinWatermark(["id"])
    found = outcome(th.join({"a": alive, "b": alive}, on="a.x = b.x", within="1 minute"), ["a.id"], tmp_path)
    assert {row[0] for row in found.rows} == {1, 2, 5}
    dropped = [entry["late_elsewhere"] for entry in found.metrics]
    assert sum(n for each in dropped for n in each.values()) == 2
    assert {name for each in dropped for name in each} == {"dedupeWithinWatermark"}
    assert sum(entry["late"] for entry in found.metrics) == 0
    assert any((entry["newest"] or "").startswith("1970-01-01T00:15:00") for entry in found.metrics)
