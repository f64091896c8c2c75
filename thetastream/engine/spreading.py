"""Numbers that spread the tuples of a task evenly over units, also if many tuples are equal.

    number(t) = mix(hash(t), epoch, partition) + the number of equal tuples of the task before t

So equal tuples go to one unit after the other, and random routing is even for any content. The numbers of a
set of tuples do not depend on the order of the tuples. A Spark task that runs again, perhaps in another
order, sends the same tuples to the same units.
"""

import numpy as np
import pyarrow as pa

from thetastream.core.columns import HASH
from thetastream.core.keys import Int64s, mix


class Spreader:
    """Numbers the tuples of one stream in one epoch and router task.

    It holds about 32 bytes for each tuple that differs from the others.

    Parameters
    ----------
    epoch, partition : int
        The epoch, and the partition of the task. They make equal tuples of several epochs and tasks begin at
        several units.
    """

    def __init__(self, epoch: int, partition: int) -> None:
        self._salt = mix(mix(np.array([epoch]).view(np.uint64)) + np.uint64(partition))
        self._known, self._counts = np.zeros(1024, dtype=np.int64), np.zeros(1024, dtype=np.int64)
        self._n_known = 0

    def spread(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Put the numbers of the tuples in place of their hashes, the column ``h``."""
        place = batch.schema.get_field_index(HASH)
        numbers = self.number(batch.column(place).to_numpy(zero_copy_only=False))
        return batch.set_column(place, HASH, pa.array(numbers))

    def number(self, hashes: Int64s) -> Int64s:
        """Number tuples by their hashes, int64 of shape (n,).

        >>> numbers = Spreader(epoch=0, partition=0).number(np.array([5, 7, 5, 5]))
        >>> (numbers - numbers[0])[[0, 2, 3]]
        array([0, 1, 2])
        """
        from thetastream.kernels.keys import count_equal, refill  # loads Numba

        size = len(self._known)
        while 2 * (self._n_known + len(hashes)) > size:
            size *= 2
        if size > len(self._known):
            known, counts = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
            refill(self._known, self._counts, known, counts)
            self._known, self._counts = known, counts
        mixed: Int64s = mix(hashes.view(np.uint64) ^ self._salt).view(np.int64)
        before = np.empty_like(mixed)
        self._n_known += count_equal(mixed, self._known, self._counts, before)
        return mixed + before
