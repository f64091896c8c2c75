"""Files and folders as batch DataFrames, for statements typed on the command line."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from thetastream.errors import QueryError

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}


def read_file(spark: SparkSession, name: str, path: Path) -> DataFrame:
    """A file, or a folder of files of one format; CSV has a header, and types are inferred."""
    if not path.exists():
        raise QueryError("NO_SUCH_PATH", f"source {name!r} reads {path}, which does not exist")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in FORMATS)
    formats = {FORMATS.get(file.suffix) for file in files}
    if len(formats) != 1 or None in formats:
        raise QueryError(
            "UNKNOWN_FORMAT",
            f"source {name!r} ({path}) must hold files of one format, one of {', '.join(FORMATS)}",
        )
    reader = spark.read.format(str(formats.pop()))
    return (
        reader.option("header", True)
        .option("inferSchema", True)
        .option("recursiveFileLookup", True)
        .load(str(path))
    )
