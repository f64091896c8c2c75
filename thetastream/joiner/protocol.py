"""MP-2PF, message-passing two-phase forwarding: how neighbours on a handshake chain hand tuples on.

R enters at worker 0 and moves right, S at worker k - 1 and moves left. A tuple that arrives at a worker meets
the other stream's tuples there. So r and s have met exactly if r is where s is, or further right, and each
pair meets once (Teubner and Mueller, SIGMOD 2011; ESJ makes it messages).

*Crossing.* Two tuples in flight towards each other would miss. S therefore moves in two phases: a forwarded
tuple stays at its worker as a copy, and keeps joining, until the next worker has acknowledged it. The ACK
runs in the channel of R, behind every r that left before s arrived, so each of those finds the copy, and no
r behind the ACK does. R needs no copies: an r that left worker i before s arrived there meets the copy of s.

*Load.* A worker forwards a block if and only if its load, in tuples, exceeds its successor's by more than the
threshold. It knows a neighbour's load by SIZE_CHG alone; blocks without an ACK count as that neighbour's.

*Completeness.* A tuple that has expired passes the rest of the chain as a probe (TUPLE) and leaves at its
end; S leave copies then too. When both streams have fallen silent SILENCE runs from right to left,
and the R that it passes travel as probes, though they stay as well: each meets the S on its right by number,
from the first that it has not met so, and skips those when they come by later.

Messages between two neighbours arrive in the order they were sent; nothing else is ordered. This module
is pure: events go in, instructions come out, tuples are somebody else's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from thetastream.types import Side


class Group(IntEnum):
    """Stored tuples of a worker."""

    FRESH = 0
    """R that no silence has passed."""
    PROBED = 1
    """R that have met every S up to the last silence, wherever on the chain that is."""
    S = 2

    @property
    def side(self) -> Side:
        """Whose tuples."""
        return Side.RIGHT if self is Group.S else Side.LEFT


# Messages


@dataclass(frozen=True)
class TupleBlk:
    """TUPLE_BLK: stored tuples move on to the next worker."""

    group: Group
    silence: int = 0
    """The last silence the sender had seen."""
    first: int = 0
    """Number of the first S that these R have not met by a silence."""


@dataclass(frozen=True)
class Tuple:
    """TUPLE: tuples pass the rest of the chain as probes; R meet the S from number ``first`` to ``end``."""

    side: Side
    first: int = 0
    end: int | None = None


@dataclass(frozen=True)
class AckBlk:
    """ACK_BLK: the oldest block of ``side`` without an acknowledgement has arrived."""

    side: Side


@dataclass(frozen=True)
class Ack:
    """ACK: so has the oldest TUPLE of S."""


@dataclass(frozen=True)
class SizeChg:
    """SIZE_CHG: the worker at ``place`` now stores ``load`` tuples."""

    place: int
    load: int


@dataclass(frozen=True)
class Silence:
    """Nothing has come lately: the ``number``-th time, after ``n_right`` tuples of S."""

    number: int
    n_right: int


Message = TupleBlk | Tuple | AckBlk | Ack | SizeChg | Silence


# Instructions


@dataclass(frozen=True)
class Join:
    """The event's tuples meet the other stream's: R the S, stored and copied, from number ``first`` to
    ``end``; S all FRESH, and PROBED if their own number is ``first`` or more."""

    side: Side
    first: int
    end: int | None = None


@dataclass(frozen=True)
class Store:
    """The event's tuples are stored."""

    group: Group


@dataclass(frozen=True)
class Send:
    """A message goes to a neighbour: with the event's tuples, with ``taken`` of a group, or with none."""

    to: int
    message: Message
    has_event: bool = False
    group: Group | None = None
    taken: int | None = None
    """How many leave the group; None: all are sent and stay."""
    is_copied: bool = False
    """Whether what is sent stays as a copy, newest of all copies."""


@dataclass(frozen=True)
class Drop:
    """The oldest copies of S go."""


@dataclass(frozen=True)
class Mark:
    """FRESH become PROBED."""


Instruction = Join | Store | Send | Drop | Mark


