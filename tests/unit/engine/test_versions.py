"""As-of joins: each event has the version of its key that was valid at its time. Old versions are dropped.

{ (l, r) : l.k = r.k, r.t <= l.t, r has the latest t of these } for each event l, when the watermark is at l.t
"""

import random
from collections import Counter

import pyarrow as pa
import pytest

from tests.support.local_run import LocalRun
from thetastream.core.columns import RANKED
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.how import Nearest, Ranking, find_nearest
from thetastream.core.sides import Side
from thetastream.engine.answers import nearest
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
