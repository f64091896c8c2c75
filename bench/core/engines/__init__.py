"""Each engine is a module, which is imported in the engine's own process.

A streaming engine has ``prepare(task)``, which returns a query of Spark. Another engine has ``run(task)``,
which returns the figures of the run.
"""

DUCKDB, COPY = "duckdb", "copy"
"""The batches: DuckDB into a table, and into a Parquet file."""
PEERS = ("flink", "pathway", "datafusion")
"""Engines that ``make bench-peers`` installs."""
FILLING = "filling"
"""Not an engine to compare: it makes the checkpoint with a full window, from which others continue."""
ENGINES = {
    "thetastream": "bench.core.engines.thetastream",
    "spark-reader": "bench.core.engines.thetastream",
    "spark": "bench.core.engines.spark_native",
    DUCKDB: "bench.core.engines.duckdb_batch",
    "aggregate": "bench.core.engines.aggregated",
    "spark-left": "bench.core.engines.spark_native",
    "left": "bench.core.engines.answers",
    "semi": "bench.core.engines.answers",
    "anti": "bench.core.engines.answers",
    "nearest": "bench.core.engines.answers",
    "units": "bench.core.engines.files",
    "rows": "bench.core.engines.files",
    "parquet": "bench.core.engines.files",
    COPY: "bench.core.engines.duckdb_batch",
    **dict.fromkeys(PEERS, "bench.core.engines.peer"),
}
"""The engines that can be compared."""
MODULES = {**ENGINES, FILLING: "bench.core.engines.filling"}
"""All modules that a measuring process can run."""
STREAMING = tuple(name for name in ENGINES if name not in (DUCKDB, COPY, *PEERS))
COMPARED = ("thetastream", "spark", DUCKDB)
"""The engines that run without ``--engines``, unless the suite has others."""
