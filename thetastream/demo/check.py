"""Counts the pairs of the demo with DuckDB, in one batch over all departures."""

import time

import duckdb
import pyarrow as pa

# There are two statements, because DuckDB 2.0 needs minutes for one statement with both conditions: it takes
# the difference of delays as the main condition of its inequality join, and so it reads most of the year for
# every departure. Two statements take a second.
_NEAR = """
CREATE TEMP TABLE near AS
SELECT a.distance AS a_distance, b.distance AS b_distance, a.dep_delay AS a_delay, b.dep_delay AS b_delay
FROM departures a JOIN departures b
  ON a.departed BETWEEN b.departed - INTERVAL 10 MINUTES AND b.departed + INTERVAL 10 MINUTES
"""
_COUNT = "SELECT count(*) FROM near WHERE abs(a_distance - b_distance) <= 25 AND a_delay > b_delay + 60"


def count(departures: pa.Table) -> tuple[int, float]:
    """Count the pairs with DuckDB; return their number and the seconds that it took."""
    with duckdb.connect() as connection:
        connection.register("departures", departures)
        started = time.perf_counter()
        connection.execute(_NEAR)
        row = connection.execute(_COUNT).fetchone()
        assert row is not None
        return int(row[0]), time.perf_counter() - started
