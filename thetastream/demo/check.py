"""The same question put to DuckDB, over the whole data set at once."""

import time

import duckdb
import pyarrow as pa

# Two statements on purpose: asked in one, DuckDB 2.0 takes the hour of difference for the main condition of
# its inequality join, walks most of the year for every departure, and needs minutes instead of a second.
_NEAR = """
CREATE TEMP TABLE near AS
SELECT a.distance AS a_distance, b.distance AS b_distance, a.dep_delay AS a_delay, b.dep_delay AS b_delay
FROM departures a JOIN departures b
  ON a.departed BETWEEN b.departed - INTERVAL 10 MINUTES AND b.departed + INTERVAL 10 MINUTES
"""
_COUNT = "SELECT count(*) FROM near WHERE abs(a_distance - b_distance) <= 25 AND a_delay > b_delay + 60"


def count(departures: pa.Table) -> tuple[int, float]:
    """How many pairs DuckDB finds, and the seconds it took."""
    with duckdb.connect() as connection:
        connection.register("departures", departures)
        started = time.perf_counter()
        connection.execute(_NEAR)
        row = connection.execute(_COUNT).fetchone()
        assert row is not None
        return int(row[0]), time.perf_counter() - started
