"""The queries whose checkpoints are kept in ``tests/fixtures``, one for each model and each kind of state.

A query reads files of two, three or four streams, one file of each stream per epoch. Tuple n of a stream
arrives n * 3 seconds after the first one. All expected results come from nested loops.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from tests.support import answers
from tests.support.kept_results import (
    HALF,
    LINKED,
    METRES,
    MINUTE,
    NEAR,
    RARE,
    WIDE_KEYS,
    Found,
    Rows,
    answer,
    are_linked,
    count_groups,
    find,
    fold,
    has_wide_keys,
    is_near,
    is_rare,
    is_within_metres,
    read_latest,
    read_rows,
    read_store,
    replay,
    within_a_minute,
)

PLAIN = "id INT, k INT, x INT, y INT, ts TIMESTAMP"
WIDE = "id INT, k INT, s STRING, d DOUBLE, m DECIMAL(8,2), tags ARRAY<STRING>, ts TIMESTAMP"


class Place:
    """The folder of a kept query: the files of its streams, its checkpoint, its mailbox and its results.

    With ``crash_in``, the sink fails in this epoch, before it has kept the results.
    """

    def __init__(self, spark: SparkSession, folder: Path, crash_in: int | None = None) -> None:
        self.spark, self.folder, self._crash_in = spark, folder, crash_in

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def mailbox(self) -> str:
        return str(self.folder / "mailbox")

    def read(self, aliases: str, schema: str = PLAIN) -> dict[str, DataFrame]:
        """Read streams, of which each has a file per epoch."""
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return {alias: reader.json(str(self.folder / alias)) for alias in aliases}

    def streams(self, aliases: str = "ab", schema: str = PLAIN) -> dict[str, DataFrame]:
        """Read streams and mark their event times."""
        read = self.read(aliases, schema)
        return {alias: stream.withWatermark("ts", "10 seconds") for alias, stream in read.items()}

    def collect(self, rows: DataFrame, mode: str = "append") -> StreamingQuery:
        """Keep the rows of each epoch in a file."""
        results = self.folder / "results"

        def keep(batch: DataFrame, epoch: int) -> None:
            found = sorted(map(list, batch.collect()), key=repr)
            if epoch == self._crash_in:
                raise InterruptedError("the sink fails on purpose")
            results.mkdir(exist_ok=True)
            (results / f"{epoch}.json").write_text(json.dumps(found, separators=(",", ":")))

        writer = rows.writeStream.outputMode(mode).foreachBatch(keep).trigger(availableNow=True)
        return writer.option("checkpointLocation", self.checkpoint).start()


@dataclass(frozen=True)
class Kept:
    """A query, and what it must find in all of its runs together."""

    start: Callable[[Place], StreamingQuery]
    expect: Callable[[Rows], Found]
    read: Callable[[Path], Found]
    """Reads the results of all runs from the folder of the query."""
    is_interrupted: bool = False
    """Whether the kept checkpoint ends with an epoch that has begun and is not committed."""
    change: Callable[[Place], None] | None = None
    """A request to the query between its first two epochs."""
    refusal: str | None = None
    """The sentence with which the checkpoint is refused; None if it continues."""


# Queries


def make_predicate() -> Any:
    """Make a predicate that workers get by value."""

    @th.predicate(a=["id"], b=["id"])
    def is_later(a: Any, b: Any) -> Any:
        return pc.greater(a.id, b.id)

    return is_later


def join(
    on: Any,
    expect: Callable[[Rows], Found],
    model: Any = None,
    aliases: str = "ab",
    within: Any = "1 minute",
    show: Sequence[str] = (),
    schema: str = PLAIN,
    has_mailbox: bool = False,
    is_interrupted: bool = False,
    change: Callable[[Place], None] | None = None,
    **options: Any,
) -> Kept:
    """Make a query that shows the ids of joined tuples, and then more columns."""

    def start(place: Place) -> StreamingQuery:
        settings = options | ({"mailbox": place.mailbox} if has_mailbox else {})
        streams = place.streams(aliases, schema)
        joined = th.join(streams, on=on() if callable(on) else on, within=within, model=model, **settings)
        ids = [
            f"{alias}.id AS {alias}" if alias in joined.columns else f"CAST(NULL AS INT) AS {alias}"
            for alias in aliases
        ]
        return place.collect(joined.selectExpr(*ids, *show))

    return Kept(start, expect, read_rows, is_interrupted, change)


def scale(**units: Any) -> Callable[[Place], None]:
    """Ask a join for other units."""

    def ask(place: Place) -> None:
        th.control(place.checkpoint).scale(**units)

    return ask


def aggregate(**options: Any) -> Kept:
    """Make a query that folds its matches, with measures of all kinds."""
    aggs = {
        "n": "count(*)",
        "total": "sum(b.x)",
        "least": "min(b.y)",
        "most": "max(a.y - b.y)",
        "spread": "round(var_pop(b.y), 6)",
        "kinds": "approx_count_distinct(b.k)",
    }

    def start(place: Place) -> StreamingQuery:
        model = th.Biclique((2, 1))
        groups = th.aggregate(place.streams(), NEAR, "1 minute", "a.k", aggs, model=model, **options)
        return place.collect(groups, "update")

    return Kept(start, fold, read_latest)


def start_groups_of_three(place: Place) -> StreamingQuery:
    streams = place.streams("abc")
    return place.collect(
        th.aggregate(streams, LINKED, "30 seconds", "a.k", {"n": "count(*)"}, mailbox=place.mailbox), "update"
    )


def tasks(model: Any) -> Kept:
    """Make a query of two join tasks."""

    def start(place: Place) -> StreamingQuery:
        both = {
            "near": {"on": NEAR, "within": "1 minute"},
            "rare": {"on": RARE, "within": "30 seconds"},
        }
        joined = th.join_many(place.streams(), both, model, mailbox=place.mailbox)
        return place.collect(joined.together.selectExpr("task", "a.id AS a", "b.id AS b"))

    def expect(rows: Rows) -> Found:
        near, rare = find("ab", MINUTE, is_near)(rows), find("ab", HALF, is_rare)(rows)
        return Counter(
            (name, *ids) for name, found in (("near", near), ("rare", rare)) for ids in found.elements()
        )

    return Kept(start, expect, read_rows)


def store(is_staged: bool) -> Kept:
    """Make a query that keeps its results in a store, which units or Spark's rows write."""

    def start(place: Place) -> StreamingQuery:
        joined = th.join(place.streams(), RARE, "1 minute", th.Biclique((2, 1)))
        return th.write(
            joined if is_staged else joined.where("true"),
            th.ParquetStore(str(place.folder / "store")),
            checkpoint=place.checkpoint,
            select=["a.id AS a", "b.id AS b", "result_time"],
            key="a",
            trigger="available now",
        )

    refusal = (
        "must have format 2, and an earlier version of Thetastream wrote it. Begin with a new checkpoint"
    )
    return Kept(start, find("ab", MINUTE, is_rare), read_store, refusal=refusal)


