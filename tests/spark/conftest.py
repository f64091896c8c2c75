"""What several tests of streaming queries share."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.truth import configured


@pytest.fixture
def only_epochs_with_rows(spark: SparkSession) -> Iterator[None]:
    """Let Spark run no epoch only because the watermark has moved."""
    with configured(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        yield
