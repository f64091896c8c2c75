"""Lazy updates over three streams and more, compared with a nested loop, through crashes and restarts."""

import itertools
import random
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import StreamingQueryException

import thetastream as th
from tests.support.streams import read_watermarks, replay

START = datetime(2024, 3, 1, tzinfo=UTC)
SCHEMA = "id int, x int, ts timestamp"
PARTS, SECOND = 6, timedelta(seconds=1)
AGGREGATES = {"n": "count(*)", "total": "sum(a.id * c.id - b.id)", "first": "min(c.id)"}

CONDITIONS = {
    "a.x > b.x AND b.x + 1 = c.x": lambda a, b, c: a > b and b + 1 == c,
    "c.x BETWEEN a.x AND b.x": lambda a, b, c: a <= c <= b,
    "a.x = c.x": lambda a, b, c: a == c,
    "a.x = b.x AND b.x <= c.x AND c.x = d.x": lambda a, b, c, d: a == b <= c == d,
}


def draw_epochs(seed, n):
    """Draw the epochs of a stream, some of them empty, with disorder and late tuples."""
    chance = random.Random(seed)
    rows = [(id_, chance.randrange(4), START + id_ * SECOND) for id_ in range(1, n + 1)]
    arrived = sorted(rows, key=lambda row: row[2] + SECOND * chance.choice([0, 1, 5, 20]))
    cuts = [0, *sorted(chance.randrange(n) for _ in range(PARTS - 1)), n]
    return [arrived[low:high] for low, high in itertools.pairwise(cuts)]


def count_groups(inputs, holds, seconds):
    """Answer ``AGGREGATES`` by a nested loop, for each value of ``b.x``."""
    groups = {}
    for rows in itertools.product(*inputs.values()):
        latest = max(row[2] for row in rows)
        spans = zip(rows, seconds.values(), strict=True)
        if holds(*(row[1] for row in rows)) and all(latest - row[2] <= n * SECOND for row, n in spans):
            a, b, c = rows[:3]
            n, total, least = groups.get(b[1], (0, 0, c[0]))
            groups[b[1]] = n + 1, total + a[0] * c[0] - b[0], min(least, c[0])
    return {key: (key, *values) for key, values in groups.items()}


class Replay:
    """A query over streams of files, of which a run sees a part. Its sink fails in some epochs."""

    def __init__(self, spark, epochs, folder):
        self.streams, self.epochs, self._folder = {}, epochs, folder
        for alias, parts in epochs.items():
            frame = spark.createDataFrame([row for part in parts for row in part], SCHEMA)
            ids = [[row[0] for row in part] for part in parts]
            self.streams[alias] = replay(frame, ids, folder).withWatermark("ts", "1 second")
        self._hidden = [f for one in folder.glob("stream-*") for f in sorted(one.iterdir())]
        for file in self._hidden:
            file.rename(file.with_name(f"_{file.name}"))
        self._taken = 0
        self.groups, self.updates = {}, 0

    def run(self, frame, n_parts, failures=()):
        """Run the next parts of the streams, and keep the last row of each group.

        Return the number of the first epoch, and the watermarks of the epochs.
        """
        parts, self._taken = range(self._taken, self._taken + n_parts), self._taken + n_parts
        for file in self._hidden:
            if int(file.stem.rpartition("-")[2]) in parts:
                file.with_name(f"_{file.name}").rename(file)
        failures, watermarks = list(failures), {}

        def keep(batch, epoch):
            rows = batch.collect()
            if failures and epoch >= failures[0]:
                del failures[0]
                raise RuntimeError("the sink is away")
            self.groups.update({row[0]: tuple(row) for row in rows})
            self.updates += len(rows)

        while True:
            writer = frame.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
            try:
                query.awaitTermination()
            except StreamingQueryException as failure:
                if "the sink is away" not in str(failure):
                    raise
                continue
            finally:
                watermarks.update(read_watermarks(query))
            break
        return min(watermarks), watermarks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")
