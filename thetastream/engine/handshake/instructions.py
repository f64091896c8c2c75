"""The instructions of MP-2PF, the letters that they send, and the groups of stored tuples.

A letter is a message between neighbours on the handshake chain, with a typed header. When it becomes a
message of the engine protocol, its header becomes a line of JSON that begins with the name of the header in
ESJ. ``protocol.py`` decides which instructions follow from an event.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from thetastream.core.sides import Side
from thetastream.engine import inbox


class Group(IntEnum):
    """The groups of tuples that a worker stores."""

    FRESH = 0
    """R that have arrived since the last silence."""
    PROBED = 1
    """R that have met every S that entered the chain before the last silence, wherever on the chain it is."""
    S = 2
    """All S."""

    @property
    def side(self) -> Side:
        """The side that the tuples of the group belong to."""
        return Side.RIGHT if self is Group.S else Side.LEFT


# Headers of letters


@dataclass(frozen=True)
class TupleBlk:
    """TUPLE_BLK: the stored tuples of this letter move to the next worker."""

    group: Group
    silence: int = 0
    """The number of the last silence that had passed the sender."""
    first: int = 0
    """The number of the first S that these R have not met through a silence."""


@dataclass(frozen=True)
class Tuple:
    """TUPLE: the tuples of this letter pass the rest of the chain as probes.

    R meet the S with the numbers from ``first`` up to, not including, ``end``.
    """

    side: Side
    first: int = 0
    end: int | None = None


@dataclass(frozen=True)
class AckBlk:
    """ACK_BLK: it acknowledges the oldest block of ``side`` that was not acknowledged."""

    side: Side


@dataclass(frozen=True)
class Ack:
    """ACK: it acknowledges the oldest TUPLE of S that was not acknowledged."""


@dataclass(frozen=True)
class SizeChg:
    """SIZE_CHG: the worker at ``place`` now stores ``load`` tuples."""

    place: int
    load: int


@dataclass(frozen=True)
class Silence:
    """SILENCE: both streams have paused, for the ``number``-th time, after ``n_right`` tuples of S."""

    number: int
    n_right: int


LetterHeader = TupleBlk | Tuple | AckBlk | Ack | SizeChg | Silence
_FORMS: dict[str, Callable[..., LetterHeader]] = {
    "TUPLE_BLK": lambda group, *rest: TupleBlk(Group(group), *rest),
    "TUPLE": lambda side, *rest: Tuple(Side(side), *rest),
    "ACK_BLK": lambda side: AckBlk(Side(side)),
    "ACK": Ack,
    "SIZE_CHG": SizeChg,
    "SILENCE": Silence,
}
_NAMES: dict[type[LetterHeader], str] = {
    TupleBlk: "TUPLE_BLK",
    Tuple: "TUPLE",
    AckBlk: "ACK_BLK",
    Ack: "ACK",
    SizeChg: "SIZE_CHG",
    Silence: "SILENCE",
}


# Instructions


@dataclass(frozen=True)
class Join:
    """The tuples of the event join with tuples of the other stream at this worker.

    R join with the S, copies included, that have the numbers from ``first`` up to, not including, ``end``. S
    join with all FRESH; those whose number is ``first`` or more also join with PROBED.
    """

    side: Side
    first: int
    end: int | None = None


@dataclass(frozen=True)
class StoreTuples:
    """The tuples of the event are stored in a group."""

    group: Group


@dataclass(frozen=True)
class Send:
    """A letter is sent to a neighbour with the tuples of the event, with tuples of a group, or without
    tuples."""

    to: int
    header: LetterHeader
    has_event: bool = False
    group: Group | None = None
    taken: int | None = None
    """How many tuples leave the group. None means that all tuples of the group are sent and stay stored."""
    is_copied: bool = False
    """Whether the worker keeps the sent tuples as a copy, the newest of its copies."""


@dataclass(frozen=True)
class Drop:
    """The oldest copies of S are dropped."""


@dataclass(frozen=True)
class MarkProbed:
    """The tuples of FRESH move to PROBED."""


Instruction = Join | StoreTuples | Send | Drop | MarkProbed


def needs_tuples(step: Instruction) -> bool:
    """Whether an instruction may need the tuples of the event. All do, except letters that carry no
    tuples."""
    return not isinstance(step, Send) or step.has_event


class HandshakeMessage(NamedTuple):
    """A message of the handshake protocol: its header, and the tuples that it carries."""

    header: LetterHeader
    block: pa.RecordBatch | None = None

    @property
    def n_rows(self) -> int:
        """The number of tuples that the letter carries."""
        return 0 if self.block is None else int(self.block.num_rows)

    def to_message(self, to: int) -> inbox.Message:
        """Convert the letter to a message to the worker at place ``to``.

        >>> HandshakeMessage(SizeChg(1, 70)).to_message(2).header
        '["SIZE_CHG", 1, 70]'
        """
        header = json.dumps([_NAMES[type(self.header)], *astuple(self.header)])
        return inbox.Message(header, self.block, to)

    @classmethod
    def from_message(cls, message: inbox.Message) -> "HandshakeMessage":
        """Convert a message back to a letter.

        >>> HandshakeMessage.from_message(HandshakeMessage(AckBlk(Side.RIGHT)).to_message(0))
        HandshakeMessage(header=AckBlk(side=<Side.RIGHT: 1>), block=None)
        """
        name, *fields = json.loads(message.header)
        return cls(_FORMS[name](*fields), message.block)


def sort_letters(
    messages: Sequence[inbox.Message], place: int, slots: Sequence[int]
) -> tuple[list[HandshakeMessage], list[HandshakeMessage]]:
    """Return the letters of the left and of the right neighbour of the worker at ``place``.

    ``slots`` has the slot of each worker of the chain.
    """
    left: list[HandshakeMessage] = []
    right: list[HandshakeMessage] = []
    for message in messages:
        (right if slots.index(message.sender) > place else left).append(
            HandshakeMessage.from_message(message)
        )
    return left, right
