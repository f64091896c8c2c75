"""Writes Avro records into a topic, in a session of its own that has Spark's packages for both.

    python -m tests.support.avro_sender SERVERS TOPIC JARS SCHEMA COLUMNS HEADER < rows as JSON lines

HEADER is put before each record, in hexadecimal digits.
"""

import sys

from pyspark.sql import functions as F

import thetastream as th


def main() -> None:
    servers, topic, jars, schema, columns, header = sys.argv[1:]
    spark = th.local_session(1, "sender", **{"spark.jars": jars})
    rows = spark.createDataFrame([(line,) for line in sys.stdin], "line STRING")
    decoded = rows.select(F.from_json("line", columns).alias("row"))
    record = f"concat(unhex('{header}'), to_avro(row, '{schema}'))"
    sent = decoded.select(F.expr(record).alias("value")).write.format("kafka")
    sent.option("kafka.bootstrap.servers", servers).option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main()
