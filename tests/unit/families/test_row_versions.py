"""Joins with versions: what is planned for them, and what is refused before a query starts."""

from dataclasses import replace
from typing import Any

import pytest

import thetastream as th
from tests.support.requests import make_request
from thetastream.core.condition import VersionRule
from thetastream.core.errors import QueryError
from thetastream.core.how import HOWS, find_nearest
from thetastream.core.identity import find_changes
from thetastream.engine.answers.spec import VersionsSpec
from thetastream.families.answers import ANSWERS
from thetastream.families.changes import find_versions_problems
from thetastream.families.request import JoinRequest

ON = "a.k = b.k AND b.ts <= a.ts"
AS_OF = find_nearest(th.Nearest(1, by="a.ts - b.ts"))
RULE = VersionRule(("k",), "offset", "x IS NULL")


def make_versions(
    on: str = ON, how: Any = AS_OF, rule: VersionRule | None = RULE, aliases: str = "ab", **changed: Any
) -> JoinRequest:
    request = make_request(on, aliases, None, how, **changed)
    first, second, *others = request.streams
    return replace(request, streams=(first, replace(second, versions=rule), *others))


def test_units_get_what_says_which_versions_count_and_results_do_not() -> None:
    request = make_versions()
    assert not list(find_versions_problems(request))
    planned = ANSWERS.plan(request)
    flow = planned.flow()
    found = {name: text for name, text in flow.sides[1].computed if name in ("q", "gone")}
    assert found == {"q": "`b`.`_version`.`sequence`", "gone": "coalesce(`b`.`_version`.`deleted`, false)"}
    assert flow.keys[1].version_columns == ("q", "gone")
    assert flow.keys[0].version_columns == ()
    (stage,) = flow.stages
    assert isinstance(stage.spec, VersionsSpec)
    assert not {"q", "gone", "`q`", "`gone`"} & {column.split()[0] for column in stage.output.columns}
    assert not planned.facts.has_deletes
    # A join without versions is planned as before.
    plain = ANSWERS.plan(make_versions(rule=None)).flow()
    assert not {"q", "gone"} & {name for name, _ in plain.sides[1].computed}
    changed = find_changes(plain.identity, flow.identity)
    assert "the versions of 'b' was not set, it is by k, ordered by offset, deleted if x IS NULL" in changed


def test_which_versions_count_is_a_part_of_the_identity() -> None:
    first = ANSWERS.plan(make_versions()).flow().identity
    for rule in (VersionRule(("k",), "x", RULE.deleted), VersionRule(("k",), RULE.sequence)):
        assert find_changes(first, ANSWERS.plan(make_versions(rule=rule)).flow().identity)


@pytest.mark.parametrize(
    "on",
    [
        f"{ON} AND a.x > 3",
        "a.x = b.k AND a.ts >= b.ts",
        "b.k = a.k AND a.ts > b.ts",
    ],
)
def test_the_key_and_the_time_may_be_compared_and_the_left_stream_filtered(on: str) -> None:
    ANSWERS.plan(make_versions(on))


@pytest.mark.parametrize(
    ("on", "why"),
    [
        ("b.ts <= a.ts", "nothing equals k"),
        (f"{ON} AND a.id = b.id", "'a.id = b.id' would choose among the versions"),
        (f"{ON} AND b.x > 3", "'b.x > 3' would choose among the versions"),
        ("a.k <=> b.k AND b.ts <= a.ts", "would choose among the versions"),
        (f"{ON} AND a.x < b.x", "asks for other ones"),
        ("a.k = b.k", "asks for other ones"),
    ],
)
def test_a_condition_that_chooses_among_versions_is_refused(on: str, why: str) -> None:
    with pytest.raises(QueryError, match=f"VERSIONS.*{why}.*how=th.Nearest"):
        ANSWERS.plan(replace(make_versions(on), within_us=(5_000_000,) * 2))


@pytest.mark.parametrize("by", ["abs(a.ts - b.ts)", "b.x - a.x", "b.ts"])
def test_only_the_latest_version_is_a_partner(by: str) -> None:
    with pytest.raises(QueryError, match=r"VERSIONS.*a.k = b.k AND b.ts <= a.ts"):
        ANSWERS.plan(make_versions(how=find_nearest(th.Nearest(1, by=by))))


@pytest.mark.parametrize(
    "changed",
    [
        {"how": HOWS["inner"]},
        {"how": HOWS["left"]},
        {"how": find_nearest(th.Nearest(2, by="a.ts - b.ts"))},
        {"aliases": "abc"},
        {"keeps_spark_join": True},
        {"within": th.Rows(5)},
    ],
    ids=str,
)
def test_another_join_with_versions_is_refused(changed: dict[str, Any]) -> None:
    request = make_versions(**changed)
    assert [problem.condition for problem in find_versions_problems(request)] == ["VERSIONS"]
    left, right, *others = request.streams
    plain = replace(request, streams=(left, replace(right, versions=None), *others))
    assert not list(find_versions_problems(plain))
    swapped = replace(request, streams=(replace(left, versions=RULE), replace(right, versions=None)))
    assert [problem.condition for problem in find_versions_problems(swapped)] == ["VERSIONS"]
