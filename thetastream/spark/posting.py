"""What units that send messages have in common: the name of their mailbox, the number of the epoch, ticks."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.errors import StateError
from thetastream.mailbox import Mailbox
from thetastream.spark.mailbox import messages
from thetastream.spark.placement import unit_keys

TUPLES = 1
"""Kind of a row with new tuples, beside ``mailbox.HELLO``."""
TICK = -1
"""Kind of a message that says nothing: it is there so that another epoch runs."""
_EPOCH = "streaming.sql.batchId"


def addressed(rows: DataFrame, n_units: int) -> DataFrame:
    """Messages by the unit they go to, as column ``unit``: one copy each for those that go to all."""
    keys = F.array(*(F.lit(key) for key in unit_keys(n_units)))
    to = F.when(F.col("to").isNull(), keys).otherwise(F.array("to"))
    others = [name for name in rows.columns if name != "to"]
    return rows.select(F.explode(to).alias("unit"), *others)


def epoch_number() -> int:
    """Of the epoch that this task is part of."""
    return int(TaskContext.get().getLocalProperty(_EPOCH))  # type: ignore[union-attr, arg-type]


def post(
    mailboxes: str,
    name: str,
    query: Mapping[str, str],
    unit: int,
    sent: list[pa.RecordBatch],
    is_wanted: bool,
) -> int:
    """Send a unit's messages of this epoch; return their bytes.

    Parameters
    ----------
    mailboxes, name : str
        Folder of mailboxes, and which of them.
    query : mapping of str to str
        Whose it must be.
    unit : int
    sent : list of pyarrow.RecordBatch
    is_wanted : bool
        Whether another epoch is needed even if nothing is sent.
    """
    box = Mailbox(mailboxes, name)
    box.check(query)  # the driver's folder, seen from here
    if is_wanted and not sent:
        sent = [messages([(0, TICK, 0, b"")])]
    return box.post(epoch_number(), unit, sent)


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
