"""Families plan without Spark: a planned join is a flow of SQL texts and picklable values."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

import thetastream as th
from tests.support.requests import make_request
from thetastream.core.errors import QueryError
from thetastream.engine.answers.spec import AnswersSpec, DecidingSpec
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundingSpec
from thetastream.families.base import FinalJoin
from thetastream.families.pairs.plan import PAIRS
from thetastream.families.registry import FAMILIES, find_family
from thetastream.families.tasks import find_sharing_problem, share
from thetastream.families.views.flow import fold_plan
from thetastream.families.views.folding import Folding
from thetastream.lowering.domains import write_literal
from thetastream.models import REGISTRY
from thetastream.runtime.flow import Emitted, RunContext

ON = "a.k = b.k AND a.x < b.x"
RESIDUAL = f"{ON} AND a.id IN (b.id, 7)"


def plan(on: str = ON, **changed: Any) -> Any:
    request = make_request(on, **changed)
    family = find_family(request)
    assert family is not None
    return family.plan(request.without(family.refused))


# Which family


@pytest.mark.parametrize(
    ("changed", "spec"),
    [
        ({}, TwoStreamSpec),
        ({"how": "left"}, AnswersSpec),
        ({"model": th.Chain(2)}, HandshakeSpec),
        ({"model": th.Chain(2, fast_forward=True)}, TwoStreamSpec),
        ({"model": th.Ring(2)}, TwoStreamSpec),
        ({"model": th.Ring(2), "aliases": "abc", "on": f"{ON} AND b.k = c.k"}, MultiwaySpec),
    ],
    ids=str,
)
def test_the_first_family_that_takes_a_request_plans_it(changed: dict[str, Any], spec: type) -> None:
    planned = plan(**changed)
    assert isinstance(planned.flow().stages[0].spec, spec)
    assert planned.facts.condition == changed.get("on", ON)
    assert planned.explain()


def test_units_of_a_step_say_how_far_the_watermark_rises() -> None:
    planned = replace(PAIRS.plan(make_request(ON)), bounds_watermark=True)
    (stage,) = planned.flow().stages
    assert isinstance(stage.spec, BoundingSpec)
    assert len(stage.output.columns) == len(plan().flow().stages[0].output.columns) + 1


def test_a_request_lists_each_problem_once() -> None:
    problem, other = QueryError("ORDER", "no order"), QueryError("ORDER", "no punctuations")
    request = make_request(ON).with_problems([problem])
    request = request.with_problems([other, QueryError("ORDER", "no order")])
    assert list(map(str, request.problems)) == [str(problem), str(other)]


def test_the_join_of_streams_beside_tables_has_their_parts_of_the_condition() -> None:
    on = f"{ON} AND b.k = t.k"
    request = make_request(on, "atb", problems=(QueryError("ORDER", "no order"),))
    a, t, b = request.streams
    inputs = a, replace(t, is_streaming=False), b
    request = replace(request, streams=inputs, within_us=(1, 2))
    assert request.has_tables
    joined = request.without_tables(request.conjuncts[:2])
    assert [stream.alias for stream in joined.streams] == ["a", "b"]
    assert [carried.block_column for carried in joined.streams[1].carried] == ["c4", "c5", "c6", "c7"]
    assert joined.on == ("a.k = b.k", "a.x < b.x")
    assert joined.problems == ()
    assert not joined.has_tables
    assert not joined.has_result_time
    assert joined.query().within_us == (1, 2)
    assert request.without_tables([]).on == ("true",)


def test_no_family_joins_three_streams_at_once_without_a_ring() -> None:
    assert find_family(make_request(f"{ON} AND b.k = c.k", "abc")) is None


def test_an_option_that_a_family_does_not_honour_is_refused_if_the_user_gave_it() -> None:
    (hops,) = (family for family in FAMILIES if "index" in family.refused)
    request = make_request(ON, options={"index": "scan"})
    assert [error.condition for error in request.without(hops.refused).problems] == ["INDEX_NOT_APPLICABLE"]
    of_session = replace(request.given, of_session=frozenset({"index"}))
    request = replace(request, given=of_session).without(hops.refused)
    assert request.options == {}
    assert request.problems == ()


# What leaves the units


def test_the_output_of_pairs_is_text() -> None:
    (stage,) = plan(RESIDUAL).flow().stages
    assert stage.output.columns[:4] == ("c0 bigint", "c1 int", "c2 int", "c3 bigint")
    assert stage.output.restored[1].startswith("struct(`c4` AS `id`, `c5` AS `k`")
    assert stage.output.restored[1].endswith("timestamp_micros(`c7`) AS `ts`) AS `b`")
    assert stage.output.residual == ("a.id IN (b.id, 7)",)


def test_an_order_belongs_to_the_stage_and_its_output_has_the_arrival() -> None:
    options = {"order": 10, "punctuations": True}
    (stage,) = plan(model=th.Split(2), options=options).flow().stages
    assert stage.order is not None
    assert "arrival_left bigint" in stage.output.columns
    assert stage.output.restored[-1].endswith(" AS arrival")


def test_answers_behind_a_residual_have_two_stages() -> None:
    changed = {"how": "left", "options": {"max_units": 6}}
    flow = plan(RESIDUAL, **changed).flow()
    first, second = flow.stages
    assert "`candidate row`" in first.output.restored[0]
    assert second.output.restored[1].startswith("CASE WHEN ")
    assert isinstance(second.spec, DecidingSpec)
    assert flow.rules is not None
    assert [stage.spec.n_units for stage in flow.stages] == [4, 6]
    assert flow.waits_by == ("c3", "c7")
    # The change holds for every model that may be chosen.
    chosen = [stage.choice.fit(2).spec.n_units for stage in flow.stages if stage.choice is not None]
    assert chosen == [2, 6]


def test_moving_tuples_change_the_spec_of_the_first_stage() -> None:
    (stage,) = plan(within_us=None, options={"max_units": 6}).flow().stages
    assert stage.choice is not None
    assert isinstance(stage.spec, MovingSpec)
    assert isinstance(stage.choice.fit(2).spec, MovingSpec)


def test_tuples_of_a_chain_stay_with_their_workers_although_units_may_change() -> None:
    flow = plan(model=th.Chain(2), within_us=None, options={"max_units": 4}).flow()
    assert flow.rules is not None
    assert not flow.rules.moves_tuples


def test_units_emit_only_the_columns_that_a_store_reads_and_one_of_each_stream() -> None:
    planned = plan()
    assert isinstance(planned.facts.emitted, Emitted)
    flow = planned.flow({"c0"})
    assert [name for spec in flow.keys for name in spec.columns] == ["c0", "c4"]


# Facts


def test_facts_say_what_may_follow_and_why_not() -> None:
    assert isinstance(plan().facts.final, FinalJoin)
    left = plan(how="left").facts
    assert left.emitted == "Spark completes the rows of how='left'"
    assert left.final == "how='left' answers each tuple"
    assert plan(RESIDUAL).facts.emitted == "Spark evaluates a.id IN (b.id, 7)"
    assert not plan(model=th.Chain(2)).facts.is_prompt
    assert isinstance(plan(model=th.Chain(2)).facts.emitted, Emitted)


def test_units_that_fold_matches_write_no_results_into_a_store() -> None:
    pairs = plan()
    folded = fold_plan(pairs, Folding(), pairs.inputs)
    assert folded.facts.emitted == "Spark merges the views of the units"
    assert folded.facts.final == "its matches are folded already"


def test_the_result_time_of_a_tuple_without_partner_is_the_instant_that_decides_it() -> None:
    time = plan(how="left").facts.result_time
    assert time.startswith(
        "CASE WHEN `b` IS NULL THEN timestamp_micros(unix_micros(`a`.`ts`) + 5000000) ELSE"
    )


# Tasks


def test_names_of_tasks_are_written_whatever_is_in_them() -> None:
    name = "it's \\ `one`"
    planned = PAIRS.plan(make_request(RESIDUAL, model=th.Matrix(2, 1)))
    (stage,) = share({name: planned}).flow().stages
    assert stage.output.columns[0] == "task int"
    assert stage.output.restored[0] == f"get(array({write_literal(name)}), task) AS task"
    (residual,) = stage.output.residual
    assert residual == f"CASE WHEN task = {write_literal(name)} THEN (a.id IN (b.id, 7)\n) ELSE true END"


def test_units_of_tasks_may_leave_if_the_tuples_of_each_task_expire() -> None:
    settings = {"model": th.Matrix(2, 1), "options": {"max_units": 6}}
    near = PAIRS.plan(make_request(ON, **settings))
    endless = PAIRS.plan(make_request(ON, within_us=None, **settings))
    rules = near.find_rules()
    assert rules is not None
    assert share({"near": near}).flow().rules == replace(rules, routings=())
    both = share({"near": near, "endless": endless}).flow().rules
    assert both == replace(rules, routings=(), never_expires=(True, True))
    assert share({"near": PAIRS.plan(make_request(ON, model=th.Matrix(2, 1)))}).flow().rules is None


@pytest.mark.parametrize("name", REGISTRY)
def test_every_model_shares_its_exchange_or_says_why_it_cannot(name: str) -> None:
    problem = find_sharing_problem(REGISTRY[name](2), is_streaming=True)  # type: ignore[call-arg]
    assert (problem is None) == (name in ("biclique", "chain", "matrix", "split"))


@pytest.mark.parametrize(
    ("on", "changed"), [(ON, {"within_us": None, "options": {"max_units": 6}}), (RESIDUAL, {"how": "left"})]
)
def test_flows_are_picklable_with_the_choice_of_their_model(on: str, changed: dict[str, Any]) -> None:
    for stage in plan(on, **changed).flow().stages:
        sent = pickle.loads(pickle.dumps(stage))
        assert sent.spec == stage.spec
        assert sent.choice.fit(2).spec == stage.choice.fit(2).spec


def test_settings_are_picklable() -> None:
    run = RunContext(mailbox="box", late="late", max_units=6)
    assert pickle.loads(pickle.dumps(run)) == run
