"""A stream of Parquet files whose rows do not pass the JVM on their way to the units.

    Spark's source of files: one row with the path of each file -> Python: rows of the files

``read_parquet`` returns such a DataFrame. Spark keeps the log of the files, so offsets, checkpoints and
options are those of ``spark.readStream.parquet``, and a file is read in the same epoch when an epoch runs
again. If nothing but a watermark, an alias and a choice of columns lies between this DataFrame and a join,
``find_parquet`` finds it in the plan of the stream. The task that reads a file then routes its rows as well.
"""

import re
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from thetastream.core.arguments import describe_given
from thetastream.core.blocks import gather
from thetastream.core.columns import MARK
from thetastream.core.errors import QueryError, suggest
from thetastream.lowering.plain_columns import NotPlain
from thetastream.runtime.parquet_files import ROWS_AT_ONCE, ParquetColumns
from thetastream.runtime.reading_step import list_paths
from thetastream.runtime.routing_step import Batches
from thetastream.spark.arguments import refuse_other_sessions
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.event_time import list_marked, list_plan_lines
from thetastream.spark.session.zones import read_zone

OPTIONS = (
    "cleanSource",
    "discardCachedInputRatio",
    "fileNameOnly",
    "latestFirst",
    "maxBytesPerTrigger",
    "maxCachedFiles",
    "maxFileAge",
    "maxFilesPerTrigger",
    "pathGlobFilter",
    "recursiveFileLookup",
    "sourceArchiveDir",
)
"""The options of Spark's source of files that choose the files of an epoch."""
_LISTED = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_TYPES = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(StringType, BinaryType, DateType, TimestampType, TimestampNTZType),
)
_PREFIX = "read_parquet_"
_READ: "dict[str, ParquetFiles]" = {}
"""The streams of this program, by the name of their step in a plan."""
_COLUMN = re.compile(r"[^\s,`\[\]#]+#\d+L?(-T\d+ms)?")


class ParquetFiles(NamedTuple):
    """A stream of Parquet files."""

    paths: DataFrame
    """The paths of the files. Spark does not read the content. Two joins of one stream share this source."""
    columns: ParquetColumns


def read_parquet(
    spark: SparkSession, path: str, schema: str | StructType, **options: bool | float | str
) -> DataFrame:
    """Read the Parquet files of a folder as a stream, which costs less CPU time than Spark's own reader.

    Arrow reads the files in Python. Give the result to a join, with ``.withWatermark(...)`` or without it:
    the task that reads a file then sends its rows to the units, so that the JVM touches none of them, and
    reads only the columns that the join needs. Other operations behind it work as well, but gain nothing.

    Parameters
    ----------
    spark : SparkSession
    path : str
        The folder, as Spark takes it. Workers read it by Arrow, so they need access to object stores by
        Arrow's variables, for example ``AWS_ACCESS_KEY_ID``.
    schema : str or StructType
        The columns, as in ``"id LONG, x DOUBLE, ts TIMESTAMP"``: booleans, numbers, texts, bytes, dates,
        timestamps and arrays of them. Columns that a file lacks are NULL.
    **options
        Options of Spark's source of files: ``maxFilesPerTrigger``, ``maxBytesPerTrigger``, ``maxFileAge``,
        ``latestFirst``, ``fileNameOnly``, ``pathGlobFilter``, ``recursiveFileLookup``, ``cleanSource``,
        ``sourceArchiveDir``, ``maxCachedFiles`` and ``discardCachedInputRatio``.

    Returns
    -------
    DataFrame
        A streaming DataFrame. One task reads a file, so large files should be several ones. In Spark's
        progress, ``numInputRows`` counts files, and ``eventTime.avg`` is no average of tuples; ``th.metrics``
        counts tuples.

    Raises
    ------
    SessionError
        NO_SESSION if ``spark`` is no session.
    QueryError
        BAD_VALUE for a path or a schema that is none, a column of another type, or an unknown option.
    StateError
        SOURCE_FILE ends the query if a file cannot be read, if a column of it has a type whose values do not
        all fit, or if a folder such as ``day=2026-11-30`` gives a column its value. TUPLE_TOO_LARGE if a row
        does not fit into a block.

    Examples
    --------
    >>> import thetastream as th
    >>> spark = th.local_session(2)
    >>> folder = spark.conf.get("spark.sql.warehouse.dir") + "/readings"
    >>> spark.sql("SELECT 7L AS id, TIMESTAMP '2026-01-01' AS ts").write.mode("append").parquet(folder)
    >>> readings = th.read_parquet(spark, folder, "id LONG, ts TIMESTAMP", maxFilesPerTrigger=10)
    >>> readings.withWatermark("ts", "1 minute").isStreaming
    True
    """
    refuse_other_sessions("th.read_parquet", spark)
    if not isinstance(path, str) or not path:
        raise QueryError("BAD_VALUE", f"path must be the path of a folder, not {describe_given(path)}")
    ignores_case = spark.conf.get("spark.sql.caseSensitive", "false") != "true"
    columns = _read_schema(spark, schema, ignores_case)
    for problem in filter(None, map(find_option_problem, options)):
        raise QueryError("BAD_VALUE", problem)
    for name, value in options.items():
        if not isinstance(value, bool | int | float | str):
            what = f"option {name!r} must be a text, a number or a boolean"
            raise QueryError("BAD_VALUE", f"{what}, not {describe_given(value)}")
    zone = read_zone(spark)
    reader = spark.readStream.format("binaryFile").schema(_LISTED).options(**options)
    files = ParquetFiles(
        reader.load(path).select("path"),
        ParquetColumns(to_arrow_schema(columns, timezone=zone), ignores_case, path),
    )
    name = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    _READ[name] = files
    return run_step(files.paths, _make_step(files.columns), columns, name)


