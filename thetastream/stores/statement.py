"""Reads the statement of a question before it runs: one SELECT, and for clients no value of any size.

DuckDB bounds the memory of tables and not that of a single value, and it does not interrupt a function that
makes one. So a client of the service may not call functions that take the size of their value as an argument.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thetastream.errors import QueryError

if TYPE_CHECKING:
    import duckdb

SIZED = frozenset(
    {"array_resize", "bar", "bitstring", "format", "list_resize", "lpad", "printf", "repeat", "rpad"}
)
"""Functions whose value is as large as an argument says."""
DYNAMIC = frozenset({"query", "json_execute_serialized_sql"})
"""Functions that run a text as a statement, which nobody has read."""


def read_statement(connection: "duckdb.DuckDBPyConnection", sql: str) -> str:
    """Return the one SELECT of a question.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    import duckdb

    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(one.type).rpartition(".")[2] for one in statements) or "nothing"
        raise QueryError("STORE_QUERY", f"a question must be one SELECT statement, not {kinds}")
    return str(statements[0].query)


def refuse_large_values(connection: "duckdb.DuckDBPyConnection", sql: str) -> None:
    """Raise if a SELECT calls a function that makes a value of any size.

    Raises
    ------
    QueryError
        STORE_QUERY.
    """
    ((parsed,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    called = set(_list_functions(json.loads(parsed)))
    refused = sorted(called & (SIZED | DYNAMIC))
    if refused:
        what = f"a question to a service must not call {refused[0]}(), which makes values of any size"
        raise QueryError("STORE_QUERY", f"{what}; leave this to the program that reads the answer")


def _list_functions(parsed: Any) -> Iterator[str]:
    """List the names of all functions in a statement that DuckDB has written as JSON."""
    if isinstance(parsed, dict):
        name = parsed.get("function_name")
        if isinstance(name, str):
            yield name.lower()
        parsed = list(parsed.values())
    if isinstance(parsed, list):
        for one in parsed:
            yield from _list_functions(one)