def start_statement(place: Place) -> StreamingQuery:
    text = f"SELECT ONLINE a.id AS a, b.id AS b FROM a, b WHERE {RARE} AND a.y <> b.y WITHIN 1 minute"
    return place.collect(th.sql(place.spark, text, place.streams(), th.Biclique((1, 2))))


def start_with_table(place: Place) -> StreamingQuery:
    table = place.spark.createDataFrame([(n, 3 * n) for n in range(4)], "n INT, low INT")
    inputs = {**place.streams(), "t": table}
    joined = th.join(inputs, f"{RARE} AND a.x >= t.low", "1 minute", th.Biclique((1, 1)))
    return place.collect(joined.selectExpr("a.id AS a", "b.id AS b", "t.n AS t"))


def expect_with_table(rows: Rows) -> Found:
    pairs, x_of = find("ab", MINUTE, is_rare)(rows), {row["id"]: row["x"] for row in rows["a"]}
    return Counter((a, b, n) for a, b in pairs for n in range(4) if x_of[a] >= 3 * n)


def start_idle(place: Place) -> StreamingQuery:
    a, b = place.read("ab").values()
    place.spark.conf.set("spark.thetastream.mailbox", place.mailbox)
    try:
        streams = {
            "a": th.with_watermark(a, "ts", "10 seconds"),
            "b": th.with_watermark(b, "ts", "10 seconds", idle="1 hour"),
        }
        joined = th.join(streams, RARE, "1 minute", th.Biclique((1, 1)), mailbox=place.mailbox)
        return place.collect(joined.selectExpr("a.id AS a", "b.id AS b"))
    finally:
        place.spark.conf.unset("spark.thetastream.mailbox")


