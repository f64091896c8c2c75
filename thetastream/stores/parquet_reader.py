"""Reads staged rows from Parquet files. Files never change, so their metadata can be kept in memory."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.stores.staged import Staged

KEPT_FOOTERS = 10_000
"""The number of files whose metadata is kept in memory."""
_FOOTERS: dict[str, Any] = {}


def read_file(folder: Folder, staged: Staged, columns: list[str] | None = None) -> pa.Table:
    """Read staged rows from their file, all columns or some of them."""
    import pyarrow.parquet as pq

    with folder.filesystem.open_input_file(folder.locate(staged.name)) as file:
        try:
            reader = pq.ParquetFile(file, metadata=_read_footer(folder, staged.name))
            if staged.groups is None:
                return reader.read(columns)
            return reader.read_row_groups(list(range(*staged.groups)), columns)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(f"{staged.name}: {error}") from error  # Arrow does not name the file.


def open_files(folder: Folder, staged: Sequence[Staged], schema: pa.Schema) -> Any:
    """Open staged rows as a data set without reading them."""
    import pyarrow.dataset as ds

    kind = ds.ParquetFileFormat()
    fragments = [
        kind.make_fragment(
            folder.locate(one.name),
            folder.filesystem,
            row_groups=None if one.groups is None else list(range(*one.groups)),
        )
        for one in staged
    ]
    return ds.FileSystemDataset(fragments, schema, kind, folder.filesystem)


def _read_footer(folder: Folder, name: str) -> Any:
    """Read the metadata of a file, or take it from memory."""
    import pyarrow.parquet as pq

    path = folder.locate(name)
    key = f"{folder.filesystem.type_name} {path}"
    found = _FOOTERS.get(key)
    if found is None:
        if len(_FOOTERS) >= KEPT_FOOTERS:
            _FOOTERS.clear()
        found = _FOOTERS[key] = pq.read_metadata(path, filesystem=folder.filesystem)
    return found
