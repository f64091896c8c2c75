"""Describes a table without reading its rows, so that a program sees cheaply whether it has changed.

    files                 a digest of the names, sizes and times of all files
    Delta                 the number of its version
    a DataFrame of files  its files, which Spark then lists anew

Spark itself lists the files. So the same code serves all file systems, and clients of Spark Connect.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from thetastream.lowering.domains import quote


class NotReady(Exception):
    """Another program is writing the table. It can be read later."""


def stamp_files(spark: SparkSession, roots: Sequence[str]) -> str:
    """Describe the files of a table.

    While Spark overwrites a folder, the old files are gone, and the folder has a folder ``_temporary`` until
    all new files are in place.

    Raises
    ------
    NotReady
        If there is such a folder, or no file at all.
    """
    files = sorted(found for root in roots for found in _list_files(spark, root))
    for root in roots:
        if _exists(spark, f"{root.rstrip('/')}/_temporary"):
            raise NotReady(f"a program is writing {root}")
    if not files:
        raise NotReady(f"there is no file in {', '.join(roots)}")
    return blake2b(repr(files).encode(), digest_size=16).hexdigest()


def stamp_delta(spark: SparkSession, path: str) -> str:
    """Return the number of the version of a Delta table, which is that of the last entry of its log."""
    names = [found[0].rpartition("/")[2] for found in _list_files(spark, f"{path.rstrip('/')}/_delta_log")]
    numbers = [int(name.partition(".")[0]) for name in names if name.partition(".")[0].isdecimal()]
    if not numbers:
        raise NotReady(f"there is no Delta table in {path}")
    return f"version {max(numbers)}"


def stamp_frame(frame: DataFrame) -> list[str] | None:
    """Let Spark list the files of a DataFrame anew, and return the folders that it reads.

    Returns None if the DataFrame reads something else than files too. On Spark Connect it is always None: the
    server lists the files anew for each action.
    """
    jframe = getattr(frame, "_jdf", None)
    if jframe is None:
        return None
    leaves = jframe.queryExecution().analyzed().collectLeaves()
    relations: list[Any] = [leaves.apply(n) for n in range(leaves.size())]
    roots: list[str] = []
    has_others = False
    for relation in relations:
        location = None
        if relation.getClass().getSimpleName() == "LogicalRelation":
            source = relation.relation()
            if source.getClass().getSimpleName() == "HadoopFsRelation":
                location = source.location()
        if location is None:
            has_others = True
            continue
        location.refresh()
        paths = location.rootPaths()
        roots += [paths.apply(n).toString() for n in range(paths.size())]
        has_others |= location.getClass().getSimpleName() not in ("InMemoryFileIndex", "CatalogFileIndex")
    return None if has_others or not roots else roots


def _list_files(spark: SparkSession, root: str) -> list[tuple[str, str, int]]:
    """List the files of a folder and of the folders in it: path, time of the last change, and size."""
    try:
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        rows = reader.load(root).selectExpr("path", "cast(modificationTime AS STRING)", "length").collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise NotReady(f"there is no {root}") from None
        raise
    return [(str(path), str(changed), int(nbytes)) for path, changed, nbytes in rows]


def _exists(spark: SparkSession, path: str) -> bool:
    # A server of Spark Connect logs the trace of an error. EXPLAIN raises none, but has it in its text.
    rows = spark.sql(f"EXPLAIN SELECT * FROM binaryFile.{quote(path)}").collect()
    if any("[PATH_NOT_FOUND]" in row[0] for row in rows):
        return False
    try:
        _ = spark.read.format("binaryFile").load(path).schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True
