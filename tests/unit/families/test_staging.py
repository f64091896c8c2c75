"""Which selected columns units compute themselves, and why not the others."""

import pytest

from thetastream.core.columns import BlockColumn, LatestTime, TupleColumn
from thetastream.joins.sources import find_sources
from thetastream.lowering.physical import Carried, SidePlan
from thetastream.runtime.flow import Emitted, NotStaged


def carry(field: str, block: str, type_: str, from_block: str = "") -> Carried:
    return Carried(field, block, "bigint", field, from_block or f"`{block}`", type_)


SIDES = (
    SidePlan(
        "a", (), (), (carry("id", "c0", "int"), carry("ts", "c1", "timestamp", "timestamp_micros(`c1`)"))
    ),
    SidePlan(
        "b",
        (),
        (),
        (
            carry("we ird", "c2", "string"),
            carry("ts", "c3", "timestamp", "timestamp_micros(`c3`)"),
            carry("months", "c4", "interval month", "CAST(`c4` AS INTERVAL MONTH)"),
        ),
    ),
)
EMITTED = Emitted(SIDES, {"a": "ts", "b": "ts"})
A = TupleColumn((BlockColumn("c0"), BlockColumn("c1")))
TIME = LatestTime((BlockColumn("c1"), BlockColumn("c3")))


@pytest.mark.parametrize(
    ("item", "sources"),
    [
        ("a.id", [BlockColumn("c0")]),
        ("A . ID as trade", [BlockColumn("c0")]),
        ("a.ts t", [BlockColumn("c1")]),
        ("`b`.`we ird` AS `x y`", [BlockColumn("c2")]),
        ("a.*", [BlockColumn("c0"), BlockColumn("c1")]),
        ("a", [A]),
        ("a AS left_tuple", [A]),
        ("Result_Time AS found", [TIME]),
    ],
)
def test_columns_are_found(item: str, sources: list[object]) -> None:
    assert list(find_sources(EMITTED, [item])) == sources


def test_everything_is_a_struct_for_each_stream_and_the_time() -> None:
    plain = Emitted((SIDES[0],), {"a": "ts"})
    assert find_sources(plain, None) == (A, LatestTime((BlockColumn("c1"),)))
    assert find_sources(plain._replace(times={}), None) == (A,)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ("a.id + 1", "no name of a column"),
        ("a.id, a.ts", "no name of a column"),
        ("upper(b.x)", "no name of a column"),
        ("a.inner.x", "no name of a column"),
        ("id", "no column of a stream by its alias"),
        ("c.id", "no column of a stream by its alias"),
        ("a.price", "no column of a stream"),
        ("a.* x", "no column of a stream"),
        ("b.months", "Spark restores 'months'"),
        ("b.*", "Spark restores 'months'"),
    ],
)
def test_spark_computes_the_rest(item: str, why: str) -> None:
    with pytest.raises(NotStaged, match=why):
        find_sources(EMITTED, [item])


def test_event_times_of_two_types_are_left_to_spark() -> None:
    other = SidePlan("b", (), (), (carry("ts", "c3", "timestamp_ntz"),))
    with pytest.raises(NotStaged, match="two types"):
        find_sources(Emitted((SIDES[0], other), {"a": "ts", "b": "ts"}), ["result_time"])
