"""As-of joins: each event has the version of its key that was valid at its time. Old versions are dropped.

{ (l, r) : l.k = r.k, r.t <= l.t, r has the latest t of these } for each event l, when the watermark is at l.t

If the stream says which versions count, r is the one of its time with the greatest order. If r says that its
key has no row any more, l has no partner.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pytest

from tests.support.local_run import LocalRun
from thetastream.core.columns import PASSES, RANKED, SIGN, VERSION_GONE, VERSION_ORDER
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.how import Nearest, Ranking, find_nearest
from thetastream.core.sides import Side
from thetastream.engine.answers import best_partners, nearest
from thetastream.engine.answers.spec import NearestSpec, VersionsSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import Hash, IndexSpec
from thetastream.models import Matrix
from thetastream.models.base import Model

N_KEYS = 4
Row = tuple[int, int, int]
"""Number, time and key."""


def make_spec(model: Model, k: int, low: int, span: int | None) -> VersionsSpec:
    left, right = (
        SideSpec(alias, ("id", "t", "k"), (RANKED,), (Key("k", Domain.INT),), Key("t", Domain.INT))
        for alias in "lr"
    )
    high = None if span is None else Bound(TIME, span)
    window = Dimension(Side.LEFT, TIME, Bound(TIME, low), high)
    condition = Condition((left, right), (Equality(0, 0),), (), window)
    period = None if span is None else 5
    unit = UnitSpec(condition, (IndexSpec(Hash(), (0,)),) * 2, period)
    how, ranking = find_nearest(Nearest(k, "l.t - r.t")), Ranking(k, Domain.INT, True, True)
    return VersionsSpec(TwoStreamSpec(unit, model), how, ranking)


def make_counting_spec(model: Model, span: int | None, keep_unmatched: bool = False) -> VersionsSpec:
    """Make the spec of a join with versions that have an order, and may say that their key has no row."""
    spec = make_spec(model, 1, 0, span)
    left, right = spec.join.unit.condition.sides
    right = replace(right, computed=(RANKED, VERSION_ORDER, VERSION_GONE))
    condition = replace(spec.join.unit.condition, sides=(left, right))
    how = find_nearest(Nearest(1, "l.t - r.t", keep_unmatched))
    unit = replace(spec.join.unit, condition=condition)
    return VersionsSpec(TwoStreamSpec(unit, model), how, spec.ranking)


class Version(NamedTuple):
    """A version, which its number orders among those of its time."""

    number: int
    time: int
    key: int
    is_gone: bool


def make_versions(rows: list[Version]) -> pa.RecordBatch | None:
    batch = make_batch([row[:3] for row in rows])
    if batch is None:
        return None
    gone = pa.array([row.is_gone for row in rows])
    return batch.append_column(VERSION_ORDER, batch.column("id")).append_column(VERSION_GONE, gone)


def find_version(row: Row, versions: list[Version], span: int | None) -> int | None:
    """Find the number of the version that is valid at the time of an event; None if there is none."""
    _, time, key = row
    longest = 10**9 if span is None else span
    found = [one for one in versions if one.key == key and 0 <= time - one.time <= longest]
    last = max(found, key=lambda one: (one.time, one.number), default=None)
    return None if last is None or last.is_gone else last.number


BY_KEY = Matrix(2, 2, subgroups=2, routing="hash")


@pytest.mark.parametrize(
    ("model", "span", "is_searched"),
    [
        (Matrix(2, 1), None, False),
        (BY_KEY, 40, True),
        *(
            pytest.param(model, span, is_searched, marks=pytest.mark.slow)
            for model in (Matrix(2, 1), BY_KEY)
            for span in (None, 40)
            for is_searched in (False, True)
        ),
    ],
)
def test_one_version_of_a_time_counts_and_a_deleted_one_is_no_partner(
    model: Model, span: int | None, is_searched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "FORGET_ROWS", 20)
    monkeypatch.setattr(nearest, "cost_more", lambda *_: is_searched)
    monkeypatch.setattr(best_partners, "PRUNE_ROWS", 10)
    chance, run = random.Random(3), LocalRun(make_counting_spec(model, span, keep_unmatched=True))
    found, expected = dict[int, int | None](), dict[int, int | None]()
    events, versions = list[Row](), list[Version]()
    watermark: int | None = None
    late: int | None = None
    number, held = 0, []
    for epoch in range(30):
        new: tuple[list[Row], list[Version]] = ([], [])
        for _ in range(6):
            number += 1
            new[0].append((number, max(1, 6 * epoch - chance.randrange(15)), chance.randrange(N_KEYS)))
        for _ in range(20):
            number += 1
            # After a while, some keys have no rows any more.
            key = chance.randrange(N_KEYS * 10) if epoch < 20 else chance.randrange(N_KEYS)
            gone = chance.random() < 0.3 or (epoch > 15 and key >= N_KEYS)
            new[1].append(Version(number, max(1, 6 * epoch - chance.randrange(15)), key, gone))
        events += [row for row in new[0] if late is None or row[1] > late]
        versions += [row for row in new[1] if late is None or row.time > late]
        watermark = max(watermark or 0, 6 * epoch - chance.randrange(10, 20))
        chance.shuffle(new[1])
        for columns in run.epoch([make_batch(new[0]), make_versions(new[1])], watermark):
            for event, version in zip(columns[0].to_pylist(), columns[3].to_pylist(), strict=True):
                assert event not in found
                found[event] = version
        late = watermark
        held.append(sum(counters.held for counters in run.counters))
        expected = {row[0]: find_version(row, versions, span) for row in events if row[1] <= watermark}
        assert found == expected
    assert len(expected) > 100
    assert len(set(expected.values())) > 30
    assert None in expected.values()
    assert max(held[20:]) < 350


def test_a_key_without_a_row_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "FORGET_ROWS", 0)
    run = LocalRun(make_counting_spec(Matrix(1, 1), None))
    [*run.epoch([None, make_versions([Version(1, 5, 0, False), Version(2, 6, 1, False)])], 5)]
    gone = [Version(3, 7, 0, True), Version(5, 8, 1, True), Version(4, 8, 1, False)]
    [*run.epoch([None, make_versions(gone)], 20)]
    # Of key 0 nothing is left. The last version of key 1 at 8 is the deleted one, by its order.
    assert sum(counters.held for counters in run.counters) == 0
    found = [*run.epoch([make_batch([(9, 25, 0), (10, 25, 1)]), None], 30)]
    assert not found


def make_batch(rows: list[Row]) -> pa.RecordBatch | None:
    if not rows:
        return None
    id_, t, k = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
    return pa.RecordBatch.from_pydict({"id": id_, "t": t, "k": k, RANKED: t})


def find_versions(row: Row, versions: list[Row], k: int, low: int, span: int | None) -> list[Row]:
    longest = 10**9 if span is None else span
    valid = [one for one in versions if one[2] == row[2] and low <= row[1] - one[1] <= longest]
    last = sorted((one[1] for one in valid), reverse=True)[:k]
    return [one for one in valid if one[1] >= last[-1]] if last else []


@pytest.mark.parametrize(
    ("k", "low", "span", "drops"),
    [(1, 0, None, True), (2, 3, None, True), (1, 0, 40, True), (1, 0, None, False)],
    ids=["latest", "two", "window", "all"],
)
def test_each_event_has_the_version_of_its_time(
    k: int, low: int, span: int | None, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "FORGET_ROWS", 20)
    chance, found = random.Random(k), Counter[tuple[int, int]]()
    spec: NearestSpec = make_spec(Matrix(2, 1), k, low, span)
    run = LocalRun(spec if drops else NearestSpec(spec.join, spec.how, spec.ranking))
    events, versions, expected = list[Row](), list[Row](), Counter[tuple[int, int]]()
    watermark: int | None = None
    late: int | None = None
    number, held = 0, []
    for epoch in range(25):
        new: tuple[list[Row], list[Row]] = ([], [])
        for rows, n in zip(new, (6, 20), strict=True):
            for _ in range(n):
                number += 1
                rows.append((number, max(1, 10 * epoch - chance.randrange(25)), chance.randrange(N_KEYS)))
        for kept, rows in zip((events, versions), new, strict=True):
            kept += [row for row in rows if late is None or row[1] > late]
        watermark = max(watermark or 0, 10 * epoch - chance.randrange(10, 20))
        for columns in run.epoch([make_batch(rows) for rows in new], watermark):
            found.update(zip(columns[0].to_pylist(), columns[3].to_pylist(), strict=True))
        late = watermark
        held.append(sum(counters.held for counters in run.counters))
        expected = Counter(
            (row[0], one[0])
            for row in events
            if row[1] - low <= watermark
            for one in find_versions(row, versions, k, low, span)
        )
        assert found == expected
    assert len(expected) > 100
    assert (max(held) < 350) is (drops or span is not None)


@pytest.mark.parametrize("seed", [19, 31])
def test_the_delete_of_an_event_finds_the_version_that_its_insert_has_found(seed: int) -> None:
    """Versions of one time have no order, and their segments are merged in between."""
    spec = make_counting_spec(Matrix(1, 1), None, True)
    left, right = spec.join.unit.condition.sides
    sides = replace(left, computed=(RANKED, SIGN, PASSES)), replace(right, computed=(RANKED, VERSION_GONE))
    unit = replace(spec.join.unit, condition=replace(spec.join.unit.condition, sides=sides))
    how = spec.how.over_changes([Side.LEFT])
    run = LocalRun(VersionsSpec(TwoStreamSpec(unit, Matrix(1, 1)), how, spec.ranking))
    chance, number, net = random.Random(seed), 0, Counter[Row]()
    found: Counter[tuple[int, ...]] = Counter()

    def draw(first: int) -> Row:
        nonlocal number
        number += 1
        return number, first + chance.randrange(5 if first == 10 else 3), chance.randrange(2)

    def run_epoch(*batches: pa.RecordBatch | None, watermark: int | None = None) -> None:
        for columns in run.epoch(batches, watermark):
            for *row, sign in zip(*(column.to_pylist() for column in columns), strict=True):
                found[tuple(row)] += sign

    for _ in range(8):
        events = [draw(10) for _ in range(3)]
        net.update(events)
        deleted = [row for row in +net if chance.random() < 0.3]
        net.subtract(deleted)
        versions = make_batch([draw(8) for _ in range(3)])
        batch = make_batch(events + deleted)
        assert batch is not None
        assert versions is not None
        signs = pa.array([1] * len(events) + [-1] * len(deleted), pa.int8())
        passes = pa.array([1] * len(batch), pa.int8())
        run_epoch(
            batch.append_column(SIGN, signs).append_column(PASSES, passes),
            versions.append_column(VERSION_GONE, pa.array([False] * len(versions))),
        )
    run_epoch(None, None, watermark=1000)
    assert sorted(row[:3] for row in found.elements()) == sorted(net.elements())
    assert not -found
