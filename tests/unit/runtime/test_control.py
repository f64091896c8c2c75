"""Changes of the control plan: generations, refusals, and random schedules against the nested loop."""

import json
from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.controlled import (
    COLUMNS,
    CONDITION,
    COUNTED_RULES,
    KINDS,
    RULES,
    SCHEMA,
    UNIT,
    run_schedule,
)
from tests.support.controlled_run import ControlledRun
from thetastream.core.errors import QueryError
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import REGISTRY, Biclique, Chain, Matrix, Ring, Split
from thetastream.runtime.control.change import (
    ACCEPTED,
    LAST_OUTCOMES,
    ControlOffset,
    apply_requests,
    change_plan,
    drop_needless,
    end_generations,
)
from thetastream.runtime.control.notices import ENDS, JOINS, LEAVES, list_notices
from thetastream.runtime.control.plan import (
    ControlPlan,
    Rules,
    decode_model,
    decode_plan,
    encode_model,
    encode_plan,
)
from thetastream.runtime.control.request import Request

GROW = Request(sizes={"units": (2, 3)})


def change(plan: ControlPlan, request: Request) -> ControlPlan:
    return drop_needless(change_plan(plan, request, RULES), plan.version)


def test_a_biclique_reuses_its_units() -> None:
    plan = ControlPlan.begin(Biclique((1, 2)))
    grown = change(plan, GROW)
    # The only older generation is covered by the newest one, so nothing is probed twice.
    assert [one.slots for one in grown.membership] == [(0, 3, 1, 2, 4)]
    shrunk = change(grown, Request(sizes={"units": (1, 1)}))
    assert [one.slots for one in shrunk.membership] == [(0, 3, 1, 2, 4), (0, 1)]
    assert shrunk.leaving == {3: 2, 2: 2, 4: 2}
    # Units that are leaving come back first.
    back = change(shrunk, Request(sizes={"units": (2, 1)}))
    assert back.newest.slots == (0, 3, 1)
    assert back.leaving == {2: 2, 4: 2}


@pytest.mark.parametrize("routing", ["hash", "range"])
def test_a_subgroup_that_is_hot_grows_alone(routing: str) -> None:
    """Before, all units were replaced: 17 slots for one unit more."""
    plan = ControlPlan.begin(Biclique((4, 4), (4, 4), routing))
    grown = change(plan, Request(model=plan.newest.model.resized((1, 2, 1, 1, 1, 1, 1, 1))))
    assert grown.newest.model == Biclique(((1, 2, 1, 1), 4), (4, 4), routing)
    assert [one.slots for one in grown.membership] == [(0, 1, 8, 2, 3, 4, 5, 6, 7)]
    # Only the new unit hears of it. The others keep their state, and Spark their partitions.
    assert {slot: notice.event for slot, notice in list_notices(plan, grown).items()} == {8: JOINS}
    shrunk = change(grown, Request(model=grown.newest.model.resized((1,) * 8)))
    assert shrunk.newest.slots == tuple(range(8))
    assert shrunk.leaving == {8: 2}
    # Other subgroups hold other tuples.
    for other in (Biclique((5, 4), (5, 4), routing), Biclique((4, 4), 1), Matrix(2, 2)):
        replaced = change(plan, Request(model=other)).newest
        kept = {slot for unit, slot in enumerate(replaced.slots) if slot < 8}
        assert kept == (set(range(4, 8)) if other == Biclique((5, 4), (5, 4), routing) else set())


def test_a_generation_ends_when_all_its_units_have_drained() -> None:
    plan = change(ControlPlan.begin(Split(2)), Request(sizes={"cores": 3}))
    assert [one.slots for one in plan.membership] == [(0, 1), (2, 3, 4)]
    assert end_generations(plan, {(0, 1)}) is plan
    assert end_generations(plan, {(0, 1), (1, 7)}) is plan  # a mark of another version
    ended = end_generations(plan, {(0, 1), (1, 1)})
    assert [one.slots for one in ended.membership] == [(2, 3, 4)]
    assert (ended.version, ended.leaving) == (2, {})


def test_a_generation_that_another_request_replaces_at_once_never_begins() -> None:
    start = ControlOffset(ControlPlan.begin(Split(2)))
    requests = {"a": Request(model=Matrix(2, 2)).write(), "b": Request(sizes={"rows": 1}).write()}
    after = apply_requests(start, requests, (), RULES).plan
    assert [one.model for one in after.membership] == [Split(2), Matrix(1, 2)]
    assert after.leaving == {0: 1, 1: 1}
    # A change that is taken back at once changes nothing but the version.
    requests = {"a": Request(sizes={"cores": 3}).write(), "b": Request(sizes={"cores": 2}).write()}
    back = apply_requests(start, requests, (), RULES).plan
    assert [len(one.slots) for one in back.membership] == [2, 2]


