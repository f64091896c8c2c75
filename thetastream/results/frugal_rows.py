"""Reads a data set of Arrow with little memory.

By default, Arrow reads far ahead: sixteen batches of 131,072 rows, and whole columns of a row group. With
wide rows that is more than a gigabyte. Here it reads one small batch ahead, and a part of a column at a time.
"""

from typing import Any

import pyarrow.dataset as ds

BATCH_ROWS = 2_048
"""The rows of a batch, as many as in a vector of DuckDB."""
BUFFER_BYTES = 1 << 20
"""The bytes of a column that are read from a file at a time."""


class FrugalRows(ds.InMemoryDataset):  # type: ignore[misc]
    """The rows of another data set.

    DuckDB asks a data set for a scanner, with the columns and the conditions that a statement needs.
    """

    def __init__(self, rows: ds.Dataset) -> None:
        super().__init__(rows.schema.empty_table())
        self._rows = rows

    def scanner(self, **options: Any) -> Any:
        """Open a scanner of the other data set."""
        return self._rows.scanner(
            **options,
            batch_size=BATCH_ROWS,
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=ds.ParquetFragmentScanOptions(
                use_buffered_stream=True, buffer_size=BUFFER_BYTES, pre_buffer=False
            ),
            use_threads=False,
        )
