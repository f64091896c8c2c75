"""Outer, semi and anti joins with deletes: after each epoch, the summed output is the answer of the net rows.

{ (l, r) : l.k = r.k, |l.v - r.v| <= 2, |l.t - r.t| <= 8, neither is late }, over the net rows of both.
With a residual, as Spark evaluates it between two units, a pair must satisfy (7 l.id + 3 r.id) % 5 < 3 too.
A row has a partner if the numbers of its partners add up to more than 0. Rows without partners, and those of
semi joins whose partners may be deleted, are answers when the watermark is at or after t + 8. So are the
partners of l with the k least |l.v - r.v|, among those that are there, and ties with the last of them.

Early outer joins answer rows without partners after each epoch, also without a window. All their tuples have
a sign.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from tests.support.changes import Change, Epoch, Row, draw_history, drop_zeros, net
from tests.support.local_run import LocalRun
from tests.support.strategies import Case
from tests.support.two_units import TwoUnits
from tests.unit.engine.test_changes import (
    COLUMNS,
    CONDITION,
    EARLIER,
    INDEXES,
    WINDOW,
    A,
    B,
    delete,
    insert,
    make_row,
    matches_in,
)
from tests.unit.support.test_two_units import is_chosen
from thetastream.core.columns import PASSES, RANKED, SIGN
from thetastream.core.condition import Dimension, Domain
from thetastream.core.how import HOWS, How, Nearest, Ranking, find_nearest
from thetastream.core.sides import Side
from thetastream.engine.answers import open_tuples, unit
from thetastream.engine.answers.nearest import NearestState
from thetastream.engine.answers.spec import AnswersSpec, EarlySpec, NearestSpec
from thetastream.engine.store import chained_index
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Matrix, Split
from thetastream.models.base import Model

Answer = tuple[Row | None, Row | None]
HOW = ("left", "right", "full", "semi", "anti")
MODELS: tuple[Model, ...] = (
    Matrix(1, 1),
    Matrix(3, 1),
    Matrix(1, 3),
    Matrix(3, 1, 3, "hash"),
    Matrix(3, 3, 3, "hash"),
    Split(1),
)
BOTH, LEFT, RIGHT = (True, True), (True, False), (False, True)


@pytest.fixture(autouse=True)
def often_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge two segments already, and keep few numbers in a page."""
    monkeypatch.setattr(chained_index, "FAN_IN", 2)
    monkeypatch.setattr(open_tuples, "PAGE", 8)
    monkeypatch.setattr(unit, "FORGET_ROWS", 0)


