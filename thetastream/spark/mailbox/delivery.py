"""What the mailbox tells each unit about the messages of an epoch, and what a unit concludes from it.

The driver lists the files of an epoch after the epoch is committed. A file that is lost before is in no
offset, and nobody else would miss it. But the unit that wrote it has noted in its state that it sent
messages. Therefore it refuses the epoch without them, before that epoch is committed. Routers call all units
of a query with messages in each epoch, so that no unit overlooks the loss.
"""

import json
from typing import NamedTuple

from thetastream.core.folder import hide_secrets
from thetastream.errors import StateError
from thetastream.spark.state.manifest import Manifest


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


def check_delivery(before: Manifest, slot: int, announced: Announcement | None, root: str) -> None:
    """Check that the messages which a unit sent in its last epoch are delivered in this one.

    Parameters
    ----------
    before : Manifest
        The manifest of the last epoch of the unit.
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
    epoch = before.heard.epoch
    is_found = announced is not None and announced.epoch == epoch
    if not before.has_sent or (announced is not None and is_found and slot in announced.senders):
        return
    file = f"{hide_secrets(root)}/{before.mailbox}/{epoch}/{slot}"
    hint = "put it back"
    if not is_found:
        # The offset of this epoch has no messages at all, and Spark would use it again. On Spark Connect, its
        # number may be unknown here.
        hint += ", remove the newest file N of offsets/ and its .N.crc from the checkpoint, and start again"
    raise StateError("MAILBOX_DAMAGED", f"{file} must hold messages of the checkpoint; it is gone; {hint}")


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
