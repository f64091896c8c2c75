"""Arguments that several commands have, functions that read the values of arguments, and the session of a
command.
"""

import argparse
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import thetastream as th
from thetastream.app.job.spec import write_option
from thetastream.core.errors import SessionError, shows_tracebacks
from thetastream.joins.ask.refusals import summarize
from thetastream.runtime.control.policies import TwoPhaseScaling, list_policies
from thetastream.spark.session.failure import hide_lost_connections, unwrap_error
from thetastream.spark.session.jvm import launch_without_secrets, stderr_into
from thetastream.spark.session.workers import prepare_environment

Run = Callable[[argparse.Namespace], int]
"""The function that runs a command and returns its exit code."""


class AddCommand(Protocol):
    """A function that adds a command to the parser. Its texts are those of ``argparse``."""

    def __call__(
        self, name: str, run: Run, help: str, *, description: str | None = None, epilog: str | None = None
    ) -> argparse.ArgumentParser: ...


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a checkpoint."""
    parser.add_argument(
        "checkpoint",
        metavar="JOB|CHECKPOINT",
        help="a job file, or the checkpoint of a query: a path, or a URI that Arrow opens",
    )


def tell_request(arguments: argparse.Namespace, name: str) -> int:
    """Print the name of a request that was sent to a running query; return the exit code."""
    print(json.dumps({"request": name}) if arguments.json else f"request {name} is sent")
    return 0


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a policy and its settings."""
    parser.add_argument(
        "--policy",
        choices=list_policies(),
        default=TwoPhaseScaling.name,
        help="the scaling policy (default %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        type=_read_setting,
        default=[],
        metavar="NAME=VALUE",
        help='a setting of the policy, as in --set high=0.9 --set capacity="2 GB"',
    )


def add_row_output(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that prints rows."""
    parser.add_argument(
        "--limit",
        type=read_positive,
        default=20,
        metavar="N",
        help="the largest number of rows to print (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def read_positive(text: str) -> int:
    """Read a positive integer."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return int(text)


def read_seconds(text: str) -> float:
    """Read a time in seconds.

    >>> read_seconds("90"), read_seconds("1.5m"), read_seconds("2 h")
    (90.0, 90.0, 7200.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a time such as 60s, 5m or 2h, not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def read_pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value


def _read_setting(text: str) -> tuple[str, Any]:
    """Read a setting of a policy, whose value is a number or a text."""
    name, value = read_pair(text)
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


@contextmanager
def open_session(conf: dict[str, Any], log: str = os.devnull) -> Iterator[Any]:
    """Start a Spark session for one command, and stop it when the block ends.

    An error of Spark is raised again as an error with one line. On a terminal, the command prints that Spark
    is starting, because this takes some seconds. The standard error of Spark and of its workers goes to the
    file ``log``.
    """
    spark = None
    if sys.stderr.isatty():
        print("Spark is starting", file=sys.stderr)
    try:
        with stderr_into(log):
            spark = start_session(conf)
        hide_lost_connections()
        yield spark
    except PySparkException as error:
        if shows_tracebacks():
            traceback.print_exception(error)
        raise unwrap_error(error) or summarize(error) from None
    except (Py4JError, ConnectionError) as error:
        raise unwrap_error(error) or error from None
    finally:
        # A JVM that has ended cannot be stopped.
        with suppress(Py4JError, ConnectionError):
            if spark is not None:
                spark.stop()


def start_session(conf: dict[str, Any]) -> SparkSession:
    """Start the session of a job with the settings of its file.

    Without ``spark.master`` and ``spark.remote``, the session is local.
    """
    settings = {key: write_option(value) for key, value in conf.items()}
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
    builder = th.configure(builder, int(partitions) if partitions else None)
    with prepare_environment():
        if "spark.remote" not in settings:
            launch_without_secrets(settings)
        return builder.getOrCreate()
