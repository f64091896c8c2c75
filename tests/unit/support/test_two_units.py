"""Joins that answer each tuple by a condition of which a part is evaluated between two units.

The truth is the nested loop with the watermark known, and a single unit that evaluates the whole condition.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.answer_cases import (
    ANSWERING,
    END,
    count_answers,
    count_columns,
    drawn_passes,
    gather_rows,
    keep_timely,
    make_last,
    models,
    read,
    run_epochs,
)
from tests.support.answers import Answer, answers, nearest
from tests.support.draws import draw_cases
from tests.support.local_run import LocalRun
from tests.support.strategies import Case, cases
from tests.support.tiny import make_all_tiny
from tests.support.two_units import TwoUnits
from thetastream.core.columns import RANKED
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    PythonPredicate,
    SideSpec,
)
from thetastream.core.how import HOWS, Nearest, Ranking, find_nearest
from thetastream.core.sides import Side
from thetastream.engine.answers import best_partners, open_tuples, unit
from thetastream.engine.answers.candidates import sort_tuples
from thetastream.engine.answers.spec import AnswersSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import Hash, IndexSpec
from thetastream.models import Matrix


def is_chosen(a: int, b: int) -> bool:
    """The part of the condition that is evaluated between the units: it reads both ids."""
    return (7 * a + 3 * b) % 5 < 3


@pytest.mark.parametrize("name", ANSWERING)
@draw_cases(25)
@given(data=st.data(), case=cases(has_measures=False), is_tiny=st.booleans())
def test_the_answers_of_the_nested_loop(name: str, data: st.DataObject, case: Case, is_tiny: bool) -> None:
    how = HOWS[name]
    if case.condition.window is None and name != "semi":
        return
    passes = drawn_passes(data, case)
    run = TwoUnits(case, how, data.draw(models(how, case.condition)), is_chosen)
    with pytest.MonkeyPatch.context() as patch:
        if is_tiny:
            make_all_tiny(patch)
            patch.setattr(unit, "FORGET_ROWS", 0)
        found = sum(run_epochs(run, run.batch, case, how, passes), Counter())

    def matches(a: oracle.Row, b: oracle.Row) -> bool:
        holds = is_chosen(a["id"], b["id"]) and oracle.holds(case.condition, a, b)
        return holds and passes[a["id"]] and passes[b["id"]]

    assert found == answers(name, matches, *keep_timely(case))
    if case.condition.window is not None:
        assert all(not pages for state in run.second.states for pages in state.matched.values())


@pytest.mark.parametrize("name", ANSWERING)
@draw_cases(15)
@given(data=st.data(), case=cases(has_measures=False))
def test_each_answer_comes_in_the_epoch_in_which_a_single_unit_gives_it(
    name: str, data: st.DataObject, case: Case
) -> None:
    how, condition = HOWS[name], case.condition
    if condition.window is None and name != "semi":
        return
    passes = dict.fromkeys(range(10_000), True)
    model = data.draw(models(how, condition))

    def call(a: Any, b: Any) -> Any:
        return np.array([is_chosen(*pair) for pair in zip(a.id.to_pylist(), b.id.to_pylist(), strict=True)])

    ids = (("id", "id"),)
    predicate = PythonPredicate("is_chosen", call, ("a", "b"), (ids, ids))
    whole = replace(condition, predicates=(predicate,))
    single = LocalRun(
        AnswersSpec(TwoStreamSpec(UnitSpec(whole, case.indexes, case.archive_period_us), model), how)
    )
    two_units = TwoUnits(case, how, model, is_chosen)
    two = run_epochs(two_units, two_units.batch, case, how, passes)
    for (left, right, watermark), found in zip([*case.epochs, ([], [], END)], two, strict=True):
        batches = [case.batch(Side.LEFT, left), case.batch(Side.RIGHT, right)]
        assert found == count_answers(case, how, single.epoch(batches, watermark))


@pytest.mark.parametrize("name", ANSWERING)
@draw_cases(8)
@given(data=st.data(), case=cases(has_measures=False))
def test_batch_inputs_are_answered_at_once(name: str, data: st.DataObject, case: Case) -> None:
    how, rows = HOWS[name], gather_rows(case)
    run = TwoUnits(case, how, data.draw(models(how, case.condition)), is_chosen)
    make_last(run.first)
    found = count_answers(case, how, run.epoch([run.batch(side, rows[side]) for side in Side]))

    def matches(a: oracle.Row, b: oracle.Row) -> bool:
        return is_chosen(a["id"], b["id"]) and oracle.holds(case.condition, a, b)

    assert found == answers(name, matches, *rows)


@draw_cases(30)
@given(
    data=st.data(),
    case=cases(has_measures=False),
    k=st.integers(1, 3),
    keeps=st.booleans(),
    is_tiny=st.booleans(),
)
def test_the_nearest_of_the_nested_loop(
    data: st.DataObject, case: Case, k: int, keeps: bool, is_tiny: bool
) -> None:
    if case.condition.window is None:
        return
    ranking = Ranking(k, Domain.INT, True, True, is_abs=True)
    how = find_nearest(Nearest(k, "abs(a.x - b.x)", keeps))
    run = TwoUnits(case, how, data.draw(models(how, case.condition)), is_chosen, ranking)
    found: Counter[Answer] = Counter()

    def value(row: oracle.Row) -> int | None:
        return None if row["id"] % 6 == 0 else row["id"] % 4

    def rank(a: oracle.Row, b: oracle.Row) -> float | None:
        x, y = value(a), value(b)
        return None if x is None or y is None else abs(x - y)

    with pytest.MonkeyPatch.context() as patch:
        if is_tiny:
            make_all_tiny(patch)
            patch.setattr(best_partners, "PRUNE_ROWS", 1)
            patch.setattr(best_partners, "PAGE", 2)
        for left, right, watermark in [*case.epochs, ([], [], END)]:
            batches = [
                run.batch(side, rows, {RANKED: pa.array([*map(value, rows)], pa.int64())})
                for side, rows in zip(Side, (left, right), strict=True)
            ]
            for columns in run.epoch(batches, watermark):
                found.update(read(how, columns, count_columns(case.condition)))

    def matches(a: oracle.Row, b: oracle.Row) -> bool:
        return is_chosen(a["id"], b["id"]) and oracle.holds(case.condition, a, b)

    assert found == nearest(k, rank, keeps, matches, *keep_timely(case))
    assert all(not state.best.pages for state in run.second.states)


WINDOW = 100


def make_equality() -> Case:
    """A case without epochs: equal keys in a window."""
    keys, time = (Key("k", Domain.INT),), Key("t", Domain.INT)
    sides = tuple(SideSpec(alias, ("id", "t", "k"), keys=keys, time=time) for alias in "ab")
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW), Bound(TIME, WINDOW))
    condition = Condition((sides[0], sides[1]), (Equality(0, 0),), (), window)
    index = IndexSpec(Hash(), (0,))
    return Case(condition, (index, index), 10, ())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ANSWERING)
def test_state_does_not_grow_with_what_is_decided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 windows pass. A page has few tuples, so that pages come and go."""
    monkeypatch.setattr(open_tuples, "PAGE", 64)
    run, rng, sizes = TwoUnits(make_equality(), HOWS[name], Matrix(1, 1), is_chosen), random.Random(3), []
    for epoch in range(200):
        batches = [
            run.batch(
                side,
                [
                    {
                        "id": 1000 * epoch + n,
                        "t": epoch * WINDOW + rng.randrange(WINDOW),
                        "k": rng.randrange(50),
                    }
                    for n in range(40)
                ],
            )
            for side in Side
        ]
        for _ in run.epoch(batches, epoch * WINDOW):
            pass
        pages = sum(map(len, run.second.states[0].matched.values()))
        sizes.append((run.first.counters[0].held, pages, len(run.second._stores[0]._blocks)))
    early, late = np.array(sizes[20:60]).max(axis=0), np.array(sizes[-40:]).max(axis=0)
    assert early.min() > 0
    assert (late <= 1.5 * early + 2).all()


