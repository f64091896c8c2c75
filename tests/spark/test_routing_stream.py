"""Routing by range on Spark sends fewer tuples, and gives the answer of the nested loop."""

from collections import Counter

import pytest

import thetastream as th
from tests.support.streams import outcome, replay


@pytest.mark.slow
@pytest.mark.usefixtures("only_epochs_with_rows")
def test_range_routing_of_streams(spark, tmp_path):
    rows = [(n, n * 37 % 211, n / 3) for n in range(300)]
    frame = spark.createDataFrame(rows, "id INT, v INT, s DOUBLE").selectExpr(
        "id", "v / 10 AS v", "timestamp_seconds(s) AS ts"
    )
    epochs = [range(start, start + 100) for start in (0, 100, 200)]
    streams = {alias: replay(frame, epochs, tmp_path).withWatermark("ts", "1 second") for alias in "ab"}
    plan = th.plan(
        streams,
        on="abs(a.v - b.v) < 0.3 AND a.id >= b.id",
        within="20 seconds",
        model=th.Biclique((3, 4), subgroups=(3, 2), routing="range"),
    )
    assert "routing   by range of " in plan.explain()
    found = outcome(plan.dataframe(), ["a.id", "b.id"], tmp_path)
    assert found.rows == Counter(
        (a, b)
        for a, av, at in rows
        for b, bv, bt in rows
        if abs(av / 10 - bv / 10) < 0.3 and a >= b and abs(at - bt) <= 20
    )
    received = sum(epoch["received"] for epoch in found.metrics)
    assert received < 300 * (1 + 4 + 1 + 3)
