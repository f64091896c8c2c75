"""Runs a job on Spark: reads streams, starts the query, describes its epochs, and stops it between epochs."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from thetastream.app.job.decoding import DeadLetters, decode
from thetastream.app.job.document import SQL, Document
from thetastream.app.job.files import read_file
from thetastream.app.job.schemas import Columns
from thetastream.app.job.spec import REPLAY, Job, SinkSpec, SourceSpec, write_option
from thetastream.app.job.stopping import CUT, StopRequests, catch_signals
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import find_inputs
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import (
    QueryError,
    ThetastreamError,
    list_problems,
    suggest_or_list,
)
from thetastream.core.spans import AVAILABLE_NOW, write_delay
from thetastream.joins.ask.refusals import summarize
from thetastream.joins.ask.watermark import with_watermark
from thetastream.joins.changes import DEBEZIUM, UPSERT
from thetastream.lowering.domains import quote
from thetastream.lowering.report import Fact, Section, print_sections
from thetastream.runtime.checkpoint_files import refuse_damaged, update_paths
from thetastream.runtime.control.newest_offset import wait_for_progress
from thetastream.runtime.control.policies import Policy, encode_policy
from thetastream.runtime.observe.epoch_lines import PAIRS_FOUND, are_second_units, read_kind
from thetastream.spark.changes import keep_groups
from thetastream.spark.end_of_input import end_input
from thetastream.spark.event_time import mark_event_time
from thetastream.spark.observe.reports import count_input_rows, read_reports
from thetastream.spark.sinks.file_sink_log import finish_epoch
from thetastream.spark.tables.table import Table
from thetastream.spark.tables.versions import stage
from thetastream.statements.sql import explain, run_script

POLL_SECONDS = 0.2
"""The pause between two looks at the query."""
_NUMBER = "__number"
"""The column with the place of a replayed row."""
EpochListener = Callable[[dict[str, Any]], None]
"""A function that is called with the figures of each epoch."""
LONGEST_LAG_S = 86_400
"""A larger lag is not shown, because so old event times come from a recording."""


def read(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Read the stream of a source."""
    if source.format == REPLAY:
        frame = replay(spark, source)
    else:
        reader = spark.readStream.format(source.format)
        if source.schema is not None and source.decode is None:
            reader = reader.schema(source.schema)
        for key, value in source.options.items():
            reader = reader.option(key, write_option(value))
        frame = reader.load(source.path) if source.path is not None else reader.load()
        if source.decode is not None:
            frame = decode(frame, source)
        if source.changes is not None and source.changes.get("format") == DEBEZIUM:
            # The records are read first, and then the columns of the row.
            changed = th.changes(frame, **source.changes)
            if source.select:
                changed = changed.selectExpr(*source.select, CHANGE_TYPE)
            return _mark_time(changed, source)
        if source.select:
            frame = frame.selectExpr(*source.select)
    if source.changes is None:
        return _mark_time(frame, source)
    if source.changes.get("format") == UPSERT:
        # Units forget the rows of keys by the watermark before them.
        return th.changes(_mark_time(frame, source), **source.changes)
    return _mark_time(th.changes(frame, **source.changes), source)


def _mark_time(frame: DataFrame, source: SourceSpec) -> DataFrame:
    """Mark the event time of a source, if it has one."""
    if source.by_arrival is not None:
        return th.by_arrival(frame, **source.by_arrival)
    if source.event_time is None:
        return frame
    if source.idle is None:
        return mark_event_time(frame, source.event_time, source.delay)
    return with_watermark(frame, source.event_time, source.delay, source.idle)


