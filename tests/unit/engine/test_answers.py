"""Outer, semi and anti joins on the local runner, against the nested loop with the watermark known."""

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
from tests.support.strategies import OF_VECTORS, VECTORS, Case, cases, index_specs
from tests.support.tiny import make_all_tiny
from thetastream.core.columns import RANKED
from thetastream.core.condition import (
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    RankedPair,
    SideSpec,
)
from thetastream.core.how import HOWS, How, MeasuredRanking, Nearest, Ranking, find_nearest
from thetastream.core.measure import PairMeasure
from thetastream.core.records import decode, encode
from thetastream.core.sides import Side
from thetastream.engine import lookup
from thetastream.engine.answers import best_partners, open_tuples, unit
from thetastream.engine.answers import nearest as answers_nearest
from thetastream.engine.answers.open_tuples import OpenState, OpenTuples
from thetastream.engine.answers.spec import AnswersSpec, NearestSpec
from thetastream.engine.lookup import Lookup, TableRuns
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import build
from thetastream.engine.store.segment import MemoryStore
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import Hash, HashSorted, HashTiles, IndexSpec, tiles
from thetastream.index.measures import REGISTRY as MEASURES
from thetastream.index.measures import vectors as measures
from thetastream.models import Matrix
from thetastream.models.base import Model


def make_spec(case: Case, how: How, model: Model) -> AnswersSpec:
    unit = UnitSpec(case.condition, case.indexes, case.archive_period_us)
    return AnswersSpec(TwoStreamSpec(unit, model), how)


def make_run(case: Case, how: How, model: Model) -> LocalRun:
    return LocalRun(make_spec(case, how, model))


@pytest.mark.parametrize("name", ANSWERING)
@draw_cases(25)
@given(data=st.data(), case=cases(), is_tiny=st.booleans())
def test_the_answers_of_the_nested_loop(name: str, data: st.DataObject, case: Case, is_tiny: bool) -> None:
    how = HOWS[name]
    if case.condition.window is None and name != "semi":
        return
    passes = drawn_passes(data, case)
    model = data.draw(models(how, case.condition))
    with pytest.MonkeyPatch.context() as patch:
        if is_tiny:
            make_all_tiny(patch)
            patch.setattr(unit, "FORGET_ROWS", 0)
        found = sum(run_epochs(make_run(case, how, model), case.batch, case, how, passes), Counter())

    def matches(a: oracle.Row, b: oracle.Row) -> bool:
        return passes[a["id"]] and passes[b["id"]] and oracle.holds(case.condition, a, b)

    assert found == answers(name, matches, *keep_timely(case))


def make_window(side: Side, low: int, length: int, is_strict: tuple[bool, bool]) -> Dimension:
    bounds = [
        Bound(TIME, delta, strict) for delta, strict in zip((low, low + length), is_strict, strict=True)
    ]
    return Dimension(side, TIME, bounds[0], bounds[1])


any_window = st.builds(
    make_window,
    st.sampled_from(Side),
    st.integers(-12, 12),
    st.integers(-6, 12),
    st.tuples(st.booleans(), st.booleans()),
)
"""Windows of which both bounds may be earlier or later than the tuple, equal, strict, or contradictory."""


@draw_cases(15)
@given(data=st.data(), case=cases(), window=any_window, name=st.sampled_from([*ANSWERING]))
def test_windows_in_which_all_partners_are_earlier_or_later(
    data: st.DataObject, case: Case, window: Dimension, name: str
) -> None:
    how, condition = HOWS[name], replace(case.condition, window=window)
    specs, period = index_specs(condition), data.draw(st.integers(1, 8))
    case = Case(condition, (data.draw(specs), data.draw(specs)), period, case.epochs)
    passes = drawn_passes(data, case)
    run = make_run(case, how, data.draw(models(how, condition)))
    run.ends_at_us = data.draw(st.sampled_from([None, END]))
    found = sum(run_epochs(run, case.batch, case, how, passes), Counter())

    def matches(a: oracle.Row, b: oracle.Row) -> bool:
        return passes[a["id"]] and passes[b["id"]] and oracle.holds(condition, a, b)

    assert found == answers(name, matches, *keep_timely(case))


