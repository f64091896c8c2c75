"""Runs queries on executors, whose CPU time is measured without compilation."""

from typing import Any

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock
from bench.core.cpu_times import KEEP_COMPILERS
from bench.core.internals import stderr_into


class WarmClock(Clock):
    """Runs queries on a number of executors, which are processes of this machine with one core each."""

    def __init__(self, executors: int, partitions: int) -> None:
        super().__init__()
        self._executors, self._partitions = executors, partitions

    def session(self) -> Any:
        if self._spark is None:
            builder = spark.SparkSession.builder.master(f"local-cluster[{self._executors},1,1024]")
            settings = {
                **spark.CONF,
                "spark.driver.memory": "3g",
                "spark.driver.extraJavaOptions": KEEP_COMPILERS,
                "spark.executor.memory": "1g",
                "spark.executor.extraJavaOptions": KEEP_COMPILERS,
                # Each file of an epoch is read by a Spark task of its own.
                "spark.sql.files.maxPartitionBytes": 4 << 20,
            }
            for name, value in settings.items():
                builder = builder.config(name, value)
            with stderr_into(self._folder / "spark.log"):
                self._spark = th.configure(builder, partitions=self._partitions).getOrCreate()
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark
