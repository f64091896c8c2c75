"""Streams with deletes: after each epoch, the summed output is the join of the net rows.

{ (l, r) : l.k = r.k, |l.v - r.v| <= 2, |l.t - r.t| <= 8, neither is late }, over the net rows of both streams
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.changes import Change, Epoch, Row, draw_history, drop_zeros, join_net, net
from tests.support.local_run import LocalRun
from thetastream.core.columns import SIGN
from thetastream.core.condition import (
    TIME,
    Bound,
    ChangeRules,
    Condition,
    Dimension,
    Domain,
    Equality,
    Key,
    PythonPredicate,
    SideSpec,
)
from thetastream.core.errors import ThetastreamError
from thetastream.core.sides import Side
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.store import chained_index
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import Hash, IndexSpec
from thetastream.models import Biclique, Chain, Matrix, Split
from thetastream.models.base import Model

WINDOW = 8
COLUMNS = ("id", "t", "k", "v")
SIDES = tuple(
    SideSpec(
        alias,
        COLUMNS,
        (SIGN,),
        keys=(Key("k", Domain.INT), Key("v", Domain.INT)),
        time=Key("t", Domain.INT),
    )
    for alias in "lr"
)
BAND = Dimension(Side.LEFT, 1, Bound(1, -2), Bound(1, 2))
CONDITION = Condition(
    (SIDES[0], SIDES[1]),
    (Equality(0, 0),),
    (BAND,),
    Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW), Bound(TIME, WINDOW)),
)
INDEXES = (IndexSpec(Hash(), (0,)),) * 2
IN_WINDOW = UnitSpec(CONDITION, INDEXES, 2)
FULL = UnitSpec(replace(CONDITION, window=None), INDEXES, None)
EARLIER = Dimension(Side.LEFT, TIME, Bound(TIME, 5), Bound(TIME, 20))
"""All partners of a left tuple are earlier by 5 to 20."""
Pairs = Counter[tuple[Row, Row]]


@pytest.fixture(autouse=True)
def often_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments are merged already, so that tuples cancel each other often."""
    monkeypatch.setattr(chained_index, "FAN_IN", 2)


class Run:
    """A run whose output is summed by row."""

    def __init__(self, unit: UnitSpec, model: Model, *, signed: tuple[bool, bool] = (True, True)) -> None:
        left, right = (
            spec if has_deletes else replace(spec, computed=())
            for spec, has_deletes in zip(unit.condition.sides, signed, strict=True)
        )
        unit = replace(unit, condition=replace(unit.condition, sides=(left, right)))
        self._run = LocalRun(TwoStreamSpec(unit, model))
        self._signed = signed
        self.output: Pairs = Counter()
        """The sum of the signs of all results."""

    def epoch(
        self, left: Iterable[Change] = (), right: Iterable[Change] = (), watermark: int | None = None
    ) -> list[tuple[int, int, int]]:
        """Run an epoch; return the ids and the sign of each result."""
        batches = [self._make(changes, side) for side, changes in enumerate((list(left), list(right)))]
        found = []
        for columns in self._run.epoch(batches, watermark):
            assert len(columns) == 2 * len(COLUMNS) + 1
            for values in zip(*(column.to_pylist() for column in columns), strict=True):
                mine, theirs, sign = values[:4], values[4:8], values[8]
                self.output[mine, theirs] += sign
                found.append((mine[0], theirs[0], sign))
        self.output = drop_zeros(self.output)
        return sorted(found)

    def sum_counter(self, name: str) -> int:
        return sum(getattr(counters, name) for counters in self._run.counters)

    def _make(self, changes: list[Change], side: int) -> pa.RecordBatch | None:
        batch = make_batch(changes)
        return batch if batch is None or self._signed[side] else batch.drop_columns([SIGN])


def make_batch(changes: list[Change]) -> pa.RecordBatch | None:
    """Make the block of changes of one stream; None if there are none."""
    if not changes:
        return None
    columns = {
        name: pa.array([change.row[n] for change in changes], pa.int64()) for n, name in enumerate(COLUMNS)
    }
    signs = pa.array([change.sign for change in changes], pa.int8())
    return pa.RecordBatch.from_pydict({**columns, SIGN: signs})


def matches_in(window: int | None) -> Callable[[Row, Row], bool]:
    def matches(left: Row, right: Row) -> bool:
        _, t, k, v = left
        _, u, j, w = right
        return k is not None and k == j and abs(v - w) <= 2 and (window is None or abs(t - u) <= window)

    return matches


def replay(
    history: list[Epoch], window: int | None, signed: tuple[bool, bool] = (True, True)
) -> Iterator[tuple[Epoch, Pairs]]:
    """Yield each epoch with the answer after it."""
    arrived: tuple[list[Change], list[Change]] = ([], [])
    late: int | None = None
    for epoch in history:
        for side in Side:
            for change in (epoch.left, epoch.right)[side]:
                if window is None or late is None or change.row[1] > late:
                    arrived[side].append(change if signed[side] else Change(change.row, 1))
        yield epoch, join_net(net(arrived[0]), net(arrived[1]), matches_in(window))
        late = epoch.watermark


def make_row(chance: random.Random, epoch: int) -> Row:
    return (
        chance.randrange(3),
        max(1, 3 * epoch - chance.randrange(8)),
        chance.randrange(2),
        chance.randrange(5),
    )


MODELS: tuple[Model, ...] = (
    Biclique((2, 3)),
    Biclique(4, 2),
    Matrix(2, 2),
    Split(3),
    Chain(3, fast_forward=True),
)


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_the_output_in_a_window_is_the_join_of_the_net_rows(model: Model, seed: int) -> None:
    history = draw_history(random.Random(seed), 25, make_row, has_watermark=True)
    run = Run(IN_WINDOW, model)
    n_late = 0
    for epoch, expected in replay(history, WINDOW):
        run.epoch(*epoch)
        n_late += run.sum_counter("late_deletes")
        assert run.output == expected
    assert n_late, "the history must have late deletes"


