"""Compares the answers of the soak with DuckDB's over the same files."""

import json
from pathlib import Path

import duckdb

from bench.core.soak.queries import QUERIES, list_aliases


def has_watermarks(folder: Path) -> bool:
    """Whether every query has a watermark, so that a tuple of yesterday is late."""
    for name in QUERIES:
        commits = folder / "checkpoints" / name / "commits"
        numbers = [int(path.name) for path in commits.glob("*") if path.name.isdecimal()]
        if len(numbers) < 3 or '"nextBatchWatermarkMs":0' in (commits / str(max(numbers))).read_text():
            return False
    return True


def compare(folder: Path, name: str) -> tuple[int, int]:
    """Compare an answer with DuckDB's: the number of rows, and of those that are too many or too few."""
    aliases = list_aliases(name)
    on, within = QUERIES[name]
    paths = [
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "results" / name / "_spark_metadata").iterdir()
        if log.name.removesuffix(".compact").isdecimal()
        for line in log.read_text().splitlines()[1:]
    ]
    database = duckdb.connect()
    for alias in aliases:
        source = f"read_parquet('{folder}/{alias}/*.parquet')"
        database.execute(f"CREATE VIEW {alias} AS SELECT * FROM {source} WHERE NOT late")
    times = [f"{alias}.ts" for alias in aliases]
    apart = f"greatest({', '.join(times)}) - least({', '.join(times)}) <= INTERVAL '{within}'"
    ids = ", ".join(f"{alias}.id AS {alias}" for alias in aliases)
    database.execute(
        f"CREATE TABLE expected AS SELECT {ids} FROM {', '.join(aliases)} WHERE {on} AND {apart}"
    )
    names = ", ".join(aliases)
    database.execute(f"CREATE TABLE found AS SELECT {names} FROM read_parquet($1)", [sorted(set(paths))])
    wrong = sum(
        database.execute(f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})").fetchone()[0]
        for one, other in (("expected", "found"), ("found", "expected"))
    )
    return int(database.execute("SELECT count(*) FROM found").fetchone()[0]), int(wrong)
