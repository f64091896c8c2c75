"""Runs the demo: replays the data, joins it, checks the result against DuckDB, and draws a picture."""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import thetastream as th
from thetastream.demo import departures
from thetastream.demo.board import Board, Epoch
from thetastream.demo.screenshot import take_screenshot
from thetastream.demo.serving import HOST, refuse_port, serve_results
from thetastream.errors import ThetastreamError
from thetastream.spark.standard_error import stderr_into

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WITHIN = "10 minutes"
ON = "abs(a.distance - b.distance) <= 25 AND a.dep_delay > b.dep_delay + 60"
SETTINGS = {"spark.sql.session.timeZone": "UTC"}
MARKER = ".thetastream-demo"
"""The name of an empty file. It marks a folder that the demo has made and may empty."""


def run(rows: int | None = None, out: Path = Path("out/demo"), port: int | None = None) -> int:
    """Replay the departures through the join; return 0 if DuckDB counts the same number of pairs, else 1.

    With a port, the join and its results are served there, until the user stops the program.

    Raises
    ------
    QueryError
        SERVICE_PORT if the port cannot be used.
    """
    # A missing package and an unusable port are reported before Spark starts, which takes seconds.
    from thetastream.demo import picture

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
            command = "thetastream" if shutil.which("thetastream") else sys.argv[0]
            _say(f"         {command} demo --serve shows the running join and its results in a browser")
        else:
            _say(f"page     http://{HOST}:{port} (Ctrl-C stops it)")
            with suppress(KeyboardInterrupt):
                service.wait()
        return 0 if is_equal else 1


def _compare(pairs: "pd.DataFrame", table: "pa.Table", seconds: float) -> bool:
    """Count the pairs with DuckDB, and print both numbers; return whether they are equal."""
    from thetastream.demo import check

    expected, duckdb_seconds = check.count(table)
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
    table = departures.load(rows)
    departures.write_replay(table, folder)
    return table


def _start_join(spark: "SparkSession", store: th.ParquetStore, out: Path, units: int) -> "StreamingQuery":
    """Start the query that joins the departures with themselves and writes the pairs into the store."""

    def replay() -> "DataFrame":
        stream = spark.readStream.schema(departures.SCHEMA).option("maxFilesPerTrigger", 1)
        return stream.parquet(str(out / "replay")).withWatermark("departed", "1 minute")

    pairs = th.join(
        {"a": replay(), "b": replay()},
        on=ON,
        within=WITHIN,
        model=th.Biclique(units=(units, units)),
    )
    columns = [f"{alias}.{name} AS {alias}_{name}" for alias in "ab" for name in departures.COLUMNS]
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
