"""Tables that change: each epoch reads one version, and its results are those of a batch join with it."""

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from thetastream.runtime.opened_table import OpenedTable
from thetastream.runtime.table_versions import Version
from thetastream.spark.tables import cuts
from thetastream.spark.tables.stage import stage_rows

ON = "a.x >= t.low AND a.x < t.high"


class Stream:
    """A stream of numbers. Each call of ``add`` brings one epoch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder / "input"
        self.folder.mkdir(parents=True)
        reader = spark.readStream.schema("x BIGINT").option("maxFilesPerTrigger", 1)
        self.frame = reader.csv(str(self.folder))
        self.epochs: list[list[int]] = []

    def add(self, numbers: Iterable[int]) -> None:
        self.epochs.append(list(numbers))
        name = f"{len(self.epochs):04}.csv"
        hidden = self.folder / f".{name}"
        hidden.write_text("".join(f"{n}\n" for n in self.epochs[-1]))
        hidden.rename(self.folder / name)


class Ranges:
    """A Parquet folder of ranges, of which each version has other rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.path = spark, str(folder / "ranges")
        self.rows: dict[int, list[tuple[int, int, str]]] = {}

    def write(self, number: int) -> None:
        rows = [(n * 3, n * 3 + 2 + number % 4, f"v{number}") for n in range(1 + number % 5)]
        self.rows[number] = rows
        self.overwrite(self.spark.createDataFrame(rows, "low BIGINT, high BIGINT, name STRING"))

    def overwrite(self, frame: DataFrame) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(self.path)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


