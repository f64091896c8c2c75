"""Runs a job on Spark: reads streams, starts the query, reports progress, and stops between two epochs."""

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from thetastream.errors import QueryError, SessionError, ThetastreamError, list_problems
from thetastream.job.document import SQL, Document
from thetastream.job.files import read_file
from thetastream.job.schemas import Columns
from thetastream.job.spec import REPLAY, Job, SourceSpec, is_local
from thetastream.plan.domains import quoted
from thetastream.spark.event_time import mark_event_time, write_delay
from thetastream.spark.refusals import summarize
from thetastream.spark.session import stderr_into
from thetastream.sql.grammar import parse_script
from thetastream.sql.query import explain, run_script
from thetastream.sql.statement import find_inputs

POLL_SECONDS = 0.2
_NUMBER = "__number"
LOCK = ".thetastream.lock"
LONGEST_LAG_S = 86_400
"""A larger lag is not reported, because event times that old come from a recording."""
Say = Callable[[dict[str, Any]], None]


def session(conf: dict[str, Any], log: str | Path = os.devnull) -> SparkSession:
    """Start the session of a job with the settings of its file; it is local unless they name a master.

    The standard error of Spark and its workers goes to the file ``log``.
    """
    with stderr_into(log):
        return _session(conf)


def _session(conf: dict[str, Any]) -> SparkSession:
    settings = {key: _to_text(value) for key, value in conf.items()}
    if "spark.master" not in settings and "spark.remote" not in settings and "MASTER" not in os.environ:
        return th.local_session(os.cpu_count() or 2, "thetastream", **settings)
    builder = SparkSession.builder.appName("thetastream")
    for key, value in settings.items():
        builder.config(key, value)
    partitions = settings.get("spark.sql.shuffle.partitions")
    if partitions is not None and not partitions.isdecimal():
        raise SessionError(
            "INVALID_PARTITIONS", f"spark.sql.shuffle.partitions ({partitions!r}) must be an integer"
        )
    return th.configure(builder, int(partitions) if partitions else None).getOrCreate()


