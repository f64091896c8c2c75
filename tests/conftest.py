"""One local Spark session for all tests that need one."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
# Every JVM here is young: optimising its code would cost more than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import thetastream as th

    session = th.local_session(2, "thetastream tests", **{"spark.sql.timeType.enabled": True})
    yield session
    session.stop()