def test_a_slot_that_has_just_ended_joins_one_epoch_later() -> None:
    """Routers send it tuples of the old generation until the new plan holds. Random schedules found this."""
    plan = change(ControlPlan.begin(Split(2)), Request(sizes={"cores": 1}))
    drained = {(0, 1), (1, 1)}
    requests = {"a": Request(model=Matrix(1, 2)).write()}
    after = apply_requests(ControlOffset(plan), requests, drained, RULES).plan
    assert [one.slots for one in after.membership] == [(2,), (3, 4)]
    later = apply_requests(ControlOffset(end_generations(plan, drained)), requests, (), RULES).plan
    assert [one.slots for one in later.membership] == [(2,), (0, 1)]


def test_notices_tell_units_what_changed() -> None:
    before = ControlPlan.begin(Biclique((2, 1)))
    after = change(before, Request(sizes={"units": (1, 2)}))
    notices = list_notices(before, after)
    assert {slot: (notice.event, notice.version) for slot, notice in notices.items()} == {
        3: (JOINS, 1),
        1: (LEAVES, 1),
    }
    ended = end_generations(after, {(1, 1)})
    assert {slot: notice.event for slot, notice in list_notices(after, ended).items()} == {1: ENDS}


@pytest.mark.parametrize(
    ("request_", "rules", "condition"),
    [
        (Request(sizes={"cores": 2}), RULES, "CANNOT_SCALE"),
        (Request(sizes={"units": 0}), RULES, "BAD_UNITS"),
        (Request(sizes={"units": (9, 9)}), RULES, "MAX_UNITS"),
        (Request(sizes={"units": (10**18, 1)}), RULES, "MAX_UNITS"),
        (Request(sizes={"units": (2, 2), "subgroups": 2}), Rules(16), "CANNOT_SCALE"),
        (Request(model=Biclique((2, 2), 2, "hash")), Rules(16, ("range",)), "CANNOT_SCALE"),
        (Request(model=Chain(3)), RULES, "CANNOT_SCALE"),
        (Request(model=Ring("auto")), RULES, "CANNOT_SCALE"),
        (Request(model=Ring(2, moves_tuples=True)), RULES, "CANNOT_SCALE"),
        (Request(model=Split(2)), Rules(16, (), (True, False)), "CANNOT_SCALE"),
        (Request(sizes={"units": (1, 3)}), Rules(16, (), (True, False)), "CANNOT_SCALE"),
        (Request(shed_factor=0.5), RULES, "BAD_REQUEST"),
        (Request(sizes={"units": (1, 1)}), COUNTED_RULES, "CANNOT_SCALE"),
    ],
)
def test_refusals_have_names_and_change_nothing(request_: Request, rules: Rules, condition: str) -> None:
    plan = ControlPlan.begin(Biclique((2, 3)))
    with pytest.raises(QueryError, match=rf"\[{condition}\]"):
        change_plan(plan, request_, rules)
    offset = apply_requests(ControlOffset(plan), {"r": request_.write()}, (), rules)
    assert offset.plan is plan
    assert offset.outcomes["r"].startswith(f"[{condition}]")


def test_sizes_that_do_not_fit_the_rest_of_the_model_say_how_to_change_it() -> None:
    plan = ControlPlan.begin(Matrix(2, 1, subgroups=2))
    with pytest.raises(QueryError, match=r"\[BAD_SUBGROUPS\].*name the whole new model"):
        change_plan(plan, Request(sizes={"rows": 1}), RULES)


def test_growing_keeps_the_full_history() -> None:
    """A side that expires may shrink; one that never expires may grow."""
    rules = Rules(16, (), (True, False))
    plan = change_plan(ControlPlan.begin(Biclique((2, 3))), Request(sizes={"units": (3, 1)}), rules)
    assert plan.newest.model == Biclique((3, 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"format": 1, "units": 3}',
        '{"format": 2}',
        '{"format": 1, "model": {"name": "x"}}',
        '{"format": 1, "model": {"name": "ring", "slice": {"microseconds": "x"}}}',
        '{"format": 1, "model": {"name": "ring", "slice": {"microseconds": 1e30}}}',
        '{"format": 1, "shed_factor": 1.5}',
        '{"format": 1, "shed_factor": NaN}',
        '{"format": 1, "shed_factor": true}',
        '{"format": 1, "shed_factor": 1%s}' % ("0" * 400),
    ],
    ids=lambda text: text[:60],
)
def test_texts_that_are_no_requests_are_refused(text: str) -> None:
    with pytest.raises(QueryError, match=r"\[BAD_REQUEST\]"):
        Request.read(text)


@pytest.mark.parametrize("values", [{"model": "split"}, {"model": Split}, {"shed_factor": "0.5"}], ids=str)
def test_values_that_are_no_requests_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(QueryError, match=r"\[BAD_REQUEST\]"):
        Request(**values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["auto", "hash", "1 minute"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rows", "microseconds"]), inner)
    ),
    max_leaves=4,
)
FIELDS = sorted({one.name for kind in REGISTRY.values() for one in fields(kind)})  # type: ignore[arg-type]
SIZES = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3)
MODELS = st.builds(lambda name, values: {"name": name, **values}, st.sampled_from(sorted(REGISTRY)), SIZES)


