"""A table of PostgreSQL: its name, its types, and what other programs see in it."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.support.stores import NEEDS_SERVER, START
from thetastream.errors import QueryError
from thetastream.stores import PostgresStore
from thetastream.stores.description import Description
from thetastream.stores.staged import Origin


def test_a_table_of_postgres_has_a_name_that_its_companions_extend() -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*1 to 51 bytes"):
        PostgresStore("postgresql:///results", "p" * 52)
    with pytest.raises(QueryError, match=r"BAD_VALUE.*percent sign"):
        PostgresStore("postgresql:///results", "growth%s")


@NEEDS_SERVER
def test_a_table_of_postgres_has_all_types_and_nothing_that_is_staged(database: str) -> None:
    import psycopg

    columns = {
        "n": pa.array([1, None], pa.int16()),
        "x": pa.array([float("nan"), -1.5]),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "ok": pa.array([True, None]),
        "text": pa.array(["", 'a "quoted", line\nand more']),
        "raw": pa.array([b"\x00\xff", None]),
        "day": pa.array([date(2026, 1, 5), None]),
        "local": pa.array([datetime(2026, 1, 5, 9), None], pa.timestamp("us")),
        "at": pa.array([START, None], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", None], []]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "inner": pa.array(
            [{"at": START, "x": float("inf"), "d": Decimal("2.5")}, None],
            pa.struct([("at", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("d", pa.decimal128(5, 1))]),
        ),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    store, held = PostgresStore(database, 'odd "name"'), Description(rows.schema, "at", ("n", "inner.x"))
    store.describe(held)
    opened = store.open_stage(Origin("q", 0, "0"), held)
    opened.add(rows)
    staged = opened.close()
    assert staged is not None
    with psycopg.connect(database) as connection:
        count_rows = 'SELECT count(*) FROM "odd ""name"""'
        assert connection.execute(count_rows).fetchone() == (0,)
        store.commit("q", 0, [staged])
        connection.commit()
        assert connection.execute(count_rows).fetchone() == (2,)
    found = store.read().to_pylist()
    expected = pa.Table.from_batches([rows]).to_pylist()
    assert str(found) == str(expected)  # as texts, because NaN is not equal to itself
    assert store.read(key={"inner.x": (1e9, None)}).num_rows == 1
    assert "tests@" not in repr(store)