@pytest.mark.parametrize("model", [Biclique((2, 3)), Matrix(2, 2)], ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_the_output_of_the_full_history_is_the_join_of_the_net_rows(
    model: Model, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Segments of more than 16 tuples are not merged, so their tuples are cancelled across segments.
    monkeypatch.setattr(chained_index, "MERGED_ROWS", 16)
    monkeypatch.setattr(chained_index, "FEWEST_DELETES", 0)
    history = draw_history(random.Random(seed), 25, make_row, has_watermark=False)
    run = Run(FULL, model)
    for epoch, expected in replay(history, None):
        run.epoch(*epoch)
        assert run.output == expected


@pytest.mark.parametrize("signed", [(True, False), (False, True)], ids=["left", "right"])
def test_a_stream_without_deletes_joins_one_with_deletes(signed: tuple[bool, bool]) -> None:
    history = draw_history(random.Random(5), 25, make_row, has_watermark=True)
    run = Run(IN_WINDOW, Biclique(2), signed=signed)
    for epoch, expected in replay(history, WINDOW, signed):
        run.epoch(*epoch)
        assert run.output == expected


def has_even_sum(l: Any, r: Any) -> Any:  # noqa: E741
    return pc.equal(pc.bit_wise_and(pc.add(l.v, r.v), 1), 0)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_stable_predicate_joins_the_net_rows(model: Model) -> None:
    call = PythonPredicate("has_even_sum", has_even_sum, ("l", "r"), ((("v", "v"),),) * 2)
    unit = replace(IN_WINDOW, condition=replace(CONDITION, predicates=(call,)))
    run = Run(unit, model)
    for epoch, every in replay(draw_history(random.Random(7), 25, make_row, has_watermark=True), WINDOW):
        run.epoch(*epoch)
        assert run.output == {pair: n for pair, n in every.items() if not (pair[0][3] + pair[1][3]) % 2}
    assert run.output


def test_tasks_that_share_streams_have_the_net_join_of_their_own_windows() -> None:
    history, spans = draw_history(random.Random(6), 20, make_row, has_watermark=True), (WINDOW, 3)
    specs = []
    for span in spans:
        window = Dimension(Side.LEFT, TIME, Bound(TIME, -span), Bound(TIME, span))
        unit = replace(IN_WINDOW, condition=replace(CONDITION, window=window))
        specs.append(TaskSpec(f"within {span}", TwoStreamSpec(unit, Biclique(2))))
    run, found = LocalRun(SharedTasksSpec(tuple(specs))), (Pairs(), Pairs())
    n_late = 0
    for (epoch, expected), (_, narrower) in zip(*(replay(history, span) for span in spans), strict=True):
        batches = [make_batch(changes) for changes in (epoch.left, epoch.right)]
        for columns in run.epoch(batches, epoch.watermark):
            for task, *values in zip(*(column.to_pylist() for column in columns), strict=True):
                found[task][tuple(values[:4]), tuple(values[4:8])] += values[8]
        n_late += sum(counters.late_deletes for counters in run.counters)
        assert tuple(map(drop_zeros, found)) == (expected, narrower)
    assert n_late


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("unit", [IN_WINDOW, FULL], ids=["window", "full"])
def test_many_histories(model: Model, unit: UnitSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    if unit is FULL:
        monkeypatch.setattr(chained_index, "MERGED_ROWS", 16)
        monkeypatch.setattr(chained_index, "FEWEST_DELETES", 0)
    window = WINDOW if unit is IN_WINDOW else None
    for seed in range(100, 105):
        history = draw_history(random.Random(seed), 40, make_row, has_watermark=window is not None)
        run = Run(unit, model)
        for epoch, expected in replay(history, window):
            run.epoch(*epoch)
            assert run.output == expected, seed


# Cases by name

A, B = (1, 100, 0, 0), (2, 101, 0, 1)


def insert(*rows: Row) -> list[Change]:
    return [Change(row, 1) for row in rows]


def delete(*rows: Row) -> list[Change]:
    return [Change(row, -1) for row in rows]


BOTH_MODELS = pytest.mark.parametrize("model", [Biclique((2, 3)), Matrix(2, 2)], ids=repr)


@BOTH_MODELS
@pytest.mark.parametrize("changes", [insert(A) + delete(A), delete(A) + insert(A)], ids=["+-", "-+"])
def test_a_row_that_comes_and_goes_in_one_epoch_has_no_results(model: Model, changes: list[Change]) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch([], insert(B))
    assert run.epoch(changes) == []
    assert run.sum_counter("left") == 0
    assert run.epoch([], insert((3, 102, 0, 0))) == []


@BOTH_MODELS
def test_a_delete_before_its_insert_leaves_nothing(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    assert run.epoch([], insert(B)) == []
    assert run.epoch(delete(A)) == [(1, 2, -1)]
    assert run.epoch([], insert((3, 102, 0, 0))) == [(1, 3, -1)]
    assert run.epoch(insert(A)) == [(1, 2, 1), (1, 3, 1)]
    assert not run.output
    assert run.epoch([], insert((4, 102, 0, 0))) in ([], [(1, 4, -1), (1, 4, 1)])
    assert not run.output


@BOTH_MODELS
def test_a_delete_without_an_insert_stays_negative(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(delete(A), insert(B))
    assert run.output == {(A, B): -1}


@BOTH_MODELS
def test_two_equal_inserts_and_three_deletes(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A, A), insert(B))
    numbers = [run.output[A, B]]
    for _ in range(3):
        run.epoch(delete(A))
        numbers.append(run.output[A, B])
    assert numbers == [2, 1, 0, -1]


@BOTH_MODELS
def test_both_tuples_of_a_pair_are_deleted_in_one_epoch(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A), insert(B))
    # -, -, + unless a delete has already cancelled its stored insert.
    assert run.epoch(delete(A), delete(B)) in ([(1, 2, -1)], [(1, 2, -1), (1, 2, -1), (1, 2, 1)])
    assert not run.output


@BOTH_MODELS
def test_both_tuples_are_deleted_and_one_is_inserted_again(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A), insert(B))
    run.epoch([*delete(A), *insert(A)], delete(B))
    assert not run.output
    run.epoch([], insert(B))
    assert run.output == {(A, B): 1}


@BOTH_MODELS
def test_an_update_of_the_event_time_moves_a_row_out_of_the_window(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A), insert(B))
    later = (1, 101 + WINDOW + 1, 0, 0)
    run.epoch([*delete(A), *insert(later)])
    assert not run.output
    again = (1, 101 + WINDOW, 0, 0)
    run.epoch([*delete(later), *insert(again)])
    assert run.output == {(again, B): 1}


@BOTH_MODELS
def test_the_late_half_of_an_update_is_lost(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A), insert(B), 100)
    newer = (1, 102, 0, 0)
    run.epoch([*delete(A), *insert(newer)], [], 100)  # A is late, so its row stays
    assert (run.sum_counter("late"), run.sum_counter("late_deletes")) == (1, 1)
    assert run.output == {(A, B): 1, (newer, B): 1}
    older = (1, 99, 0, 0)
    run.epoch([*delete(newer), *insert(older)], [], 100)  # the new row is late, so only the delete counts
    assert run.output == {(A, B): 1}


