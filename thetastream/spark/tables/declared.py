"""Remembers which DataFrames are tables that the user declared as ``th.Table``."""

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from thetastream.core.errors import QueryError
from thetastream.spark.session.failure import summarize_exception
from thetastream.spark.tables.stamp import NotReady
from thetastream.spark.tables.table import Table


@dataclass(frozen=True)
class _Declared:
    """What is known of a DataFrame that is a table."""

    table: Table
    has_end: bool = False
    """Whether it has the column ``VALID_TO``."""
    has_time: bool = False
    """Whether the condition of its join says at which time a row must be valid."""


_DECLARED: "WeakKeyDictionary[DataFrame, _Declared]" = WeakKeyDictionary()


def declare(table: Table, spark: SparkSession) -> DataFrame:
    """Read a table of the user, and remember that the DataFrame is this table."""
    frame = _read_whole(table, spark).select("*")  # the DataFrame of the user is no table in other joins
    _DECLARED[frame] = _Declared(table)
    return frame


def _read_whole(table: Table, spark: SparkSession) -> DataFrame:
    """Read a table, and read it again if another program has replaced a file that Spark was reading.

    To learn the columns, Spark reads the footer of a file. It raises errors of many types, also of Java, if
    the file is replaced meanwhile.

    Raises
    ------
    QueryError
        TABLE_UNREADABLE if Spark cannot read the source, for example because its folder has no files yet.
    """
    seen: str | None = None
    while True:
        try:
            return table.read(spark)
        except Exception as error:
            found = _look(table, spark)
            if found == seen:
                # Nothing has changed since the last attempt, or the source has no stamp.
                if isinstance(error, PySparkException | Py4JError):
                    raise _make_unreadable(table, error) from error
                raise
            seen = found


def _make_unreadable(table: Table, error: Exception) -> QueryError:
    what = f"the table of {table.place} cannot be read"
    found = summarize_exception(error)
    if "UNABLE_TO_INFER_SCHEMA" in found:
        found = "it has no files yet, and they say which columns it has; write its first version before"
    return QueryError("TABLE_UNREADABLE", f"{what}: {found}")


def _look(table: Table, spark: SparkSession) -> str | None:
    """Describe the source as it is now, also while another program is writing it."""
    try:
        return table.stamp(spark)
    except NotReady as why:
        return str(why)


def find_declared(frame: DataFrame) -> Table | None:
    """Return the table whose rows a DataFrame has; None for any other DataFrame."""
    known = _DECLARED.get(frame)
    return None if known is None else known.table


def add_end(frame: DataFrame, alias: str) -> DataFrame:
    """Return a declared table with the column ``VALID_TO``, if its rows replace each other.

    Raises
    ------
    QueryError
        UNKNOWN_COLUMN or VALID_FROM if ``key`` or ``valid_from`` name no fitting column.
    """
    known = _DECLARED.get(frame)
    if known is None or known.has_end:
        return frame
    known.table.check_columns(frame, alias)
    if known.table.valid_from is None:
        return frame
    ended = known.table.add_end(frame)
    _DECLARED[ended] = replace(known, has_end=True)
    return ended


def give_time(frame: DataFrame) -> DataFrame:
    """Return a declared table of which the condition says at which time a row must be valid."""
    timed = frame.select("*")
    _DECLARED[timed] = replace(_DECLARED[frame], has_time=True)
    return timed


def has_time(frame: DataFrame) -> bool:
    """Whether the condition says at which time a row of a declared table must be valid."""
    known = _DECLARED.get(frame)
    return known is not None and known.has_time
