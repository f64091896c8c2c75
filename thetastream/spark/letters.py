"""Letters between the workers of a handshake chain, as rows of a mailbox.

A message without tuples is a line of JSON; with tuples it is an Arrow stream whose schema carries that line.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple

import pyarrow as pa

from thetastream.blocks import pack, unpack
from thetastream.joiner.handshake import Letter
from thetastream.joiner.protocol import Ack, AckBlk, Group, Message, Silence, SizeChg, Tuple, TupleBlk
from thetastream.spark.mailbox import pages
from thetastream.types import Side

WORDS, BLOCK = 2, 3
"""Kinds of rows: a message alone, and one with tuples."""
_FORMS: dict[str, Callable[..., Message]] = {
    "TUPLE_BLK": lambda group, *rest: TupleBlk(Group(group), *rest),
    "TUPLE": lambda side, *rest: Tuple(Side(side), *rest),
    "ACK_BLK": lambda side: AckBlk(Side(side)),
    "ACK": Ack,
    "SIZE_CHG": SizeChg,
    "SILENCE": Silence,
}
_NAMES: dict[type[Message], str] = {
    TupleBlk: "TUPLE_BLK",
    Tuple: "TUPLE",
    AckBlk: "ACK_BLK",
    Ack: "ACK",
    SizeChg: "SIZE_CHG",
    Silence: "SILENCE",
}
_HEADER = b"message"


def sealed(letter: Letter) -> tuple[int, bytes]:
    """Kind and bytes of a letter.

    >>> sealed(Letter(SizeChg(1, 70)))
    (2, b'["SIZE_CHG", 1, 70]')
    """
    text = json.dumps([_NAMES[type(letter.message)], *astuple(letter.message)]).encode()
    if letter.block is None:
        return WORDS, text
    return BLOCK, pack(letter.block.replace_schema_metadata({_HEADER: text}))


def opened(kind: int, data: bytes) -> Letter:
    """Inverse of ``sealed``.

    >>> opened(*sealed(Letter(AckBlk(Side.RIGHT))))
    Letter(message=AckBlk(side=<Side.RIGHT: 1>), block=None)
    """
    block = unpack(data) if kind == BLOCK else None
    text = data if block is None else block.schema.metadata[_HEADER]
    name, *fields = json.loads(text)
    return Letter(_FORMS[name](*fields), None if block is None else block.replace_schema_metadata(None))


def posted(place: int, sent: Sequence[tuple[int, Letter]], keys: Sequence[int]) -> list[pa.RecordBatch]:
    """A worker's letters as rows for its neighbours, in their order; ``keys`` stand for the workers."""
    rows, to = [], []
    for number, (neighbour, letter) in enumerate(sent):
        kind, data = sealed(letter)
        rows.append((int(place > neighbour), kind, number, data))
        to.append(keys[neighbour])
    return pages(rows, to)
