"""A Parquet file whose bytes are hashed while they are written, so that later damage is found.

    file = data pages with a checksum each | tail: index of pages, footer
           `------------------ digest: SHA-256 of all bytes ------------'
                                             `-- tail_digest --'

A reader of a whole file compares the digest. A reader of some row groups compares the size and the digest of
the tail, and Arrow compares the checksum of each page. The tail says where pages are and which rows they can
have. It contains the name of the file, so that the tail of another file does not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.results.staged import Staged

DIGEST_BYTES = 16
"""The bytes of a digest."""


@dataclass(frozen=True)
class FileSeal:
    """What an entry of the log says about a file."""

    nbytes: int
    digest: str
    tail: int
    """The bytes of the tail."""
    tail_digest: str


def digest(data: bytes | pa.Buffer) -> str:
    """Compute a digest of bytes."""
    return sha256(data).digest()[:DIGEST_BYTES].hex()


class SealedFile:
    """A new file in a folder, with the methods that Arrow's writer of Parquet calls."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self._folder = folder
        self._stream = folder.filesystem.open_output_stream(folder.locate(name))
        self._hash = sha256()
        self._nbytes = 0
        self._tail: list[bytes] | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes."""
        piece = bytes(data)
        self._stream.write(piece)
        self._hash.update(piece)
        self._nbytes += len(piece)
        if self._tail is not None:
            self._tail.append(piece)
        return len(piece)

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self._nbytes

    def flush(self) -> None:
        """Do nothing: ``end`` writes all bytes."""

    def close(self) -> None:
        """Do nothing: ``end`` closes the file."""

    def begin_tail(self) -> None:
        """Note that all pages are written, and that the tail follows."""
        self._tail = []

    def end(self) -> FileSeal:
        """Close the file, and wait until it is on the disk."""
        self._stream.close()
        self.closed = True
        self._folder.flush(self._folder.locate(self.name))
        tail = b"".join(self._tail or ())
        whole = self._hash.digest()[:DIGEST_BYTES].hex()
        return FileSeal(self._nbytes, whole, len(tail), digest(tail))


def read_whole(folder: Folder, staged: Staged) -> pa.Buffer:
    """Read all bytes of a file, and compare them with its seal.

    Raises
    ------
    pa.ArrowInvalid
        If the file does not fit its seal.
    """
    seal = FileSeal(**staged.seal)
    with folder.filesystem.open_input_file(folder.locate(staged.name)) as file:
        data = file.read_buffer()
    if data.size != seal.nbytes:
        raise pa.ArrowInvalid(f"{staged.name} must have {seal.nbytes} bytes; it has {data.size}")
    if digest(data) != seal.digest:
        raise pa.ArrowInvalid(f"{staged.name} does not have the content that its commit names")
    return data


def check_tail(folder: Folder, staged: Staged) -> pa.Buffer:
    """Read the tail of a file, and compare it and the size of the file with the seal.

    Raises
    ------
    pa.ArrowInvalid
        If the file does not fit its seal.
    """
    seal = FileSeal(**staged.seal)
    with folder.filesystem.open_input_file(folder.locate(staged.name)) as file:
        nbytes = file.size()
        if nbytes != seal.nbytes:
            raise pa.ArrowInvalid(f"{staged.name} must have {seal.nbytes} bytes; it has {nbytes}")
        file.seek(nbytes - seal.tail)
        data = file.read_buffer(seal.tail)
    if digest(data) != seal.tail_digest:
        raise pa.ArrowInvalid(f"{staged.name} does not have the footer that its commit names")
    return data


def find_damage(folder: Folder, staged: Staged) -> Iterator[str]:
    """Yield a sentence if a file is damaged or gone."""
    try:
        read_whole(folder, staged)
    except (OSError, pa.ArrowException) as error:
        text = str(error)
        yield text if text.startswith(staged.name) else f"{staged.name} cannot be read: {text}"