@draw_cases(25)
@given(data=st.data(), case=cases(), name=st.sampled_from(["left", "right", "full", "anti"]))
def test_each_tuple_is_decided_in_the_first_epoch_whose_watermark_allows_it(
    data: st.DataObject, case: Case, name: str
) -> None:
    window = case.condition.window
    if window is None:
        return
    assert window.low is not None
    assert window.high is not None
    how = HOWS[name]
    waits = -int(window.low.delta), int(window.high.delta)
    all_pass = dict.fromkeys(range(10_000), True)
    epochs = [*case.epochs, ([], [], END)]
    arrived = {
        row["id"]: (number, row["t"] + waits[side])
        for number, (left, right, _) in enumerate(epochs)
        for side, rows in zip(Side, (left, right), strict=True)
        for row in rows
    }
    run = make_run(case, how, data.draw(models(how, case.condition)))
    for number, found in enumerate(run_epochs(run, case.batch, case, how, all_pass)):
        for left, right in found:
            if left is not None and right is not None:
                continue
            first, due = arrived[right if left is None else left]
            decided = next(
                n
                for n in range(first, len(epochs))
                if (epochs[n][2] or -1) >= due and epochs[n][2] is not None
            )
            assert number == decided


@pytest.mark.parametrize("name", ANSWERING)
@draw_cases(8)
@given(data=st.data(), case=cases())
def test_batch_inputs_are_answered_at_once(name: str, data: st.DataObject, case: Case) -> None:
    how, rows = HOWS[name], gather_rows(case)
    spec = make_spec(case, how, data.draw(models(how, case.condition)))
    run = LocalRun(spec)
    make_last(run)
    found = count_answers(case, how, run.epoch([case.batch(side, rows[side]) for side in Side]))
    assert found == answers(name, lambda a, b: oracle.holds(case.condition, a, b), *rows)


# Nearest

VALUES = st.one_of(st.none(), st.sampled_from([float("nan"), -0.0, 0.0, 1.0, 2.5, -3.0, float("inf")]))


@draw_cases(25)
@given(
    data=st.data(),
    case=cases(),
    k=st.integers(1, 3),
    keeps=st.booleans(),
    form=st.sampled_from(["left", "right", "difference", "flipped", "distance"]),
    is_tiny=st.booleans(),
)
def test_the_nearest_of_the_nested_loop(
    data: st.DataObject, case: Case, k: int, keeps: bool, form: str, is_tiny: bool
) -> None:
    if case.condition.window is None:
        return
    if data.draw(st.booleans()):
        condition = replace(case.condition, window=data.draw(any_window))
        case = replace(case, condition=condition, indexes=(data.draw(index_specs(condition)),) * 2)
    has = form != "right", form != "left"
    is_descending, searched = data.draw(st.booleans()), data.draw(st.sampled_from([0, 1, 1 << 20]))
    ranking = Ranking(
        k,
        Domain.FLOAT,
        *has,
        is_flipped=form == "flipped",
        is_abs=form == "distance",
        is_descending=is_descending,
        has_nan_last=True,
    )
    how = find_nearest(Nearest(k, "abs(a.x - b.x)", keeps))
    rows = [row for left, right, _ in case.epochs for row in (*left, *right)]
    values = {row["id"]: data.draw(VALUES) for row in rows}

    def rank(a: oracle.Row, b: oracle.Row) -> float | None:
        x, y = values[a["id"]], values[b["id"]]
        if not all(has):
            return x if has[0] else y
        if x is None or y is None:
            return None
        return {"difference": x - y, "flipped": y - x, "distance": abs(x - y)}[form]

    def order(a: oracle.Row, b: oracle.Row) -> float | None:
        value = rank(a, b)
        return -value if is_descending and value is not None else value

    unit = UnitSpec(case.condition, case.indexes, case.archive_period_us)
    spec = NearestSpec(TwoStreamSpec(unit, data.draw(models(how, case.condition))), how, ranking)
    run = LocalRun(spec)
    run.ends_at_us = data.draw(st.sampled_from([None, END]))
    found: Counter[Answer] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers_nearest, "SEARCHED", searched)
        if is_tiny:
            make_all_tiny(patch)
            patch.setattr(best_partners, "PRUNE_ROWS", 1)
            patch.setattr(best_partners, "BYTES_AT_ONCE", 99)
            patch.setattr(best_partners, "PAGE", 2)
        for left, right, watermark in [*case.epochs, ([], [], END)]:
            blocks = []
            for side, some in zip(Side, (left, right), strict=True):
                ranked = pa.array([values[row["id"]] for row in some], pa.float64())
                batch = case.batch(side, some)
                blocks.append(batch.append_column(RANKED, ranked) if has[side] else batch)
            for columns in run.epoch(blocks, watermark):
                found.update(read(how, columns, count_columns(case.condition)))
    expected = nearest(k, order, keeps, lambda a, b: oracle.holds(case.condition, a, b), *keep_timely(case))
    assert found == expected
    assert all(not state.best.pages for state in run.states)


