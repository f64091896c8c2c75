"""MP-2PF: every pair meets exactly once, in every order in which letters can be delivered."""

import pickle
from collections import Counter, deque
from dataclasses import astuple, replace
from itertools import pairwise

import numpy as np
import pytest

from thetastream.core.sides import Side
from thetastream.engine.handshake.instructions import (
    AckBlk,
    Drop,
    Group,
    Join,
    MarkProbed,
    Send,
    Silence,
    SizeChg,
    StoreTuples,
    TupleBlk,
)
from thetastream.engine.handshake.protocol import Phase, Protocol, ProtocolState


class Place:
    """A worker whose tuples are numbers."""

    def __init__(self, place: int, n_workers: int, threshold: int, block: int) -> None:
        self.protocol = Protocol(place, n_workers, threshold, block, ProtocolState())
        self.groups: dict[Group, list[int]] = {group: [] for group in Group}
        self.copies: deque[list[int]] = deque()


class Chain:
    """All workers, and the letters between neighbours."""

    def __init__(self, n_workers: int, threshold: int = 0, block: int = 1) -> None:
        self.places = [Place(n, n_workers, threshold, block) for n in range(n_workers)]
        self.channels: dict[tuple[int, int], deque] = {}
        self.met: Counter[tuple[int, int]] = Counter()
        self.entered = [0, 0]
        self.last_silence = -1
        """The number of the last silence, or -1 if tuples have entered since."""

    def key(self) -> tuple:
        """Return a value that determines everything that can happen from now on."""
        return (
            tuple(
                (
                    str(astuple(place.protocol.state)),
                    tuple(map(tuple, place.groups.values())),
                    tuple(map(tuple, place.copies)),
                )
                for place in self.places
            ),
            tuple(sorted((way, tuple(map(str, queue))) for way, queue in self.channels.items() if queue)),
            tuple(sorted(self.met.items())),
            tuple(self.entered),
            self.last_silence,
        )

    def run(self, place: int, instructions, event: list[int]) -> None:
        here = self.places[place]
        for instruction in instructions:
            match instruction:
                case Join(Side.LEFT, first, end):
                    stored = [*here.groups[Group.S], *(s for copies in here.copies for s in copies)]
                    found = [s for s in stored if first <= s and (end is None or s < end)]
                    self.meet((r, s) for r in event for s in found)
                case Join(_, first):
                    self.meet((r, s) for s in event for r in here.groups[Group.FRESH])
                    self.meet((r, s) for s in event for r in here.groups[Group.PROBED] if s >= first)
                case StoreTuples(group):
                    here.groups[group] += event
                case Send(to, header, has_event, group, taken, is_copied):
                    sent = event if has_event else [] if group is None else here.groups[group]
                    if taken is not None:
                        sent, here.groups[group] = sent[:taken], sent[taken:]
                    if is_copied:
                        here.copies.append(list(sent))
                    self.channels.setdefault((place, to), deque()).append((header, list(sent)))
                case Drop():
                    here.copies.popleft()
                case MarkProbed():
                    here.groups[Group.PROBED] += here.groups[Group.FRESH]
                    here.groups[Group.FRESH] = []

    def meet(self, pairs) -> None:
        self.met.update(pairs)
        assert not self.met or max(self.met.values()) == 1

    def enter(self, side: Side, n: int = 1) -> None:
        place = 0 if side is Side.LEFT else len(self.places) - 1
        event = list(range(self.entered[side], self.entered[side] + n))
        self.entered[side] += n
        self.last_silence = -1
        self.run(place, self.places[place].protocol.enter(side, n), event)

    def deliver(self, way: tuple[int, int]) -> None:
        header, tuples = self.channels[way].popleft()
        self.run(way[1], self.places[way[1]].protocol.receive(header, len(tuples)), tuples)

    def expire(self, place: int, group: Group) -> None:
        here = self.places[place]
        gone, here.groups[group] = here.groups[group], []
        self.run(place, here.protocol.expire(group, len(gone)), gone)

    def fall_silent(self) -> None:
        last = len(self.places) - 1
        self.run(last, self.places[last].protocol.fall_silent(self.entered[Side.RIGHT]), [])
        self.last_silence = self.places[last].protocol.state.silence

    def forward(self, place: int, group: Group) -> None:
        self.run(place, [self.places[place].protocol.forward(group, 1)], [])

    def balance(self, place: int) -> None:
        self.run(place, self.places[place].protocol.balance(), [])

    @property
    def ways(self) -> list[tuple[int, int]]:
        return sorted(way for way, queue in self.channels.items() if queue)

    @property
    def loads(self) -> list[int]:
        return [place.protocol.load for place in self.places]