@pytest.fixture
def ranges(spark: SparkSession, tmp_path: Path) -> Ranges:
    ranges = Ranges(spark, tmp_path)
    ranges.write(1)
    return ranges


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that starts a query, which appends (epoch, *row) to a list."""
    queries: list[Any] = []

    def run(rows: DataFrame, found: list[tuple[Any, ...]]) -> Any:
        def collect(batch: DataFrame, epoch: int) -> None:
            new = [(epoch, *row) for row in batch.collect()]
            found[:] = [row for row in found if row[0] != epoch] + new

        writer = rows.writeStream.foreachBatch(collect)
        queries.append(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        return queries[-1]

    yield run
    for query in queries:
        query.stop()


def join_in_batch(
    spark: SparkSession, stream: Stream, ranges: Ranges, read: dict[int, int], how: str
) -> Counter[tuple[Any, ...]]:
    """Join the rows of each epoch with the version that it has read, by Spark."""
    expected: Counter[tuple[Any, ...]] = Counter()
    for epoch, numbers in enumerate(stream.epochs):
        a = spark.createDataFrame([(n,) for n in numbers], "x BIGINT").alias("a")
        t = spark.createDataFrame(ranges.rows[read[epoch]], "low BIGINT, high BIGINT, name STRING")
        joined = a.join(t.alias("t"), how=how, on=spark_expr(ON))
        expected.update((epoch, *row) for row in joined.selectExpr("a.x", "t.name").collect())
    return expected


def spark_expr(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)


def wait_for(is_done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["inner", "left"])
def test_each_epoch_joins_with_the_newest_version_of_an_overwritten_folder(
    spark: SparkSession, stream: Stream, ranges: Ranges, start: Any, tmp_path: Path, how: str
) -> None:
    table, found = th.Table(ranges.path, keep=2), list[Any]()
    joined = th.join({"a": stream.frame, "t": table}, ON, how=how, mailbox=str(tmp_path / "shared"))
    query = start(joined.select("a.x", "t.name"), found)
    for number in range(1, 5):
        if number > 1:
            ranges.write(number)
            assert th.stage(table)[0]["version"] == number
        stream.add(range(15))
        query.processAllAvailable()
    read = {one["epoch"]: one["version"] for one in th.versions(query)}
    assert read == {0: 1, 1: 2, 2: 3, 3: 4}
    assert Counter(found) == join_in_batch(spark, stream, ranges, read, how)
    (newest,) = (one for one in th.versions(query) if one["epoch"] == 3)
    assert newest["alias"] == "t"
    assert newest["rows"] == len(ranges.rows[4])
    assert newest["bytes"] > 0
    measured = [entry["tables"]["t"] for entry in th.metrics(query) if "tables" in entry]
    assert [(one["version"], one["rows"]) for one in measured] == [
        (number, len(ranges.rows[number])) for number in range(1, 5)
    ]
    assert all(one["age_s"] >= 0 and one["refused"] is None for one in measured)


@pytest.mark.slow
def test_an_unchanged_table_is_not_staged_again(
    spark: SparkSession, stream: Stream, ranges: Ranges, tmp_path: Path
) -> None:
    shared, n_read = tmp_path / "shared", [0]
    rows = spark.range(5).selectExpr("id AS low", "id + 2 AS high", "map('a', id) AS more").localCheckpoint()

    def read(session: SparkSession) -> DataFrame:
        n_read[0] += 1
        return session.createDataFrame(rows.collect()[:: (-1) ** n_read[0]], rows.schema)

    tables = [th.Table(ranges.path), th.Table(read), th.Table(spark.read.parquet(ranges.path))]
    for table in tables:
        th.plan({"a": stream.frame, "t": table}, ON, mailbox=str(shared))
        first = th.stage(table)
        names = {path.name for path in (shared / "tables" / "runs").iterdir()}
        assert [th.stage(table) for _ in range(2)] == [first, first]
        assert {path.name for path in (shared / "tables" / "runs").iterdir()} == names
        assert first[0]["version"] == 1
    assert n_read[0] > 3
    # Other files with the same rows are no new version, and other rows are one, also of a DataFrame.
    ranges.write(1)
    assert [th.stage(tables[n])[0]["version"] for n in (0, 2)] == [1, 1]
    ranges.write(2)
    assert [th.stage(tables[n])[0]["version"] for n in (0, 2)] == [2, 2]
    # A program that starts later knows the versions of a path.
    again = th.Table(ranges.path)
    th.plan({"a": stream.frame, "t": again}, ON, mailbox=str(shared))
    assert th.stage(again)[0]["version"] == 2
    assert th.stage(again, tmp_path / "elsewhere")[0]["version"] == 1


@pytest.mark.slow
def test_a_table_is_followed_while_a_query_runs(
    spark: SparkSession, stream: Stream, ranges: Ranges, start: Any, tmp_path: Path
) -> None:
    table, found = th.Table(ranges.path, every="0.5 seconds"), list[Any]()
    joined = th.join({"a": stream.frame, "t": table}, ON, mailbox=str(tmp_path / "shared"))
    (staging,) = table.stagings.values()
    versions = staging.folder.open_versions(staging.name)
    query = start(joined.select("a.x", "t.name"), found)

    def run_epoch() -> tuple[int, dict[str, Any]]:
        stream.add(range(9))
        query.processAllAvailable()
        last = th.versions(query)[-1]
        return last["version"], th.metrics(query)[-1]["tables"]["t"]

    assert run_epoch()[0] == 1
    ranges.write(2)
    wait_for(lambda: versions.list_numbers()[-1] == 2)
    assert run_epoch()[0] == 2
    # A version that the query cannot use does not end it.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ranges.overwrite(spark.range(3).selectExpr("id AS low", "string(id) AS high", "'x' AS name"))
        wait_for(lambda: versions.read_check().refused is not None)
        version, figures = run_epoch()
        assert (version, figures["refused"]) == (2, "TABLE_SCHEMA")
        wait_for(lambda: any("'high' is STRING and was BIGINT" in str(one.message) for one in caught))
    ranges.write(3)
    wait_for(lambda: versions.list_numbers()[-1] == 3)
    version, figures = run_epoch()
    assert (version, figures["refused"]) == (3, None)
    read = {one["epoch"]: one["version"] for one in th.versions(query)}
    assert Counter(found) == join_in_batch(spark, stream, ranges, read, "inner")
    query.stop()
    number = versions.list_numbers()[-1]
    wait_for(lambda: not _list_followers("t"))
    ranges.write(4)
    assert versions.list_numbers()[-1] == number


def _list_followers(alias: str) -> list[str]:
    import threading

    return [one.name for one in threading.enumerate() if one.name == f"thetastream-table-{alias}"]


def test_a_query_that_starts_again_reads_the_versions_that_it_read_before(
    spark: SparkSession, stream: Stream, ranges: Ranges, start: Any, tmp_path: Path
) -> None:
    found: list[Any] = []

    def run() -> Any:
        inputs = {"a": stream.frame, "t": th.Table(ranges.path)}
        joined = th.join(inputs, ON, mailbox=(tmp_path / "shared").as_uri())
        query = start(joined.select("a.x", "t.name"), found)
        query.processAllAvailable()
        query.stop()
        return query

    stream.add(range(9))
    run()
    ranges.write(2)
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    stream.add(range(9))
    read = {one["epoch"]: one["version"] for one in th.versions(run())}
    assert read == {0: 1, 1: 2}
    assert Counter(found) == join_in_batch(spark, stream, ranges, read, "inner")


@pytest.mark.slow
def test_several_tables_and_joined_streams_follow_changes_too(
    spark: SparkSession, stream: Stream, ranges: Ranges, start: Any, tmp_path: Path
) -> None:
    """An equality alone is enough for a ``th.Table``, whose changes Spark's own join would not follow."""
    other = Ranges(spark, tmp_path / "other")
    other.write(2)
    tables, found = {"t": th.Table(ranges.path), "u": th.Table(other.path)}, list[Any]()
    inputs = {"a": stream.frame, "b": stream.frame, **tables}
    plan = th.plan(inputs, f"a.x = b.x AND {ON} AND u.low = b.x", mailbox=str(tmp_path / "shared"))
    assert plan.explain().count("by an index of the table") == 2
    assert f"table u: 3 columns, parquet {other.path}, staged when the DataFrame is built" in plan.explain()
    query = start(plan.dataframe().select("a.x", "t.name", "u.name"), found)
    stream.add(range(9))
    query.processAllAvailable()
    ranges.write(3)
    other.write(4)
    assert [th.stage(table)[0]["version"] for table in tables.values()] == [2, 2]
    stream.add(range(9, 12))
    query.processAllAvailable()
    read = {(one["epoch"], one["alias"]): one["version"] for one in th.versions(query)}
    assert read == {(0, "t"): 1, (0, "u"): 1, (1, "t"): 2, (1, "u"): 2}
    expected = Counter(
        (epoch, x, name, label)
        for epoch, (mine, theirs) in enumerate([(1, 2), (3, 4)])
        for x in stream.epochs[epoch]
        for low, high, name in ranges.rows[mine]
        for begin, _, label in other.rows[theirs]
        if low <= x < high and begin == x
    )
    assert Counter(found) == expected
    assert expected


