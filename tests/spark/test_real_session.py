"""``check_session`` and ``by_arrival`` on a real session."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import thetastream as th
from tests.support.streams import outcome, replay
from thetastream.spark.session import configure as settings
from thetastream.spark.session.configure import check_session, count_cores


class Conf(dict):
    """A session that has only ``spark.conf``, which is all that Spark Connect guarantees."""

    def set(self, key, value):
        self[key] = value


def test_real_session(spark):
    assert check_session(spark, 2) == []
    assert count_cores(spark) == 2
    assert "-Xss8m" in spark.conf.get(settings.JAVA_OPTIONS)
    assert th.configure(spark) is spark


def test_python_processes_do_not_load_pyspark_from_its_zip_file(spark):
    path = spark._jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()
    assert not [entry for entry in path.split(os.pathsep) if entry.endswith(".zip") and Path(entry).exists()]


def join_in(session, folder):
    """Join a stream with itself: pairs of equal x, and rows without a partner."""
    rows = session.range(40).selectExpr("id", "id % 7 AS x", "timestamp_seconds(1700000000 + id) AS ts")
    path = str(folder / "rows")
    rows.write.mode("ignore").parquet(path)
    streams = {
        alias: session.readStream.schema(rows.schema).parquet(path).withWatermark("ts", "5 seconds")
        for alias in "ab"
    }
    return th.join(streams, "a.x = b.x AND a.id < b.id", "10 seconds", how="left")


def test_each_session_of_a_program_joins_streams(spark, tmp_path):
    """Spark looks for some data sources in the active session of a thread, which is another one here."""
    for session in (spark, spark.newSession(), spark.newSession()):
        th.configure(session, partitions=2)
        assert join_in(session, tmp_path).isStreaming


@pytest.mark.slow
def test_each_session_of_a_program_writes_into_stores(spark, tmp_path):
    for number, session in enumerate((spark.newSession(), spark, spark.newSession())):
        th.configure(session, partitions=2)
        store = th.ParquetStore(str(tmp_path / f"store-{number}"))
        joined, checkpoint = join_in(session, tmp_path), str(tmp_path / f"checkpoint-{number}")
        th.write(joined, store, checkpoint=checkpoint, trigger="available now").awaitTermination()
        pairs = [row for row in store.read().to_pylist() if row["b"] is not None]
        assert len(pairs) == sum(a % 7 == b % 7 and a < b <= a + 10 for a in range(40) for b in range(40))


def test_parallelism_of_a_master_that_does_not_tell_it(spark):
    class Cluster:
        conf = Conf({"spark.master": "spark://head:7077"})
        range = staticmethod(spark.range)

    assert count_cores(Cluster()) == 2


def test_by_arrival_stamps_event_time(spark):
    ticks = spark.readStream.format("rate").load().select("value")
    stamped = th.by_arrival(ticks, slack="5 seconds")
    field = stamped.schema["arrival"]
    assert field.dataType.simpleString() == "timestamp"
    assert field.metadata["spark.watermarkDelayMs"] == 5000
    assert th.by_arrival(ticks, "seen").columns == ["value", "seen"]


def test_by_arrival_refuses_to_overwrite(spark):
    with pytest.raises(th.QueryError, match=r"\[COLUMN_EXISTS\] column 'Arrival' is already in the stream"):
        th.by_arrival(spark.createDataFrame([(1,)], "arrival int"), "Arrival")


def test_one_daemon_forks_the_workers_of_units_and_of_routing(spark, tmp_path):
    def name_daemon(batches):
        yield from (pa.record_batch({"daemon": [os.getppid()]}) for _ in batches)

    # This runs in the unit: a predicate over one stream would run before the exchange.
    @th.predicate(a=["id"], b=["id"])
    def keep_daemon(a, b):
        (tmp_path / "daemon").write_text(str(os.getppid()))
        return np.asarray(a.id) == np.asarray(b.id)

    numbers = spark.range(4)
    streams = {alias: replay(numbers, [range(4)], tmp_path) for alias in "ab"}
    joined = th.join(streams, on=keep_daemon, within=th.Rows(4), model=th.Split(1))
    assert outcome(joined, ["a.id"], tmp_path).rows.total() == 4
    [row] = spark.range(1).coalesce(1).mapInArrow(name_daemon, "daemon long").collect()
    assert row.daemon == int((tmp_path / "daemon").read_text())
