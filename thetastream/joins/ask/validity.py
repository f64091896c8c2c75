"""Tables whose rows are valid for a time: a tuple meets the row of each key that is valid at its event time.

    t.since <= a.ts AND a.ts < t.`valid to`

The row of a key is chosen first, and the condition of the user is checked on it afterwards. In SQL,
``FOR SYSTEM_TIME AS OF`` may name another time.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from thetastream.conditions import Phrase, parse
from thetastream.core.errors import QueryError
from thetastream.families.result_time import write_result_time
from thetastream.lowering.domains import quote
from thetastream.lowering.query import Stream
from thetastream.spark.tables.declared import find_declared, has_time
from thetastream.spark.tables.table import VALID_TO


def find_valid_from(frame: DataFrame) -> str | None:
    """Return the column from which on a row of a table is valid; None if it is valid for ever."""
    table = find_declared(frame)
    if table is None or table.valid_from is None:
        return None
    folded = table.valid_from.casefold()
    return next(name for name in frame.columns if name.casefold() == folded)


def write_valid_at(alias: str, began: str, time: str) -> tuple[str, str]:
    """Write the conjuncts by which a row is valid at a time.

    >>> write_valid_at("t", "since", "a.ts")
    ('`t`.`since` <= (a.ts)', '(a.ts) < `t`.`valid to`')
    """
    return f"{quote(alias)}.{quote(began)} <= ({time})", f"({time}) < {quote(alias)}.{quote(VALID_TO)}"


def write_validity(
    frames: Mapping[str, DataFrame], streams: Sequence[Stream]
) -> tuple[list[Phrase], list[QueryError]]:
    """Write the conjuncts by which rows of tables are valid at the event time of a tuple.

    If several streams are joined with a table, it is the latest of their event times. Returns an error for
    each table whose condition cannot be written.
    """
    conjuncts: list[Phrase] = []
    problems: list[QueryError] = []
    is_batch = not any(stream.is_streaming for stream in streams)
    others = [
        stream
        for stream in streams
        if (stream.is_streaming or is_batch) and find_declared(frames[stream.alias]) is None
    ]
    for table in streams:
        began = find_valid_from(frames[table.alias])
        if began is None or has_time(frames[table.alias]):
            continue
        found = _find_problem(table, began, others)
        if is_batch and len(streams) > 2:
            what = f"table {table.alias!r} has valid_from, and the inputs are batch DataFrames"
            found = QueryError("VALID_FROM", f"{what}; join two of them at a time")
        if found is not None:
            problems.append(found)
            continue
        time = f"{quote(others[0].alias)}.{quote(str(others[0].event_time))}"
        if len(others) > 1:
            time = str(write_result_time(others))
        conjuncts += [parse(text) for text in write_valid_at(table.alias, began, time)]
    return conjuncts, problems


def _find_problem(table: Stream, began: str, others: Sequence[Stream]) -> QueryError | None:
    """Find why rows of a table cannot be valid at the event time of the other inputs."""
    timeless = [stream.alias for stream in others if stream.event_time is None]
    if timeless or not others:
        what = f"table {table.alias!r} has valid_from={began!r}, which is compared with event times"
        missing = f"and {', '.join(timeless)} has none" if timeless else "and no input has one"
        hint = 'call .withWatermark("column", "delay") on a stream, or give event_time= for a batch DataFrame'
        return QueryError("VALID_FROM", f"{what}, {missing}; {hint}")
    type_ = table.type_of(began)
    for stream in others:
        mine = stream.type_of(str(stream.event_time))
        if type_ not in (mine, "date"):
            what = f"{table.alias}.{began} is {type_} and {stream.alias}.{stream.event_time} is {mine}"
            return QueryError("VALID_FROM", f"{what}; cast one of them to the type of the other")
    return None
