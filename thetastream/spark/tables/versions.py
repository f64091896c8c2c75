"""Lists the versions of tables that the epochs of a query have read, and stages tables now."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from thetastream.core.errors import QueryError
from thetastream.core.folder import is_uri
from thetastream.runtime.table_epochs import list_epochs
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import EpochVersion, Version
from thetastream.spark.observe.metrics import refuse_no_query
from thetastream.spark.tables.stage import ask_worker
from thetastream.spark.tables.table import Table

_FOLDERS: "WeakKeyDictionary[SparkSession, dict[TableFolder, None]]" = WeakKeyDictionary()
"""The folders in which joins of each session stage tables."""


def remember_folder(spark: SparkSession, folder: TableFolder) -> None:
    """Remember that a join of a session stages tables in a folder."""
    _FOLDERS.setdefault(spark, {})[folder] = None


def versions(query: Any) -> list[dict[str, Any]]:
    """List which versions of its tables the last epochs of a query have read.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        A query that this program has started, also if it has ended. A program that starts a query again knows
        its earlier epochs too.

    Returns
    -------
    list of dict
        One entry for each table and each of the last 64 epochs that brought tuples to its join, in the order
        of epochs. ``epoch``, ``alias`` and ``version`` say which version of which table the epoch has read.
        ``rows`` and ``bytes`` are the size of the version, and ``staged_at`` is when it was staged, in UTC.

    Raises
    ------
    QueryError
        BAD_VALUE if this is no query.

    Examples
    --------
    >>> import thetastream as th
    >>> [(one["epoch"], one["version"]) for one in th.versions(query)]  # doctest: +SKIP
    [(0, 1), (1, 1), (2, 2)]
    """
    refuse_no_query("th.versions", query)
    name = str(query.id)
    found = [
        one
        for spark, folders in list(_FOLDERS.items())
        for folder in folders
        for one in _list_epochs(spark, folder, name)
    ]
    return [
        {"epoch": epoch, "alias": one.alias, **describe_version(one.version)}
        for epoch, one in sorted(found, key=lambda one: (one[0], one[1].alias))
    ]


def _list_epochs(spark: SparkSession, folder: TableFolder, query: str) -> list[tuple[int, EpochVersion]]:
    if isinstance(spark, SparkSession):
        return list_epochs(folder, query)
    return ask_worker(spark, partial(list_epochs, folder, query))


def stage(table: Table, folder: str | Path | None = None) -> list[dict[str, Any]]:
    """Look whether a table has changed, and stage its rows as a new version if so.

    It does what ``every=`` does again and again. A scheduler may call it in a program of its own, which plans
    the same joins as the program of the query. Then the table must be a path, so that both programs know its
    versions by the same name.

    Parameters
    ----------
    table : Table
        A table with which this program has planned a join (``th.plan``) or built one.
    folder : str or Path, optional
        The folder of mailboxes (``mailbox=``) of the query. By default, it is that of each planned join.

    Returns
    -------
    list of dict
        For each join, the ``alias`` of the table, the number of the newest ``version``, its size as ``rows``
        and ``bytes``, and ``staged_at``.

    Raises
    ------
    QueryError
        BAD_VALUE if this is no table, or no join has been planned with it. TABLE_SCHEMA or TABLE_KEYS if the
        joins cannot use the rows of now. Then the last version stays. TABLE_BUSY if another program is
        writing the table. TABLE_UNREADABLE if its source fails, as for a damaged file.

    Examples
    --------
    >>> import thetastream as th
    >>> prices = th.Table("/lake/prices")
    >>> plan = th.plan({"s": sales, "p": prices}, on="s.x >= p.low AND s.x < p.high")  # doctest: +SKIP
    >>> th.stage(prices, "/shared/mailboxes")  # doctest: +SKIP
    """
    if not isinstance(table, Table):
        raise QueryError("BAD_VALUE", f"th.stage needs a th.Table, not {type(table).__name__}")
    if not table.stagings:
        what = f"no join has been planned with {table!r}, so it is not known how to stage it"
        raise QueryError("BAD_VALUE", f"{what}; call th.plan(...) with it first")
    stagings = {}
    for (name, root), staging in table.stagings.items():
        chosen = root if folder is None else str(folder)
        chosen = chosen if is_uri(chosen) else os.path.abspath(chosen)
        stagings[name, chosen] = staging
    found = []
    for (_, root), staging in stagings.items():
        version = staging.stage_now(replace(staging.folder, root=root))
        found.append({"alias": staging.alias, **describe_version(version)})
    return found


def describe_version(version: Version) -> dict[str, Any]:
    """Describe a version by plain values."""
    return {
        "version": version.number,
        "rows": version.n_rows,
        "bytes": version.nbytes,
        "staged_at": datetime.fromtimestamp(version.staged_s, UTC),
    }