class Run:
    """A run whose answers are summed by row."""

    def __init__(
        self,
        how: How,
        model: Model,
        signed: tuple[bool, bool] = BOTH,
        has_residual: bool = False,
        window: int | None = WINDOW,
        bounds: Dimension | None = CONDITION.window,
    ) -> None:
        left, right = (
            replace(
                spec,
                computed=(
                    *([SIGN] if has_deletes or how.is_early else []),
                    *([PASSES] if side in how.preserved else []),
                    *([] if how.nearest is None else [RANKED]),
                ),
            )
            for side, spec, has_deletes in zip(Side, CONDITION.sides, signed, strict=True)
        )
        bounds = None if window is None else bounds
        condition = replace(CONDITION, sides=(left, right), window=bounds)
        case = Case(condition, INDEXES, None if window is None else 2, ())
        spec = UnitSpec(case.condition, case.indexes, case.archive_period_us)
        how = how.over_changes([side for side in Side if signed[side]])
        self._run: LocalRun | TwoUnits
        join, ranking = TwoStreamSpec(spec, model), None
        if how.nearest is not None:
            ranking = Ranking(how.nearest.k, Domain.INT, has_left=True, has_right=True, is_abs=True)
        if has_residual:
            self._run = TwoUnits(case, how, model, is_chosen, ranking)
            self._first, self._batch = self._run.first, self._run.batch
        else:
            kind = EarlySpec if how.is_early else AnswersSpec
            answers = kind(join, how) if ranking is None else NearestSpec(join, how, ranking)
            self._run = self._first = LocalRun(answers)
            self._batch = case.batch
        self._how, self._signed = how, signed
        self.output: Counter[Answer] = Counter()
        """The sum of the signs of all answers."""

    def end_at(self, watermark: int) -> None:
        """Tell the units that no tuple comes behind a watermark."""
        self._first.ends_at_us = watermark

    def epoch(self, left: list[Change], right: list[Change], watermark: int | None = None) -> Counter[Answer]:
        """Run an epoch; return the sum of the signs of its answers, without zeros."""
        batches = [self._make(side, changes) for side, changes in zip(Side, (left, right), strict=True)]
        found: Counter[Answer] = Counter()
        n = len(COLUMNS)
        for columns in self._run.epoch(batches, watermark):
            assert len(columns) == n * len(self._how.shown) + len(self._how.padded) + 1
            for *values, sign in zip(*(column.to_pylist() for column in columns), strict=True):
                rows: list[Row | None] = [None, None]
                for place, side in enumerate(self._how.shown):
                    row = tuple(values[n * place : n * place + n])
                    rows[side] = row
                flags = values[n * len(self._how.shown) :]
                for side, is_there in zip(self._how.padded, flags, strict=True):
                    if not is_there:
                        assert rows[side] == (None,) * n
                        rows[side] = None
                found[rows[0], rows[1]] += sign
        self.output.update(found)
        self.output = drop_zeros(self.output)
        return drop_zeros(found)

    def count(self, name: str) -> int:
        return sum(getattr(counters, name) for counters in self._first.counters)

    def count_pages(self) -> int:
        """Count the pages with numbers of undecided tuples."""
        states = [state.answers if isinstance(state, NearestState) else state for state in self._first.states]
        n_pages = sum(len(found.pages) for state in states for found in state.open.values())
        best = [state.best for state in self._first.states if isinstance(state, NearestState)]
        if isinstance(self._run, TwoUnits):
            n_pages += sum(len(p) for state in self._run.second.states for p in state.matched.values())
            best += [state.best for state in self._run.second.states]
        return n_pages + sum(len(found.pages) for found in best)

    def _make(self, side: Side, changes: list[Change]) -> pa.RecordBatch | None:
        if side not in self._how.preserved:  # Catalyst filters these
            changes = [change for change in changes if passes(change.row)]
        if not changes:
            return None
        more = {}
        if self._signed[side] or self._how.is_early:
            signs = [change.sign if self._signed[side] else 1 for change in changes]
            more[SIGN] = pa.array(signs, pa.int8())
        if side in self._how.preserved:
            more[PASSES] = pa.array([1 if passes(change.row) else None for change in changes], pa.int8())
        if self._how.nearest is not None:
            more[RANKED] = pa.array([change.row[3] for change in changes], pa.int64())
        return self._batch(side, [dict(zip(COLUMNS, row, strict=True)) for row, _ in changes], more)


def passes(row: Row) -> bool:
    """Whether a row can have partners: it has a key, and passes the filter v <> 4 of its stream."""
    return row[2] is not None and row[3] != 4


def replay(
    history: list[Epoch],
    how: How,
    signed: tuple[bool, bool] = BOTH,
    has_residual: bool = False,
    window: int | None = WINDOW,
) -> Iterator[tuple[Epoch, Counter[Answer]]]:
    """Yield each epoch with the answer after it."""
    arrived: tuple[list[Change], list[Change]] = ([], [])
    late: int | None = None
    for epoch in history:
        for side in Side:
            for change in (epoch.left, epoch.right)[side]:
                if window is None or late is None or change.row[1] > late:
                    arrived[side].append(change if signed[side] else Change(change.row, 1))
        both = net(arrived[0]), net(arrived[1])
        yield epoch, answer(how, both, epoch.watermark, signed, has_residual, window)
        late = epoch.watermark


