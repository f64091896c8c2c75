"""Stores for the tests, of all kinds that can run here, and rows for them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.support.postgres import find_server
from thetastream.results.description import Description
from thetastream.results.snapshots import EACH_EPOCH, Snapshots
from thetastream.results.staged import Origin, Staged
from thetastream.results.store import Store
from thetastream.results.writer import Writer
from thetastream.stores import REGISTRY, DeltaStore, ParquetStore

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.struct([("symbol", pa.string()), ("ts", pa.timestamp("us", "UTC"))])),
        ("result_time", pa.timestamp("us", "UTC")),
    ]
)
HELD = Description(SCHEMA, "result_time", ("a.symbol", "id"))
BESIDE_OTHERS = Writer(is_beside_others=True)
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
EMBEDDED = {"parquet": ParquetStore, "delta": DeltaStore}
NEEDS_SERVER = pytest.mark.skipif(find_server() is None, reason="PostgreSQL is not installed")
MARKS = {"postgres": [NEEDS_SERVER], "cassandra": [pytest.mark.databases], "hbase": [pytest.mark.databases]}
ON_S3 = {"parquet-s3": ParquetStore, "delta-s3": DeltaStore}
KINDS = [
    *(pytest.param(kind, marks=MARKS.get(kind, [])) for kind in REGISTRY),
    *(pytest.param(kind, marks=[pytest.mark.s3]) for kind in ON_S3),
]


def make_rows(*numbers: int) -> pa.RecordBatch:
    times = [START.replace(minute=number) for number in numbers]
    rows = [
        {"id": number, "a": {"symbol": f"s{number % 3}", "ts": time}, "result_time": time}
        for number, time in zip(numbers, times, strict=True)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def stage(store: Store, epoch: int, *numbers: int, query: str = "q", task: str = "0") -> list[Staged]:
    opened = store.open_stage(Origin(query, epoch, task), HELD)
    for number in numbers:
        opened.add(make_rows(number))
    staged = opened.close()
    return [] if staged is None else [staged]


def commit_rows(
    store: Store,
    epoch: int,
    held: Description,
    rows: pa.RecordBatch,
    rule: Snapshots = EACH_EPOCH,
    clock_us: int = 0,
) -> Staged:
    """Stage rows of any columns as one task of an epoch, and commit them."""
    opened = store.open_stage(Origin("q", epoch, "0"), held)
    opened.add(rows)
    staged = opened.close()
    assert staged is not None
    store.commit("q", epoch, [staged], rule, clock_us)
    return staged


def read_ids(store: Store, **asked: object) -> list[int]:
    return sorted(store.read(**asked)["id"].to_pylist())  # type: ignore[arg-type]


def fill(store: Store, epochs: range, rule: Snapshots) -> None:
    for epoch in epochs:
        store.commit("q", epoch, stage(store, epoch, *(epoch % 60 for _ in range(1 + epoch % 3))), rule)
