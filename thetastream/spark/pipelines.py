"""Spark Declarative Pipelines: whether a file of a pipeline is being read, and what is different there.

``spark-pipelines`` runs the files of a pipeline with a session of Spark Connect. Functions of ``@dp.table``
may not analyze plans, and joins read the schemas of their streams. So joins stand at the level of the file.
"""

import sys
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from thetastream.core.errors import QueryError

_REGISTRY = "pyspark.pipelines.graph_element_registry"
_FORBIDDEN = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
_METRICS = "PlanObservedMetrics"
"""The class of an answer of the server with observed metrics or Python accumulators."""


def is_pipeline() -> bool:
    """Whether ``spark-pipelines`` is reading a file of a pipeline in this thread."""
    registry = sys.modules.get(_REGISTRY)
    if registry is None:
        return False
    try:
        registry.get_active_graph_element_registry()
    except PySparkException:
        return False
    return True


def refuse_query_function(error: AnalysisException) -> None:
    """Raise if Spark has refused to analyze a plan inside a function of a pipeline.

    Raises
    ------
    QueryError
        PIPELINE_FUNCTION.
    """
    if _FORBIDDEN in str(error):
        what = "a join reads the schemas of its streams, which Spark forbids inside a function of @dp.table"
        hint = "make the join at the level of the file, and let the function return it"
        raise QueryError("PIPELINE_FUNCTION", f"{what}; {hint}") from None


def pass_over_metrics(spark: SparkSession) -> None:
    """Let the client of a pipeline pass over metrics.

    As of Spark 4.3, the server sends them when a query of a pipeline runs Python, and the client then ends
    with UNKNOWN_RESPONSE, after all rows have been written.
    """
    client: Any = spark.client  # type: ignore[attr-defined, unused-ignore]
    fetch = client._execute_and_fetch_as_iterator

    def fetch_others(*args: Any, **kwargs: Any) -> Iterator[Any]:
        return (answer for answer in fetch(*args, **kwargs) if type(answer).__name__ != _METRICS)

    client._execute_and_fetch_as_iterator = fetch_others
