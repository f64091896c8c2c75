"""Staged rows: a task writes them for an epoch, and they become results when the epoch is committed.

    part-<query>-<epoch>-<task>-<number>.<ending>

This is the name of what one attempt of a task has staged: a file, rows of a table, or chunks. It contains the
query and the epoch, so that ``sweep`` knows which parts no commit can name any more. The rows of an attempt
are written many at a time, sorted by the keys of the store.
"""

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.errors import StoreError
from thetastream.results.description import Description

Bounds = tuple[Any, Any]
"""The least and the greatest value of a column, as values of JSON. Instants are microseconds since 1970."""
LONGEST_BOUND = 64
"""The longest text that is kept as a bound, in characters."""
FILE, ROWS, CHUNKS = "parquet", "rows", "chunks"
"""The endings: a file, rows of a table, chunks of a table."""
_NAME = re.compile(rf"part-(.+)-(\d+)-([^-]*)-[0-9a-f]{{12}}\.(?:{FILE}|{ROWS}|{CHUNKS})")


_PLAIN = re.compile(r"[^./\\\0][^/\\\0]*")
"""A name of a file that lies in the folder of a store itself."""


@dataclass(frozen=True)
class Origin:
    """The query, the epoch and the task that write rows."""

    query: str
    """The identifier of the streaming query, which its checkpoint keeps."""
    epoch: int
    task: str
    """The name of the task in its epoch. Attempts of one task have the same name."""


@dataclass(frozen=True)
class Staged:
    """Rows that one attempt of a task has staged."""

    name: str
    """The name of the part. No other attempt has it."""
    rows: int
    nbytes: int
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """The bounds of the time and of each key, by the name of the column."""
    groups: tuple[int, int] | None = None
    """The row groups of the file that have the rows: from the first number to the number before the second.
    None stands for the whole file."""
    seal: Mapping[str, Any] = field(default_factory=dict)
    """What the store has written down to find damage later, by name. Each kind of store has its own."""

    @property
    def place(self) -> tuple[str, tuple[int, int] | None]:
        """The place of the rows, at which there are no other rows."""
        return self.name, self.groups

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Staged":
        """Read what ``as_json`` returned.

        Raises
        ------
        StoreError
            STORE_DAMAGED if the name leads out of the folder of the store.
        """
        if not _PLAIN.fullmatch(values["name"]):
            what = f"an entry of the log must name parts of its store, and one names {values['name']!r}"
            raise StoreError("STORE_DAMAGED", f"{what}. Restore a backup")
        bounds = {name: (low, high) for name, (low, high) in values["bounds"].items()}
        groups = values["groups"]
        at = None if groups is None else (groups[0], groups[1])
        return cls(values["name"], values["rows"], values["nbytes"], bounds, at, values["seal"])


class Stage(ABC):
    """Takes the rows of one attempt of a task."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch, which has the schema of the store."""

    @abstractmethod
    def close(self) -> Staged | None:
        """End the stage, and return the staged rows; None if there are none."""


class BoundsFinder:
    """Computes the bounds of some columns over many batches.

    Examples
    --------
    >>> finder = BoundsFinder(["x", "a.name"])
    >>> for x in (3, 1):
    ...     finder.add(pa.RecordBatch.from_pydict({"x": [x, None], "a": [{"name": "k"}, None]}))
    >>> finder.bounds
    {'x': (1, 3), 'a.name': ('k', 'k')}
    """

    def __init__(self, columns: "list[str] | tuple[str, ...]") -> None:
        self._columns = columns
        self._found: dict[str, Bounds | None] = {}

    def add(self, batch: "pa.RecordBatch | pa.Table") -> None:
        """Take the values of a batch into account."""
        for name in self._columns:
            if name in self._found and self._found[name] is None:
                continue
            new = find_bounds(find_column(batch, name))
            if new is None:
                self._found[name] = None
            elif new != (None, None):
                old = self._found.get(name) or new
                self._found[name] = min(old[0], new[0]), max(old[1], new[1])

    @property
    def bounds(self) -> dict[str, Bounds]:
        """The bounds of each column that has values and whose type has bounds."""
        return {name: bounds for name, bounds in self._found.items() if bounds is not None}


def split_path(schema: pa.Schema, path: str) -> tuple[str, ...]:
    """Split a path such as ``a.symbol`` into the name of a column and the names of its fields.

    If a column has the whole path as its name, the path means this column.
    """
    return (path,) if path in schema.names else tuple(path.split("."))


def find_column(batch: "pa.RecordBatch | pa.Table", path: str) -> Any:
    """Find a column by its name, or a field of a struct column by its path."""
    head, *rest = split_path(batch.schema, path)
    return pc.struct_field(batch.column(head), rest) if rest else batch.column(head)


def find_type(schema: pa.Schema, path: str) -> pa.DataType:
    """Find the type of a column, or of a field of a struct column.

    Raises
    ------
    KeyError
        If there is no such column.
    """
    head, *rest = split_path(schema, path)
    kind = schema.field(head).type
    for name in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise KeyError(path)
        kind = kind.field(name).type
    return kind


def find_bounds(values: Any) -> Bounds | None:
    """Find the least and the greatest value.

    Return (None, None) if there are no values. Return None if the type has no bounds, or a bound is too long.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind)):
        return None
    ends = pc.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if isinstance(low, str) and max(len(low), len(high)) > LONGEST_BOUND:
        return None
    return low, high


class SortedStage(Stage):
    """The base of stages that write many rows at a time. A subclass defines ``write`` and ``end``.

    Collected rows are written as soon as they are ``most_rows`` rows or have ``most_bytes`` bytes.
    """

    def __init__(self, name: str, description: Description, most_rows: int, most_bytes: int) -> None:
        self._name, self._description = name, description
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._bounds = BoundsFinder(description.bounded)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._rows = 0

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Write rows, which are sorted if the store has keys."""

    @abstractmethod
    def end(self) -> tuple[int, Mapping[str, Any]]:
        """End after the last rows. Return the number of bytes that were written, and the seal."""

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._bounds.add(batch)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= self._most_rows or self._waiting_bytes >= self._most_bytes:
            self._write_waiting()

    def close(self) -> Staged | None:
        if self._waiting:
            self._write_waiting()
        if not self._rows:
            return None
        nbytes, seal = self.end()
        return Staged(self._name, self._rows, nbytes, self._bounds.bounds, seal=seal)

    def _write_waiting(self) -> None:
        rows = pa.Table.from_batches(self._waiting)
        self.write(sort_by_keys(rows, self._description.keys) if self._description.keys else rows)
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def sort_by_keys(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Sort rows by their keys."""
    import pyarrow.compute as pc

    columns = {f"k{n}": find_column(table, key) for n, key in enumerate(keys)}
    order = pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
    return table.take(order)


def make_part_name(origin: Origin, ending: str) -> str:
    """Make a name that no other attempt has."""
    return f"part-{origin.query}-{origin.epoch:06}-{origin.task}-{uuid.uuid4().hex[:12]}.{ending}"


def read_part_name(name: str) -> tuple[str, int] | None:
    """Read query and epoch from the name of a part; None if it is not the name of a part.

    >>> read_part_name(make_part_name(Origin("0a-1b", 7, "3"), CHUNKS))
    ('0a-1b', 7)
    >>> read_part_name("part-0a-1b-000007-3-0123456789ab.parquet"), read_part_name("part-0a-1b.rows")
    (('0a-1b', 7), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))
