"""One module per engine, each with ``run(task) -> dict``; imported in the engine's own process."""

ENGINES = {
    "thetastream": "bench.engines.thetastream",
    "spark": "bench.engines.spark_native",
    "duckdb": "bench.engines.duckdb_batch",
    "aggregate": "bench.engines.aggregated",
}
COMPARED = ("thetastream", "spark", "duckdb")
"""What runs unless ``--engines`` says otherwise; for ``aggregate`` it is ``thetastream,aggregate``."""
