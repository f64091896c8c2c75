"""A table that is larger than the cache of a host gives the results of one that is not, or is refused."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.runtime import table_folder
from thetastream.spark.tables.stage import RefusedVersionWarning

N = 1500
BAND = "a.x >= t.low AND a.x < t.high"
ROOM = 70_000
"""The bytes that a host keeps. The table has a few times as many."""


@th.predicate(a=["x"], t=["low"])
def same_parity(a: Any, t: Any) -> Any:
    return np.asarray(a.x) % 2 == np.asarray(t.low) % 2


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return (
        spark.range(200)
        .selectExpr(
            "id",
            "nullif(id * 61 % 4500, 61) AS x",
            "CASE id % 7 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN -0.0 ELSE id * 3.0 END AS f",
            "concat('name ', id * 11) AS name",
        )
        .localCheckpoint()
    )


def make_table(spark: SparkSession, step: int = 3) -> DataFrame:
    return spark.range(0, N, 1, 4).selectExpr(
        "id AS n",
        f"nullif(id * {step}, 30) AS low",
        f"id * {step} + id % 7 - 1 AS high",
        "CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN double('NaN') WHEN 2 THEN 0.0 ELSE id * 1.0 END AS f",
        "concat('name ', id) AS name",
    )


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, str]:
    """The settings of a join on a host of a cluster: a shared folder, and a cache."""
    return {"mailbox": (tmp_path / "shared").as_uri(), "cache_folder": str(tmp_path / "host")}


def list_used(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry["tables"]["t"] for entry in entries if "tables" in entry]


def measure_cache(tmp_path: Path) -> int:
    copies = [path for path in (tmp_path / "host").glob("*/tables/*") if not path.name.startswith(".")]
    return sum(path.stat().st_size for path in copies)


@pytest.mark.slow
def test_each_epoch_divides_its_tuples_by_the_ranges_of_its_version(
    spark: SparkSession,
    frame: DataFrame,
    tmp_path: Path,
    shared: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later version has other ranges, and one row that covers all of them."""
    monkeypatch.setattr(table_folder, "PARTITIONS_PER_HOST", 5)
    path = str(tmp_path / "table")
    make_table(spark).write.parquet(path)
    table, found = th.Table(path), list[Any]()
    s = replay(frame, [range(100), range(100, 200)], tmp_path)
    joined = th.join({"a": s, "t": table}, BAND, how="left", table_cache=ROOM, **shared)

    def collect(batch: DataFrame, epoch: int) -> None:
        found.extend((epoch, *row) for row in batch.collect())
        if epoch == 0:
            later = make_table(spark, step=2).unionAll(spark.sql("SELECT -1L, 0L, 9000L, 0D, 'all'"))
            later.write.mode("overwrite").parquet(path)
            assert th.stage(table)[0]["version"] == 2

    query = (
        joined.select("a.id", "t.n")
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [one["version"] for one in th.versions(query)] == [1, 2]
    xs = {row.id: row.x for row in frame.collect()}
    expected = Counter[Any]()
    for epoch, step in ((0, 3), (1, 2)):
        rows = [(n, n * step, n * step + n % 7 - 1) for n in range(N) if n * step != 30]
        rows += [(-1, 0, 9000)] * epoch
        for a in range(100 * epoch, 100 * epoch + 100):
            x = xs[a]
            pairs = [n for n, low, high in rows if x is not None and low <= x < high]
            expected.update((epoch, a, n) for n in pairs or [None])
    assert Counter(found) == expected
    for one in list_used(th.metrics(query)):
        assert 0 < one["used_bytes"] < ROOM < one["bytes"]
    assert measure_cache(tmp_path) <= ROOM


CONDITIONS: list[list[Any]] = [
    [BAND],
    ["a.f = t.f AND a.x > t.low"],
    ["a.name = t.name AND a.x < t.high"],
    ["abs(a.f - t.f) <= 2", same_parity],
    [BAND, "coalesce(t.name, string(a.x)) <> 'name 3'"],
    ["a.x - 3 <= t.high AND a.x + 3 >= t.low"],
]


def name_condition(on: list[Any]) -> str:
    """The name of a case, which must not have an address of this process."""
    return " AND ".join(one if isinstance(one, str) else one.name for one in on)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("on", CONDITIONS, ids=name_condition)
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_divided_table_answers_as_a_whole_one(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, shared: dict[str, str], how: str, on: list[Any]
) -> None:
    s = replay(frame, [range(200)], tmp_path)
    inputs = {"a": s, "t": make_table(spark)}
    columns = [F.col("a.id"), *([F.col("t.n")] if how in ("inner", "left") else [])]
    whole = outcome(th.join(inputs, on, how=how, mailbox=str(tmp_path / "path")), columns, tmp_path)
    room = 35_000 if how in ("semi", "anti") else ROOM  # their tables have fewer columns
    divided = outcome(th.join(inputs, on, how=how, table_cache=room, **shared), columns, tmp_path)
    assert divided.rows == whole.rows
    assert whole.rows.total() > (0 if how == "anti" else 10)
    for one in list_used(divided.metrics):
        assert 0 < one["used_bytes"] <= room < one["bytes"]
    assert all(one["used_bytes"] <= one["bytes"] for one in list_used(whole.metrics))


@pytest.mark.slow
def test_the_nearest_rows_of_a_divided_table(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, shared: dict[str, str]
) -> None:
    keyed = make_table(spark).selectExpr("n", "n % 40 AS k", "low", "f")
    s = replay(frame, [range(200)], tmp_path).selectExpr("id", "x", "id % 43 AS k")
    on, how = "a.k = t.k AND a.x >= t.low", th.Nearest(2, by="a.x - t.low")
    inputs, columns = {"a": s, "t": keyed}, [F.col("a.id"), F.col("t.n")]
    whole = outcome(th.join(inputs, on, how=how, mailbox=str(tmp_path / "path")), columns, tmp_path)
    divided = outcome(th.join(inputs, on, how=how, table_cache=60_000, **shared), columns, tmp_path)
    assert divided.rows == whole.rows
    assert whole.rows.total() > 200
    assert all(one["used_bytes"] < 60_000 < one["bytes"] for one in list_used(divided.metrics))


NAMED = rf"\[TABLE_TOO_LARGE\] staged, table 't' has [\d,]+ bytes, and a host keeps {ROOM:,}: "


def test_a_table_that_hosts_cannot_share_is_refused_before_the_start(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, shared: dict[str, str]
) -> None:
    s, join = replay(frame, [range(100)], tmp_path), cast(Callable[..., Any], th.join)
    rows = make_table(spark)
    with pytest.raises(th.QueryError, match=NAMED + "no equality and no band"):
        join({"a": s, "t": rows}, "a.x < t.low", table_cache=ROOM, **shared)
    assert not list((tmp_path / "shared" / "tables" / "runs").iterdir())
    with pytest.raises(th.QueryError, match=r"\[BAD_VALUE\] table_cache must be a positive number of bytes"):
        join({"a": s, "t": rows}, BAND, table_cache="much")
    with pytest.raises(th.QueryError, match=r"\[BAD_VALUE\] table_cache bounds .*leave it out"):
        join({"a": s, "t": s}, "a.x < t.x", table_cache=ROOM)


@pytest.mark.slow
def test_skewed_keys_and_a_table_that_grows_are_refused_too(
    spark: SparkSession, frame: DataFrame, tmp_path: Path, shared: dict[str, str], recwarn: Any
) -> None:
    s, join = replay(frame, [range(100)], tmp_path), cast(Callable[..., Any], th.join)
    rows = make_table(spark)
    skewed, on = rows.selectExpr("*", "int(n % 100 = 0) AS k"), "a.x % 2 = t.k AND a.x > t.low"
    with pytest.raises(th.QueryError, match=NAMED + "tuples with nearly equal keys may meet .*many rows"):
        join({"a": s, "t": skewed}, on, table_cache=ROOM, **shared)
    assert not list((tmp_path / "shared" / "tables" / "runs").iterdir())
    # A folder that is a path is mapped in place, and has no limit.
    join({"a": s, "t": rows}, "a.x < t.low", table_cache=ROOM, mailbox=str(tmp_path / "path"))
    # A version that outgrows the cache while a query runs is refused, and the last one stays.
    path = str(tmp_path / "table")
    rows.where("n < 100").write.parquet(path)
    table = th.Table(path)
    join({"a": s, "t": table}, BAND, table_cache=ROOM, **shared)
    rows.write.mode("overwrite").parquet(path)
    for _ in range(2):
        with pytest.raises(th.QueryError, match=NAMED + "the query began with a smaller version"):
            th.stage(table)
    again = join({"a": s, "t": table}, BAND, table_cache=ROOM, **shared)
    assert outcome(again, ["a.id"], tmp_path).rows.total() > 50
    assert not [one for one in recwarn if isinstance(one.message, RefusedVersionWarning)]
