"""What the mailbox tells each unit about the messages of an epoch, and what a unit concludes from it.

The driver lists the files of an epoch after the epoch is committed. A file that is lost before is in no
offset, and nobody else would miss it. But the unit that wrote it has noted in its state that it sent
messages. Therefore it refuses the epoch without them, before that epoch is committed. Routers call all units
of a query with messages in each epoch, so that no unit overlooks the loss.
"""

import json
from typing import NamedTuple

from thetastream.core.addresses import hide_secrets
from thetastream.core.errors import StateError
from thetastream.runtime.state.manifest import Manifest

_REPEAT = (
    "remove the newest offset from the checkpoint (offsets/N with the largest N, and its .N.crc), and start "
    "again"
)
"""What makes Spark ask the source again which messages an epoch reads. On Spark Connect, N may be unknown."""


class Announcement(NamedTuple):
    """What the mailbox announces: the messages that it delivers in an epoch."""

    mailbox: str
    """The name of the mailbox."""
    epoch: int
    """The epoch in which the messages were sent."""
    senders: list[int]
    """The slots of the units that sent them."""

    @classmethod
    def read(cls, header: str) -> "Announcement":
        """Read the header of an announcement, as the source of the mailbox writes it."""
        return cls(*json.loads(header))


def check_messages(
    before: Manifest, epoch: int, slot: int, announced: Announcement | None, root: str
) -> None:
    """Check that an epoch delivers the messages which a unit sent in its last epoch, and none of the future.

    Parameters
    ----------
    before : Manifest
        The manifest of the last epoch of the unit.
    epoch : int
        The number of this epoch.
    slot : int
        The slot of the unit.
    announced : Announcement or None
        What the mailbox delivers; None if it delivers nothing.
    root : str
        The folder of mailboxes.

    Raises
    ------
    StateError
        MAILBOX_DAMAGED.
    """
    where = f"{hide_secrets(root)}/{before.mailbox}"
    sent_in = before.heard.epoch
    senders = announced.senders if announced is not None and announced.epoch == sent_in else []
    if before.has_sent and slot not in senders:
        # If there are no senders, the offset of this epoch has no messages, and Spark would use it again.
        hint = "put it back" if senders else f"put it back, {_REPEAT}"
        what = f"{where}/{sent_in}/{slot} must hold messages of the checkpoint; it is gone; {hint}"
        raise StateError("MAILBOX_DAMAGED", what)
    if announced is not None and announced.senders and announced.epoch >= epoch:
        what = f"epoch {epoch} must read messages of an epoch before; it reads {where}/{announced.epoch}"
        hint = f"put the messages of the checkpoint back into the mailbox, {_REPEAT}"
        raise StateError("MAILBOX_DAMAGED", f"{what}; {hint}")


def find_mailbox_name(known: str | None, announced: Announcement | None) -> str:
    """Find the name of a query's mailbox.

    Parameters
    ----------
    known : str or None
        The name in the unit's state; None in the first epoch.
    announced : Announcement or None
        What the mailbox delivers in this epoch; None if it delivers nothing.

    Raises
    ------
    StateError
        MAILBOX_FOREIGN if the two names differ, MAILBOX_MISSING if both are None.
    """
    if known is not None and announced is not None and known != announced.mailbox:
        raise StateError(
            "MAILBOX_FOREIGN",
            f"messages must come from mailbox {known}, which the state belongs to; they come from "
            f"{announced.mailbox}",
        )
    name = known or (announced and announced.mailbox)
    if name is None:
        raise StateError("MAILBOX_MISSING", "the first epoch of a query must bring the name of its mailbox")
    return name
