"""Reads the rows of Parquet files for a stream, as Spark's reader does, and refuses by name what it cannot.

A column of a file may have a narrower type than that of the stream. A column that a file lacks is NULL.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from thetastream.core.errors import StateError
from thetastream.core.folder import Folder

ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 13, 1 << 24
"""The most rows of a batch that is read from a file, and the bytes of its columns in the file. If a file
repeats values, a batch has more bytes in memory, so it must not have many rows."""
_SPARK_VERSION = b"org.apache.spark.version"
_REBASED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclass(frozen=True)
class ParquetColumns:
    """The columns of a stream, which each of its files is read as. Picklable."""

    schema: pa.Schema
    """Names and types of the columns, as Spark has them in Arrow."""
    ignores_case: bool = True
    """Whether the name of a column may be written otherwise in a file."""
    root: str = ""
    """The path of the stream, as the user gave it."""

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The type of each column."""
        return {field.name: field.type for field in self.schema}

    def read(self, path: str, wanted: tuple[str, ...] | None = None) -> Iterator[pa.RecordBatch]:
        """Read a file, batch by batch.

        Parameters
        ----------
        path : str
            The path or URI, as Spark lists it.
        wanted : tuple of str, optional
            The columns to read; all of them if it is left out.

        Raises
        ------
        StateError
            SOURCE_FILE if the file cannot be read, or if it has a column of a type that does not fit.
        """
        names = self.schema.names if wanted is None else wanted
        fields = [self.schema.field(name) for name in names]
        try:
            with _open(path) as file:
                yield from self._read(file, path, fields)
        except (OSError, pa.ArrowException) as error:
            raise _refuse(path, f"cannot be read: {error}") from error

    def _read(self, file: pq.ParquetFile, path: str, fields: list[pa.Field]) -> Iterator[pa.RecordBatch]:
        _refuse_folders(path, self.root, fields)
        held = _find_columns(file.schema_arrow, path, [field.name for field in fields], self.ignores_case)
        _refuse_rebased(file, path, [field for field in fields if field.name in held])
        is_instant96 = _list_instants96(file)
        reads = []
        for field in fields:
            name = held.get(field.name)
            if name is None:
                reads.append(partial(_repeat_null, field))
                continue
            found = file.schema_arrow.field(name).type
            if not _fits(found, field.type, name in is_instant96):
                what = f"has the column {name!r} of type {found}, and the stream has it as {field.type}"
                raise _refuse(path, f"{what}; write the type of the file into the schema of the stream")
            reads.append(partial(_convert, name, field, path))
        n_rows = file.metadata.num_rows
        taken = sorted(set(held.values()))
        bytes_a_row = _measure(file, taken) / max(1, n_rows)
        at_once = max(1, min(ROWS_AT_ONCE, int(BYTES_AT_ONCE / max(1.0, bytes_a_row))))
        for batch in file.iter_batches(at_once, columns=taken, use_threads=False):
            yield pa.RecordBatch.from_arrays([read(batch) for read in reads], schema=pa.schema(fields))


def _open(path: str) -> pq.ParquetFile:
    scheme, mark, rest = path.partition(":")
    if not mark or scheme == "file":
        return pq.ParquetFile(f"/{(rest if mark else path).lstrip('/')}", coerce_int96_timestamp_unit="us")
    authority, _, inside = rest.removeprefix("//").partition("/")
    folder = Folder(f"{scheme}://{authority}", "")
    return pq.ParquetFile(
        folder.locate(inside), filesystem=folder.filesystem, coerce_int96_timestamp_unit="us"
    )


def _refuse(path: str, what: str) -> StateError:
    return StateError("SOURCE_FILE", f"the file {path} {what}")


def _find_columns(schema: pa.Schema, path: str, names: list[str], ignores_case: bool) -> dict[str, str]:
    """Find the name of each column in a file. A column that the file lacks is left out."""
    found: dict[str, str] = {}
    for name in names:
        same = [
            one for one in schema.names if one == name or (ignores_case and one.casefold() == name.casefold())
        ]
        if len(same) > 1:
            raise _refuse(path, f"has several columns with the name {name!r}: {', '.join(same)}")
        if same:
            found[name] = same[0]
    return found


