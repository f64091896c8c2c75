"""Stores of chunks: rows come back as they were, and a question by key reads only the chunks that have it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chunk_memory import MemoryStore
from tests.support.draws import draw_cases
from tests.support.stores import HELD, make_rows, read_ids
from thetastream.core.errors import QueryError, StoreError
from thetastream.results.chunks import CHUNK_BYTES, CHUNK_ROWS, LEAST_LIMIT, Chunk, cut, decode
from thetastream.results.description import Description
from thetastream.results.selection import LONGEST, write_key
from thetastream.results.staged import Origin
from thetastream.stores import CassandraStore, HBaseStore
from thetastream.stores.hbase import HBaseBackend, HBaseRows

ORDERED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(38, 6), st.decimals(-(10**31), 10**31, places=6)),
    (pa.binary(), st.binary(max_size=8)),
]


def rank(value: Any) -> tuple[bool, Any]:
    """Order values as Spark does: NaN is the greatest."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan, 0 if is_nan else value


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=lambda one: str(one)[:20])
def test_bytes_of_keys_are_ordered_as_their_values(kind: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @draw_cases(60)
    @given(values, values)
    def compare(one: Any, other: Any) -> None:
        left, right = (write_key(pa.scalar(value, kind)) for value in (one, other))
        assert (left < right, left == right) == (rank(one) < rank(other), rank(one) == rank(other))

    compare()


@draw_cases(60)
@given(st.text(max_size=6), st.text(max_size=6))
def test_bytes_of_texts_are_ordered_as_their_characters(one: str, other: str) -> None:
    left, right = (write_key(pa.scalar(value)) for value in (one, other))
    assert (left < right, left == right) == (one < other, one == other)


def test_the_greatest_values_of_a_key_have_bytes() -> None:
    edges = [
        date.min,
        date.max,
        datetime.min,
        datetime.max,
        time.max,
        Decimal("9" * 38),
        Decimal("-" + "9" * 38),
    ]
    for value in edges:
        assert write_key(pa.scalar(value))
    assert write_key(pa.scalar("x" * 1000)) == b"x" * LONGEST


def test_chunks_have_few_rows_and_few_bytes() -> None:
    narrow = pa.table({"n": range(CHUNK_ROWS + 1)})
    wide = pa.table({"n": range(9), "raw": [bytes([n]) * n * 50_000 for n in range(9)]})
    wide = wide.append_column("noise", pa.array([Random(n).randbytes(60_000) for n in range(9)]))
    for rows in (narrow, wide):
        parts = list(cut(rows))
        assert all(part.num_rows == 1 or len(data) <= CHUNK_BYTES for part, data in parts)
        assert all(part.num_rows <= CHUNK_ROWS for part, _ in parts)
        assert len(parts) > 1
        assert pa.concat_tables(decode(data) for _, data in parts).equals(rows)


class MemoryRows(HBaseRows):
    """Rows in a dictionary, in the order of HBase."""

    def __init__(self) -> None:
        object.__setattr__(self, "rows", {})

    def write(self, rows: Mapping[bytes, bytes], batch: int = 1000) -> None:
        self.rows.update(rows)

    def read(self, keys: Sequence[bytes]) -> Iterator[bytes]:
        return iter([self.rows[key] for key in keys])

    def remove(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def scan(
        self, start: bytes, stop: bytes, batch: int = 1000, limit: int | None = None, is_reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return islice(((key, self.rows[key]) for key in sorted(self.rows) if start <= key < stop), limit)


KEY = st.binary(max_size=3).map(lambda value: value.replace(b"1", b"\0").replace(b"2", b"\xff"))


@draw_cases(60)
@given(st.lists(st.tuples(st.integers(0, 1), KEY), max_size=9), st.none() | KEY, st.none() | KEY)
def test_hbase_finds_values_and_ranges_in_the_order_of_its_rows(
    keys: list[tuple[int, bytes]], low: bytes | None, high: bytes | None
) -> None:
    table, places = HBaseBackend(MemoryRows()), []
    for number, (column, value) in enumerate(keys):
        chunk = Chunk(number, b"data%d" % number, ((column, value),))
        table.write("part", [chunk])
        is_found = not column and (low is None or low <= value) and (high is None or value <= high)
        places += [("part", number)] if is_found else []
    assert sorted(table.find(0, low, high, 9) or []) == places
    numbers = [number for _, number in places]
    assert list(table.fetch({"part": numbers})) == [b"data%d" % number for number in numbers]
    assert table.find(0, low, high, len(places) - 1) is None
    assert list(table.fetch({"part": None})) == [b"data%d" % number for number in range(len(keys))]
    assert list(table.names()) == [("part", None)][: len(keys)]
    table.drop("part", [Chunk(number, b"", (key,)) for number, key in enumerate(keys)])
    assert not table._rows.rows


def fill(store: MemoryStore, rows: pa.Table, description: Description, epochs: int = 1) -> None:
    store.describe(description)
    for epoch in range(epochs):
        opened = store.open_stage(Origin("q", epoch, "0"), description)
        for batch in rows.to_batches():
            opened.add(batch)
        staged = opened.close()
        assert staged is not None
        store.commit("q", epoch, [staged], clock_us=epoch)


def test_a_question_by_key_reads_only_the_chunks_that_have_it(tmp_path: Path) -> None:
    store, n = MemoryStore(str(tmp_path)), 8 * CHUNK_ROWS
    rows = pa.table({"id": range(n), "group": [number % 7 for number in range(n)]})
    fill(store, rows, Description(rows.schema, None, ("id", "group")), epochs=2)
    assert len(store.table.chunks) == 16
    asked: list[tuple[dict[str, Any], list[int], int]] = [
        ({"id": 5}, [5], 2),
        ({"id": (5, 300)}, list(range(5, 301)), 2),
        ({"id": (None, 3), "group": 3}, [3], 16),  # Single values are looked up first.
        ({"id": 6, "group": 3}, [], 2),
        ({"group": 3}, list(range(3, n, 7)), 16),
    ]
    for key, wanted, chunks in asked:
        store.table.n_read = 0
        assert read_ids(store, key=key) == sorted(wanted * 2)
        assert store.table.n_read == chunks, key


def test_an_index_that_has_more_entries_than_it_saves_is_not_used(tmp_path: Path) -> None:
    store, n = MemoryStore(str(tmp_path)), 4 * CHUNK_ROWS
    rows = pa.table({"id": range(n)})
    fill(store, rows, Description(rows.schema, None, ("id",)))
    assert store.backend.find(0, None, None, LEAST_LIMIT) is None
    assert read_ids(store, key={"id": (0, None)}) == list(range(n))
    assert store.table.n_read == 4


def test_two_long_texts_with_one_beginning_are_told_apart(tmp_path: Path) -> None:
    texts = ["x" * LONGEST, "x" * LONGEST + "y", "x" * (LONGEST - 1)]
    store, rows = MemoryStore(str(tmp_path)), pa.table({"id": [1, 2, 3], "text": texts})
    fill(store, rows, Description(rows.schema, None, ("text",)))
    assert [read_ids(store, key={"text": text}) for text in texts] == [[1], [2], [3]]
    assert read_ids(store, key={"text": (texts[0], None)}) == [1, 2]


def test_rows_that_are_gone_are_an_error_and_no_smaller_answer(tmp_path: Path) -> None:
    store, n = MemoryStore(str(tmp_path)), 2 * CHUNK_ROWS
    rows = pa.table({"id": range(n)})
    fill(store, rows, Description(rows.schema, None, ("id",)))
    del store.table.chunks[next(place for place in store.table.chunks if place[1] == 1)]
    assert read_ids(store, key={"id": 5}) == [5]
    for asked in ({}, {"key": {"id": n - 1}}):
        with pytest.raises(StoreError, match="STORE_DAMAGED"):
            store.read(**asked)  # type: ignore[arg-type]


def test_what_is_swept_leaves_no_key_behind(tmp_path: Path) -> None:
    store = MemoryStore(str(tmp_path))
    fill(store, pa.Table.from_batches([make_rows(1, 2)]), HELD, epochs=3)
    failed = store.open_stage(Origin("q", 1, "1"), HELD)
    failed.add(make_rows(7))
    failed.close()
    kept = set(store.table.keys)
    assert store.sweep() == 1
    assert not any(place not in store.table.chunks for _, _, place in store.table.keys)
    assert len(store.table.keys) == len(kept) - 2
    assert store.forget(before=3) == 2
    assert store.sweep() == 0
    assert store.sweep(grace_s=0) == 2
    assert read_ids(store) == [1, 2]
    assert {place for _, _, place in store.table.keys} == set(store.table.chunks)


@pytest.mark.parametrize(
    ("kind", "address", "table"),
    [
        (CassandraStore, "cassandra://host/results", "odd name"),
        (CassandraStore, "cassandra://host/results", "p" * 41),
        (CassandraStore, "host:9042/results", "pairs"),
        (CassandraStore, "cassandra://user:secret@host:port/results", "pairs"),
        (CassandraStore, "cassandra://user:secret@host", "pairs"),
        (HBaseStore, "host:9090", "odd name"),
        (HBaseStore, "host", "pairs"),
        (HBaseStore, ":9090", "pairs"),
    ],
)
def test_an_address_or_a_table_that_cannot_be_is_refused(kind: Any, address: str, table: str) -> None:
    with pytest.raises(QueryError, match="BAD_VALUE") as error:
        kind(address, table)
    assert "secret" not in str(error.value)


def test_a_store_does_not_show_its_password() -> None:
    assert "secret" not in repr(CassandraStore("cassandra://user:secret@host/results", "pairs"))


def test_a_store_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="NO_STORE"):
        MemoryStore(str(tmp_path)).read()
