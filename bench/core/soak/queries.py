"""The queries of the soak, and the program that runs them until somebody stops or kills it.

``python -m bench.core.soak.queries FOLDER CATCH_UP`` reads the streams in the folder.
"""

import signal
import sys
import time
from pathlib import Path

DELAY = "2 minutes"
"""The delay of the watermark. It is longer than the disorder of the streams."""
QUERIES = {
    "pairs": ("abs(a.x - b.x) <= 1 AND a.y > b.y", "10 minutes"),
    "chain": ("abs(a.x - b.x) <= 1 AND a.y > b.y", "10 minutes"),
    "ring": ("a.x = b.x AND b.x = c.x AND a.y > c.y", "3 minutes"),
}
"""The condition and the window of each query. The streams a and b are joined; the ring also joins c."""


def list_aliases(name: str) -> str:
    """List the streams of a query."""
    return "abc" if name == "ring" else "ab"


def run_queries(folder: Path, catch_up: bool) -> None:
    """Run all queries: until SIGTERM, or until their input is read."""
    import thetastream as th

    spark = th.local_session(2, "soak", **{"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g"})
    th.export_metrics(spark, port=None, json_lines=folder / "metrics.jsonl")
    models = {"pairs": th.Biclique((1, 1)), "chain": th.Chain(2), "ring": th.Ring(2)}
    queries = []
    for name, (on, within) in QUERIES.items():
        aliases = list_aliases(name)
        streams = {}
        for alias in aliases:
            reader = spark.readStream.schema("id LONG, x LONG, y LONG, ts TIMESTAMP")
            reader = reader.option("maxFilesPerTrigger", 30)
            streams[alias] = reader.parquet(str(folder / alias)).withWatermark("ts", DELAY)
        mailbox = str(folder / "mailboxes") if name != "pairs" else None
        cache = str(folder / "cache")
        joined = th.join(streams, on, within, model=models[name], mailbox=mailbox, cache_folder=cache)
        rows = joined.selectExpr(*(f"{alias}.id AS {alias}" for alias in aliases))
        checkpoint, results = str(folder / "checkpoints" / name), str(folder / "results" / name)
        th.checkpoints.finish_epoch(rows, checkpoint, results)
        writer = rows.writeStream.queryName(name).format("parquet").option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True) if catch_up else writer.trigger(processingTime="1 second")
        queries.append(writer.start(results))
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    while not stopped and any(query.isActive for query in queries):
        time.sleep(0.2)
        for query in queries:
            if not query.isActive and query.exception() is not None:
                query.awaitTermination()
    for query in queries:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    run_queries(Path(sys.argv[1]), sys.argv[2] == "1")