def read(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Read the stream of a source."""
    if source.format == REPLAY:
        frame = replay(spark, source)
    else:
        reader = spark.readStream.format(source.format)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        for key, value in source.options.items():
            reader = reader.option(key, _to_text(value))
        frame = reader.load(source.path) if source.path is not None else reader.load()
        if source.select:
            frame = frame.selectExpr(*source.select)
    return frame if source.event_time is None else mark_event_time(frame, source.event_time, source.delay)


def replay(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Stream the rows of a file in the order of their event time, ``source.rate`` rows per second.

    Spark's rate source produces numbers, which are joined with the numbered rows. The rows are kept in
    memory.
    """
    rows = read_file(spark, source.name, Path(source.path or ""), source.schema, source.options)
    if source.select:
        rows = rows.selectExpr(*source.select)
    # The whole row breaks ties, so that a restarted job gives all rows the same numbers.
    order = Window.orderBy(source.event_time or "", F.to_json(F.struct("*")))
    numbered = rows.select("*", (F.row_number().over(order) - 1).alias(_NUMBER)).persist()
    clock = spark.readStream.format("rate").option("rowsPerSecond", source.rate or 1).load()
    named = clock.select(F.col("value").alias(_NUMBER))
    return named.join(numbered, _NUMBER).select(*(F.col(quoted(name)) for name in rows.columns))


def join_streams(spark: SparkSession, job: Job) -> DataFrame:
    """Build the streaming DataFrame of a job's results."""
    return run_script(spark, parse_script(job.sql), _read_streams(spark, job), job.model, {})


def explain_job(spark: SparkSession, job: Job) -> str:
    """Explain the plan of a job; raise all errors of the job, also those that Spark finds."""
    return explain(spark, job.sql, _read_streams(spark, job), job.model)


def find_spark_problems(spark: SparkSession, document: Document) -> Iterator[tuple[str, ThetastreamError]]:
    """Yield what Spark says about a job file: (section, error).

    A source that cannot be read is an error of its section. The statements are then checked over an empty
    stream with the columns that the file declares for it. Without declared columns, they are not checked.
    """
    streams: dict[str, DataFrame] = {}
    for name in dict.fromkeys(source.plain_name for _, source in find_inputs(document.script)):
        source, frame = document.sources.get(name), None
        if source is not None and not document.problems.get(f"sources.{source.name}"):
            try:
                frame = read(spark, source)
                _ = frame.schema
            except PySparkException as error:
                frame = None
                yield f"sources.{source.name}", summarize(error, f"source {source.name!r}")
        if frame is None and source is not None:
            frame = _read_declared(spark, source, document.columns.get(name))
        if frame is None:
            return
        streams[name] = frame
    last = replace(document.script[-1], is_explain=True)
    model = None if document.job is None else document.job.model
    try:
        run_script(spark, [*document.script[:-1], last], streams, model, {})
    except ThetastreamError as error:
        for problem in list_problems(error):
            # The file says already which event times are missing or wrong.
            if document.job is not None or problem.condition != "NO_WATERMARK":
                yield SQL, problem


def _read_declared(spark: SparkSession, source: SourceSpec, columns: Columns | None) -> DataFrame | None:
    """Make an empty stream with the declared columns of a source; None if they are unknown or wrong."""
    if columns is None or not all(columns.values()):
        return None
    empty = spark.readStream.format("rate").load()
    try:
        frame = empty.selectExpr(*(f"CAST(NULL AS {type_}) AS {quoted(n)}" for n, type_ in columns.items()))
        _ = frame.schema
    except PySparkException:
        return None
    times = [name for name, type_ in columns.items() if type_.upper().startswith("TIMESTAMP")]
    asked = (source.event_time or "").casefold()
    time = next((name for name in times if name.casefold() == asked), next(iter(times), None))
    return frame if time is None else frame.withWatermark(time, "0 seconds")


def _read_streams(spark: SparkSession, job: Job) -> dict[str, DataFrame]:
    return {source.name: read(spark, source) for source in job.sources}


def run(
    spark: SparkSession, job: Job, say: Say, until_caught_up: bool = False, seconds: float | None = None
) -> None:
    """Run a job until it is stopped, has caught up, or its time is over.

    SIGINT and SIGTERM let the running epoch finish. When the job is started again, it continues after the
    last epoch that is committed in its checkpoint.

    Raises
    ------
    ThetastreamError
        The query is wrong.
    StreamingQueryException
        If the query fails.
    """
    endless = [source.name for source in job.sources if source.format == REPLAY]
    if until_caught_up and endless:
        raise QueryError(
            "ENDLESS_SOURCE",
            f"--until-caught-up would never end, a replay is endless ({', '.join(endless)}); use --for",
        )
    # Every poll reads all reports that Spark keeps. Polls are so frequent that the last few are enough.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "20")
    with _catch_signals() as stop:
        writer = join_streams(spark, job).writeStream.format(job.sink.format).outputMode(job.sink.mode)
        for key, value in job.sink.options.items():
            writer = writer.option(key, _to_text(value))
        if job.sink.path is not None:
            writer = writer.option("path", job.sink.path)
        if until_caught_up:
            writer = writer.trigger(availableNow=True)
        elif job.trigger is not None:
            writer = writer.trigger(processingTime=write_delay(job.trigger))
        query = writer.option("checkpointLocation", job.checkpoint).start()
        try:
            _watch(query, say, stop, None if seconds is None else time.monotonic() + seconds)
        finally:
            query.stop()


def _watch(query: StreamingQuery, say: Say, stop: threading.Event, deadline: float | None) -> None:
    seen = -1
    leaving_after: int | None = None
    while True:
        is_active = query.isActive
        last = query.lastProgress
        if last is not None and (last.batchId > seen or not is_active):
            for epoch in _read_epochs(query, seen):
                seen = epoch["epoch"]
                say(epoch)
        if not is_active:
            query.awaitTermination()  # This raises the exception of a failed query.
            return
        if leaving_after is None and (
            stop.is_set() or (deadline is not None and time.monotonic() > deadline)
        ):
            leaving_after = seen
        # The query is stopped when an epoch has ended. The next epoch may have begun; the next run repeats
        # it.
        if leaving_after is not None and (seen > leaving_after or not query.status["isTriggerActive"]):
            query.stop()
            for epoch in _read_epochs(query, seen):
                say(epoch)
            return
        time.sleep(POLL_SECONDS)


def _read_epochs(query: StreamingQuery, seen: int) -> Iterator[dict[str, Any]]:
    counters: dict[int, dict[str, int]] = {}
    for epoch in th.metrics(query):
        sums = counters.setdefault(epoch["epoch"], {})
        for name in ("matched", "late", "state_bytes"):
            sums[name] = sums.get(name, 0) + epoch[name]
    for progress in query.recentProgress:
        if progress.batchId <= seen or not progress.durationMs.get("triggerExecution"):
            continue
        seen = progress.batchId
        yield {
            "epoch": progress.batchId,
            "tuples": progress.numInputRows,
            "tuples_per_s": round(progress.processedRowsPerSecond or 0),
            "seconds": progress.durationMs["triggerExecution"] / 1000,
            "watermark": (progress.eventTime or {}).get("watermark"),
            "lag_s": _measure_lag_s(progress.timestamp, (progress.eventTime or {}).get("max")),
            **counters.get(progress.batchId, {}),
        }


def _measure_lag_s(began: str, latest: str | None) -> float | None:
    """Compute how far the latest event time of an epoch was behind the clock when the epoch began."""
    if latest is None:
        return None
    behind = datetime.fromisoformat(began) - datetime.fromisoformat(latest)
    return round(max(0.0, behind.total_seconds()), 3)


def tell(epoch: dict[str, Any]) -> str:
    """Describe one epoch in one line.

    >>> tell({"epoch": 3, "tuples": 1200, "tuples_per_s": 600, "seconds": 2.0, "watermark": None, "late": 1})
    'epoch 3: 1,200 tuples in 2.0 s (600/s), 1 late'
    """
    line = f"epoch {epoch['epoch']}: {epoch['tuples']:,} tuples in {epoch['seconds']:.1f} s"
    line += f" ({epoch['tuples_per_s']:,}/s)"
    lag = epoch.get("lag_s")
    if lag is not None and lag < LONGEST_LAG_S:
        line += f", {lag:,.1f} s behind"
    if "matched" in epoch:
        line += f", {epoch['matched']:,} matches"
    if "state_bytes" in epoch:
        line += f", state {epoch['state_bytes'] / 1e6:.1f} MB"
    return line + (f", {epoch['late']:,} late" if epoch.get("late") else "")


@contextmanager
def lock(checkpoint: str) -> Iterator[str]:
    """Lock the checkpoint, because a second query on it would silently stop the first; yield a path for the
    log.

    Raises
    ------
    ThetastreamError
        CHECKPOINT_IN_USE, with the number of the process that holds the lock.
    """
    if not is_local(checkpoint):
        yield os.devnull
        return
    folder = Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise ThetastreamError(
                "CHECKPOINT_IN_USE",
                f"{checkpoint} belongs to a running job, process {file.read().strip() or 'unknown'}; "
                "stop it, or give this job a checkpoint of its own",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield f"{checkpoint.rstrip('/')}.log"


@contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _to_text(value: object) -> str:
    """Write a value as text for Spark's options, in which booleans are ``true`` and ``false``."""
    return json.dumps(value) if isinstance(value, bool) else str(value)
