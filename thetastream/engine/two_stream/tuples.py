"""The tuples of an epoch at a unit, with the key rows by which the index finds them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import Int64s


class Tuples(NamedTuple):
    """Tuples of an epoch with their key rows."""

    payload: pa.RecordBatch
    rows: Int64s

    def take(self, mask: npt.NDArray[np.bool_]) -> "Tuples":
        """Select the tuples for which ``mask`` is true."""
        kept = np.flatnonzero(mask)
        return Tuples(self.payload.take(kept), self.rows[kept])


class Arrivals(NamedTuple):
    """The new tuples of one stream at a unit: those that probe, and those that the unit stores."""

    probing: Tuples | None
    storing: Tuples | None


def split_tuples(tuples: Tuples | None, stretch: int) -> tuple[Tuples | None, Tuples | None]:
    """Split tuples by the stretches of event time in which they lie: those of even and of odd stretches."""
    if tuples is None:
        return None, None
    second = (tuples.rows[:, 0] // stretch) % 2 == 1
    if not second.any():
        return tuples, None
    return (None, tuples) if second.all() else (tuples.take(~second), tuples.take(second))
