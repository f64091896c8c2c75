"""Rings whose old nodes move their tuples to the new ones: schedules against the nested loop, and broken
variants."""

from collections.abc import Iterator
from itertools import combinations, count, islice
from typing import Any

import pyarrow as pa
import pytest

from tests.support.controlled_graphs import MOVING_RULES, explore, run_graph_schedule
from tests.support.controlled_run import ControlledRun
from tests.support.doubling import measure_responses, run_ring
from tests.support.graphs import GraphCase, side
from thetastream.core.columns import BORN
from thetastream.core.condition import Equality
from thetastream.core.errors import QueryError
from thetastream.core.spans import Rows
from thetastream.engine.moved_tuples import is_moved, read_tuples
from thetastream.engine.multiway.graph import OPEN, Edge, Ends, JoinGraph
from thetastream.engine.multiway.node import MultiwayNode
from thetastream.engine.multiway.stored_tuples import StoredTuples
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import Ring
from thetastream.runtime.control.request import Request

SMALL = Ring(1, Rows(1), moves_tuples=True)
WAITING = Ring(1, Rows(1), in_flight=1, moves_tuples=True)
"""Tuples begin to look for partners late, also after tuples that have arrived later have moved."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_with_crashes_find_the_bag_of_the_nested_loop(seed: int) -> None:
    found, expected, run = run_graph_schedule(seed, Ring, moves_tuples=True)
    assert found == expected
    assert run.offset.plan.version > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("moves_tuples", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_count_windows_stay_exact_while_nodes_change(seed: int, moves_tuples: bool) -> None:
    found, expected, run = run_graph_schedule(seed, Ring, moves_tuples=moves_tuples, is_counted=True)
    assert found == expected
    assert run.offset.plan.version > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_many_schedules_with_count_windows(seed: int) -> None:
    found, expected, _ = run_graph_schedule(seed, Ring, 20, seed % 2 == 0, is_counted=True)
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_random_schedules_with_crashes(seed: int) -> None:
    found, expected, _ = run_graph_schedule(seed, Ring, epochs=20, moves_tuples=True)
    assert found == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", [SMALL, WAITING], ids=repr)
def test_all_schedules_of_a_small_world(model: Ring) -> None:
    assert list(explore(model)) == []


@pytest.mark.parametrize("model", [SMALL, WAITING], ids=repr)
def test_all_schedules_of_a_small_world_with_count_windows(model: Ring) -> None:
    assert list(explore(model, counts=(1, 2, 3))) == []


@pytest.mark.slow
@pytest.mark.parametrize("model", [SMALL, WAITING], ids=repr)
def test_all_longer_schedules_of_a_small_world(model: Ring) -> None:
    assert list(explore(model, n_changes=4)) == []


def send_twice(stored: StoredTuples, *arguments: Any) -> Iterator[Any]:
    for n_sent, messages in SEND(stored, *arguments):
        yield n_sent, messages * 2


def receive_as_new(stored: StoredTuples, messages: Any) -> None:
    """Store moved tuples with places in the global order that are those of no tuple."""
    for stream, batch in read_tuples(messages):
        place = batch.schema.get_field_index(BORN)
        stored.insert(stream, batch.set_column(place, BORN, pa.array([0] * batch.num_rows)))


def receive_late(node: MultiwayNode, inbox: Any, clock: Any) -> Iterator[Any]:
    """Store moved tuples at the end of the epoch, behind its probes."""
    moved = [message for message in inbox.messages if is_moved(message)]
    inbox.messages = [message for message in inbox.messages if not is_moved(message)]
    yield from EPOCH(node, inbox, clock)
    node._stored.receive(moved)
    node._stored.write()


def forget_left(stored: StoredTuples, peers: Any) -> None:
    """Only nodes of the newest generation keep what was on its way to them."""
    PREPARE(stored, peers)
    stored.receive = (lambda _: None) if peers.last_epoch is not None else stored.receive  # type: ignore[method-assign]


SEND, PREPARE, EPOCH = StoredTuples.send, StoredTuples.prepare_moves, MultiwayNode.epoch
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "a tuple is sent twice": (StoredTuples, "send", send_twice),
    "moved tuples lose their place in the global order": (StoredTuples, "receive", receive_as_new),
    "moved tuples are stored behind the probes of an epoch": (MultiwayNode, "epoch", receive_late),
    "tuples on their way to a node that leaves are dropped": (StoredTuples, "prepare_moves", forget_left),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BROKEN)
def test_the_search_finds_what_is_wrong_in_broken_variants(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BROKEN[name])
    assert next(explore(WAITING), None) is not None


def test_nodes_share_the_state_after_a_few_epochs() -> None:
    """With a window of 60 epochs, the last tuple of the old nodes would expire 60 epochs later."""
    stays, moves = (change_nodes(Ring(2, Rows(4), moves_tuples=moves), 4) for moves in (False, True))
    assert [len(one.plan.membership) for one in (stays, moves)] == [2, 1]
    held = [moves.counters[slot].held for slot in moves.plan.slots]
    assert len(held) == 4
    assert max(held) < 1.3 * min(held)
    # The tuples of the window are there once.
    assert sum(held) == sum(stays.counters[slot].held for slot in stays.plan.slots)


@pytest.mark.slow
def test_responses_stay_short_when_arrivals_double() -> None:
    """Eight nodes take the place of two, whose load was 0.6."""
    stays, moves = (measure_responses(*run_ring(0.6, 2, 8, moves_tuples)) for moves_tuples in (False, True))
    assert max(moves) < 1.3
    assert max(stays) > 1.6


def test_a_ring_over_the_full_history_moves_its_tuples() -> None:
    run = change_nodes(Ring(3, Rows(4)), 1, window=None)
    assert [len(one.slots) for one in run.plan.membership] == [1]
    assert sum(run.counters[slot].held for slot in run.plan.slots) == 3 * 20 * EPOCHS


EPOCHS = 30


def change_nodes(model: Ring, nodes: int, window: int | None = 60) -> ControlledRun:
    """Run a join of three streams for ``EPOCHS`` epochs, and ask for other nodes before the last eight."""
    ends = OPEN if window is None else Ends(-window, window)
    edges = {pair: Edge((Equality(0, 0),), window=ends) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(map(side, range(3))), edges)
    case = GraphCase(graph, ((1, 2), (2, 0), (0, 1)), None, ())
    run = ControlledRun(build_multiway_spec(graph, case.orders, model, 5), model, MOVING_RULES)
    ids = count()
    for now in range(EPOCHS):
        if now == EPOCHS - 8:
            run.put(Request(sizes={"nodes": nodes}))
        rows = [[{"id": n, "t": now, "k0": n, "k1": 0} for n in islice(ids, 20)] for _ in range(3)]
        list(run.epoch([case.batch(n, part) for n, part in enumerate(rows)], now or None))
    return run


def test_moves_are_asked_for_by_true_or_false() -> None:
    with pytest.raises(QueryError, match=r"\[BAD_MOVES\]"):
        Ring(2, moves_tuples="slowly")  # type: ignore[arg-type]
