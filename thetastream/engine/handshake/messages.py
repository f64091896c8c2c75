"""Letters: the messages between neighbours on the handshake chain, with a typed header.

When a letter becomes a message of the engine protocol, its header becomes a line of JSON that begins with the
name of the header in ESJ.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import NamedTuple

import pyarrow as pa

from thetastream.core.sides import Side
from thetastream.engine import inbox
from thetastream.engine.handshake.instructions import (
    Ack,
    AckBlk,
    Group,
    LetterHeader,
    Silence,
    SizeChg,
    Tuple,
    TupleBlk,
)

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
