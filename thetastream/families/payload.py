"""Selects the columns of a stream that are sent to the units."""

from collections.abc import Collection

from pyspark.sql.types import StructType

from thetastream.core.columns import MARK

INSTANTS = ("timestamp", "timestamp_ntz")
"""The types of columns that may be the event time of a batch."""


def select_fields(schema: StructType, names: Collection[str] | None, is_streaming: bool) -> StructType:
    """Select the columns with these lower-case names and those that may be the event time.

    None selects all.
    """
    if names is None:
        return schema
    kept = [
        field
        for field in schema.fields
        if field.name.casefold() in names
        or MARK in (field.metadata or {})
        or (not is_streaming and field.dataType.simpleString() in INSTANTS)
    ]
    return StructType(kept or schema.fields[:1])  # a tuple without any column would not be counted
