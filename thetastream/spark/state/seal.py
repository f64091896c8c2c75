"""The seal of a cached file: a checksum at its end, which the first reader of each process checks.

    file = words w_1 ... w_n of 8 bytes, and the seal  w_1 + ... + w_n  (mod 2^64)

The sum changes if a single bit changes, or if a page is replaced by zeros. To compute it costs as much as to
read the memory, which is about a tenth of a CRC. A segment never changes, so a process that has checked its
file once does not check it again.
"""

import os
import struct
from collections import OrderedDict
from pathlib import Path

import numpy as np

WORD = 8
_SEAL = struct.Struct("<Q")
_MOST_CHECKED = 1 << 14
"""The largest number of files that a process remembers as checked."""


def compute_seal(data: memoryview) -> int:
    """Add the words of ``data``, whose length is a multiple of ``WORD``.

    >>> compute_seal(memoryview(bytes([1] + 7 * [0] + [2] + 7 * [0])))
    3
    """
    return int(np.frombuffer(data, np.uint64).sum(dtype=np.uint64))


def seal_file(path: Path) -> None:
    """Append the seal to a file whose length is a multiple of ``WORD``."""
    seal = int(np.memmap(path, np.uint64, "r").sum(dtype=np.uint64))
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
        if not is_whole or compute_seal(content) != _SEAL.unpack(data[-_SEAL.size :])[0]:
            raise ValueError(f"the content of {path} does not fit its seal")
        self._known[path] = inode
        if len(self._known) > _MOST_CHECKED:
            self._known.popitem(last=False)
        return content

    def forget(self, path: Path) -> None:
        """Forget a file that is removed."""
        self._known.pop(path, None)
