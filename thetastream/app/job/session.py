"""Starts the Spark session of a job."""

import json
import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import thetastream as th
from thetastream.core.errors import SessionError
from thetastream.spark.session.jvm import stderr_into
from thetastream.spark.session.workers import keep_current_folder_out


def start_session(conf: dict[str, Any], log: str | Path = os.devnull) -> SparkSession:
    """Start the session of a job with the settings of its file.

    Without ``spark.master`` and ``spark.remote``, the session is local. The standard error of Spark and of
    its workers goes to the file ``log``.
    """
    with stderr_into(log):
        return _start(conf)


def _start(conf: dict[str, Any]) -> SparkSession:
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
    with keep_current_folder_out():
        return th.configure(builder, int(partitions) if partitions else None).getOrCreate()


def write_option(value: object) -> str:
    """Write a value as text for an option of Spark, in which booleans are ``true`` and ``false``."""
    return json.dumps(value) if isinstance(value, bool) else str(value)