def _refuse_folders(path: str, root: str, fields: list[pa.Field]) -> None:
    """Refuse a file if a folder has the name and the value of a column, which only Spark reads."""
    base = root.rstrip("/")
    inside = path.split(base, 1)[-1] if base else path
    folders = [folder for folder in inside.split("/")[:-1] if "=" in folder]
    names = {unquote(folder.partition("=")[0]).casefold() for folder in folders}
    for field in fields:
        if field.name.casefold() in names:
            what = f"lies in a folder that gives a value to the column {field.name!r}"
            raise _refuse(path, f"{what}; read it by spark.readStream.parquet, or leave the column out")


def _refuse_rebased(file: pq.ParquetFile, path: str, fields: list[pa.Field]) -> None:
    """Refuse dates that may be written by the calendar of former centuries."""
    types = [getattr(field.type, "value_type", field.type) for field in fields]
    if not any(map(pa.types.is_temporal, types)):
        return
    written = file.metadata.metadata or {}
    version = written.get(_SPARK_VERSION, b"")
    is_old = version.startswith((b"1.", b"2.")) or (version.startswith(b"3.0.") and _list_instants96(file))
    if is_old or any(mark in written for mark in _REBASED):
        hint = "read it by spark.readStream.parquet"
        raise _refuse(path, f"has dates in the Julian calendar, which only Spark's reader converts; {hint}")


def _list_instants96(file: pq.ParquetFile) -> set[str]:
    """List the columns that hold instants in 96 bits, which have no time zone in Arrow."""
    columns = (file.schema.column(number) for number in range(len(file.schema)))
    return {column.path.partition(".")[0] for column in columns if column.physical_type == "INT96"}


def _measure(file: pq.ParquetFile, names: list[str]) -> int:
    """Add the bytes of some columns of a file, before compression."""
    metadata, total = file.metadata, 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.path_in_schema.partition(".")[0] in names:
                total += column.total_uncompressed_size
    return total


def _fits(found: pa.DataType, wanted: pa.DataType, is_instant96: bool) -> bool:
    """Whether each value of one type is a value of another one, as Spark's reader sees it."""
    types = pa.types
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_timestamp(wanted) and types.is_timestamp(found):
        # Spark reads a time without a zone as an instant of UTC, and no instant as a time without a zone.
        return wanted.tz is not None or (found.tz is None and not is_instant96)
    if found.equals(wanted) or types.is_null(found):
        return True
    if types.is_integer(wanted):
        has_sign = types.is_signed_integer(found)
        return bool(types.is_integer(found) and found.bit_width + (not has_sign) <= wanted.bit_width)
    if types.is_float64(wanted):
        return bool(types.is_float32(found) or (types.is_signed_integer(found) and found.bit_width <= 32))
    if types.is_decimal(wanted):
        return bool(
            types.is_decimal(found)
            and found.scale <= wanted.scale
            and found.precision - found.scale <= wanted.precision - wanted.scale
        )
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    bytes_ = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    if types.is_string(wanted):
        return any(is_type(found) for is_type in (*texts, *bytes_))
    if types.is_binary(wanted):
        return any(is_type(found) for is_type in bytes_)
    if types.is_list(wanted):
        is_list = types.is_list(found) or types.is_large_list(found) or types.is_fixed_size_list(found)
        return is_list and _fits(found.value_type, wanted.value_type, is_instant96)
    return False


def _convert(name: str, field: pa.Field, path: str, batch: pa.RecordBatch) -> pa.Array:
    column = batch.column(name)
    if column.type.equals(field.type):
        return column
    try:
        # A cast that would lose a part of a value fails.
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise _refuse(path, f"has a value in {name!r} that is no {field.type}: {error}") from error


def _repeat_null(field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
    return pa.nulls(batch.num_rows, field.type)
