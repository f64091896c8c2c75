"""Settings that change the values of keys belong to the query; a checkpoint refuses other values by name."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import replay
from tests.support.truth import configured

DAYS = "date_trunc('DAY', a.ts) = date_trunc('DAY', b.ts) AND b.ts <= a.ts + INTERVAL 1 DAY"
"""Under a zone whose days have 23 to 25 hours, the second conjunct is no exact bound of the window."""


def start(pairs: DataFrame, folder: Path) -> Any:
    return (
        pairs.select("a.id", "b.id")
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.usefixtures("only_epochs_with_rows")
@pytest.mark.parametrize(
    ("setting", "first", "then"),
    [
        ("spark.sql.session.timeZone", "UTC", "America/New_York"),
        pytest.param("spark.sql.ansi.enabled", "true", "false", marks=pytest.mark.slow),
        pytest.param("spark.sql.caseSensitive", "false", "true", marks=pytest.mark.slow),
    ],
)
def test_another_setting_is_refused(
    spark: SparkSession, tmp_path: Path, setting: str, first: str, then: str
) -> None:
    frame = (
        spark.range(8)
        .selectExpr(
            "id", "timestamp_seconds(1700000000 + id * 7200) AS ts", "array(timestamp_seconds(id)) AS nested"
        )
        .localCheckpoint()
    )
    stream = replay(frame, [range(4), range(4, 8)], tmp_path, by_key=True).withWatermark("ts", "1 day")

    def join() -> DataFrame:
        return th.join({"a": stream, "b": stream}, on=DAYS, within="1 day", model=th.Biclique(1))

    with configured(spark, {setting: first}):
        start(join(), tmp_path).awaitTermination()
    # The second run would join this file.
    source = next(tmp_path.glob("stream-*"))
    (source / "epoch-9999.csv").write_text("1\n")
    with configured(spark, {setting: then}):
        query = start(join(), tmp_path)
        with pytest.raises(StreamingQueryException, match="STATE_OF_ANOTHER_QUERY") as refused:
            query.awaitTermination()
    assert f"{setting} was {first}, it is {then}" in str(refused.value)
    assert "Traceback" not in str(refused.value)
    with configured(spark, {setting: first}):
        start(join(), tmp_path).awaitTermination()