def answer(
    how: How,
    rows: tuple[Counter[Row], Counter[Row]],
    watermark: int | None,
    signed: tuple[bool, bool],
    has_residual: bool,
    window: int | None,
) -> Counter[Answer]:
    """Answer two net bags."""
    in_window, found = matches_in(window), Counter[Answer]()

    def matches(left: Row, right: Row) -> bool:
        holds = in_window(left, right) and passes(left) and passes(right)
        return holds and (not has_residual or is_chosen(left[0], right[0]))

    def find_partners(side: Side, row: Row) -> dict[Row, int]:
        return {
            other: n
            for other, n in rows[side.other].items()
            if (matches(row, other) if side is Side.LEFT else matches(other, row))
        }

    if how.nearest is not None:
        return answer_nearest(how.nearest, rows[0], partial(find_partners, Side.LEFT), watermark)
    if how.has_pairs:
        for row, n in rows[0].items():
            for other, m in find_partners(Side.LEFT, row).items():
                found[row, other] += n * m
    for side in how.preserved:
        for row, n in rows[side].items():
            is_decided = how.is_early or (watermark is not None and watermark >= row[1] + WINDOW)
            has_partner = sum(find_partners(side, row).values()) > 0
            answered: Answer = (row, None) if side is Side.LEFT else (None, row)
            if how.has_unmatched:
                if not has_partner and (is_decided or not passes(row)):
                    found[answered] += n
            elif has_partner and (is_decided or not signed[side.other]):
                found[answered] += n
    return drop_zeros(found)


def answer_nearest(
    nearest: Nearest,
    left: Counter[Row],
    find_partners: Callable[[Row], dict[Row, int]],
    watermark: int | None,
) -> Counter[Answer]:
    """Answer each decided row of the left stream, and those that can have no partner."""
    found = Counter[Answer]()
    for row, n in left.items():
        is_decided = watermark is not None and watermark >= row[1] + WINDOW
        partners = {other: m for other, m in find_partners(row).items() if m > 0}
        if is_decided and partners:
            values = sorted(abs(row[3] - other[3]) for other, m in partners.items() for _ in range(m))
            last = values[min(nearest.k, len(values)) - 1]
            found.update({(row, b): n * m for b, m in partners.items() if abs(row[3] - b[3]) <= last})
        elif nearest.keep_unmatched and (not passes(row) or (is_decided and not partners)):
            found[row, None] += n
    return drop_zeros(found)


def list_models(how: How) -> list[Model]:
    return [model for model in MODELS if all(map(model.sees_partners, how.preserved))]


NEAREST = {
    "nearest": find_nearest(Nearest(1, by="abs(l.v - r.v)", keep_unmatched=True)),
    "two nearest": find_nearest(Nearest(2, by="abs(l.v - r.v)")),
}


EARLY = {f"early {name}": replace(HOWS[name], is_early=True) for name in ("left", "right", "full")}


def find_how(name: str) -> How:
    return {**HOWS, **NEAREST, **EARLY}[name]


CASES = [(name, model) for name in (*HOW, *NEAREST) for model in list_models(find_how(name))]
FEW = [(name, model) for name in HOW for model in list_models(HOWS[name])[-2:]]
FEW += [("nearest", Matrix(3, 1)), ("two nearest", Split(1))]


def check(
    name: str,
    model: Model,
    seed: int,
    n_epochs: int,
    signed: tuple[bool, bool] = BOTH,
    has_residual: bool = False,
    window: int | None = WINDOW,
) -> None:
    has_watermark, how = window is not None, find_how(name)
    history = draw_history(random.Random(seed), n_epochs, make_row, has_watermark=has_watermark)
    run = Run(how, model, signed, has_residual, window)
    for epoch, expected in replay(history, how, signed, has_residual, window):
        run.epoch(*epoch)
        assert run.output == expected, seed
    if window is not None:
        run.epoch([], [], ALL_DECIDED)
        assert run.count_pages() == 0


