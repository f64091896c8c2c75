"""ATR and CTR on Spark: disorder and lateness, three streams and two, batch DataFrames, explain."""

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import thetastream as th
from tests.support.streams import outcome, replay

START = datetime(2024, 3, 1, tzinfo=UTC)
SCHEMA = "id int, k int, v int, ts timestamp"
EPOCHS, ROWS = 3, 10
DELAY, WITHIN = "5 seconds", {"a": "20 seconds", "b": "10 seconds", "c": "15 seconds"}
ATR = th.ATR(3, segment="6 seconds", master="b")
CTR = th.CTR(4, copies=2, segment="4 seconds", order={"a": ["c", "b"]})
STREAMS = {
    alias: [
        [
            (
                epoch * ROWS + n,
                chance.randrange(3),
                chance.randrange(9),
                START + timedelta(seconds=epoch * 9 + chance.randrange(-24, 9)),
            )
            for n in range(ROWS)
        ]
        for epoch in range(EPOCHS)
    ]
    for alias, chance in ((alias, random.Random(alias)) for alias in "abc")
}


@th.predicate(a=["v"], b=["v"], c=["v"])
def odd_together(a, b, c):
    return (np.asarray(a.v) + np.asarray(b.v) + np.asarray(c.v)) % 2 == 1


CONDITIONS = {
    "abc": (["a.k = b.k AND b.v <= c.v + 2", odd_together], lambda a, b, c: a[1] == b[1] and b[2] <= c[2] + 2
            and (a[2] + b[2] + c[2]) % 2 == 1),
    "ab": ("a.v < b.v", lambda a, b: a[2] < b[2]),
}  # fmt: skip


@pytest.fixture(scope="module")
def frames(spark):
    return {
        alias: spark.createDataFrame([row for rows in epochs for row in rows], SCHEMA)
        for alias, epochs in STREAMS.items()
    }


def expected(aliases, holds, late_ms):
    def is_late(row, epoch):
        return 0 < late_ms(epoch) >= row[3].timestamp() * 1000

    kept = [
        [row for epoch, rows in enumerate(STREAMS[alias]) for row in rows if not is_late(row, epoch)]
        for alias in aliases
    ]
    found: Counter = Counter()
    for rows in itertools.product(*kept):
        latest = max(row[3] for row in rows)
        inside = all(
            latest - row[3] <= timedelta(seconds=int(WITHIN[alias].split()[0]))
            for alias, row in zip(aliases, rows, strict=True)
        )
        if inside and holds(*rows):
            found[tuple(row[0] for row in rows)] += 1
    return found


def plan_join(frames, aliases, model, folder, streaming=True):
    streams = {
        alias: replay(
            frames[alias], [[row[0] for row in rows] for rows in STREAMS[alias]], folder
        ).withWatermark("ts", DELAY)
        if streaming
        else frames[alias]
        for alias in aliases
    }
    settings = (
        {"mailbox": str(folder / "mail")} if streaming else {"event_time": dict.fromkeys(aliases, "ts")}
    )
    within = {alias: WITHIN[alias] for alias in aliases}
    return th.plan(streams, CONDITIONS[aliases][0], within, model, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(("aliases", "model"), [("abc", ATR), ("abc", CTR), ("ab", ATR)])
def test_same_bag_as_the_nested_loop(frames, tmp_path, aliases, model):
    plan = plan_join(frames, aliases, model, tmp_path)
    result = outcome(plan.dataframe(), [f"{alias}.id" for alias in aliases], tmp_path)
    wanted = expected(aliases, CONDITIONS[aliases][1], result.late_ms)
    assert result.rows == wanted
    assert len(wanted) > 10
    assert sum(epoch["late"] for epoch in result.metrics) > 0
    stored = sum(epoch["stored"] for epoch in result.metrics)
    assert stored > len(aliases) * EPOCHS * ROWS
    hears = model is CTR
    assert (sum(epoch["forwarded"] for epoch in result.metrics) > 0) == hears
    assert (tmp_path / "mail").exists() == hears
    assert ("mailbox   none" in plan.explain()) != hears


def test_batch_frames_give_all_results(frames, tmp_path):
    plan = plan_join(frames, "abc", ATR, tmp_path, streaming=False)
    found = Counter((row.a.id, row.b.id, row.c.id) for row in plan.dataframe().collect())
    assert found == expected("abc", CONDITIONS["abc"][1], lambda epoch: 0)


def test_segments_need_event_time(spark, frames, tmp_path):
    streams = {
        "a": replay(frames["a"], [[0]], tmp_path).withWatermark("ts", DELAY),
        "b": replay(frames["b"], [[0]], tmp_path),
    }
    with pytest.raises(th.QueryError, match="BAD_SEGMENT"):
        th.plan(streams, "a.k = b.k", model=th.ATR(2, master="b"))
    with pytest.raises(th.QueryError, match="BAD_MASTER"):
        th.plan(streams, "a.k = b.k", model=th.ATR(2, master="x"))
