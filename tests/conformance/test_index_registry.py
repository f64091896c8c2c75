"""An index shape that only the driver's registry knows works in plans, batch, streams, ring and oracle."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession

import thetastream as th
from tests.support.draws import draw_cases
from tests.support.local import LocalJoin
from tests.support.strategies import Case, cases
from tests.support.streams import outcome, replay
from thetastream.core.keys import Int64s, combine_keys
from thetastream.core.sides import Side
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import REGISTRY, Access, Fit, Indexable, Layout, LayoutRules, ProbeCost, Shape, Span
from thetastream.index.base import find_equal_buckets, group_equal_keys
from thetastream.models import Biclique

KEYS, STRIPES, ROWS = 12, 3, 40
ON, WITHIN = "a.k = b.k AND a.v <= b.v", "20 seconds"


@pytest.fixture
def striped() -> Iterator[Shape]:
    # A class inside a function is pickled by value, as in a notebook; workers cannot import it.
    class Striped(Shape):
        """Hashed keys modulo ``STRIPES``, so that keys share buckets."""

        name = "striped"
        strength = 50
        needs = "an equality that can be cut into stripes"
        cost = ProbeCost("a stripe of n")
        layout = LayoutRules(has_exact_buckets=False)

        def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
            return Fit(offer.equalities, (), "stripes of keys") if offer.equalities else None

        def suffix(self, access: Access) -> int:
            return -1

        def arrange(self, access: Access, rows: Int64s) -> Layout:
            stripes = combine_keys([rows[:, column] for column in access.group]) % STRIPES
            order = np.argsort(stripes, kind="stable")
            return Layout(order, *group_equal_keys(stripes[order]))

        def buckets(
            self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]
        ) -> Span:
            assert group is not None
            return find_equal_buckets(edges, group % STRIPES)

    REGISTRY[Striped.name] = Striped()
    yield REGISTRY[Striped.name]
    del REGISTRY[Striped.name]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return spark.sql(
        f"SELECT id, id * 7 % {KEYS} AS k, id * 5 % 9 AS v, timestamp_seconds(1700000000 + id) AS ts "
        f"FROM range({ROWS})"
    ).localCheckpoint()


def pairs_of(table: DataFrame) -> Counter[tuple[int, ...]]:
    """Compute the answer with Spark."""
    text = f"{ON} AND abs(unix_seconds(a.ts) - unix_seconds(b.ts)) <= 20"
    found = table.alias("a").crossJoin(table.alias("b")).where(text).select("a.id", "b.id").collect()
    return Counter(tuple(row) for row in found)


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_a_registered_shape_is_planned_explained_and_run(
    striped: Shape, spark: SparkSession, table: DataFrame, tmp_path: Path
) -> None:
    # 1. Plan and explain choose the strongest shape that fits, if there is one.
    epochs = [range(20), range(20, ROWS)]
    a, b = (replay(table, epochs, tmp_path).withWatermark("ts", "5 seconds") for _ in "ab")
    times = {"a": "ts", "b": "ts"}
    batch = th.plan({"a": table, "b": table}, on=ON, within=WITHIN, event_time=times)
    text = batch.explain()
    assert "index     of stored a: striped on equality 0   (stripes of keys)" in text
    assert "probe: a stripe of n per unit" in text
    with pytest.raises(th.QueryError, match="index 'striped' needs an equality that can be cut"):
        th.plan({"a": a, "b": b}, on="a.v < b.v", within=WITHIN, index="striped")
    with pytest.raises(
        th.QueryError,
        match="one of scan, sorted, intervals, hash, hash_sorted, grid, tiles, hash_tiles, striped",
    ):
        th.plan({"a": a, "b": b}, on=ON, within=WITHIN, index="spotted")
    # 2. Batch and stream run in workers that have not seen the registry.
    wanted = pairs_of(table)
    assert len(wanted) > ROWS
    assert Counter(tuple(row) for row in batch.dataframe().select("a.id", "b.id").collect()) == wanted
    streamed = th.join({"a": a, "b": b}, on=ON, within=WITHIN, index="striped", model=th.Biclique((1, 2)))
    result = outcome(streamed, ["a.id", "b.id"], tmp_path)
    assert result.rows == wanted
    # Keys share stripes, so workers examined more pairs than those with equal keys.
    looked = sum(epoch["candidates"] for epoch in result.metrics)
    scanned = outcome(
        th.join({"a": a, "b": b}, on=ON, within=WITHIN, index="scan", model=th.Biclique((1, 2))),
        ["a.id", "b.id"],
        tmp_path,
    )
    assert ROWS * ROWS / KEYS < looked < sum(epoch["candidates"] for epoch in scanned.metrics)


@pytest.mark.usefixtures("only_epochs_with_rows")
def test_hops_use_a_registered_shape(striped: Shape, table: DataFrame, tmp_path: Path) -> None:
    on = "a.k = b.k AND b.k = c.k AND a.v < c.v"
    epochs = [range(20), range(20, ROWS)]
    streams = {alias: replay(table, epochs, tmp_path).withWatermark("ts", "5 seconds") for alias in "abc"}
    settings = {"mailbox": str(tmp_path / "mailbox")}
    planned = th.plan(streams, on=on, within=WITHIN, model=th.Ring(2), **settings)
    assert "of stored b: striped on equality 0" in planned.explain()
    result = outcome(planned.dataframe(), ["a.id", "b.id", "c.id"], tmp_path)
    spread = "unix_seconds(greatest(a.ts, b.ts, c.ts)) - unix_seconds(least(a.ts, b.ts, c.ts)) <= 20"
    rows = (
        table.alias("a").crossJoin(table.alias("b")).crossJoin(table.alias("c")).where(f"{on} AND {spread}")
    )
    wanted = Counter(tuple(row) for row in rows.select("a.id", "b.id", "c.id").collect())
    assert result.rows == wanted
    assert wanted


@pytest.mark.slow
def test_the_nested_loop_tries_a_registered_shape(striped: Shape) -> None:
    tried = set()

    @draw_cases(600)
    @given(cases())
    def agree(case: Case) -> None:
        tried.update(index.shape.name for index in case.indexes)
        join = LocalJoin(UnitSpec(case.condition, case.indexes, case.archive_period_us), Biclique((1, 2)))
        found: Counter[tuple[int, int]] = Counter()
        for left, right, watermark in case.epochs:
            batches = case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right)
            for matches in join.epoch(*batches, watermark):
                ids = (batch["id"].to_pylist() for batch in (matches.left, matches.right))
                found.update(zip(*ids, strict=True))
        assert found == case.answer()[0]

    agree()
    assert tried == set(REGISTRY)
