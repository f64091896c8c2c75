"""The join order of a pipeline follows the rates that a run of it has measured."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from bench.core import join_trees
from bench.core.clock import Clock
from tests.support.streams import replay

START = datetime(2024, 5, 1, tzinfo=UTC)
PER_SECOND = {"a": 6, "b": 2, "c": 1}
SECONDS = 12
ON = "a.k < b.k AND b.k < c.k AND a.k < c.k - 1"


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, th.Ring(2)], ids=["pipeline", "ring"])
def test_measured_rates_give_the_join_order(
    spark: SparkSession, tmp_path: Path, model: th.Ring | None
) -> None:
    streams = {}
    for alias, rate in PER_SECOND.items():
        n = rate * SECONDS
        rows = [(i, i % 7, START + timedelta(seconds=i / rate)) for i in range(n)]
        frame = spark.createDataFrame(rows, "id INT, k INT, ts TIMESTAMP")
        epochs = [range(n // 2), range(n // 2, n)]
        streams[alias] = replay(frame, epochs, tmp_path).withWatermark("ts", "1 second")
    settings = {"mailbox": str(tmp_path / "mail")} if model else {}
    plan = th.plan(streams, ON, "4 seconds", model, **settings)
    writer = plan.dataframe().selectExpr("a.id").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    measured = th.statistics(query)
    rates = measured.tuples_per_second
    assert isinstance(rates, dict)
    assert sorted(rates) == ["a", "b", "c"]
    assert [rates[alias] / rates["c"] for alias in "abc"] == pytest.approx([6, 2, 1], rel=0.3)
    assert measured.origin == "measured"
    informed = th.plan(streams, ON, "4 seconds", model, statistics=measured, **settings)
    text, before = informed.explain(), plan.explain()
    if model is None:
        assert "((a JOIN b) JOIN c)" in before
        assert "((b JOIN c) JOIN a)" in text
        assert "measured rates" in text
    else:
        assert "a -> b" in before
        assert "a -> c" in text


@pytest.mark.slow
def test_measured_rates_of_results_give_a_bushy_tree(spark: SparkSession) -> None:
    """A run with a left-deep tree measures that another tree joins fewer rows, and it does."""
    tables = join_trees.draw(120, 3, seed=1)
    expected = join_trees.count_results(tables)
    with closing(Clock()) as clock:
        files = join_trees.write(clock, tables)
        first, known = join_trees.measure(spark, files, None, expected)
        second, _ = join_trees.measure(spark, files, known, expected)
    assert first["is_correct"]
    assert second["is_correct"]
    assert expected > 100
    assert first["joined"] > 2 * second["joined"]