N_AS_OF = 4000


@pytest.mark.parametrize(("is_abs", "window"), [(False, (-N_AS_OF, 0)), (True, (-50, 50))])
def test_a_search_looks_at_few_partners(is_abs: bool, window: tuple[int, int]) -> None:
    """Tuples have as many partners as there are tuples of their key in the window, and search the nearest."""
    time = Key("t", Domain.INT)
    sides = tuple(SideSpec(alias, ("id", "t"), (), (Key("k", Domain.INT),), time=time) for alias in "ab")
    bounds = Dimension(Side.RIGHT, TIME, *(Bound(TIME, delta, False) for delta in window))
    condition = Condition((sides[0], sides[1]), (Equality(0, 0),), window=bounds)
    index = IndexSpec(HashSorted(), (0,), (-1,))
    how, ranking = find_nearest(Nearest(1, "unread")), Ranking(1, Domain.INT, True, True, is_abs=is_abs)
    join = TwoStreamSpec(UnitSpec(condition, (index, index), N_AS_OF), Matrix(1, 1, (1, 1)))
    run, random = LocalRun(NearestSpec(join, how, ranking)), np.random.default_rng(3)
    found = n_candidates = 0
    for times in [*np.split(np.arange(N_AS_OF), 4), np.arange(0)]:
        block = pa.RecordBatch.from_pydict({"id": times, "t": times, "k": times % 2, RANKED: times})
        shuffled = [block.take(random.permutation(len(times))) for _ in Side]
        for left, _, right, _ in run.epoch(shuffled, int(times[0]) if len(times) else END):
            assert left.equals(right)
            found += len(left)
        n_candidates += sum(counters.candidates for counters in run.counters)
    assert found == N_AS_OF
    assert n_candidates < 8 * N_AS_OF


def has_null_key(condition: Condition, side: Side, row: oracle.Row) -> bool:
    return any(row[key.column] is None for key in condition.sides[side].keys)


@draw_cases(40)
@given(
    data=st.data(),
    case=cases(has_measures=False),
    k=st.integers(1, 3),
    keeps=st.booleans(),
    measure=st.sampled_from(OF_VECTORS),
    is_descending=st.booleans(),
)
def test_the_nearest_by_a_measure(
    data: st.DataObject, case: Case, k: int, keeps: bool, measure: PairMeasure, is_descending: bool
) -> None:
    """In units and in a table, by tiles and by other indexes."""
    pair = RankedPair(k, ("v", "v"), measure, is_descending)
    left, right = (replace(side, columns=(*side.columns, "v")) for side in case.condition.sides)
    condition = replace(case.condition, sides=(left, right), ranked=pair)
    epochs = [
        (*([{**row, "v": data.draw(VECTORS)} for row in rows] for rows in epoch[:2]), epoch[2])
        for epoch in case.epochs
    ]
    specs, how = index_specs(condition), find_nearest(Nearest(k, "unread", keeps))
    case = Case(condition, (data.draw(specs), data.draw(specs)), case.archive_period_us, tuple(epochs))

    def rank(a: oracle.Row, b: oracle.Row) -> float | None:
        value = oracle.measure(measure.name, a["v"], b["v"])
        return -value if is_descending and value is not None else value

    def holds(a: oracle.Row, b: oracle.Row) -> bool:
        return oracle.holds(condition, a, b)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "SMALL", data.draw(st.sampled_from([0, 5])))
        patch.setattr(best_partners, "PRUNE_BYTES", 99)
        patch.setattr(lookup, "BYTES_AT_ONCE", 99)
        patch.setattr(measures, "TILE_ROWS", 2)
        patch.setattr(measures, "TILE_SEEKERS", 2)
        if condition.window is not None:
            unit = UnitSpec(condition, case.indexes, case.archive_period_us)
            join = TwoStreamSpec(unit, data.draw(models(how, condition)))
            run, found = LocalRun(NearestSpec(join, how, MeasuredRanking(pair))), Counter[Answer]()
            for *rows, watermark in [*case.epochs, ([], [], END)]:
                blocks = [case.batch(side, some) for side, some in zip(Side, rows, strict=True)]
                for columns in run.epoch(blocks, watermark):
                    found.update(read(how, columns, count_columns(condition)))
            assert found == nearest(k, rank, keeps, holds, *keep_timely(case))
        condition = replace(condition, window=None)
        plan = IndexPlan(condition, Side.RIGHT, data.draw(index_specs(condition)))
        # Spark drops tuples whose keys are NULL.
        rows = [
            [row for epoch in case.epochs for row in epoch[side] if not has_null_key(condition, side, row)]
            for side in Side
        ]
        block = case.batch(Side.RIGHT, rows[1])
        cut = data.draw(st.integers(0, block.num_rows))
        runs = [build(plan, part) for part in (block.slice(0, cut), block.slice(cut)) if part.num_rows]
        table = TableRuns(runs, block.schema)
        found = Counter()
        for columns in Lookup(plan, how, MeasuredRanking(pair)).answer(case.batch(Side.LEFT, rows[0]), table):
            found.update(read(how, columns, count_columns(condition)))
        assert found == nearest(k, rank, keeps, holds, rows[0], rows[1])


