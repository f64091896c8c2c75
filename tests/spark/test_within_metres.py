"""The distance on the sphere on Spark, beside a nested loop."""

from collections import Counter
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.spark.test_similarity import rank_pairs
from tests.support.streams import outcome, replay
from thetastream.conditions.sphere import POINT, measure_metres
from thetastream.index.measures import REGISTRY


@pytest.mark.parametrize("how", ["inner", "anti"])
def test_the_pairs_of_the_nested_loop(spark: SparkSession, how: str) -> None:
    chance, n, metres = np.random.default_rng(11), 300, 40_000
    points = []
    for _ in range(2):
        lat = np.clip(chance.choice([-90.0, 0.0, 51.5, 90.0], n) + chance.normal(0, 0.3, n), -90, 90)
        lon = (chance.choice([-180.0, 0.0, 155.0], n) + chance.normal(0, 0.3, n) + 180) % 360 - 180
        points.append((lat, lon))
    a, b = (
        spark.createDataFrame(
            [
                *((i, float(y), float(x)) for i, (y, x) in enumerate(zip(lat, lon, strict=True))),
                (n, None, 0.0),
                (n + 1, float("nan"), 0.0),
                (n + 2, 0.0, float("inf")),
            ],
            "id INT, lat DOUBLE, lon DOUBLE",
        )
        for lat, lon in points
    )
    (lat, lon), (other_lat, other_lon) = points
    is_near = measure_metres(lat[:, None], lon[:, None], other_lat, other_lon) <= metres
    plan = th.plan({"a": a, "b": b}, on=th.within_metres("a.lat", "a.lon", "b.lat", "b.lon", metres), how=how)
    assert "index     of stored a: grid" in plan.explain()
    if how == "inner":
        found = {tuple(row) for row in plan.dataframe().select("a.id", "b.id").collect()}
        assert found == set(zip(*map(np.ndarray.tolist, np.nonzero(is_near)), strict=True))
        assert len(found) > n
    else:
        alone = [row[0] for row in plan.dataframe().select("a.id").collect()]
        assert sorted(alone) == [*np.flatnonzero(~is_near.any(axis=1)).tolist(), n, n + 1, n + 2]


def test_a_statement_writes_what_metres_writes(spark: SparkSession) -> None:
    points = spark.createDataFrame([(1, 48.86, 2.35), (2, 51.51, -0.13)], "id INT, lat DOUBLE, lon DOUBLE")
    near = th.metres("a.lat", "a.lon", "b.lat", "b.lon")
    lines = near.replace(", ", ",\n    ")
    text = f"SELECT a.id, b.id AS bid FROM p a, p b WHERE {lines} < 100000"
    (row,) = th.sql(spark, f"EXPLAIN {text}", streams={"p": points}).collect()
    assert "units compute metres as Spark does" in row[0]
    found = th.sql(spark, text, streams={"p": points}).collect()
    assert sorted(map(tuple, found)) == [(1, 1), (2, 2)]
    half = "radians(a.lat - b.lat) / 2"
    haversine = f"2 * asin(sqrt(power(sin({half}), 2) + cos(radians(a.lat)) * cos(radians(b.lat))))"
    with pytest.raises(th.QueryError, match=r"another form; th\.within_metres\(.* and th\.metres writes"):
        th.plan({"a": points, "b": points}, on="a.id < b.id", how=th.Nearest(1, by=haversine))


@pytest.mark.slow
def test_metres_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Units compute the same bits, find what is far or near, and rank by it."""
    chance, n = np.random.default_rng(12), 120
    rows = [
        (i, int(i % 3), float(np.degrees(np.arcsin(y))), float(x), i)
        for i, (y, x) in enumerate(zip(chance.uniform(-1, 1, n), chance.uniform(-180, 180, n), strict=True))
    ]
    rows += [(n, 0, None, 0.0, n), (n + 1, 1, float("nan"), 0.0, n), (n + 2, 2, 0.0, float("inf"), n)]
    rows += [(n + 3, 0, 90.0, 7.0, n), (n + 4, 0, -90.0, 0.0, n), (n + 5, 0, 0.0, 0.0, n)]
    rows += [(n + 6 + i, 1, *rows[i][2:4], n) for i in range(20)]
    frame = spark.createDataFrame(rows, "id INT, k INT, lat DOUBLE, lon DOUBLE, ts INT").localCheckpoint()
    a, b, text = frame.alias("a"), frame.alias("b"), th.metres("a.lat", "a.lon", "b.lat", "b.lon")
    # 1. The values.
    point = POINT.format(lat="lat", lon="lon")
    points = frame.orderBy("id").selectExpr(f"{point} AS p").toArrow()["p"].combine_chunks()
    points = points.cast(pa.list_(pa.float64()))
    pairs = a.crossJoin(b).selectExpr("a.id", "b.id AS bid", f"{text} AS d").toArrow()
    found = REGISTRY["metres"].compute(points, pairs["id"].to_numpy(), points, pairs["bid"].to_numpy())
    wanted = pairs["d"]
    assert found.is_null.tolist() == wanted.is_null().to_pylist()
    assert found.is_null.sum() == 6 * len(rows) - 9
    known = ~found.is_null
    assert np.array_equal(found.values[known], wanted.to_numpy()[known])
    # 2. Limits that are the value of a pair.
    limits = np.sort(found.values[known])[[5_000, 200]].tolist()
    far, near = f"{text} > {limits[0]!r}D AND a.k = b.k", f"{text} <= {limits[1]!r}D"
    ours, own = [], []
    for on in (far, f"NOT {text} < {limits[0]!r}D", near):
        columns = [F.lit(on), "a.id", F.col("b.id").alias("bid")]
        plan = th.plan({"a": frame, "b": frame}, on=on)
        assert "units compute metres as Spark does" in plan.explain()
        ours.append(plan.dataframe().select(*columns))
        own.append(a.join(b, F.expr(on)).select(*columns))
    answers = [Counter(map(tuple, reduce(DataFrame.union, parts).collect())) for parts in (ours, own)]
    assert answers[0] == answers[1]
    assert len({on for on, *_ in answers[0]}) == 3
    # 3. The nearest, in a batch and of a stream beside a table.
    stream = replay(frame, [range(60), range(60, len(rows))], tmp_path)
    on = "a.k = b.k AND a.id <> b.id"  # Spark evaluates a part of it
    batch = th.join({"a": frame, "b": frame}, on=on, how=th.Nearest(2, by=text))
    batch = batch.select("a.id", F.col("b.id").alias("bid"))
    assert Counter(map(tuple, batch.collect())) == rank_pairs(frame, frame, on, text, False, 2)
    top = th.plan({"a": stream, "b": frame}, on="a.k = b.k", how=th.Nearest(2, by=text))
    assert "the nearest by metres; index hash_tiles leaves out what is surely farther" in top.explain()
    rows_of_top = outcome(top.dataframe(), ["a.id", F.col("b.id").alias("bid")], tmp_path).rows
    assert rows_of_top == rank_pairs(frame, frame, "a.k = b.k", text, False, 2)
