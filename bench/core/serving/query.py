"""The join of the benchmark as a program: ``python -m bench.core.serving.query FOLDER``."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WINDOW = "1 minute"
VALUES, BAND = 100_000, 3
START_US = 1_767_600_000_000_000


def write_second(folder: Path, second: int, rate: int, rng: np.random.Generator) -> None:
    """Write what both streams bring in a second: one file each, which Spark sees when it is whole."""
    for alias in "ab":
        ts = START_US + second * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rate))
        columns = {
            "id": second * rate + np.arange(rate),
            "x": rng.integers(0, VALUES, rate),
            "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
        }
        hidden = folder / alias / f".{second:06}.parquet"
        pq.write_table(pa.table(columns), hidden)
        hidden.rename(folder / alias / f"{second:06}.parquet")


def run_query(folder: Path) -> None:
    """Join the streams until the program is stopped."""
    import thetastream as th

    spark = th.local_session(2, "serving", **{"spark.sql.session.timeZone": "UTC"})
    th.export_metrics(spark, port=None, json_lines=folder / "metrics.jsonl")
    streams = {
        alias: spark.readStream.schema("id LONG, x LONG, ts TIMESTAMP")
        .parquet(str(folder / alias))
        .withWatermark("ts", "1 second")
        for alias in "ab"
    }
    pairs = th.join(streams, f"abs(a.x - b.x) <= {BAND}", WINDOW, cache_folder=str(folder / "cache"))
    store, select = th.ParquetStore(str(folder / "pairs")), ["a.id AS a", "b.id AS b", "result_time"]
    query = th.write(
        pairs, store, checkpoint=folder / "checkpoint", select=select, key="a", trigger="1 second"
    )
    query.awaitTermination()


if __name__ == "__main__":
    run_query(Path(sys.argv[1]))
