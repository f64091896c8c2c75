"""Reads the tables ``[tables.NAME]`` of ``job.toml``, and lists their errors.

path, format, options, every, keep, max_age, key, valid_from

They are the parameters of ``th.Table``. A statement names such a table in FROM, as it names a source.
"""

from collections.abc import Mapping
from pathlib import Path

from thetastream.app.job.spec import check_keys, check_scalars, get_table, resolve
from thetastream.core.errors import QueryError, ThetastreamError, list_problems
from thetastream.spark.tables.table import Table

KEYS = {
    "path": str,
    "format": str,
    "options": dict,
    "every": str,
    "keep": int,
    "max_age": str,
    "key": object,
    "valid_from": str,
}
"""The keys of a table, and the types of their values."""


def parse_table(name: str, table: object, folder: Path, problems: list[ThetastreamError]) -> Table | None:
    """Read a table, and add its errors to ``problems``; return None if there are any."""
    where = f"table {name!r}"
    if not isinstance(table, dict):
        problems.append(QueryError("BAD_VALUE", f"{where} must be a table, [tables.{name}]"))
        return None
    before = len(problems)
    check_keys(table, KEYS, where, problems)
    check_scalars(get_table(table, "options"), f"the options of {where}", problems)
    if "path" not in table and "options" not in table:
        problems.append(QueryError("MISSING_KEY", f"{where} must have 'path', or 'format' and 'options'"))
    key = table.get("key", [])
    if not isinstance(key, str) and not _is_list_of_names(key):
        what = f"'key' of {where} must be a string or a list of strings, not {key!r}"
        problems.append(QueryError("BAD_VALUE", what))
    if len(problems) > before:
        return None
    parameters: Mapping[str, object] = {name: value for name, value in table.items() if name != "path"}
    try:
        path = resolve(table["path"], folder) if "path" in table else None
        return Table(path, **parameters)  # type: ignore[arg-type]
    except ThetastreamError as error:
        problems += list_problems(error)
        return None


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
