"""Reads the folder in which late tuples are kept."""

import os
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.core.folder import is_uri
from thetastream.errors import QueryError, ThetastreamError
from thetastream.spark.session import is_local

_COLUMNS = ("alias", "query", "epoch")
"""The columns of late tuples beside those of the streams."""


def read_late_folder(
    spark: SparkSession,
    asked: str | Path | None,
    aliases: Iterable[str],
    problems: list[ThetastreamError],
) -> str | None:
    """Return the folder as an absolute path or URI, or None if late tuples are not kept.

    Units write into the folder, so on a cluster it must be a URI that all executors reach.
    """
    if asked is None:
        return None
    taken = [alias for alias in aliases if alias.casefold() in _COLUMNS]
    if taken:
        what = f"files of late tuples have columns {', '.join(_COLUMNS)} of their own"
        problems.append(QueryError("INVALID_ALIAS", f"{what}; rename the stream {taken[0]!r}"))
    folder = str(asked)
    if is_uri(folder):
        return folder
    if not is_local(spark):
        what = f"late must be a folder that all executors reach, as a URI, not {folder}"
        problems.append(QueryError("LATE_FOLDER", f'{what}; give late="hdfs://..." or "file:/shared/..."'))
    return os.path.abspath(folder)
