"""Plans of rings: settings that are accepted and refused, two streams, batch DataFrames, explain."""

from dataclasses import replace
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession

import thetastream as th

ON = "a.k < b.k AND b.k = c.k"


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, DataFrame]:
    rate = spark.readStream.format("rate").load().selectExpr("value AS k", "timestamp AS ts")
    return {alias: rate.withWatermark("ts", "1 second") for alias in "abc"}


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    frame = spark.range(6).selectExpr("id AS k", "timestamp_seconds(id) AS ts")
    return dict.fromkeys("abc", frame)


def two(streams: dict[str, DataFrame]) -> dict[str, DataFrame]:
    return {alias: streams[alias] for alias in "ab"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (th.Ring(2, slice="soon"), "INVALID_DURATION"),
        (th.Ring(2, order={"d": "abc"}), "BAD_HOPS"),
        (th.Ring(2, order={"a": ["b"]}), "BAD_HOPS"),
        (th.Ring(2, order={"a": "cb"}), "BAD_HOPS"),
        (th.Ring(2, order={"a": [1, "b"]}), "BAD_HOPS"),
        (th.Ring(2, order={"a": None}), "BAD_HOPS"),
        (th.Ring(2, order={"a": "cb", "A": "bc"}), "BAD_HOPS"),
        (th.Ring(2, slice="0 seconds"), "BAD_SLICE"),
        (th.Ring, "UNKNOWN_MODEL"),
        (th.ATR(2, master="d"), "BAD_MASTER"),
        (th.Ring(5000), "BAD_UNITS"),
    ],
)
def test_a_ring_is_refused_by_name(streams: dict[str, DataFrame], model: th.Ring, name: str) -> None:
    with pytest.raises(th.QueryError, match=rf"\[{name}\]"):
        th.plan(streams, ON, "1 minute", model)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"within": {"a": th.Rows(5), "b": "1 minute", "c": th.Rows(5)}}, "MIXED_WINDOWS"),
        ({"within": th.Rows(5), "archive_period": "1 second"}, "ARCHIVE_PERIOD"),
        ({"within": "1 minute", "order": "outer"}, "ORDER"),
        ({"within": "1 minute", "punctuations": True}, "ORDER"),
        ({"within": "1 minute", "index": "hash"}, "INDEX_NOT_APPLICABLE"),
        ({"within": "1 minute", "archive_period": "0 seconds"}, "ARCHIVE_PERIOD"),
        ({"within": "1 minute", "archive_period": "2 minutes"}, "ARCHIVE_PERIOD"),
        ({"within": "1 minute", "max_units": 4, "mailbox": 5}, "MAILBOX"),
    ],
)
def test_settings_that_a_ring_has_not(streams: dict[str, DataFrame], settings: dict, name: str) -> None:
    with pytest.raises(th.QueryError, match=rf"\[{name}\]"):
        th.plan(streams, ON, model=th.Ring(2), **settings)


@pytest.mark.parametrize("ring", [{"nodes": 0}, {"slice": 3}, {"order": "ab"}, {"in_flight": 0}])
def test_a_ring_that_cannot_be(ring: dict) -> None:
    with pytest.raises(th.QueryError, match=r"\[BAD_"):
        th.Ring(**ring)


def test_aliases_of_order_ignore_case(streams: dict[str, DataFrame]) -> None:
    plan = th.plan(streams, ON, "1 minute", th.Ring(2, order={"A": ["C", "b"]}))
    assert plan.join.planned.spec.orders[0] == (2, 1)
    text = plan.explain()
    assert "a -> c" in text
    assert "orders    of b, c: refined as selectivities are measured\norders    of a: set" in text
    assert plan.join.planned.spec.refinement.estimate(0b111) == pytest.approx(1 / 30)
    for model in (th.CTR(2), th.ATR(2), th.Ring(2, order={"a": "bc", "b": "ac", "c": "ab"})):
        model = replace(model, order={alias: list(order) for alias, order in (model.order or {}).items()})
        assert "orders    stay as they are" in th.plan(streams, ON, "1 minute", model).explain()