def start_ordered(order: Any, within: Any) -> Callable[[Place], StreamingQuery]:
    def start(place: Place) -> StreamingQuery:
        joined = th.join(place.streams(), NEAR, within, th.Split(2), order=order)
        show = ["a.id AS a", "b.id AS b", "arrival.number", "arrival.stored"]
        return place.collect(joined.selectExpr(*show))

    return start


NEAR_PAIRS, RARE_PAIRS = find("ab", MINUTE, is_near), find("ab", MINUTE, is_rare)
TRIPLES = find("abc", HALF, are_linked)
THREE: dict[str, Any] = {"aliases": "abc", "within": "30 seconds", "has_mailbox": True}

KEPT: dict[str, Kept] = {
    # Two streams
    "biclique": join(NEAR, NEAR_PAIRS, th.Biclique((2, 1))),
    "biclique-interrupted": join(NEAR, NEAR_PAIRS, th.Biclique((2, 1)), is_interrupted=True),
    "biclique-hash": join(RARE, RARE_PAIRS, th.Biclique((2, 2), subgroups=2, routing="hash")),
    "chosen-model": join(RARE, RARE_PAIRS),
    "split": join(NEAR, NEAR_PAIRS, th.Split(2)),
    "matrix": join(NEAR, NEAR_PAIRS, th.Matrix(2, 2)),
    "matrix-range": join(NEAR, NEAR_PAIRS, th.Matrix(2, 1, subgroups=(2, 1), routing="range")),
    "chain": join(RARE, RARE_PAIRS, th.Chain(2), has_mailbox=True),
    "chain-interrupted": join(RARE, RARE_PAIRS, th.Chain(3, block=4), has_mailbox=True, is_interrupted=True),
    "chain-fast-forward": join(RARE, RARE_PAIRS, th.Chain(2, fast_forward=True), has_mailbox=True),
    "full-history": join(
        RARE, find("ab", 10_000, is_rare), th.Biclique((1, 2)), within={"a": "5 hours", "b": "5 hours"}
    ),
    "count-window": join(NEAR, replay("ab", 10, is_near), th.Split(2), within=th.Rows(10)),
    "ordered": Kept(
        start_ordered("strict", "1 minute"), replay("ab", None, within_a_minute(is_near), True), read_rows
    ),
    "ordered-count-window": Kept(
        start_ordered("inner 8", th.Rows(10)), replay("ab", 10, is_near, True), read_rows
    ),
    # Indexes and what the condition has
    "grid": join(
        "abs(a.x - b.x) <= 3 AND abs(a.y - b.y) <= 3",
        find("ab", MINUTE, lambda a, b: abs(a["x"] - b["x"]) <= 3 and abs(a["y"] - b["y"]) <= 3),
        th.Biclique((1, 2)),
        index="grid",
    ),
    "intervals": join(
        "b.x BETWEEN a.x AND a.x + a.k",
        find("ab", MINUTE, lambda a, b: a["x"] <= b["x"] <= a["x"] + a["k"]),
        th.Biclique((1, 1)),
    ),
    "wide-tuples": join(
        WIDE_KEYS,
        find("ab", MINUTE, has_wide_keys, lambda a, b: (a["m"], " ".join(b["tags"]))),
        th.Biclique((1, 1)),
        show=["CAST(a.m AS STRING)", "concat_ws(' ', b.tags)"],
        schema=WIDE,
    ),
    "predicate": join(
        lambda: ["a.k = b.k", make_predicate()],
        find("ab", MINUTE, lambda a, b: a["k"] == b["k"] and a["id"] > b["id"]),
        th.Biclique((1, 2)),
    ),
    "metres": join(
        th.within_metres("a.x", "a.y", "b.x", "b.y", METRES),
        find("ab", MINUTE, is_within_metres),
        th.Biclique((1, 1)),
    ),
    "residual": join(
        "a.k = b.k AND (a.x + b.x) % 3 = 1",
        find("ab", MINUTE, lambda a, b: a["k"] == b["k"] and (a["x"] + b["x"]) % 3 == 1),
        th.Biclique((1, 1)),
    ),
    # Joins that answer each tuple
    "left": join(RARE, answer("left", is_rare), th.Matrix(2, 1, subgroups=2, routing="hash"), how="left"),
    "left-interrupted": join(RARE, answer("left", is_rare), th.Matrix(2, 1), how="left", is_interrupted=True),
    "full": join(RARE, answer("full", is_rare), th.Matrix(2, 1, subgroups=2, routing="hash"), how="full"),
    "semi": join(RARE, answer("semi", is_rare), th.Matrix(2, 1), how="semi"),
    "anti": join(RARE, answer("anti", is_rare), how="anti"),
    "left-residual": join(
        f"{RARE} AND (a.y + b.y) % 3 <> 1",
        answer("left", lambda a, b: is_rare(a, b) and (a["y"] + b["y"]) % 3 != 1),
        how="left",
    ),
    "nearest": join(
        "a.k = b.k",
        lambda rows: answers.nearest(
            2,
            lambda a, b: abs(a["x"] - b["x"]),
            False,
            within_a_minute(lambda a, b: a["k"] == b["k"]),
            rows["a"],
            rows["b"],
        ),
        how=th.Nearest(2, by="abs(a.x - b.x)"),
    ),
    # Units that change
    "units-change": join(
        NEAR,
        NEAR_PAIRS,
        th.Biclique((1, 1)),
        has_mailbox=True,
        max_units=4,
        change=scale(units=(2, 1)),
    ),
    "left-units-change": join(
        RARE,
        answer("left", is_rare),
        th.Matrix(1, 1),
        has_mailbox=True,
        max_units=4,
        how="left",
        change=scale(model=th.Matrix(2, 1)),
    ),
    "ring-nodes-change": join(LINKED, TRIPLES, th.Ring(1), max_units=3, change=scale(nodes=2), **THREE),
    # Three streams
    "ring": join(LINKED, TRIPLES, th.Ring(2, hops="mailbox"), **THREE),
    "ring-interrupted": join(LINKED, TRIPLES, th.Ring(2, in_flight=16), is_interrupted=True, **THREE),
    "ring-count-window": join(
        LINKED,
        replay("abc", 5, are_linked),
        th.Ring(2, hops="mailbox"),
        aliases="abc",
        within=th.Rows(5),
        has_mailbox=True,
    ),
    "atr": join(LINKED, TRIPLES, th.ATR(2, segment="15 seconds", master="b"), **THREE),
    "ctr": join(LINKED, TRIPLES, th.CTR(3, copies=2, segment="15 seconds"), **THREE),
    "pipeline": join(LINKED, TRIPLES, **THREE),
    # Groups, tasks, stores, other inputs
    "aggregate": aggregate(),
    "aggregate-lazy": aggregate(every="2 minutes"),
    "aggregate-three-streams": Kept(start_groups_of_three, count_groups, read_latest),
    "tasks": tasks(th.Biclique((2, 1))),
    "tasks-chain": tasks(th.Chain(2)),
    "store": store(is_staged=True),
    "store-rows": store(is_staged=False),
    "statement": Kept(
        start_statement,
        find("ab", MINUTE, lambda a, b: is_rare(a, b) and a["y"] != b["y"]),
        read_rows,
    ),
    "table": Kept(start_with_table, expect_with_table, read_rows),
    "idle": Kept(start_idle, RARE_PAIRS, read_rows),
}
