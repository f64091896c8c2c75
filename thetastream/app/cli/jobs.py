"""The commands that write, check, explain and run jobs.

``thetastream init`` writes a job that runs without changes, and its two small streams.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path
from typing import Any, Literal

from pyspark.sql.streaming.query import StreamingQuery

from thetastream.app.cli.shared_arguments import AddCommand, open_session, read_seconds
from thetastream.app.job.check import Finding, check_job
from thetastream.app.job.checkpoint import lock
from thetastream.app.job.document import read_job
from thetastream.app.job.frames import explain_job, stage_tables
from thetastream.app.job.json_schema import write_schema
from thetastream.app.job.run import Totals, describe_epoch
from thetastream.app.job.run import run as run_job
from thetastream.app.job.statistics_table import select_known, write_table
from thetastream.core.errors import ThetastreamError
from thetastream.joins.measured_statistics import Meter
from thetastream.runtime.observe.open_telemetry import OTLP
from thetastream.spark.observe.export import export_metrics

_SCHEMA = "job.schema.json"
_JOB = f"""\
#:schema ./{_SCHEMA}
# This job joins every bid with the asks of its symbol that cost at most as much, up to a minute apart.
#   thetastream check job.toml
#   thetastream run job.toml --until-caught-up
sql = \"\"\"
SELECT ONLINE b.id AS bid, a.id AS ask, b.symbol, b.price - a.price AS crossed
FROM bids b, asks a
WHERE b.symbol = a.symbol AND b.price >= a.price
WITHIN 1 minute
\"\"\"
checkpoint = "checkpoint"

[sources.bids]
format = "csv"
path = "bids"
schema = "id INT, symbol STRING, price DOUBLE, ts TIMESTAMP"
event_time = "ts"
delay = "10 seconds"
options = {{ header = true, maxFilesPerTrigger = 1 }}

[sources.asks]
format = "csv"
path = "asks"
schema = "id INT, symbol STRING, price DOUBLE, ts TIMESTAMP"
event_time = "ts"
delay = "10 seconds"
options = {{ header = true, maxFilesPerTrigger = 1 }}

[sink]
format = "parquet"
path = "matches"