def test_the_nearest_by_a_measure_among_equal_texts() -> None:
    """Equal keys of texts may have unequal values, which are no partners."""
    random = np.random.default_rng(5)
    pair = RankedPair(2, ("v", "v"), MEASURES["vector_inner_product"], True)
    sides = tuple(SideSpec(alias, ("id", "s", "v"), (), (Key("k", Domain.INT),)) for alias in "ab")
    condition = Condition((sides[0], sides[1]), (Equality(0, 0),), same=(("s", "s"),), ranked=pair)

    def draw_rows(n: int) -> list[dict[str, Any]]:
        return [
            {
                "id": number,
                "k": int(random.integers(2)),
                "s": (None, "a", "b")[random.integers(3)],
                "v": random.integers(-3, 4, size=4).astype(np.float32).tolist(),
            }
            for number in range(n)
        ]

    left, right = draw_rows(60), draw_rows(80)
    types = {"id": pa.int64(), "k": pa.int64(), "s": pa.string(), "v": pa.list_(pa.float32())}
    blocks = [pa.RecordBatch.from_pylist(rows, pa.schema([*types.items()])) for rows in (left, right)]
    plan = IndexPlan(condition, Side.RIGHT, IndexSpec(HashTiles(), (0,)))
    table = TableRuns([build(plan, blocks[1])], blocks[1].schema)
    found: Counter[Answer] = Counter()
    how = find_nearest(Nearest(2, "unread"))
    for columns in Lookup(plan, how, MeasuredRanking(pair)).answer(blocks[0], table):
        found.update(read(how, columns, (3, 3)))
    expected = nearest(
        2,
        lambda a, b: -float(np.dot(a["v"], b["v"])),
        False,
        lambda a, b: a["k"] == b["k"] and a["s"] == b["s"],
        left,
        right,
    )
    assert found == expected


# State

WINDOW = 100


def make_equality(model: Model, window: tuple[int, int] = (-WINDOW, WINDOW)) -> TwoStreamSpec:
    """Join equal keys; the time of the left tuple minus that of the right one is in the window."""
    time = Key("t", Domain.INT)
    sides = tuple(SideSpec(alias, ("id", "t"), keys=(Key("k", Domain.INT),), time=time) for alias in "ab")
    bounds = Dimension(Side.LEFT, TIME, *(Bound(TIME, delta) for delta in window))
    condition = Condition((sides[0], sides[1]), (Equality(0, 0),), (), bounds)
    index = IndexSpec(Hash(), (0,))
    return TwoStreamSpec(UnitSpec(condition, (index, index), 10), model)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ANSWERING)
