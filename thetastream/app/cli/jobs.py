"""The commands that write, check, explain and run jobs."""

import argparse
import json
from pathlib import Path
from typing import Any, Literal

from thetastream.app.cli.shared_arguments import AddCommand, open_session, read_seconds
from thetastream.app.job import template
from thetastream.app.job.check import Finding, check_job
from thetastream.app.job.checkpoints.inspect import lock
from thetastream.app.job.document import read_job
from thetastream.app.job.progress import describe_epoch
from thetastream.app.job.run import explain_job
from thetastream.app.job.run import run as run_job
from thetastream.runtime.observe.open_telemetry import OTLP
from thetastream.spark.observe.export import export_metrics


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add("init", init, "write a job that runs, and two small streams to run it on")
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")

    parser = add("check", check, "list everything that is wrong with a job")
    _add_job_arguments(parser)

    parser = add(
        "run",
        run,
        "run a job; a job that was stopped continues from its checkpoint",
        epilog="examples:\n  thetastream run job.toml\n  thetastream run job.toml --until-caught-up --json\n"
        "\nCtrl-C and SIGTERM let the running epoch finish.",
    )
    _add_job_arguments(parser)
    parser.add_argument(
        "--until-caught-up", action="store_true", help="end when all available input has been read"
    )
    parser.add_argument(
        "--for", dest="seconds", type=read_seconds, metavar="60s", help="end after this time: 60s, 5m, 2h"
    )
    parser.add_argument(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="add a line of metrics for each epoch to this file, which thetastream serve can show",
    )
    parser.add_argument(
        "--otlp",
        action="store_true",
        help="send metrics to the OpenTelemetry collector that OTEL_EXPORTER_OTLP_ENDPOINT names",
    )

    parser = add("explain", explain, "show how the join of a job will run")
    _add_job_arguments(parser)


def _add_job_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=Path, metavar="JOB.toml", help="the file that describes the job")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def init(arguments: argparse.Namespace) -> int:
    """Write a job, and the streams that it joins."""
    template.write(arguments.folder)
    job = arguments.folder / "job.toml"
    print(f"{job} is written; run it with: thetastream run {job} --until-caught-up")
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
    """Run a job, and print its epochs."""

    def say(epoch: dict[str, Any]) -> None:
        print(json.dumps(epoch) if arguments.json else describe_epoch(epoch), flush=True)

    job = read_job(arguments.job)
    with lock(job.checkpoint) as log, open_session(job.spark, log) as spark:
        if arguments.metrics is not None or arguments.otlp:
            sent_to: Literal["otlp"] | None = OTLP if arguments.otlp else None
            export_metrics(spark, port=None, json_lines=arguments.metrics, open_telemetry=sent_to)
        run_job(spark, job, say, arguments.until_caught_up, arguments.seconds)
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """Print the plan of a job. If the job has errors, raise all of them, also those that Spark finds."""
    job = read_job(arguments.job)
    with open_session(job.spark) as spark:
        plan = explain_job(spark, job)
    print(json.dumps({"plan": plan}) if arguments.json else plan)
    return 0
