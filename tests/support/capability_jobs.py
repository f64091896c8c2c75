"""Joins of every kind that are killed while they run, each with its own nested loop.

They read the streams of ``tests.support.faults`` and keep their results in different places. A result is a
pair of numbers.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.support.faults import (
    BAND,
    DELAY,
    SCHEMA,
    Job,
    Row,
    environment_of_processes,
    oracle,
    read_committed,
)
from tests.support.stores import EMBEDDED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from thetastream.conditions import Predicate
    from thetastream.results.store import Store

OTHER = 10**9
"""What is added to the id of a partner that the second join of several has found."""


class _Kind(Job):
    """A job of this module."""

    module: ClassVar[str] = "tests.support.capability_jobs"

    @property
    def within(self) -> str:
        """The window as a text."""
        return f"{self.within_s} seconds"

    def near(self, band: int) -> "list[str | Predicate]":
        """Build the condition of most jobs."""
        return [f"abs(a.x - b.x) <= {band}", self.higher()]

    def read(self) -> tuple[pa.Table, pa.Table]:
        """Read all tuples of both streams, in the order of their ids."""
        a, b = (pq.read_table(Path(self.folder, alias)).sort_by("id") for alias in "ab")
        return a, b


def to_numbers(table: pa.Table, *names: str) -> "Iterator[np.ndarray[Any, np.dtype[np.int64]]]":
    """Return columns of a table as integers."""
    return (table[name].cast(pa.int64()).to_numpy() for name in names)


@dataclass(frozen=True)
class StoreJob(_Kind):
    """A join whose results are kept in a store."""

    kind: str = "parquet"

    @property
    def store(self) -> "Store":
        """The store."""
        return EMBEDDED[self.kind](f"{self.folder}/store")

    def write_all(self, pairs: "DataFrame") -> None:
        import thetastream as th

        store, checkpoint = self.store, self.checkpoint
        th.write(pairs, store, checkpoint=checkpoint, key="a", trigger="available now").awaitTermination()

    def list_found(self) -> Counter[Row]:
        return Counter((row["a"], row["b"]) for row in self.store.read().to_pylist())

    def is_exact(self, seen: Any) -> bool:
        return super().is_exact(seen) and self.store.verify().is_intact


@dataclass(frozen=True)
class NearestJob(_Kind):
    """The partners of each left tuple with the least ``a.y - b.y``."""

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        import thetastream as th

        found = th.join(
            self.streams(spark),
            self.near(band),
            self.within,
            how=th.Nearest(1, by="a.y - b.y"),
            cache_folder=self.cache_folder,
        )
        return found.selectExpr("a.id AS a", "b.id AS b")

    def list_expected(self) -> Counter[Row]:
        left, right = self.read()
        ay, at = to_numbers(left, "y", "ts")
        by, bt = to_numbers(right, "y", "ts")
        watermark_us = min(at.max(), bt.max()) // 1000 * 1000 - int(DELAY.split()[0]) * 1_000_000
        partners: dict[int, list[int]] = {}
        for a, b in oracle(Path(self.folder), self.within_s):
            assert b is not None
            partners.setdefault(a, []).append(b)
        expected: Counter[Row] = Counter()
        for a, found in partners.items():
            if at[a] + self.within_s * 1_000_000 <= watermark_us:
                least = min(ay[a] - by[b] for b in found)
                expected.update((a, b) for b in found if ay[a] - by[b] == least)
        return expected


@dataclass(frozen=True)
class GroupsJob(_Kind):
    """The number of partners of each left tuple, updated in every epoch."""

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        import thetastream as th

        streams, aggs = self.streams(spark), {"n": "count(*)"}
        return th.aggregate(streams, self.near(band), self.within, group_by="a.id", aggs=aggs)

    def write_all(self, pairs: "DataFrame") -> None:
        self.sink.mkdir(exist_ok=True)

        def save(batch: "DataFrame", epoch: int) -> None:
            # An epoch that runs again replaces its file.
            hidden = self.sink / f".{epoch}"
            hidden.write_text(json.dumps([tuple(row) for row in batch.collect()]))
            hidden.rename(self.sink / f"{epoch:09}")

        writer = pairs.writeStream.foreachBatch(save).outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.checkpoint)).start().awaitTermination()

    def list_found(self) -> Counter[Row]:
        last: dict[int, int] = {}
        for path in sorted(self.sink.glob("[0-9]*")):
            last |= dict(json.loads(path.read_text()))
        return Counter(last.items())

    def list_expected(self) -> Counter[Row]:
        return Counter(Counter(a for a, _ in oracle(Path(self.folder), self.within_s)).items())


@dataclass(frozen=True)
class TasksJob(_Kind):
    """Two joins of the same streams in one query."""

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        import thetastream as th

        tasks: dict[str, dict[str, Any]] = {
            "near": {"on": self.near(band), "within": self.within},
            "same": {"on": "a.x = b.x AND a.y <= b.y", "within": self.within},
        }
        found = th.join_many(self.streams(spark), tasks=tasks).together
        return found.selectExpr("a.id AS a", f"b.id + IF(task = 'same', {OTHER}, 0) AS b")

    def list_expected(self) -> Counter[Row]:
        expected = oracle(Path(self.folder), self.within_s)
        left, right = self.read()
        ax, ay, at = to_numbers(left, "x", "y", "ts")
        bx, by, bt = to_numbers(right, "x", "y", "ts")
        for a in range(len(ax)):
            within = np.abs(at[a] - bt) <= self.within_s * 1_000_000
            partners = np.flatnonzero((ax[a] == bx) & (ay[a] <= by) & within)
            expected.update((a, OTHER + int(b)) for b in partners)
        return expected


@dataclass(frozen=True)
class ThreeStreamsJob(_Kind):
    """A join of three streams. The third one has the tuples of the second."""

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        import thetastream as th

        third = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{self.folder}/b")
        streams = {**self.streams(spark), "c": third.withWatermark("ts", DELAY)}
        on: list[str | Predicate] = ["a.x = b.x", self.higher(), "b.x = c.x AND b.y < c.y"]
        found = th.join(streams, on, self.within, mailbox=self.mailbox, cache_folder=self.cache_folder)
        return found.selectExpr("a.id AS a", f"b.id * {10**6} + c.id AS b")

    def list_expected(self) -> Counter[Row]:
        left, right = self.read()
        ax, ay, at = to_numbers(left, "x", "y", "ts")
        bx, by, bt = to_numbers(right, "x", "y", "ts")
        expected: Counter[Row] = Counter()
        for a in range(len(ax)):
            near = np.flatnonzero((bx == ax[a]) & (np.abs(at[a] - bt) <= self.within_s * 1_000_000))
            for b in near[by[near] < ay[a]]:
                third = near[(by[near] > by[b]) & (np.abs(bt[near] - bt[b]) <= self.within_s * 1_000_000)]
                expected.update((a, int(b) * 10**6 + int(c)) for c in third)
        return expected


@dataclass(frozen=True)
class ShedJob(_Kind):
    """A join that drops tuples, so it finds a part of the answer."""

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        import thetastream as th

        found = th.join(
            self.streams(spark),
            self.near(band),
            self.within,
            model=th.Biclique((1, 1)),
            shed=th.Shed(5_000, 400_000),
            mailbox=self.mailbox,
        )
        return found.selectExpr("a.id AS a", "b.id AS b")

    def is_exact(self, seen: Any) -> bool:
        found = self.list_found()
        return bool(found) and found <= self.list_expected()


@dataclass(frozen=True)
class ChangesJob(_Kind):
    """A join of rows that are inserted and deleted with a stream. Some rows of ``a`` are deleted soon."""

    def write_input(self, files: int, rows: int, seed: int) -> None:
        super().write_input(files, rows, seed)
        chance, before = np.random.default_rng(seed), None
        for path in sorted(Path(self.folder, "a").glob("*.parquet")):
            table, stat = pq.read_table(path), path.stat()
            times = table["ts"].cast(pa.int64()).to_numpy()
            is_gone = chance.random(len(table)) < 0.1
            gone = [table.filter(pa.array(is_gone)), *([] if before is None else [before])]
            # A row of the last half second of a file can be deleted in the next one, before it is late.
            before = table.filter(pa.array(~is_gone & (times > times.max() - 500_000)))
            signed = [(table, 1), *((one, -1) for one in gone)]
            parts = [one.append_column("w", pa.array(np.full(len(one), sign))) for one, sign in signed]
            pq.write_table(pa.concat_tables(parts), path)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def pairs(self, spark: "SparkSession", band: int = BAND) -> "DataFrame":
        import thetastream as th

        a = spark.readStream.schema(f"{SCHEMA}, w BIGINT").option("maxFilesPerTrigger", 1)
        changed = th.changes(a.parquet(f"{self.folder}/a"), sign="w").withWatermark("ts", DELAY)
        streams = {**self.streams(spark), "a": changed}
        on = f"abs(a.x - b.x) <= {band} AND a.y > b.y"
        found = th.join(streams, on, self.within, model=th.Biclique((1, 1)), cache_folder=self.cache_folder)
        return found.selectExpr("a.id AS a", "b.id AS b", "_change_type")

    def list_found(self) -> Counter[Row]:
        kinds: Counter[Any] = read_committed(self.sink, ("a", "b", "_change_type"))
        net: Counter[Row] = Counter()
        for (a, b, kind), n in kinds.items():
            net[a, b] += n if kind == "insert" else -n
        return Counter({row: n for row, n in net.items() if n})

    def list_expected(self) -> Counter[Row]:
        changes, right = self.read()
        net: Counter[int] = Counter()
        for row, sign in zip(changes["id"].to_pylist(), changes["w"].to_pylist(), strict=True):
            net[row] += sign
        inserted = changes.filter(pc.field("w") == 1)
        ax, ay, at = to_numbers(inserted, "x", "y", "ts")
        bx, by, bt = to_numbers(right, "x", "y", "ts")
        expected: Counter[Row] = Counter()
        for a in (a for a in range(len(ax)) if net[a]):
            within = np.abs(at[a] - bt) <= self.within_s * 1_000_000
            partners = np.flatnonzero((np.abs(ax[a] - bx) <= BAND) & (ay[a] > by) & within)
            expected.update({(a, int(b)): net[a] for b in partners})
        return expected


@dataclass(frozen=True)
class FileJob(_Kind):
    """A job file that ``thetastream run`` runs."""

    def start(self) -> "subprocess.Popen[bytes]":
        source = (
            'format = "parquet"\nschema = "' + SCHEMA + '"\nevent_time = "ts"\ndelay = "' + DELAY + '"\n'
            "options = { maxFilesPerTrigger = 1 }"
        )
        sql = (
            "SELECT ONLINE a.id AS a, b.id AS b FROM a, b "
            f"WHERE abs(a.x - b.x) <= {BAND} AND a.y > b.y WITHIN {self.within}"
        )
        parts = [
            f'sql = "{sql}"\ncheckpoint = "checkpoint"',
            *(f'[sources.{alias}]\npath = "{alias}"\n{source}' for alias in "ab"),
            '[sink]\nformat = "parquet"\npath = "sink"',
            '[spark]\n"spark.driver.memory" = "512m"\n"spark.master" = "' + self.master + '"\n'
            '"spark.sql.session.timeZone" = "UTC"\n"spark.ui.enabled" = "false"',
        ]
        path = Path(self.folder, "job.toml")
        path.write_text("\n\n".join(parts))
        command = [sys.executable, "-m", "thetastream.app.cli", "run", str(path), "--until-caught-up"]
        with Path(self.folder, "log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=environment_of_processes(), start_new_session=True
            )

    @property
    def output(self) -> str:
        written = [Path(self.folder, name) for name in ("log", "checkpoint.log")]
        return "".join(path.read_text() for path in written if path.exists())


if __name__ == "__main__":
    kinds = {kind.__name__: kind for kind in _Kind.__subclasses__()}
    with contextlib.suppress(KeyboardInterrupt):
        kinds[sys.argv[2]](**json.loads(sys.argv[1])).run()
