"""Parquet files of results: what is written into them, and how damage is found when they are read.

    file = data pages with a checksum each | tail: index of pages, footer
           `------------------ digest: SHA-256 of all bytes ------------'
                                             `-- tail_digest --'

One attempt of a task writes one file. If the store has keys, the rows of a row group are sorted by them, so
that the statistics of the pages show which pages a query by key needs. The bytes are hashed while they are
written. A reader of a whole file compares the digest. A reader of some row groups compares the size and the
digest of the tail, and Arrow compares the checksum of each page that it reads. The tail says where pages are
and which rows they can have. It contains the name of the file, so that the tail of another file does not fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.folder import Folder
from thetastream.results.backend import reach
from thetastream.results.description import Description
from thetastream.results.staged import (
    FILE,
    Origin,
    SortedStage,
    Staged,
    find_column,
    find_type,
    make_part_name,
)

SAMPLE_ROWS = 1 << 15
"""The number of rows in the sample of a text."""
MOST_DISTINCT = 0.75
"""The largest share of distinct values in the sample for which a dictionary is written. A text with this
share has about 60,000 values. If they have 15 bytes, this is more than a dictionary page of 1 MB holds."""

KEPT_FOOTERS = 10_000
"""The number of files whose metadata is kept in memory."""
_FOOTERS: dict[tuple[str, str, int | None, int | None], Any] = {}
_THREADS = 8
"""The number of footers that are read at once."""

GROUP_ROWS, GROUP_BYTES = 1 << 18, 1 << 25
"""Rows and bytes at which a row group is full. A reader needs the memory of a few row groups."""

DIGEST_BYTES = 16
"""The bytes of a digest."""


class ParquetStage(SortedStage):
    """Writes one file into a folder. The file has a name that no other attempt has."""

    def __init__(self, folder: Folder, origin: Origin, description: Description) -> None:
        super().__init__(make_part_name(origin, FILE), description, GROUP_ROWS, GROUP_BYTES)
        self._folder = folder
        self._writer: Any = None
        self._file: Any = None

    def write(self, rows: pa.Table) -> None:
        with self._reach():
            if self._writer is None:
                self._folder.make()
                self._file = SealedFile(self._folder, self._name)
                self._writer = open_writer(self._file, self._description, rows)
            write_groups(self._writer, rows)

    def end(self) -> tuple[int, Mapping[str, Any]]:
        with self._reach():
            self._file.begin_tail()
            self._writer.close()
            seal = self._file.end()
        return seal.nbytes, asdict(seal)

    def _reach(self) -> AbstractContextManager[None]:
        """Name the file if its folder takes no more bytes. Spark then runs the epoch again."""
        return reach(f"the file {self._folder.locate(self._name)}")


def write_groups(writer: Any, rows: pa.Table) -> int:
    """Write rows in equal row groups, each of about the size of a full one or less; return their number."""
    n, nbytes = len(rows), int(rows.nbytes)
    groups = max(1, round(max(n / GROUP_ROWS, nbytes / GROUP_BYTES)))
    per_group = -(-n // groups)
    writer.write_table(rows, row_group_size=per_group)
    return -(-n // per_group)


def digest(data: bytes | pa.Buffer) -> str:
    """Compute a digest of bytes."""
    return sha256(data).digest()[:DIGEST_BYTES].hex()


@dataclass(frozen=True)
class FileSeal:
    """What an entry of the log says about a file."""

    nbytes: int
    digest: str
    tail: int
    """The bytes of the tail."""
    tail_digest: str


class SealedFile:
    """A new file in a folder, with the methods that Arrow's writer of Parquet calls."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self._folder = folder
        self._stream = folder.filesystem.open_output_stream(folder.locate(name))
        self._hash = sha256()
        self._nbytes = 0
        self._tail: list[bytes] | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes."""
        piece = bytes(data)
        self._stream.write(piece)
        self._hash.update(piece)
        self._nbytes += len(piece)
        if self._tail is not None:
            self._tail.append(piece)
        return len(piece)

    def tell(self) -> int:
        """Return the number of bytes that were written."""
        return self._nbytes

    def flush(self) -> None:
        """Do nothing: ``end`` writes all bytes."""

    def close(self) -> None:
        """Do nothing: ``end`` closes the file."""

    def begin_tail(self) -> None:
        """Note that all pages are written, and that the tail follows."""
        self._tail = []

    def end(self) -> FileSeal:
        """Close the file, and wait until it is on the disk."""
        self._stream.close()
        self.closed = True
        self._folder.flush(self._folder.locate(self.name))
        tail = b"".join(self._tail or ())
        whole = self._hash.digest()[:DIGEST_BYTES].hex()
        return FileSeal(self._nbytes, whole, len(tail), digest(tail))


def open_writer(file: SealedFile, description: Description, rows: pa.Table) -> Any:
    """Open a writer of Parquet for a file that begins with ``rows``."""
    import pyarrow.parquet as pq

    options = choose_encoding(rows, description)
    writer = pq.ParquetWriter(file, description.schema, write_page_checksum=True, **options)
    # The footers of two files differ although their rows have the same sizes.
    writer.add_key_value_metadata({"thetastream.name": file.name})
    return writer


def choose_encoding(rows: pa.Table, description: Description) -> dict[str, Any]:
    """Choose the arguments of ``pyarrow.parquet.ParquetWriter`` for a file that begins with ``rows``.

    Texts and bytes that repeat have a dictionary, and all other columns are plain. Numbers of results seldom
    repeat: dictionaries of numbers would take three quarters of the time to write a file, and the file would
    not be smaller. If a text seldom repeats, its dictionary becomes larger than a page, and Arrow then writes
    plain values. Statistics are written for numbers and keys only: rows are not ordered by other texts, so
    their statistics would not help readers.
    """
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

    Files never change, so the metadata of a file stays in memory as long as the file has the same size and
    time of its last change.

    Raises
    ------
    pa.ArrowInvalid
        If a file does not fit its seal.
    """
    infos = folder.filesystem.get_file_info([folder.locate(one.name) for one in staged])
    keys = [(folder.filesystem.type_name, info.path, info.size, info.mtime_ns) for info in infos]
    # Another thread may empty the cache at any time, so this call keeps what it has found.
    footers = {key: _FOOTERS.get(key) for key in keys}
    unknown = {key: one for key, one in zip(keys, staged, strict=True) if footers[key] is None}

    def read(one: Staged) -> Any:
        import pyarrow.parquet as pq

        # The metadata is at the end of the tail, so the tail is a file without pages.
        return pq.read_metadata(pa.BufferReader(check_tail(folder, one)))

    if len(unknown) > 1:
        with ThreadPoolExecutor(_THREADS) as threads:
            found = list(threads.map(read, unknown.values()))
    else:
        found = [read(one) for one in unknown.values()]
    new = dict(zip(unknown, found, strict=True))
    n_over = len(_FOOTERS) + len(new) - KEPT_FOOTERS
    if n_over > 0:
        # The oldest files that this call does not read make room.
        for key in [key for key in list(_FOOTERS) if key not in footers][:n_over]:
            _FOOTERS.pop(key, None)
    _FOOTERS.update(islice(new.items(), max(0, KEPT_FOOTERS - len(_FOOTERS))))
    footers.update(new)
    return [footers[key] for key in keys]


