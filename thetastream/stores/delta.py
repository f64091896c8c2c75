"""``th.DeltaStore``: a Parquet store whose files are also a Delta table, for Spark, DuckDB and others.

The log of the store decides what is a result. Each of its entries becomes one commit of the Delta table,
which contains the number of the entry as a transaction of Delta. The writer reads this number before it
writes, because delta-rs itself does not refuse a transaction that is written twice. After a crash between the
two, the next entry or the next start of a query writes the missing commit.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.addresses import hide_secrets
from thetastream.core.columns import CHANGE_TYPE, DELETE, INSERT
from thetastream.core.errors import QueryError, StoreError, ThetastreamError
from thetastream.core.folder import Folder
from thetastream.results.backend import make_unreachable
from thetastream.results.description import Description
from thetastream.results.log import Log
from thetastream.results.staged import Staged
from thetastream.results.version_log import PLACE
from thetastream.stores.parquet import ParquetBackend, ParquetStore

INSTALL = "pip install 'thetastream[delta]'"
ACCESS = (
    "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL (and AWS_ALLOW_HTTP=true"
    " without TLS) in the environment of the driver and the workers, which deltalake and Arrow read"
)
_TREE = re.compile("\x1b\\[[0-9]*m|\u21b3")
"""Colours and arrows in the messages of deltalake."""

_WIDER = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types of Delta of which each holds all values of those before it."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_NULLABILITY = {"nullable", "containsNull", "valueContainsNull", "metadata"}
_REFUSED_ROWS = "failed validation check"
"""What deltalake says if rows break a constraint of the table."""


class DeltaBackend(ParquetBackend):
    """The files of a Parquet store, and a Delta table that names them."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._name = hide_secrets(root)
        self._entries = Log(self._name, self, PLACE)

    def make(self, description: Description) -> None:
        _refuse_columns(description.schema)
        super().make(description)
        if self._entries.find_newest() >= 0:
            self._create(self._entries.read_first())
            self.publish()

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        is_new = super().append(n, text, entry)
        if is_new and not n:
            self._create(entry)
        return is_new

    def mark(self, note: str) -> None:
        super().mark(note)
        self.publish()

    def check(self, staged: Sequence[Staged], description: Description) -> Iterator[str]:
        yield from super().check(staged, description)
        try:
            with _refuse_damage(self._name):
                table = _import().DeltaTable(self._root)
                published, files = table.transaction_version(self._transaction) or 0, set(table.file_uris())
            newest = self._entries.find_newest()
        except StoreError as error:
            yield error.message
            return
        if published != newest:
            # The next entry publishes what is missing.
            return
        named, found = {one.name for one in staged}, {file.rpartition("/")[2] for file in files}
        for name in sorted(named ^ found):
            what = "must have" if name in named else "must not have"
            yield f"the Delta table {self._name} {what} the file {name}, according to the log of the store"

    def _create(self, first: Mapping[str, Any]) -> None:
        """Make the Delta table that the first entry of the log describes, unless it is there."""
        deltalake = _import()
        with _refuse_damage(self._name):
            if not deltalake.DeltaTable.is_deltatable(self._root):
                schema = Description.from_json(first["description"]).schema
                deltalake.DeltaTable.create(self._root, schema=schema, mode="ignore")

    def publish(self) -> None:
        """Make a commit of the Delta table for each entry of the log that the table does not have yet.

        Raises
        ------
        StoreError
            STORE_DAMAGED if the log of the Delta table cannot be read. STORE_UNREACHABLE if its place does
            not answer.
        """
        deltalake = _import()
        while True:
            with _refuse_damage(self._name):
                table = deltalake.DeltaTable(self._root)
            published = table.transaction_version(self._transaction) or 0
            entry = next(self._entries.read_after(published, self._entries.read(published)["seal"]), None)
            if entry is None:
                return
            told = {"thetastream.version": str(entry["version"]), "thetastream.seal": entry["seal"]}
            properties = deltalake.CommitProperties(
                custom_metadata=told,
                app_transactions=[deltalake.Transaction(self._transaction, entry["version"])],
                # Without retries, a commit fails if another writer has changed the table since it was read.
                max_commit_retries=0,
            )
            try:
                with _refuse_damage(self._name):
                    table.create_write_transaction(
                        self._list_actions(entry), "append", table.schema(), commit_properties=properties
                    )
            except deltalake.exceptions.CommitFailedError:
                continue
            log = Folder(self._root, "_delta_log")
            name = f"{table.version():020}.json"
            if log.exists(name):
                log.flush(log.locate(name))
                log.flush()

    @property
    def _transaction(self) -> str:
        """The name under which the Delta table keeps the number of the entry that it has."""
        return f"thetastream-{self._entries.read_first()['id']}"

    def _list_actions(self, entry: Mapping[str, Any]) -> list[Any]:
        """List the files that a version of the log adds to the table, and those that it removes."""
        from deltalake.transaction import AddAction, RemoveAction

        folder, is_rewrite = self.folder, "dropped" in entry
        rows: dict[str, int] = {}
        for one in (each["staged"] for each in entry["added"]) if is_rewrite else entry["staged"]:
            rows[one["name"]] = rows.get(one["name"], 0) + one["rows"]
        # For readers that follow the table, rows that move to another file are not a change of data.
        is_change, actions = not is_rewrite or not rows, []
        for name, n in rows.items():
            info = folder.filesystem.get_file_info(folder.locate(name))
            changed_ms, stats = (info.mtime_ns or 0) // 1_000_000, json.dumps({"numRecords": n})
            actions.append(AddAction(name, info.size or 0, {}, changed_ms, is_change, stats))
        gone = dict.fromkeys(one["name"] for one in entry.get("dropped", ()))
        at_ms = entry.get("clock_us", 0) // 1000
        return [*actions, *(RemoveAction(name, is_change, at_ms) for name in gone)]


