"""A generation of aligned tuple routing that a newer one replaces: both store the new tuples for a while.

Under ATR a node joins only what it stores, so a generation finds exactly the combinations of tuples that it
has received. Let b be the place in the global order at which the newer generation begins. Then

    the newer generation finds the combinations whose oldest tuple is at b or later;
    the older generation finds those whose oldest tuple is before b.

So the older generation goes on storing new tuples, until the last tuple from before b has left its window.
Each partial result carries the place of its oldest tuple.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from thetastream.core.columns import BORN, OLDEST
from thetastream.core.keys import LOWEST
from thetastream.engine.multiway.partial_results import PartialResults
from thetastream.engine.store.chained_index import ChainedIndex


class Overlap:
    """The older of two generations, at one node.

    Parameters
    ----------
    begins : int
        The place in the global order at which the newer generation begins.
    """

    def __init__(self, begins: int) -> None:
        self._begins = begins

    def begin(self, partial: PartialResults) -> PartialResults:
        """Add the place of the oldest tuple to tuples that begin to look for partners."""
        block = partial.block
        return replace(partial, block=block.append_column(OLDEST, block.column(BORN)))

    def join(
        self, members: pa.RecordBatch, partners: pa.RecordBatch, is_complete: bool
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return partial results with the place of their oldest tuple, and the partners that they found.

        Complete results are dropped if the newer generation finds them.
        """
        oldest = np.minimum(members.column(OLDEST).to_numpy(), partners.column(BORN).to_numpy())
        members = members.drop_columns([OLDEST]).append_column(OLDEST, pa.array(oldest))
        if not is_complete:
            return members, partners
        is_mine = pa.array(oldest < self._begins)
        return members.filter(is_mine), partners.filter(is_mine)


def find_end(indexes: list[ChainedIndex]) -> int:
    """Find the watermark at which the tuples that are stored now have left their windows."""
    ends = [end for index in indexes if (end := index.find_end()) is not None]
    return max(ends, default=LOWEST)
