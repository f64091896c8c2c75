"""Random nearest partners, joins of three streams and joins with tables, against loops in plain Python.

The rows lie where clocks change, and before 1970. Their keys may be NULL.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.drawn_conditions import LAST, STARTS, draw_epochs, draw_rows
from tests.support.streams import outcome, replay
from tests.support.truth import configured, differences

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")]

SPAN = 6
"""The windows of the joins, in spans of the scale."""
PLACES = pytest.mark.parametrize("place", range(len(STARTS)))


class Row(NamedTuple):
    id: int
    us: int
    k: int | None


Found = Counter[tuple[int | None, ...]]
Holds = Callable[[Row, Row], bool]


class Drawn:
    """Rows of several streams near an instant, as values, as a batch and as a stream."""

    def __init__(self, spark: SparkSession, place: int, aliases: str, folder: Path) -> None:
        self.seed = Random().randrange(1 << 30)
        self.random = Random(self.seed)
        self.zone, start = STARTS[place]
        self.scale = self.random.choice([1, 600, 1800])
        self.within_us = SPAN * self.scale * 1_000_000
        self.within = f"{SPAN * self.scale} seconds"
        self.batches: dict[str, DataFrame] = {}
        self.rows: dict[str, list[Row]] = {}
        self.streams: dict[str, DataFrame] = {}
        for alias in aliases:
            # Before 1970, a tuple without a key moves no watermark, and the last one decides all others.
            drawn = draw_rows(spark, self.random, start, self.scale)
            frame = drawn.selectExpr("id", "ts", f"if(id = {LAST}, coalesce(k, 1), k) AS k").localCheckpoint()
            self.batches[alias] = frame
            self.rows[alias] = [Row(*row) for row in frame.selectExpr("id", "unix_micros(ts)", "k").collect()]
            # No row is late, and the last one decides all others.
            stream = replay(frame, draw_epochs(self.random), folder)
            self.streams[alias] = stream.withWatermark("ts", f"{40 * self.scale} seconds")

    def is_near(self, one: Row, other: Row) -> bool:
        return abs(one.us - other.us) <= self.within_us


def collect(joins: Sequence[DataFrame], folder: Path) -> list[Found]:
    """Collect the rows of joins of which each has only ids, without the rows of the last tuples."""
    parts = [
        join.select(F.lit(n).alias("n"), *(F.col(name).cast("int") for name in join.columns))
        for n, join in enumerate(joins)
    ]
    whole = reduce(DataFrame.unionAll, parts)
    rows = outcome(whole, ["*"], folder).rows if whole.isStreaming else Counter(map(tuple, whole.collect()))
    found: list[Found] = [Counter() for _ in joins]
    for (n, *ids), times in rows.items():
        if LAST not in ids:
            found[n][tuple(ids)] += times
    return found


def drop_last(rows: Iterable[tuple[int | None, ...]]) -> Found:
    return Counter(row for row in rows if LAST not in row)


# Nearest partners


def is_equal(one: Row, other: Row) -> bool:
    return one.k is not None and one.k == other.k


def is_before(one: Row, other: Row) -> bool:
    return other.us <= one.us


class Case(NamedTuple):
    """A nearest join: SQL, or a condition with ``by``; its partners, their distance, and what is kept."""

    text: str
    by: str
    holds: Holds
    distance: Callable[[Row, Row], int]
    keeps: bool = True
    most: int = 1


def elapsed(one: Row, other: Row) -> int:
    return abs(one.us - other.us)


NEAREST = [
    Case("b.ts <= a.ts", "a.ts - b.ts", is_before, elapsed),
    Case("a.k = b.k", "abs(a.ts - b.ts)", is_equal, elapsed, True, 2),
    Case("a.k <=> b.k", "abs(b.ts - a.ts)", lambda a, b: a.k == b.k, elapsed, False, 3),
    Case("b.ts > a.ts", "b.ts - a.ts", lambda a, b: b.us > a.us, elapsed, False),
    Case("a.k = b.k", "b.ts DESC", is_equal, lambda a, b: -b.us),
    Case(
        "a ASOF LEFT JOIN b ON a.ts >= b.ts AND a.k <=> b.k",
        "",
        lambda a, b: is_before(a, b) and a.k == b.k,
        elapsed,
    ),
    Case(
        "a ASOF INNER JOIN b MATCH_CONDITION (a.ts < b.ts) ON a.k = b.k",
        "",
        lambda a, b: b.us > a.us and is_equal(a, b),
        elapsed,
        False,
    ),
    Case(
        "a LEFT JOIN b FOR SYSTEM_TIME AS OF a.ts AS v ON a.k = v.k",
        "",
        lambda a, b: is_before(a, b) and is_equal(a, b),
        elapsed,
    ),
    Case(
        "a JOIN LATERAL (SELECT * FROM b q WHERE q.ts <= a.ts ORDER BY q.ts DESC LIMIT 1) AS v ON true",
        "",
        is_before,
        elapsed,
        False,
    ),
    Case(
        "a JOIN b NEAREST 2 BY DISTANCE abs(a.ts - b.ts) ON a.k <> b.k",
        "",
        lambda a, b: None not in (a.k, b.k) and a.k != b.k,
        elapsed,
        False,
        2,
    ),
]


def join_nearest(spark: SparkSession, streams: dict[str, DataFrame], case: Case, within: str) -> DataFrame:
    if case.by:
        how = th.Nearest(case.most, by=case.by, keep_unmatched=case.keeps)
        joined = th.join(streams, on=case.text, within=within, how=how)
        return joined.selectExpr("a.id AS a", "b.id AS b")
    other = "v" if " AS v " in case.text else "b"
    statement = f"SELECT a.id AS x, {other}.id AS y FROM {case.text} WITHIN {within}"
    return th.sql(spark, statement, streams=streams)


def find_nearest(drawn: Drawn, case: Case) -> Iterator[tuple[int | None, ...]]:
    for a in drawn.rows["a"]:
        partners = [b for b in drawn.rows["b"] if drawn.is_near(a, b) and case.holds(a, b)]
        distances = sorted(case.distance(a, b) for b in partners)
        for b in partners:
            if distances.index(case.distance(a, b)) < case.most:
                yield a.id, b.id
        if case.keeps and not partners:
            yield a.id, None


@PLACES
def test_nearest_where_clocks_change(spark: SparkSession, tmp_path: Path, place: int) -> None:
    drawn = Drawn(spark, place, "ab", tmp_path)
    some = drawn.random.sample(NEAREST, 4)
    with configured(spark, {"spark.sql.session.timeZone": drawn.zone}):
        for streams, cases in ((drawn.batches, NEAREST), (drawn.streams, some)):
            joins = [join_nearest(spark, streams, case, drawn.within) for case in cases]
            found = collect(joins, tmp_path)
            wanted = [drop_last(find_nearest(drawn, case)) for case in cases]
            names = [(case.text, case.by) for case in cases]
            assert not differences(names, found, wanted), f"seed {drawn.seed}"


# Three streams


def make_conditions(scale: int) -> list[tuple[str, Holds]]:
    """Make conditions of two streams ``{x}`` and ``{y}``, and what each means."""
    us = scale * 1_000_000

    def share_window(length: int, offset: int = 0) -> Holds:
        return lambda x, y: (x.us - offset * us) // (length * us) == (y.us - offset * us) // (length * us)

    def write_window(length: int, offset: int = 0) -> str:
        more = f", '{length * scale} seconds', '{offset * scale} seconds'" if offset else ""
        first, second = (f"window({{{name}}}.ts, '{length * scale} seconds'{more})" for name in "xy")
        return f"{first} = {second}"

    return [
        (write_window(3), share_window(3)),
        (write_window(4, 1) + " AND {x}.k <=> {y}.k", lambda x, y: share_window(4, 1)(x, y) and x.k == y.k),
        ("{x}.k <=> {y}.k", lambda x, y: x.k == y.k),
        ("{x}.k = {y}.k", is_equal),
        (f"{{y}}.ts > {{x}}.ts AND {{y}}.ts < {{x}}.ts - INTERVAL '{scale}' SECOND", lambda x, y: False),
        (f"{{y}}.ts - {{x}}.ts BETWEEN INTERVAL '-{scale}' SECOND AND INTERVAL '{2 * scale}' SECOND",
         lambda x, y: -us <= y.us - x.us <= 2 * us),
    ]  # fmt: skip


@PLACES
def test_inner_joins_of_three_streams(spark: SparkSession, tmp_path: Path, place: int) -> None:
    drawn = Drawn(spark, place, "abc", tmp_path)
    (first, is_first), (second, is_second) = (
        drawn.random.choice(make_conditions(drawn.scale)) for _ in range(2)
    )
    on = f"{first.format(x='a', y='b')} AND {second.format(x='b', y='c')}"
    wanted = drop_last(
        (a.id, b.id, c.id)
        for a in drawn.rows["a"]
        for b in drawn.rows["b"]
        if is_first(a, b) and drawn.is_near(a, b)
        for c in drawn.rows["c"]
        if is_second(b, c) and drawn.is_near(b, c) and drawn.is_near(a, c)
    )
    with configured(spark, {"spark.sql.session.timeZone": drawn.zone}):
        for streams in (drawn.batches, drawn.streams):
            for model in (None, th.Ring(2)):
                joined = th.join(streams, on=on, within=drawn.within, model=model)
                (found,) = collect([joined.selectExpr("a.id AS a", "b.id AS b", "c.id AS c")], tmp_path)
                assert not differences([(on, model)], [found], [wanted]), f"seed {drawn.seed}"


Joined = tuple[Row | None, ...]


def join_rows(rows: list[Joined], alias: str, how: str, drawn: Drawn, holds: Holds) -> list[Joined]:
    """Join rows with the next stream by their last tuple; a tuple that is NULL limits no window."""
    others, out, used = drawn.rows[alias], list[Joined](), set[int]()
    for row in rows:
        partners = []
        for other in others:
            mine = row[-1] if row[-1] is not None else Row(-1, 0, None)
            is_inside = all(drawn.is_near(one, other) for one in row if one is not None)
            if is_inside and holds(mine, other):
                partners.append(other)
        used |= {other.id for other in partners}
        out += [(*row, other) for other in partners]
        out += [(*row, None)] if how in ("LEFT", "FULL") and not partners else []
    if how in ("RIGHT", "FULL"):
        out += [(*[None] * "abc".index(alias), other) for other in others if other.id not in used]
    return out


HOWS = ("INNER", "LEFT", "RIGHT", "FULL")


@PLACES
def test_outer_rows_of_three_streams(spark: SparkSession, tmp_path: Path, place: int) -> None:
    """(a JOIN b) JOIN c on keys, so that a padded row may have partners: its NULL key is equal to NULL.

    Rows of streams that end before 1970 are not compared, because units cannot compute a watermark for the
    result of another join.
    """
    drawn = Drawn(spark, place, "abc", tmp_path)
    statements, wanted = [], []
    keys = [("{x}.k <=> {y}.k", lambda x, y: x.k == y.k), ("{x}.k = {y}.k", is_equal)]
    for _ in range(4):
        (first, is_first), (second, is_second) = (
            drawn.random.choice(make_conditions(drawn.scale)),
            drawn.random.choice(keys),
        )
        hows = [drawn.random.choice(HOWS) for _ in range(2)]
        statements.append(
            f"SELECT a.id AS x, b.id AS y, c.id AS z FROM a {hows[0]} JOIN b ON {first.format(x='a', y='b')} "
            f"{hows[1]} JOIN c ON {second.format(x='b', y='c')} WITHIN {drawn.within}"
        )
        rows = join_rows([(a,) for a in drawn.rows["a"]], "b", hows[0], drawn, is_first)
        rows = join_rows(rows, "c", hows[1], drawn, is_second)
        wanted.append(drop_last(tuple(None if one is None else one.id for one in row) for row in rows))
    ends_before_1970 = max(row.us for row in drawn.rows["a"]) < 0
    with configured(spark, {"spark.sql.session.timeZone": drawn.zone}):
        for streams in (drawn.batches,) if ends_before_1970 else (drawn.batches, drawn.streams):
            found = collect([th.sql(spark, text, streams=streams) for text in statements], tmp_path)
            assert not differences(statements, found, wanted), f"seed {drawn.seed}"


# A table with NULL keys


TABLE = [Row(0, 0, 1), Row(1, 0, None), Row(2, 0, 2), Row(3, 0, None), Row(4, 0, 2)]
WITH_TABLE: list[tuple[str, Holds]] = [
    ("a.k = b.k", is_equal),
    ("a.k <=> b.k", lambda a, b: a.k == b.k),
    ("NOT (a.k = b.k)", lambda a, b: None not in (a.k, b.k) and a.k != b.k),
    ("a.k = b.k OR b.k IS NULL", lambda a, b: is_equal(a, b) or b.k is None),
    ("a.k > 1 AND b.id > 2", lambda a, b: a.k is not None and a.k > 1 and b.id > 2),
    ("a.k IS NULL AND b.k IS NULL", lambda a, b: a.k is None and b.k is None),
    ("a.k = b.k AND CAST(NULL AS BOOLEAN)", lambda a, b: False),
]


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_stream_beside_a_table_with_null_keys(spark: SparkSession, tmp_path: Path, is_empty: bool) -> None:
    drawn = Drawn(spark, 8, "a", tmp_path)
    others = [] if is_empty else TABLE
    table = spark.createDataFrame(TABLE, "id INT, us BIGINT, k INT").where("NOT " + str(is_empty).lower())
    joins, wanted, names = [], [], []
    for on, holds in WITH_TABLE:
        for how in ("inner", "left", "semi", "anti", "right"):
            given = {"a": drawn.streams["a"], "b": table}
            if how == "right":
                # With the table first, it answers each tuple of the stream.
                given = dict(reversed(given.items()))
            shown = ["a.id AS a"] + ([] if how in ("semi", "anti") else ["b.id AS b"])
            joined = th.join(given, on=on, how=how).selectExpr(*shown)
            joins.append(joined if len(shown) == 2 else joined.withColumn("b", F.lit(None)))
            wanted.append(drop_last(_answer(drawn.rows["a"], others, how, holds)))
            names.append((on, how))
    assert not differences(names, collect(joins, tmp_path), wanted), f"seed {drawn.seed}"


def _answer(rows: list[Row], others: list[Row], how: str, holds: Any) -> Iterator[tuple[int | None, ...]]:
    for a in rows:
        partners = [b.id for b in others if holds(a, b)]
        if how in ("inner", "left", "right"):
            yield from ((a.id, b) for b in partners)
        if (how in ("left", "right", "anti") and not partners) or (how == "semi" and partners):
            yield a.id, None
