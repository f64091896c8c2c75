"""Decodes the values of Kafka records, and separates the records that cannot be decoded.

A record is dead if it has no value, if its value cannot be decoded, or if its event time is NULL. A dead
record does not stop the query and is not a tuple of the stream. If the source has ``dead_letters``, this
folder keeps the record.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.job.decoders import DECODERS, VALUE, Decoder
from thetastream.job.schemas import RECORD, RECORD_COLUMNS, Columns
from thetastream.job.spec import SourceSpec
from thetastream.plan.domains import quote

_DECODED, _WHY = "__decoded", "__why"


def decode(records: DataFrame, source: SourceSpec) -> DataFrame:
    """Return the columns of the schema of a source, without the dead records.

    If the source has ``select``, its expressions also see the record, as the struct ``kafka``.
    """
    opened = _open(records, source)
    columns = [F.col(f"{_DECODED}.{quote(name)}").alias(name) for name in _read_columns(source)]
    if source.select:
        columns.append(F.struct(*RECORD_COLUMNS).alias(RECORD))
    return opened.where(F.col(_WHY).isNull()).select(*columns)


def select_dead(records: DataFrame, source: SourceSpec) -> DataFrame:
    """Return the dead records, each with the reason."""
    opened = _open(records, source).where(F.col(_WHY).isNotNull())
    return opened.select(F.col(_WHY).alias("reason"), *RECORD_COLUMNS, VALUE)


def _open(records: DataFrame, source: SourceSpec) -> DataFrame:
    value = _find_decoder(source).open(source.schema or "", source.schema_id)
    return records.withColumn(_DECODED, value).withColumn(_WHY, _explain(source))


def _explain(source: SourceSpec) -> Column:
    """Return the reason why a record is dead, or NULL if it is not dead."""
    decoded = F.col(_DECODED)
    why = F.when(F.col(VALUE).isNull(), "the record has no value")
    damage = _find_decoder(source).find_damage(decoded, source.schema or "", source.schema_id)
    for reason, is_damaged in damage.items():
        why = why.when(is_damaged, reason)
    time = (source.event_time or "").casefold()
    times = [name for name in _read_columns(source) if name.casefold() == time]
    if times and not source.select:
        why = why.when(decoded[times[0]].isNull(), "the event time is NULL")
    return why


def _read_columns(source: SourceSpec) -> Columns:
    return _find_decoder(source).read_columns(source.schema or "")


def _find_decoder(source: SourceSpec) -> Decoder:
    return DECODERS[source.decode or ""]
