"""MP-2PF, message-passing two-phase forwarding: how neighbours on a handshake chain forward tuples.

R enters at worker 0 and moves right. S enters at worker k - 1 and moves left. A tuple that arrives at a
worker joins with the tuples of the other stream there. Therefore r and s have met exactly if r is at the
worker of s or further right, and each pair meets once (Teubner and Mueller, SIGMOD 2011; ESJ replaces shared
memory by messages).

*Crossing.* Two tuples in flight towards each other would miss each other. Therefore S moves in two phases: a
forwarded tuple stays at its worker as a copy, and keeps joining, until the next worker has acknowledged it.
The ACK travels in the channel of R, after every r that left before s arrived. So each of these r finds the
copy, and no r after the ACK does. R needs no copies: an r that left worker i before s arrived there meets the
copy of s.

*Load.* A worker forwards a block if and only if its load, in tuples, exceeds the load of its successor by
more than the threshold. It knows the load of a neighbour only from SIZE_CHG. Blocks that are not acknowledged
count towards the load of the neighbour.

*Completeness.* An expired tuple passes the rest of the chain as a probe (TUPLE) and leaves the chain at its
end. An expired s also leaves copies on its way. When both streams have paused, SILENCE travels from right to
left. Each R that it passes stays where it is, and is also sent to the right as a probe. The probe joins with
the S from a certain number on: the first S that this R has not met through an earlier silence. When these S
arrive at the R later, they are skipped.

Messages between two neighbours arrive in the order in which they were sent. There is no other guarantee of
order. This module is pure: it turns events into instructions, and the caller applies the instructions to the
tuples.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from thetastream.core.sides import Side
from thetastream.engine.handshake.instructions import (
    Ack,
    AckBlk,
    Drop,
    Group,
    Instruction,
    Join,
    LetterHeader,
    MarkProbed,
    Send,
    Silence,
    SizeChg,
    StoreTuples,
    Tuple,
    TupleBlk,
)


@dataclass
class ProtocolState:
    """The state of the protocol at one worker, in plain values."""

    held: list[int] = field(default_factory=lambda: [0, 0, 0])
    """The number of stored tuples in each group."""
    loads: list[int] = field(default_factory=lambda: [0, 0])
    """The last known loads of the left and of the right neighbour."""
    told: list[int] = field(default_factory=lambda: [0, 0])
    """The load that this worker last sent to its left and to its right neighbour."""
    unacked: list[list[int]] = field(default_factory=lambda: [[], []])
    """For each stream, the sizes of the blocks that are not acknowledged, oldest first."""
    silence: int = 0
    """The number of the last silence."""
    n_met: int = 0
    """The R of PROBED have met, through silences, all S whose numbers are smaller than this."""


class Phase(IntEnum):
    """The phase of a worker for one stream."""

    PROCESSING = 0
    """All blocks that the worker sent are acknowledged."""
    FORWARDING = 1
    """Some blocks that the worker sent are not acknowledged."""


class Protocol:
    """The protocol at one worker.

    Parameters
    ----------
    place, n_workers : int
        The place of this worker, counted from the left, and the number of workers.
    threshold, block : int
        The load difference above which the worker forwards, and the size of a block, in tuples.
    state : ProtocolState
        The state after the previous event. It is changed in place.
    """

    def __init__(self, place: int, n_workers: int, threshold: int, block: int, state: ProtocolState) -> None:
        self._place = place
        self._last = n_workers - 1
        self._threshold = threshold
        self._block = block
        self.state = state

    @property
    def load(self) -> int:
        """The number of tuples stored at this worker, without copies."""
        return sum(self.state.held)

    def phase(self, side: Side) -> Phase:
        """Return the phase of the worker for a stream.

        ESJ's third phase, deleting, is the moment between an ACK and its Drop.
        """
        return Phase.FORWARDING if self.state.unacked[side] else Phase.PROCESSING

    # Events

    def enter(self, side: Side, n: int) -> Iterator[Instruction]:
        """Handle ``n`` new tuples of a stream, which enter at this end of the chain."""
        group = Group.FRESH if side is Side.LEFT else Group.S
        yield Join(side, 0 if side is Side.LEFT else self.state.n_met)
        yield self._store(group, n)

    def receive(self, header: LetterHeader, n: int = 0) -> Iterator[Instruction]:
        """Handle a letter of a neighbour that carries ``n`` tuples."""
        match header:
            case TupleBlk(Group.S):
                yield from self._move_left(n)
            case TupleBlk():
                yield from self._move_right(header, n)
            case Tuple(Side.LEFT):
                yield Join(Side.LEFT, header.first, header.end)
                yield from self._pass_right(header)
            case Tuple():
                yield Join(Side.RIGHT, self.state.n_met)
                yield from self._pass_left()
                yield Send(self._place + 1, Ack())
            case AckBlk(side):
                self.state.unacked[side].pop(0)
                if side is Side.RIGHT:
                    yield Drop()
            case Ack():
                self.state.unacked[Side.RIGHT].pop(0)
                yield Drop()
            case SizeChg(place, load):
                self.state.loads[place > self._place] = load
            case Silence(number, n_right):
                yield from self.fall_silent(n_right, number)

    def expire(self, group: Group, n: int) -> Iterator[Instruction]:
        """Handle ``n`` expired tuples of a group. They are no longer stored; they are the tuples of this
        event."""
        self.state.held[group] -= n
        if group is Group.S:
            yield from self._pass_left()
        else:
            yield from self._pass_right(Tuple(Side.LEFT, self._first(group)))

    def fall_silent(self, n_right: int, number: int | None = None) -> Iterator[Instruction]:
        """Handle a silence. The right end of the chain notices it; the other workers receive a letter."""
        state = self.state
        number = state.silence + 1 if number is None else number
        for group in (Group.PROBED, Group.FRESH):
            first = self._first(group)
            if state.held[group] and first < n_right and self._place < self._last:
                yield Send(self._place + 1, Tuple(Side.LEFT, first, n_right), group=group)
        state.held[Group.PROBED] += state.held[Group.FRESH]
        state.held[Group.FRESH] = 0
        state.silence, state.n_met = number, n_right
        yield MarkProbed()
        if self._place:
            yield Send(self._place - 1, Silence(number, n_right))

    def balance(self) -> Iterator[Instruction]:
        """Forward blocks to neighbours with smaller loads, and send the load of this worker to both
        neighbours."""
        state = self.state
        for side in Side:
            while group := self.list_movable(side):
                theirs = state.loads[side is Side.LEFT] + sum(state.unacked[side])
                excess = self.load - theirs
                if excess <= self._threshold:
                    break
                # Half of the difference makes the loads equal, so a block is not larger than that.
                yield self.forward(group[0], min(self._block, state.held[group[0]], (excess + 1) // 2))
        for neighbour in (self._place - 1, self._place + 1):
            yield from self._tell_load(neighbour)

    def list_movable(self, side: Side) -> list[Group]:
        """List the groups of a stream from which this worker can forward tuples."""
        if self._place == (self._last if side is Side.LEFT else 0):
            return []
        return [group for group in Group if group.side is side and self.state.held[group]]

    def forward(self, group: Group, n: int) -> Send:
        """Forward ``n`` tuples of a group to the next worker."""
        state, side = self.state, group.side
        state.held[group] -= n
        state.unacked[side].append(n)
        header = TupleBlk(group, state.silence, self._first(group))
        to = self._place + (1 if side is Side.LEFT else -1)
        return Send(to, header, group=group, taken=n, is_copied=side is Side.RIGHT)

    # Steps

    def _move_right(self, header: TupleBlk, n: int) -> Iterator[Instruction]:
        state = self.state
        yield Join(Side.LEFT, header.first)
        group = header.group
        if header.silence < state.silence:  # the block crossed the silence, so these R send their probes here
            if header.first < state.n_met:
                yield from self._pass_right(Tuple(Side.LEFT, header.first, state.n_met))
            group = Group.PROBED
        yield self._store(group, n)
        yield from self._tell_load(self._place - 1)
        yield Send(self._place - 1, AckBlk(Side.LEFT))

    def _move_left(self, n: int) -> Iterator[Instruction]:
        yield Join(Side.RIGHT, self.state.n_met)
        yield self._store(Group.S, n)
        yield from self._tell_load(self._place + 1)
        yield Send(self._place + 1, AckBlk(Side.RIGHT))

    def _pass_right(self, header: Tuple) -> Iterator[Instruction]:
        if self._place < self._last:
            yield Send(self._place + 1, header, has_event=True)

    def _pass_left(self) -> Iterator[Instruction]:
        if self._place:
            self.state.unacked[Side.RIGHT].append(0)
            yield Send(self._place - 1, Tuple(Side.RIGHT), has_event=True, is_copied=True)

    def _store(self, group: Group, n: int) -> StoreTuples:
        self.state.held[group] += n
        return StoreTuples(group)

    def _first(self, group: Group) -> int:
        return self.state.n_met if group is Group.PROBED else 0

    def _tell_load(self, neighbour: int) -> Iterator[Instruction]:
        side = neighbour > self._place
        if 0 <= neighbour <= self._last and self.state.told[side] != self.load:
            self.state.told[side] = self.load
            yield Send(neighbour, SizeChg(self._place, self.load))
