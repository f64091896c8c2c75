"""The mailbox holds messages between units, which are written in one epoch and read in the next.

    root/<mailbox>/mailbox.json      the query to which the mailbox belongs
    root/<mailbox>/<epoch>/<unit>    the messages that a unit sent in an epoch: an Arrow stream and a checksum

A file appears under its name with all its content or not at all. A Spark task that runs again replaces its
file by an equal one. So the files of an epoch are complete once the epoch is committed. The folder is a path
or any URI that Arrow opens: ``file:``, ``hdfs:``, ``s3:``, ``gs:``, ``abfs:``.

Errors are imported only where they are raised, because the process in which Spark asks the source
(``thetastream.spark.mailbox.source``) for offsets does not load this package.
"""

import json
import os
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
from pyarrow import fs

from thetastream.core.identity import Identity, decode_identity, encode_identity, find_changes

FORMAT = 2
_LABEL = "mailbox.json"
_TRAILER = "<QI4s"
"""Layout of the trailer: number of the bytes before it, their CRC-32, and a magic number."""
_MAGIC = b"thmb"


def refuse(condition: str, message: str) -> NoReturn:
    """Raise a StateError."""
    from thetastream.errors import StateError

    raise StateError(condition, message)


class Mailbox:
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
        self._where = f"{root.rstrip('/')}/{name}"
        if "://" in root or root.startswith("file:"):
            try:
                self._fs, path = fs.FileSystem.from_uri(root)
            except (pa.ArrowInvalid, OSError) as error:
                refuse("MAILBOX_UNUSABLE", f"mailbox must be a folder that Arrow opens, not {root}: {error}")
        else:
            self._fs, path = fs.LocalFileSystem(), root
        self._folder = f"{path.rstrip('/')}/{name}"

    # Label

    def create(self, query: Identity) -> None:
        """Make the folder and write its label.

        ``query`` is the identity of the query to which the mailbox belongs.

        Raises
        ------
        StateError
            MAILBOX_UNUSABLE.
        """
        try:
            if isinstance(self._fs, fs.LocalFileSystem):
                os.makedirs(self._folder, mode=0o700, exist_ok=True)  # Other users must not read tuples.
            self._fs.create_dir(self._folder, recursive=True)
            self._write(_LABEL, json.dumps({"format": FORMAT, "query": encode_identity(query)}).encode())
        except OSError as error:
            refuse("MAILBOX_UNUSABLE", f"mailbox {self._where} cannot be made: {error}")

    def check(self, query: Identity) -> None:
        """Check that the folder exists and belongs to ``query``.

        Raises
        ------
        StateError
            MAILBOX_MISSING, MAILBOX_DAMAGED, MAILBOX_FORMAT, MAILBOX_FOREIGN.
        """
        try:
            label = json.loads(self._read(_LABEL))
            version, owner = label["format"], decode_identity(label["query"])
        except FileNotFoundError:
            refuse(
                "MAILBOX_MISSING",
                f"the checkpoint's mailbox {self._where} is gone, and messages with it; put it back, "
                "or begin with a new checkpointLocation",
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            refuse("MAILBOX_DAMAGED", f"{self._where}/{_LABEL} cannot be read: {error}")
        if version != FORMAT:
            refuse("MAILBOX_FORMAT", f"mailbox format must be {FORMAT}; {self._where} has {version}")
        changes = find_changes(owner, query)
        if changes:
            refuse(
                "MAILBOX_FOREIGN",
                f"mailbox {self._where} belongs to another query: {'; '.join(changes)}. "
                "Start with a new checkpointLocation, or undo the change",
            )

    # Messages

    def post(self, epoch: int, unit: int, messages: Sequence[pa.RecordBatch]) -> int:
        """Write a unit's messages of an epoch in place of any earlier ones; return their size in bytes."""
        if not messages:
            if self._exists(f"{epoch}/{unit}"):
                self._fs.delete_file(f"{self._folder}/{epoch}/{unit}")
            return 0
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, messages[0].schema) as writer:
            for batch in messages:
                writer.write_batch(batch)
        data = sink.getvalue()
        self._fs.create_dir(f"{self._folder}/{epoch}", recursive=True)
        self._write(f"{epoch}/{unit}", data, struct.pack(_TRAILER, data.size, zlib.crc32(data), _MAGIC))
        return int(data.size)

    def newest(self) -> tuple[int, list[int]]:
        """Find the last epoch with messages and the units that sent them; (-1, []) if there is none."""
        epochs = [int(name) for name in self._names("") if name.isdigit()]
        for epoch in sorted(epochs, reverse=True):
            units = sorted(int(name) for name in self._names(str(epoch)) if name.isdigit())
            if units:
                return epoch, units
        return -1, []

    def size(self, epoch: int, unit: int) -> int:
        """Size of a unit's messages in bytes; 0 if the file is gone (``fetch`` then raises an error)."""
        return int(self._fs.get_file_info(f"{self._folder}/{epoch}/{unit}").size or 0)

    def fetch(self, epoch: int, unit: int) -> Iterator[pa.RecordBatch]:
        """Read the messages that a unit sent in an epoch.

        Raises
        ------
        StateError
            MAILBOX_DAMAGED if the file is missing or has changed since it was written.
        """
        where = f"{self._where}/{epoch}/{unit}"
        try:
            data = self._read(f"{epoch}/{unit}")
        except FileNotFoundError:
            refuse("MAILBOX_DAMAGED", f"{where} must hold messages of the checkpoint; it is gone")
        size = struct.calcsize(_TRAILER)
        body = data[:-size]
        trailer = struct.unpack(_TRAILER, data[-size:]) if len(data) >= size else None
        if trailer != (len(body), zlib.crc32(body), _MAGIC):
            refuse("MAILBOX_DAMAGED", f"{where} is not as it was written: {len(data)} bytes, wrong checksum")
        with pa.ipc.open_stream(body) as reader:
            yield from reader

    def clear(self, epoch: int) -> None:
        """Remove the messages of all epochs up to and including ``epoch``."""
        for name in self._names(""):
            if name.isdigit() and int(name) <= epoch:
                self._fs.delete_dir(f"{self._folder}/{name}")

    # Files

    def _names(self, inside: str) -> list[str]:
        selector = fs.FileSelector(f"{self._folder}/{inside}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector)]

    def _exists(self, name: str) -> bool:
        found: bool = self._fs.get_file_info(f"{self._folder}/{name}").type == fs.FileType.File
        return found

    def _read(self, name: str) -> bytes:
        with self._fs.open_input_stream(f"{self._folder}/{name}") as file:
            data: bytes = file.read()
        return data

    def _write(self, name: str, *pieces: bytes | pa.Buffer) -> None:
        path = f"{self._folder}/{name}"
        head, _, tail = path.rpartition("/")
        temporary = f"{head}/.{tail}.{uuid.uuid4().hex[:8]}"
        with self._fs.open_output_stream(temporary) as file:
            for piece in pieces:
                file.write(piece)
        try:
            self._fs.move(temporary, path)
        except OSError:
            if not self._exists(name):
                raise
            # HDFS refuses to rename a file to a name that exists.
            self._fs.delete_file(path)
            self._fs.move(temporary, path)
