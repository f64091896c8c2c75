"""The distance on the sphere on Spark, beside a nested loop."""

import numpy as np
import pytest
from pyspark.sql import SparkSession

import thetastream as th
from thetastream.conditions.sphere import measure_metres


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
