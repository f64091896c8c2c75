"""Late tuples are kept in a folder, each exactly once, also if an epoch runs again."""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import thetastream as th


def test_late_tuples_are_kept_once(spark: SparkSession, tmp_path: Path) -> None:
    source, late, checkpoint = tmp_path / "in", tmp_path / "late", tmp_path / "checkpoint"
    source.mkdir()

    def add(name: str, *minutes: int) -> None:
        rows = ({"id": n, "ts": f"2026-01-05 09:{n:02}:00", "tags": [str(n)]} for n in minutes)
        (source / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))

    def run() -> None:
        rows = spark.readStream.schema("id INT, ts TIMESTAMP, tags ARRAY<STRING>").json(str(source))
        stream = rows.withWatermark("ts", "1 minute")
        pairs = th.join({"a": stream, "b": stream}, on="a.id < b.id AND a.id <> 12", within="5m", late=late)
        writer = pairs.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def read() -> DataFrame:
        return spark.read.parquet(str(late))

    add("first", 0, 30)
    run()
    add("second", 10, 11, 12, 31)
    run()
    expected = [("a", 10), ("a", 11), ("b", 10), ("b", 11), ("b", 12)]
    found = read().selectExpr("alias", "coalesce(a.id, b.id) AS id", "coalesce(a.tags, b.tags)[0] AS tag")
    assert sorted((row.alias, row.id) for row in found.collect()) == expected
    assert all(str(row.id) == row.tag for row in found.collect())
    assert read().where("a IS NOT NULL AND b IS NOT NULL").isEmpty()
    # The epoch that brought late tuples runs again, as after a crash before its commit.
    (epoch,) = {row.epoch for row in read().select("epoch").collect()}
    for number in range(epoch, epoch + 5):
        for log in ("commits", "offsets") if number > epoch else ("commits",):
            for name in (str(number), f".{number}.crc"):
                (checkpoint / log / name).unlink(missing_ok=True)
    files = sorted(path.name for path in late.rglob("*.parquet"))
    run()
    assert sorted((row.alias, row.id) for row in found.collect()) == expected
    assert sorted(path.name for path in late.rglob("*.parquet")) == files
