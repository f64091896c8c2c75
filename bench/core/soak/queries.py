"""The queries of the soak, and the program that runs them until somebody stops or kills it.

``python -m bench.core.soak.queries FOLDER [TRIGGER]`` reads the streams in the folder. Without a trigger, the
queries end when their input is read.
"""

import signal
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

DELAY = "2 minutes"
"""The delay of the watermark. It is longer than the disorder of the streams."""


@dataclass(frozen=True)
class Query:
    """Tuples whose ``x`` are near that of the first stream, if its ``y`` is above that of the last one."""

    aliases: str
    reach: int
    within: str

    @property
    def on(self) -> str:
        near = [f"abs(a.x - {alias}.x) <= {self.reach}" for alias in self.aliases[1:]]
        same = [f"{one}.x = {other}.x" for one, other in pairwise(self.aliases)]
        return " AND ".join([*(near if self.reach else same), f"a.y > {self.aliases[-1]}.y"])


QUERIES = {
    "pairs": Query("ab", 1, "10 minutes"),
    "chain": Query("ab", 1, "10 minutes"),
    "ring": Query("abc", 0, "3 minutes"),
}


def run_queries(folder: Path, trigger: str | None) -> None:
    """Run all queries: until SIGTERM, or without a trigger until their input is read."""
    import thetastream as th

    spark = th.local_session(2, "soak", **{"spark.sql.session.timeZone": "UTC", "spark.driver.memory": "2g"})
    th.export_metrics(spark, port=None, json_lines=folder / "metrics.jsonl")
    models = {"pairs": th.Biclique((1, 1)), "chain": th.Chain(2), "ring": th.Ring(2)}
    started = []
    for name, query in QUERIES.items():
        streams = {}
        for alias in query.aliases:
            reader = spark.readStream.schema("id LONG, x LONG, y LONG, ts TIMESTAMP")
            reader = reader.option("maxFilesPerTrigger", 30)
            streams[alias] = reader.parquet(str(folder / alias)).withWatermark("ts", DELAY)
        mailbox = str(folder / "mailboxes") if name != "pairs" else None
        cache = str(folder / "cache")
        joined = th.join(
            streams, query.on, query.within, model=models[name], mailbox=mailbox, cache_folder=cache
        )
        rows = joined.selectExpr(*(f"{alias}.id AS {alias}" for alias in query.aliases))
        checkpoint, results = str(folder / "checkpoints" / name), str(folder / "results" / name)
        th.checkpoints.finish_epoch(rows, checkpoint, results)
        writer = rows.writeStream.queryName(name).format("parquet").option("checkpointLocation", checkpoint)
        when = {"processingTime": trigger} if trigger else {"availableNow": True}
        started.append(writer.trigger(**when).start(results))
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    while not stopped and any(one.isActive for one in started):
        time.sleep(0.2)
        for one in started:
            if not one.isActive and one.exception() is not None:
                one.awaitTermination()
    for one in started:
        one.stop()
    spark.stop()


if __name__ == "__main__":
    run_queries(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
