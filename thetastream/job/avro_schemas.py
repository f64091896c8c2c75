"""Reads the columns of an Avro schema, with the types that Spark uses for them."""

import json
from collections.abc import Mapping
from typing import Any

_SQL_TYPES: Mapping[str, str] = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
    "enum": "STRING",
    "fixed": "BINARY",
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
}


def read_avro_schema(schema: str) -> dict[str, str]:
    """Read the fields of a record: name -> SQL type. The type is an empty text if only Spark knows it.

    >>> read_avro_schema('''{"type": "record", "name": "trade", "fields": [
    ...     {"name": "id", "type": "long"},
    ...     {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ...     {"name": "note", "type": ["null", "string"]},
    ...     {"name": "tags", "type": {"type": "array", "items": "string"}}]}''')
    {'id': 'BIGINT', 'ts': 'TIMESTAMP', 'note': 'STRING', 'tags': ''}

    Raises
    ------
    ValueError
        The text is not the JSON of a record with fields.
    """
    try:
        record = json.loads(schema)
        if record["type"] == "record" and record["fields"]:
            return {str(field["name"]): _name_type(field["type"]) for field in record["fields"]}
    except (json.JSONDecodeError, KeyError, TypeError):
        pass
    raise ValueError('it is not an Avro schema {"type": "record", "name": ..., "fields": [...]}')


def _name_type(type_: Any) -> str:
    if isinstance(type_, list):
        others = [each for each in type_ if each != "null"]
        return _name_type(others[0]) if len(others) == 1 else ""
    if isinstance(type_, dict):
        return (
            _SQL_TYPES.get(type_["logicalType"], "") if "logicalType" in type_ else _name_type(type_["type"])
        )
    return _SQL_TYPES.get(type_, "")
