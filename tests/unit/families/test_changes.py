"""Joins of changes: what is planned for them, and what is refused before a query starts."""

from dataclasses import replace
from typing import Any

import pytest

import thetastream as th
from tests.support.requests import make_request
from thetastream.core.columns import CHANGE_TYPE, SIGN, ChangeType
from thetastream.core.condition import ChangeRules
from thetastream.core.errors import QueryError
from thetastream.core.how import find_nearest
from thetastream.core.identity import find_changes
from thetastream.core.shed import Shed
from thetastream.core.sides import Side
from thetastream.engine.answers.spec import EarlySpec
from thetastream.families.answers import ANSWERS
from thetastream.families.changes import answer_early, find_changes_problems
from thetastream.families.hops.plan import HOPS
from thetastream.families.pairs.plan import PAIRS
from thetastream.families.request import JoinRequest
from thetastream.families.tasks import share
from thetastream.joins.sources import find_sources
from thetastream.models import REGISTRY
from thetastream.runtime.flow import Emitted, RunContext

ON = "a.k = b.k AND a.x < b.x"


def make_changes(on: str = ON, changing: str = "a", **changed: Any) -> JoinRequest:
    request = make_request(on, **changed)
    streams = tuple(
        replace(stream, change_type=CHANGE_TYPE if stream.alias in changing else None)
        for stream in request.streams
    )
    sides = [side for side in Side if request.streams[side].alias in changing]
    return replace(request, streams=streams, how=request.how.over_changes(sides))


@th.predicate(a=["x"], b=["x"])
def close(a: Any, b: Any) -> Any:
    return a.x == b.x


@pytest.mark.parametrize(
    ("condition", "changed"),
    [
        ("EVERY", {"aliases": "abc", "bounds_watermark": True}),
        ("COUNT_WINDOW", {"within": th.Rows(5)}),
        ("ORDER", {"options": {"order": "strict"}}),
        ("SHED", {"run": RunContext(shed=Shed("100 B", "200 B"))}),
        ("CANNOT_SCALE", {"options": {"max_units": 8}, "how": "left"}),
        ("PREDICATE_CHANGES", {"predicates": (close,)}),
        ("CHANGES_LATE", {"model": th.Chain(2)}),
        ("CHANGES_LATE", {"model": th.Ring(2, in_flight=9), "aliases": "abc"}),
        ("SPARK_JOIN", {"keeps_spark_join": True}),
    ],
)
def test_what_a_join_of_changes_cannot_have(condition: str, changed: dict[str, Any]) -> None:
    found = list(find_changes_problems(make_changes(**changed)))
    assert [problem.condition for problem in found] == [condition]
    assert "rows of a may be deleted" in found[0].message
    assert not list(find_changes_problems(make_request(ON, **changed)))


def test_a_predicate_that_is_declared_stable_may_join_changes() -> None:
    stable = th.stable(close, version="1")
    request = make_changes(predicates=(stable,))
    assert not list(find_changes_problems(request))
    (metres,) = (
        part for part in th.within_metres("a.x", "a.k", "b.x", "b.k", 5) if not isinstance(part, str)
    )
    assert not list(find_changes_problems(make_changes(predicates=(metres,))))
    both = make_changes(predicates=(stable, close))
    assert [one.condition for one in find_changes_problems(both)] == ["PREDICATE_CHANGES"]
    for wrong, version in ((lambda a, b: None, "1"), (close, ""), (close, 1)):
        with pytest.raises(QueryError, match="BAD_VALUE"):
            th.stable(wrong, version=version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "on", "asked"),
    [
        (PAIRS, ON, {}),
        (HOPS, "a.k = b.k AND b.x < c.x", {"aliases": "abc", "model": th.Ring(2, hops="mailbox")}),
    ],
    ids=["pairs", "hops"],
)
def test_the_version_of_a_predicate_is_a_part_of_the_identity(family: Any, on: str, asked: Any) -> None:
    first, second, undeclared = (
        family.plan(make_changes(on, predicates=(one,), **asked)).flow().identity
        for one in (th.stable(close, "1"), th.stable(close, "2"), close)
    )
    (change,) = find_changes(first, second)
    assert "of version '1'" in change
    assert "of version '2'" in change
    assert find_changes(undeclared, first)


def test_tables_beside_changes_and_an_alias_of_the_column_are_refused() -> None:
    request = make_changes()
    left, right = request.streams
    beside = replace(request, streams=(left, replace(right, is_streaming=False)))
    assert [one.condition for one in find_changes_problems(beside)] == ["CHANGES_TABLE"]
    named = replace(request, streams=(replace(left, alias="_change_type"), right))
    assert [one.condition for one in find_changes_problems(named)] == ["INVALID_ALIAS"]