@dataclass
class Remembered:
    """What a worker knows besides its tuples; plain values."""

    held: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Stored tuples by group."""
    loads: list[int] = field(default_factory=lambda: [0, 0])
    """What the left and the right neighbour said last."""
    told: list[int] = field(default_factory=lambda: [0, 0])
    """What was said to them."""
    unacked: list[list[int]] = field(default_factory=lambda: [[], []])
    """Per stream the sizes of blocks, oldest first, that are not acknowledged."""
    silence: int = 0
    n_met: int = 0
    """S that PROBED have met by silences: those with a smaller number."""


class Phase(IntEnum):
    """Of a worker, towards one neighbour."""

    PROCESSING = 0
    FORWARDING = 1
    """Something it sent is not acknowledged."""


class Protocol:
    """One worker's part.

    Parameters
    ----------
    place, n_workers : int
        Which worker this is, from the left, of how many.
    threshold, block : int
        In tuples.
    state : Remembered
        From the event before; changed in place.
    """

    def __init__(self, place: int, n_workers: int, threshold: int, block: int, state: Remembered) -> None:
        self._place = place
        self._last = n_workers - 1
        self._threshold = threshold
        self._block = block
        self.state = state

    @property
    def load(self) -> int:
        """Tuples stored here, copies aside."""
        return sum(self.state.held)

    def phase(self, side: Side) -> Phase:
        """What a worker is doing for a stream; deleting is the moment between an ACK and its Drop."""
        return Phase.FORWARDING if self.state.unacked[side] else Phase.PROCESSING

    # Events

    def enter(self, side: Side, n: int) -> Iterator[Instruction]:
        """``n`` new tuples of a stream, at its end of the chain."""
        group = Group.FRESH if side is Side.LEFT else Group.S
        yield Join(side, 0 if side is Side.LEFT else self.state.n_met)
        yield self._stored(group, n)

    def receive(self, message: Message, n: int = 0) -> Iterator[Instruction]:
        """A message of a neighbour, with ``n`` tuples."""
        match message:
            case TupleBlk(Group.S):
                yield from self._move_left(n)
            case TupleBlk():
                yield from self._move_right(message, n)
            case Tuple(Side.LEFT):
                yield Join(Side.LEFT, message.first, message.end)
                yield from self._pass_right(message)
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
        """``n`` tuples of a group have expired: they are no longer stored, they are the event's."""
        self.state.held[group] -= n
        if group is Group.S:
            yield from self._pass_left()
        else:
            yield from self._pass_right(Tuple(Side.LEFT, self._first(group)))

    def fall_silent(self, n_right: int, number: int | None = None) -> Iterator[Instruction]:
        """Nothing comes any more: at the right end by itself, elsewhere by message."""
        state = self.state
        number = state.silence + 1 if number is None else number
        for group in (Group.PROBED, Group.FRESH):
            first = self._first(group)
            if state.held[group] and first < n_right and self._place < self._last:
                yield Send(self._place + 1, Tuple(Side.LEFT, first, n_right), group=group)
        state.held[Group.PROBED] += state.held[Group.FRESH]
        state.held[Group.FRESH] = 0
        state.silence, state.n_met = number, n_right
        yield Mark()
        if self._place:
            yield Send(self._place - 1, Silence(number, n_right))

    def balance(self) -> Iterator[Instruction]:
        """Forward as the loads of the neighbours ask for, and tell them of this one's."""
        state = self.state
        for side in Side:
            while group := self.movable(side):
                theirs = state.loads[side is Side.LEFT] + sum(state.unacked[side])
                excess = self.load - theirs
                if excess <= self._threshold:
                    break
                # No more than evens them out.
                yield self.forward(group[0], min(self._block, state.held[group[0]], (excess + 1) // 2))
        for neighbour in (self._place - 1, self._place + 1):
            yield from self._told(neighbour)

    def movable(self, side: Side) -> list[Group]:
        """The groups of a stream that have tuples, if there is a worker to move them to."""
        if self._place == (self._last if side is Side.LEFT else 0):
            return []
        return [group for group in Group if group.side is side and self.state.held[group]]

    def forward(self, group: Group, n: int) -> Send:
        """``n`` tuples of a group move on."""
        state, side = self.state, group.side
        state.held[group] -= n
        state.unacked[side].append(n)
        header = TupleBlk(group, state.silence, self._first(group))
        to = self._place + (1 if side is Side.LEFT else -1)
        return Send(to, header, group=group, taken=n, is_copied=side is Side.RIGHT)

    # Steps

    def _move_right(self, message: TupleBlk, n: int) -> Iterator[Instruction]:
        state = self.state
        yield Join(Side.LEFT, message.first)
        group = message.group
        if message.silence < state.silence:  # it has crossed the silence, and does here what that asked for
            if message.first < state.n_met:
                yield from self._pass_right(Tuple(Side.LEFT, message.first, state.n_met))
            group = Group.PROBED
        yield self._stored(group, n)
        yield from self._told(self._place - 1)
        yield Send(self._place - 1, AckBlk(Side.LEFT))

    def _move_left(self, n: int) -> Iterator[Instruction]:
        yield Join(Side.RIGHT, self.state.n_met)
        yield self._stored(Group.S, n)
        yield from self._told(self._place + 1)
        yield Send(self._place + 1, AckBlk(Side.RIGHT))

    def _pass_right(self, message: Tuple) -> Iterator[Instruction]:
        if self._place < self._last:
            yield Send(self._place + 1, message, has_event=True)

    def _pass_left(self) -> Iterator[Instruction]:
        if self._place:
            self.state.unacked[Side.RIGHT].append(0)
            yield Send(self._place - 1, Tuple(Side.RIGHT), has_event=True, is_copied=True)

    def _stored(self, group: Group, n: int) -> Store:
        self.state.held[group] += n
        return Store(group)

    def _first(self, group: Group) -> int:
        return self.state.n_met if group is Group.PROBED else 0

    def _told(self, neighbour: int) -> Iterator[Instruction]:
        side = neighbour > self._place
        if 0 <= neighbour <= self._last and self.state.told[side] != self.load:
            self.state.told[side] = self.load
            yield Send(neighbour, SizeChg(self._place, self.load))
