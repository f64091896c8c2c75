"""What units that send messages have in common: the name of their mailbox, the number of the epoch, ticks."""

from pyspark import TaskContext

from thetastream.errors import StateError

TUPLES = 1
"""Kind of a row with new tuples, beside ``mailbox.HELLO``."""
TICK = -1
"""Kind of a message that says nothing: it is there so that another epoch runs."""
_EPOCH = "streaming.sql.batchId"


def epoch_number() -> int:
    """Of the epoch that this task is part of."""
    return int(TaskContext.get().getLocalProperty(_EPOCH))  # type: ignore[union-attr, arg-type]


def mailbox_name(known: str | None, told: str | None) -> str:
    """The mailbox of a query: as its state says, or in its first epoch as the source does.

    Raises
    ------
    StateError
        MAILBOX_FOREIGN if they do not agree, MAILBOX_MISSING if none of them says anything.
    """
    if known is not None and told is not None and known != told:
        raise StateError(
            "MAILBOX_FOREIGN",
            f"messages must come from mailbox {known}, which the state belongs to; they come from {told}",
        )
    name = known or told
    if name is None:
        raise StateError("MAILBOX_MISSING", "the first epoch of a query must bring the name of its mailbox")
    return name