@BOTH_MODELS
def test_a_delete_one_microsecond_after_the_watermark_finds_all_partners(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    old = (5, 101 - WINDOW, 0, 0)
    run.epoch(insert((1, 101, 0, 0)), insert(old), 100)
    run.epoch(delete((1, 101, 0, 0)), [], 100)
    assert not run.output
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A), insert(B), 100)
    run.epoch(delete(A), [], 100)
    assert run.output == {(A, B): 1}, "a delete at the watermark is late"


@BOTH_MODELS
def test_an_update_of_a_key_finds_other_partners(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    other = (9, 100, 1, 9)
    run.epoch(insert(A), insert(B, other))
    moved = (1, 100, 1, 8)
    run.epoch([*delete(A), *insert(moved)])
    assert run.output == {(moved, other): 1}
    without = (1, 100, None, 8)
    run.epoch([*delete(moved), *insert(without)])
    assert not run.output


@BOTH_MODELS
def test_an_update_of_a_column_that_is_not_sent_is_no_change(model: Model) -> None:
    run = Run(IN_WINDOW, model)
    run.epoch(insert(A), insert(B), 100)
    assert run.epoch([*delete(A), *insert(A)]) == []
    assert (run.sum_counter("late"), run.sum_counter("late_deletes")) == (0, 0)


def test_the_order_of_tuples_in_a_repeated_epoch_plays_no_part() -> None:
    history = draw_history(random.Random(8), 20, make_row, has_watermark=True)
    first, second = Run(IN_WINDOW, Biclique(2)), Run(IN_WINDOW, Biclique(2))
    for left, right, watermark in history:
        first.epoch(left, right, watermark)
        second.epoch(left[::-1], right[::-1], watermark)
        assert first.output == second.output


@pytest.mark.parametrize("merged_rows", [16, 1 << 20])
def test_the_full_history_keeps_about_the_live_rows(
    merged_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 8)
    monkeypatch.setattr(chained_index, "MERGED_ROWS", merged_rows)
    monkeypatch.setattr(chained_index, "FEWEST_DELETES", 2)
    run, live = Run(FULL, Biclique(1)), [(n, 0, 0, 0) for n in range(200)]
    run.epoch(insert(*live))
    for number in range(200):
        old, new = live.pop(0), (1000 + number, 0, 0, 0)
        live.append(new)
        run.epoch([*delete(old), *insert(new)])
    assert run.sum_counter("held") <= 1.3 * len(live)


@BOTH_MODELS
def test_a_new_tuple_meets_no_tuple_that_is_deleted(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 8)
    run = Run(IN_WINDOW, model)
    rows = [(1, 100, 0, n % 2) for n in range(6)]
    run.epoch(insert(rows[0]))
    for old, new in pairwise(rows):
        run.epoch([*delete(old), *insert(new)])
    assert run.sum_counter("held") > 1, "the old rows and their deletes are still stored"
    assert run.epoch([], insert(B)) == [(1, 2, 1)]


# Late deletes, and deletes of unknown rows


def with_rules(unit: UnitSpec, rules: ChangeRules) -> UnitSpec:
    left, right = unit.condition.sides
    return replace(unit, condition=replace(unit.condition, sides=(replace(left, rules=rules), right)))


@BOTH_MODELS
def test_a_late_delete_ends_the_query_if_the_user_says_so(model: Model) -> None:
    run = Run(with_rules(IN_WINDOW, ChangeRules(fails_on_late=True)), model)
    run.epoch(insert(A), insert(B), 100)
    run.epoch(insert(A), delete(B), 100)  # a late insert, and a delete of the other stream
    with pytest.raises(ThetastreamError, match=r"LATE_DELETE.*1 deleted rows of 'l' are up to 0\.000000 sec"):
        run.epoch(delete(A), [], 100)


@BOTH_MODELS
def test_deletes_without_an_insert_are_counted_when_they_leave_the_state(model: Model) -> None:
    run, n_copies = Run(IN_WINDOW, model), 2 if isinstance(model, Matrix) else 1
    rows = [(n, 100 + n, 0, 0) for n in range(4)]
    run.epoch(insert(rows[0], rows[1]) + delete(rows[1], rows[2], rows[2]), delete(B), 90)
    run.epoch(delete(rows[3]) + insert(rows[2]), [], 101)
    run.epoch(insert(rows[3], (9, 200, 0, 0)), [], 101 + WINDOW)  # 3 was deleted before its insert
    assert run.sum_counter("unknown_deletes") == n_copies, "the row of B, whose time is 101"
    run.epoch([], [], 103 + WINDOW)
    assert run.sum_counter("unknown_deletes") == n_copies, "one of the two deletes of row 2"
    run.epoch([], [], 150 + WINDOW)
    assert run.sum_counter("unknown_deletes") == 0


@BOTH_MODELS
def test_a_strict_stream_refuses_the_delete_of_an_unknown_row(model: Model) -> None:
    run = Run(with_rules(FULL, ChangeRules(is_strict=True)), model)
    run.epoch(insert(A, A), delete(B))
    run.epoch(delete(A) + insert((3, 100, 0, 0)), [])
    run.epoch(delete(A, (3, 100, 0, 0)), [])
    with pytest.raises(ThetastreamError, match=r"CHANGE_UNKNOWN_ROW.*'l' is deleted.*\(1, 100, 0, 0\)"):
        run.epoch(delete(A), [])


@BOTH_MODELS
def test_a_row_that_finds_no_partner_any_more_is_known_until_its_delete_is_late(model: Model) -> None:
    unit = replace(IN_WINDOW, condition=replace(CONDITION, window=EARLIER))
    run = Run(with_rules(unit, ChangeRules(is_strict=True)), model)
    run.epoch(insert(A, B), [], 97)
    run.epoch(delete(A), [], 97)
    run, n_copies = Run(unit, model), 2 if isinstance(model, Matrix) else 1
    run.epoch([], [], 97)
    run.epoch(insert(B) + delete(A, B), [], 97)
    run.epoch([], [], 101)
    assert run.sum_counter("unknown_deletes") == n_copies, "the row of A"
