"""Names of columns in PostgreSQL, and expressions for fields of columns."""

import pyarrow as pa

from thetastream.errors import QueryError
from thetastream.stores.postgres_rows import name_type
from thetastream.stores.staged import find_type

PART, VERSION = "thetastream_part", "thetastream_version"
"""The columns that this store adds: the part to which a row belongs, and the commit that named the part."""
LONGEST_COLUMN = 63
"""The largest number of bytes of a name in PostgreSQL."""


def refuse_names(names: list[str]) -> None:
    """Raise if a table of results cannot have columns with these names.

    Raises
    ------
    QueryError
        STORE_COLUMN.
    """
    for name in names:
        if name in (PART, VERSION):
            what = f"a table of PostgreSQL has a column {name!r} of the store itself"
            raise QueryError("STORE_COLUMN", f"{what}; rename the column of the results")
        if len(name.encode()) > LONGEST_COLUMN:
            what = f"PostgreSQL cuts names of columns after {LONGEST_COLUMN} bytes, as {name!r}"
            raise QueryError("STORE_COLUMN", f"{what}; rename it")


def write_name(name: str) -> str:
    """Quote the name of a column, a table or an index."""
    return '"' + name.replace('"', '""') + '"'


def write_path(path: tuple[str, ...], schema: pa.Schema) -> str:
    """Write the expression for a column, or for a field of a column of type JSONB with the field's type."""
    head, *rest = path
    if not rest:
        return write_name(head)
    *inner, last = ("'" + name.replace("'", "''") + "'" for name in rest)
    fields = "".join(f"->{name}" for name in inner)
    text, kind = f"({write_name(head)}{fields}->>{last})", find_type(schema, ".".join(path))
    return f"decode({text}, 'hex')" if pa.types.is_binary(kind) else f"{text}::{name_type(kind)}"


def is_indexed(kind: pa.DataType) -> bool:
    """Whether a field of this type can have an index. Times cannot: their text depends on the session."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))
