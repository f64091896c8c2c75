"""A join with a stream that may be idle, as a process that runs until it is killed.

    python -m tests.support.idle_job FOLDER

The streams are the Parquet files in FOLDER/a and FOLDER/b, one file an epoch. Results go to FOLDER/sink, late
tuples to FOLDER/late.
"""

import sys
from pathlib import Path

SCHEMA = "id BIGINT, ts TIMESTAMP"
KEYS, WITHIN_S = 3, 20


def main(folder: Path) -> None:
    import thetastream as th

    spark = th.local_session(
        2, "idle", **{"spark.driver.memory": "512m", "spark.thetastream.mailbox": str(folder / "mailbox")}
    )
    streams = {}
    for alias, idle in (("a", None), ("b", "1 second")):
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / alias))
        streams[alias] = th.with_watermark(read, "ts", "2 seconds", idle=idle)
    pairs = th.join(
        streams,
        on=f"a.id % {KEYS} = b.id % {KEYS}",
        within=f"{WITHIN_S} seconds",
        model=th.Biclique((1, 1)),
        late=str(folder / "late"),
    )
    writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(processingTime="200 milliseconds").start(str(folder / "sink")).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