def test_state_does_not_grow_with_what_is_decided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 windows pass. A page has few tuples, so that pages come and go."""
    monkeypatch.setattr(open_tuples, "PAGE", 64)
    how = HOWS[name]
    run = LocalRun(AnswersSpec(make_equality(Matrix(1, 1)), how))
    rng = np.random.default_rng(3)
    sizes = []
    for epoch in range(200):
        batches = [
            pa.RecordBatch.from_pydict(
                {
                    "id": np.arange(40) + 1000 * epoch,
                    "t": epoch * WINDOW + rng.integers(0, WINDOW, 40),
                    "k": rng.integers(0, 150, 40),
                }
            )
            for _ in Side
        ]
        for _ in run.epoch(batches, epoch * WINDOW):
            pass
        counters = run.counters[0]
        state = run.states[0]
        pages = sum(len(found.pages) for found in state.open.values())
        sizes.append((counters.held, pages, counters.undecided, len(run._stores[0]._blocks)))
    early, late = np.array(sizes[20:60]).max(axis=0), np.array(sizes[-40:]).max(axis=0)
    assert (late <= 1.5 * early + 2).all()


class RunOfTimes:
    """A run of left tuples without partners, which are known by their times, until the input ends."""

    def __init__(self, name: str, window: tuple[int, int]) -> None:
        join, how = make_equality(Matrix(1, 1), window), HOWS.get(name)
        spec: AnswersSpec
        if how is None:
            nearest_or_alone = find_nearest(Nearest(1, "unread", keep_unmatched=True))
            spec = NearestSpec(join, nearest_or_alone, Ranking(1, Domain.INT, True, True))
        else:
            spec = AnswersSpec(join, how)
        self._run = LocalRun(spec)
        self._run.ends_at_us = END

    def epoch(self, times: list[int], watermark: int) -> list[int]:
        """Run an epoch; return the times of the tuples that it answers."""
        columns = {"id": times, "t": times, "k": [1] * len(times), RANKED: times}
        left = pa.RecordBatch.from_pydict(columns) if times else None
        pieces = self._run.epoch([left, None], watermark)
        return sorted(time for columns in pieces for time in columns[0].to_pylist())


ALONE = pytest.mark.parametrize("name", ["left", "anti", "nearest"])


@ALONE
def test_a_tuple_that_is_decided_when_it_arrives_is_answered_once(name: str) -> None:
    """All partners are earlier by 3 to 8, so the watermark 10 decides 13 before it comes."""
    run = RunOfTimes(name, (3, 8))
    assert run.epoch([], 10) == []
    assert run.epoch([10, 11, 13, 14, 20], 10) == [11, 13]
    assert run.epoch([12, 13], 10) == [12, 13]
    assert run.epoch([], 11) == [14]
    assert run.epoch([], END) == [20]
    assert run.epoch([], END) == []


@ALONE
def test_a_tuple_that_only_the_end_of_the_input_decides_is_answered_once(name: str) -> None:
    """Spark may run another epoch behind the end, whose watermark does not reach END - 1 + 8 either."""
    run = RunOfTimes(name, (-8, 8))
    assert run.epoch([END - 1], 10) == []
    assert run.epoch([], END) == [END - 1]
    assert run.epoch([], END) == []


def test_semi_forgets_matched_tuples_of_a_full_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit, "FORGET_ROWS", 10)
    sides = tuple(SideSpec(alias, ("k",), keys=(Key("k", Domain.INT),)) for alias in "ab")
    index = IndexSpec(Hash(), (0,))
    condition = Condition((sides[0], sides[1]), (Equality(0, 0),))
    spec = AnswersSpec(TwoStreamSpec(UnitSpec(condition, (index, index), None), Matrix(1, 1)), HOWS["semi"])
    run = LocalRun(spec)
    n = 100
    for epoch in range(5):
        values = np.arange(n) + epoch * n
        left = pa.RecordBatch.from_pydict({"k": values})
        assert list(run.epoch([left, None])) == []
        found = [value for columns in run.epoch([None, left]) for value in columns[0].to_pylist()]
        assert sorted(found) == values.tolist()
        left_held = sum(meta.n_rows for meta in run.states[0].join.segments if meta.stream == Side.LEFT)
        assert left_held == 0


def test_a_closed_number_stays_closed_when_its_page_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_tuples, "PAGE", 8)
    store, state = MemoryStore(), OpenState()
    for epoch in range(6):
        waiting = OpenTuples(decode(OpenState, encode(state)), store)
        numbers = waiting.add(10)
        assert numbers.tolist() == list(range(epoch * 10, epoch * 10 + 10))
        assert waiting.are_open(numbers).all()
        waiting.close(numbers[numbers % 20 != 13])
        waiting.write()
        state = waiting.state
    waiting = OpenTuples(state, store)
    every = np.arange(60)
    assert np.flatnonzero(waiting.are_open(every)).tolist() == [13, 33, 53]
    assert len(state.pages) == len(store._blocks) == 3


def test_a_closed_number_stays_closed_behind_the_last_page_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tuple 1 is open; 9 has the same bit in the next page, which is dropped."""
    monkeypatch.setattr(open_tuples, "PAGE", 8)
    store = MemoryStore()
    waiting = OpenTuples(OpenState(), store)
    numbers = waiting.add(16)
    waiting.close(numbers[numbers != 1])
    waiting.write()
    waiting = OpenTuples(waiting.state, store)
    assert waiting.close(np.array([9])).tolist() == [False]
    assert waiting.are_open(np.array([1, 9, 100])).tolist() == [True, False, False]
