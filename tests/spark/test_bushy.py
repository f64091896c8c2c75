"""Pipelines that join results with results are compared with the nested loop: in batch, with late tuples,
folded, and after a restart."""

import itertools
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import thetastream as th
from tests.support.groups import read_latest
from tests.support.streams import outcome, replay

pytestmark = pytest.mark.filterwarnings("ignore::thetastream.errors.CrossJoinWarning")

START = datetime(2024, 3, 1, tzinfo=UTC)
SCHEMA = "id int, x int, ts timestamp"
TREES = {
    "abcd": [(("a", "b"), ("c", "d")), (("c", "a"), ("d", "b"))],
    "abcde": [
        ((("a", "b"), ("c", "d")), "e"),
        ((("a", "b"), "e"), ("d", "c")),
        ((("e", "c"), ("a", "b")), "d"),
    ],
}
CONJUNCTS = {
    "a.x = b.x": ("ab", lambda a, b: a == b),
    "a.x <= b.x": ("ab", lambda a, b: a <= b),
    "c.x = d.x": ("cd", lambda c, d: c == d),
    "abs(c.x - d.x) <= 1": ("cd", lambda c, d: abs(c - d) <= 1),
    "b.x < c.x": ("bc", lambda b, c: b < c),
    "a.x + b.x = c.x + d.x": ("abcd", lambda a, b, c, d: a + b == c + d),
    "a.x = d.x": ("ad", lambda a, d: a == d),
    "d.x > 1": ("d", lambda d: d > 1),
    "e.x BETWEEN a.x AND c.x": ("ace", lambda a, c, e: a <= e <= c),
    "e.x = d.x": ("de", lambda d, e: d == e),
    "e.x + 1 > b.x": ("be", lambda b, e: e + 1 > b),
}
SELECTIVE = th.Statistics(tuples_per_second=10, results_per_second={"a, b": 5, "D,C": 5, "a, b, c, d": 250})
CHAIN = "a.x = b.x AND b.x <= c.x AND c.x = d.x"


def draw(seed, n, nulls=0.0):
    chance = random.Random(seed)
    return [
        (
            number,
            chance.choice([None, *range(4)]),
            None if chance.random() < nulls else START + timedelta(seconds=chance.randrange(n)),
        )
        for number in range(n)
    ]


def draw_case(seed):
    """Draw the tree, conjuncts and windows of a query of four or five streams."""
    chance = random.Random(seed)
    aliases = chance.choice(list(TREES))
    fit = [text for text, (read, _) in CONJUNCTS.items() if set(read) <= set(aliases)]
    on = chance.sample(fit, chance.randrange(2, 5))
    return aliases, chance.choice(TREES[aliases]), on, {alias: chance.randrange(1, 8) for alias in aliases}


def nested_loop(inputs, on, seconds):
    found = Counter()
    for together in itertools.product(*inputs.values()):
        row = dict(zip(inputs, together, strict=True))
        if any(one[2] is None for one in together):
            continue
        latest = max(one[2] for one in together)
        inside = all(latest - row[alias][2] <= timedelta(seconds=seconds[alias]) for alias in row)
        values = [([row[alias][1] for alias in CONJUNCTS[text][0]], CONJUNCTS[text][1]) for text in on]
        if inside and all(None not in read and holds(*read) for read, holds in values):
            found[tuple(one[0] for one in together)] += 1
    return found


def spans(seconds):
    return {alias: f"{n} seconds" for alias, n in seconds.items()}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(24))
