"""What may change when a query starts again from its checkpoint, and how everything else is refused."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.streams import replay
from tests.support.truth import configured

PARTITIONS = "spark.sql.shuffle.partitions"
Pairs = Counter[tuple[int, ...]]


def make_predicate(module: str) -> Any:
    def differ(a, b):
        return pc.not_equal(a.id, b.id)

    differ.__module__, differ.__qualname__ = module, f"{module}.<locals>.differ"
    return th.predicate(a=["id"], b=["id"])(differ)


class Restarts:
    """A query over files of ids, which starts again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, aliases: str) -> None:
        self.folder, self.aliases = folder, aliases
        self.frame = spark.range(64).selectExpr(
            "id", "timestamp_seconds(1700000000 + id * 10) AS ts", "id % 7 / 2D AS x", "id % 3 AS k"
        )
        self.streams = {
            alias: replay(self.frame.localCheckpoint(), [[]], folder, by_key=True) for alias in aliases
        }
        self.sources = sorted(folder.glob("stream-*"))
        self.runs = itertools.count(1)

    def add(self, ids: range) -> None:
        """Write the next file of each stream."""
        number = next(self.runs)
        for source in self.sources:
            (source / f"epoch-{number:04}.csv").write_text("".join(f"{row}\n" for row in ids))

    def run(self, change: Any = lambda frame: frame, **query: Any) -> Pairs:
        """Join what is new and return it."""
        found: Pairs = Counter()
        marked = {name: change(frame.withWatermark("ts", "1 hour")) for name, frame in self.streams.items()}
        ids = [f"{alias}.id" for alias in self.aliases]
        pairs: DataFrame = th.join(marked, **query).select(*ids)

        def collect(batch: DataFrame, epoch: int) -> None:
            found.update(tuple(row) for row in batch.collect())

        writer = pairs.writeStream.foreachBatch(collect).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.folder / "checkpoint")).start().awaitTermination()
        return found


def expect(new: range, reach_s: int, n_streams: int = 2) -> Pairs:
    """The results with an id of ``new``, the newest ones, and without ids after them."""
    return Counter(
        ids
        for ids in itertools.product(range(new.stop), repeat=n_streams)
        if max(ids) >= new.start and (max(ids) - min(ids)) * 10 <= reach_s and joins(ids)
    )


def joins(ids: tuple[int, ...]) -> bool:
    if len(ids) > 2:
        return len({one % 3 for one in ids}) == 1
    a, b = ids
    return abs(a % 7 / 2 - b % 7 / 2) <= 0.5 and (a + 1) % 5 <= (2 * b) % 11 and a != b


ON = "abs(a.x - b.x) <= 0.5 AND (a.id + 1) % 5 <= (2 * b.id) % 11"


def test_a_query_continues_with_the_same_meaning(spark: SparkSession, tmp_path: Path) -> None:
    """Another spelling, a narrower window, another module, more partitions, another index: all continue."""
    query = Restarts(spark, tmp_path, "ab")
    query.add(range(20))
    with configured(spark, {PARTITIONS: "2"}):
        assert query.run(on=[ON, make_predicate("one")], within="150 seconds") == expect(range(20), 150)
    query.add(range(20, 40))
    text = "(2*B.id)%11 >= ( a.id+1 ) % 5  and ABS( a.x-b.x )  <= 0.50 -- near"
    changes = {"on": [text, make_predicate("two")], "within": "100 seconds", "archive_period": "7 seconds"}
    with configured(spark, {PARTITIONS: "8"}):
        assert query.run(**changes, index="scan") == expect(range(20, 40), 100)
    # What has changed is told at once, in one paragraph and before an epoch runs.
    query.add(range(40, 60))
    with pytest.raises(StreamingQueryException) as refused:
        query.run(
            lambda frame: frame.withColumnRenamed("k", "kind"),
            on="abs(a.x - b.x) <= 0.6",
            within="150 seconds",
            model=th.Split(3),
        )
    said = str(refused.value)
    assert "[STATE_OF_ANOTHER_QUERY] the checkpoint belongs to another query: " in said
    assert "stream 'a' had k bigint and now has kind bigint; " in said
    assert f"the condition was {text} AND " in said
    assert "differ(), it is abs(a.x - b.x) <= 0.6; " in said
    assert "the window was -100 seconds <= a.ts - b.ts <= 100 seconds, it is -150 seconds" in said
    assert "the model was Biclique(units=(1, 1)) (chosen for 2 shuffle partitions), it is Split(" in said
    assert "Traceback" not in said
    assert "Driver stacktrace" not in said
    with configured(spark, {PARTITIONS: "5"}):
        assert query.run(**changes, model=th.Biclique(1)) == expect(range(40, 60), 100)


@pytest.mark.slow
def test_a_ring_continues_with_its_number_of_nodes(spark: SparkSession, tmp_path: Path) -> None:
    query = Restarts(spark, tmp_path, "abc")
    on, found = "a.k = b.k AND b.k = c.k", Counter()
    for number, partitions in enumerate(("2", "8", "4")):
        query.add(range(20 * number, 20 * number + 20))
        with configured(spark, {PARTITIONS: partitions}):
            found = query.run(on=on, within="100 seconds", model=th.Ring())
        assert found == expect(range(20 * number, 20 * number + 20), 100, 3)
    query.add(range(60, 64))
    with pytest.raises(StreamingQueryException, match="the window was "):
        query.run(on=on, within="50 seconds", model=th.Ring())
