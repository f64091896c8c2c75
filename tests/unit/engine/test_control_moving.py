"""Stored tuples that move when their unit leaves: how fast, to which units, and broken variants."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.controlled import (
    COLUMNS,
    FULL_HISTORY,
    KINDS,
    MOST_MOVED,
    SCHEMA,
    make_moving,
    run_schedule,
)
from tests.support.controlled_run import ControlledRun
from thetastream.core.sides import Role, Side
from thetastream.engine import moved_tuples
from thetastream.engine.counters import SendingCounters
from thetastream.engine.inbox import Inbox
from thetastream.engine.routing import Router
from thetastream.engine.store.box import encode_key_rows
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.segment import MemoryStore
from thetastream.engine.two_stream.moving import MovingSpec, MovingUnit
from thetastream.models import Biclique, Matrix, Split
from thetastream.models.base import Model, Route
from thetastream.runtime.control.request import Request

N_BEFORE = 40
"""How many tuples of each stream arrive before a request."""


def read_ids(results: Iterator[list[pa.Array]]) -> list[tuple[int, int]]:
    """Read the ids of pairs."""
    found = []
    for columns in results:
        found += zip(columns[0].to_pylist(), columns[len(COLUMNS)].to_pylist(), strict=True)
    return found


def make_batches(first: int, n: int) -> list[pa.RecordBatch]:
    """Make n tuples of each stream. All of them have one key."""
    rows = [{"id": first + i, "t": first + i, "k": 0, "v": 0} for i in range(n)]
    return [pa.RecordBatch.from_pylist(rows, schema=SCHEMA)] * 2


def start(model: Model) -> ControlledRun:
    """Start a join over the full history, and give it tuples."""
    run = ControlledRun(make_moving(FULL_HISTORY, model), model, KINDS[FULL_HISTORY][1])
    assert len(read_ids(run.epoch(make_batches(0, N_BEFORE)))) == N_BEFORE**2
    return run


CHANGES = [
    (Biclique((2, 1)), Biclique((1, 1))),
    (Biclique((2, 2), 2, "hash"), Biclique((3, 1), (3, 1), "hash")),
    (Split(2), Split(3)),
    (Matrix(2, 2), Matrix(1, 3)),
    (Matrix(2, 2, 2, "hash"), Split(1)),
    (Split(2), Matrix(2, 2)),
]


@pytest.mark.parametrize(("before", "after"), CHANGES, ids=repr)
def test_tuples_move_a_few_in_each_epoch_until_their_unit_is_empty(before: Model, after: Model) -> None:
    run = start(before)
    run.put(Request(model=after))
    epochs = 0
    while len(run.plan.membership) > 1 or epochs < 2:
        # In each epoch, a new tuple of each stream finds all tuples before it, and the other one.
        n = N_BEFORE + epochs
        assert len(read_ids(run.epoch(make_batches(n, 1)))) == 2 * n + 1
        sent = [counters.forwarded for counters in run.counters if isinstance(counters, SendingCounters)]
        assert max(sent) <= 2 * MOST_MOVED
        epochs += 1
    # A unit with a half of the tuples of a stream needs three epochs, and one with all of them six. If more
    # units send than receive, they take turns.
    assert 4 < epochs < 14 * max(1, before.n_units // after.n_units)
    assert run.plan.newest.model == after
    held = [counters.held for slot, counters in enumerate(run.counters) if slot in run.plan.slots]
    copies = (after.columns + after.rows) if isinstance(after, Matrix) else 2
    assert sum(held) == copies * (N_BEFORE + epochs)
    gone = set(range(len(run.states))) - set(run.plan.slots)
    assert not any(run.states[slot].segments for slot in gone)


def test_a_unit_receives_from_all_senders_what_one_may_send() -> None:
    run = start(Split(6))
    run.put(Request(model=Split(1)))
    moved = Counter[tuple[int | None, str]]()
    while len(run.plan.membership) > 1 or not moved:
        list(run.epoch([]))
        received = Counter[tuple[int | None, str]]()
        for message in run.in_flight:
            assert message.block is not None
            received[message.to, message.header] += message.block.num_rows
        assert max(received.values(), default=0) <= MOST_MOVED
        moved.update(received)
    assert moved.total() == 2 * N_BEFORE, "each tuple moves once"


def test_a_unit_that_receives_few_tuples_sends_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch with few tuples is short. An epoch without tuples has time for more."""
    monkeypatch.setattr(moved_tuples, "LEAST_MOVED", 1)
    run = start(Split(1))
    run.put(Request(sizes={"cores": 2}))
    list(run.epoch([]))
    first = N_BEFORE
    for n_new, most in ((1, 1), (6, 3), (100, MOST_MOVED), (0, MOST_MOVED)):
        assert len(read_ids(run.epoch(make_batches(first, n_new)))) == (first + n_new) ** 2 - first**2
        first += n_new
        assert isinstance(run.counters[0], SendingCounters)
        # The unit has two streams.
        assert 0 < run.counters[0].forwarded <= 2 * most
    assert run.counters[0].forwarded > 2 * 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_schedules_with_bounds_that_differ_between_epochs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_tuples, "LEAST_MOVED", 1)
    found, expected, _ = run_schedule(seed, kind=FULL_HISTORY)
    assert found == expected