@pytest.mark.parametrize("model", [th.Biclique(2), th.Matrix(2, 2), None], ids=repr)
@pytest.mark.parametrize("within_us", [5_000_000, None])
def test_units_get_the_sign_and_emit_it(model: Any, within_us: int | None) -> None:
    request = make_changes(model=model, within_us=within_us)
    assert not list(find_changes_problems(request))
    planned = PAIRS.plan(request)
    flow = planned.flow()
    left, right = flow.sides
    assert [name for name, _ in left.computed if name == SIGN] == [SIGN]
    assert not right.has_deletes
    (stage,) = flow.stages
    assert stage.output.columns[-1] == "w tinyint"
    assert stage.output.restored[-1].endswith("AS `_change_type`")
    assert planned.facts.has_deletes
    emitted = planned.facts.emitted
    assert isinstance(emitted, Emitted)
    assert find_sources(emitted, None)[-1] == ChangeType()
    assert find_sources(emitted, ["a.id", "_CHANGE_TYPE AS what"])[-1] == ChangeType()


def test_a_join_without_changes_is_planned_as_before() -> None:
    plain, changing = PAIRS.plan(make_request(ON)).flow(), PAIRS.plan(make_changes()).flow()
    assert not any(SIGN in column for side in plain.sides for column, _ in side.computed)
    assert "w tinyint" not in plain.stages[0].output.columns
    parts = {name: part for name, part in changing.identity.items() if name != "the changes of 'a'"}
    assert parts == plain.identity
    (change,) = find_changes(plain.identity, changing.identity)
    assert change == "the changes of 'a' was not set, it is inserts and deletes"


@pytest.mark.parametrize("model", [th.Split(2), th.Chain(2, fast_forward=True), th.Ring(2)], ids=repr)
def test_models_that_scatter_equal_tuples_need_a_window(model: Any) -> None:
    assert PAIRS.plan(make_changes(model=model)).model == model
    with pytest.raises(QueryError, match="CHANGES_STATE"):
        PAIRS.plan(make_changes(model=model, within_us=None))


@pytest.mark.parametrize(
    "model", [th.Ring(2, hops="epoch"), th.Ring(2, hops="mailbox"), th.ATR(2), th.CTR(2)]
)
def test_nodes_get_the_signs_and_emit_their_product(model: Any) -> None:
    def make(**asked: Any) -> JoinRequest:
        on = "a.k = b.k AND b.x < c.x"
        return make_changes(on, "ac", aliases="abc", model=model, **asked)

    planned = HOPS.plan(make(within_us=5_000_000))
    assert not list(find_changes_problems(planned.request))
    flow = planned.flow()
    assert [side.has_deletes for side in flow.sides] == [True, False, True]
    assert flow.stages[0].output.columns[-1] == "w tinyint"
    assert planned.facts.has_deletes
    assert isinstance(planned.facts.emitted, Emitted)
    assert find_sources(planned.facts.emitted, None)[-1] == ChangeType()
    with pytest.raises(QueryError, match=r"CHANGES_STATE.*rows of a, c may be deleted.*for ever"):
        HOPS.plan(make(within_us=None))
    request = make(within_us=5_000_000)
    strict = replace(request.streams[0], rules=ChangeRules(is_strict=True))
    with pytest.raises(QueryError, match=r"CHANGES_STATE.*strict=True of a"):
        HOPS.plan(replace(request, streams=(strict, *request.streams[1:])))


def test_units_of_an_inner_join_in_a_window_may_change() -> None:
    model, options = th.Biclique(2), {"max_units": 8}
    request = make_changes(model=model, options=options)
    assert not list(find_changes_problems(request))
    assert PAIRS.plan(request).flow().rules is not None
    with pytest.raises(QueryError, match=r"CANNOT_SCALE.*rows of a may be deleted.*never meet"):
        PAIRS.plan(make_changes(model=model, options=options, within_us=None))
    left, right = request.streams
    strict = replace(left, rules=ChangeRules(is_strict=True))
    with pytest.raises(QueryError, match=r"CANNOT_SCALE.*strict=True of a"):
        PAIRS.plan(replace(request, streams=(strict, right)))
    on, more = "a.k = b.k AND b.x < c.x", {"aliases": "abc", "model": th.Ring(2, hops="mailbox")}
    with pytest.raises(QueryError, match=r"CANNOT_SCALE.*nodes of such joins"):
        HOPS.plan(make_changes(on, options=options, **more))


def test_tasks_share_the_sign_of_a_tuple() -> None:
    plans = {name: PAIRS.plan(make_changes(f"{ON} AND a.x > {n}")) for n, name in enumerate("st")}
    flow = share(plans).flow()
    assert [name for name, _ in flow.sides[0].computed if name == SIGN] == [SIGN]
    assert dict(flow.sides[0].computed)[SIGN].startswith("CAST(CASE")
    assert flow.stages[0].output.columns[-1] == "w tinyint"


