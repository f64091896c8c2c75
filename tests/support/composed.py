"""Joins of two small streams that differ in source, model, kind, sink and door, with their nested loop.

A door is a way in which a user writes a join down: calls of Python, ``th.sql``, ``th.insert`` or a job file.
Each stream has a last row ten minutes behind the others, so that all others are decided when it has come.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import thetastream as th
from thetastream.app.job.document import read_job
from thetastream.app.job.run import run
from thetastream.models import Model
from thetastream.runtime.control.plan import encode_model

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ("files", "changes", "idle", "table")
HOWS = ("inner", "left", "right", "full", "semi", "anti", "nearest")
MODELS: Mapping[str, Model | None] = {
    "chosen": None,
    "biclique": th.Biclique((1, 1)),
    "split": th.Split(2),
    "matrix": th.Matrix(2, 1),
}
SINKS = ("parquet", "store")
DOORS = ("python", "sql", "insert", "job")
ON = "abs(a.x - b.x) <= 1"
BY = "abs(a.x - b.x)"
ROWS = {
    "a": ((1, 1), (2, 4), (3, 7), (4, 2), (5, 20)),
    "b": ((11, 1), (12, 2), (13, 8), (14, 3), (15, 30)),
}
"""The rows (id, x) of each stream, a second apart."""
LAST = {"a": (91, 100), "b": (92, -100)}
DELETED = (6, 8)
"""A row of ``a`` that is inserted and deleted, if ``a`` has changes."""
START = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
Row = tuple[int | None, int | None]
SCHEMA = "id INT, x INT, ts TIMESTAMP"


@dataclass(frozen=True)
class Composed:
    """One join, with a member of each axis."""

    source: str
    model: str
    how: str
    sink: str
    door: str

    def __str__(self) -> str:
        return "-".join(vars(self).values())

    @property
    def select(self) -> list[str]:
        """The items of the select list."""
        return ["a.id AS a"] if self.how in ("semi", "anti") else ["a.id AS a", "b.id AS b"]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``th.join`` behind its streams. A table has neither a window nor a model."""
        how = th.Nearest(1, by=BY) if self.how == "nearest" else self.how
        found: dict[str, Any] = {"on": ON, "how": how}
        if self.source != "table":
            found |= {"within": "1 minute", "model": MODELS[self.model]}
        return found

    @property
    def statement(self) -> str:
        """The join as SQL."""
        kind = "" if self.how in ("inner", "nearest") else self.how.upper()
        nearest = f" NEAREST 1 BY DISTANCE {BY}" if self.how == "nearest" else ""
        within = "" if self.source == "table" else " WITHIN 1 minute"
        return f"SELECT {', '.join(self.select)} FROM a {kind} JOIN b{nearest} ON {ON}{within}"

    def write_job(self) -> str:
        """Write the join as a job file, whose paths are relative to its folder."""
        schema = f"{SCHEMA}, w INT" if self.source == "changes" else SCHEMA
        source: dict[str, Any] = {
            "format": "parquet",
            "schema": schema,
            "event_time": "ts",
            "delay": "1 second",
            "options": {"maxFilesPerTrigger": 1},
        }
        if self.source == "changes":
            source["changes"] = {"sign": "w"}
        if self.source == "idle":
            source["idle"] = "1 hour"
        tables = {
            "sources.a": {**source, "path": "a"},
            "sources.b": {**source, "path": "b"},
            "sink": {"format" if self.sink == "parquet" else "store": "parquet", "path": "found"},
        }
        if self.source == "table":
            del tables["sources.b"]
            tables["tables.b"] = {"path": "b"}
        model = self.arguments.get("model")
        if model is not None:
            tables["model"] = encode_model(model)
        parts = [f'sql = {json.dumps(self.statement)}\ncheckpoint = "checkpoint"']
        parts += [f"[{name}]\n{_write_table(table)}" for name, table in tables.items()]
        return "\n\n".join(parts)

    def write_input(self, folder: Path) -> None:
        """Write the files of both streams: the rows of the first epoch, and the last row."""
        for alias in "ab":
            signed = [(row, 1) for row in ROWS[alias]]
            if self.source == "changes" and alias == "a":
                signed += [(DELETED, 1), (DELETED, -1)]
            times = [START + timedelta(seconds=number) for number in range(len(signed))]
            if signed[-1][1] < 0:
                times[-1] = times[-2]
            (folder / alias).mkdir()
            _write_file(folder / alias / "1.parquet", signed, times)
            _write_file(folder / alias / "2.parquet", [(LAST[alias], 1)], [START + timedelta(minutes=10)])

    def read(self, spark: "SparkSession", folder: Path) -> "dict[str, DataFrame]":
        """Read both inputs, as Python and SQL join them."""
        if self.source == "table":
            return {"a": self._read_stream(spark, folder, "a"), "b": spark.read.parquet(str(folder / "b"))}
        return {alias: self._read_stream(spark, folder, alias) for alias in "ab"}

    def _read_stream(self, spark: "SparkSession", folder: Path, alias: str) -> "DataFrame":
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        if self.source == "changes":
            frame = th.changes(reader.schema(f"{SCHEMA}, w INT").parquet(str(folder / alias)), sign="w")
            return frame.withWatermark("ts", "1 second")
        frame = reader.schema(SCHEMA).parquet(str(folder / alias))
        if self.source == "idle":
            return th.with_watermark(frame, "ts", "1 second", idle="1 hour")
        return frame.withWatermark("ts", "1 second")

    def run(self, spark: "SparkSession", folder: Path) -> None:
        """Run the join by its door until all rows are read."""
        if self.door == "job":
            path = folder / "job.toml"
            path.write_text(self.write_job())
            run(spark, read_job(path), lambda _: None, until_caught_up=True)
            return
        inputs, model = self.read(spark, folder), self.arguments.get("model")
        target = f"{folder}/found"
        how: dict[str, Any] = {"checkpoint": folder / "checkpoint", "trigger": "available now"}
        if self.door == "insert":
            sink = f"parquet.`{target}`" if self.sink == "parquet" else f"store.`parquet:{target}`"
            query = th.insert(spark, f"INSERT INTO {sink} {self.statement}", inputs, model=model, **how)
            assert query is not None
            query.awaitTermination()
            return
        if self.door == "sql":
            found = th.sql(spark, self.statement, inputs, model=model)
        else:
            changes = ["_change_type"] if self.source == "changes" else []
            found = th.join(inputs, **self.arguments).selectExpr(*self.select, *changes)
        if self.sink == "store":
            th.write(found, th.ParquetStore(target), **how).awaitTermination()
        else:
            writer = found.writeStream.format("parquet").trigger(availableNow=True)
            writer.option("checkpointLocation", str(how["checkpoint"])).start(target).awaitTermination()

    def read_found(self, spark: "SparkSession", folder: Path) -> Counter[Row]:
        """Read the results that hold, from the sink."""
        if self.sink == "store":
            rows = th.ParquetStore(str(folder / "found")).read().to_pylist()
        else:
            rows = [row.asDict() for row in spark.read.parquet(f"{folder}/found").collect()]
        found: Counter[Row] = Counter()
        for row in rows:
            sign = -1 if row.get("_change_type") in ("delete", "update_preimage") else 1
            found[row["a"], row.get("b")] += 1 if self.sink == "store" else sign
        return Counter({row: n for row, n in found.items() if n})

    def list_expected(self) -> Counter[Row]:
        """Compute the results by a nested loop. A table has its last row, and rows beside it are decided."""
        rows = {alias: [*ROWS[alias], *([LAST[alias]] if self.source == "table" else [])] for alias in "ab"}
        pairs = [(a, b) for a, b in product(rows["a"], rows["b"]) if abs(a[1] - b[1]) <= 1]
        if self.how == "nearest":
            least = {a: min(abs(a[1] - b[1]) for other, b in pairs if other == a) for a, _ in pairs}
            pairs = [(a, b) for a, b in pairs if abs(a[1] - b[1]) == least[a]]
        left, right = {a for a, _ in pairs}, {b for _, b in pairs}
        if self.how == "semi":
            return Counter((a[0], None) for a in left)
        lonely = [(a[0], None) for a in rows["a"] if a not in left]
        if self.how == "anti":
            return Counter(lonely)
        found: list[Row] = [(a[0], b[0]) for a, b in pairs]
        if self.how in ("left", "full"):
            found += lonely
        if self.how in ("right", "full"):
            found += [(None, b[0]) for b in rows["b"] if b not in right]
        return Counter(found)


def _write_file(path: Path, signed: Sequence[tuple[tuple[int, int], int]], times: Sequence[datetime]) -> None:
    columns = {
        "id": pa.array([row[0] for row, _ in signed], pa.int32()),
        "x": pa.array([row[1] for row, _ in signed], pa.int32()),
        "ts": pa.array(times, pa.timestamp("us", "UTC")),
        "w": pa.array([sign for _, sign in signed], pa.int32()),
    }
    pq.write_table(pa.table(columns), path)


def _write_table(table: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_write_value(value)}" for key, value in table.items())


def _write_value(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_write_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def list_all() -> list[Composed]:
    """List all joins. A join with a table has no model."""
    found = (Composed(*members) for members in product(SOURCES, MODELS, HOWS, SINKS, DOORS))
    return [one for one in found if one.source != "table" or one.model == "chosen"]


def cover_pairs(cases: Sequence[Composed]) -> Iterator[Composed]:
    """Yield few joins that have each two members of two axes together, as far as a join has both."""
    pairs = {case: set(combinations(vars(case).items(), 2)) for case in cases}
    left = set().union(*pairs.values())
    while left:
        best = max(cases, key=lambda case: len(pairs[case] & left))
        left -= pairs[best]
        yield best