@given(
    st.fixed_dictionaries(
        {"format": st.just(1)}, optional={"sizes": SIZES, "model": MODELS, "shed_factor": JSON}
    )
)
def test_no_request_stops_a_query(values: dict[str, Any]) -> None:
    """Whatever a file asks for, it is accepted or refused, and the offset can be written to Spark's log."""
    rules = Rules(8, ("hash",), can_shed=True)
    after = apply_requests(
        ControlOffset(ControlPlan.begin(Biclique((1, 2)))), {"r": json.dumps(values)}, (), rules
    )
    assert decode_plan(json.loads(json.dumps(encode_plan(after.plan)))) == after.plan
    assert json.loads(json.dumps(after.outcomes)) == after.outcomes


def test_the_same_request_twice_is_one() -> None:
    start = ControlOffset(ControlPlan.begin(Biclique((1, 1))))
    once = apply_requests(start, {"a": GROW.write()}, (), RULES)
    assert once.plan.version == 1
    assert apply_requests(once, {"a": GROW.write()}, (), RULES) is once
    twice = apply_requests(once, {"a": GROW.write(), "b": GROW.write()}, (), RULES)
    assert twice.plan is once.plan
    assert twice.outcomes == {"a": ACCEPTED, "b": ACCEPTED}


def test_an_offset_keeps_few_outcomes_and_those_of_files_that_exist() -> None:
    offset = ControlOffset(ControlPlan.begin(Biclique((1, 1))))
    requests = {f"{n:03}": Request(shed_factor=n / 100).write() for n in range(30)}
    offset = apply_requests(offset, requests, (), RULES)
    assert len(offset.outcomes) == 30
    offset = apply_requests(offset, {"030": GROW.write()}, (), RULES)
    assert list(offset.outcomes) == [f"{n:03}" for n in range(31 - LAST_OUTCOMES, 31)]


@pytest.mark.parametrize("model", [Biclique((2, 1), (2, 1), "hash"), Split(3), Matrix(2, 3), Ring(2)])
def test_models_are_the_same_after_json(model) -> None:
    assert decode_model(encode_model(model)) == model


def test_a_change_takes_two_epochs_and_ends_by_itself() -> None:
    run = ControlledRun(TwoStreamSpec(UNIT, Split(2)), Split(2), RULES)
    rows: list[list[dict[str, int]]] = [[], []]
    found: Counter = Counter()
    shapes = []
    for epoch in range(9):
        now = 10 * epoch
        new = [[{"id": 10 * epoch + i, "t": now + i, "k": i % 2, "v": i} for i in range(6)] for _ in "lr"]
        for side in (0, 1):
            rows[side] += new[side]
        if epoch == 2:
            run.put(Request(model=Matrix(1, 2)))
        batches = [pa.RecordBatch.from_pylist(one, schema=SCHEMA) for one in new]
        for columns in run.epoch(batches, now - 1 if epoch else None):
            found.update(zip(columns[0].to_pylist(), columns[len(COLUMNS)].to_pylist(), strict=True))
        shapes.append([len(one.slots) for one in run.plan.membership])
    assert found == oracle.join(CONDITION, *rows)
    # Asked in epoch 2, active in 3. The tuples of epoch 2 have left the window two epochs later.
    assert shapes == [[2], [2], [2], [2, 2], [2, 2], [2, 2], [2], [2], [2]]
    assert run.states[0] == run.states[1] == TwoStreamSpec(UNIT, Split(2)).state_type()


def test_a_biclique_grows_with_the_full_history() -> None:
    """Tuples never expire, so older units stay, and every new tuple finds all older ones."""
    condition = replace(CONDITION, window=None)
    unit, first = replace(UNIT, condition=condition, archive_period_us=None), Biclique((1, 1))
    run = ControlledRun(TwoStreamSpec(unit, first), first, Rules(8, (), (True, True)))
    rows: list[list[dict[str, int]]] = [[], []]
    found: Counter = Counter()
    for epoch in range(8):
        if epoch in (1, 4):
            run.put(Request(sizes={"units": (epoch, 2)}))
        new = [[{"id": 10 * epoch + i, "t": epoch, "k": i % 2, "v": i} for i in range(6)] for _ in "lr"]
        for side in (0, 1):
            rows[side] += new[side]
        for columns in run.epoch([pa.RecordBatch.from_pylist(one, schema=SCHEMA) for one in new]):
            found.update(zip(columns[0].to_pylist(), columns[len(COLUMNS)].to_pylist(), strict=True))
    assert found == oracle.join(condition, *rows)
    assert [one.slots for one in run.plan.membership] == [(0, 3, 4, 5, 1, 2)]
    assert sum(counters.held > 0 for counters in run.counters) > 3


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_with_crashes_find_the_bag_of_the_nested_loop(seed: int, kind: str) -> None:
    found, expected, versions = run_schedule(seed, kind=kind)
    assert found == expected
    assert sum(expected.values()) > 20
    assert versions[-1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_schedules_with_crashes(seed: int, kind: str) -> None:
    found, expected, _ = run_schedule(seed, epochs=25, kind=kind)
    assert found == expected