[spark]
"spark.sql.session.timeZone" = "UTC"
"""
FILES, PER_FILE = 3, 200
FIRST_FILE_S = 1_700_000_000
"""Modification time of the first file; Spark reads files in the order of their modification times."""


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add("init", init, "write a job that runs, and two small streams to run it on")
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")

    add("schema", print_schema, "print the JSON Schema of job files, with which editors complete them")

    parser = add("check", check, "list everything that is wrong with a job")
    _add_job_arguments(parser)

    parser = add(
        "run",
        run,
        "run a job; a job that was stopped continues from its checkpoint",
        epilog="examples:\n  thetastream run job.toml\n  thetastream run job.toml --until-caught-up --json\n"
        "\nCtrl-C and SIGTERM let the running epoch finish. The second one stops the job at once, and the\n"
        "next run repeats the epoch.",
    )
    _add_job_arguments(parser)
    parser.add_argument(
        "--until-caught-up", action="store_true", help="end when all available input has been read"
    )
    parser.add_argument(
        "--finish",
        action="store_true",
        help="end when all available input has been read, and decide every row: no more input comes",
    )
    parser.add_argument(
        "--for", dest="seconds", type=read_seconds, metavar="60s", help="end after this time: 60s, 5m, 2h"
    )
    parser.add_argument(
        "--stop-within",
        type=read_seconds,
        metavar="60s",
        help="stop in the middle of an epoch if it has not ended so long after Ctrl-C, SIGTERM or --for",
    )
    parser.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="add a line of metrics for each epoch to this file, which thetastream serve can show",
    )
    parser.add_argument(
        "--prometheus",
        type=int,
        metavar="PORT",
        help="let Prometheus read metrics at this port",
    )
    parser.add_argument(
        "--otlp",
        action="store_true",
        help="send metrics to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_ENDPOINT names",
    )
    parser.add_argument(
        "--statistics",
        action="store_true",
        help="print the table [statistics] of the job with what all epochs of the run measured, when it ends",
    )

    parser = add(
        "stage",
        stage,
        "look whether tables of a job have changed, and stage their rows as new versions",
        epilog="examples:\n  thetastream stage job.toml prices\n\n"
        "A scheduler may call it while the job runs. The next epoch reads the new version.",
    )
    _add_job_arguments(parser)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="names of tables; all tables by default")

    parser = add("explain", explain, "show how the join of a job will run")
    _add_job_arguments(parser)


def _add_job_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="the file that describes the job")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def init(arguments: argparse.Namespace) -> int:
    """Write a job, and the streams that it joins."""
    write_template(arguments.folder)
    job = arguments.folder / "job.toml"
    print(f"{job} is written; run it with: thetastream run {job} --until-caught-up")
    return 0


def write_template(folder: Path) -> None:
    """Write the job and its streams into a new or empty folder."""
    if folder.exists() and any(folder.iterdir()):
        raise ThetastreamError("FOLDER_NOT_EMPTY", f"{folder} must be a new or empty folder")
    chance = random.Random(1)
    for stream, edge in (("bids", -0.2), ("asks", 0.2)):
        (folder / stream).mkdir(parents=True)
        for number in range(FILES):
            lines = ["id,symbol,price,ts"]
            for row in range(number * PER_FILE, (number + 1) * PER_FILE):
                price = 100 + edge + chance.gauss(0, 0.1)
                minute, second = divmod(row, 60)
                symbol = chance.choice(["AAA", "BBB", "CCC"])
                lines.append(f"{row},{symbol},{price:.2f},2024-01-02T09:{minute:02}:{second:02}Z")
            file = folder / stream / f"{number}.csv"
            file.write_text("\n".join(lines) + "\n")
            os.utime(file, (FIRST_FILE_S + number,) * 2)
    (folder / "job.toml").write_text(_JOB)
    # Editors read it because of the first line of the job.
    (folder / _SCHEMA).write_text(write_schema())


def print_schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of job files."""
    print(write_schema(), end="")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Print every error of a job."""

    def say(finding: Finding) -> None:
        print(json.dumps(finding.as_dict()) if arguments.json else finding, flush=True)

    if check_job(arguments.job, open_session, say):
        return 1
    print(json.dumps({"ok": True}) if arguments.json else f"{arguments.job} is fine")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run a job, and print its epochs and their totals."""
    totals = Totals()

    def say(epoch: dict[str, Any]) -> None:
        totals.add(epoch)
        print(json.dumps(epoch) if arguments.json else describe_epoch(epoch), flush=True)

    def tell(what: str) -> None:
        print(f"thetastream: {what}", file=sys.stderr, flush=True)

    meters: dict[str, Meter] = {}

    def measure(query: StreamingQuery) -> None:
        meters.setdefault(str(query.runId), Meter()).look(query)

    job = read_job(arguments.job)
    with lock(job.checkpoint) as log, open_session(job.spark, log) as spark:
        if arguments.metrics is not None or arguments.otlp or arguments.prometheus is not None:
            sent_to: Literal["otlp"] | None = OTLP if arguments.otlp else None
            port = arguments.prometheus
            export = export_metrics(spark, port=port, json_lines=arguments.metrics, open_telemetry=sent_to)
            if export.url is not None:
                tell(f"metrics for Prometheus are at {export.url}")
        run_job(
            spark,
            job,
            say,
            arguments.until_caught_up,
            arguments.seconds,
            arguments.finish,
            wait_s=arguments.stop_within,
            tell=tell,
            measure=measure if arguments.statistics else None,
        )
    print(json.dumps({"total": totals.as_dict()}) if arguments.json else totals.describe())
    # A job that finishes has two queries, and the second one brings no tuples.
    for meter in [*meters.values()][:1]:
        try:
            found = meter.measure()
        except ThetastreamError as problem:
            tell(f"there are no statistics: {problem}")
        else:
            print(json.dumps({"statistics": select_known(found)}) if arguments.json else write_table(found))
    return 0


def stage(arguments: argparse.Namespace) -> int:
    """Stage tables of a job that have changed, and print the newest version of each."""
    job = read_job(arguments.job)
    with open_session(job.spark) as spark:
        for line in stage_tables(spark, job, arguments.tables):
            staged = {**line, "staged_at": line["staged_at"].isoformat()}
            text = "{table} ({alias}): version {version}, {rows:,} rows, staged at {staged_at}"
            print(json.dumps(staged) if arguments.json else text.format(**staged))
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """Print the plan of a job. If the job has errors, raise all of them, also those that Spark finds."""
    job = read_job(arguments.job)
    with open_session(job.spark) as spark:
        plan = explain_job(spark, job)
    print(json.dumps({"plan": plan}) if arguments.json else plan)
    return 0
