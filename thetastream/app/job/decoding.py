"""Decodes the values of Kafka records, and separates and keeps the records that cannot be decoded.

    json    the value is a JSON object; ``schema`` has columns as SQL writes them
    avro    the value is an Avro record; ``schema`` is the Avro schema of its writer, as JSON

A record is dead if it has no value, if its value cannot be decoded, or if its event time is NULL. A dead
record does not stop the query and is not a tuple of the stream. If the source has ``dead_letters``, a query
of its own keeps the record in this folder, as Parquet files. The join does not wait for these queries, and
Spark's file sink writes each record once.
"""

import json
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.app.job.schemas import RECORD, RECORD_COLUMNS, Columns, read_schema
from thetastream.app.job.spec import Job, SourceSpec, write_option
from thetastream.core.spans import write_delay
from thetastream.lowering.domains import quote

_DECODED, _WHY = "__decoded", "__why"
VALUE = "value"
"""The column of Spark's Kafka connector that has the bytes of a value."""
_CORRUPT = "__corrupt"
_CONFLUENT_BYTES = 5
"""The length of the header that Confluent's writers put before an Avro record: a zero byte, and the number of
the schema in four bytes."""
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
TRIGGER = "5 seconds"
"""The trigger of these queries if the job has none."""
_METRIC = "dead_letters"


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


class Decoder(Protocol):
    """Decodes the value of a record by a schema."""

    def read_columns(self, schema: str) -> Columns:
        """Read the columns of a schema; raise ValueError with the reason if the text is not a schema."""
        ...

    def open(self, schema: str, schema_id: int | None) -> Column:
        """Return the decoded value as a struct, which has a field for each column of the schema."""
        ...

    def find_damage(self, decoded: Column, schema: str, schema_id: int | None) -> Mapping[str, Column]:
        """Return the reasons why a value that is not NULL cannot be decoded: reason -> condition."""
        ...


def _find_decoder(source: SourceSpec) -> Decoder:
    return DECODERS[source.decode or ""]


class Json:
    """Decodes JSON objects. Fields that the schema does not name are ignored, and missing fields are NULL."""

    def read_columns(self, schema: str) -> Columns:
        return read_schema(schema)

    def open(self, schema: str, schema_id: int | None) -> Column:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        return F.from_json(F.col(VALUE).cast("string"), f"{schema}, {_CORRUPT} STRING", options)

    def find_damage(self, decoded: Column, schema: str, schema_id: int | None) -> Mapping[str, Column]:
        is_damaged = decoded.isNull() | decoded[_CORRUPT].isNotNull()
        return {"the value is not JSON of the schema": is_damaged}


class Avro:
    """Decodes Avro records without a header. With ``schema_id``, it decodes records with Confluent's header.

    Avro's bytes do not name their columns, so the schema must be the schema of the writer. Spark's package
    spark-avro decodes the records. For bytes that it cannot decode, it returns a struct of NULLs, so a record
    whose columns are all NULL counts as damaged.
    """

    def read_columns(self, schema: str) -> Columns:
        return read_avro_schema(schema)

    def open(self, schema: str, schema_id: int | None) -> Column:
        body = VALUE if schema_id is None else f"substring({VALUE}, {_CONFLUENT_BYTES + 1})"
        text = schema.replace("\\", "\\\\").replace("'", "\\'")
        return F.expr(f"from_avro({body}, '{text}', map('mode', 'PERMISSIVE'))")

    def find_damage(self, decoded: Column, schema: str, schema_id: int | None) -> Mapping[str, Column]:
        reasons = {}
        if schema_id is not None:
            header = f"00{schema_id:08X}"
            found = F.hex(F.substring(F.col(VALUE), 1, _CONFLUENT_BYTES))
            reasons[f"the record is not of schema {schema_id}"] = found != header
        has_value = reduce(or_, (decoded[name].isNotNull() for name in self.read_columns(schema)))
        reasons["the value is not Avro of the schema"] = ~has_value
        return reasons


DECODERS: Mapping[str, Decoder] = {"json": Json(), "avro": Avro()}
"""The decoders by the value of ``decode``."""


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


class DeadLetters:
    """The queries that keep the dead records of a job."""

    def __init__(self) -> None:
        self._queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, int] = {}

    def start(self, spark: SparkSession, job: Job, until_caught_up: bool) -> None:
        """Start a query for each source whose dead records are kept."""
        for source in job.sources:
            if source.dead_letters is not None:
                self._queries[source.name] = _start(spark, job, source, until_caught_up)

    def count_new(self) -> dict[str, Any]:
        """Count the dead records since the last call; return the number as a figure of an epoch.

        It returns no figure if no source keeps dead records. It raises the exception of a query that has
        failed.
        """
        if not self._queries:
            return {}
        total = 0
        for name, query in self._queries.items():
            if not query.isActive:
                query.awaitTermination()  # This raises the exception of a failed query.
            for progress in query.recentProgress:
                if progress.batchId > self._seen.get(name, -1):
                    self._seen[name] = progress.batchId
                    total += _count(progress)
        return {_METRIC: total}

    def finish(self, until_caught_up: bool) -> None:
        """Wait until the queries have read all available input, if they were started to end then."""
        if until_caught_up:
            for query in self._queries.values():
                query.awaitTermination()

    def stop(self) -> None:
        """Stop the queries. They continue from their checkpoints in the next run."""
        for query in self._queries.values():
            query.stop()


def _start(spark: SparkSession, job: Job, source: SourceSpec, until_caught_up: bool) -> StreamingQuery:
    reader = spark.readStream.format(source.format)
    for key, value in source.options.items():
        reader = reader.option(key, write_option(value))
    dead = select_dead(reader.load(), source).observe(_METRIC, F.count(F.lit(1)).alias("n"))
    writer = dead.writeStream.format("parquet").option("path", source.dead_letters or "")
    writer = writer.option("checkpointLocation", f"{job.checkpoint.rstrip('/')}/{_METRIC}/{source.name}")
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=write_delay(job.trigger or TRIGGER))
    return writer.start()


def _count(progress: Any) -> int:
    row = (progress.observedMetrics or {}).get(_METRIC)
    return 0 if row is None else int(row["n"])