@dataclass(frozen=True, repr=False)
class DeltaStore(ParquetStore):
    """Results as a Delta table. It needs the package deltalake.

    It does all that a ``ParquetStore`` does. In addition, any reader of Delta sees the committed results, for
    example ``spark.read.format("delta").load(path)``, or ``delta_scan('path')`` in DuckDB.

    Parameters
    ----------
    path : str
        The folder of the table, as in ``ParquetStore``, but a URI without user, password and options.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.DeltaStore("out/pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    if TYPE_CHECKING:

        def __init__(self, path: str | os.PathLike[str]) -> None: ...

    kind: ClassVar[str] = "delta"
    for_users: ClassVar[tuple[str, ...]] = (*ParquetStore.for_users, "open_table")

    def __post_init__(self) -> None:
        super().__post_init__()
        if "%" in self.path and not self.is_shared:
            what = "the path of a Delta table must have no percent sign, which deltalake takes for an escape"
            raise QueryError("BAD_VALUE", f"{what}; it is {self.path!r}")
        if self.path != self.name:
            what = f"the URI of a Delta table must have no user and no options, and {self.name} has some"
            raise QueryError("BAD_VALUE", f"{what}: deltalake would not read them. {ACCESS}")

    @property
    def backend(self) -> DeltaBackend:
        return DeltaBackend(self.path)

    def open_table(self) -> Any:
        """Open the Delta table with deltalake."""
        return _import().DeltaTable(self.path)


def _refuse_columns(schema: pa.Schema) -> None:
    """Raise if a Delta table cannot have these columns.

    Raises
    ------
    QueryError
        STORE_COLUMN.
    """
    try:
        _import().Schema.from_arrow(schema)
    except Exception as error:  # deltalake raises no class of its own here.
        why = str(error).partition("\n")[0].rpartition("error: ")[2]
        what = f"a Delta table cannot have the columns {', '.join(schema.names)}: {why}"
        raise QueryError("STORE_COLUMN", f"{what}. Rename the column, or cast it, as to STRING") from error


@contextmanager
def _refuse_damage(name: str) -> Iterator[None]:
    """Raise an error of the store if deltalake cannot read or write the log of the table.

    deltalake raises an OSError without a number if an object store or a disk refuses, also if a disk is full.
    For a damaged log it raises errors of many other classes.

    Raises
    ------
    StoreError
        STORE_DAMAGED, or STORE_UNREACHABLE if the place of the log does not answer or takes no files.
    """
    deltalake = _import()
    try:
        yield
    except deltalake.exceptions.CommitFailedError:
        raise
    except ThetastreamError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            # The reason is in the last lines, which are a tree with colours.
            why = " ".join(_TREE.sub(" ", str(error)).split())
            raise make_unreachable(f"the log of the Delta table {name}", OSError(why)) from error
        what = f"the Delta table {name} must have a log that deltalake reads, and it refuses the log: {error}"
        hint = "Restore the folder _delta_log. Readers of the store itself do not need it"
        raise StoreError("STORE_DAMAGED", f"{what}. {hint}") from error


def _import() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        what = f"a Delta store needs deltalake, and {error.name} is missing: {INSTALL}"
        raise QueryError("MISSING_PACKAGE", what) from error
    return deltalake


def apply_changes_to(
    path: str, description: Description, changes: pa.Table, query: str, epoch: int, *, by_key: bool = False
) -> bool:
    """Apply the changes of an epoch to a Delta table, in one commit.

    The commit has the epoch as a transaction of Delta, so that an epoch that runs again changes nothing.

    Parameters
    ----------
    path : str
        The folder of the table, which is made if it is not there.
    description : Description
        The columns of the table, and the key columns. A row of the table has one value of the key.
    changes : pyarrow.Table
        These columns, and ``_change_type``. No insert and delete are equal.
    query : str
        The identifier of the query.
    epoch : int
    by_key : bool
        Whether a delete names the key of its row only, and not the other values.

    Returns
    -------
    bool
        False if the table has this epoch.

    Raises
    ------
    StoreError
        CHANGES_KEY if a key is inserted or deleted twice, or is NULL, a list or a struct. STORE_SCHEMA if the
        table has other columns, a column whose type does not hold all values of the changes, or a constraint
        that rows break. STORE_DAMAGED or STORE_UNREACHABLE.
    """
    deltalake, name, transaction = _import(), hide_secrets(path), f"thetastream-{query}"
    schema, keys = description.schema, description.keys
    _refuse_columns(schema)
    source = _choose_rows(name, changes, keys)
    while True:
        with _refuse_damage(name):
            if not deltalake.DeltaTable.is_deltatable(path):
                deltalake.DeltaTable.create(path, schema=schema, mode="ignore")
            table = deltalake.DeltaTable(path)
        there = [field.name for field in table.schema().fields]
        if sorted(there) != sorted(schema.names):
            what = f"the Delta table {name} has the columns {', '.join(there)}"
            raise StoreError("STORE_SCHEMA", f"{what}, and the changes have {', '.join(schema.names)}")
        _refuse_types(name, schema, table.schema())
        applied = table.transaction_version(transaction)
        if applied is not None and epoch <= applied:
            return False
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(transaction, epoch)], max_commit_retries=0
        )
        is_row = " AND ".join(
            f"(t.{_quote(field.name)} IS NOT DISTINCT FROM s.{_quote(field.name)})"
            for field in schema
            if not by_key
        )
        kind, other = f"s.{_quote(CHANGE_TYPE)}", [_quote(CHANGE_TYPE)]
        try:
            with _refuse_damage(name):
                merger = table.merge(
                    source,
                    " AND ".join(f"t.{_quote(key)} = s.{_quote(key)}" for key in keys),
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                merger = merger.when_matched_delete(f"{kind} = '{DELETE}' AND {is_row or 'true'}")
                merger = merger.when_matched_update_all(f"{kind} = '{INSERT}'", except_cols=other)
                merger.when_not_matched_insert_all(f"{kind} = '{INSERT}'", except_cols=other).execute()
        except deltalake.exceptions.CommitFailedError:
            continue  # Another writer has changed the table since it was read.
        except StoreError as error:
            if _REFUSED_ROWS not in error.message:
                raise
            what = f"the Delta table {name} refuses rows by a constraint, as NOT NULL: {error.__cause__}"
            raise StoreError("STORE_SCHEMA", f"{what}. Correct the rows, or drop the constraint") from error
        return True


def _refuse_types(name: str, schema: pa.Schema, table: Any) -> None:
    """Raise STORE_SCHEMA unless the table keeps each value of the changes as it is.

    A value that the table rounds would not equal the value of its delete, so the row would stay.
    """
    there = {field.name: json.loads(field.type.to_json()) for field in table.fields}
    for field in _import().Schema.from_arrow(schema).fields:
        mine, theirs = json.loads(field.type.to_json()), there[field.name]
        if not _holds_values(_drop_nullability(theirs), _drop_nullability(mine)):
            found, changed = (one if isinstance(one, str) else json.dumps(one) for one in (theirs, mine))
            what = f"column {field.name!r} of the Delta table {name} is {found}, and that of the changes"
            raise StoreError("STORE_SCHEMA", f"{what} is {changed}; cast the column of the changes")


def _holds_values(wide: Any, narrow: Any) -> bool:
    """Whether a column of one type of Delta holds all values of another type, each as another value.

    >>> _holds_values("long", "byte"), _holds_values("float", "double")
    (True, False)
    >>> _holds_values("decimal(12,2)", "decimal(10,2)"), _holds_values("decimal(10,4)", "decimal(10,2)")
    (True, False)
    """
    if wide == narrow:
        return True
    if not isinstance(wide, str) or not isinstance(narrow, str):
        return False
    for ascending in _WIDER:
        if wide in ascending and narrow in ascending:
            return ascending.index(wide) > ascending.index(narrow)
    digits = [_DECIMAL.fullmatch(one) for one in (wide, narrow)]
    if not all(digits):
        return False
    (more, scale), (fewer, less) = ((int(one[1]), int(one[2])) for one in digits if one)
    return scale >= less and more - scale >= fewer - less


def _drop_nullability(kind: Any) -> Any:
    """Return a type of Delta without what may be NULL in it, and without the metadata of fields."""
    if isinstance(kind, list):
        return [_drop_nullability(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    return {name: _drop_nullability(one) for name, one in kind.items() if name not in _NULLABILITY}


def _choose_rows(name: str, changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return one change for each key: its insert, or its delete if it has no insert."""
    for key in keys:
        if pa.types.is_nested(changes.schema.field(key).type):
            what = f"each row of the Delta table {name} must have one key of plain values, and {key!r}"
            hint = "name a field of it as a column, or its JSON: to_json(...)"
            raise StoreError("CHANGES_KEY", f"{what} is {changes.schema.field(key).type}; {hint}")
    by_key = changes.group_by([*keys, CHANGE_TYPE]).aggregate([([], "count_all")])
    doubled = by_key.filter(pc.greater(by_key["count_all"], 1))
    is_null = [pc.is_null(changes[key]) for key in keys]
    unknown = changes.filter(reduce(pc.or_, is_null))
    for found, why in ((doubled, "twice in one epoch"), (unknown, "NULL")):
        if len(found):
            values = ", ".join(f"{key} = {found[key][0].as_py()!r}" for key in keys)
            what = f"each row of the Delta table {name} must have one key, and {values} is {why}"
            raise StoreError("CHANGES_KEY", f"{what}; name all columns that identify a row as its key")
    inserts = changes.filter(pc.equal(changes[CHANGE_TYPE], INSERT))
    deletes = changes.filter(pc.equal(changes[CHANGE_TYPE], DELETE))
    # Arrow joins no tables with nested columns.
    places = deletes.select(keys).append_column(CHANGE_TYPE, pa.array(range(len(deletes)), pa.int64()))
    lone = places.join(inserts.select(keys), list(keys), join_type="left anti")[CHANGE_TYPE]
    return pa.concat_tables([inserts, deletes.take(lone)])


def _quote(name: str) -> str:
    """Quote a name for deltalake."""
    return '"' + name.replace('"', '""') + '"'
