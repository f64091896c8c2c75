"""Spark data sources: messages of units, control, idle streams and the identity of a query.

Spark refuses to register a source (DATA_SOURCE_ALREADY_EXISTS) if another thread registers it between two
steps of this call. Therefore one thread registers at a time. A session keeps its sources, so each is
registered once.
"""

import json
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

_LOCK = Lock()
_REGISTERED: "WeakKeyDictionary[SparkSession, set[type[DataSource]]]" = WeakKeyDictionary()


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Make a data source known to a session; any thread may call this at any time."""
    with _LOCK:
        registered = _REGISTERED.setdefault(spark, set())
        if source not in registered:
            spark.dataSource.register(source)
            registered.add(source)


def read_source(spark: SparkSession, source: type[DataSource], options: dict[str, Any]) -> DataFrame:
    """Make the stream of a data source. Its options are written as JSON."""
    register_source(spark, source)
    written = {name: json.dumps(value) for name, value in options.items()}
    return spark.readStream.format(source.name()).options(**written).load()