def read_whole(folder: Folder, staged: Staged) -> pa.Buffer:
    """Read all bytes of a file, and compare them with its seal.

    Raises
    ------
    pa.ArrowInvalid
        If the file does not fit its seal.
    """
    seal = FileSeal(**staged.seal)
    with folder.filesystem.open_input_file(folder.locate(staged.name)) as file:
        data = file.read_buffer()
    if data.size != seal.nbytes:
        raise pa.ArrowInvalid(f"{staged.name} must have {seal.nbytes} bytes; it has {data.size}")
    if digest(data) != seal.digest:
        raise pa.ArrowInvalid(f"{staged.name} does not have the content that its commit names")
    return data


def check_tail(folder: Folder, staged: Staged) -> pa.Buffer:
    """Read the tail of a file, and compare it and the size of the file with the seal.

    Raises
    ------
    pa.ArrowInvalid
        If the file does not fit its seal.
    """
    seal = FileSeal(**staged.seal)
    with folder.filesystem.open_input_file(folder.locate(staged.name)) as file:
        nbytes = file.size()
        if nbytes != seal.nbytes:
            raise pa.ArrowInvalid(f"{staged.name} must have {seal.nbytes} bytes; it has {nbytes}")
        file.seek(nbytes - seal.tail)
        data = file.read_buffer(seal.tail)
    if digest(data) != seal.tail_digest:
        raise pa.ArrowInvalid(f"{staged.name} does not have the footer that its commit names")
    return data


def find_damage(folder: Folder, staged: Staged) -> Iterator[str]:
    """Yield a sentence if a file is damaged or gone."""
    try:
        read_whole(folder, staged)
    except (OSError, pa.ArrowException) as error:
        text = str(error)
        yield text if text.startswith(staged.name) else f"{staged.name} cannot be read: {text}"
