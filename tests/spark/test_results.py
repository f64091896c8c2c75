"""Results that a query writes into a store: each exactly once, also if an epoch runs again."""

import json
import os
import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from thetastream.app.job.rescaling import rescale


class Source:
    """A folder of JSON files as a stream, one epoch per file."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._n = spark, folder / "in", 0
        self._folder.mkdir()

    def add(self, *ids: int) -> None:
        rows = ({"id": n, "ts": f"2026-01-05 09:{n:02}:00", "symbol": f"s{n % 3}"} for n in ids)
        path = self._folder / f"{self._n}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + self._n,) * 2)  # Spark reads the oldest file first.
        self._n += 1

    def open(self) -> DataFrame:
        reader = self._spark.readStream.schema("id INT, ts TIMESTAMP, symbol STRING")
        return reader.option("maxFilesPerTrigger", 1).json(str(self._folder)).withWatermark("ts", "1 minute")


def forget_commit(checkpoint: Path, epoch: int) -> None:
    """Make Spark run the epochs from ``epoch`` on again, as after a crash before its commit."""
    for path in (checkpoint / "commits").iterdir():
        name = path.name.removeprefix(".").removesuffix(".crc")
        if name.isdigit() and int(name) >= epoch:
            path.unlink()
    for path in (checkpoint / "offsets").iterdir():
        name = path.name.removeprefix(".").removesuffix(".crc")
        if name.isdigit() and int(name) > epoch:
            path.unlink()


@pytest.mark.parametrize("path", ["units", pytest.param("rows", marks=pytest.mark.slow)])
def test_results_are_kept_once(
    spark: SparkSession, tmp_path: Path, path: str, only_epochs_with_rows: None
) -> None:
    source, store = Source(spark, tmp_path), th.ParquetStore(str(tmp_path / "store"))
    checkpoint = tmp_path / "checkpoint"

    def run() -> list[int]:
        """Run the query on what is new, and return the epochs that found pairs."""
        stream = source.open()
        pairs = th.join({"a": stream, "b": stream}, on="a.id < b.id", within="2m")
        # Behind where(), the rows are not what a plan has built.
        frame = pairs if path == "units" else pairs.where("true")
        query = th.write(
            frame, store, key="a.symbol", checkpoint=str(checkpoint), trigger="available now", name="kept"
        )
        query.awaitTermination()
        entries = [entry for entry in th.metrics(query) if entry["matched"]]
        assert {entry["plan"]["words"]["the condition"] for entry in entries} == {"a.id < b.id"}
        return [entry["epoch"] for entry in entries]

    def found() -> list[tuple[int, int]]:
        return sorted((row["a"]["id"], row["b"]["id"]) for row in store.read().to_pylist())

    expected = [(1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (10, 11)]
    source.add(1, 2, 3)
    source.add(4, 10)
    run()
    source.add(11)
    (last,) = run()
    assert found() == expected
    # The last epoch with rows runs again. Its files are written again, and nothing names them.
    forget_commit(checkpoint, last)
    before = store.files()
    assert run() == [last]
    assert found() == expected
    assert store.files() == before
    assert store.sweep() >= 1
    assert sorted(path.name for path in (tmp_path / "store").glob("*.parquet")) == sorted(
        Path(file).name for file in before
    )
    rows = spark.read.parquet(*store.files())
    assert rows.schema["result_time"].dataType.simpleString() == "timestamp"
    assert sorted((row.a.id, row.b.id) for row in rows.collect()) == expected
    late = th.ParquetStore(str(tmp_path / "store")).read(since="2026-01-05 09:04", key={"a.symbol": "s1"})
    assert [row["b"]["id"] for row in late.to_pylist()] == [11]


def test_what_a_store_cannot_hold_is_refused_before_the_query_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path)
    store, asked = th.ParquetStore(str(tmp_path / "store")), {"checkpoint": str(tmp_path / "c")}
    rows = source.open()
    for refused, frame, key in (
        ("STORE_COLUMN.*one name: id, id;", rows.select("id", "id"), ()),
        ("STORE_COLUMN.*one name: ID, id;", rows.selectExpr("id AS ID", "id"), ()),
        ("STORE_COLUMN.*INTERVAL|STORE_COLUMN.*duration", rows.selectExpr("ts - ts AS span"), ()),
        (r"STORE_COLUMN.*key \('x'\)", rows, "x"),
        ("NOT_STREAMING", spark.range(3), ()),
    ):
        with pytest.raises(th.QueryError, match=refused):
            th.write(frame, store, key=key, **asked)
    nested = rows.selectExpr("struct(*) AS a", "struct(ts) AS b")
    for refused, select in (
        (r"UNKNOWN_COLUMN.*'ts'.*write 'a\.ts' or 'b\.ts'", ["ts"]),
        ("UNKNOWN_COLUMN.*'c'.*there are a, b", ["c"]),
        ("BAD_VALUE.*list of texts.*not 'id'", "id"),
        ("PARSE_SYNTAX_ERROR.*select", ["a.id +"]),
    ):
        with pytest.raises(th.QueryError, match=refused):
            th.write(nested, store, select=select, **asked)
    assert not (tmp_path / "store").exists()
    with pytest.raises(th.QueryError, match=r"SINK_MODE.*window\("):
        th.write(rows.groupBy("id").count(), store, **asked)


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_units_write_what_they_can_compute(spark: SparkSession, tmp_path: Path) -> None:
    source = Source(spark, tmp_path)
    source.add(1, 2, 3, 4)
    stream = source.open().selectExpr("*", "array(id) AS ids", "named_struct('at', ts) AS inner")
    plan = th.plan({"a": stream, "b": stream}, on="a.id < b.id", within="1m")
    assert plan.explain_write().startswith("units")
    assert plan.explain().endswith(
        "\n\n== Writing into a store ==\nunits: each unit writes its results into the store itself\n"
    )
    assert "no name of a column" in plan.explain_write(["a.id + 1 AS n"])
    on = "a.id < b.id AND length(concat(a.symbol, b.symbol)) > 1"
    residual = th.plan({"a": stream, "b": stream}, on=on, within="1m")
    assert "Spark evaluates" in residual.explain_write()
    three = th.plan({"a": stream, "b": stream, "c": stream}, on="a.id < b.id AND b.id < c.id", within="1m")
    assert three.explain().count("== Writing into a store ==\n") == 1
    select = ["a.id AS first", "b.*", "A.inner AS mine", "result_time AS found", "`b` pair"]
    plan_rows = plan.dataframe()
    found = []
    for name, frame in (("units", plan), ("rows", plan_rows.where("true"))):
        store = th.ParquetStore(str(tmp_path / name))
        assert plan.explain_write(select).startswith("units")
        query = th.write(
            frame, store, select=select, checkpoint=str(tmp_path / f"{name}-c"), trigger="available now"
        )
        query.awaitTermination()
        found.append(store.read().sort_by([("first", "ascending")]))
    assert found[0].num_rows == 3
    assert found[0].equals(found[1])


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_units_compare_floating_point_values_and_texts_as_spark_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(spark, tmp_path)
    source.add(*range(1, 12))
    # Differences of these values are the limit but for rounding, or NaN, or NULL.
    x = "CASE WHEN id = 10 THEN double('NaN') WHEN id < 11 THEN id / 10D END AS x"
    stream = source.open().selectExpr("id", "ts", "symbol", x)
    plan = th.plan(
        {"a": stream, "b": stream}, on="abs(a.x - b.x) <= 0.2D AND a.symbol < b.symbol", within="1 hour"
    )
    assert plan.explain_write().startswith("units")
    store = th.ParquetStore(str(tmp_path / "store"))
    select = ["a.id AS first", "b.id AS second"]
    th.write(
        plan, store, select=select, checkpoint=str(tmp_path / "c"), trigger="available now"
    ).awaitTermination()
    ids = range(1, 10)
    expected = [(n, m) for n in ids for m in ids if abs(n / 10 - m / 10) <= 0.2 and n % 3 < m % 3]
    assert sorted(zip(*store.read().to_pydict().values(), strict=True)) == expected
    assert 0 < len(expected) < sum(abs(n - m) <= 2 and n % 3 < m % 3 for n in ids for m in ids)


@pytest.mark.slow
def test_punctuations_join_nothing_and_cut_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    """Marked rows need not satisfy the condition, whether units write the results or Spark does."""
    source = Source(spark, tmp_path)
    for ids in ((1, 2), (3, 4), (5, 6), (7,)):
        source.add(*ids)
    stream = source.open()
    on = "a.id <= b.id AND a.id < 6 AND CAST(CASE WHEN b.id % 3 > 0 THEN '1' ELSE 'x' END AS INT) > 0"
    pairs = th.join({"a": stream, "b": stream}, on=on, within="1m")
    rows = sorted((a, b) for a in (1, 2, 4, 5) for b in (1, 2, 4, 5, 7) if 0 <= b - a <= 1)
    for name, second in (("units", "b.id"), ("rows", "b.id + 0")):
        store = th.ParquetStore(str(tmp_path / name))
        query = th.write(
            pairs,
            store,
            select=["a.id AS first", f"{second} AS second"],
            snapshots=th.Snapshots(punctuation=["a.id % 3 = 0", "b.id % 3 = 0"]),
            checkpoint=str(tmp_path / f"checkpoint-{name}"),
            trigger="available now",
        )
        query.awaitTermination()
        found = store.read().to_pydict()
        assert sorted(zip(found["first"], found["second"], strict=True)) == rows
        assert [(one.at.minute, one.rows, one.reason) for one in store.snapshots()] == [
            (3, 4, "punctuation"),
            (6, 2, "punctuation"),
        ]
    for wrong, message in (
        ("a.id % b.id = 0", "must be a condition over the columns of one stream"),
        ("true", "must be a condition over the columns of one stream"),
        ("a.idd = 1", "idd"),
        ("a.id", "must be a condition over the columns of one stream"),
    ):
        with pytest.raises(th.QueryError, match=rf"\[BAD_VALUE\].*{message}"):
            th.write(pairs, store, checkpoint=str(tmp_path / "c"), snapshots=th.Snapshots(punctuation=wrong))
    later = pairs.where("a.id > 0")
    with pytest.raises(th.QueryError, match=r"\[BAD_VALUE\] punctuation needs a join"):
        th.write(later, store, checkpoint=str(tmp_path / "c"), snapshots=th.Snapshots(punctuation="a.id = 1"))


def test_an_answer_goes_on_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Integers keep all their digits, also beside NULL."""
    source, store = Source(spark, tmp_path), th.ParquetStore(str(tmp_path / "store"))
    source.add(1, 2, 5)
    stream = source.open()
    pairs = th.join({"a": stream, "b": stream}, on="a.id < b.id", within="10m")
    select = ["a.id AS first", "b.id + 9007199254740992L AS second", "nullif(a.id, 1) AS third"]
    checkpoint = str(tmp_path / "checkpoint")
    th.write(pairs, store, select=select, checkpoint=checkpoint, trigger="available now").awaitTermination()
    answer = th.query(store, "SELECT second, third FROM results WHERE first < 3")
    found = spark.createDataFrame(answer).selectExpr("second - 9007199254740992L AS second", "third")
    assert sorted(map(tuple, found.collect()), key=str) == [(2, None), (5, 2), (5, None)]
    assert found.schema.simpleString() == "struct<second:bigint,third:int>"


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_copies_of_checkpoints_and_stores_that_do_not_fit_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each of them lost rows or doubled them, and the query ended without an error."""
    source = Source(spark, tmp_path)
    path, copied = str(tmp_path / "store"), str(tmp_path / "copied")
    checkpoint, old = str(tmp_path / "checkpoint"), str(tmp_path / "old")

    def run(store: str, checkpoint: str) -> int:
        stream = source.open()
        pairs = th.join({"a": stream, "b": stream}, on="a.id <= b.id", within="1m")
        wanted = {"select": ["a.id AS first", "b.id AS second"], "trigger": "available now"}
        th.write(pairs, th.ParquetStore(store), checkpoint=checkpoint, **wanted).awaitTermination()
        return int(th.ParquetStore(store).read().num_rows)

    source.add(1, 2)
    assert run(path, checkpoint) == 3
    shutil.copytree(checkpoint, old)
    shutil.copytree(path, copied)
    source.add(3)
    assert run(path, checkpoint) == 5
    # 1. A copy of the checkpoint lacks the last epoch, and other input has come.
    source.add(4)
    (tmp_path / "in" / "1.json").rename(tmp_path / "late.json")
    with pytest.raises(Exception, match=r"STORE_AHEAD.*other input.*and the query runs from.*old"):
        run(path, old)
    (tmp_path / "late.json").rename(tmp_path / "in" / "1.json")
    # 2. A copy of the store lacks the last epoch of the checkpoint.
    with pytest.raises(Exception, match=r"STORE_BEHIND.*epoch 1 would be missing for ever"):
        run(copied, checkpoint)
    # 3. Another checkpoint begins again. It is refused before the query starts.
    with pytest.raises(
        th.errors.StoreError, match=r"STORE_IN_USE.*whose checkpoint is .*checkpoint, and the query"
    ):
        run(path, str(tmp_path / "second"))
    assert not (tmp_path / "second").exists()
    writer = source.open().selectExpr("id AS first", "id AS second").writeStream.format("thetastream_parquet")
    with pytest.raises(Exception, match="STORE_IN_USE"):
        writer.option("checkpointLocation", str(tmp_path / "second")).start(path).awaitTermination()
    assert th.ParquetStore(path).read().num_rows == 5
    assert th.ParquetStore(path).verify().is_intact


@pytest.mark.slow
@pytest.mark.usefixtures("only_epochs_with_rows")
def test_the_epoch_that_only_rescales_the_state_is_not_missed(spark: SparkSession, tmp_path: Path) -> None:
    source, store = Source(spark, tmp_path), th.ParquetStore(str(tmp_path / "store"))
    checkpoint = str(tmp_path / "checkpoint")

    def run() -> int:
        stream = source.open()
        pairs = th.join({"a": stream, "b": stream}, on="a.id <= b.id", within="1m", model=th.Split(2))
        query = th.write(pairs, store, checkpoint=checkpoint, trigger="available now")
        query.awaitTermination()
        return int(store.read().num_rows)

    source.add(1, 2)
    assert run() == 3
    assert rescale(spark, checkpoint, 3).now == 3
    source.add(3)
    assert run() == 5
