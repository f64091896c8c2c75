"""Reads files and folders as batch DataFrames, for ``thetastream sql`` and for sources that replay a file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from thetastream.core.errors import QueryError

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}

_OPTIONS = {"header": True, "recursiveFileLookup": True}


def find_format(name: str, path: Path) -> str:
    """Find the format of a file, or of a folder of files of one format.

    Raises
    ------
    QueryError
        NO_SUCH_PATH, or UNKNOWN_FORMAT.
    """
    if not path.exists():
        raise QueryError("NO_SUCH_PATH", f"source {name!r} reads {path}, which does not exist")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in FORMATS)
    formats = {FORMATS.get(file.suffix) for file in files}
    if len(formats) != 1 or None in formats:
        raise QueryError(
            "UNKNOWN_FORMAT",
            f"source {name!r} ({path}) must hold files of one format, one of {', '.join(FORMATS)}",
        )
    return str(formats.pop())


def find_path_problems(sources: Mapping[str, str]) -> Iterator[QueryError]:
    """Yield an error for each source whose path does not exist or has no files of one known format."""
    for name, path in sources.items():
        try:
            find_format(name, Path(path).absolute())
        except QueryError as problem:
            yield problem


def read_file(
    spark: SparkSession,
    name: str,
    path: Path,
    schema: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read a file, or a folder of files of one format.

    CSV files must have a header. Without a schema, Spark infers the types.
    """
    reader = spark.read.format(find_format(name, path))
    if schema is not None:
        reader = reader.schema(schema)
    for key, value in {**_OPTIONS, "inferSchema": schema is None, **(options or {})}.items():
        reader = reader.option(key, value)
    return reader.load(str(path))