def steps(chain: Chain, n: tuple[int, int], silences: int, has_expiry: bool):
    """Yield everything that can happen next, as (method, arguments)."""
    for way in chain.ways:
        yield Chain.deliver, (way,)
    for side in Side:
        if chain.entered[side] < n[side]:
            yield Chain.enter, (side,)
    is_over = tuple(chain.entered) == n
    for number, place in enumerate(chain.places):
        for side in Side:
            for group in place.protocol.list_movable(side):
                yield Chain.forward, (number, group)
        for group, tuples in place.groups.items():
            if has_expiry and is_over and tuples:
                yield Chain.expire, (number, group)
    if chain.places[-1].protocol.state.silence < silences:
        yield Chain.fall_silent, ()


def is_settled(chain: Chain, n: tuple[int, int]) -> bool:
    """Whether a silence has passed all workers, and all its probes have arrived, since the last tuple
    entered."""
    silences = {place.protocol.state.silence for place in chain.places}
    return not chain.ways and tuple(chain.entered) == n and silences == {chain.last_silence}


def explore(n_workers: int, n: tuple[int, int], silences: int, has_expiry: bool) -> tuple[int, int]:
    """Explore every order of events. In final states and after settled silences, all pairs must have met.

    Returns the number of states and the number of settled states.
    """
    every = {(r, s): 1 for r in range(n[0]) for s in range(n[1])}
    seen, settled = set(), 0
    todo = [Chain(n_workers)]
    while todo:
        chain = todo.pop()
        key = chain.key()
        if key in seen:
            continue
        seen.add(key)
        found = list(steps(chain, n, silences, has_expiry))
        if not found or is_settled(chain, n):
            assert chain.met == every
            settled += 1
        frozen = pickle.dumps(chain)
        for method, arguments in found:
            then = pickle.loads(frozen)
            method(then, *arguments)
            todo.append(then)
    return len(seen), settled


ORDERS = [
    (2, (1, 1), 2, False),
    (2, (1, 1), 1, True),
    (2, (2, 1), 1, False),
    (2, (1, 2), 1, False),
]
MORE = [(2, (2, 2), 1, False), (2, (1, 2), 2, True), (3, (1, 1), 1, False), (3, (1, 1), 1, True)]


@pytest.mark.parametrize("case", ORDERS, ids=repr)
def test_pairs_meet_once_in_every_order(case) -> None:
    n_states, settled = explore(*case)
    assert settled > 10
    assert n_states > 300


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE, ids=repr)
def test_pairs_meet_once_in_every_order_of_more(case) -> None:
    assert explore(*case)[0] > 5_000


@pytest.mark.parametrize("phase", ["copies", "crossing", "skipping"])
def test_the_search_finds_a_protocol_that_is_wrong(monkeypatch, phase: str) -> None:
    """Without copies, tuples miss each other, and also without the check for crossed silences.

    Without numbers, tuples meet twice.
    """
    if phase == "copies":
        forward = Protocol.forward
        monkeypatch.setattr(Protocol, "forward", lambda *a: replace(forward(*a), is_copied=False))
        receive = Protocol.receive
        monkeypatch.setattr(
            Protocol, "receive", lambda *a: (i for i in receive(*a) if not isinstance(i, Drop))
        )
    elif phase == "crossing":
        move = Protocol._move_right
        monkeypatch.setattr(
            Protocol, "_move_right", lambda self, header, n: move(self, replace(header, silence=99), n)
        )
    else:
        monkeypatch.setattr(Protocol, "_move_left", lambda self, n: forgetful(self, n))
    with pytest.raises(AssertionError):
        wander_for_long()


def forgetful(protocol: Protocol, n: int):
    """Let S join again with tuples that it has met through a silence."""
    yield Join(Side.RIGHT, 0)
    yield protocol._store(Group.S, n)
    yield Send(protocol._place + 1, AckBlk(Side.RIGHT))


