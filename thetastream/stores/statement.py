"""Checks the statement of a question before it runs. It must be one SELECT without huge values.

DuckDB bounds the memory of tables, but not the memory of a single value, and it does not interrupt a function
that makes a value. So a client of the service may not call functions that take the size of their value as an
argument.
"""

import json
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from thetastream.errors import QueryError

if TYPE_CHECKING:
    import duckdb

SIZED = frozenset(
    {
        *("array_resize", "bar", "bitstring", "equi_width_bins", "format", "generate_series", "list_resize"),
        *("lpad", "printf", "range", "repeat", "rpad", "sleep_ms"),
        # They fold a list, and each step may double the value.
        *("array_reduce", "list_reduce", "reduce"),
    }
)
"""Functions with an argument that sets the size of their value, or the time that they take."""
REPLACING = frozenset({"regexp_replace", "replace"})
"""Functions whose value is as large as the product of two arguments."""
LARGEST_GROWTH = 1000
"""How many times longer all replacements of a statement together may make a text."""
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
    called, growth = list(_list_calls(json.loads(parsed))), 1.0
    for name, is_table, call in sorted(called, key=lambda one: one[0]):
        if name in (DYNAMIC if is_table else SIZED | DYNAMIC):
            _refuse(f"must not call {name}(), which makes values of any size")
        growth *= _bound_growth(call) if name in REPLACING else 1
        if growth > LARGEST_GROWTH:
            what = f"must not make texts more than {LARGEST_GROWTH:,} times longer by {name}()"
            _refuse(f"{what}, and the new text of each call must be a constant")


def _refuse(rule: str) -> NoReturn:
    what = f"a question to a service {rule}"
    raise QueryError("STORE_QUERY", f"{what}; leave this to the program that reads the answer")


def _list_calls(parsed: Any, is_table: bool = False) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """List the functions that a statement calls: the name, whether it is called as a table, and the call.

    DuckDB has written the statement as JSON. A function that is called as a table, as in ``FROM
    range(1000000)``, returns its rows in pieces and not as one large value.
    """
    if isinstance(parsed, dict):
        if isinstance(parsed.get("function_name"), str):
            yield parsed["function_name"].lower(), is_table, parsed
        for name, value in parsed.items():
            yield from _list_calls(value, parsed.get("type") == "TABLE_FUNCTION" and name == "function")
    elif isinstance(parsed, list):
        for one in parsed:
            yield from _list_calls(one)


def _bound_growth(call: dict[str, Any]) -> float:
    """Bound how many times longer a replacement makes a text. Without a constant, there is no bound.

    A text that stands before the name of the function, as in ``x.replace('a', 'b')``, may be missing among
    the arguments.
    """
    arguments = call.get("arguments", call.get("children", ()))  # DuckDB 1 has other names than DuckDB 2.
    texts = [_read_constant(one.get("expression", one)) for one in arguments]
    if len(texts) < 2 or None in texts[1:]:
        return inf
    if call["function_name"].lower() == "replace":
        old, new = len(texts[-2] or ""), len(texts[-1] or "")
        return max(1.0, new / max(old, 1))
    # A regular expression also finds empty texts, and replaces each of them.
    return 1.0 + max(len(text or "") for text in texts[1:])


def _read_constant(expression: dict[str, Any]) -> str | None:
    """Read a constant text or number of a statement. None if it is something else."""
    if expression.get("class") != "CONSTANT":
        return None
    value = expression.get("literal", expression.get("value", {}))
    text = value.get("text", value.get("value"))
    return None if text is None else str(text)
