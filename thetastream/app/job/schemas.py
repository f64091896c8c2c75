"""Reads the columns that a job file declares for its sources, without Spark.

``schema`` and ``select`` declare columns, and some formats have fixed columns. The columns of other sources
are unknown. They are also unknown if a path has folders such as ``day=1``, because Spark makes more columns
of such names.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from thetastream.conditions import Phrase, tokenize
from thetastream.conditions.clauses import find_name, split_name

Columns = dict[str, str]
"""Column -> its type as the file writes it. The type is an empty text if it is unknown."""

RECORD = "kafka"
"""The name of a struct with the Kafka record, which expressions over decoded values can use."""
RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")
"""The fields of this struct."""

FIXED: Mapping[str, Columns] = {
    "rate": {"timestamp": "TIMESTAMP", "value": "BIGINT"},
    "socket": {"value": "STRING"},
    "text": {"value": "STRING"},
    "kafka": {
        "key": "BINARY",
        "value": "BINARY",
        "topic": "STRING",
        "partition": "INT",
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP",
        "timestampType": "INT",
    },
}
"""The columns of formats that have fixed columns."""


def find_columns(
    format_: str,
    schema: str | None,
    select: tuple[str, ...],
    path: str | None,
    options: Mapping[str, object],
    read: Callable[[str], Columns] | None = None,
) -> Columns | None:
    """Find the columns of a source; None if only Spark knows them.

    ``read`` is the function that reads the schema. By default, it is ``read_schema``.
    """
    if select:
        return _read_select(select)
    if path is not None and os.path.isdir(path) and any(Path(path).glob("*=*")):
        return None
    if schema is not None:
        return (read or read_schema)(schema)
    if (format_ == "socket" and options.get("includeTimestamp")) or options.get("includeHeaders"):
        return None
    return FIXED.get(format_)


def read_schema(schema: str) -> Columns:
    """Read the columns of a schema.

    >>> read_schema("id INT, `a b`: STRUCT<x: INT, y: DECIMAL(9, 2)> COMMENT 'two', ts TIMESTAMP NOT NULL")
    {'id': 'INT', 'a b': 'STRUCT<x: INT, y: DECIMAL(9, 2)>', 'ts': 'TIMESTAMP'}
    """
    phrase, start, depth = tokenize(schema), 0, 0
    parts: list[Phrase] = []
    for n in phrase.top:
        text = phrase.tokens[n].text
        depth += text.count("<") - text.count(">")
        if text == "," and depth == 0:
            parts.append(phrase.slice(start, n))
            start = n + 1
    columns = {}
    for part in [*parts, phrase.slice(start)]:
        words = part.slice(1)
        if words and words.tokens[0].text == ":":
            words = words.slice(1)
        end = next(
            (n for n, token in enumerate(words) if token.keyword in ("NOT", "COMMENT", "DEFAULT")), None
        )
        if part:
            columns[part.tokens[0].name] = words.slice(0, end).text
    return columns


def _read_select(select: tuple[str, ...]) -> Columns | None:
    """Read the columns that the expressions of ``select`` make; None if an expression gives no name."""
    columns = {}
    for text in select:
        item = tokenize(text)
        name = find_name(item) if item else None
        if name is None:
            return None
        words = split_name(item)[1].tokens
        is_cast = len(words) > 3 and words[0].keyword == "CAST" and words[-3].keyword == "AS"
        columns[name] = words[-2].keyword if is_cast else ""
    return columns
