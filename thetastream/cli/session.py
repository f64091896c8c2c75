"""Starts the Spark session of a command."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from thetastream.job.session import start_session
from thetastream.spark.failure import shows_tracebacks, unwrap_error
from thetastream.spark.refusals import summarize


@contextmanager
def open_session(conf: dict[str, Any], log: str = os.devnull) -> Iterator[Any]:
    """Start a Spark session for one command, and stop it when the block ends.

    An error of Spark is raised again as an error with one line. On a terminal, the command prints that Spark
    is starting, because this takes some seconds.
    """
    spark = None
    if sys.stderr.isatty():
        print("Spark is starting", file=sys.stderr)
    try:
        spark = start_session(conf, log)
        yield spark
    except PySparkException as error:
        if shows_tracebacks():
            traceback.print_exception(error)
        raise unwrap_error(error) or summarize(error) from None
    finally:
        if spark is not None:
            spark.stop()
