"""Upserts become changes: after each epoch, the summed output is the latest row of each key.

{ the row with the greatest sequence of each key, unless it is deleted }
"""

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.changes import drop_zeros
from tests.support.local_run import LocalRun
from thetastream.core import equal_rows
from thetastream.core.columns import HASH
from thetastream.core.condition import Domain, Key, SideSpec
from thetastream.engine.latest import LatestSpec
from thetastream.engine.store import chained_index
from thetastream.models import Matrix

COLUMNS = ("id", "name", "t")
SIDE = SideSpec("u", COLUMNS, ("k0", "q", "gone"), keys=(Key("k0", Domain.INT),))
TIMED = SideSpec("u", COLUMNS, ("k0", "q", "gone"), keys=(Key("k0", Domain.INT),), time=Key("t", Domain.INT))
Upsert = tuple[int | None, str | None, int | None, float | None, bool]
"""id, name, t, sequence, deleted"""


@pytest.fixture(autouse=True)
def often_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 2)
    monkeypatch.setattr(chained_index, "FEWEST_DELETES", 0)


class Run:
    """A run whose output is summed by row. All keys have few hashes, so that hashes are often equal."""

    def __init__(self, spec: LatestSpec, sequence: pa.DataType | None = None) -> None:
        self._run = LocalRun(spec)
        self._sequence = pa.int64() if sequence is None else sequence
        self.output: Counter[Any] = Counter()

    def epoch(self, upserts: list[Upsert], watermark: int | None = None) -> list[tuple[Any, ...]]:
        hashes = [(upsert[0] or 0) % 3 for upsert in upserts]
        ids, names, times, sequence, gone = zip(*upserts, strict=True) if upserts else ((),) * 5
        batch = pa.RecordBatch.from_pydict(
            {
                "id": pa.array(ids, pa.int64()),
                "name": pa.array(names, pa.string()),
                "t": pa.array(times, pa.int64()),
                "k0": pa.array(hashes, pa.int64()),
                "q": pa.array(sequence, self._sequence),
                "gone": pa.array(gone, pa.bool_()),
                HASH: pa.array(hashes, pa.int64()),
            }
        )
        found = []
        for columns in self._run.epoch([batch], watermark):
            for *row, sign in zip(*(column.to_pylist() for column in columns), strict=True):
                self.output[tuple(row)] += sign
                found.append((*row, sign))
        self.output = drop_zeros(self.output)
        return sorted(found, key=repr)

    @property
    def held(self) -> int:
        return sum(counters.held for counters in self._run.counters)


def make_spec(side: SideSpec = SIDE, **changed: Any) -> LatestSpec:
    fields: dict[str, Any] = {"sequence": "q", "deleted": "gone", **changed}
    return LatestSpec(side, ("id",), Matrix(2, 1), **fields)