def settle(chain: Chain) -> None:
    """Balance loads and deliver all letters until no worker sends another letter."""
    while True:
        for place in range(len(chain.places)):
            chain.balance(place)
        if not chain.ways:
            return
        for way in chain.ways:
            while chain.channels[way]:
                chain.deliver(way)


def wander(seed: int) -> None:
    """Run random events in a random order on a longer chain, then a silence. Then all pairs must have met."""
    random = np.random.default_rng(seed)
    n_workers, n = int(random.integers(1, 6)), (int(random.integers(0, 7)), int(random.integers(0, 7)))
    chain = Chain(n_workers, int(random.integers(0, 3)), int(random.integers(1, 4)))
    for _ in range(400):
        found = [*steps(chain, n, 3, has_expiry=bool(seed % 2))]
        found += [(Chain.balance, (place,)) for place in range(n_workers)]
        method, arguments = found[random.integers(len(found))]
        method(chain, *arguments)
    for side in Side:
        if chain.entered[side] < n[side]:
            chain.enter(side, n[side] - chain.entered[side])
    settle(chain)
    chain.fall_silent()
    settle(chain)
    assert chain.met == {(r, s): 1 for r in range(n[0]) for s in range(n[1])}
    assert not any(place.copies or place.protocol.phase(side) for place in chain.places for side in Side)


def wander_for_long() -> None:
    for seed in range(200):
        wander(seed)


@pytest.mark.parametrize("seed", range(60))
def test_random_orders_of_longer_chains(seed: int) -> None:
    wander(seed)


@pytest.mark.parametrize(("n_workers", "threshold", "block"), [(2, 0, 1), (4, 3, 2), (5, 10, 7), (8, 0, 3)])
def test_loads_of_neighbours_differ_by_threshold_and_block_at_most(n_workers, threshold, block) -> None:
    chain = Chain(n_workers, threshold, block)
    random = np.random.default_rng(n_workers)
    for _ in range(20):
        n = int(random.integers(1, 15))
        for side in Side:
            chain.enter(side, n)
        settle(chain)
        for left, right in pairwise(chain.places):
            excess = left.protocol.load - right.protocol.load
            # Only the stream that moves towards the worker with the smaller load can balance the loads.
            candidates = (
                left.protocol.list_movable(Side.LEFT)
                if excess > 0
                else right.protocol.list_movable(Side.RIGHT)
            )
            assert abs(excess) <= threshold + block or not candidates
        assert np.abs(np.diff(chain.loads)).max() <= threshold + block
    assert sum(chain.loads) == sum(chain.entered)


def test_a_worker_knows_loads_by_what_it_is_told() -> None:
    """Nothing moves before a neighbour has reported a smaller load. A block in flight counts as the
    neighbour's."""
    worker = Protocol(0, 2, threshold=2, block=4, state=ProtocolState(loads=[0, 5]))
    list(worker.enter(Side.LEFT, 7))
    assert [type(step.header) for step in worker.balance()] == [SizeChg]
    list(worker.receive(SizeChg(1, 0)))
    (forward, told) = worker.balance()
    assert (forward.header, forward.taken) == (TupleBlk(Group.FRESH), 4)
    assert told.header == SizeChg(0, 3)
    assert worker.phase(Side.LEFT) is Phase.FORWARDING
    assert list(worker.balance()) == []
    list(worker.receive(AckBlk(Side.LEFT)))
    assert worker.phase(Side.LEFT) is Phase.PROCESSING


def test_silence_asks_only_for_what_has_not_met() -> None:
    worker = Protocol(0, 2, 0, 1, ProtocolState())
    list(worker.enter(Side.LEFT, 3))
    (sent, _) = worker.receive(Silence(1, 8))
    assert (sent.header.first, sent.header.end, sent.group, sent.taken) == (0, 8, Group.FRESH, None)
    list(worker.enter(Side.LEFT, 1))
    probed, fresh, _ = worker.receive(Silence(2, 9))
    assert (probed.group, probed.header.first, probed.header.end) == (Group.PROBED, 8, 9)
    assert (fresh.group, fresh.header.first, fresh.header.end) == (Group.FRESH, 0, 9)
    assert [type(step) for step in worker.receive(Silence(3, 9))] == [MarkProbed]
