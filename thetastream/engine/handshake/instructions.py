"""The instructions of MP-2PF, the headers of the letters that they send, and the groups of stored tuples.

``protocol.py`` decides which instructions follow from an event.
"""

from dataclasses import dataclass
from enum import IntEnum

from thetastream.core.sides import Side


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