def find_option_problem(name: str) -> str | None:
    """Say why ``th.read_parquet`` refuses an option of this name; None if it takes it."""
    if name.casefold() in map(str.casefold, OPTIONS):
        return None
    what = f"{name!r} is no option of th.read_parquet{suggest(name, OPTIONS)}"
    return f"{what}; it takes {', '.join(OPTIONS)}"


def _read_schema(spark: SparkSession, schema: str | StructType, ignores_case: bool) -> StructType:
    """Read the columns of a stream. All of them may be NULL."""
    if not isinstance(schema, str | StructType):
        what = 'schema must be columns, as in "id LONG, ts TIMESTAMP"'
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(schema)}")
    try:
        columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        first = str(error).strip().partition("\n")[0]
        raise QueryError("BAD_VALUE", f"schema {schema!r} is none that Spark reads: {first}") from None
    if not isinstance(columns, StructType):
        raise QueryError("BAD_VALUE", f"schema {schema!r} has a type and no name of a column")
    if not columns.fields:
        raise QueryError("BAD_VALUE", "schema has no columns")
    names = [field.name.casefold() if ignores_case else field.name for field in columns]
    if len({*names}) < len(names):
        raise QueryError("BAD_VALUE", f"schema has a column twice: {', '.join(columns.names)}")
    for field in columns:
        if not _is_read(field.dataType):
            what = f"column {field.name!r} has type {field.dataType.simpleString()}"
            hint = "it reads booleans, numbers, texts, bytes, dates, timestamps, and arrays of them"
            raise QueryError("BAD_VALUE", f"{what}, and {hint}; use spark.readStream.parquet")
    return StructType([StructField(field.name, _allow_nulls(field.dataType)) for field in columns])


def _is_read(type_: DataType) -> bool:
    if isinstance(type_, ArrayType):
        return not isinstance(type_.elementType, ArrayType) and _is_read(type_.elementType)
    if isinstance(type_, CharType | VarcharType):
        return False
    return isinstance(type_, _TYPES) and type_.simpleString().partition(" collate ")[1] == ""


def _allow_nulls(type_: DataType) -> DataType:
    return ArrayType(type_.elementType) if isinstance(type_, ArrayType) else type_


def _make_step(columns: ParquetColumns) -> Any:
    def read(paths: Batches) -> Batches:
        for path in list_paths(paths):
            yield from gather(columns.read(path), ROWS_AT_ONCE)

    return read


def list_read(lines: Sequence[str]) -> set[str]:
    """List the names of the streams that ``read_parquet`` has returned, in the lines of a plan."""
    return {name for name in map(_read_name, lines) if name is not None}


def _read_name(line: str) -> str | None:
    """Read the name of a step that reads files in a line of a plan; None if there is none."""
    operator, _, rest = line.partition(" ")
    name = rest.partition("(")[0]
    return name if operator == "MapInArrow" and name in _READ else None


def find_parquet(lines: Sequence[str], schema: StructType) -> ParquetFiles | None:
    """Find the files of a stream that ``read_parquet`` has returned; None if there are none.

    ``lines`` are those of the plan of the stream. A watermark, an alias and a choice of columns may lie
    between.

    Raises
    ------
    NotPlain
        If something else lies between.
    """
    watermarks, between = 0, ""
    for line in lines:
        name = _read_name(line)
        if name is not None:
            # The watermark moves by a column that the stream must have.
            if watermarks != len(list_marked(schema, MARK)):
                between = between or "a second watermark, or a selection without the column of the watermark,"
            if between:
                raise NotPlain(f"{between} lies between the files and the join")
            return _READ[name]
        operator, _, rest = line.partition(" ")
        is_choice = operator == "Project" and all(map(_COLUMN.fullmatch, rest.strip("[]").split(", ")))
        watermarks += operator == "EventTimeWatermark"
        if not is_choice and operator not in ("EventTimeWatermark", "SubqueryAlias"):
            what = "a selection of computed or many columns" if operator == "Project" else operator
            between = between or what
    return None


def list_lines(stream: DataFrame) -> list[str]:
    """List the lines of the plan of a stream; none if the program has read no files by ``read_parquet``."""
    return list_plan_lines(stream) if _READ and stream.isStreaming else []
