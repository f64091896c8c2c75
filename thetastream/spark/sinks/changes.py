"""``th.apply_changes`` applies the changes that a query finds to a Delta table, in ``foreachBatch``.

    table(e) = table(e - 1) without the deleted rows of epoch e, with its inserted rows, by key

The changes of an epoch are added up first, because an epoch has no order. They become one commit of the
table, which has the query and the epoch as a transaction of Delta. So an epoch that runs again changes
nothing.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError
from thetastream.results.net_rows import cancel_changes
from thetastream.spark.changes import are_groups, list_keys
from thetastream.spark.sinks.store import describe
from thetastream.spark.task_properties import QUERY
from thetastream.stores.delta import DeltaStore, apply_changes_to


def apply_changes(
    table: str | Path, key: str | Sequence[str], *, query: str | None = None
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that applies changes to a Delta table, each exactly once.

    The table has the columns of the changes without ``_change_type``, and one row for each key. An inserted
    row replaces the row of its key. A deleted row is removed if the table has it. A deleted group is removed
    by its key: name the expressions of GROUP BY as the key. It needs the package deltalake, and no jar of
    Delta. The driver collects the changes of an epoch, and adds them up.

    Parameters
    ----------
    table : str
        The folder of the table, as a path or URI that the driver reaches. It is made if it is not there.
    key : str or sequence of str
        The columns that identify a row: of a join, those that identify the rows of both streams.
    query : str, optional
        A name of the query, by which the table remembers its last epoch. By default, it is the identifier
        that Spark keeps in the checkpoint. Spark Connect does not tell it, so give a name there.

    Returns
    -------
    callable
        A function of a batch DataFrame and the number of its epoch. While the query runs, it raises
        CHANGES_KEY if a key is inserted or deleted twice in one epoch, or is NULL, a list or a struct, and
        STORE_SCHEMA if the table has other columns, a type that does not hold all values, or a constraint
        that rows break.

    Raises
    ------
    QueryError
        BAD_VALUE if ``table`` or ``key`` is no name.

    Examples
    --------
    >>> import thetastream as th
    >>> rows = pairs.selectExpr("o.id AS o_id", "c.id AS c_id", "o.price", "_change_type")  # doctest: +SKIP
    >>> apply = th.apply_changes("out/pairs", key=["o_id", "c_id"])
    >>> writer = rows.writeStream.foreachBatch(apply)  # doctest: +SKIP
    >>> query = writer.option("checkpointLocation", "out/checkpoint").start()  # doctest: +SKIP
    """
    if not isinstance(table, str | Path) or not str(table):
        raise QueryError("BAD_VALUE", f"table must be the folder of a Delta table, not {table!r}")
    keys = list_keys(key)
    if not keys or not all(keys):
        raise QueryError("BAD_VALUE", f'key must name columns, as in ["o_id", "c_id"], not {key!r}')
    path = DeltaStore(str(table)).path

    def apply(batch: DataFrame, epoch: int) -> None:
        if CHANGE_TYPE not in batch.columns:
            what = f"th.apply_changes needs the column {CHANGE_TYPE!r}, and the rows have {batch.columns}"
            raise QueryError("CHANGES_DROPPED", f"{what}; select it too")
        row = [StructField(one.name, one.dataType) for one in batch.schema if one.name != CHANGE_TYPE]
        found = describe(StructType(row), None, keys)
        schema = found.schema.append(pa.field(CHANGE_TYPE, pa.string()))
        changes = cancel_changes(batch.toArrow().select(schema.names).cast(schema))
        if len(changes):
            origin = query or _find_query(batch), epoch
            apply_changes_to(path, found, changes, *origin, by_key=are_groups(batch.schema))

    return apply


def _find_query(batch: DataFrame) -> str:
    """Find the identifier of the query that runs ``foreachBatch``.

    Raises
    ------
    QueryError
        BAD_VALUE on Spark Connect, which does not tell it.
    """
    found = None
    if hasattr(batch.sparkSession, "_jsparkSession"):
        found = batch.sparkSession.sparkContext.getLocalProperty(QUERY)
    if found is None:
        what = "th.apply_changes needs a name of the query, which Spark does not tell here"
        raise QueryError("BAD_VALUE", f'{what}; give it, as in th.apply_changes(table, key, query="pairs")')
    return str(found)
