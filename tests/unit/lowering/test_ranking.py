"""Which as-of joins may drop right tuples that later ones replace."""

import warnings
from typing import Any

import pytest

from tests.support.requests import make_request
from thetastream.conditions import parse
from thetastream.core.condition import Domain
from thetastream.core.how import Nearest, Ranking, find_nearest
from thetastream.families.answers import ANSWERS
from thetastream.lowering.query import UnboundedStateWarning
from thetastream.lowering.ranking import LoweredRanking

BEFORE = "a.k = b.k AND a.ts >= b.ts"


def plan(on: str, by: str, **asked: Any) -> Any:
    return ANSWERS.plan(make_request(on, how=find_nearest(Nearest(1, by=by)), **asked))


@pytest.mark.parametrize("within_us", [None, 5_000_000])
@pytest.mark.parametrize("by", ["a.ts - b.ts", "b.ts DESC"])
def test_later_versions_replace_a_version(by: str, within_us: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnboundedStateWarning)
        planned = plan(BEFORE, by, within_us=within_us)
    assert planned.physical.drops_replaced
    kept = "of b: kept until the watermark has passed a later one with its keys"
    bound = "" if within_us is None else ", or is 5 seconds past"
    assert f"{kept}{bound}; replaced ones leave the state" in "\n".join(map(str, planned.explain()))


@pytest.mark.parametrize(
    ("on", "by"),
    [
        (BEFORE, "b.ts - a.ts"),
        (BEFORE, "b.ts"),
        (BEFORE, "a.ts - b.ts DESC"),
        (BEFORE, "abs(a.ts - b.ts)"),
        (BEFORE, "a.x - b.x"),
        (BEFORE, "a.ts DESC"),
        (f"{BEFORE} AND a.x < b.x", "a.ts - b.ts"),
        (f"{BEFORE} AND hash(a.x, b.x) > 0", "a.ts - b.ts"),
        ("a.k = b.k", "a.ts - b.ts"),
        ("a.k = b.k AND a.ts <= b.ts", "a.ts - b.ts"),
    ],
)
def test_other_right_tuples_may_be_partners_later(on: str, by: str) -> None:
    planned = plan(on, by)
    assert not planned.physical.drops_replaced
    assert "replaced" not in "\n".join(map(str, planned.explain()))


@pytest.mark.parametrize(("left", "is_latest"), [("a.ts", True), ("a.x", False)])
def test_a_left_value_that_may_be_null_makes_all_partners_equally_near(left: str, is_latest: bool) -> None:
    request = make_request(BEFORE, how=find_nearest(Nearest(1, by="a.ts - b.ts")))
    ranking = Ranking(1, Domain.INT, True, True)
    lowered = LoweredRanking(ranking, (left, "b.ts"), (parse(left), parse("b.ts")))
    assert lowered.prefers_latest(*request.streams) is is_latest
