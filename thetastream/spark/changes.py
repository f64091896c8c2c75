"""Streams of changes: reads which rows are inserted and which are deleted, and marks them.

    Delta, Spark's changes()   insert, update_postimage -> insert;  delete, update_preimage -> delete
    a column of signs          1 -> insert;  -1 -> delete

The DataFrame has the columns of the row, and ``_change_type`` behind them. All its columns have a mark in
their metadata, so that a join or a store notices if ``_change_type`` is gone.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StringType, StructField, StructType

from thetastream.core.columns import CHANGE_TYPE, CHANGES, DELETE, INSERT
from thetastream.core.condition import LENIENT, ChangeRules
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.lowering.domains import quote
from thetastream.lowering.query import warn_caller
from thetastream.spark.event_time import is_grouped, list_marked
from thetastream.spark.row_versions import is_version_field

_TYPES = {INSERT: INSERT, "update_postimage": INSERT, DELETE: DELETE, "update_preimage": DELETE}
"""The types of changes that Delta and Spark name, and what each of them is here."""
OF_COMMITS = ("_commit_version", "_commit_timestamp")
"""The columns of a change feed that differ between the insert and the delete of a row."""


_OF_GROUPS = "thetastream.change_of_group"
"""The metadata key of the type of the change of a group."""
_RULES = "thetastream.change_rules"
"""The metadata key of what ends a query: whether a late delete does, and whether an unknown row does."""


class UnmarkedChangesWarning(UserWarning):
    """A stream has a column ``_change_type`` and was not given to ``th.changes``, so its deletes are rows."""


def read_changes(df: DataFrame, sign: str | None) -> DataFrame:
    """Read changes from a change feed, or from a column of signs.

    Raises
    ------
    QueryError
        CHANGES_COLUMN if there is no column that says what happened to a row. CHANGES_AGGREGATE if they are
        groups of changes.
    """
    _refuse_groups("what th.changes reads", df.schema)
    known = ", ".join(df.columns)
    if sign is not None:
        if sign not in df.columns:
            what = f"sign names {sign!r}, but the stream has the columns {known}"
            raise QueryError("CHANGES_COLUMN", what)
        type_ = df.schema[sign].dataType
        if not isinstance(type_, NumericType):
            what = f"sign names {sign!r}, which must be a number and is {type_.simpleString()}"
            raise QueryError("CHANGES_COLUMN", what)
        found, dropped = _read_sign(sign), {sign}
    elif CHANGE_TYPE in df.columns:
        type_ = df.schema[CHANGE_TYPE].dataType
        if not isinstance(type_, StringType):
            what = f"the column {CHANGE_TYPE!r} must be a text and is {type_.simpleString()}"
            raise QueryError("CHANGES_COLUMN", f"{what}; if it has 1 and -1, write sign={CHANGE_TYPE!r}")
        found, dropped = _read_type(), {CHANGE_TYPE, *OF_COMMITS}
    else:
        what = f"the stream has no column {CHANGE_TYPE!r}, but {known}"
        hint = 'read the table with .option("readChangeFeed", "true"), or name a column of 1 and -1: sign="w"'
        raise QueryError("CHANGES_COLUMN", f"{what}; {hint}")
    kept = [name for name in df.columns if name not in dropped]
    alike = [name for name in kept if name.casefold() == CHANGE_TYPE]
    if alike:
        what = f"the stream has the column {alike[0]!r} beside {sign or CHANGE_TYPE!r}; drop one of them"
        raise QueryError("CHANGES_COLUMN", what)
    return mark_changes(df.select(*(F.col(quote(name)) for name in kept), found.alias(CHANGE_TYPE)))


def _read_type() -> Column:
    """Read what happened to a row from the column ``_change_type``."""
    given = F.col(quote(CHANGE_TYPE))
    return _choose(given, {name: given == name for name in _TYPES}, _TYPES, ", ".join(_TYPES))


def _read_sign(sign: str) -> Column:
    """Read what happened to a row from a column of signs."""
    given = F.col(quote(sign))
    return _choose(given, {"1": given == 1, "-1": given == -1}, {"1": INSERT, "-1": DELETE}, "1 or -1")


def _choose(given: Column, tests: dict[str, Column], types: dict[str, str], expected: str) -> Column:
    """Return the type of the first test that is true. Spark raises an error if none is."""
    error = ThetastreamError("CHANGES_VALUE", f"a change must be {expected}, not ")
    value = F.coalesce(given.cast(StringType()), F.lit("NULL"))
    chosen = F.raise_error(F.concat(F.lit(str(error)), value))
    for name, test in reversed(tests.items()):
        chosen = F.when(test, types[name]).otherwise(chosen)
    return chosen


def mark_changes(changes: DataFrame) -> DataFrame:
    """Mark all columns of changes, and put the type of the change behind the others.

    Fields of structs are marked too, because users select ``o.id`` of a result.
    """
    names = [field for field in changes.schema if field.name != CHANGE_TYPE]
    return changes.select(*(_mark(field) for field in (*names, changes.schema[CHANGE_TYPE])))


def _mark(field: StructField) -> Column:
    column = F.col(quote(field.name))
    if isinstance(field.dataType, StructType):
        column = column.cast(_mark_fields(field.dataType))
    return column.alias(field.name, metadata={**(field.metadata or {}), CHANGES: True})


def _mark_fields(struct: StructType) -> StructType:
    """Return the type of a struct with marks in the metadata of all fields."""
    return StructType(
        [
            StructField(
                field.name,
                _mark_fields(field.dataType) if isinstance(field.dataType, StructType) else field.dataType,
                field.nullable,
                {**(field.metadata or {}), CHANGES: True},
            )
            for field in struct
        ]
    )


def list_keys(key: object) -> tuple[str, ...]:
    """List the columns that ``key`` names, one or several; empty if it names none.

    >>> list_keys("id"), list_keys(["o_id", "c_id"]), list_keys(5)
    (('id',), ('o_id', 'c_id'), ())
    """
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else ()
    return names if all(isinstance(name, str) for name in names) else ()


def set_rules(changes: DataFrame, rules: ChangeRules) -> DataFrame:
    """Note in the metadata of the type of the change what ends a query."""
    if rules == LENIENT:
        return changes
    metadata = {**changes.schema[CHANGE_TYPE].metadata, _RULES: [rules.fails_on_late, rules.is_strict]}
    names = [F.col(quote(name)) for name in changes.columns if name != CHANGE_TYPE]
    return changes.select(*names, F.col(CHANGE_TYPE).alias(CHANGE_TYPE, metadata=metadata))


def read_rules(schema: StructType) -> ChangeRules:
    """Read what ends a query over changes."""
    metadata = schema[CHANGE_TYPE].metadata if CHANGE_TYPE in schema.names else None
    return ChangeRules(*(metadata or {}).get(_RULES, ()))


def is_changes(schema: StructType) -> bool:
    """Whether rows are changes: ``th.changes`` has read what happened to them."""
    return CHANGE_TYPE in schema.names and CHANGES in (schema[CHANGE_TYPE].metadata or {})


def add_group_change(groups: DataFrame, holds: str) -> DataFrame:
    """Add what happened to a group: ``insert`` if it has rows, by the column ``holds``, and else ``delete``.

    An insert replaces the row of its group. A delete has the keys of its group alone. So these are no changes
    that a join can read.
    """
    kind = F.when(F.col(quote(holds)), INSERT).otherwise(DELETE)
    return groups.withColumn(CHANGE_TYPE, kind.alias(CHANGE_TYPE, metadata={_OF_GROUPS: True}))


def are_groups(schema: StructType) -> bool:
    """Whether rows are groups of changes, which ``add_group_change`` has marked."""
    return CHANGE_TYPE in schema.names and _OF_GROUPS in (schema[CHANGE_TYPE].metadata or {})


def _refuse_groups(what: str, schema: StructType) -> None:
    """Raise CHANGES_AGGREGATE if ``what`` has groups of changes."""
    if are_groups(schema):
        message = f"{what} has groups of changes, and the delete of a group does not name its old row"
        hint = f"select the rows in which {CHANGE_TYPE!r} is {INSERT!r}, and drop the column"
        raise QueryError("CHANGES_AGGREGATE", f"{message}; for groups by window(result_time, ...), {hint}")


def keep_groups(rows: DataFrame) -> DataFrame:
    """Return the groups of changes that have rows, without what happened to them.

    Rows that are no such groups stay as they are. It is for the output modes in which each group is final or
    is written anew.
    """
    if not are_groups(rows.schema):
        return rows
    return rows.where(F.col(CHANGE_TYPE) == INSERT).drop(CHANGE_TYPE)


def find_change_type(what: str, rows: DataFrame) -> str | None:
    """Find the column that says what happened to a row; None if rows are only inserted.

    Groups of changes are rows that are only inserted. Their aggregates may read the type of the change.

    Raises
    ------
    QueryError
        CHANGES_DROPPED if ``what`` is a stream of changes, and has this column no more. CHANGES_AGGREGATE if
        it has groups of changes.
    """
    schema = rows.schema
    if is_changes(schema):
        return CHANGE_TYPE
    _refuse_groups(what, schema)
    if CHANGE_TYPE in schema.names:
        message = (
            f"{what} has a column {CHANGE_TYPE!r} that th.changes has not read: its deletes count as rows"
        )
        warn_caller(
            f"{message}; give the DataFrame to th.changes, or rename the column", UnmarkedChangesWarning
        )
        return None
    marked = list_marked(schema, CHANGES)
    if marked and not is_grouped(rows):
        gone = f"{what} has columns of th.changes ({', '.join(marked)}) without {CHANGE_TYPE!r}"
        raise QueryError(
            "CHANGES_DROPPED", f"{gone}: its deletes would count as rows; select {CHANGE_TYPE!r} too"
        )
    return None


def keep_row_columns(schema: StructType) -> StructType:
    """Return the columns of the row, without the type of the change or what says which versions count."""
    kept = [field for field in schema if not is_version_field(field)]
    return StructType([field for field in kept if field.name != CHANGE_TYPE or not is_changes(schema)])
