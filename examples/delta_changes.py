"""A join follows a Delta table whose rows are updated, deleted and merged, by the change feed of the table.

pip install thetastream "pyspark==4.2.0" delta-spark && python examples/delta_changes.py
"""

import tempfile

from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

import thetastream as th

builder = SparkSession.builder.master("local[2]")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
spark = th.configure(configure_spark_with_delta_pip(builder), partitions=2).getOrCreate()

folder = tempfile.mkdtemp()
orders, store = f"delta.`{folder}/orders`", th.ParquetStore(f"{folder}/pairs")
columns = "id INT, price DOUBLE, ts TIMESTAMP"
spark.sql(f"CREATE TABLE {orders} ({columns}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
bids = [f"({n}, {n} + 0.5D, timestamp_seconds({n}))" for n in range(10)]
spark.sql(f"CREATE TABLE delta.`{folder}/bids` ({columns}) USING delta")
spark.sql(f"INSERT INTO delta.`{folder}/bids` VALUES {', '.join(bids)}")


def run() -> list[tuple[int, int]]:
    """Follow the changes so far; return the orders and the bids that are near each other now."""
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    plain = spark.readStream.format("delta").load(f"{folder}/bids")
    streams = {
        "o": th.changes(feed.load(f"{folder}/orders")).withWatermark("ts", "1 hour"),
        "b": plain.withWatermark("ts", "1 hour"),
    }
    pairs = th.join(streams, on="abs(o.price - b.price) < 1", within="1 minute")
    query = th.write(pairs, store, checkpoint=f"{folder}/checkpoint", trigger="available now")
    query.awaitTermination()
    return sorted((row["o"]["id"], row["b"]["id"]) for row in store.read().to_pylist())


spark.sql(f"INSERT INTO {orders} SELECT id, id * 1.0D, timestamp_seconds(id) FROM range(4)")
print("inserted", run())
spark.sql(f"UPDATE {orders} SET price = 9 WHERE id = 1")
spark.sql(f"DELETE FROM {orders} WHERE id = 2")
print("updated", run())
spark.sql(
    f"""MERGE INTO {orders} o USING (SELECT 3 AS id, 5.0D AS price UNION ALL SELECT 7, 2.0D) m ON o.id = m.id
    WHEN MATCHED THEN UPDATE SET price = m.price
    WHEN NOT MATCHED THEN INSERT (id, price, ts) VALUES (m.id, m.price, timestamp_seconds(m.id))"""
)
print("merged", run())
