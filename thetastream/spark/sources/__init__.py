"""Spark data sources: messages of units, control, idle streams and the identity of a query.

Spark refuses to register a source (DATA_SOURCE_ALREADY_EXISTS) if another thread registers it between two
steps of this call. Therefore one thread registers at a time. A session keeps its sources, so each is
registered once.

A program may have several sessions (``newSession``), which share no source. But a classic session refuses a
source that the active session of the calling thread has, so a new thread registers it, which has no active
session. And Spark looks for a sink in the active session, so that one gets the source too.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

_LOCK = Lock()
_REGISTERED: "WeakKeyDictionary[SparkSession, set[type[DataSource]]]" = WeakKeyDictionary()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a data source known to a session; any thread may call this at any time."""
    with _LOCK:
        if source not in _REGISTERED.get(spark, ()):
            for session in {SparkSession.getActiveSession() or spark, spark}:
                _register(session, source)


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    registered = _REGISTERED.setdefault(spark, set())
    if source in registered:
        return
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        with ThreadPoolExecutor(1) as new_thread:
            new_thread.submit(spark.dataSource.register, source).result()
    registered.add(source)


def read_source(spark: SparkSession, source: type[DataSource], options: dict[str, Any]) -> DataFrame:
    """Make the stream of a data source. Its options are written as JSON."""
    register_source(spark, source)
    written = {name: json.dumps(value) for name, value in options.items()}
    return spark.readStream.format(source.name()).options(**written).load()
