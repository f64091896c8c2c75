"""Writes the rows of one attempt of a task into one Parquet file.

Rows are collected into row groups. If the store has keys, the rows of a row group are sorted by them. Then
the statistics of the pages show which pages a query by key needs.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.stores.description import Description
from thetastream.stores.parquet_encoding import choose_encoding
from thetastream.stores.part_name import FILE, make_part_name
from thetastream.stores.sealed_file import SealedFile
from thetastream.stores.sorted_stage import SortedStage
from thetastream.stores.staged import Origin

GROUP_ROWS, GROUP_BYTES = 1 << 18, 1 << 25
"""Rows and bytes at which a row group is full. A reader needs the memory of a few row groups."""


class ParquetStage(SortedStage):
    """Writes one file into a folder. The file has a name that no other attempt has."""

    def __init__(self, folder: Folder, origin: Origin, description: Description) -> None:
        super().__init__(make_part_name(origin, FILE), description, GROUP_ROWS, GROUP_BYTES)
        self._folder = folder
        self._writer: Any = None
        self._file: Any = None

    def write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._folder.make()
            self._file = SealedFile(self._folder, self._name)
            self._writer = open_writer(self._file, self._description, rows)
        write_groups(self._writer, rows)

    def end(self) -> tuple[int, Mapping[str, Any]]:
        self._file.begin_tail()
        self._writer.close()
        seal = self._file.end()
        return seal.nbytes, asdict(seal)


def write_groups(writer: Any, rows: pa.Table) -> int:
    """Write rows in equal row groups, each of about the size of a full one or less; return their number."""
    n, nbytes = len(rows), int(rows.nbytes)
    groups = max(1, round(max(n / GROUP_ROWS, nbytes / GROUP_BYTES)))
    per_group = -(-n // groups)
    writer.write_table(rows, row_group_size=per_group)
    return -(-n // per_group)


def open_writer(file: SealedFile, description: Description, rows: pa.Table) -> Any:
    """Open a writer of Parquet for a file that begins with ``rows``."""
    import pyarrow.parquet as pq

    options = choose_encoding(rows, description)
    writer = pq.ParquetWriter(file, description.schema, write_page_checksum=True, **options)
    # The footers of two files differ although their rows have the same sizes.
    writer.add_key_value_metadata({"thetastream.name": file.name})
    return writer
