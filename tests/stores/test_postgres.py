"""A table of PostgreSQL: its name, its types, and what other programs see in it."""

import uuid
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.support.stores import HELD, NEEDS_SERVER, START, commit_rows
from thetastream.core.errors import QueryError, StoreError
from thetastream.core.listening import open_port
from thetastream.results.description import Description
from thetastream.results.staged import Origin
from thetastream.stores import PostgresStore


def test_a_table_of_postgres_has_a_name_that_its_companions_extend() -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*1 to 51 bytes"):
        PostgresStore("postgresql:///results", "p" * 52)
    with pytest.raises(QueryError, match=r"BAD_VALUE.*percent sign"):
        PostgresStore("postgresql:///results", "growth%s")


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    with open_port("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    store = PostgresStore(f"postgresql://ann:secret@127.0.0.1:{port}/none", "pairs")
    with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*PostgreSQL.*refused") as refused:
        store.describe(HELD)
    assert "secret" not in str(refused.value)


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


def hold(database: str, rows: pa.RecordBatch, *keys: str) -> tuple[PostgresStore, Description]:
    store, held = PostgresStore(database, f"held{uuid.uuid4().hex[:8]}"), Description(rows.schema, None, keys)
    store.describe(held)
    return store, held


@NEEDS_SERVER
def test_texts_are_compared_by_code_points_in_any_database(database: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        language = "LOCALE_PROVIDER icu ICU_LOCALE 'en' ENCODING 'UTF8'"
        connection.execute(f"CREATE DATABASE english TEMPLATE template0 {language}")
    texts = ["a", "B", "Ä", "b", ""]
    rows = pa.RecordBatch.from_pydict({"s": texts, "t": [{"s": text} for text in texts]})
    store, held = hold(database.replace("/postgres?", "/english?"), rows, "s", "t.s")
    commit_rows(store, 0, held, rows)
    for key in ("s", "t.s"):
        assert sorted(store.read(key={key: ("B", "b")})["s"].to_pylist()) == ["B", "a", "b"]


@NEEDS_SERVER
@pytest.mark.parametrize("value", ["a\0b", {"x": "\0"}, ["a", "b\0"]], ids=["text", "struct", "list"])
def test_a_text_with_nul_is_refused_by_name(database: str, value: object) -> None:
    rows = pa.RecordBatch.from_pylist([{"it": value, "s": r"the text \u0000"}])
    store, held = hold(database, rows, "s")
    with pytest.raises(StoreError, match=r"STORE_VALUE.*'it'"):
        commit_rows(store, 0, held, rows)
    assert store.read().num_rows == 0
    with pytest.raises(QueryError, match=r"BAD_VALUE.*'s'"):
        store.read(key={"s": "\0"})


@pytest.mark.parametrize("name", ["thetastream_part", "thetastream_version", "n" * 64])
def test_a_column_that_a_table_of_postgres_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(QueryError, match=r"STORE_COLUMN.*rename"):
        PostgresStore("postgresql:///nowhere", "t").describe(Description(pa.schema([(name, pa.int64())])))
