"""Tables whose rows replace each other: a tuple meets the row of a key that is valid at its event time."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th

Row = tuple[Any, ...]
BEGIN = datetime(2026, 3, 1, 12)
RATES: list[Row] = [
    ("EUR", 10, 1.0),
    ("EUR", 20, 2.0),
    ("EUR", 30, -3.0),
    ("USD", 0, 4.0),
    ("USD", 25, 5.0),
    ("GBP", 99, 6.0),
    (None, 0, 7.0),
    (None, 0, 8.0),
    ("EUR", None, 9.0),
]
SALES: list[Row] = [
    *((n, key, n * 2, 40 - n * 2) for n, key in enumerate(["EUR", "USD", "GBP", None] * 5)),
    (20, "EUR", None, 5),
    (21, "EUR", 20, None),
]
"""(id, key, seconds of the event, seconds of another time)."""


def at(seconds: int | None) -> datetime | None:
    return None if seconds is None else BEGIN + timedelta(seconds=seconds)


def make_rates(spark: SparkSession, rates: Iterable[Row] = RATES) -> DataFrame:
    rows = [(key, at(since), rate) for key, since, rate in rates]
    return spark.createDataFrame(rows, "currency STRING, Since TIMESTAMP, rate DOUBLE")


def make_sales(spark: SparkSession) -> DataFrame:
    rows = [(n, key, at(seconds), at(paid)) for n, key, seconds, paid in SALES]
    return spark.createDataFrame(rows, "id INT, currency STRING, ts TIMESTAMP, paid TIMESTAMP")


def make_table(spark: SparkSession, rates: Iterable[Row] = RATES) -> th.Table:
    return th.Table(make_rates(spark, rates), key=["currency"], valid_from="since")


def find_valid(key: str | None, seconds: int | None, rates: Iterable[Row] = RATES) -> Row | None:
    """Return the row of a key that is valid at a time."""
    known = [one for one in rates if key is not None and one[0] == key and one[1] is not None]
    began = [one for one in known if seconds is not None and one[1] <= seconds]
    return max(began, key=lambda one: one[1], default=None)


@pytest.fixture
def sales(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """The sales as a stream of two epochs."""
    for n, half in enumerate((SALES[:11], SALES[11:])):
        folder = tmp_path / "sales"
        folder.mkdir(exist_ok=True)
        lines = [",".join(str("" if one is None else one) for one in row) for row in half]
        (folder / f"{n}.csv").write_text("".join(f"{line}\n" for line in lines))
    reader = spark.readStream.schema("id INT, currency STRING, s INT, p INT").option("maxFilesPerTrigger", 1)
    seconds = f"unix_seconds(TIMESTAMP '{BEGIN}')"
    times = [
        f"timestamp_seconds({seconds} + {name}) AS {made}" for name, made in (("s", "ts"), ("p", "paid"))
    ]
    rows = reader.csv(str(folder)).selectExpr("id", "currency", *times)
    return rows.withWatermark("ts", "1 minute")


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[[DataFrame], Counter[Row]]:
    """Return a function that runs a query to its end and returns its rows."""

    def run(rows: DataFrame) -> Counter[Row]:
        found: Counter[Row] = Counter()

        def collect(batch: DataFrame, epoch: int) -> None:
            found.update(map(tuple, batch.collect()))

        writer = rows.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return found

    return run


@pytest.mark.sampled(4)
@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_row_of_a_key_is_chosen_before_the_condition_is_checked(
    spark: SparkSession, sales: DataFrame, run: Any, how: str
) -> None:
    on = "s.currency = r.currency AND r.rate > 0"
    inputs = {"s": sales, "r": make_table(spark)}
    items = ["s.id", "r.rate"] if how in ("inner", "left") else ["s.id"]
    expected: Counter[Row] = Counter()
    for n, key, seconds, _ in SALES:
        row = find_valid(key, seconds)
        # An older row with a positive rate is no partner.
        rate = None if row is None or row[2] <= 0 else row[2]
        if how == "left" or (rate is None) == (how == "anti"):
            expected[(n, rate)[: len(items)]] += 1
    joined = th.join(inputs, on, how=how)
    assert [column for column in joined.columns if column != "result_time"] == [*"sr"[: len(items)]]
    if len(items) == 2:
        assert joined.select("r.*").columns == ["currency", "Since", "rate"]
    assert run(joined.select(*items)) == expected
    assert 3 < expected.total() < 25
    batch = {"s": make_sales(spark), "r": make_table(spark)}
    answers = th.join(batch, on, how=how, event_time={"s": "ts"}).select(*items)
    assert Counter(map(tuple, answers.collect())) == expected


@pytest.mark.slow
def test_sql_names_the_time_at_which_a_row_is_valid(spark: SparkSession, sales: DataFrame, run: Any) -> None:
    inputs = {"sales": sales, "rates": make_table(spark)}
    at_time = (
        "SELECT s.id, r.rate FROM sales AS s LEFT JOIN rates FOR SYSTEM_TIME AS OF {} AS r USING (currency)"
    )
    at_time = at_time.replace(" USING (currency)", " ON s.currency = r.currency")
    valid = {n: (find_valid(key, s), find_valid(key, p)) for n, key, s, p in SALES}
    for time, place in (("s.ts", 0), ("paid", 1)):
        rows = th.sql(spark, at_time.format(time), inputs)
        expected = Counter((n, row[place] and row[place][2]) for n, row in valid.items())  # type: ignore[index]
        batch = {**inputs, "sales": make_sales(spark)}
        found = th.sql(spark, at_time.format(time), batch, event_time={"s": "ts"}).collect()
        assert Counter(map(tuple, found)) == expected
        if place:
            assert run(rows) == expected
    everything = th.sql(spark, "SELECT * FROM sales AS s JOIN rates AS r ON s.currency = r.currency", inputs)
    assert everything.columns == ["id", "currency", "ts", "paid", "currency", "Since", "rate"]


@pytest.mark.slow
def test_several_tables_in_a_row_are_valid_at_the_event_time(
    spark: SparkSession, sales: DataFrame, run: Any
) -> None:
    """The second table has other rows, which begin on days, and the rows of the first join have no key."""
    days = spark.createDataFrame(
        [(1, date(2026, 2, 1), "old"), (1, date(2026, 3, 1), "new")], "k INT, d DATE, n STRING"
    )
    inputs = {"s": sales, "r": make_table(spark), "v": th.Table(days, key="k", valid_from="d")}
    text = "SELECT s.id, r.rate, v.n FROM s LEFT JOIN r ON s.currency = r.currency LEFT JOIN v ON v.k <= s.id"
    expected: Counter[Row] = Counter()
    for n, key, seconds, _ in SALES:
        row = find_valid(key, seconds)
        name = "new" if n >= 1 and seconds is not None else None
        expected[n, row and row[2], name] += 1
    assert run(th.sql(spark, text, inputs)) == expected


@pytest.mark.slow
def test_beside_joined_streams_it_is_the_latest_event_time(
    spark: SparkSession, sales: DataFrame, run: Any
) -> None:
    inputs = {"a": sales, "b": sales, "r": make_table(spark)}
    on = "a.id + 8 = b.id AND a.currency = b.currency AND a.currency = r.currency"
    joined = th.join(inputs, on, within="1 hour", model=th.Split(2))
    by_id = {n: (key, seconds) for n, key, seconds, _ in SALES}
    expected: Counter[Row] = Counter()
    for n, (key, seconds) in by_id.items():
        later = by_id.get(n + 8)
        if later is not None and later[0] == key and None not in (seconds, later[1]):
            row = find_valid(key, max(seconds, later[1]))
            if row is not None:
                expected[n, row[2]] += 1
    assert run(joined.select("a.id", "r.rate")) == expected
    assert expected.total() > 3


def test_a_new_version_is_valid_in_later_epochs(
    spark: SparkSession, sales: DataFrame, tmp_path: Path
) -> None:
    path, found = str(tmp_path / "rates"), list[Row]()
    changed = [*RATES, ("EUR", 1, 70.0), ("GBP", 0, 80.0)]
    make_rates(spark).write.parquet(path)
    table = th.Table(path, key="currency", valid_from="Since")

    def collect(batch: DataFrame, epoch: int) -> None:
        found.extend((epoch, *row) for row in batch.collect())
        if epoch == 0:
            make_rates(spark, changed).write.mode("overwrite").parquet(path)
            assert th.stage(table)[0]["version"] == 2

    joined = th.join({"s": sales, "r": table}, "s.currency = r.currency").select("s.id", "r.rate")
    writer = joined.writeStream.foreachBatch(collect).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    expected: Counter[Row] = Counter()
    for n, key, seconds, _ in SALES:
        row = find_valid(key, seconds, RATES if n < 11 else changed)
        if row is not None:
            expected[n // 11, n, row[2]] += 1
    assert Counter(found) == expected
    assert any(rate == 80 for _, _, rate in found)


def test_two_rows_of_a_key_that_begin_at_one_time_are_refused(
    spark: SparkSession, sales: DataFrame, tmp_path: Path
) -> None:
    table = make_table(spark, [*RATES, ("EUR", 20, 2.5)])
    plan = th.plan({"s": sales, "r": table}, "s.currency = r.currency", mailbox=str(tmp_path))
    with pytest.raises(th.QueryError, match=r"\[TABLE_KEYS\].*currency=EUR, since=2026-03-01 12:00:20"):
        plan.dataframe()
    batch = {"s": make_sales(spark), "r": table}
    rows = th.join(batch, "s.currency = r.currency", event_time={"s": "ts"})
    with pytest.raises(PySparkException, match=r"\[TABLE_KEYS\] two rows have one key and one since"):
        rows.collect()


def test_what_has_no_time_is_refused(spark: SparkSession, sales: DataFrame) -> None:
    rates, on = make_rates(spark), "s.currency = r.currency"
    for table, words in (
        (
            th.Table(rates, key="currency", valid_from="rate"),
            r"VALID_FROM\] .*'r', which is double; it must be",
        ),
        (th.Table(rates, key="currency", valid_from="nope"), r"UNKNOWN_COLUMN\] valid_from names 'nope'"),
        (
            th.Table(rates, key=["currency", "nope"]),
            r"UNKNOWN_COLUMN\] key names 'nope'.*currency, Since, rate",
        ),
    ):
        with pytest.raises(th.QueryError, match=rf"\[{words}"):
            th.plan({"s": sales, "r": table}, on)
    with pytest.raises(th.QueryError, match=r"\[VALID_FROM\] valid_from='since' needs key="):
        th.Table(rates, valid_from="since")
    table = make_table(spark)
    timeless = sales.drop("ts")
    with pytest.raises(th.QueryError, match=r"\[VALID_FROM\].*and s has none; call .withWatermark"):
        th.plan({"s": timeless, "r": table}, on)
    local = th.Table(
        rates.withColumn("since", rates.Since.cast("timestamp_ntz")), key="currency", valid_from="since"
    )
    with pytest.raises(
        th.QueryError, match=r"\[VALID_FROM\] r.*is timestamp_ntz and s.ts is timestamp; cast"
    ):
        th.plan({"s": sales, "r": local}, on)
    batch = {"s": make_sales(spark), "r": table}
    with pytest.raises(th.QueryError, match=r"\[VALID_FROM\].*join two of them at a time"):
        th.plan({**batch, "u": batch["s"]}, f"{on} AND s.id = u.id", event_time={"s": "ts", "u": "ts"})
    text = "SELECT s.id FROM s JOIN r FOR SYSTEM_TIME AS OF s.ts ON s.currency = r.currency"
    for plain in (rates, th.Table(rates, key="currency")):
        with pytest.raises(
            th.QueryError, match=r"\[VALID_FROM\].*give it as th.Table\(..., key=, valid_from=\)"
        ):
            th.sql(spark, text, {"s": sales, "r": plain})
    assert "key currency, valid from since" in th.plan({"s": sales, "r": table}, on).explain()