def test_batch(spark, use_tree, seed):
    aliases, tree, on, seconds = draw_case(seed)
    rows = {alias: draw(f"{seed} {alias}", 9, nulls=0.1) for alias in aliases}
    use_tree(tree)
    frames = {alias: spark.createDataFrame(found, SCHEMA) for alias, found in rows.items()}
    joined = th.join(frames, on, spans(seconds))
    found = Counter(tuple(row[alias].id for alias in aliases) for row in joined.collect())
    assert found == nested_loop(rows, on, seconds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
def test_streams_with_disorder_and_late_tuples(spark, tmp_path, use_tree, seed):
    aliases, tree, on, seconds = draw_case(seed)
    chance = random.Random(seed)
    rows = {alias: draw(f"{seed} {alias}", 12) for alias in aliases}
    use_tree(tree)
    epochs, frames = {}, {}
    for alias, found in rows.items():
        ordered = sorted(found, key=lambda row: row[2] + timedelta(seconds=chance.uniform(0, 30)))
        # The earliest tuple comes last, so that it is late.
        ordered.append(ordered.pop(ordered.index(min(ordered, key=lambda row: row[2]))))
        cuts = sorted(chance.sample(range(1, 12), 3))
        epochs[alias] = [ordered[i:j] for i, j in zip([0, *cuts], [*cuts, None], strict=True)]
        ids = [[row[0] for row in part] for part in epochs[alias]]
        frame = replay(spark.createDataFrame(found, SCHEMA), ids, tmp_path)
        frames[alias] = frame.withWatermark("ts", "1 second")
    found = outcome(th.join(frames, on, spans(seconds)), [f"{alias}.id" for alias in aliases], tmp_path)
    timely = {
        alias: [
            row
            for number, part in enumerate(parts)
            for row in part
            if row[2].timestamp() * 1000 > found.late_ms(number)
        ]
        for alias, parts in epochs.items()
    }
    assert any(len(timely[alias]) < len(rows[alias]) for alias in aliases), "the case has no late tuples"
    assert found.rows == nested_loop(timely, on, seconds)


def test_a_predicate_over_both_results(spark, use_tree):
    @th.predicate(a=["x"], b=["x"], c=["x"], d=["x"])
    def adds_up(a, b, c, d):
        return pc.equal(pc.add(a.x, b.x), pc.add(c.x, d.x))

    rows = {alias: draw(alias, 9) for alias in "abcd"}
    use_tree(TREES["abcd"][1])
    frames = {alias: spark.createDataFrame(found, SCHEMA) for alias, found in rows.items()}
    found = th.join(frames, [adds_up, "a.x <= b.x"], "5 seconds").collect()
    wanted = nested_loop(rows, ["a.x + b.x = c.x + d.x", "a.x <= b.x"], dict.fromkeys("abcd", 5))
    assert Counter((row.a.id, row.b.id, row.c.id, row.d.id) for row in found) == wanted


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(200, 208))
def test_units_of_the_last_join_fold(spark, use_tree, seed):
    aliases, tree, on, seconds = draw_case(seed)
    rows = {alias: draw(f"{seed} {alias}", 9, nulls=0.1) for alias in aliases}
    use_tree(tree)
    frames = {alias: spark.createDataFrame(found, SCHEMA) for alias, found in rows.items()}
    found = th.aggregate(
        frames, on, spans(seconds), group_by="b.x", aggs={"n": "count(*)", "total": "sum(a.id * c.id - d.id)"}
    )
    groups = {}
    for ids, n in nested_loop(rows, on, seconds).items():
        a, b, c, d = ids[:4]
        key = rows["b"][b][1]
        count, total = groups.get(key, (0, 0))
        groups[key] = count + n, total + n * (a * c - d)
    assert {tuple(row) for row in found.collect()} == {(key, *values) for key, values in groups.items()}


@pytest.mark.slow
def test_units_that_fold_count_matches_before_they_compare_windows(spark, tmp_path, use_tree):
    """They count as many as without folding, where Spark filters their pairs by the windows."""
    use_tree(TREES["abcd"][0])
    streams = {
        alias: replay(spark.createDataFrame(draw(alias, 20), SCHEMA), [range(20)], tmp_path)
        for alias in "abcd"
    }
    streams = {alias: frame.withWatermark("ts", "1 second") for alias, frame in streams.items()}
    within = spans({"a": 2, "b": 5, "c": 3, "d": 6})
    pairs = outcome(th.join(streams, CHAIN, within), ["a.id", "b.id", "c.id", "d.id"], tmp_path)
    folded = th.aggregate(streams, CHAIN, within, aggs={"n": "count(*)"})
    groups, query = read_latest(folded, "update", tmp_path / "state", 0)
    by_pairs, by_views = (
        [epoch for epoch in epochs if "a_b" in epoch["streams"]]
        for epochs in (pairs.metrics, th.metrics(query))
    )
    n = sum(pairs.rows.values())
    assert groups == {(): (n,)}
    assert sum(e["matched"] for e in by_views) == sum(e["matched"] for e in by_pairs) > n > 0
    assert sum(e["emitted_bytes"] for e in by_views) < sum(e["emitted_bytes"] for e in by_pairs)


