"""Trades and the quotes they could have hit, joined without any equality."""

import tempfile
from pathlib import Path

import thetastream as th

spark = th.local_session(cores=2)


def stream(lines, schema):
    """A folder of CSV as a stream with event time ts."""
    folder = tempfile.mkdtemp()
    Path(folder, "1.csv").write_text(lines.replace("; ", "\n"))
    return spark.readStream.schema(schema).csv(folder).withWatermark("ts", "10 seconds")


trades = stream(
    "1,2026-01-05 09:30:02,10.02,500; 2,2026-01-05 09:30:09,10.31,100; 3,2026-01-05 09:38:00,10.05,900",
    "id INT, ts TIMESTAMP, price DOUBLE, qty INT",
)
quotes = stream(
    "7,2026-01-05 09:30:00,10.00,10.04,300; 8,2026-01-05 09:30:05,10.28,10.30,200",
    "id INT, ts TIMESTAMP, bid DOUBLE, ask DOUBLE, qty INT",
)
pairs = th.join(
    {"a": trades, "b": quotes},
    on="a.price BETWEEN b.bid - 0.05 AND b.ask + 0.05 AND a.qty > b.qty",
    within="5 minutes",
)
found = pairs.selectExpr("a.id AS trade", "a.price", "b.id AS quote", "b.bid", "b.ask")
query = found.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()
query.awaitTermination()
spark.table("found").show()
