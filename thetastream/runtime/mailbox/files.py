"""The mailbox holds messages between units, which are written in one epoch and read in the next.

    root/<mailbox>/mailbox.json      the query to which the mailbox belongs
    root/<mailbox>/<epoch>/<unit>    the messages that a unit sent in an epoch: an Arrow stream and a checksum

A Spark task that runs again replaces its file by an equal one. So the files of an epoch are complete once the
epoch is committed. The checksum includes mailbox, epoch and unit, and the label has the name of the mailbox.
A file that was moved to another place is therefore refused.

Errors are imported only where they are raised, because the process in which Spark asks the source
(``thetastream.spark.sources.mailbox``) for offsets does not load this package.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import pyarrow as pa

from thetastream.core.addresses import hide_secrets
from thetastream.core.folder import Folder, refuse, refuse_unusable
from thetastream.core.identity import Identity, decode_identity, encode_identity, find_changes

FORMAT = 3
_LABEL = "mailbox.json"
_TRAILER = "<QI4s"
"""Layout of the trailer: number of the bytes before it, their CRC-32, and a magic number."""
_MAGIC = b"thmb"
SENT = [
    ("stream", pa.int8()),
    ("origin", pa.int64()),
    ("header", pa.string()),
    ("block", pa.binary()),
]
ADDRESS = [("unit", pa.int32()), ("kind", pa.int8())]
ADDRESSED = pa.schema([*ADDRESS, *SENT])
"""The rows of the exchange; ``thetastream.core.columns`` explains the columns."""
FILED = pa.schema([*SENT, ("to", pa.list_(pa.struct(ADDRESS)))])


class Mailbox(Folder):
    """One mailbox in a folder of mailboxes.

    Parameters
    ----------
    root : str
        Path or URI of the folder, the same for the driver and all workers.
    name : str
        Name of the mailbox.
    """

    def __init__(self, root: str, name: str) -> None:
        self.name = name
        self._where = f"{hide_secrets(root).rstrip('/')}/{name}"
        try:
            super().__init__(root, name)
        except (pa.ArrowInvalid, OSError) as error:
            refuse(
                "MAILBOX_UNUSABLE", f"mailbox must be a folder that Arrow opens, not {self._where}: {error}"
            )

    # Label

    def create(self, query: Identity) -> None:
        """Make the folder and write its label.

        ``query`` is the identity of the query to which the mailbox belongs.

        Raises
        ------
        StateError
            MAILBOX_UNUSABLE.
        """
        label = {"format": FORMAT, "name": self.name, "query": encode_identity(query)}
        with refuse_unusable("MAILBOX_UNUSABLE", f"mailbox {self._where} cannot be made"):
            self.make(is_private=True)
            self.write(_LABEL, json.dumps(label).encode())

    def check(self, query: Identity) -> None:
        """Check that the folder exists and belongs to ``query``.

        Raises
        ------
        StateError
            MAILBOX_MISSING, MAILBOX_UNUSABLE, MAILBOX_DAMAGED, MAILBOX_FORMAT, MAILBOX_FOREIGN.
        """
        try:
            label = json.loads(self.read(_LABEL))
            version, owner = label["format"], decode_identity(label["query"])
            name = label["name"] if version == FORMAT else self.name
        except FileNotFoundError:
            refuse(
                "MAILBOX_MISSING",
                f"the checkpoint's mailbox {self._where} is gone, and messages with it; put it back, "
                "or begin with a new checkpointLocation",
            )
        except OSError as error:
            refuse("MAILBOX_UNUSABLE", f"{self._where}/{_LABEL} cannot be read: {error}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            refuse("MAILBOX_DAMAGED", f"{self._where}/{_LABEL} cannot be read: {error}")
        if version != FORMAT:
            refuse("MAILBOX_FORMAT", f"mailbox format must be {FORMAT}; {self._where} has {version}")
        if name != self.name:
            refuse(
                "MAILBOX_FOREIGN", f"{self._where}/{_LABEL} must be that of its mailbox; it is that of {name}"
            )
        changes = find_changes(owner, query)
        if changes:
            refuse(
                "MAILBOX_FOREIGN",
                f"mailbox {self._where} belongs to another query: {'; '.join(changes)}. "
                "Start with a new checkpointLocation, or undo the change",
            )

    # Messages

    def post(self, epoch: int, unit: int, messages: Sequence[pa.RecordBatch]) -> int:
        """Write a unit's messages of an epoch in place of any earlier ones; return their size in bytes.

        Raises
        ------
        StateError
            MAILBOX_UNUSABLE.
        """
        if not messages:
            with self._reach(f"take the messages of unit {unit} back"):
                if self.exists(f"{epoch}/{unit}"):
                    self._fs.delete_file(f"{self._folder}/{epoch}/{unit}")
            return 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, messages[0].schema) as writer:
            for batch in messages:
                writer.write_batch(batch)
        data = sink.getvalue()
        checksum = self._compute_checksum(epoch, unit, data)
        with self._reach(f"take the messages of unit {unit}"):
            self._fs.create_dir(f"{self._folder}/{epoch}", recursive=True)
            self.write(f"{epoch}/{unit}", data, struct.pack(_TRAILER, data.size, checksum, _MAGIC))
        return int(data.size)

    def _reach(self, what: str) -> AbstractContextManager[None]:
        """Raise MAILBOX_UNUSABLE if the block cannot use the folder."""
        return refuse_unusable("MAILBOX_UNUSABLE", f"mailbox {self._where} must {what}")

    def withdraw(self, unit: int, epochs: range) -> None:
        """Remove what a unit sent in attempts at these epochs that were never committed.

        An epoch that runs again has the same number, and its messages replace earlier ones. Only where a time
        is the number, an epoch may begin again with another number (``thetastream.runtime.task_facts``).
        """
        if not epochs:
            return
        for name in self.list_files(""):
            if name.isdigit() and int(name) in epochs:
                self.post(int(name), unit, [])

    def find_next(self, after: int) -> tuple[int, list[int]]:
        """Find the first epoch after the epoch ``after`` that has messages, and the units that sent them.

        It is (``after``, []) if there is none. The first one counts, because units may also have sent
        messages in the epoch that comes next, before another unit refused it. It runs again.
        """
        with self._reach("be listed"):
            epochs = [int(name) for name in self.list_files("") if name.isdigit()]
        for epoch in sorted(epochs):
            units = sorted(self.list_sizes(epoch)) if epoch > after else []
            if units:
                return epoch, units
        return after, []

    def list_sizes(self, epoch: int) -> dict[int, int]:
        """List the units that sent messages in an epoch, with the size of each file in bytes."""
        with self._reach("be listed"):
            files = self.list_files(str(epoch)).items()
        return {int(name): size for name, (_, size) in files if name.isdigit()}

    def fetch(self, epoch: int, unit: int) -> Iterator[pa.RecordBatch]:
        """Read the messages that a unit sent in an epoch.

        Raises
        ------
        StateError
            MAILBOX_DAMAGED if the file is missing or has changed since it was written; MAILBOX_UNUSABLE if it
            cannot be read.
        """
        where = f"{self._where}/{epoch}/{unit}"
        try:
            data = self.read(f"{epoch}/{unit}")
        except FileNotFoundError:
            refuse("MAILBOX_DAMAGED", f"{where} must hold messages of the checkpoint; it is gone")
        except OSError as error:
            refuse("MAILBOX_UNUSABLE", f"{where} cannot be read: {error}")
        size = struct.calcsize(_TRAILER)
        body = data[:-size]
        trailer = struct.unpack(_TRAILER, data[-size:]) if len(data) >= size else None
        if trailer != (len(body), self._compute_checksum(epoch, unit, body), _MAGIC):
            refuse("MAILBOX_DAMAGED", f"{where} is not as it was written: {len(data)} bytes, wrong checksum")
        with pa.ipc.open_stream(body) as reader:
            yield from reader

    def _compute_checksum(self, epoch: int, unit: int, data: bytes | pa.Buffer) -> int:
        return zlib.crc32(data, zlib.crc32(f"{self.name}/{epoch}/{unit}".encode()))

    def clear(self, epoch: int) -> None:
        """Remove the messages of all epochs up to and including ``epoch``."""
        for name in self.list_files(""):
            if name.isdigit() and int(name) <= epoch:
                self._fs.delete_dir(f"{self._folder}/{name}")


class Row(NamedTuple):
    """A block or a message with all its destinations."""

    stream: int
    origin: int
    header: str | None
    block: bytes | pa.Buffer
    to: Sequence[tuple[int, int]]
    """(unit, kind) of every destination."""


def rows(found: Sequence[Row]) -> pa.RecordBatch:
    """Make an Arrow batch with one row per element of ``found``, as files of the mailbox contain them."""
    *sent, to = zip(*found, strict=True)
    sent[3] = [bytes(block) for block in sent[3]]
    addresses = [[dict(zip(("unit", "kind"), each, strict=True)) for each in one] for one in to]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip([*sent, addresses], FILED, strict=True)],
        schema=FILED,
    )
