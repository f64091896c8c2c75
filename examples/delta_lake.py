"""A join between Delta tables, into a Delta table.

pip install thetastream "pyspark==4.2.0" delta-spark && python examples/delta_lake.py
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
rows = spark.range(100).selectExpr("id", "id % 10 * 1.0D AS x", "timestamp_seconds(id) AS ts")
rows.write.format("delta").save(f"{folder}/a")
stream = spark.readStream.format("delta").load(f"{folder}/a").withWatermark("ts", "10 seconds")

pairs = th.join({"a": stream, "b": stream}, on="abs(a.x - b.x) <= 0.5 AND a.id < b.id", within="30s")
writer = pairs.selectExpr("a.id AS a", "b.id AS b").writeStream.format("delta").trigger(availableNow=True)
writer.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/pairs").awaitTermination()
print(f"{spark.read.format('delta').load(f'{folder}/pairs').count()} pairs")
