"""What all tests share: one local Spark session per process, and the mark of the tests that need Java.

- ``unit`` needs no Spark.
- ``spark`` runs joins in a local Spark session, or in processes and clusters of their own.
- ``kafka`` runs jobs against a broker; ``s3`` keeps files in an object store, and ``hdfs`` in HDFS. They
  need Maven.
- ``stores`` runs one suite over every kind of store, and tests of single kinds. Tests with the mark
  ``databases`` need Maven, which fetches Cassandra and HBase.
- ``conformance`` runs one suite over every member of a registry.
- ``docs`` runs what README, docs and examples show.
- ``support`` holds oracles, generators of cases, streams and processes for the tests.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import java_import
from pyspark.sql import SparkSession

from tests.support.draws import draw_by_default
from tests.support.fast_checkpoints import FAST_CHECKPOINTS
from tests.support.interpreted import INTERPRETED
from tests.support.jvm import configure_jvms

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
configure_jvms()
draw_by_default()

ROOT = Path(__file__).parent
LONG_FIRST = (
    "spark/test_answers.py",
    "spark/test_aggregate.py",
    "spark/test_connect.py",
    "spark/test_exactly_once.py",
    "spark/test_spark_semantics.py",
    "spark/test_sql.py",
    "spark/test_control.py",
    "spark/test_results.py",
    "spark/test_printed.py",
    "spark/test_sql_statements.py",
    "spark/test_python_api.py",
    "spark/test_chain_stream.py",
    "spark/test_stateful_inputs.py",
    "spark/test_lower_semantics.py",
    "spark/test_cascade.py",
    "spark/",
    "conformance/",
    "docs/",
    "unit/service/test_page.py",
    "unit/runtime/test_control",
    "unit/engine/test_control",
    "unit/service/",
    "unit/support/test_two_units.py",
    "unit/engine/test_answers.py",
    "stores/",
    "unit/",
)
"""The order in which tests start: long ones first, so that workers that run side by side end together."""


def place(item: pytest.Item) -> int:
    """Where a test stands in ``LONG_FIRST``."""
    path = path_of(item)
    return next((n for n, prefix in enumerate(LONG_FIRST) if path.startswith(prefix)), len(LONG_FIRST))


def path_of(item: pytest.Item) -> str:
    """The test's file, seen from this folder."""
    return item.path.relative_to(ROOT).as_posix()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark and what draws random cases, and order all tests."""
    for item in items:
        path = path_of(item)
        if "spark" in getattr(item, "fixturenames", ()) or path.startswith("spark/"):
            item.add_marker(pytest.mark.spark)
        if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.drawn)
        for folder in ("kafka", "s3", "hdfs"):
            if path.startswith(f"{folder}/"):
                item.add_marker(folder)
    leave_cases_to_the_sweep(items)
    items.sort(key=place)


def leave_cases_to_the_sweep(items: list[pytest.Item]) -> None:
    """Keep the first of every n cases of a test with the mark ``sampled(n)``, and mark the others as slow."""
    seen: Counter[Any] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and not item.get_closest_marker("slow"):
            test = item.path, getattr(item, "originalname", item.name)
            if seen[test] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[test] += 1


CALL_SITES = "spark.python.sql.dataFrameDebugging.enabled"
"""Whether PySpark tells the JVM, for each operation on a Column, the line of Python that called it.

It asks the JVM eight times to do so, for messages that no test reads.
"""

LOOKED_UP = (
    "api.python.PythonRDD",
    "api.python.PythonUtils",
    "api.python.SerDeUtil",
    "api.python.SimplePythonFunction",
    "sql.api.python.PythonSQLUtils",
    "sql.functions",
)
"""Classes that PySpark calls by their short names, thousands of times in a file of tests."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import thetastream as th

    # With the default of 1 GB, collecting garbage is a twentieth of the CPU time of the JVM.
    memory = {"spark.driver.memory": "2g"}
    settings = {
        "spark.sql.timeType.enabled": True,
        CALL_SITES: False,
        **memory,
        **FAST_CHECKPOINTS,
        **INTERPRETED,
    }
    session = th.local_session(2, "thetastream tests", **settings)
    write_no_checksum_files(session)
    find_classes_at_once(session)
    yield session
    session.stop()


@pytest.fixture
def only_epochs_with_rows(spark: SparkSession) -> Iterator[None]:
    """Let Spark run no epoch only because the watermark has moved."""
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", False)
    yield
    spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")


def write_no_checksum_files(session: SparkSession) -> None:
    """Let Hadoop write each local file without a checksum file, for which it would start another chmod."""
    configuration = session._jsc.hadoopConfiguration()
    session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration).setWriteChecksum(False)


def find_classes_at_once(session: SparkSession) -> None:
    """Import classes by name, because Py4J looks for a short name in each imported package, and for each
    package the JVM searches almost 300 jars."""
    for name in LOOKED_UP:
        java_import(session._jvm, f"org.apache.spark.{name}")
