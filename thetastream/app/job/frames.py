"""Builds the DataFrames of a job: those of its sources, and that of its results.

[sources] -> streams;  [tasks] or sql -> results

It also finds the errors of a job file that only Spark finds.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from thetastream.app.job.spec import ARROW, REPLAY, Job, SinkSpec, SourceSpec, write_option
from thetastream.app.job.task_tables import TASKS
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import Statement, find_inputs
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
from thetastream.joins.tasks import JoinTasks
from thetastream.lowering.domains import quote
from thetastream.lowering.report import Fact, Section, print_sections
from thetastream.models.base import Model
from thetastream.spark.event_time import mark_event_time
from thetastream.spark.sinks.store import refuse_equal_columns
from thetastream.spark.tables.table import Table
from thetastream.spark.tables.versions import stage
from thetastream.statements.insert import refuse_equal_names
from thetastream.statements.sql import explain, run_script

PlacedProblem = tuple[str, ThetastreamError]
"""A section of a job file, and an error of it."""
_NUMBER = "__number"
"""The column with the place of a replayed row."""


def read(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Read the stream of a source."""
    if source.format == REPLAY:
        frame = replay(spark, source)
    else:
        frame = _load(spark, source)
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


def _load(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Open a source that is no replay."""
    if source.reader == ARROW:
        return th.read_parquet(spark, source.path or "", source.schema or "", **source.options)
    reader = spark.readStream.format(source.format)
    if source.schema is not None and source.decode is None:
        reader = reader.schema(source.schema)
    for key, value in source.options.items():
        reader = reader.option(key, write_option(value))
    return reader.load(source.path) if source.path is not None else reader.load()


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
        rows = run_script(spark, script, {TASKS: plan_tasks(spark, job).together}, None, {})
    else:
        rows = run_script(spark, script, _read_inputs(spark, job), job.model, job.options)
    _refuse_equal_names(rows, job.sink)
    return rows


def _refuse_equal_names(rows: DataFrame, sink: SinkSpec) -> None:
    """Refuse results with two columns of one name, if the sink cannot keep both."""
    if sink.kept is None:
        refuse_equal_names(rows, sink.format)
    else:
        refuse_equal_columns(rows.columns)


def plan_tasks(spark: SparkSession, job: Job) -> JoinTasks:
    """Plan the join tasks of a job over its sources."""
    sources = {source.name: read(spark, source) for source in job.sources}
    return th.join_many(sources, job.tasks, job.model, **job.options)


def explain_job(spark: SparkSession, job: Job) -> str:
    """Explain the plan of a job. If the job has errors, raise all of them, also those that Spark finds."""
    script = parse_script(job.sql)
    if job.tasks:
        tasks = plan_tasks(spark, job)
        rows = explain_results(spark, script, {TASKS: tasks.together}, None, {}, job)
        plan = f"{tasks.explain()}\n{rows}"
    else:
        inputs = _read_inputs(spark, job)
        plan = explain_results(spark, script, inputs, job.model, job.options, job)
    return f"{plan}\n{print_sections([describe_sink(job.sink)])}"


def explain_results(
    spark: SparkSession,
    script: Sequence[Statement],
    inputs: Mapping[str, DataFrame | Table],
    model: Model | None,
    options: Mapping[str, Any],
    job: Job | None,
) -> str:
    """Explain the plan of the last statement of a job. Raise the errors that a run would raise.

    Without a job, only those of the statements are raised.
    """
    explained = explain(spark, script, inputs, model, options)
    if job is not None:
        find_plan(explained.rows, job.rechoosing)
        _refuse_equal_names(explained.rows, job.sink)
    return explained.plan


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


def find_spark_problems(spark: SparkSession, document: Document) -> Iterator[PlacedProblem]:
    """Yield the errors that Spark finds in a job file: (section, error).

    If a source cannot be read, this is an error of its section, and the statements are checked over an empty
    stream with the columns that the file declares for the source. If the file declares none, the statements
    are not checked. A table that cannot be read has no such stand-in.
    """
    inputs: dict[str, DataFrame | Table] = {}
    named = (source.plain_name for _, source in find_inputs(document.script))
    for name in dict.fromkeys(document.sources if document.tasks else named):
        found, problems = _read_input(spark, document, name)
        yield from problems
        if found is None:
            return
        inputs[name] = found
    model, options = (None, {}) if document.job is None else (document.job.model, document.job.options)
    if document.tasks:
        yield from _find_task_problems(spark, document, inputs, model, options)
    else:
        yield from _find_sql_problems(spark, document, inputs, model, options)


def _read_input(
    spark: SparkSession, document: Document, name: str
) -> tuple[DataFrame | Table | None, list[PlacedProblem]]:
    """Read the source or the table of this name, and list its errors.

    A source that cannot be read is an empty stream with its declared columns, or None if they are unknown.
    A table that cannot be read is None.
    """
    problems: list[ThetastreamError] = []
    table, source = document.tables.get(name), document.sources.get(name)
    if table is not None:
        with _collect(problems, f"table {name!r}"):
            _ = table.read(spark).schema
        return None if problems else table, [(f"tables.{name}", problem) for problem in problems]
    if source is None:
        return None, []
    section = f"sources.{source.name}"
    if not document.problems.get(section):
        with _collect(problems, f"source {source.name!r}"):
            frame = read(spark, source)
            _ = frame.schema
            return frame, []
    declared = _read_declared(spark, source, document.columns.get(name))
    return declared, [(section, problem) for problem in problems]


@contextmanager
def _collect(problems: list[ThetastreamError], what: str) -> Iterator[None]:
    """Add the errors of the block to ``problems``. ``what`` is what it reads."""
    try:
        yield
    except PySparkException as error:
        problems.append(summarize(error, what))
    except ThetastreamError as error:
        problems.extend(list_problems(error))


def _find_sql_problems(
    spark: SparkSession,
    document: Document,
    inputs: Mapping[str, DataFrame | Table],
    model: Model | None,
    options: Mapping[str, Any],
) -> Iterator[PlacedProblem]:
    """Yield the errors of the statements over their inputs."""
    try:
        explain_results(spark, document.script, inputs, model, options, document.job)
    except ThetastreamError as error:
        for problem in list_problems(error):
            # If the file has errors, the check without Spark has reported missing and wrong event times.
            if document.job is not None or problem.condition != "NO_WATERMARK":
                yield SQL, problem


def _find_task_problems(
    spark: SparkSession,
    document: Document,
    sources: Mapping[str, Any],
    model: Model | None,
    options: Mapping[str, Any],
) -> Iterator[PlacedProblem]:
    """Yield the errors of join tasks over their sources; without any, those of the statements over them."""
    if any(document.problems.get(f"{TASKS}.{name}") for name in document.tasks):
        return
    streams = {document.sources[name].name: stream for name, stream in sources.items()}
    try:
        together = th.join_many(streams, document.tasks, model, **options).together
    except ThetastreamError as error:
        yield from _place_task_problems(error, streams, document.tasks, model, options)
    else:
        # The model and the options are those of the tasks.
        yield from _find_sql_problems(spark, document, {TASKS: together}, None, {})


def _place_task_problems(
    error: ThetastreamError,
    streams: Mapping[str, Any],
    tasks: Mapping[str, Mapping[str, Any]],
    model: Model | None,
    options: Mapping[str, Any],
) -> Iterator[PlacedProblem]:
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
