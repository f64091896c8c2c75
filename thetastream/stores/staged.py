"""Staged rows: a task writes them for an epoch, and they become results when the epoch is committed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Bounds = tuple[Any, Any]
"""The least and the greatest value of a column, as values of JSON. Instants are microseconds since 1970."""
LONGEST_BOUND = 64
"""The longest text that is kept as a bound, in characters."""


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
        """Read what ``as_json`` returned."""
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