def test_only_units_that_leave_move_tuples() -> None:
    """A biclique without subgroups keeps the units that it can, and moves nothing when it grows."""
    run = start(Biclique((1, 1)))
    run.put(Request(sizes={"units": (3, 2)}))
    assert count_moved(run, 4) == 0
    list(run.epoch(make_batches(N_BEFORE, N_BEFORE)))
    run.put(Request(sizes={"units": (2, 2)}))
    (gone,) = set(run.plan.slots) - set(run.plan.newest.slots[:2]) - set(run.plan.newest.slots[3:])
    held = run.counters[gone].held
    assert held > 0
    assert count_moved(run, 8) == held
    assert run.plan.slots == tuple(slot for slot in range(5) if slot != gone)


def count_moved(run: ControlledRun, epochs: int) -> int:
    """Count the tuples that units send in some epochs without new tuples."""
    moved = 0
    for _ in range(epochs):
        list(run.epoch([]))
        sent = [counters for counters in run.counters if isinstance(counters, SendingCounters)]
        moved += sum(counters.forwarded for counters in sent)
    return moved


def test_idle_units_go_on_moving() -> None:
    """A unit that leaves waits for another epoch until it is empty."""
    run = start(Split(1))
    run.put(Request(sizes={"cores": 2}))
    list(run.epoch([]))
    for _ in run.drain():
        pass
    assert run.states[0].segments == []
    assert sum(run.counters[slot].held for slot in (1, 2)) == 2 * N_BEFORE


def _send_twice(unit: MovingUnit, *arguments: Any) -> None:
    SEND(unit, *arguments)
    unit._sent += unit._sent


def _receive_late(unit: MovingUnit, inbox: Inbox, clock: Any) -> Iterator[Any]:
    """Run an epoch, and store the tuples of messages behind its new tuples."""
    messages, inbox.messages = inbox.messages, []
    yield from MATCHES(unit, inbox, clock)
    unit._receive(messages, inbox.peers.has_left(clock.epoch))
    unit.finish(inbox)


def _keep_copies(unit: MovingUnit) -> None:
    pass


def _receive_copies(unit: MovingUnit, messages: Any, is_leaving: bool) -> None:
    RECEIVE(unit, messages, False)


def _send_to_older(unit: MovingUnit, side: Side, peers: Any, n_received: int) -> None:
    SEND(unit, side, peers._replace(generations=peers.generations[::-1]), n_received)


def _forget_places(router: Router, stream: int, payload: pa.RecordBatch, numbers: Any) -> Iterator[Route]:
    """Send each tuple to any unit of its side."""
    model = router.model
    units = [unit for unit in range(model.n_units) if Side(stream) in model.stores(unit)]
    for n, unit in enumerate(units):
        yield Route(unit, Role.STORE, np.flatnonzero(numbers % len(units) == n))


SEND, MATCHES, RECEIVE = MovingUnit._send, MovingUnit.matches, MovingUnit._receive
BROKEN: dict[str, tuple[type, str, Any]] = {
    "a tuple is sent twice": (MovingUnit, "_send", _send_twice),
    "received tuples are stored behind new ones": (MovingUnit, "matches", _receive_late),
    "units that leave keep copies": (MovingUnit, "_drop_copies", _keep_copies),
    "copies that were on their way are kept": (MovingUnit, "_receive", _receive_copies),
    "new tuples probe as if copies were there": (
        MovingSpec, "router", property(lambda spec: spec.join.router),
    ),
    "tuples move to units without their places": (Router, "find_store_routes", _forget_places),
    "tuples move to the oldest units": (MovingUnit, "_send", _send_to_older),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BROKEN)
def test_broken_variants_are_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    owner, attribute, broken = BROKEN[name]
    monkeypatch.setattr(owner, attribute, broken)
    assert any(finds_error(seed) for seed in range(60))


def finds_error(seed: int) -> bool:
    """Whether a schedule finds other pairs than the nested loop, or does not end."""
    try:
        found, expected, _ = run_schedule(seed, kind=FULL_HISTORY)
    except AssertionError:
        return True
    return found != expected


@pytest.mark.parametrize(("most_rows", "most_bytes"), [(64, 1 << 30), (1 << 30, 8000)])
def test_parts_of_a_large_segment_are_small_and_complete(most_rows: int, most_bytes: int) -> None:
    """A segment is cut into halves, so tuples are written again a few times, and segments stay few."""
    index, store = make_index(1000)
    removed, sizes, written = [], [], 0
    while index.segments:
        before = {meta.id for meta in index.segments}
        part = index.remove_part(most_rows, most_bytes)
        assert part is not None
        removed += part.column("id").to_pylist()
        sizes.append(part.num_rows)
        written += sum(meta.n_rows for meta in index.segments if meta.id not in before)
        assert len(index.segments) < 8
    assert sorted(removed) == list(range(1000))
    assert max(sizes) <= most_rows
    assert len(sizes) < 40
    assert written < 4 * 1000
    assert not store._runs
    assert index.remove_part(most_rows, most_bytes) is None


def test_a_tuple_that_is_too_large_is_a_part() -> None:
    index, _ = make_index(3)
    parts = [index.remove_part(10, 1) for _ in range(4)]
    assert [None if part is None else part.num_rows for part in parts] == [1, 1, 1, None]


def make_index(n: int) -> tuple[ChainedIndex, MemoryStore]:
    """Make an index with one segment of n tuples."""
    store = MemoryStore()
    unit = make_moving(FULL_HISTORY, Split(1)).join.unit
    index = ChainedIndex(unit.describe_stored(Side.LEFT), [], store)
    payload = make_batches(0, n)[0]
    index.insert(payload, encode_key_rows(Side.LEFT, unit.condition, payload))
    return index, store
