"""The sink and the emitter that put results into a store, called as Spark calls them."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DayTimeIntervalType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from thetastream.core.columns import BlockColumn, LatestTime
from thetastream.core.errors import QueryError
from thetastream.engine.counters import Counters
from thetastream.joins.write import write
from thetastream.results.snapshots import EACH_EPOCH, Snapshots
from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.flow import Staging, Target
from thetastream.runtime.punctuations import Punctuations
from thetastream.spark.dataflow.stages import STAGED, StagingEmitter
from thetastream.spark.sinks.store import (
    ParquetSink,
    StagedRows,
    StoreSink,
    StoreWriter,
    describe,
    pack_store,
)
from thetastream.spark.task_properties import read_task
from thetastream.stores import ParquetStore

COLUMNS = StructType(
    [
        StructField("id", IntegerType(), False),
        StructField("tags", ArrayType(StringType(), False)),
        StructField("result_time", TimestampType(), metadata={"spark.watermarkDelayMs": 0}),
    ]
)


@pytest.fixture
def epoch(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The properties that Spark gives to tasks."""
    told = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "0"}
    task = SimpleNamespace(getLocalProperty=told.get, partitionId=lambda: 0)
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    return told


def make_batch(*ids: int, zone: str = "Europe/Berlin") -> pa.RecordBatch:
    """Make a batch as Spark hands it to the sink: other marks of NULL, and the time zone of the session."""
    times = pa.array([one * 60_000_000 for one in ids]).cast(pa.timestamp("us", zone))
    tags = pa.array([[str(one)] for one in ids], pa.list_(pa.field("element", pa.string(), nullable=False)))
    return pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.int32()), tags, times], names=["id", "tags", "result_time"]
    )


def open_sink(
    store: ParquetStore,
    rule: Snapshots = EACH_EPOCH,
    is_staged: bool = False,
    punctuations: Punctuations | None = None,
) -> StoreWriter:
    description = describe(COLUMNS, None, ("id",))
    store.describe(description)
    options = {
        "store": pack_store(store),
        "description": json.dumps(description.as_json()),
        "snapshots": json.dumps(rule.as_json()),
        "staged": str(is_staged).lower(),
        **({} if punctuations is None else {"punctuations": punctuations.root}),
    }
    return StoreSink(CaseInsensitiveDict(options)).streamWriter(COLUMNS, False)


def test_an_epoch_of_rows_is_committed_once(tmp_path: Path, epoch: dict[str, str]) -> None:
    store = ParquetStore(str(tmp_path))
    writer = open_sink(store, Snapshots(every="1 minute"))
    for number, ids in enumerate([(1, 2), (3,), (3,), (5,)]):
        epoch["streaming.sql.batchId"] = str(min(number, 2))  # the third epoch runs twice
        tasks = [iter([make_batch(one)]) for one in ids] + [iter(())]
        messages = [writer.write(task) for task in tasks]
        writer.commit(messages, min(number, 2))
    assert sorted(store.read()["id"].to_pylist()) == [1, 2, 3, 3]
    assert store.read()["tags"].to_pylist()[0] == ["1"]
    assert [(one.at.minute, one.rows) for one in store.snapshots()] == [(3, 3)]
    writer.commit([], 9)  # Spark had no tasks.
    writer.abort([None], 9)
    assert store.read().num_rows == 4


def test_punctuations_that_routers_have_written_down_cut_snapshots(
    tmp_path: Path, epoch: dict[str, str]
) -> None:
    """An epoch that runs again finds them too, and a commit removes those of the epochs before."""
    store, punctuations = ParquetStore(str(tmp_path / "store")), Punctuations(str(tmp_path / "box"))
    writer = open_sink(store, Snapshots(punctuation=["a.last", "b.last"]), punctuations=punctuations)
    minute = 60_000_000
    read = [{}, {0: 4 * minute}, {}, {1: 3 * minute}, {0: 6 * minute, 1: 7 * minute}, {}]
    for number, marks in enumerate(read):
        epoch["streaming.sql.batchId"] = str(number)
        for _ in range(2):  # each epoch runs twice
            for stream, us in marks.items():
                punctuations.write(read_task(), stream, us - minute)  # of another task
                punctuations.write(read_task(), stream, us)
            writer.commit([writer.write(iter([make_batch(3, 4)]))], number)
    assert [(one.at.minute, one.rows, one.reason) for one in store.snapshots()] == [
        (4, 8, "punctuation"),
        (7, 2, "punctuation"),
    ]
    assert store.read().num_rows == 12
    assert punctuations.read("q-1", 3) == punctuations.read("q-1", 4) == {}


