"""Each engine is a module, which is imported in the engine's own process.

A streaming engine has ``prepare(task)``, which returns a query of Spark. Another engine has ``run(task)``,
which returns the figures of the run.
"""

ENGINES = {
    "thetastream": "bench.core.engines.thetastream",
    "spark": "bench.core.engines.spark_native",
    "duckdb": "bench.core.engines.duckdb_batch",
    "aggregate": "bench.core.engines.aggregated",
}
STREAMING = ("thetastream", "spark", "aggregate")
COMPARED = ("thetastream", "spark", "duckdb")
"""The engines that run without ``--engines``, unless the suite has others."""
