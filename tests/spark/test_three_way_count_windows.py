"""Count windows of three streams on Spark: lateness, filters, batch DataFrames, and two streams on a ring."""

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import thetastream as th
from tests.support.streams import outcome, replay

START = datetime(2024, 5, 1, tzinfo=UTC)
ROWS, EPOCHS, DELAY_S = 24, 3, 4
WITHIN = {"a": th.Rows(3), "b": th.Rows(9), "c": th.Rows(5)}
ON = "a.v + b.v >= c.v AND a.g = c.g AND b.v > 1 AND b.ts < c.ts + INTERVAL 9 SECONDS"


def make_rows(alias):
    chance = random.Random(alias)
    return [
        (
            n,
            chance.randrange(8),
            chance.choice(["x", "y", None]),
            n // 2 + chance.randint(-3, 3) - 30 * (n == 17),
        )
        for n in range(ROWS)
    ]


STREAMS = {alias: make_rows(alias) for alias in "abc"}


def matches(a, b, c):
    return a[1] + b[1] >= c[1] and a[2] is not None and a[2] == c[2] and b[1] > 1 and b[3] < c[3] + 9


def cut(rows):
    size = ROWS // EPOCHS
    return [rows[n : n + size] for n in range(0, ROWS, size)]


def replay_arrivals(aliases, holds, epochs):
    """Join each tuple with the last tuples of the other streams, in the order of arrival."""
    expected: Counter = Counter()
    before: dict = {alias: [] for alias in aliases}
    for rows_by_alias in epochs:
        arrived = [(row[3], alias, row) for alias in aliases for row in rows_by_alias[alias]]
        for _, alias, row in sorted(arrived, key=lambda found: found[:2]):
            last = [[row] if other == alias else before[other][-WITHIN[other].n :] for other in aliases]
            found = (rows for rows in itertools.product(*last) if holds(*rows))
            expected.update(tuple(each[0] for each in rows) for rows in found)
            before[alias].append(row)
    return expected


def make_frames(spark):
    return {
        alias: spark.createDataFrame(
            [(n, v, g, START + timedelta(seconds=t)) for n, v, g, t in rows],
            "id INT, v INT, g STRING, ts TIMESTAMP",
        )
        for alias, rows in STREAMS.items()
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("aliases", "on", "holds", "model"),
    [
        ("abc", ON, matches, None),
        pytest.param(
            "abc", ON, matches, th.Ring(3, "4 seconds", in_flight=10), marks=pytest.mark.slow
        ),
        ("ab", "a.v <> b.v AND b.v > 1", lambda a, b: a[1] != b[1] and b[1] > 1, th.Ring(2, "4 seconds")),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_streams_meet_the_last_tuples_of_each_other(spark, tmp_path, aliases, on, holds, model):
    frames = make_frames(spark)
    streams = {
        alias: replay(frames[alias], [[row[0] for row in part] for part in cut(STREAMS[alias])], tmp_path)
        .withWatermark("ts", f"{DELAY_S} seconds")
        for alias in aliases
    }  # fmt: skip
    within = {alias: WITHIN[alias] for alias in aliases}
    plan = th.plan(streams, on, within, model, mailbox=str(tmp_path / "mail"))
    assert model is not None or "the last 9 of b" in plan.explain()
    found = outcome(plan.dataframe(), [f"{alias}.id" for alias in aliases], tmp_path)

    def is_timely(row, epoch):
        return not 0 < found.late_ms(epoch) >= 1000 * (START.timestamp() + row[3])

    timely = [
        {alias: [row for row in cut(STREAMS[alias])[n] if is_timely(row, n)] for alias in aliases}
        for n in range(EPOCHS)
    ]
    expected = replay_arrivals(aliases, holds, timely)
    assert found.rows == expected
    assert len(expected) > 30
    assert sum(epoch["late"] for epoch in found.metrics) > 0


def test_batch_frames_have_the_same_windows(spark):
    plan = th.plan(
        make_frames(spark), ON, WITHIN, th.Ring(3, in_flight=2), event_time=dict.fromkeys("abc", "ts")
    )
    found = Counter((row.a.id, row.b.id, row.c.id) for row in plan.dataframe().collect())
    assert found == replay_arrivals("abc", matches, [STREAMS])  # batch DataFrames are one epoch
