"""Decodes the values of Kafka's records, and tells apart those that cannot be decoded.

A record is dead if it has no value, if its value is not JSON of the schema, or if its event time is NULL. A
dead record never stops a query: the stream goes on without it, and the dead-letter folder keeps it.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.job.schemas import RECORD, RECORD_COLUMNS, read_schema
from thetastream.job.spec import SourceSpec
from thetastream.plan.domains import quote

_DECODED, _CORRUPT, _WHY = "__decoded", "__corrupt", "__why"


def decode(records: DataFrame, source: SourceSpec) -> DataFrame:
    """Return the columns of the schema of a source, without the dead records.

    If the source has ``select``, its expressions also see the record, as the struct ``kafka``.
    """
    opened = _open(records, source)
    columns = [F.col(f"{_DECODED}.{quote(name)}").alias(name) for name in read_schema(source.schema or "")]
    if source.select:
        columns.append(F.struct(*RECORD_COLUMNS).alias(RECORD))
    return opened.where(F.col(_WHY).isNull()).select(*columns)


def select_dead(records: DataFrame, source: SourceSpec) -> DataFrame:
    """Return the dead records, each with the reason."""
    opened = _open(records, source).where(F.col(_WHY).isNotNull())
    return opened.select(F.col(_WHY).alias("reason"), *RECORD_COLUMNS, "value")


def _open(records: DataFrame, source: SourceSpec) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    schema = f"{source.schema}, {_CORRUPT} STRING"
    opened = records.withColumn(_DECODED, F.from_json(F.col("value").cast("string"), schema, options))
    return opened.withColumn(_WHY, _explain(source))


class _Reason(NamedTuple):
    holds: Column
    text: str


def _explain(source: SourceSpec) -> Column:
    """Say why a record is dead; NULL if it is not."""
    decoded = F.col(_DECODED)
    reasons = [
        _Reason(F.col("value").isNull(), "the record has no value"),
        _Reason(decoded.isNull() | decoded[_CORRUPT].isNotNull(), "the value is not JSON of the schema"),
    ]
    time = next(
        (
            name
            for name in read_schema(source.schema or "")
            if name.casefold() == (source.event_time or "").casefold()
        ),
        None,
    )
    if time is not None and not source.select:
        reasons.append(_Reason(decoded[time].isNull(), "the event time is NULL"))
    first, *others = reasons
    why = F.when(first.holds, first.text)
    for reason in others:
        why = why.when(reason.holds, reason.text)
    return why
