"""The seal of a cached file: a checksum at its end, which the first reader of each process checks.

    file = words of 8 bytes in rows of ``COLUMNS`` words, and the seal
    seal = digest of (format, name of the file, number of words, sum of each row, sum of each column)

The sums change if a single bit changes, or if a page is replaced by zeros. The digest of the sums depends on
their order. So it also changes if pages, rows or columns are exchanged, or if the file is under another name.
To add the words twice costs a quarter of a CRC: 0.05 ms per MB. A segment never changes, so a process that
has checked its file once does not check it again.
"""

import os
import struct
from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

FORMAT = 2
"""The format of the seal. A file with a seal of another format does not fit, so it is rebuilt."""
WORD = 8
COLUMNS = 512
"""Words in a row. A row has 4,096 bytes, as a page of memory has."""
_SEAL = struct.Struct("<Q")
_MOST_CHECKED = 1 << 14
"""The largest number of files that a process remembers as checked."""


def compute_seal(name: str, data: memoryview | npt.NDArray[np.uint64]) -> int:
    """Compute the seal of a file with this name. The length of ``data`` is a multiple of ``WORD``.

    >>> one, two = bytes([1] + 7 * [0]), bytes([2] + 7 * [0])
    >>> compute_seal("a", memoryview(one + two)) == compute_seal("a", memoryview(two + one))
    False
    """
    words = np.frombuffer(data, np.uint64)
    whole = len(words) // COLUMNS * COLUMNS
    grid = words[:whole].reshape(-1, COLUMNS)
    digest = blake2b(f"{FORMAT} {name} {len(words)}".encode(), digest_size=WORD)
    for sums in (grid.sum(axis=1, dtype=np.uint64), grid.sum(axis=0, dtype=np.uint64), words[whole:]):
        digest.update(sums.tobytes())
    return int(_SEAL.unpack(digest.digest())[0])


def seal_file(path: Path, name: str) -> None:
    """Append the seal to a file whose length is a multiple of ``WORD``, and which gets this name."""
    seal = compute_seal(name, np.memmap(path, np.uint64, "r"))
    with path.open("ab") as file:
        file.write(_SEAL.pack(seal))


class CheckedFiles:
    """The files that this process has checked, by path and inode; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, int] = OrderedDict()

    def check(self, path: Path, data: memoryview) -> memoryview:
        """Return the content of a file before its seal.

        Raises
        ------
        ValueError
            If the content does not fit the seal.
        """
        content = data[: -_SEAL.size]
        inode = os.stat(path).st_ino
        if self._known.get(path) == inode:
            return content
        is_whole = len(content) > 0 and len(content) % WORD == 0
        if not is_whole or compute_seal(path.name, content) != _SEAL.unpack(data[-_SEAL.size :])[0]:
            raise ValueError(f"the content of {path} does not fit its seal")
        self._known[path] = inode
        if len(self._known) > _MOST_CHECKED:
            self._known.popitem(last=False)
        return content

    def forget(self, path: Path) -> None:
        """Forget a file that is removed."""
        self._known.pop(path, None)