def test_two_streams(streams: dict[str, DataFrame], frames: dict[str, DataFrame]) -> None:
    for model in (th.Ring(2, slice="10 seconds"), th.Ring(3), th.Ring()):
        assert "ring: " in th.plan(two(streams), "a.k < b.k", "1 minute", model).explain()
    th.plan(two(streams), "a.k < b.k", "1 minute", th.Ring(3, order={"A": ["b"]}))
    with pytest.raises(th.QueryError, match="BAD_HOPS"):
        th.plan(two(streams), "a.k < b.k", "1 minute", th.Ring(3, order={"a": ["c"]}))
    with pytest.raises(th.QueryError, match=r"COUNT_WINDOW.*th.Split"):
        th.plan(two(streams), "a.k < b.k", th.Rows(5), th.ATR(2))
    pairs = th.join(two(frames), "a.k < b.k", "1 second", th.Ring(2, slice="2 seconds"))
    assert sorted(map(tuple, pairs.select("a.k", "b.k").collect())) == [(n, n + 1) for n in range(5)]
    ring, split = (
        th.join(two(frames), "a.k < b.k", th.Rows(3), model, order="strict").collect()
        for model in (th.Ring(2, slice=th.Rows(1)), th.Split(2))
    )
    assert ring == split
    assert len(ring) > 5


def test_batch_frames_go_through_the_pipeline(frames: dict[str, DataFrame]) -> None:
    for model in (th.Ring(2, order={"a": ["c", "b"]}), th.CTR(2)):
        found = th.join(frames, ON, "2 seconds", model).select("a.k", "b.k", "c.k")
        expected = [(a, b, b) for a in range(6) for b in range(a + 1, min(a + 3, 6))]
        assert sorted(map(tuple, found.collect())) == expected


def test_nodes_and_slices_follow_from_statistics(streams: dict[str, DataFrame]) -> None:
    few = th.Statistics(tuples_per_second=1)
    many = th.Statistics(tuples_per_second=100, seconds_per_candidate=1e-3)
    plans = [th.plan(streams, ON, "10 seconds", th.Ring(), statistics=known) for known in (few, many)]
    assert [plan.join.planned.spec.model.n_units for plan in plans] == [1, 2]
    assert plans[1].join.planned.spec.model.slice == th.Rows(62)
    assert "a second" in plans[1].explain()


def test_a_shared_folder_is_needed_on_a_cluster(streams: dict[str, DataFrame]) -> None:
    from thetastream.joins.ask.session import SparkSessionChecks

    class Cluster:
        def __init__(self, **settings: str) -> None:
            self._settings = {"spark.master": "yarn", **settings}

        @property
        def conf(self) -> "Cluster":
            return self

        def get(self, key: str, default: str | None = None) -> str | None:
            return self._settings.get(key, default)

    checkpoints = {"spark.sql.streaming.checkpointLocation": "hdfs://host/checkpoints/"}

    def choose(asked: str | None, **settings: str) -> tuple[str, list[str]]:
        session = SparkSessionChecks(cast(SparkSession, Cluster(**settings)))
        folder, problems = session.choose_mailbox_folder(asked)
        return folder, [problem.condition for problem in problems]

    assert choose("s3://bucket/mail") == ("s3://bucket/mail", [])
    assert choose(None, **checkpoints) == ("hdfs://host/checkpoints/thetastream-mailboxes", [])
    for asked in (None, "/tmp/mail"):
        assert choose(asked)[1] == ["MAILBOX"]


def test_windows_along_a_path_bound_the_state(streams: dict[str, DataFrame]) -> None:
    bounds = [f"{b}.ts BETWEEN {a}.ts AND {a}.ts + INTERVAL 1 HOUR" for a, b in ("ab", "bc")]
    text = th.plan(streams, [*bounds, ON], None, th.Ring(2)).explain()
    assert [line for line in text.splitlines() if line.startswith("state")] == [
        f"state     of {alias}: kept until the watermark is {span} past what is in flight"
        for alias, span in zip("abc", ("2 hours", "1 hour", "0 microseconds"), strict=True)
    ]
