"""Spark's function ``hash`` over texts, so that rows that do not pass Spark get the same hashes.

hash_bytes      hashes the bytes of each value of a column
"""

import numpy as np
import numpy.typing as npt

from thetastream.kernels.compiling import jit

_SEED = 42
_WORD = 0xFFFFFFFF


@jit
def hash_bytes(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], hashes: npt.NDArray[np.int32]
) -> None:
    """Write the hash of ``data[offsets[i]:offsets[i + 1]]`` into ``hashes[i]``.

    This is MurmurHash3 with 32 bits, in Spark's variant: each byte behind the last whole word is mixed as a
    word of its own, with its sign.
    """
    for i in range(len(hashes)):
        start = offsets[i]
        n = offsets[i + 1] - start
        whole = n - n % 4
        hashed = np.int64(_SEED)
        at = 0
        while at < n:
            if at < whole:
                word = (
                    np.int64(data[start + at])
                    | np.int64(data[start + at + 1]) << 8
                    | np.int64(data[start + at + 2]) << 16
                    | np.int64(data[start + at + 3]) << 24
                )
                at += 4
            else:
                byte = np.int64(data[start + at])
                word = (byte - np.int64(256) if byte > 127 else byte) & _WORD
                at += 1
            word = (word * 0xCC9E2D51) & _WORD
            word = ((word << 15) | (word >> 17)) & _WORD
            word = (word * 0x1B873593) & _WORD
            hashed ^= word
            hashed = ((hashed << 13) | (hashed >> 19)) & _WORD
            hashed = (hashed * 5 + 0xE6546B64) & _WORD
        hashed ^= n
        hashed ^= hashed >> 16
        hashed = (hashed * 0x85EBCA6B) & _WORD
        hashed ^= hashed >> 13
        hashed = (hashed * 0xC2B2AE35) & _WORD
        hashed ^= hashed >> 16
        hashes[i] = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