def test_numbers_do_not_depend_on_the_order_in_which_tuples_arrive() -> None:
    rows = [{"id": n, "t": n % 3, "k": n % 4} for n in range(20)]
    found = []
    for seed in range(2):
        run = TwoUnits(make_equality(), HOWS["full"], Matrix(1, 1), is_chosen)
        batches = [run.batch(side, random.Random(seed + side).sample(rows, len(rows))) for side in Side]
        leaving = (
            zip(*(column.to_pylist() for column in piece), strict=True)
            for piece in run.first.epoch(batches, 5)
        )
        found.append(Counter(row for piece in leaving for row in piece))
    assert found[0] == found[1]


def test_nested_columns_decide_the_order_of_tuples_that_are_equal_otherwise() -> None:
    nan, rows = float("nan"), []
    for number in range(12):
        rows.append(
            {"t": number % 2, "x": [nan, None, 0.0][number % 3], "tags": [[number], None][number % 2]}
        )
    schema = pa.schema([("x", pa.float64()), ("tags", pa.list_(pa.int64())), ("t", pa.int64())])
    found = set()
    for seed in range(6):
        shuffled = random.Random(seed).sample(rows, len(rows))
        found.add(repr(sort_tuples(pa.RecordBatch.from_pylist(shuffled, schema), "t").to_pylist()))
    assert len(found) == 1


def test_tuples_without_flat_columns_are_sorted_too() -> None:
    batches = [pa.RecordBatch.from_pydict({"tags": [["b"], None, ["a"]][::step]}) for step in (1, -1)]
    assert sort_tuples(batches[0], None).equals(sort_tuples(batches[1], None))
    assert sort_tuples(batches[0].slice(0, 0), None).num_rows == 0