@pytest.mark.parametrize(
    ("seed", "tree"),
    [*((seed, None) for seed in range(8)), (11, (("a", "b"), ("c", "d"))), (15, (("c", "a"), ("d", "b")))],
)
def test_the_last_groups_are_those_of_a_nested_loop(spark, tmp_path, use_tree, seed, tree):
    if tree is not None:
        use_tree(tree)
    chance = random.Random(seed)
    on = list(CONDITIONS)[seed % len(CONDITIONS)]
    aliases = "abcd" if "d.x" in on else "abc"
    seconds = {alias: chance.randrange(2, 10) for alias in aliases}
    epochs = {alias: draw_epochs(f"{seed} {alias}", 30) for alias in aliases}
    run = Replay(spark, epochs, tmp_path)
    query = {"within": {alias: f"{n} seconds" for alias, n in seconds.items()}, "group_by": "b.x"}
    every = chance.choice(["3 seconds", "10 seconds", "1 hour"])
    frame = th.aggregate(run.streams, on, **query, aggs=AGGREGATES, every=every, model=th.Biclique((2, 1)))
    inputs, late_ms, begin = {alias: [] for alias in aliases}, 0, 0
    for n_parts in (2, 1, 3):
        first, watermarks = run.run(frame, n_parts, [chance.randrange(8)])
        for number in range(n_parts):
            for alias, parts in epochs.items():
                timely = [row for row in parts[begin + number] if row[2].timestamp() * 1000 > late_ms]
                inputs[alias] += timely
            late_ms = watermarks.get(first + number, late_ms)
        late_ms, begin = max([late_ms, *watermarks.values()]), begin + n_parts
        # All streams pause after each run, so no view waits.
        assert run.groups == count_groups(inputs, CONDITIONS[on], seconds)
    assert run.groups


def make_steady(n_parts, size, lag=0):
    """Make ``n_parts`` epochs of ``size`` tuples, one per second, in order."""
    rows = [(id_, id_ % 2, START + (id_ - lag) * SECOND) for id_ in range(1, n_parts * size + 1)]
    return [rows[low : low + size] for low in range(0, len(rows), size)]


@pytest.mark.parametrize(
    "tree",
    [
        (("a", "b"), "c"),
        pytest.param(((("a", "b"), "c"), "d"), marks=pytest.mark.slow),
        pytest.param((("a", "b"), ("c", "d")), marks=pytest.mark.slow),
        # The right input of the last join does not bound the watermark.
        pytest.param((("d", "c"), ("b", "a")), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_views_wait_for_the_slowest_stream(spark, tmp_path, use_tree, tree):
    use_tree(tree)
    aliases = "abcd" if "d" in str(tree) else "abc"
    epochs = {alias: make_steady(PARTS, 5) for alias in aliases}
    # In the last three epochs the stream "a" is silent. Before, it was far ahead of the others.
    ahead = [(id_ + 100, x, ts + 1000 * SECOND) for id_, x, ts in epochs["a"][3]]
    epochs["a"] = [*epochs["a"][:2], [*epochs["a"][2], *ahead], [], [], []]
    seconds = dict.fromkeys(aliases, 2000)
    on = " AND ".join(f"{one}.x = {other}.x" for one, other in itertools.pairwise(aliases))
    query = {"within": "2000 seconds", "group_by": "b.x", "aggs": AGGREGATES}
    run = Replay(spark, epochs, tmp_path)
    frame = th.aggregate(run.streams, on, **query, every="1 hour")

    def check(n_parts):
        inputs = {alias: [row for part in parts[:n_parts] for row in part] for alias, parts in epochs.items()}
        assert run.groups == count_groups(inputs, lambda *xs: len(set(xs)) == 1, seconds)

    run.run(frame, 3)
    check(3)
    # The first epoch has no watermark to rise from. Views of the next two wait for the epoch without data.
    assert run.updates <= 4
    # After a restart, Spark has forgotten how far "a" was, so the watermark does not rise and no view waits.
    run.run(frame, 3)
    check(6)


@pytest.mark.parametrize(
    ("changes", "condition"),
    [
        ({"group_by": "window(result_time, '1 minute')"}, "EVERY"),
        ({"aggs": {"n": "skewness(c.x)"}}, "EVERY"),
        ({"model": th.Ring(2)}, "EVERY"),
    ],
)
def test_what_cannot_wait_is_refused_by_name(spark, tmp_path, changes, condition):
    streams = Replay(spark, {alias: make_steady(1, 2) for alias in "abc"}, tmp_path).streams
    query = {"on": "a.x = b.x AND b.x = c.x", "within": "1 minute", "aggs": {"n": "count(*)"}}
    with pytest.raises(th.QueryError) as refused:
        th.aggregate(streams, **query | {"every": "1 minute"} | changes)
    assert refused.value.condition == condition


def test_each_of_three_streams_needs_one_watermark(spark, tmp_path):
    streams = Replay(spark, {alias: make_steady(1, 2) for alias in "abc"}, tmp_path).streams
    streams["b"] = streams["b"].unionByName(streams["c"])
    query = {"on": "a.x = b.x AND b.x = c.x", "within": "1 minute", "aggs": {"n": "count(*)"}}
    with pytest.raises(th.QueryError, match="'b' has 2") as refused:
        th.aggregate(streams, **query, every="1 minute")
    assert refused.value.condition == "EVERY"
