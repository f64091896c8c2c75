"""Checks the statement of a question before it runs: it is one SELECT, and a client makes no huge value.

DuckDB bounds the memory of tables, but not the memory of a single value, and it does not interrupt a function
that makes a value. So a client of the service may not call functions that take the size of their value as an
argument.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thetastream.errors import QueryError

if TYPE_CHECKING:
    import duckdb

SIZED = frozenset(
    {
        *("array_resize", "bar", "bitstring", "equi_width_bins", "format", "generate_series", "list_resize"),
        *("lpad", "printf", "range", "repeat", "rpad", "sleep_ms"),
    }
)
"""Functions whose argument determines how large their value is, or how long they take."""
DYNAMIC = frozenset({"query", "json_execute_serialized_sql"})
"""Functions that run a text as a statement. Such a statement is not checked here."""


def read_statement(connection: "duckdb.DuckDBPyConnection", sql: str) -> str:
    """Return the one SELECT of a question.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    import duckdb

    if not isinstance(sql, str):
        raise QueryError("STORE_QUERY", f"a question must be one SELECT statement, not {sql!r}")
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(one.type).rpartition(".")[2] for one in statements) or "nothing"
        raise QueryError("STORE_QUERY", f"a question must be one SELECT statement, not {kinds}")
    return str(statements[0].query)


def refuse_large_values(connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
    """Raise if a SELECT calls a function whose value may be of any size.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    ((parsed,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    called = _list_calls(json.loads(parsed))
    refused = sorted(name for name, is_table in called if name in (DYNAMIC if is_table else SIZED | DYNAMIC))
    if refused:
        what = f"a question to a service must not call {refused[0]}(), which makes values of any size"
        raise QueryError("STORE_QUERY", f"{what}; leave this to the program that reads the answer")


def _list_calls(parsed: Any, is_table: bool = False) -> Iterator[tuple[str, bool]]:
    """List the functions of a statement that DuckDB has written as JSON, and whether they stand as a table.

    The rows of a function that stands as a table come in pieces, as in ``FROM range(1000000)``.
    """
    if isinstance(parsed, dict):
        if isinstance(parsed.get("function_name"), str):
            yield parsed["function_name"].lower(), is_table
        for name, value in parsed.items():
            yield from _list_calls(value, parsed.get("type") == "TABLE_FUNCTION" and name == "function")
    elif isinstance(parsed, list):
        for one in parsed:
            yield from _list_calls(one)
