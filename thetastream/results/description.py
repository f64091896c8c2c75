"""The description of a store: the columns of its rows, the column of time, and the key columns."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetastream.core.errors import StoreError


@dataclass(frozen=True)
class Description:
    """The columns of a store. They never change."""

    schema: pa.Schema
    time: str | None = None
    """The column of time, by which results can be selected; None if there is none."""
    keys: tuple[str, ...] = ()
    """The key columns, by which results can be selected. The path ``a.symbol`` names a field of a struct."""
    has_deletes: bool = False
    """Whether rows are changes: the column ``_change_type`` says which are inserted and which are deleted."""

    @property
    def bounded(self) -> tuple[str, ...]:
        """The columns whose bounds the log keeps: the column of time and the key columns."""
        return tuple(dict.fromkeys((*((self.time,) if self.time else ()), *self.keys)))

    def as_json(self) -> dict[str, Any]:
        """Convert the value to plain values of JSON."""
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        values = {"schema": schema, "time": self.time, "keys": list(self.keys)}
        return {**values, "has_deletes": True} if self.has_deletes else values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Description":
        """Read what ``as_json`` returned."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"])))
        return cls(schema, values["time"], tuple(values["keys"]), values.get("has_deletes", False))

    def refuse_forgetting(self, where: str) -> None:
        """Raise STORE_CHANGES if rows may be deleted: an old snapshot may have rows that still hold."""
        if self.has_deletes:
            what = f"{where} keeps changes, and an old snapshot may have rows that still hold"
            raise StoreError(
                "STORE_CHANGES", f"{what}; write what holds now into another store: store.read()"
            )

    def refuse_changes(self, new: "Description", where: str) -> None:
        """Raise unless rows of ``new`` may be added to a store of this description.

        Raises
        ------
        StoreError
            STORE_SCHEMA.
        """
        changes = [
            f"column {name!r} is {_spell(self.schema, name)} there and {_spell(new.schema, name)} here"
            for name in dict.fromkeys((*self.schema.names, *new.schema.names))
            if _spell(self.schema, name) != _spell(new.schema, name)
        ]
        if not changes and self.schema.names != new.schema.names:
            changes.append(f"the order of columns is {', '.join(self.schema.names)} there")
        fixed = (
            ("time", self.time, new.time),
            ("key", self.keys, new.keys),
            ("whether rows may be deleted", self.has_deletes, new.has_deletes),
        )
        for what, before, now in fixed:
            if before != now:
                changes.append(f"{what} is {before!r} there and {now!r} here")
        if changes:
            raise StoreError(
                "STORE_SCHEMA",
                f"results in {where} keep the columns of their first query, but {'; '.join(changes)}. "
                "Write to another store, or undo the change",
            )


def _spell(schema: pa.Schema, name: str) -> str:
    return str(schema.field(name).type) if name in schema.names else "missing"