ALL_DECIDED = 10_000
WHERE = pytest.mark.parametrize("has_residual", [False, True], ids=["units", "residual"])


@WHERE
@pytest.mark.parametrize(("name", "model"), FEW, ids=repr)
def test_the_answers_of_the_net_rows(name: str, model: Model, has_residual: bool) -> None:
    check(name, model, 1, 25, has_residual=has_residual)


@WHERE
@pytest.mark.parametrize("name", [*HOW, "nearest"])
@pytest.mark.parametrize("signed", [LEFT, RIGHT], ids=["left", "right"])
def test_only_one_stream_has_deletes(name: str, signed: tuple[bool, bool], has_residual: bool) -> None:
    check(name, Matrix(1, 1), 2, 25, signed, has_residual)


@pytest.mark.slow
@WHERE
@pytest.mark.parametrize("signed", [BOTH, LEFT, RIGHT], ids=["both", "left", "right"])
@pytest.mark.parametrize(("name", "model"), CASES, ids=repr)
def test_many_histories(name: str, model: Model, signed: tuple[bool, bool], has_residual: bool) -> None:
    for seed in range(100, 103):
        check(name, model, seed, 30, signed, has_residual)


@pytest.mark.parametrize(
    ("name", "model", "signed", "window"),
    [
        ("early full", Matrix(3, 3, 3, "hash"), BOTH, WINDOW),
        ("early left", Matrix(3, 1), BOTH, None),
        ("early right", Split(1), (False, False), WINDOW),
    ],
    ids=repr,
)
def test_early_answers_are_those_of_the_rows_so_far(
    name: str, model: Model, signed: tuple[bool, bool], window: int | None
) -> None:
    check(name, model, 3, 20, signed, window=window)


@pytest.mark.slow
@pytest.mark.parametrize("window", [WINDOW, None], ids=["window", "full"])
@pytest.mark.parametrize("signed", [BOTH, LEFT, RIGHT, (False, False)], ids=["both", "left", "right", "none"])
@pytest.mark.parametrize("name", EARLY)
def test_many_early_histories(name: str, signed: tuple[bool, bool], window: int | None) -> None:
    for model in list_models(EARLY[name]):
        for seed in range(200, 203):
            check(name, model, seed, 30, signed, window=window)


# Cases by name


@pytest.mark.parametrize("name", ["left", "anti"])
def test_a_tuple_that_loses_its_last_partner_is_open_again(name: str) -> None:
    run = Run(HOWS[name], Matrix(1, 1))
    run.epoch(insert(A), insert(B, B))
    run.epoch([], delete(B))
    assert run.count("undecided") == 0
    run.epoch([], delete(B))
    assert run.count("undecided") == 1
    # The watermark one microsecond before it decides A, and at this time.
    assert not run.epoch([], [], A[1] + WINDOW - 1)
    assert run.epoch([], [], A[1] + WINDOW) == {(A, None): 1}
    assert run.count_pages() == 0


@pytest.mark.parametrize("name", ["left", "anti"])
def test_the_last_partner_goes_in_the_epoch_of_the_decision(name: str) -> None:
    run = Run(HOWS[name], Matrix(1, 1))
    run.epoch(insert(A), insert(B))
    expected = {(A, None): 1} | ({(A, B): -1} if name == "left" else {})
    assert run.epoch([], delete(B), ALL_DECIDED) == expected


