"""The columns of answers: pairs of tuples, and tuples without a partner.

    columns of the streams that are shown, one boolean column per padded stream

The boolean is true if the row has a tuple of the padded stream.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from thetastream.core.how import How
from thetastream.core.sides import Side


def build_pairs(how: How, columns: Iterable[pa.Array], n: int) -> list[pa.Array]:
    """Build ``n`` answers whose tuples have partners; ``columns`` are those of the shown streams."""
    return [*columns, *(pa.array(np.ones(n, np.bool_)) for _ in how.padded)]


def build_alone(
    how: How, names: Sequence[Sequence[str]], side: Side, batch: pa.RecordBatch
) -> list[pa.Array]:
    """Build an answer without a partner for each tuple of ``side``.

    ``names`` has the columns of left and of right tuples.
    """
    n, columns = batch.num_rows, []
    for shown in how.shown:
        columns += [batch.column(name) if shown is side else pa.nulls(n) for name in names[shown]]
    return [*columns, *(pa.array(np.full(n, padded is side)) for padded in how.padded)]
