"""Reads staged rows from Parquet files, and finds files that are not as their commit wrote them.

A file is read whole and compared with its digest, or its size and footer are compared and Arrow compares the
checksum of each page that it reads (``thetastream.stores.sealed_file``). Files never change, so the metadata
of a file stays in memory as long as the file has the same size and time of its last change.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from thetastream.core.folder import Folder
from thetastream.stores.sealed_file import check_tail, read_whole
from thetastream.stores.staged import Staged

KEPT_FOOTERS = 10_000
"""The number of files whose metadata is kept in memory."""
_FOOTERS: dict[tuple[str, str, int | None, int | None], Any] = {}
_THREADS = 8
"""The number of footers that are read at once."""


def read_file(folder: Folder, staged: Staged, columns: list[str] | None = None) -> pa.Table:
    """Read staged rows from their file, all columns or some of them."""
    import pyarrow.parquet as pq

    try:
        if staged.groups is None and columns is None:
            rows = pq.ParquetFile(pa.BufferReader(read_whole(folder, staged))).read()
        else:
            (footer,) = read_footers(folder, [staged])
            with folder.filesystem.open_input_file(folder.locate(staged.name)) as file:
                reader = pq.ParquetFile(file, metadata=footer, page_checksum_verification=True)
                groups = range(reader.num_row_groups) if staged.groups is None else range(*staged.groups)
                rows = reader.read_row_groups(list(groups), columns)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"{staged.name}: {error}") from error  # Arrow does not name the file.
    if rows.num_rows != staged.rows:
        raise pa.ArrowInvalid(f"{staged.name} must have {staged.rows} rows; it has {rows.num_rows}")
    return rows


def open_files(folder: Folder, staged: Sequence[Staged], schema: pa.Schema) -> Any:
    """Open staged rows as a data set without reading them."""
    import pyarrow.dataset as ds

    read_footers(folder, staged)
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    kind = ds.ParquetFileFormat(default_fragment_scan_options=options)
    fragments = [
        kind.make_fragment(
            folder.locate(one.name),
            folder.filesystem,
            row_groups=None if one.groups is None else list(range(*one.groups)),
        )
        for one in staged
    ]
    return ds.FileSystemDataset(fragments, schema, kind, folder.filesystem)


def read_footers(folder: Folder, staged: Sequence[Staged]) -> list[Any]:
    """Read the metadata of files and compare it with their seals, or take it from memory.

    Raises
    ------
    pa.ArrowInvalid
        If a file does not fit its seal.
    """
    infos = folder.filesystem.get_file_info([folder.locate(one.name) for one in staged])
    keys = [(folder.filesystem.type_name, info.path, info.size, info.mtime_ns) for info in infos]
    unknown = {key: one for key, one in zip(keys, staged, strict=True) if key not in _FOOTERS}
    if len(_FOOTERS) + len(unknown) > KEPT_FOOTERS:
        _FOOTERS.clear()
        unknown = dict(zip(keys, staged, strict=True))

    def read(one: Staged) -> Any:
        import pyarrow.parquet as pq

        # The metadata is at the end of the tail, so the tail is a file without pages.
        return pq.read_metadata(pa.BufferReader(check_tail(folder, one)))

    if len(unknown) > 1:
        with ThreadPoolExecutor(_THREADS) as threads:
            found = list(threads.map(read, unknown.values()))
    else:
        found = [read(one) for one in unknown.values()]
    _FOOTERS.update(zip(unknown, found, strict=True))
    return [_FOOTERS[key] for key in keys]
