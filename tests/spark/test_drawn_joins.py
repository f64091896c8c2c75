"""Random joins where clocks change, and before 1970, are compared with Spark's batch join."""

from collections import Counter
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from tests.support.drawn_conditions import (
    LAST,
    STARTS,
    draw_condition,
    draw_epochs,
    draw_rows,
    pick_ids,
    write_for_spark,
)
from tests.support.streams import outcome, replay
from tests.support.truth import configured, differences, split

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")]

MODELS = {
    "inner": (None, th.Biclique((2, 2)), th.Matrix(2, 2), th.Split(2)),
    "left": (None, th.Matrix(3, 1)),
    "right": (None, th.Matrix(1, 3)),
    "full": (None, th.Matrix(1, 1)),
    "semi": (None, th.Matrix(2, 1)),
    "anti": (None, th.Matrix(3, 1)),
}
"""Models that find all partners of a preserved tuple at one unit, whatever the condition is."""
SPAN = 6
"""The window of the joins, in spans of the scale."""


@pytest.mark.parametrize("place", range(len(STARTS)))
def test_drawn_joins(spark: SparkSession, tmp_path: Path, place: int) -> None:
    seed = Random().randrange(1 << 30)
    random = Random(seed)
    zone, start = STARTS[place]
    scale = random.choice([1, 600, 1800])
    cases = [(draw_condition(random, scale), random.choice([*MODELS])) for _ in range(8)]
    models = [random.choice(MODELS[how]) for _, how in cases]
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        a, b = (draw_rows(spark, random, start, scale) for _ in range(2))
        inside = f"abs(unix_micros(a.ts) - unix_micros(b.ts)) <= {SPAN * scale * 10**6}"
        own = [
            a.alias("a").join(b.alias("b"), F.expr(f"({write_for_spark(on, a, b)}) AND {inside}"), how)
            for on, how in cases
        ]
        wanted = _count(_union(own, cases), len(cases))
        within = f"{SPAN * scale} seconds"

        def join(streams: dict[str, DataFrame]) -> DataFrame:
            joins = [
                th.join(streams, on=on, how=how, within=within, model=model)
                for (on, how), model in zip(cases, models, strict=True)
            ]
            return _union(joins, cases)

        found = _count(join({"a": a, "b": b}), len(cases))
        assert not differences(cases, found, wanted), f"batch, seed {seed}"
        # No row is late, and the last one decides all others.
        streams = {
            alias: replay(rows, draw_epochs(random), tmp_path).withWatermark("ts", f"{40 * scale} seconds")
            for alias, rows in (("a", a), ("b", b))
        }
        live = outcome(join(streams), ["*"], tmp_path)
        assert not sum(epoch["late"] for epoch in live.metrics)
        found = [_leave_out_last(each) for each in split(live.rows, len(cases))]
        assert not differences(cases, found, [_leave_out_last(each) for each in wanted]), (
            f"streams, seed {seed}"
        )


def _union(joins: list[DataFrame], cases: list[tuple[str, str]]) -> DataFrame:
    parts = [pick_ids(join, how, n) for n, (join, (_, how)) in enumerate(zip(joins, cases, strict=True))]
    return reduce(DataFrame.unionAll, parts)


def _count(rows: DataFrame, n: int) -> list[Counter[tuple[int, int]]]:
    return split(Counter(map(tuple, rows.collect())), n)


def _leave_out_last(rows: Counter[tuple[int, int]]) -> Counter[tuple[int, int]]:
    return Counter({row: times for row, times in rows.items() if LAST not in row})