@pytest.mark.parametrize("name", ["semi", "left", "nearest"])
def test_a_decided_tuple_that_is_still_stored_is_not_answered_again_at_the_end(name: str) -> None:
    """One segment has both tuples, so the first one stays stored when it is decided."""
    run, later = Run(find_how(name), Matrix(1, 1)), (3, A[1] + 1, 1, 0)
    run.end_at(ALL_DECIDED)
    run.epoch(insert(A, later), insert(B))
    run.epoch([], [], A[1] + WINDOW)
    answers: dict[Answer, int] = {(A, None if name == "semi" else B): 1}
    assert run.output == answers
    if name != "semi":
        answers[later, None] = 1
    for _ in range(2):  # Spark may run another epoch behind the end.
        run.epoch([], [], ALL_DECIDED)
        assert run.output == answers


@pytest.mark.parametrize("name", ["left", "anti", "nearest", "semi"])
def test_a_row_is_answered_when_its_delete_would_be_late(name: str) -> None:
    """All partners are earlier by a gap, so they are known before."""
    run, later, earlier = Run(find_how(name), Matrix(1, 1), bounds=EARLIER), (3, 101, 0, 0), (4, 90, 0, 0)
    assert not run.epoch(insert(A, later), insert(earlier) if name == "semi" else [], 97)
    assert not run.epoch(delete(A), [], 98)
    assert not run.epoch([], [], 100)
    assert run.epoch([], [], 101) == {(later, None): 1}
    assert run.count_pages() == 0


def test_a_semi_join_answers_when_no_partner_can_go() -> None:
    run = Run(HOWS["semi"], Matrix(1, 1))
    gone = (3, 100, 0, 0)
    assert not run.epoch(insert(A, A, gone), insert(B))
    assert not run.epoch(delete(gone), [])
    assert run.epoch([], [], ALL_DECIDED) == {(A, None): 2}
    assert run.count_pages() == 0


def test_a_tuple_that_is_deleted_after_it_has_found_a_partner() -> None:
    run = Run(HOWS["left"], Matrix(1, 1))
    run.epoch(insert(A, A), insert(B))
    run.epoch(delete(A, A), [])
    assert not run.output
    assert not run.epoch([], delete(B), ALL_DECIDED)
    assert run.count_pages() == 0


def test_equal_tuples_have_equal_answers() -> None:
    run = Run(HOWS["left"], Matrix(1, 1))
    run.epoch(insert(A, A, A), [])
    run.epoch(delete(A), insert(B))
    run.epoch([], delete(B), ALL_DECIDED)
    assert run.output == {(A, None): 2}


def test_a_tuple_that_can_have_no_partner_is_answered_and_deleted_at_once() -> None:
    run = Run(HOWS["full"], Matrix(1, 1))
    without = (1, 100, None, 0)
    assert run.epoch(insert(without), insert(without)) == {(without, None): 1, (None, without): 1}
    assert run.epoch(delete(without), []) == {(without, None): -1}


def test_a_partner_that_was_never_inserted_is_no_partner() -> None:
    run = Run(HOWS["left"], Matrix(1, 1))
    run.epoch(insert(A), delete(B))
    run.epoch([], [], ALL_DECIDED)
    assert run.output == {(A, B): -1, (A, None): 1}


@WHERE
def test_numbers_of_deleted_tuples_are_given_back(has_residual: bool) -> None:
    run = Run(HOWS["left"], Matrix(1, 1), has_residual=has_residual)
    run.epoch([], insert((0, 100, 0, 0)))
    for number in range(100):
        row = (5 * number, 100, 0, 0)
        run.epoch(insert(row), [])
        run.epoch(delete(row), [])
    assert run.count("held") <= 5
    assert run.count_pages() <= 2


def test_the_order_of_tuples_in_a_repeated_epoch_plays_no_part() -> None:
    history = draw_history(random.Random(8), 20, make_row, has_watermark=True)
    first, second = Run(HOWS["full"], Matrix(1, 1)), Run(HOWS["full"], Matrix(1, 1))
    for left, right, watermark in history:
        first.epoch(left, right, watermark)
        second.epoch(left[::-1], right[::-1], watermark)
        assert first.output == second.output
