"""The costs that explain shows are compared with the counters of running streams."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thetastream as th
from thetastream.core.errors import QueryError
from thetastream.families.pairs.choose import build_default_model, list_comparable
from thetastream.families.pairs.cost import estimate
from thetastream.families.pairs.workload import build_workload
from thetastream.lowering.statistics import Statistics
from thetastream.models import Biclique, Matrix

BINARY = set(list_comparable())
CHANCE = np.random.default_rng(3)
FILE_S, ROWS, FILES = 10, 3000, 8


@pytest.fixture(scope="module")
def streams(spark, tmp_path_factory):
    """Make two streams of 8 files, one per epoch: 10 s of event time, 300 and 200 tuples a second."""
    folder = tmp_path_factory.mktemp("cost")
    for alias, n_rows in (("a", ROWS), ("b", ROWS * 2 // 3)):
        (folder / alias).mkdir()
        for number in range(FILES):
            times = 1_700_000_000_000_000 + (number * FILE_S + np.arange(n_rows) * FILE_S / n_rows) * 1e6
            table = pa.table(
                {
                    "id": np.arange(number * n_rows, (number + 1) * n_rows),
                    "k": CHANCE.integers(0, 50_000, n_rows),
                    "name": [f"name-{row:011}" for row in range(n_rows)],
                    "ts": pa.array(times.astype(np.int64)).cast(pa.timestamp("us", "UTC")),
                }
            )
            path = folder / alias / f"{number:03}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)
    schema = "id BIGINT, k BIGINT, name STRING, ts TIMESTAMP"
    return {
        alias: spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / alias))
        .withWatermark("ts", "3 seconds")
        for alias in "ab"
    }


GIVEN = Statistics(tuples_per_second={"a": ROWS / FILE_S, "b": ROWS * 2 / 3 / FILE_S}, epoch_s=FILE_S)


@pytest.mark.slow
def test_a_stream_holds_what_explain_says(streams, tmp_path):
    on, within = "a.k = b.k", "12 seconds"
    plan = th.plan(streams, on=on, within=within, statistics=GIVEN)
    writer = plan.dataframe().selectExpr("a.id AS a").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    epochs = [epoch for epoch in th.metrics(query) if epoch["stored"]]
    held = np.mean([epoch["mlv_bytes"] for epoch in epochs[3:]])
    assert len(epochs[3:]) >= 4

    planned = plan.join.planned

    def predicted(statistics):
        work = build_workload(planned.query, planned.lowered, statistics)
        return estimate(planned.model, work, 2).memory_bytes

    assert predicted(GIVEN) == pytest.approx(held, rel=0.2)
    known = th.statistics(query)
    rates = known.tuples_per_second
    assert rates == pytest.approx((ROWS / FILE_S, ROWS * 2 / 3 / FILE_S), rel=0.1)
    assert (known.watermark_delay_s, known.epoch_s) == pytest.approx((3, FILE_S), rel=0.05)
    assert predicted(known) == pytest.approx(held, rel=0.1)
    text = th.plan(streams, on=on, within=within, statistics=known).explain()
    assert "statistics: measured" in text


def test_explain_compares_every_model_that_can_run(streams):
    text = th.plan(streams, on="a.k < b.k", within="1 minute", model=Matrix(1, 2), statistics=GIVEN).explain()
    rows = [line for line in text.splitlines() if line.startswith(("* ", "  ")) and "kB/s" in line]
    assert {row[2:].split("(")[0].lower() for row in rows} == BINARY
    assert next(row for row in rows if row.startswith("*")).startswith("* Matrix(rows=1, columns=2)")
    assert "choice: Matrix(rows=1, columns=2), as asked for" in text
    assert "statistics: assumed, as given; watermark 3 s behind" in text
    assert "300 tuples/s" in text
    history = th.plan(streams, on="a.k < b.k").explain()
    assert "/hour" in history
    assert "state grows for as long as the query runs" in history


def test_copies_are_averages(streams):
    plan = th.plan(streams, on="a.k = b.k", within="1 minute", model=Biclique((2, 3), subgroups=(1, 2)))
    assert "sends a tuple: 2.5 on average, 3" in plan.explain()
    assert "tuple of a: 2.5 on average sends (1 stored, 1.5 on average probing b)" in plan.explain()


def test_auto_is_what_none_means(streams):
    plans = [th.plan(streams, on="a.k < b.k", within="1 minute", model=model) for model in ("auto", None)]
    assert plans[0].models == plans[1].models == (build_default_model(2),)
    assert plans[0].explain() == plans[1].explain()
    few = Statistics(tuples_per_second={"a": 20_000, "b": 1_000})
    assert th.plan(streams, on="a.k < b.k", within="1 minute", statistics=few).models[
        0
    ] == build_default_model(2)


@pytest.mark.parametrize(
    ("settings", "condition"),
    [
        ({"model": "fastest"}, "UNKNOWN_MODEL"),
        ({"model": 4}, "UNKNOWN_MODEL"),
        ({"model": th.Split(5000)}, "BAD_UNITS"),
        ({"statistics": {"a": 3}}, "STATISTICS"),
        ({"statistics": "measured"}, "STATISTICS"),
    ],
    ids=str,
)
def test_what_is_no_model_and_no_statistics_is_refused(streams, settings, condition):
    with pytest.raises(QueryError, match=condition):
        th.plan(streams, on="a.k < b.k", within="1 minute", **settings)
