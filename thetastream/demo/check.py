"""Counts the same pairs with DuckDB, over the whole data set at once."""

import time

import duckdb
import pyarrow as pa

# There are two statements, because DuckDB 2.0 runs one statement in minutes instead of a second. It would
# choose the difference of delays as the main condition of its inequality join, and read most of the year for
# every departure.
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