def test_units_stage_and_the_sink_commits_their_names(tmp_path: Path, epoch: dict[str, str]) -> None:
    store = ParquetStore(str(tmp_path))
    writer = open_sink(store, is_staged=True)
    block = pa.schema(
        [("c0", pa.int32()), ("c1", pa.list_(pa.string())), ("c2", pa.int64()), ("c3", pa.int64())]
    )
    sources = BlockColumn("c0"), BlockColumn("c1"), LatestTime((BlockColumn("c2"), BlockColumn("c3")))
    staging = Staging(Target(store, store.description), tuple(block.names), sources)
    emitted = pa.schema([(STAGED, pa.string()), (COUNTERS, pa.string())])
    emitter = StagingEmitter(emitted, block, staging)
    pieces: list[list[pa.Array]] = [
        [
            pa.array([one], pa.int32()),
            pa.array([[str(one)]]),
            pa.array([one * 60_000_000]),
            pa.array([5]),
        ]
        for one in (1, 2, 3)
    ]
    frames = list(emitter.gather_results(pieces))
    assert [list(frame.columns) for frame in frames] == [[STAGED, COUNTERS]]
    assert list(emitter.gather_results([])) == []
    assert isinstance(emitter.frame_counters(0, Counters()), pd.DataFrame)
    rows: Iterator[Any] = iter([pa.RecordBatch.from_pandas(frame[[STAGED]]) for frame in frames])
    message = writer.write(rows)
    assert isinstance(message, StagedRows)
    assert (message.query, [one.rows for one in message.staged]) == ("q-1", [3])
    assert store.read().num_rows == 0
    writer.commit([message, writer.write(iter(()))], 0)
    expected = pa.Table.from_batches([make_batch(1, 2, 3)]).cast(store.description.schema)
    assert store.read().equals(expected)


def test_the_sink_for_other_programs_is_a_store(tmp_path: Path, epoch: dict[str, str]) -> None:
    options = {"path": str(tmp_path / "store"), "key": "id, result_time"}
    writer = ParquetSink(CaseInsensitiveDict(options)).streamWriter(COLUMNS, False)
    writer.commit([writer.write(iter([make_batch(1, 2)]))], 0)
    assert ParquetStore(options["path"]).read(key={"id": 2})["tags"].to_pylist() == [["2"]]
    with pytest.raises(QueryError, match="STORE_FOLDER"):
        ParquetSink(CaseInsensitiveDict({})).streamWriter(COLUMNS, False)


def test_the_sink_for_other_programs_refuses_to_replace_what_it_has(tmp_path: Path) -> None:
    """In mode complete, each epoch has all groups again. The sink added them to those of earlier epochs."""
    with pytest.raises(QueryError, match=r"SINK_MODE.*complete"):
        ParquetSink(CaseInsensitiveDict({"path": str(tmp_path / "store")})).streamWriter(COLUMNS, True)
    assert not (tmp_path / "store").exists()


def test_the_time_of_results_is_found() -> None:
    marked = StructField("ts", TimestampType(), metadata={"spark.watermarkDelayMs": 0})
    other = StructField("at", TimestampNTZType())
    assert describe(COLUMNS, None, ()).time == "result_time"
    assert describe(StructType([other, marked]), None, ()).time == "ts"
    assert describe(StructType([other, marked]), "at", ()).time == "at"
    assert describe(StructType([other]), None, ()).time is None
    assert (
        str(describe(StructType([other, marked]), None, ()).schema.field("ts").type)
        == "timestamp[us, tz=UTC]"
    )


@pytest.mark.parametrize(
    ("field", "time", "keys"),
    [
        (StructField("x", DayTimeIntervalType()), None, ()),
        (StructField("x", YearMonthIntervalType()), None, ()),
        (StructField("x", CalendarIntervalType()), None, ()),
        (StructField("x", ArrayType(DayTimeIntervalType())), None, ()),
        (StructField("result_time", IntegerType()), None, ()),
        (StructField("x", IntegerType()), "y", ()),
        (StructField("x", IntegerType()), None, ("x.y",)),
        (StructField("x", StructType([StructField("y", IntegerType())])), "x.y", ()),
        (StructField("x", StructType([StructField("y", IntegerType())])), None, ("x",)),
        (StructField("x", ArrayType(IntegerType())), None, ("x",)),
    ],
)
def test_what_a_store_cannot_hold_is_refused(
    field: StructField, time: str | None, keys: tuple[str, ...]
) -> None:
    with pytest.raises(QueryError, match="STORE_COLUMN"):
        describe(StructType([field]), time, keys)


@pytest.mark.parametrize("trigger", ["available", "sometimes", "-5 seconds", 10])
def test_a_trigger_is_a_span_or_the_words_available_now(tmp_path: Path, trigger: Any) -> None:
    """It is read before the DataFrame and the store are touched."""
    frame: Any = None
    with pytest.raises(QueryError, match=r'BAD_VALUE.*"available now" or the time between two epochs'):
        write(frame, ParquetStore(str(tmp_path)), checkpoint="c", trigger=trigger)


def test_the_rule_of_snapshots_is_no_text(tmp_path: Path) -> None:
    frame, rule = None, "1 minute"
    with pytest.raises(QueryError, match=r"BAD_VALUE.*th.Snapshots\(every="):
        write(frame, ParquetStore(str(tmp_path)), checkpoint="c", snapshots=rule)  # type: ignore[arg-type]
