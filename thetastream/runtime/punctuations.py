"""Punctuations: rows of a stream that are no tuples, and that cut the snapshots of a store.

    router:  rows of a stream           ->  tuples, and a file for the punctuations
    commit:  files of the epoch         ->  the ledger of the store

    folder/punctuations-<query>/<epoch>.<stream>.<time>       empty files; the name says everything

Routers take punctuations out of a stream before they number, shed or route its tuples. So punctuations join
nothing and are stored by no unit, whatever the model is. A task that runs again writes the same file again.
The commit of an epoch reads its files after all tasks of the epoch, and removes those that nobody needs.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.columns import PUNCTUATION
from thetastream.core.folder import Folder
from thetastream.runtime.task_facts import TaskFacts

PUNCTUATIONS = "punctuations-"
"""Beginning of the name of a folder of punctuations. The identifier of the query follows."""
NO_TIME_US = -(1 << 63)
"""The value in the column ``PUNCTUATION`` of a punctuation without an event time, which cuts no snapshot."""


@dataclass(frozen=True)
class Punctuations:
    """Which rows of the streams are punctuations, and where routers write them down. Picklable."""

    root: str
    """The folder of mailboxes, which the driver and all workers must reach."""
    marks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each alias with punctuations, the condition that marks them and the SQL of their time, over the
    struct column of the alias."""

    def write(self, task: TaskFacts, stream: int, time_us: int) -> None:
        """Write down the latest punctuation that a task has read from a stream."""
        folder = self._open(task.query)
        folder.make(is_private=True)
        folder.write(f"{task.find_epoch()}.{stream}.{time_us}")

    def read(self, query: str, epoch: int) -> dict[str, int]:
        """Read the latest time of the punctuations of an epoch, by the number of the stream as text."""
        found: dict[str, int] = {}
        for of_epoch, stream, time_us in self._list(query):
            if of_epoch == epoch:
                found[str(stream)] = max(time_us, found.get(str(stream), time_us))
        return found

    def prune(self, query: str, epoch: int) -> None:
        """Remove the files of the epochs before ``epoch``. This epoch itself may run again."""
        folder = self._open(query)
        for entry in self._list(query):
            if entry[0] < epoch:
                with suppress(FileNotFoundError):
                    folder.remove(".".join(map(str, entry)))

    def _open(self, query: str) -> Folder:
        return Folder(self.root, f"{PUNCTUATIONS}{query}")

    def _list(self, query: str) -> list[tuple[int, int, int]]:
        names = (name.split(".") for name in self._open(query).list_files())
        return [
            (int(epoch), int(stream), int(time_us))
            for epoch, stream, time_us in (parts for parts in names if len(parts) == 3)
            if all(part.lstrip("-").isdecimal() for part in (epoch, stream, time_us))
        ]


def take_out(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int | None]:
    """Return the tuples of a batch, and the latest time of its punctuations; None if there are none.

    >>> batch = pa.RecordBatch.from_pydict({"c0": [7, 8, 9], "punctuation": [None, 50, None]})
    >>> tuples, latest_us = take_out(batch)
    >>> tuples.to_pydict(), latest_us
    ({'c0': [7, 9]}, 50)
    """
    times = batch.column(PUNCTUATION)
    tuples = batch.drop_columns([PUNCTUATION])
    if times.null_count == len(times):
        return tuples, None
    latest_us: int = pc.max(times).as_py()
    return tuples.filter(times.is_null()), None if latest_us == NO_TIME_US else latest_us
