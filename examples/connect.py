"""A join on Spark Connect: the client is a process of its own, and the server runs the query.

python examples/connect.py [sc://host:15002]

Without an address, a server is started on this machine. The server's Python workers need thetastream.
"""

import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thetastream as th

remote = sys.argv[1] if len(sys.argv) > 1 else "local[2]"
spark = th.configure(SparkSession.builder.remote(remote), partitions=2).getOrCreate()
th.configure(spark, partitions=2)  # a server that is running already gets its settings now

folder = tempfile.mkdtemp()
rows = spark.range(100).selectExpr("id", "id % 10 * 1.0D AS x", "timestamp_seconds(id) AS ts")
rows.write.mode("overwrite").parquet(folder)
stream = spark.readStream.schema("id LONG, x DOUBLE, ts TIMESTAMP").parquet(folder)
stream = stream.withWatermark("ts", "10 seconds")

pairs = th.join(
    {"a": stream, "b": stream},
    on=[F.abs(th.col("a.x") - th.col("b.x")) <= 0.5, "a.id < b.id"],
    within="30s",
)
query = (
    pairs.select("a.id").writeStream.format("memory").queryName("pairs").trigger(availableNow=True).start()
)
query.awaitTermination()
print(f"{spark.table('pairs').count()} pairs, session of {type(spark).__module__}")