def test_a_table_without_an_index_is_refused(
    spark: SparkSession, stream: Stream, ranges: Ranges, tmp_path: Path
) -> None:
    table = th.Table(ranges.path, every="1 minute")
    inputs = {"a": stream.frame, "t": table}
    with pytest.raises(th.QueryError, match=r"\[TABLE_FOLDER\].*on s3:// only; give mailbox="):
        th.plan(inputs, ON, mailbox="gs://bucket/mail")
    with pytest.raises(th.QueryError, match=r'\[TABLE_INDEX\].*model="spark" asks for it'):
        th.plan(inputs, ON, model="spark")
    # A conjunct that only Spark can evaluate needs no join of Spark.
    assert th.plan(inputs, f"{ON} AND coalesce(t.name, string(a.x)) <> 'n3'", how="left")
    span = spark.sql("SELECT 1L AS low, 2L AS high, array(make_interval(0, 1)) AS span")
    with pytest.raises(
        th.QueryError, match=r"\[TABLE_INDEX\].*because column t.span .*; drop the column"
    ) as info:
        th.plan({"a": stream.frame, "t": th.Table(span)}, ON)
    assert "write the conjunct" not in str(info.value)
    with pytest.raises(th.QueryError, match=r"\[BAD_VALUE\] no join has been planned"):
        th.stage(th.Table(ranges.path))
    with pytest.raises(th.QueryError, match=r"\[BAD_VALUE\] th.stage needs a th.Table"):
        th.stage(stream.frame)  # type: ignore[arg-type]


