"""Packs the messages of a unit, addresses them and puts them into the query's mailbox."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from thetastream.core.blocks import pack
from thetastream.core.columns import ANNOUNCEMENT, MESSAGE
from thetastream.core.identity import Identity
from thetastream.engine.inbox import Message
from thetastream.runtime.mailbox.files import Mailbox, Row, rows

BYTES_PER_PAGE = 1 << 26
"""Maximum size of a batch of messages, because an Arrow array holds 2 GiB. A larger message is a batch of its
own."""


def post(
    box: Mailbox,
    query: Identity,
    epoch: int,
    slot: int,
    messages: Sequence[Message],
    is_waiting: bool,
    keys: Sequence[int],
) -> int:
    """Send a unit's messages of an epoch; return their size in bytes.

    Parameters
    ----------
    box : Mailbox
    query : Identity
        The query to which the mailbox must belong. The worker checks this on the folder that it sees.
    epoch, slot : int
        Number of the epoch, and number of the unit that sends.
    messages : sequence of Message
    is_waiting : bool
        Whether another epoch is needed even if no message is sent.
    keys : sequence of int
        The grouping key of each unit.

    Raises
    ------
    StateError
        The errors of ``Mailbox.check``.
    """
    box.check(query)
    batches = list(list_pages(messages, slot, keys))
    if is_waiting and not batches:
        batches = [rows([Row(0, 0, None, b"", [(key, ANNOUNCEMENT) for key in keys])])]
    return box.post(epoch, slot, batches)


def list_pages(messages: Sequence[Message], slot: int, keys: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Write messages as rows of the mailbox, in batches of limited size."""
    page: list[Row] = []
    nbytes = 0
    for number, message in enumerate(messages):
        block = b"" if message.block is None else pack(message.block)
        if page and nbytes + len(block) > BYTES_PER_PAGE:
            yield rows(page)
            page, nbytes = [], 0
        to = keys if message.to is None else [keys[message.to]]
        page.append(Row(0, slot << 32 | number, message.header, block, [(key, MESSAGE) for key in to]))
        nbytes += len(block)
    if page:
        yield rows(page)
