"""What may change when a query starts again from its checkpoint, and how everything else is refused."""

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

    def run(
        self,
        change: Any = lambda frame: frame,
        checkpoint: str = "checkpoint",
        aliases: str | None = None,
        delay: str = "1 hour",
        **query: Any,
    ) -> Pairs:
        """Join what is new and return it. The streams may get other ``aliases``."""
        found: Pairs = Counter()
        names = aliases or self.aliases
        marked = {
            name: change(frame.withWatermark("ts", delay))
            for name, frame in zip(names, self.streams.values(), strict=True)
        }
        ids = [f"{alias}.id" for alias in names]
        pairs: DataFrame = th.join(marked, **query).select(*ids)

        def collect(batch: DataFrame, epoch: int) -> None:
            found.update(tuple(row) for row in batch.collect())

        writer = pairs.writeStream.foreachBatch(collect).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.folder / checkpoint)).start().awaitTermination()
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
WHOLE = f"{ON} AND a.id <> b.id"


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_a_query_continues_with_the_same_meaning(spark: SparkSession, tmp_path: Path) -> None:
    """Another spelling, a narrower window, another module, the model named, more partitions, another index:
    all continue, also after a start that was refused."""
    query = Restarts(spark, tmp_path, "ab")
    query.add(range(20))
    with configured(spark, {PARTITIONS: "2"}):
        assert query.run(on=[ON, make_predicate("one")], within="150 seconds") == expect(range(20), 150)
    query.add(range(20, 40))
    # What has changed is told at once, in one paragraph and before an epoch runs.
    with pytest.raises(StreamingQueryException) as refused:
        query.run(
            lambda frame: frame.withColumnRenamed("k", "kind"),
            on="abs(a.x - b.x) <= 0.6",
            within="200 seconds",
            model=th.Split(3),
        )
    said = str(refused.value)
    assert "[STATE_OF_ANOTHER_QUERY] the checkpoint belongs to another query: " in said
    assert "stream 'a' had k bigint and now has kind bigint; " in said
    assert f"the condition was {ON} AND " in said
    assert "differ(...), it is abs(a.x - b.x) <= 0.6; " in said
    assert "the window was -150 seconds <= a.ts - b.ts <= 150 seconds, it is -200 seconds" in said
    assert "the model was Biclique(units=(1, 1)) (chosen for 2 shuffle partitions), it is Split(" in said
    assert "Traceback" not in said
    assert "Driver stacktrace" not in said
    text = "(2*B.id)%11 >= ( a.id+1 ) % 5  and ABS( a.x-b.x )  <= 0.50 -- near"
    changes = {"on": [text, make_predicate("two")], "within": "100 seconds", "archive_period": "7 seconds"}
    with configured(spark, {PARTITIONS: "8"}):
        found = query.run(**changes, index="scan", model=th.Biclique(1))
    assert found == expect(range(20, 40), 100)


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


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("only_epochs_with_rows")
@pytest.mark.parametrize(
    ("aliases", "query"),
    [
        ("ab", {"on": WHOLE, "model": th.Biclique(1)}),
        ("ab", {"on": WHOLE, "model": th.Biclique(1), "max_units": 4, "mailbox": "mail"}),
        pytest.param("ab", {"on": WHOLE, "model": th.Chain(2), "mailbox": "mail"}, marks=pytest.mark.slow),
        pytest.param(
            "abc",
            {"on": "a.k = b.k AND b.k = c.k", "model": th.Ring(2), "mailbox": "mail"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["biclique", "biclique with max_units", "chain", "ring"],
)
@pytest.mark.slow
def test_a_checkpoint_that_was_moved_continues(
    spark: SparkSession, tmp_path: Path, aliases: str, query: dict[str, Any]
) -> None:
    """The mailbox moves together with its checkpoint. Spark keeps paths, which are corrected once."""
    streams = Restarts(spark, tmp_path, aliases)
    found: Pairs = Counter()
    for number, place in enumerate(("before", "after")):
        streams.add(range(20 * number, 20 * number + 20))
        if number:
            shutil.move(tmp_path / "before", tmp_path / place)
            assert [th.checkpoints.update_paths(tmp_path / place / "checkpoint") for _ in range(2)] == [1, 0]
        asked = query | ({"mailbox": str(tmp_path / place / "mail")} if "mailbox" in query else {})
        found += streams.run(checkpoint=f"{place}/checkpoint", within="150 seconds", **asked)
    assert not (tmp_path / "before").exists()
    n = len(aliases)
    assert found == expect(range(20), 150, n) + expect(range(20, 40), 150, n)


# Every row of the table in docs/running/operations.md that is about one join of two streams


@dataclass(frozen=True)
class Change:
    """What differs when the query starts again."""

    query: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``Restarts.run`` that differ. None means that an argument is left out."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session that differ."""


def change_streams(change: Callable[[DataFrame], DataFrame]) -> Change:
    return Change({"change": change})


BEFORE = {"on": WHOLE, "within": "150 seconds"}
OTHER_NAMES = WHOLE.replace("a.", "c.").replace("b.", "d.")
ALLOWED = {
    "another spelling": Change(
        {"on": "a.id<>B.id AND (2*b.ID)%11>=(a.ID+1)%5 AND abs((a.x)-b.x)<=0.50 /* near */"}
    ),
    "a narrower window": Change({"within": "60 seconds"}),
    "a bound inside the window": Change(
        {"on": f"{WHOLE} AND a.ts BETWEEN b.ts - INTERVAL 60 SECONDS AND b.ts + INTERVAL 60 SECONDS"}
    ),
    "the chosen model named": Change({"model": th.Biclique(1)}),
    "another index": Change({"index": "sorted"}),
    "no index": Change({"index": "scan"}),
    "another archive period": Change({"archive_period": "40 seconds"}),
    "statistics with a named model": Change(
        {"statistics": th.Statistics(tuples_per_second=9.0), "model": th.Biclique(1)}
    ),
    "another delay of the watermark": Change({"delay": "3 hours"}),
    "one partition": Change(settings={PARTITIONS: "1"}),
    "eight partitions": Change(settings={PARTITIONS: "8"}),
    "no result time": Change({"result_time": False}),
}
REFUSED = {
    "a wider window": (Change({"within": "151 seconds"}), "the window was .*not inside the old one"),
    "no window": (Change({"within": None}), "the window was .*it is the full history"),
    "another constant": (Change({"on": WHOLE.replace("0.5", "0.6")}), "the condition was "),
    "one more conjunct": (Change({"on": f"{WHOLE} AND a.k = b.k"}), "the condition was "),
    "one more predicate": (Change({"on": [WHOLE, make_predicate("one")]}), "the condition was "),
    "one conjunct less": (Change({"on": ON}), "the condition was "),
    "another model": (Change({"model": th.Split(2)}), r"the model was Biclique.* it is Split\("),
    "more units": (Change({"model": th.Biclique(2)}), r"the model was .* it is Biclique\(units=\(2, 2\)\)"),
    "an order of results": (
        Change({"order": "outer", "model": th.Split(2)}),
        "the order of results was not set",
    ),
    "another kind of join": (Change({"how": "left", "on": ON}), "the kind of join was not set, it is left"),
    "a column less": (change_streams(lambda s: s.drop("k")), "stream 'a' had k bigint"),
    "a column more": (change_streams(lambda s: s.withColumn("z", s.k)), "stream 'a' has z bigint"),
    "another type": (change_streams(lambda s: s.withColumn("k", s.k.cast("int"))), "now has k int"),
    "another order of columns": (
        change_streams(lambda s: s.select("k", "id", "ts", "x")),
        "stream 'a' has the same columns in another order",
    ),
    "another alias": (Change({"aliases": "cd", "on": OTHER_NAMES}), "stream 'a' was .* it is not set"),
    "another time zone": (Change(settings={"spark.sql.session.timeZone": "Asia/Tokyo"}), "timeZone was "),
    "another parser policy": (
        Change(settings={"spark.sql.legacy.timeParserPolicy": "EXCEPTION"}),
        "timeParserPolicy was CORRECTED, it is EXCEPTION",
    ),
}


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Restarts:
    """A query with twenty tuples in its state, and twenty more in its input."""
    query = Restarts(spark, tmp_path_factory.mktemp("begun"), "ab")
    query.add(range(20))
    with configured(spark, {PARTITIONS: "2"}):
        assert query.run(**BEFORE) == expect(range(20), 150)
    query.add(range(20, 40))
    return query


def restart(spark: SparkSession, begun: Restarts, change: Change) -> Pairs:
    """Start the query again on a copy of its checkpoint."""
    checkpoint = f"checkpoint-{next(begun.runs)}"
    shutil.copytree(begun.folder / "checkpoint", begun.folder / checkpoint)
    query = {name: value for name, value in {**BEFORE, **change.query}.items() if value is not None}
    with configured(spark, {PARTITIONS: "2", **change.settings}):
        return begun.run(checkpoint=checkpoint, **query)


@pytest.mark.slow
@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_a_change_that_continues(spark: SparkSession, begun: Restarts, change: Change) -> None:
    is_narrower = "60 seconds" in (text := str(change.query).lower()) or "interval 60" in text
    assert restart(spark, begun, change) == expect(range(20, 40), 60 if is_narrower else 150)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thetastream.errors.UnboundedStateWarning")
@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_a_change_that_is_refused(spark: SparkSession, begun: Restarts, change: Change, words: str) -> None:
    with pytest.raises(StreamingQueryException, match=rf"STATE_OF_ANOTHER_QUERY\].*{words}") as refused:
        restart(spark, begun, change)
    assert "Traceback" not in str(refused.value)


@pytest.mark.slow
def test_a_cache_folder_that_moves(spark: SparkSession, begun: Restarts, tmp_path: Path) -> None:
    found = restart(spark, begun, Change({"cache_folder": str(tmp_path / "cache")}))
    assert found == expect(range(20, 40), 150)


@pytest.mark.slow
def test_another_order_of_results(spark: SparkSession, tmp_path: Path) -> None:
    query = Restarts(spark, tmp_path, "ab")
    for number, order in enumerate(("outer", "strict", 7)):
        new = range(20 * number, 20 * number + 20)
        query.add(new)
        assert query.run(**BEFORE, order=order, model=th.Split(2)) == expect(new, 150)
