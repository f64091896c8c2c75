"""Random routing stores equal tuples at all units, so that no unit has more than the others."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thetastream as th
from tests.support.streams import outcome, replay


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::thetastream.errors.UnboundedStateWarning")
@pytest.mark.parametrize("kind", ["INT", "ARRAY<STRING>", "MAP<STRING, INT>"])
def test_equal_tuples_are_stored_at_all_units(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Spark cannot hash maps. Tuples with maps go where the hash of their other columns says."""
    value = {"INT": "7", "ARRAY<STRING>": "array('x')", "MAP<STRING, INT>": "map('x', 1)"}[kind]
    one = spark.sql(f"SELECT 0 AS id, {value} AS v")
    left = replay(one, [[0] * 300, [0] * 100], tmp_path)
    right = replay(one, [[], [0] * 2], tmp_path)
    joined = th.join({"a": left, "b": right}, on="a.id <= b.id", model=th.Biclique((4, 1)))
    found = outcome(joined, ["a.id"], tmp_path)
    assert found.rows == Counter({(0,): 800})
    held = sorted(unit["held"] for unit in found.metrics[-1]["units"])
    assert held == ([0, 0, 0, 2, 400] if kind.startswith("MAP") else [2, 100, 100, 100, 100])