@pytest.mark.parametrize("are_hashes_equal", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_output_is_the_latest_row_of_each_key(
    seed: int, are_hashes_equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if are_hashes_equal:
        monkeypatch.setattr(equal_rows, "mix", lambda values: values % np.uint64(4))
    chance, run = random.Random(seed), Run(make_spec())
    latest: dict[int | None, tuple[Any, ...]] = {}
    number = 0
    for _ in range(30):
        upserts: list[Upsert] = []
        for _ in range(chance.randrange(12)):
            number += 1
            key = chance.choice([None, *range(8)])
            name = chance.choice(["a", "b", None])
            # A row may come some places after younger ones, but not after a delete, which is forgotten.
            upserts.append((key, name, chance.choice([None, 1]), number, chance.random() < 0.2))
        chance.shuffle(upserts)
        for key, name, t, sequence, gone in sorted(upserts, key=lambda one: one[3]):
            latest.pop(key, None)
            if not gone:
                latest[key] = (name, t, sequence)
        run.epoch(upserts)
        assert run.output == Counter((key, name, t) for key, (name, t, _) in latest.items())
    assert run.held <= 4 * max(1, len(latest))


def test_a_row_with_a_smaller_sequence_is_older() -> None:
    run = Run(make_spec())
    assert run.epoch([(1, "b", 1, 7, False)]) == [(1, "b", 1, 1)]
    assert run.epoch([(1, "a", 1, 6, False)]) == []
    assert run.epoch([(1, "x", 1, 6, True)]) == []
    assert run.epoch([(1, "c", 1, 7, False)]) == [(1, "b", 1, -1), (1, "c", 1, 1)]


@pytest.mark.parametrize("in_one_epoch", [False, True])
@pytest.mark.parametrize(
    ("small", "large", "type_"),
    [
        (None, -5, pa.int64()),
        (None, float("nan"), pa.float64()),
        (float("inf"), float("nan"), pa.float64()),
        (-0.5, 0.0, pa.float64()),
        ("B", "a", pa.string()),
        (False, True, pa.bool_()),
    ],
)
def test_epochs_are_no_part_of_the_order_of_the_rows_of_a_key(
    small: Any, large: Any, type_: pa.DataType, in_one_epoch: bool
) -> None:
    run = Run(make_spec(), type_)
    upserts: list[Upsert] = [(1, "new", 1, large, False), (1, "old", 1, small, False)]
    for epoch in [upserts] if in_one_epoch else [[one] for one in upserts]:
        run.epoch(epoch)
    assert run.output == Counter({(1, "new", 1): 1})


def test_a_row_that_has_not_changed_has_no_results() -> None:
    run = Run(make_spec())
    run.epoch([(1, None, 1, 1, False)])
    assert run.epoch([(1, None, 1, 2, False)]) == []
    assert run.epoch([(1, "x", 1, 1, False)]) == [], "the row has sequence 2 now"


def test_a_key_that_is_unknown_is_deleted_without_results() -> None:
    run = Run(make_spec())
    assert run.epoch([(1, None, None, 1, True)]) == []
    assert run.epoch([(1, "a", 1, 1, False), (1, "b", 1, 2, True)]) == []
    assert run.held == 0


def test_without_a_sequence_the_order_of_arrival_counts() -> None:
    run = Run(make_spec(sequence=None, deleted=None))
    assert run.epoch([(1, "b", 1, 9, False), (1, "a", 1, 3, True)]) == [(1, "a", 1, 1)]
    assert run.epoch([(1, "c", 1, 1, False)]) == [(1, "a", 1, -1), (1, "c", 1, 1)]


def test_a_row_is_forgotten_when_the_watermark_has_passed_it() -> None:
    run = Run(make_spec(TIMED, period_us=10))
    run.epoch([(1, "a", 5, 1, False), (2, "a", 50, 1, False)], 0)
    # Row 1 is replaced, so that an older and a younger tuple of its key are in segments that expire apart.
    assert run.epoch([(1, "b", 60, 2, False)], 20) == [(1, "a", 5, -1), (1, "b", 60, 1)]
    assert run.epoch([], 55) == []
    assert run.epoch([(2, "b", 70, 2, False)], 55) == [(2, "b", 70, 1)], "its old row is late"
    assert run.epoch([(1, "c", 70, 3, False)], 65) == [(1, "b", 60, -1), (1, "c", 70, 1)]
    assert run.epoch([(1, "d", 71, 4, False)], 80) == [(1, "c", 70, -1), (1, "d", 71, 1)]
    run.epoch([], 1000)
    assert run.held == 0
    assert run.epoch([(1, "e", 2000, 5, False)], 1000) == [(1, "e", 2000, 1)]


def test_keys_of_equal_hashes_are_told_apart() -> None:
    run = Run(make_spec())
    run.epoch([(1, "a", 1, 1, False), (4, "a", 1, 1, False)])
    assert run.epoch([(4, "b", 1, 2, False)]) == [(4, "a", 1, -1), (4, "b", 1, 1)]


def test_many_keys_over_many_epochs_keep_less_than_two_tuples_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_index, "FAN_IN", 8)
    run, chance = Run(make_spec()), np.random.default_rng(1)
    for epoch in range(60):
        run.epoch([(int(key), f"{epoch}", 1, epoch, False) for key in chance.choice(300, 40, replace=False)])
    assert sum(run.output.values()) <= 300
    assert run.held <= 2 * sum(run.output.values())
