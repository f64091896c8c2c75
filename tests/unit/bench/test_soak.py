"""The streams of the soak: which tuples are late is known before any query runs."""

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.core.soak.answers import compare
from bench.core.soak.growth import Growth, find_growth
from bench.core.soak.queries import QUERIES
from bench.core.soak.run import read_epochs
from bench.core.soak.streams import DAY_US, SPEED, draw, write_tick

DELAY_US = 120_000_000


def test_only_tuples_that_are_meant_to_be_late_are_late() -> None:
    rng = np.random.default_rng(3)
    for stream in "abc":
        newest_us = 0
        for tick in range(250):
            table = draw(stream, tick, tick > 20, rng)
            if table is None:
                continue
            ts, late = table["ts"].cast("int64").to_numpy(), table["late"].to_numpy()
            assert late.sum() == (tick > 20)
            assert (ts[~late] > newest_us - DELAY_US).all()
            assert (ts[late] < newest_us - DELAY_US).all()
            newest_us = max(newest_us, int(ts.max()))
        assert newest_us < 1_767_600_000_000_000 + 251 * SPEED * 1_000_000 < newest_us + DAY_US


def test_a_figure_that_grows() -> None:
    seconds = [2.0 * n for n in range(100)]
    assert find_growth("x", seconds, [7.0] * 100) == Growth("x", 7.0, 0.0)
    assert find_growth("x", seconds, [100.0 + n for n in range(100)]).share > 0.25
    assert find_growth("x", seconds, [0.0] * 100).share == 0.0


def test_lines_about_the_end_of_a_query_are_no_epochs(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"query": "ring", "received": 3}\n{"query": "ring", "ended": "2026-01-05T09:00:00Z"}\n')
    assert read_epochs(path) == [{"query": "ring", "received": 3}]


@pytest.mark.parametrize("name", ["pairs", "ring"])
def test_answers_are_compared_with_the_rows_that_duckdb_finds(name: str, tmp_path: Path) -> None:
    query, rng = QUERIES[name], np.random.default_rng(5)
    database = duckdb.connect()
    for alias in "abc":
        (tmp_path / alias).mkdir()
    for tick in range(25):
        write_tick(tmp_path, tick, tick > 2, rng)
    for alias in query.aliases:
        files = tmp_path / alias / "*.parquet"
        database.execute(f"CREATE VIEW {alias} AS SELECT * FROM read_parquet('{files}') WHERE NOT late")
    times = ", ".join(f"{alias}.ts" for alias in query.aliases)
    apart = f"greatest({times}) - least({times}) <= INTERVAL '{query.within}'"
    ids = ", ".join(f"{alias}.id AS {alias}" for alias in query.aliases)
    found = database.sql(f"SELECT {ids} FROM {', '.join(query.aliases)} WHERE {query.on} AND {apart}").arrow()
    rows = pa.table(found)
    results = tmp_path / "results" / name
    (results / "_spark_metadata").mkdir(parents=True)
    (results / "_spark_metadata" / "0").write_text(f'v1\n{{"path": "file://{results}/part.parquet"}}')
    assert len(rows) > 1000
    unknown = pa.table([pa.array([-1])] * rows.num_columns, rows.column_names)
    for answer, wrong in (
        (rows, 0),
        (rows.slice(2), 2),
        (pa.concat_tables([rows, rows.slice(7, 1)]), 1),
        (pa.concat_tables([rows.slice(1), unknown]), 2),
    ):
        pq.write_table(answer, results / "part.parquet")
        assert compare(tmp_path, name) == (len(answer), wrong)
