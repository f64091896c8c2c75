"""A controlled query that Spark runs over files, with one epoch per file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support import oracle
from tests.support.streams import add_ids, replay

ON = {
    2: "abs(a.x - b.x) <= 1 AND a.id <> b.id",
    3: "a.id = b.id AND b.x = c.x AND c.id BETWEEN b.id - 30 AND b.id - 1",
}
"""The condition for each number of streams."""
WITHIN_S = 60


class Controlled:
    """A join over files of ids, with one epoch per file."""

    def __init__(
        self, spark: SparkSession, folder: Path, aliases: str = "ab", n: int = 4000, on: str = ""
    ) -> None:
        self.folder, self.aliases, self.on = folder, aliases, on or ON[len(aliases)]
        self.found: Counter[tuple[Any, ...]] = Counter()
        self.frame = spark.range(n).selectExpr(
            "id", "timestamp_seconds(1700000000 + id) AS ts", "id * 7 % 11 AS x"
        )
        empty: list[list[int]] = [[]]
        frame = self.frame.localCheckpoint()
        self.streams = {alias: replay(frame, empty, folder, by_key=True) for alias in aliases}
        self.sources = sorted(folder.glob("stream-*"))
        self.n = 0
        self.query: Any = None

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def start(
        self,
        model: Any,
        within: Any = f"{WITHIN_S} seconds",
        is_once: bool = False,
        more: Sequence[str] = (),
        **settings: Any,
    ) -> Any:
        """Start the query. With ``is_once``, it runs one epoch. Rows have the ids, and ``more`` columns."""
        marked = {name: frame.withWatermark("ts", "5 seconds") for name, frame in self.streams.items()}
        pairs = th.join(marked, self.on, within, model, mailbox=str(self.folder / "box"), **settings)

        def collect(batch: DataFrame, epoch: int) -> None:
            self.found.update(tuple(row) for row in batch.collect())

        shown = [alias for alias in self.aliases if alias in pairs.columns]
        writer = pairs.select(*(f"{alias}.id" for alias in shown), *more).writeStream.foreachBatch(collect)
        writer = writer.option("checkpointLocation", self.checkpoint)
        self.query = (writer.trigger(once=True) if is_once else writer).start()
        return self.query

    def add(self, n: int = 40) -> None:
        """Write the next file of each stream, and wait until it has been read."""
        self.write(n)
        self.query.processAllAvailable()

    def write(self, n: int) -> None:
        """Write the next file of each stream."""
        for source in self.sources:
            add_ids(source, range(self.n, self.n + n))
        self.n += n

    def run_until(self, is_done: Any, n: int = 40) -> dict[str, Any]:
        """Feed the streams, ``n`` tuples each time, until the status of the join is as wanted."""
        handle = th.control(self.query)
        for _ in range(40):
            status = handle.status()
            if is_done(status):
                return status
            self.add(n)
        raise AssertionError(status)

    def expect(self, within_s: int = WITHIN_S) -> Counter[tuple[int, ...]]:
        """Find the results by the formula of the condition."""
        if len(self.aliases) == 3:
            return Counter(
                (a, a, c) for a in range(self.n) for c in range(max(0, a - 30), a) if (a - c) * 7 % 11 == 0
            )
        return Counter(
            (a, b)
            for a in range(self.n)
            for b in range(max(0, a - within_s), min(self.n, a + within_s + 1))
            if a != b and abs(a * 7 % 11 - b * 7 % 11) <= 1
        )

    def replay_counted(self, count: int) -> Counter[tuple[int, int]]:
        """Replay a count window. Its pairs depend on the epochs in which Spark has read the files."""
        done, epochs = [0, 0], []
        for entry in th.metrics(self.query):
            read = [entry["streams"].get(alias, {}).get("timely", 0) for alias in "ab"]
            epochs.append([[{"id": d + i} for i in range(n)] for d, n in zip(done, read, strict=True)])
            done = [d + n for d, n in zip(done, read, strict=True)]
        assert done == [self.n, self.n]
        meetings = oracle.replay(
            lambda a, b: a["id"] != b["id"] and abs(a["id"] * 7 % 11 - b["id"] * 7 % 11) <= 1,
            epochs,
            (count, count),
            "id",
        )
        return Counter((one.left, one.right) for one in meetings)
