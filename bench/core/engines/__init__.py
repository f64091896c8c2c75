"""Each engine is a module with ``run(task) -> dict``, which is imported in the engine's own process."""

ENGINES = {
    "thetastream": "bench.core.engines.thetastream",
    "spark": "bench.core.engines.spark_native",
    "duckdb": "bench.core.engines.duckdb_batch",
    "aggregate": "bench.core.engines.aggregated",
}
COMPARED = ("thetastream", "spark", "duckdb")
"""The engines that run without ``--engines``. For ``aggregate`` they are ``thetastream,aggregate``."""
