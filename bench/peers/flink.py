"""Flink's interval join in a local cluster of two slots, with state in the heap and without checkpoints.

A first run counts the results, and the JVM compiles meanwhile. The second run is measured, with its start.
"""

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from bench.peers.join import Figures, Join, main

TYPES = {
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "STRING",
}
JVM_MEMORY = "4g"
ROW_GROUP = 65_536
JARS = "BENCH_FLINK_JARS"
"""The variable with the jars of Parquet and of Hadoop, which Parquet needs, with a colon between them."""
COUNTING = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "5 s",
    "table.exec.mini-batch.size": "5000000",
}
"""A count that changes with every result takes longer than the join."""


def run(join: Join) -> Figures:
    """Count the results of all files, and then measure the same join."""
    return {
        "results": count_results(join),
        "seconds": time_join(join),
        "form": f"{join.form}, heap state, no checkpoints, process memory {JVM_MEMORY}",
    }


def time_join(join: Join) -> float:
    """Send all columns of the results to a sink that drops them; return the seconds."""
    table = open_environment(join)
    names = ", ".join(
        f"{alias}_{name} {kind}" for alias in join.aliases for name, kind in list_columns(join, alias)
    )
    table.execute_sql(f"CREATE TABLE dropped ({names}) WITH ('connector' = 'blackhole')")
    start = time.perf_counter()
    table.execute_sql(f"INSERT INTO dropped {write_sql(join)}").wait()
    return time.perf_counter() - start


def count_results(join: Join) -> int:
    """Count the results of all files with the same join."""
    table = open_environment(join)
    for key, value in COUNTING.items():
        table.get_config().set(key, value)
    count = 0
    with table.execute_sql(f"SELECT count(*) FROM ({write_sql(join)})").collect() as rows:
        for row in rows:
            count = row[0]
    return count


def open_environment(join: Join) -> TableEnvironment:
    """Start Flink with both streams as tables. Event time has milliseconds, because watermarks need it."""
    settings = {
        "parallelism.default": "2",
        "pipeline.object-reuse": "true",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in os.environ[JARS].split(":")),
        "taskmanager.memory.process.size": JVM_MEMORY,
        "table.local-time-zone": "UTC",
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    environment = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    table = TableEnvironment.create(environment.build())
    for alias in join.aliases:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in list_columns(join, alias))
        table.execute_sql(
            f"CREATE TABLE {alias}_files ({columns}, event_time AS CAST(ts AS TIMESTAMP(3)),"
            " WATERMARK FOR event_time AS event_time) WITH ('connector' = 'filesystem', 'format' = 'parquet',"
            f" 'path' = 'file://{write_file(join, alias)}', 'parquet.utc-timezone' = 'true')"
        )
    return table


def write_file(join: Join, alias: str) -> Path:
    """Write a stream into one file. Flink reads several files in any order, and late tuples would be lost."""
    folder = Path(join.folder, alias)
    if not folder.exists():
        folder.mkdir()
        files = [pq.read_table(file) for file in join.files_of(alias)]
        pq.write_table(pa.concat_tables(files), folder / "all.parquet", row_group_size=ROW_GROUP)
    return folder


def list_columns(join: Join, alias: str) -> list[tuple[str, str]]:
    """List the columns of a stream with their types."""
    return [(name, TYPES.get(type_, "TIMESTAMP(6)")) for name, type_ in join.types_of(alias).items()]


def write_sql(join: Join) -> str:
    """Write the join. A right tuple is copied to each cell that it reaches: at most two of each column."""
    left, right = join.aliases
    in_cells, reaching = join.write_columns()
    rows = f"(SELECT {reaching} FROM {right}_files)"
    for number in range(len(join.cells)):
        low, high = f"low_{number}", f"high_{number}"
        rows = (
            f"(SELECT t.*, copies.cell_{number} FROM {rows} t CROSS JOIN"
            f" UNNEST(ARRAY[{low}, NULLIF({high}, {low})]) AS copies(cell_{number})"
            f" WHERE copies.cell_{number} IS NOT NULL)"
        )
    seconds = f"INTERVAL '{join.window_us // 1_000_000}.{join.window_us // 1000 % 1000:03}' SECOND(3)"
    names = ", ".join(f"{alias}.{name}" for alias in join.aliases for name, _ in list_columns(join, alias))
    return (
        f"SELECT {names} FROM (SELECT {in_cells} FROM {left}_files) {left} JOIN {rows} {right}"
        f" ON {join.write_condition()} AND {left}.event_time"
        f" BETWEEN {right}.event_time - {seconds} AND {right}.event_time + {seconds}"
    )


if __name__ == "__main__":
    main(run)