def test_what_ends_a_query_is_told_to_the_units_and_no_part_of_its_identity() -> None:
    rules = ChangeRules(fails_on_late=True, is_strict=True)

    def plan(**asked: Any) -> Any:
        request = make_changes(**asked)
        left, right = request.streams
        return PAIRS.plan(replace(request, streams=(replace(left, rules=rules), right)))

    flow = plan().flow()
    assert [spec.rules for spec in flow.keys] == [rules, ChangeRules()]
    assert flow.identity == PAIRS.plan(make_changes()).flow().identity
    with pytest.raises(QueryError, match=r"CHANGES_STATE.*strict=True of a"):
        plan(model=th.Split(2))
    assert not any(plan(partitions=n).model.sees_all for n in (1, 2, 8, 64))


def test_the_planner_chooses_a_model_that_forgets_deleted_tuples() -> None:
    for partitions in (1, 2, 8, 64):
        model = PAIRS.plan(make_changes(within_us=None, partitions=partitions)).model
        assert not model.sees_all
    assert any(kind(2).sees_all for kind in (REGISTRY["split"],))


NEAREST = find_nearest(th.Nearest(1, by="a.x - b.x"))


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti", NEAREST], ids=str)
@pytest.mark.parametrize("residual", ["", " AND hash(a.x, b.x) > 0"], ids=["units", "residual"])
def test_units_that_answer_each_tuple_get_the_sign_and_emit_it(how: Any, residual: str) -> None:
    request = make_changes(f"{ON} AND a.x > 3 AND b.x > 3{residual}", "ab", how=how)
    assert not list(find_changes_problems(request))
    planned = ANSWERS.plan(request)
    flow = planned.flow()
    for side in flow.sides:
        computed = dict(side.computed)
        # A tuple that fails a filter keeps its sign: its delete is an answer too.
        assert computed[SIGN].startswith("CAST(CASE")
    assert flow.stages[-1].output.columns[-1] == "w tinyint"
    assert flow.stages[-1].output.restored[-1].endswith("AS `_change_type`")
    assert planned.facts.has_deletes
    if residual:
        assert "`left_sign` tinyint" in flow.stages[0].output.columns


@pytest.mark.parametrize("changing", ["", "a", "ab"])
@pytest.mark.parametrize("within_us", [5_000_000, None])
def test_early_outer_joins_have_signs_and_need_no_window(changing: str, within_us: int | None) -> None:
    plain = make_changes(changing=changing, how="left", within_us=within_us, within=within_us)
    (how, streams), problems = answer_early(plain.how, plain.streams, is_asked=True)
    assert not problems
    early = replace(plain, how=how, streams=streams)
    assert not list(find_changes_problems(early))
    planned = ANSWERS.plan(early)
    flow = planned.flow()
    for side in flow.sides:
        assert dict(side.computed)[SIGN].startswith("CAST(CASE" if side.alias in changing else "CAST(1 AS")
        assert not side.moves_watermark
    assert flow.waits_by is None
    assert isinstance(flow.stages[0].spec, EarlySpec)
    assert flow.stages[-1].output.restored[-1].endswith("AS `_change_type`")
    assert planned.facts.has_deletes
    if within_us is not None:
        change = find_changes(ANSWERS.plan(plain).flow().identity, flow.identity)
        assert "the kind of join was left, it is left, early" in change


def test_what_cannot_be_early() -> None:
    for how in ("inner", "semi", "anti", NEAREST):
        request = make_request(ON, how=how)
        assert [one.condition for one in answer_early(request.how, request.streams, True)[1]] == ["OUTER"]
        assert answer_early(request.how, request.streams, False) == ((request.how, request.streams), [])
    request = make_request(f"{ON} AND hash(a.x, b.x) > 0", how="left", predicates=())
    (how_, streams), _ = answer_early(request.how, request.streams, True)
    with pytest.raises(QueryError, match=r"OUTER.*Spark evaluates 'hash"):
        ANSWERS.plan(replace(request, how=how_, streams=streams))
    # A predicate over rows that are only inserted may find another answer each time: it is asked once.
    request = replace(make_request(ON, how="left", predicates=(close,)), how=how_, streams=streams)
    assert not list(find_changes_problems(request))
    request = replace(request, within=th.Rows(5))
    (problem,) = find_changes_problems(request)
    assert "outer='early' takes results back" in problem.message


def test_a_semi_join_whose_partners_may_be_deleted_waits_until_a_tuple_is_decided() -> None:
    for changing, waits in (("a", False), ("b", True)):
        request = make_changes(ON, changing, how="semi")
        request = replace(
            request, how=request.how.over_changes([Side.LEFT if changing == "a" else Side.RIGHT])
        )
        assert (ANSWERS.plan(request).flow().waits_by is not None) is waits
        endless = replace(request, within=None, within_us=None)
        if waits:
            with pytest.raises(QueryError, match="UNDECIDED"):
                ANSWERS.plan(endless)
        else:
            ANSWERS.plan(endless)