@pytest.mark.parametrize("on", [ON, f"{ON} AND a.x = t.k"])
def test_a_large_table_is_cut_by_ranges_that_stay(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """The runs of a version do not overlap, and a new version writes the range that has changed only."""
    rows = stream.frame.sparkSession.range(0, 1000, 1, 4).selectExpr("id % 10 AS k", "id * 37 % 1000 AS low")
    rows = rows.selectExpr("k", "low", "low + 5 AS high")
    table = th.Table(rows)
    th.plan({"a": stream.frame, "t": table}, on, mailbox=str(tmp_path))
    (staging,) = table.stagings.values()
    plan = staging.flow.lookup.plan
    place = (*plan.access.group, *plan.access.ranges)[0]

    def find_spans(version: Version) -> list[tuple[int, int]]:
        runs = OpenedTable(staging.folder, version, plan, pa.schema([])).open_all().runs
        assert sum(run.n_rows for run in runs) == 1000
        return sorted((int(run.rows[:, place].min()), int(run.rows[:, place].max())) for run in runs)

    def stage_version(frame: DataFrame, before: Version | None = None) -> Version:
        return stage_rows(staging.flow, frame, staging.folder, before)

    whole = find_spans(stage_version(rows))
    assert len(whole) > 1
    assert all(later[0] < earlier[1] for earlier, later in pairwise(whole))
    monkeypatch.setattr(cuts, "CUT_BYTES", 0)
    monkeypatch.setattr(cuts, "RANGE_BYTES", 2000)
    first = stage_version(rows)
    cut = find_spans(first)
    assert len(cut) > 4
    assert all(later[0] > earlier[1] for earlier, later in pairwise(cut))
    moved = rows.withColumn("high", (rows.high + (rows.low < 10).cast("int")).alias("high"))
    second = stage_version(moved.repartition(3), first)
    assert find_spans(second) == cut
    n_changed = 1 if on == ON else len(first.runs)
    assert len(set(second.runs) - set(first.runs)) == n_changed
    assert second.cuts == first.cuts
    assert stage_version(rows, second).runs != second.runs


def test_an_explanation_stages_nothing(stream: Stream, ranges: Ranges, tmp_path: Path) -> None:
    inputs, shared = {"a": stream.frame, "t": th.Table(ranges.path)}, tmp_path / "shared"
    text = f"EXPLAIN SELECT a.x, count(*) FROM (SELECT a.x FROM a JOIN t ON {ON}) AS a GROUP BY a.x"
    (row,) = th.sql(stream.frame.sparkSession, text, inputs, mailbox=str(shared)).collect()
    assert "by an index of the table" in row.plan
    assert not shared.exists()
    # The same plan stages the table if its results are asked for.
    th.sql(stream.frame.sparkSession, text.removeprefix("EXPLAIN "), inputs, mailbox=str(shared))
    assert len(list((shared / "tables" / "runs").iterdir())) == 1


def test_a_key_that_occurs_twice_is_refused(stream: Stream, ranges: Ranges, tmp_path: Path) -> None:
    table = th.Table(ranges.path, key="low")
    plan = th.plan({"a": stream.frame, "t": table}, ON, mailbox=str(tmp_path))
    assert th.stage(table)[0]["version"] == 1
    spark = stream.frame.sparkSession
    rows = [(None, 1, "a"), (None, 2, "b"), (7, 9, "c"), (7, 8, "d")]
    ranges.overwrite(spark.createDataFrame(rows, "low BIGINT, high BIGINT, name STRING"))
    with pytest.raises(th.QueryError, match=r"\[TABLE_KEYS\] table 't' has two rows with low=7, and key="):
        th.stage(table)
    (staging,) = table.stagings.values()
    assert staging.folder.open_versions(staging.name).list_numbers() == [1]
    # A query that starts now goes on with the last version, and one without a version is refused.
    with pytest.warns(th.errors.RefusedVersionWarning, match="TABLE_KEYS.*goes on with the last version"):
        plan.dataframe()
    elsewhere = th.plan({"a": stream.frame, "t": table}, ON, mailbox=str(tmp_path / "elsewhere"))
    with pytest.raises(th.QueryError, match="TABLE_KEYS"):
        elsewhere.dataframe()
    ranges.overwrite(spark.createDataFrame(rows[:3], "low BIGINT, high BIGINT, name STRING"))
    assert th.stage(table)[0]["version"] == 2


def test_a_version_needs_the_columns_that_the_query_reads(
    stream: Stream, ranges: Ranges, tmp_path: Path
) -> None:
    """A semi join reads the columns of its condition only."""
    rows = stream.frame.sparkSession.range(3).selectExpr("id AS low", "id AS high", "id AS `odd name`")
    ranges.overwrite(rows.withColumn("name", rows.low))
    table = th.Table(ranges.path)
    on = f"{ON} AND t.`odd name` >= 0"
    th.plan({"a": stream.frame, "t": table}, on, how="semi", mailbox=str(tmp_path))
    assert th.stage(table)[0]["version"] == 1
    ranges.overwrite(rows.where("id > 0").selectExpr("low AS LOW", "high", "`odd name` AS `Odd Name`"))
    assert th.stage(table)[0]["version"] == 2
    for frame, words in (
        (rows.drop("high"), "its column 'high' is gone; it has low, odd name"),
        (rows.withColumn("odd name", rows.low.cast("int")), "its column 'odd name' is INT and was BIGINT"),
    ):
        ranges.overwrite(frame)
        with pytest.raises(th.QueryError, match=rf"\[TABLE_SCHEMA\] table 't'.*{words}"):
            th.stage(table)


def test_a_source_that_cannot_be_read_is_refused_by_name(
    stream: Stream, ranges: Ranges, tmp_path: Path
) -> None:
    spark, fails = stream.frame.sparkSession, [False]

    def read(session: Any) -> DataFrame:
        if fails[0]:
            raise ZeroDivisionError("no rows today")
        return session.range(3).selectExpr("id AS low", "id AS high", "id AS name")

    ranges.overwrite(read(spark))
    tables = {"f": th.Table(read), "p": th.Table(ranges.path)}
    for alias, table in tables.items():
        on = f"a.x >= {alias}.low AND a.x <= {alias}.high"
        th.plan({"a": stream.frame, alias: table}, on, mailbox=str(tmp_path))
        assert th.stage(table)[0]["version"] == 1
    fails[0] = True
    for file in Path(ranges.path).glob("*.parquet"):
        file.write_bytes(b"PAR1" + bytes(50) + b"PAR1")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    for alias, words in (("f", "no rows today"), ("p", "FAILED_READ_FILE|CANNOT_READ|Exception")):
        with pytest.raises(th.QueryError, match=rf"\[TABLE_UNREADABLE\] table '{alias}'.*({words})") as found:
            th.stage(tables[alias])
        assert "calling o" not in str(found.value)


def test_a_table_without_files_is_refused_by_name(stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, words in (("empty", "it has no files yet"), ("nowhere", "PATH_NOT_FOUND")):
        table = th.Table(str(tmp_path / name))
        with pytest.raises(th.QueryError, match=rf"\[TABLE_UNREADABLE\].*parquet .*{name} cannot.*{words}"):
            th.plan({"a": stream.frame, "t": table}, ON)


def test_versions_that_are_too_old_or_gone_end_the_query_by_name(
    stream: Stream, ranges: Ranges, start: Any, tmp_path: Path
) -> None:
    table = th.Table(ranges.path, max_age="1 hour")
    joined = th.join({"a": stream.frame, "t": table}, ON, mailbox=str(tmp_path / "shared"))
    stream.add(range(9))
    folder = tmp_path / "shared" / "tables"
    (of_table,) = (folder / "staged").iterdir()

    def end() -> str:
        query = start(joined.select("a.x", "t.name"), [])
        with pytest.raises(Exception, match="TABLE_"):
            query.processAllAvailable()
        return str(query.exception())

    for name in ("1", "checked"):
        made = json.loads((of_table / name).read_text())
        made |= {key: made[key] - 7200 for key in ("staged_s", "fresh_s") if key in made}
        (of_table / name).write_text(json.dumps(made))
    assert (
        "[TABLE_STALE] table 't' must not be older than max_age (3600 s), and version 1, staged at" in end()
    )
    assert th.stage(table)[0]["version"] == 1
    for run in (folder / "runs").iterdir():
        run.unlink()
    assert "[TABLE_MISSING] staged rows of a table are not in" in end()


def test_a_table_in_a_folder_that_is_being_written_is_read_later(
    stream: Stream, ranges: Ranges, tmp_path: Path
) -> None:
    table = th.Table(ranges.path)
    th.plan({"a": stream.frame, "t": table}, ON, mailbox=str(tmp_path))
    (Path(ranges.path) / "_temporary").mkdir()
    with pytest.raises(th.QueryError, match=r"\[TABLE_BUSY\] table 't'.*a program is writing"):
        th.stage(table)
    (Path(ranges.path) / "_temporary").rmdir()
    assert th.stage(table)[0]["version"] == 1
