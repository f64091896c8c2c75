"""Decoders for the values of Kafka records. Each decoder is one class and one entry of ``DECODERS``.

json   the value is a JSON object; ``schema`` has columns as SQL writes them
avro   the value is an Avro record; ``schema`` is the Avro schema of its writer, as JSON
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Protocol

from pyspark.sql import Column
from pyspark.sql import functions as F

from thetastream.job.avro_schemas import read_avro_schema
from thetastream.job.schemas import Columns, read_schema

VALUE = "value"
"""The column of Spark's Kafka connector that has the bytes of a value."""
_CORRUPT = "__corrupt"
_CONFLUENT_BYTES = 5
"""The length of the header that Confluent's writers put before an Avro record: a zero byte, and the number of
the schema in four bytes."""


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