def test_names_of_results_differ_from_each_other(spark, use_tree):
    frame = spark.createDataFrame([(1,)], "id int")
    use_tree(((("a", "b_c"), "x"), ("a_b", "c")))
    aliases = ("a", "b_c", "x", "a_b", "c")
    on = [f"{one}.id = {other}.id" for one, other in itertools.pairwise(aliases)]
    assert th.join(dict.fromkeys(aliases, frame), on).count() == 1
    use_tree((("a", "b_c"), ("a_b", "c")))
    assert th.join(dict.fromkeys(("a", "b_c", "a_b", "c"), frame), "a.id = c.id").count() == 1


def begin(spark, tmp_path, statistics, ids):
    """Run a query of four streams over the next file of each, and return its new results and its plan."""
    rows = {alias: draw(alias, 12) for alias in "abcd"}
    frames = {}
    for alias, found in rows.items():
        folder = tmp_path / alias
        folder.mkdir(exist_ok=True)
        path = folder / f"{len(list(folder.iterdir())):04}.parquet"
        mine = sorted(found, key=lambda row: row[2])[ids]
        pq.write_table(spark.createDataFrame(mine, SCHEMA).toArrow(), path)
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
        frames[alias] = read.withWatermark("ts", "20 seconds")
    plan = th.plan(frames, CHAIN, "5 seconds", statistics=statistics)
    new = Counter()

    def collect(batch, _):
        new.update(tuple(row) for row in batch.collect())

    writer = plan.dataframe().select("a.id", "b.id", "c.id", "d.id").writeStream.foreachBatch(collect)
    writer = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "state"))
    writer.start().awaitTermination()
    return new, plan.explain()


@pytest.mark.slow
def test_a_query_that_starts_again_needs_its_tree(spark, tmp_path):
    """A checkpoint continues with the same tree, and refuses another one."""
    before, text = begin(spark, tmp_path, SELECTIVE, slice(0, 6))
    assert "((a JOIN b) JOIN (c JOIN d))" in text
    assert "costs less than 1/2 of the cheapest left-deep tree" in text
    after, _ = begin(spark, tmp_path, SELECTIVE, slice(6, None))
    on = ["a.x = b.x", "c.x = d.x"]
    rows = {alias: draw(alias, 12) for alias in "abcd"}
    wanted = Counter(
        {
            ids: n
            for ids, n in nested_loop(rows, on, dict.fromkeys("abcd", 5)).items()
            if rows["b"][ids[1]][1] <= rows["c"][ids[2]][1]
        }
    )
    assert before
    assert after
    assert before + after == wanted
    # Spark refuses it before any unit runs, because the sources of another tree have another order.
    with pytest.raises(StreamingQueryException, match="No usable value for logOffset"):
        begin(spark, tmp_path, None, slice(0, 1))


def test_rates_of_results_give_the_left_deep_order_if_no_bushy_tree_is_far_cheaper(spark):
    """By the kinds of its conjuncts, a JOIN b is as small as c JOIN d. The known rates say that it is not."""
    frames = dict.fromkeys("abcd", spark.createDataFrame([(1, 1, START)], SCHEMA))
    rates = {"a,b": 2000, "c,d": 5, "a,b,c,d": 10_000}
    known = th.Statistics(tuples_per_second=10, results_per_second=rates)
    before, text = (th.plan(frames, CHAIN, "5 seconds", statistics=s).explain() for s in (None, known))
    assert "(((a JOIN b) JOIN c) JOIN d)" in before
    assert "(((c JOIN d) JOIN b) JOIN a)" in text
    assert "order: the cheapest left-deep tree, as estimated from assumed rates of results" in text
    history = th.plan(frames, CHAIN, statistics=known).explain()
    assert "(((a JOIN b) JOIN c) JOIN d)" in history  # there are no windows to compare trees by


def test_statistics_name_results_of_streams(spark):
    frames = dict.fromkeys("abcd", spark.createDataFrame([(1, 1, START)], SCHEMA))
    for name in ("a, e", "a", "a_b"):
        with pytest.raises(th.QueryError, match="UNKNOWN_ALIAS"):
            th.plan(frames, CHAIN, "1 second", statistics=th.Statistics(results_per_second={name: 1}))
