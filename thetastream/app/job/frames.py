"""Builds the DataFrames of a job: those of its sources, and that of its results.

[sources] -> streams;  [tasks] or sql -> results

It also finds the errors of a job file that only Spark finds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import thetastream as th
from thetastream.app.job.decoding import decode
from thetastream.app.job.document import SQL, Document
from thetastream.app.job.files import read_file
from thetastream.app.job.rechoosing import find_plan
from thetastream.app.job.schemas import Columns
from thetastream.app.job.spec import REPLAY, Job, SinkSpec, SourceSpec, write_option
from thetastream.app.job.task_tables import TASKS
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import find_inputs
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import (
    QueryError,
    ThetastreamError,
    list_problems,
    suggest_or_list,
)
from thetastream.joins.ask.refusals import summarize
from thetastream.joins.ask.watermark import with_watermark
from thetastream.joins.changes import DEBEZIUM, UPSERT
from thetastream.joins.compose.lookups import leave_unstaged
from thetastream.joins.tasks import JoinTasks
from thetastream.lowering.domains import quote
from thetastream.lowering.report import Fact, Section, print_sections
from thetastream.models.base import Model
from thetastream.spark.event_time import mark_event_time
from thetastream.spark.tables.table import Table
from thetastream.spark.tables.versions import stage
from thetastream.statements.sql import explain, run_script

_NUMBER = "__number"
"""The column with the place of a replayed row."""


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
    script = parse_script(job.sql)
    if job.tasks:
        return run_script(spark, script, {TASKS: plan_tasks(spark, job).together}, None, {})
    return run_script(spark, script, _read_inputs(spark, job), job.model, job.options)


def plan_tasks(spark: SparkSession, job: Job) -> JoinTasks:
    """Plan the join tasks of a job over its sources."""
    sources = {source.name: read(spark, source) for source in job.sources}
    return th.join_many(sources, job.tasks, job.model, **job.options)


def explain_job(spark: SparkSession, job: Job) -> str:
    """Explain the plan of a job. If the job has errors, raise all of them, also those that Spark finds."""
    if job.tasks:
        tasks = plan_tasks(spark, job)
        plan = f"{tasks.explain()}\n{explain(spark, job.sql, {TASKS: tasks.together})}"
    else:
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
    named = (source.plain_name for _, source in find_inputs(document.script))
    for name in dict.fromkeys(document.sources if document.tasks else named):
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
    if any(document.problems.get(f"{TASKS}.{name}") for name in document.tasks):
        return
    if document.tasks:
        frames = {document.sources[name].name: frame for name, frame in streams.items()}
        try:
            streams = {TASKS: th.join_many(frames, document.tasks, model, **options).together}
        except ThetastreamError as error:
            yield from _place_task_problems(error, frames, document.tasks, model, options)
            return
        model, options = None, {}
    try:
        if job is not None and job.rechoosing is not None:
            with leave_unstaged():
                find_plan(run_script(spark, document.script, streams, model, options))
        else:
            run_script(spark, [*document.script[:-1], last], streams, model, options)
    except ThetastreamError as error:
        for problem in list_problems(error):
            # If the file has errors, the check without Spark has reported missing and wrong event times.
            if document.job is not None or problem.condition != "NO_WATERMARK":
                yield SQL, problem


def _place_task_problems(
    error: ThetastreamError,
    streams: Mapping[str, Any],
    tasks: Mapping[str, Mapping[str, Any]],
    model: Model | None,
    options: Mapping[str, Any],
) -> Iterator[tuple[str, ThetastreamError]]:
    """Yield the errors of join tasks, each with the section of the first task that has it.

    ``error`` is that of all tasks together. If no task has errors alone, those of it are yielded.
    """
    found: dict[str, tuple[str, ThetastreamError]] = {}
    for name, task in tasks.items():
        try:
            th.join_many(streams, {name: task}, model, **options)
        except ThetastreamError as alone:
            for problem in list_problems(alone):
                found.setdefault(str(problem), (f"{TASKS}.{name}", problem))
    yield from found.values()
    if not found:
        yield from ((f"{TASKS}.{next(iter(tasks))}", problem) for problem in list_problems(error))


def _read_declared(spark: SparkSession, source: SourceSpec, columns: Columns | None) -> DataFrame | None:
    """Make an empty stream with the declared columns of a source; None if they are unknown or wrong."""
    if columns is None or not all(columns.values()):
        return None
    empty = spark.readStream.format("rate").load()
    times = [name for name, type_ in columns.items() if type_.upper().startswith("TIMESTAMP")]
    asked = (source.event_time or "").casefold()
    time = next((name for name in times if name.casefold() == asked), next(iter(times), None))
    try:
        frame = empty.selectExpr(*(f"CAST(NULL AS {type_}) AS {quote(n)}" for n, type_ in columns.items()))
        marked = frame if time is None else frame.withWatermark(time, "0 seconds")
        _ = marked.schema
    except PySparkException:
        return None
    return marked


def _read_inputs(spark: SparkSession, job: Job) -> dict[str, DataFrame | Table]:
    return {**{source.name: read(spark, source) for source in job.sources}, **job.tables}
