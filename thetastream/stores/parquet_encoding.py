"""Chooses how the columns of a Parquet file of results are encoded.

    numbers                         plain
    texts and bytes that repeat     dictionary
    other texts and bytes           plain

Numbers of results seldom repeat. Dictionaries of numbers would take three quarters of the time to write a
file, and the file would not be smaller. If a text seldom repeats, its dictionary becomes larger than a page,
and Arrow then writes plain values. Statistics are written for numbers and keys only: rows are not ordered by
other texts, so their statistics would not help readers.
"""

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.stores.description import Description
from thetastream.stores.staged import find_column, find_type

SAMPLE_ROWS = 1 << 15
"""The number of rows in the sample of a text."""
MOST_DISTINCT = 0.75
"""The largest share of distinct values in the sample for which a dictionary is written. A text with this
share has about 60,000 values. If they have 15 bytes, this is more than a dictionary page of 1 MB holds."""


def choose_encoding(rows: pa.Table, description: Description) -> dict[str, Any]:
    """Choose the arguments of ``pyarrow.parquet.ParquetWriter`` for a file that begins with ``rows``."""
    paths, texts = list_paths(description.schema)
    return {
        "use_dictionary": [path for path in texts if repeats(rows, path)],
        "write_statistics": [path for path in paths if path not in texts or path in description.keys],
        "write_page_index": bool(description.keys),
    }


@cache
def list_paths(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """List the paths of all columns in Parquet, and of those with texts and bytes. A field is a column too.

    >>> list_paths(pa.schema([("n", pa.int64()), ("a", pa.struct([("x", pa.int8()), ("s", pa.string())]))]))
    (['n', 'a.x', 'a.s'], ['a.s'])
    """
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    found = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [found.column(number) for number in range(len(found.names))]
    texts = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    return [column.path for column in columns], texts


def repeats(rows: pa.Table, path: str) -> bool:
    """Whether a text repeats so often that a dictionary makes the file smaller; True for a text in a list.

    >>> ids, symbols = [str(n) for n in range(100)], ["A", "B"] * 50
    >>> rows = pa.table({"id": ids, "symbol": symbols})
    >>> repeats(rows, "id"), repeats(rows, "symbol")
    (False, True)
    """
    try:
        find_type(rows.schema, path)
    except KeyError:  # A list or a map is on the path.
        return True
    step = -(-len(rows) // SAMPLE_ROWS)
    sample = find_column(rows, path).take(pa.array(np.arange(0, len(rows), step)))
    n_values = len(sample) - int(sample.null_count)
    n_distinct = int(pc.count_distinct(sample, mode="only_valid").as_py())
    return n_distinct <= MOST_DISTINCT * n_values