def replay(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Stream the rows of a file in the order of their event time, ``source.rate`` rows per second.

    Spark's rate source produces numbers, which are joined with the numbered rows. The rows are kept in
    memory.
    """
    rows = read_file(spark, source.name, Path(source.path or ""), source.schema, source.options)
    if source.select:
        rows = rows.selectExpr(*source.select)
    # Rows of the same time are ordered by their content, so that a restarted job gives them the same numbers.
    order = Window.orderBy(source.event_time or "", F.to_json(F.struct("*")))
    numbered = rows.select("*", (F.row_number().over(order) - 1).alias(_NUMBER)).persist()
    clock = spark.readStream.format("rate").option("rowsPerSecond", source.rate or 1).load()
    named = clock.select(F.col("value").alias(_NUMBER))
    return named.join(numbered, _NUMBER).select(*(F.col(quote(name)) for name in rows.columns))


def join_streams(spark: SparkSession, job: Job) -> DataFrame:
    """Build the streaming DataFrame of a job's results."""
    return run_script(spark, parse_script(job.sql), _read_inputs(spark, job), job.model, job.options)


def explain_job(spark: SparkSession, job: Job) -> str:
    """Explain the plan of a job. If the job has errors, raise all of them, also those that Spark finds."""
    plan = explain(spark, job.sql, _read_inputs(spark, job), job.model, job.options)
    return f"{plan}\n{print_sections([describe_sink(job.sink)])}"


def describe_sink(sink: SinkSpec) -> Section:
    """Say who writes the results of a job: units write into stores only."""
    if sink.kept is None:
        what = f"{sink.format}: Spark hands rows to its own sink. Units write into a store only"
    else:
        what = f"{sink.kept.store}: rows are written as 'Writing into a store' says"
    return Section("Sink of the job", (Fact("", what),))


def stage_tables(spark: SparkSession, job: Job, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Stage those tables of a job that have changed; yield what ``th.stage`` returns, with the ``table``.

    Without names, all tables of the job are staged.

    Raises
    ------
    QueryError
        UNKNOWN_SOURCE if the job has no such table, or those of ``th.stage``.
    """
    chosen = [name.casefold() for name in names] or list(job.tables)
    for name in chosen:
        if name not in job.tables:
            what = f"the job has no table {name!r}" + suggest_or_list(name, job.tables)
            raise QueryError("UNKNOWN_SOURCE", f"{what}; write [tables.{name}]")
    explain_job(spark, job)
    for name in chosen:
        for line in stage(job.tables[name]):
            yield {"table": name, **line}


def find_spark_problems(spark: SparkSession, document: Document) -> Iterator[tuple[str, ThetastreamError]]:
    """Yield the errors that Spark finds in a job file: (section, error).

    If a source cannot be read, this is an error of its section, and the statements are checked over an empty
    stream with the columns that the file declares for the source. If the file declares none, the statements
    are not checked.
    """
    streams: dict[str, DataFrame | Table] = {}
    for name in dict.fromkeys(source.plain_name for _, source in find_inputs(document.script)):
        source, frame = document.sources.get(name), None
        if source is not None and not document.problems.get(f"sources.{source.name}"):
            try:
                frame = read(spark, source)
                _ = frame.schema
            except PySparkException as error:
                frame = None
                yield f"sources.{source.name}", summarize(error, f"source {source.name!r}")
            except ThetastreamError as error:
                yield from ((f"sources.{source.name}", problem) for problem in list_problems(error))
        if frame is None and source is not None:
            frame = _read_declared(spark, source, document.columns.get(name))
        table = document.tables.get(name)
        if table is not None:
            try:
                _ = table.read(spark).schema
            except PySparkException as error:
                yield f"tables.{name}", summarize(error, f"table {name!r}")
                return
        found = table or frame
        if found is None:
            return
        streams[name] = found
    last = replace(document.script[-1], is_explain=True)
    job = document.job
    model, options = (None, {}) if job is None else (job.model, job.options)
    try:
        run_script(spark, [*document.script[:-1], last], streams, model, options)
    except ThetastreamError as error:
        for problem in list_problems(error):
            # If the file has errors, the check without Spark has reported missing and wrong event times.
            if document.job is not None or problem.condition != "NO_WATERMARK":
                yield SQL, problem


def _read_declared(spark: SparkSession, source: SourceSpec, columns: Columns | None) -> DataFrame | None:
    """Make an empty stream with the declared columns of a source; None if they are unknown or wrong."""
    if columns is None or not all(columns.values()):
        return None
    empty = spark.readStream.format("rate").load()
    try:
        frame = empty.selectExpr(*(f"CAST(NULL AS {type_}) AS {quote(n)}" for n, type_ in columns.items()))
        _ = frame.schema
    except PySparkException:
        return None
    times = [name for name, type_ in columns.items() if type_.upper().startswith("TIMESTAMP")]
    asked = (source.event_time or "").casefold()
    time = next((name for name in times if name.casefold() == asked), next(iter(times), None))
    return frame if time is None else frame.withWatermark(time, "0 seconds")


def _read_inputs(spark: SparkSession, job: Job) -> dict[str, DataFrame | Table]:
    return {**{source.name: read(spark, source) for source in job.sources}, **job.tables}


def run(
    spark: SparkSession,
    job: Job,
    say: EpochListener,
    until_caught_up: bool = False,
    seconds: float | None = None,
    finish: bool = False,
    *,
    wait_s: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
    measure: Callable[[StreamingQuery], None] | None = None,
) -> None:
    """Run a job until it is stopped, has caught up, has finished, or its time is over.

    SIGINT and SIGTERM let the running epoch finish, for which the job waits ``wait_s`` seconds, or as long as
    it takes. A second signal stops it at once. When the job is started again, it continues after the
    last epoch that is committed in its checkpoint. With ``finish``, or if the job asks for it, one more epoch
    decides every row when the job has caught up. ``tell`` gets what the user should know while it stops, and
    ``measure`` gets a query after its epochs, before Spark forgets what it has reported about them.

    Raises
    ------
    ThetastreamError
        If the job is wrong.
    StreamingQueryException
        If the query fails.
    """
    endless = [source.name for source in job.sources if source.format == REPLAY]
    finish = finish or job.is_finished
    asked = "finish" if finish else "--until-caught-up"
    if job.ends_when_caught_up and not (finish or until_caught_up):
        asked = f'trigger = "{AVAILABLE_NOW}"'
    until_caught_up = until_caught_up or finish or job.ends_when_caught_up
    if until_caught_up and endless:
        what = f"{asked} needs sources that end, and a replay never ends ({', '.join(endless)})"
        raise QueryError("ENDLESS_SOURCE", f"{what}; use --for")
    # Each look at the query reads all reports that Spark keeps. After a short pause, the last few are enough.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "20")
    with catch_signals(seconds, wait_s) as stop:
        results = join_streams(spark, job)
        # Arrow does not open each URI that Spark opens. Then Spark reports wrong paths and unfinished epochs.
        with suppress(OSError, pa.ArrowException):
            refuse_damaged(job.checkpoint)
            update_paths(job.checkpoint)
            if job.sink.path is not None:
                finish_epoch(results, job.checkpoint, job.sink.path)
        stop.begin()
        # With ``finish``, the query starts a second time, for the epoch after the end of the input.
        while True:
            query = _start(results, job, until_caught_up)
            report = say if job.policy is None else _follow_after_first(say, query, job.policy)
            dead_letters = DeadLetters()
            try:
                dead_letters.start(spark, job, until_caught_up)
                has_ended = _watch(query, dead_letters, report, stop, tell, measure)
                dead_letters.finish(until_caught_up)
                last = dead_letters.count_new()
                if any(last.values()):
                    say(last)
                if measure is not None:
                    measure(query)
            finally:
                query.stop()
                dead_letters.stop()
            if not (finish and has_ended and end_input(job.checkpoint)):
                return


def _follow_after_first(say: EpochListener, query: StreamingQuery, policy: Policy) -> EpochListener:
    """Ask for a policy of each join after the first epoch, which says where the control folders are.

    A join that has followed this policy before follows it from the beginning.
    """
    is_asked = False

    def report(epoch: dict[str, Any]) -> None:
        nonlocal is_asked
        say(epoch)
        if is_asked:
            return
        is_asked = True
        for offset in wait_for_progress(query):
            if "control" in offset:
                handle = th.control(query, offset["control"]["join"])
                if handle.plan.policy != encode_policy(policy):
                    handle.follow(policy)

    return report


def _start(results: DataFrame, job: Job, until_caught_up: bool) -> StreamingQuery:
    """Start the query that writes results into the sink of a job."""
    if job.sink.kept is not None:
        trigger = AVAILABLE_NOW if until_caught_up else job.trigger
        return job.sink.kept.start(results, job.checkpoint, trigger, job.name)
    results = results if job.sink.mode == "update" else keep_groups(results)
    writer = results.writeStream.format(job.sink.format).outputMode(job.sink.mode)
    for key, value in job.sink.options.items():
        writer = writer.option(key, write_option(value))
    if job.sink.path is not None:
        writer = writer.option("path", job.sink.path)
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    elif job.trigger is not None:
        writer = writer.trigger(processingTime=write_delay(job.trigger))
    if job.name is not None:
        writer = writer.queryName(job.name)
    return writer.option("checkpointLocation", job.checkpoint).start()


def _watch(
    query: StreamingQuery,
    dead_letters: DeadLetters,
    say: EpochListener,
    stop: StopRequests,
    tell: Callable[[str], None],
    measure: Callable[[StreamingQuery], None] | None = None,
) -> bool:
    """Report epochs until the query ends. If it has to stop, stop it after an epoch, or at once.

    Returns
    -------
    bool
        Whether the query has ended by itself.
    """
    seen = -1
    last_before_stop: int | None = None
    while True:
        is_active = query.isActive
        last = query.lastProgress
        if last is not None and (last.batchId > seen or not is_active):
            for epoch in read_epochs(query, seen):
                seen = epoch["epoch"]
                say(epoch | dead_letters.count_new())
            if measure is not None:
                measure(query)
        if not is_active:
            query.awaitTermination()  # This raises the exception of a failed query.
            return True
        runs_epoch = query.status["isTriggerActive"]
        if last_before_stop is None and stop.must_stop():
            last_before_stop = seen
            if stop.n_signals and runs_epoch:
                tell(stop.describe_wait())
        # The query is stopped when the running epoch has ended. The next epoch may have begun by then. If so,
        # the next run repeats it.
        has_ended = last_before_stop is not None and (seen > last_before_stop or not runs_epoch)
        if has_ended or (last_before_stop is not None and stop.must_stop_now()):
            query.stop()
            for epoch in read_epochs(query, seen):
                say(epoch)
            if not has_ended:
                tell(CUT)
            return False
        time.sleep(POLL_SECONDS)


def read_epochs(query: StreamingQuery, seen: int) -> Iterator[dict[str, Any]]:
    """Read the epochs after number ``seen`` from Spark's progress and from the counters of the joins."""
    counters: dict[int, dict[str, Any]] = {}
    for epoch in th.metrics(query):
        sums = counters.setdefault(epoch["epoch"], {})
        # The second units of a join receive candidates that its first units have counted as matches.
        for name in (
            ("late", "state_bytes") if are_second_units(epoch) else ("matched", "late", "shed", "state_bytes")
        ):
            sums[name] = sums.get(name, 0) + epoch[name]
        kind = read_kind(epoch)
        if kind is not None:
            sums["kinds"] = list(dict.fromkeys([*sums.get("kinds", ()), kind]))
    for report in read_reports(query):
        epoch, spent_ms = report["batchId"], report["durationMs"].get("triggerExecution")
        if epoch <= seen or not spent_ms:
            continue
        seen, event_time = epoch, report.get("eventTime") or {}
        tuples = count_input_rows(report)
        yield {
            "epoch": epoch,
            "tuples": tuples,
            "tuples_per_s": round(1000 * tuples / spent_ms),
            "seconds": spent_ms / 1000,
            "watermark": event_time.get("watermark"),
            "lag_s": _measure_lag_s(report["timestamp"], event_time.get("max")),
            **counters.get(epoch, {}),
        }


def _measure_lag_s(began: str, latest: str | None) -> float | None:
    """Compute how far the latest event time of an epoch was behind the clock when the epoch began."""
    if latest is None:
        return None
    behind = datetime.fromisoformat(began) - datetime.fromisoformat(latest)
    return round(max(0.0, behind.total_seconds()), 3)


def describe_epoch(epoch: dict[str, Any]) -> str:
    """Describe one epoch in one line.

    >>> figures = {"epoch": 3, "tuples": 1200, "tuples_per_s": 600, "seconds": 2.0, "watermark": None}
    >>> describe_epoch({**figures, "late": 1})
    'epoch 3: 1,200 tuples in 2.0 s (600/s), 1 late'

    The counter of joins that are not inner is that of the pairs that were found, which are not the results.

    >>> describe_epoch({**figures, "matched": 1660, "kinds": ["anti"]})
    'epoch 3: 1,200 tuples in 2.0 s (600/s), 1,660 pairs found'

    Dead letters that are found after the last epoch have a line of their own.

    >>> describe_epoch({"dead_letters": 2})
    '2 dead letters'
    """
    dead = f"{epoch['dead_letters']:,} dead letters" if epoch.get("dead_letters") else ""
    if "epoch" not in epoch:
        return dead
    line = f"epoch {epoch['epoch']}: {epoch['tuples']:,} tuples in {epoch['seconds']:.1f} s"
    line += f" ({epoch['tuples_per_s']:,}/s)"
    lag = epoch.get("lag_s")
    if lag is not None and lag < LONGEST_LAG_S:
        line += f", {lag:,.1f} s behind"
    if "matched" in epoch:
        line += f", {_describe_matched(epoch)}"
    if "state_bytes" in epoch:
        line += f", state {epoch['state_bytes'] / 1e6:.1f} MB"
    if epoch.get("late"):
        line += f", {epoch['late']:,} late"
    return f"{line}, {dead}" if dead else line


def _describe_matched(figures: Mapping[str, Any]) -> str:
    name = PAIRS_FOUND if figures.get("kinds") else "matches"
    return f"{figures['matched']:,} {name}"


class Totals:
    """What the epochs of one run sum up to."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {"epochs": 0, "tuples": 0, "seconds": 0.0}
        self._kinds: dict[str, None] = {}

    def add(self, epoch: Mapping[str, Any]) -> None:
        """Add an epoch, or the dead letters that are found after the last one."""
        self._sums["epochs"] += "epoch" in epoch
        for name in ("tuples", "seconds", "matched", "late", "shed", "dead_letters"):
            if name in epoch:
                self._sums[name] = self._sums.get(name, 0) + epoch[name]
        self._kinds |= dict.fromkeys(epoch.get("kinds", ()))

    def as_dict(self) -> dict[str, float]:
        """Return the sums by name, and tuples for each second of the epochs."""
        tuples, seconds = self._sums["tuples"], self._sums["seconds"]
        return self._sums | {"seconds": round(seconds, 3), "tuples_per_s": round(tuples / (seconds or 1))}

    def describe(self) -> str:
        """Describe the sums in one line.

        >>> totals = Totals()
        >>> for number in range(2):
        ...     totals.add({"epoch": number, "tuples": 1200, "seconds": 2.0, "matched": 5, "late": number})
        >>> totals.describe()
        'total: 2 epochs, 2,400 tuples in 4.0 s (600/s), 10 matches, 1 late'
        """
        sums = self.as_dict()
        line = f"total: {sums['epochs']:,} epochs, {sums['tuples']:,} tuples in {sums['seconds']:,.1f} s"
        line += f" ({sums['tuples_per_s']:,}/s)"
        if "matched" in sums:
            line += f", {_describe_matched({**sums, 'kinds': [*self._kinds]})}"
        for name, words in (("late", "late"), ("shed", "shed"), ("dead_letters", "dead letters")):
            if sums.get(name):
                line += f", {sums[name]:,} {words}"
        return line
