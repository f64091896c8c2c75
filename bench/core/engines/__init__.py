"""One module per engine, each with ``run(task) -> dict``; imported in the engine's own process."""

ENGINES = {
    "thetastream": "bench.core.engines.thetastream",
    "spark": "bench.core.engines.spark_native",
    "duckdb": "bench.core.engines.duckdb_batch",
    "aggregate": "bench.core.engines.aggregated",
}
COMPARED = ("thetastream", "spark", "duckdb")
"""What runs unless ``--engines`` says otherwise; for ``aggregate`` it is ``thetastream,aggregate``."""
