"""Joins trades with the quotes that they could have hit, without any equality."""

import tempfile
from pathlib import Path

import thetastream as th

spark = th.local_session(cores=2)


def stream(schema, *lines):
    """Write a folder with one CSV file, and read it as a stream with event time ts."""
    folder = tempfile.mkdtemp()
    Path(folder, "1.csv").write_text("\n".join(lines))
    return spark.readStream.schema(schema).csv(folder).withWatermark("ts", "10 seconds")


trades = stream(
    "id INT, ts TIMESTAMP, price DOUBLE", "1,2026-01-05 09:30:02,10.02", "2,2026-01-05 09:38:00,10.05"
)
quotes = stream("id INT, ts TIMESTAMP, bid DOUBLE, ask DOUBLE", "7,2026-01-05 09:30:00,10.00,10.04")
pairs = th.join(
    {"a": trades, "b": quotes},
    on="a.price BETWEEN b.bid - 0.05 AND b.ask + 0.05",
    within="5 minutes",
)
found = pairs.selectExpr("a.id AS trade", "a.price", "b.id AS quote", "b.bid", "b.ask")
query = found.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()
query.awaitTermination()
spark.table("found").show()
